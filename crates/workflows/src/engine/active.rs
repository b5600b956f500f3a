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
    runs: Mutex<Runs>,
}

#[derive(Debug, Default)]
struct Runs {
    active: BTreeMap<RunId, Arc<ActiveRun>>,
    /// Runs that are being claimed: the claim may be committed, and a stop that comes before `insert` must not be lost.
    claiming: BTreeMap<RunId, Option<Stop>>,
    /// What was said to all runs, and holds for those that are inserted later too.
    all: Option<Stop>,
}

impl ActiveRuns {
    /// Says that a run is about to be claimed. [`ActiveRuns::remove`] takes it back.
    pub(crate) fn claiming(&self, run: &RunId) {
        self.lock().claiming.insert(run.clone(), None);
    }

    pub(crate) fn insert(&self, run: &RunId, active: &Arc<ActiveRun>) {
        let mut runs = self.lock();
        let stop = runs.claiming.remove(run).flatten().or(runs.all);
        runs.active.insert(run.clone(), Arc::clone(active));
        drop(runs);
        if let Some(stop) = stop {
            active.stop(stop);
        }
    }

    pub(crate) fn remove(&self, run: &RunId) {
        let mut runs = self.lock();
        runs.claiming.remove(run);
        runs.active.remove(run);
    }

    pub(crate) fn all(&self) -> Vec<Arc<ActiveRun>> {
        self.lock().active.values().cloned().collect()
    }

    /// Stops one run, if it is executed or about to be executed here.
    pub(crate) fn stop(&self, run: &RunId, stop: Stop) {
        let mut runs = self.lock();
        if let Some(said) = runs.claiming.get_mut(run) {
            *said = Some(stop);
        }
        let active = runs.active.get(run).cloned();
        drop(runs);
        if let Some(active) = active {
            active.stop(stop);
        }
    }

    /// Stops all runs, also those that are inserted later.
    pub(crate) fn stop_all(&self, stop: Stop) {
        self.lock().all = Some(stop);
        for active in self.all() {
            active.stop(stop);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use holdpoint_state::testing::{TestStore, counter};
    use holdpoint_state::{Actor, Owner, OwnerKind};

    use super::*;

    /// Any claim will do.
    fn claim(store: &TestStore) -> Claim {
        counter::create(store.db(), "c").unwrap();
        let owner = Owner::new(OwnerKind::Host, "test");
        store
            .db()
            .claim(
                counter::resource("c"),
                Actor::host(owner.id()),
                &owner,
                1_000,
            )
            .unwrap()
    }

    #[test]
    fn a_stop_between_the_claim_and_its_run_is_not_lost() {
        let store = TestStore::counters().unwrap();
        let claim = claim(&store);
        let run = RunId::new("run-1").unwrap();
        let runs = ActiveRuns::default();
        runs.claiming(&run);
        runs.stop(&run, Stop::Lost);
        let active = Arc::new(ActiveRun::new(claim));
        runs.insert(&run, &active);
        assert_eq!(active.stopped(), Some(Stop::Lost));
        assert!(active.begin_node().signal().is_cancelled());
    }

    #[test]
    fn a_stop_of_all_holds_for_a_run_that_comes_later() {
        let store = TestStore::counters().unwrap();
        let active = Arc::new(ActiveRun::new(claim(&store)));
        let run = RunId::new("run-1").unwrap();
        let runs = ActiveRuns::default();
        // Nobody heard it, since the run was not executed yet.
        runs.stop(&run, Stop::Lost);
        runs.stop_all(Stop::Drain);
        runs.claiming(&run);
        runs.insert(&run, &active);
        assert_eq!(active.stopped(), Some(Stop::Drain));
    }
}
