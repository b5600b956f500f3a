//! What can go wrong, one variant for each thing that a caller does differently.

use holdpoint_state::StateError;

/// An error of a read model. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ViewerError {
    /// There is no such run.
    #[error("workflow run {run} was not found")]
    NoRun {
        /// What was asked for.
        run: String,
    },
    /// The run refers to no such content, or the offset is past its end.
    #[error("run {run} has no content {path} at offset {offset}")]
    NoContent {
        /// The run.
        run: String,
        /// What was asked for.
        path: String,
        /// From where on.
        offset: u64,
    },
    /// The list changed since its first page: begin again with the present revision.
    #[error("the list of runs changed while it was paged; it is at {revision} now")]
    ListChanged {
        /// The present revision.
        revision: String,
    },
    /// The kernel refused or failed.
    #[error(transparent)]
    State(#[from] StateError),
}
