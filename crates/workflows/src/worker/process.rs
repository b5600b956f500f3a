//! A worker process for another domain: launched and ended as those of runs are, with a channel on which the domain speaks its own words.
//!
//! Not here: what is said, and when a worker has had its time (the domain).

use std::os::unix::net::UnixStream;
use std::process::ExitStatus;
use std::time::Duration;

use super::launch::{Launched, WorkerLauncher};

impl WorkerLauncher {
    /// Starts one process for another domain. Gives it, and the host's end of its channel; the process has the other end as its standard
    /// input ([`take_worker_channel`](super::take_worker_channel)). Of the launcher's limits only that of memory is kept here.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn start(&self) -> std::io::Result<(WorkerProcess, UnixStream)> {
        let (launched, stream) = self.spawn()?;
        Ok((WorkerProcess(Some(launched)), stream))
    }
}

/// A worker process. Dropping it kills it, with everything that it started.
#[must_use = "dropping it kills the process"]
pub struct WorkerProcess(Option<Launched>);

/// How a worker process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEnd {
    /// Its status; none when its end could not be seen.
    pub status: Option<ExitStatus>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
    /// The last of what it wrote to its standard streams.
    pub diagnostic: String,
    /// Whether it had to be ended.
    pub was_killed: bool,
}

impl WorkerProcess {
    /// Waits so long for its end; then it gets SIGTERM, after the grace SIGKILL, and all that it started with it.
    pub fn end(mut self, patience: Duration, grace: Duration) -> WorkerEnd {
        let Some(launched) = self.0.take() else {
            return WorkerEnd {
                status: None,
                signal: None,
                diagnostic: String::new(),
                was_killed: false,
            };
        };
        let left = launched.end_after(patience, Some(grace));
        WorkerEnd {
            status: left.status,
            signal: left.signal(),
            was_killed: left.was_killed,
            diagnostic: left.diagnostic,
        }
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if let Some(launched) = self.0.take() {
            launched.end(Duration::ZERO, true);
        }
    }
}

impl std::fmt::Debug for WorkerProcess {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WorkerProcess")
            .finish_non_exhaustive()
    }
}
