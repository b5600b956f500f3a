//! Where the contents of declared files come from: the spec itself, or the output of a run.
//!
//! Not here: what is done with them (`reconcile`).

use std::path::Path;

use holdpoint_workflows::definition::IncludeProblem;
use holdpoint_workflows::file::is_workflow_file;
use holdpoint_workflows::{RunId, WorkflowError};
use serde_json::{Value, json};

use super::place::sha256;
use super::reconcile::{FileSet, FilesPass};
use super::spec::{FileSpec, FromWorkflow};
use crate::model::{ChildRecord, ChildState};
use crate::{Child, PassError};

/// How large the content of a file may be that a run makes.
const CONTENT_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The content of a declared file, or why there is none yet.
pub(super) enum Content {
    Known(Vec<u8>),
    Waiting(Option<RunId>),
    Failed(String),
}

impl FileSet {
    /// The contents of files, by their paths.
    pub(super) fn contents(
        &self,
        pass: &mut FilesPass<'_>,
        files: &[FileSpec],
    ) -> Result<Vec<(String, Content)>, PassError> {
        let mut contents = Vec::new();
        for file in files {
            let content = match (&file.content, &file.from) {
                (Some(text), _) => Content::Known(text.clone().into_bytes()),
                (None, Some(from)) => self.made_by(pass, &file.path, from)?,
                (None, None) => Content::Failed("it has no content".to_owned()),
            };
            contents.push((file.path.clone(), content));
        }
        Ok(contents)
    }

    /// What a run makes of a file. The run is asked for once for each path, workflow and input.
    fn made_by(
        &self,
        pass: &mut FilesPass<'_>,
        path: &str,
        from: &FromWorkflow,
    ) -> Result<Content, PassError> {
        let asked = serde_json::to_vec(
            &json!({ "path": path, "workflow": from.workflow, "input": from.input }),
        )?;
        let digest = sha256(&asked);
        let key = format!("content-{}", digest.get(..32).unwrap_or(&digest));
        let reference =
            if from.workflow.contains('/') || is_workflow_file(Path::new(&from.workflow)) {
                self.project
                    .join(&from.workflow)
                    .to_string_lossy()
                    .into_owned()
            } else {
                from.workflow.clone()
            };
        let child = match pass.ensure_workflow(&Child::new(key, reference, &from.input)?) {
            Ok(child) => child,
            // A workflow that is not there, or an input that it does not take: the other files have nothing to do with it.
            Err(error) if is_a_mistake_of_the_spec(&error) => {
                return Ok(Content::Failed(error.to_string()));
            }
            Err(error) => return Err(error),
        };
        Ok(match child.state {
            ChildState::Succeeded => self.output_of(&child),
            ChildState::Failed => Content::Failed(format!(
                "its run {} failed: {}",
                child.run_id.as_ref().map_or("(none)", RunId::as_str),
                child.error.as_deref().unwrap_or("see the run")
            )),
            ChildState::Pending
            | ChildState::Running
            | ChildState::Waiting
            | ChildState::Interrupted => Content::Waiting(child.run_id),
        })
    }

    /// The final output of a run that completed.
    fn output_of(&self, child: &ChildRecord) -> Content {
        let gone = || {
            Content::Failed(
                "its run is gone, and its output with it; change its input to make it again"
                    .to_owned(),
            )
        };
        let Some(run) = &child.run_id else {
            return gone();
        };
        let Ok(view) = self.workflows.view(run) else {
            return gone();
        };
        let bytes = match view.final_output {
            Some(Value::String(text)) => text.into_bytes(),
            Some(other) => format!("{other:#}\n").into_bytes(),
            None => return Content::Failed(format!("its run {run} has no output")),
        };
        if CONTENT_MAX_BYTES < bytes.len() {
            return Content::Failed(format!("the output of its run {run} is larger than 4 MiB"));
        }
        Content::Known(bytes)
    }
}

/// Whether another spec would help: a workflow that is not there, or an input that it does not take.
fn is_a_mistake_of_the_spec(error: &PassError) -> bool {
    let is_input = |error: &WorkflowError| {
        matches!(
            error,
            WorkflowError::Input { .. } | WorkflowError::Definition(_)
        )
    };
    error.downcast_ref::<IncludeProblem>().is_some()
        || error.downcast_ref::<WorkflowError>().is_some_and(is_input)
}
