//! Isolated passes: a pass in a worker process of its own, which opens no store and never holds the claim.
//!
//! The host claims, launches the worker with one end of a socket pair that nothing else has, and presents the claim for whatever the
//! worker asks. What a pass does wrong there, whether it crashes, hangs, exits or lies, ends the process and fails the pass, and nothing
//! else. A program's worker calls [`PassWorker::run`] at the beginning of its `main`. Not here: threads of the host (`runtime`).

mod child;
mod frame;
mod host;
mod message;

pub use child::PassWorker;
pub(crate) use host::{Isolated, in_process};
