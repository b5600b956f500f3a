//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::sql::SqlError;
use holdpoint_state::{ClaimLostReason, StateError};
use holdpoint_workflows::WorkflowError;

use crate::model::{Invalid, Target};

/// An error of the domain. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// A value can't be taken: its form, its size.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// There is no such managed resource.
    #[error("{controller} has no resource {key:?} in {project}")]
    NotFound {
        /// The controller.
        controller: String,
        /// The key.
        key: String,
        /// The project.
        project: String,
    },
    /// The resource is being deleted, and takes no other spec. Wait until it is gone, and apply again.
    #[error("{target} is being deleted and takes no other spec; apply again when it is gone")]
    Deleting {
        /// The resource.
        target: String,
    },
    /// The spec is not the one that the caller read. Read it again.
    #[error(
        "somebody changed what {target} wants after it was read, so that it was not written; read it and apply again"
    )]
    SpecChanged {
        /// The resource.
        target: String,
    },
    /// The deletion of the resource was asked for after the pass began: it may begin nothing new. The next pass sees the deletion.
    #[error(
        "the deletion of resource {uid} was asked for during the pass, which begins nothing new"
    )]
    DeletedMeanwhile {
        /// The resource.
        uid: String,
    },
    /// What was asked for under a key is something else than was asked for under it before. Take another key.
    #[error("{what} {key:?} was asked for before with another {difference}; take another key")]
    RequestConflict {
        /// A child or an effect.
        what: &'static str,
        /// The key.
        key: String,
        /// What differs.
        difference: &'static str,
    },
    /// The resource has no child under that key, or no such request exists.
    #[error("there is no child request {0:?}")]
    NoChild(String),
    /// A completion that can't be: a run that is not the reserved one, or a state that can't follow.
    #[error("child request {request}: {problem}")]
    Completion {
        /// The request.
        request: String,
        /// What is wrong.
        problem: String,
    },
    /// The resource can't be deleted by force.
    #[error("{target} can't be taken away by force: {problem}")]
    NotForced {
        /// The resource.
        target: String,
        /// What must be done first.
        problem: &'static str,
    },
    /// Others made and deleted the resource again and again while this command looked for it. Send it again.
    #[error("{target} changed its identity again and again; send the command again")]
    Unsteady {
        /// The resource.
        target: String,
    },
    /// Rows that this program wrote can't be understood: the file is damaged. Restore a backup.
    #[error("{what} is damaged: {problem}; restore a backup")]
    Corrupt {
        /// What they are of.
        what: String,
        /// What is wrong.
        problem: String,
    },
    /// This program has no such controller. Register it first.
    #[error("no controller {controller} is registered here")]
    NotRegistered {
        /// Its name, or its type.
        controller: String,
    },
    /// This program has a controller of this name, or of this type. One of a kind is enough.
    #[error("a controller {controller} is registered already, or another one of its type")]
    Registered {
        /// Its name.
        controller: String,
    },
    /// A document does not have the shape that the controller's types read or write.
    #[error("the {what} does not have the shape that the controller reads: {problem}")]
    Shape {
        /// The spec or the status.
        what: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// The workflows domain refused its part.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<SqlError> for ControllerError {
    fn from(error: SqlError) -> Self {
        Self::State(error.into())
    }
}

impl ControllerError {
    pub(crate) fn not_found(target: &Target) -> Self {
        Self::NotFound {
            controller: target.controller.to_string(),
            key: target.key.to_string(),
            project: target.project.to_string(),
        }
    }

    /// Why the claim of a pass is lost, if that is what happened: the pass must end and write nothing.
    pub fn claim_lost(&self) -> Option<ClaimLostReason> {
        match self {
            Self::State(StateError::ClaimLost { reason, .. }) => Some(*reason),
            _ => None,
        }
    }
}
