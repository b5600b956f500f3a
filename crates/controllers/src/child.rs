//! The wish of a pass for a child workflow.
//!
//! Not here: reserving it (`commands::children`), finding its workflow (`host`).

use holdpoint_workflows::definition::{Definition, SourceIdentity};
use serde::Serialize;
use serde_json::Value;

use crate::controller::PassError;
use crate::model::{ChildRequest, RequestKey};

/// A finite run that a resource needs, under a key of the resource's own: the same key gives the same run, with the same workflow and
/// input, whichever pass asks. A pass has it started by [`Pass::ensure_workflow`](crate::Pass::ensure_workflow).
#[derive(Debug, Clone)]
pub struct Child {
    pub(crate) request_key: RequestKey,
    pub(crate) workflow: ChildWorkflow,
    pub(crate) input: Value,
}

/// Which workflow a child runs.
#[derive(Debug, Clone)]
pub(crate) enum ChildWorkflow {
    /// What the program's library finds under a reference: a file, a name, `builtin:ID`.
    Named(String),
    /// A definition that the program has.
    Defined(Box<(Definition, SourceIdentity)>),
}

impl Child {
    /// A run of the workflow that the program's library has under this reference: a name, `builtin:ID` or the path of a file.
    ///
    /// # Errors
    ///
    /// A key that is none; an input that has no JSON form.
    pub fn new(
        request_key: impl AsRef<str>,
        workflow: impl Into<String>,
        input: impl Serialize,
    ) -> Result<Self, PassError> {
        Ok(Self {
            request_key: RequestKey::new(request_key.as_ref())?,
            workflow: ChildWorkflow::Named(workflow.into()),
            input: serde_json::to_value(input)?,
        })
    }

    /// A run of a definition that the program has.
    ///
    /// # Errors
    ///
    /// As [`Child::new`].
    pub fn of(
        request_key: impl AsRef<str>,
        definition: &Definition,
        input: impl Serialize,
    ) -> Result<Self, PassError> {
        let source = SourceIdentity::inline(definition);
        Ok(Self {
            request_key: RequestKey::new(request_key.as_ref())?,
            workflow: ChildWorkflow::Defined(Box::new((definition.clone(), source))),
            input: serde_json::to_value(input)?,
        })
    }

    /// What is reserved: another workflow or input under the same key is a conflict.
    pub(crate) fn request(&self) -> ChildRequest {
        ChildRequest {
            request_key: self.request_key.clone(),
            workflow: match &self.workflow {
                ChildWorkflow::Named(reference) => reference.clone(),
                ChildWorkflow::Defined(defined) => defined.0.name().to_owned(),
            },
            input: self.input.clone(),
        }
    }
}
