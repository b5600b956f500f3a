//! The shapes of the documents, where they are not those of the views. docs/COMMAND.md describes each.
//!
//! Every shape is stable: members are added, never renamed or removed.

use holdpoint_workflows::RunId;
use holdpoint_workflows::views::{DisplayStatus, Explanation, ProgressView, RunView};
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::CommandError;

/// A run as `show` and `run` give it: the view, with the revision under both names of the reference.
#[derive(Debug, Serialize)]
pub(crate) struct Run<'a> {
    #[serde(flatten)]
    pub(crate) view: &'a RunView,
    /// The revision of what is shown. Until a viewer records presentations, it is the run's own.
    pub(crate) revision: u64,
    /// What it was launched with: `workingDirectory` is the directory that its commands and files are relative to.
    #[serde(rename = "launchOptions")]
    pub(crate) launch_options: &'a Value,
    /// Of `show`: how far the present attempt is, as it said itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<&'a ProgressView>,
    /// Of `run`: whether the run was there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) adopted: Option<bool>,
}

impl<'a> Run<'a> {
    pub(crate) fn of(view: &'a RunView, launch_options: &'a Value) -> Self {
        Self {
            revision: view.run_revision,
            launch_options,
            progress: None,
            view,
            adopted: None,
        }
    }
}

/// Why a run stands where it stands.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explained<'a> {
    #[serde(flatten)]
    pub(crate) explanation: &'a Explanation,
    /// The directory that the run is executed in; none when it was not started by this command.
    pub(crate) working_directory: Option<&'a str>,
    /// The decision that the run asked last; null when it asked none.
    pub(crate) decision: serde_json::Value,
}

/// What became of a command on a run.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Steered {
    /// The run that the command is about; of `restart`, the child.
    pub(crate) run_id: RunId,
    /// Its status.
    pub(crate) status: holdpoint_workflows::model::RunStatus,
    /// The status word for people.
    pub(crate) display_status: DisplayStatus,
    /// Whether it is paused.
    pub(crate) paused: bool,
    /// Its revision.
    pub(crate) revision: u64,
    /// The same, under the name that commands use.
    pub(crate) run_revision: u64,
    /// Whether it was so already, and nothing was written.
    pub(crate) adopted: bool,
    /// Of `restart`: the run that it restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_run_id: Option<RunId>,
}

impl Steered {
    pub(crate) fn of(view: &RunView, adopted: bool) -> Self {
        Self {
            run_id: view.run_id.clone(),
            status: view.status,
            display_status: view.display_status,
            paused: view.paused,
            revision: view.run_revision,
            run_revision: view.run_revision,
            adopted,
            parent_run_id: view.parent_run_id.clone(),
        }
    }
}

/// The document of an error.
pub(crate) fn error(error: &CommandError) -> Value {
    let mut shape = json!({ "code": error.code(), "message": error.chain().join(": ") });
    if let (Some(resource), Some(members)) = (error.resource(), shape.as_object_mut()) {
        members.insert(
            "resource".to_owned(),
            json!({ "type": resource.kind(), "key": resource.key() }),
        );
    }
    json!({ "error": shape })
}
