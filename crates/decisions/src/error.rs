//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::StateError;

use crate::model::NAME_CHARS_MAX;

/// An error of the domain. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecisionError {
    /// The name can't be taken. Choose another one.
    #[error("a name has 1 to {NAME_CHARS_MAX} characters and no control characters")]
    Name,
    /// The command failed in the state layer, which says what to do.
    #[error(transparent)]
    State(#[from] StateError),
}
