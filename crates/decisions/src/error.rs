//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::StateError;
use holdpoint_workflows::WorkflowError;

use crate::model::{Invalid, StoredProblem};

/// An error of the domain. Nothing was written. Its text never repeats an actor or an answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    /// What is asked or submitted can't be taken: a limit with its name and the observed value, a form, a control character.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The attempt has asked already, and something else.
    #[error("attempt {attempt} has asked for decision {decision} already; a request never changes")]
    OtherRequest {
        /// The attempt.
        attempt: String,
        /// The decision that it asked for.
        decision: String,
    },
    /// The request that is stored is not what was stored: the file is damaged. Restore a backup.
    #[error(
        "decision {decision} is damaged: the digest of its {what} is another one than was stored; restore a backup"
    )]
    Corrupt {
        /// The decision.
        decision: String,
        /// What differs.
        what: &'static str,
    },
    /// The stored request was written by another version. It is left untouched.
    #[error(
        "decision {decision} was stored by another version of the program ({problem}); finish it there, or reset the state: move the \
         database away and start again"
    )]
    Incompatible {
        /// The decision.
        decision: String,
        /// What this version does not know.
        problem: String,
    },
    /// The workflows domain refused its part of the transaction.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}

impl DecisionError {
    /// Whether it is about one stored decision that can't be used, so that others may go on: its rows are damaged, or of another version.
    pub fn is_of_one_decision(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Incompatible { .. })
    }

    /// What a stored document that can't be used means for the caller.
    pub(crate) fn stored(decision: &str, problem: StoredProblem) -> Self {
        let decision = decision.to_owned();
        match problem {
            StoredProblem::Incompatible(problem) => Self::Incompatible { decision, problem },
            StoredProblem::Digest(what) => Self::Corrupt { decision, what },
        }
    }
}

impl From<DecisionError> for WorkflowError {
    fn from(error: DecisionError) -> Self {
        match error {
            DecisionError::Workflow(error) => error,
            DecisionError::State(error) => Self::State(error),
            other => Self::Domain(std::sync::Arc::new(other)),
        }
    }
}
