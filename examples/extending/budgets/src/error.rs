//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::StateError;
use holdpoint_workflows::WorkflowError;

use crate::model::NAME_CHARS_MAX;

/// An error of the domain. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BudgetError {
    /// A name or a call's id can't be taken. Choose another one.
    #[error("a name or id has 1 to {NAME_CHARS_MAX} characters and no control characters")]
    Name,
    /// Units or milliseconds that are not positive.
    #[error("units and windows are positive")]
    Units,
    /// The budget is open with another limit. Resize it, or choose another name.
    #[error("the budget {budget} is open with another limit")]
    OtherLimit {
        /// Its name.
        budget: String,
    },
    /// A call of that id asked for other units, or another budget. Give each call an id of its own.
    #[error("the call {call_id} asked for something else before")]
    OtherCall {
        /// Its id.
        call_id: String,
    },
    /// More units than a whole window has. Resize the budget, or ask for less.
    #[error(
        "the budget {budget} has {limit_units} units in each window, and {units} can never be granted"
    )]
    AboveLimit {
        /// Its name.
        budget: String,
        /// What a window has.
        limit_units: i64,
        /// What was asked for.
        units: i64,
    },
    /// A run could not be moved on, which is for the workflows to say.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}

/// For what is written beside a parked attempt: the runner hears of it in its own words.
impl From<BudgetError> for WorkflowError {
    fn from(error: BudgetError) -> Self {
        match error {
            // Whether to try again is for these to say.
            BudgetError::State(error) => Self::State(error),
            BudgetError::Workflow(error) => error,
            error => Self::domain(error),
        }
    }
}
