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
    /// The run's revision when it was read to be claimed.
    since: u64,
    signals: Signals,
}

/// What stops the node of one run.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    node: Mutex<Node>,
}

#[derive(Debug, Default)]
struct Node {
    source: CancellationSource,
    stop: Option<Stop>,
}

impl ActiveRun {
    pub(crate) fn new(claim: Claim, since: u64) -> Self {
        Self {
            claim,
            since,
            signals: Signals::default(),
        }
    }

    /// The signal of the node that begins now.
    pub(crate) fn begin_node(&self) -> CancellationSource {
        self.signals.begin_node()
    }

    /// Why the run is stopped, if it is.
    pub(crate) fn stopped(&self) -> Option<Stop> {
        self.signals.stopped()
    }

    /// Stops the run.
    pub(crate) fn stop(&self, stop: Stop) {
        self.signals.stop(stop);
    }
}

impl Signals {
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
    /// Each with the revision at which it was read.
    claiming: BTreeMap<RunId, (u64, Option<Stop>)>,
    /// What was said to all runs, and holds for those that are inserted later too.
    all: Option<Stop>,
}

impl ActiveRuns {
    /// Says that a run, read at a revision, is about to be claimed. [`ActiveRuns::remove`] takes it back.
    pub(crate) fn claiming(&self, run: &RunId, since: u64) {
        self.lock().claiming.insert(run.clone(), (since, None));
    }

    pub(crate) fn insert(&self, run: &RunId, active: &Arc<ActiveRun>) {
        let mut runs = self.lock();
        let stop = runs.claiming.remove(run).and_then(|(_, stop)| stop);
        let stop = stop.or(runs.all);
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

    /// A command took a run away at this revision: it is stopped if it is executed or about to be executed here. An execution that
    /// was read at that revision or later is another one, and goes on: the word of the command was late.
    pub(crate) fn taken_away(&self, run: &RunId, revision: u64) {
        let stop = Stop::Lost;
        let mut runs = self.lock();
        if let Some((since, said)) = runs.claiming.get_mut(run)
            && *since < revision
        {
            *said = Some(stop);
        }
        let active = runs
            .active
            .get(run)
            .filter(|active| active.since < revision)
            .cloned();
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
        runs.claiming(&run, 3);
        runs.taken_away(&run, 5);
        let active = Arc::new(ActiveRun::new(claim, 3));
        runs.insert(&run, &active);
        assert_eq!(active.stopped(), Some(Stop::Lost));
        assert!(active.begin_node().signal().is_cancelled());
    }

    #[test]
    fn a_late_word_does_not_stop_the_next_execution() {
        let store = TestStore::counters().unwrap();
        let run = RunId::new("run-1").unwrap();
        let runs = ActiveRuns::default();
        // Paused at 5 and resumed at 6, read at 6 and claimed again; only then the pause's own process says so.
        runs.claiming(&run, 6);
        runs.taken_away(&run, 5);
        let active = Arc::new(ActiveRun::new(claim(&store), 6));
        runs.insert(&run, &active);
        runs.taken_away(&run, 5);
        assert_eq!(active.stopped(), None);
        runs.taken_away(&run, 9);
        assert_eq!(active.stopped(), Some(Stop::Lost));
    }

    #[test]
    fn a_stop_of_all_holds_for_a_run_that_comes_later() {
        let store = TestStore::counters().unwrap();
        let active = Arc::new(ActiveRun::new(claim(&store), 1));
        let run = RunId::new("run-1").unwrap();
        let runs = ActiveRuns::default();
        // Nobody heard it, since the run was not executed yet.
        runs.taken_away(&run, 2);
        runs.stop_all(Stop::Drain);
        runs.claiming(&run, 1);
        runs.insert(&run, &active);
        assert_eq!(active.stopped(), Some(Stop::Drain));
    }
}
