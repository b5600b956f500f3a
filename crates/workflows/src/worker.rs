//! Worker processes: a run is executed by a child of the host that proposes changes and never opens the store.
//!
//! The host claims the run, launches the child ([`WorkerLauncher`]) with one end of a socket pair that nothing else has, and judges
//! every proposal as it judges those of its own threads. What a child does wrong, whether it crashes, hangs, floods or lies, ends the
//! child and nothing else; the run then goes on by the rules for lost runners. A program calls [`run_child`] at the beginning of its
//! `main` when it was launched as a worker. `docs/WORKERS.md` has the decisions. Not here: rows (`commands`, `store`), executing
//! nodes (`engine`).

mod child;
mod frame;
mod host;
mod launch;
mod message;
mod process;
mod proposal;
mod session;

pub use child::{run_child, take_worker_channel};
pub(crate) use host::Supervision;
pub use launch::{WorkerLauncher, WorkerLimits};
pub(crate) use message::Reply;
pub use process::{WorkerEnd, WorkerProcess};

/// Where the nodes of runs are executed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Execution {
    /// On threads of this process: the fastest way. Code that crashes takes the process with it.
    #[default]
    Threads,
    /// In a worker process for each run that is taken up.
    Processes(WorkerLauncher),
}
