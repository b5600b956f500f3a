//! The runs that this process executes now: their claims, which one thread renews, and the signal that stops their node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdpoint_state::Claim;

use crate::definition::{CancellationSource, StopReason};
use crate::id::RunId;

/// Why a run is no longer executed here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Its claim is lost: nothing more may be written.
    Lost,
    /// The scheduler stops: the run is given back at the next boundary.
    Drain,
}

/// A run that is executed now.
#[derive(Debug)]
pub(crate) struct ActiveRun {
    pub(crate) claim: Claim,
    node: Mutex<Node>,
}

#[derive(Debug, Default)]
struct Node {
    source: CancellationSource,
    stop: Option<Stop>,
}

impl ActiveRun {
    pub(crate) fn new(claim: Claim) -> Self {
        Self {
            claim,
            node: Mutex::new(Node::default()),
        }
    }

    /// The signal of the node that begins now. It is raised already when the run was stopped.
    pub(crate) fn begin_node(&self) -> CancellationSource {
        let mut node = self.lock();
        node.source = CancellationSource::new();
        if node.stop.is_some() {
            node.source.stop(StopReason::Cancelled);
        }
        node.source.clone()
    }

    /// Why the run is stopped, if it is.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.lock().stop
    }

    /// Stops the run. A lost claim overrules a drain, never the other way round.
    pub(crate) fn stop(&self, stop: Stop) {
        let source = {
            let mut node = self.lock();
            if node.stop != Some(Stop::Lost) {
                node.stop = Some(stop);
            }
            node.source.clone()
        };
        // Outside the lock: watchers may look at the run.
        source.stop(StopReason::Cancelled);
    }

    fn lock(&self) -> MutexGuard<'_, Node> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All runs that this process executes now.
#[derive(Debug, Default)]
pub(crate) struct ActiveRuns {
    runs: Mutex<BTreeMap<RunId, Arc<ActiveRun>>>,
}

impl ActiveRuns {
    pub(crate) fn insert(&self, run: &RunId, active: Arc<ActiveRun>) {
        self.lock().insert(run.clone(), active);
    }

    pub(crate) fn remove(&self, run: &RunId) {
        self.lock().remove(run);
    }

    pub(crate) fn all(&self) -> Vec<Arc<ActiveRun>> {
        self.lock().values().cloned().collect()
    }

    /// Stops one run, if it is executed here.
    pub(crate) fn stop(&self, run: &RunId, stop: Stop) {
        let active = self.lock().get(run).cloned();
        if let Some(active) = active {
            active.stop(stop);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, Arc<ActiveRun>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
