//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::StateError;

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
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}
