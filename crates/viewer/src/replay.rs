//! A run and its conversation at any step or event: pure folds. What a fold leaves does not depend on where it began, as long as it
//! began at a checkpoint. Not here: finding checkpoints and rows (`views`).

mod conversation;
mod graph;

pub use conversation::{CHECKPOINT_EVERY, SessionEventView, fold};
pub use graph::{GRAPH_WINDOW, GraphState, Visited};
