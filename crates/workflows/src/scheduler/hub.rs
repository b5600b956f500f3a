//! What the parts of one process tell each other: work that was made, runs that were given back, changes that somebody waits for.
//!
//! Everything here is a hint and lives in memory: the store says what is true, and the sweep reads it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_state::Owner;
use holdpoint_state::clock::{Clock, MonotonicMillis};
use holdpoint_state::effects::BackOff;

use crate::engine::{ActiveRuns, Early, Runner};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::sessions::Sessions;

/// How long a wait for idleness sleeps at most before it looks again.
const LOOK: Duration = Duration::from_millis(100);
/// What a look that was woken counts against the limit, so that a busy process can't keep a wait alive for ever.
const LOOK_COST: Duration = Duration::from_micros(100);

/// The meeting point of a process.
#[derive(Debug)]
pub(crate) struct Hub {
    clock: Arc<dyn Clock>,
    /// The origin sessions that this process speaks with.
    sessions: Arc<Sessions>,
    state: Mutex<State>,
    /// For workers. Nobody else waits here: a run that was put in line wakes one, and must not wake a thread that can't take it.
    work: Condvar,
    /// For the sweep.
    search: Condvar,
    /// For whoever waits for idleness, or for the end of what is executed.
    changed: Condvar,
    /// For the renewals, which nothing but the end wakes.
    closing: Condvar,
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the search and the shutdown"
)]
struct State {
    attached: Option<Attached>,
    ready: VecDeque<RunId>,
    /// What is in `ready`, to find it.
    offered: BTreeSet<RunId>,
    active: BTreeSet<RunId>,
    /// Offered while it was executed: it is looked at once more.
    again: BTreeSet<RunId>,
    /// Not known here, until it is offered or a definition is registered.
    unknown: BTreeSet<RunId>,
    postponed: BTreeMap<RunId, Postponed>,
    wants_sweep: bool,
    sweeping: bool,
    /// The last search was not cut off at its limit.
    saw_everything: bool,
    /// The last search could not be made.
    search_failed: bool,
    /// The last search found nothing to do at all.
    idle_after_sweep: bool,
    draining: bool,
    closed: bool,
    /// Runs that somebody waits for.
    watched: BTreeMap<RunId, Watched>,
    /// Who executes, and how many at once.
    places: Option<(Arc<Runner>, usize)>,
    /// Places that are kept for runs which are being started.
    reserved: usize,
    /// Runs that were claimed with their start; they count as executed.
    early: VecDeque<Box<Early>>,
    /// How many workers sleep, so that nobody is woken in vain: each wake-up is a system call.
    sleeping: usize,
    /// How many wait on `changed`.
    onlookers: usize,
}

/// What a worker does next.
#[derive(Debug)]
pub(super) enum Work {
    /// A run that may be due.
    Found(RunId),
    /// A run that was claimed with its start.
    Early(Box<Early>),
}

impl Work {
    pub(super) fn run(&self) -> &RunId {
        match self {
            Self::Found(run) => run,
            Self::Early(early) => early.run(),
        }
    }
}

/// A run that somebody waits for.
#[derive(Debug, Default)]
struct Watched {
    waiting: usize,
    changes: u64,
    /// Of this run only: a change of it wakes nobody else.
    changed: Arc<Condvar>,
}

#[derive(Debug)]
struct Attached {
    owner: Owner,
    active: Arc<ActiveRuns>,
}

#[derive(Debug, Clone, Copy)]
struct Postponed {
    until: MonotonicMillis,
    errors: u32,
}

/// How a worker's turn with a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing more to do now.
    Done,
    /// This program does not have the workflow.
    Unknown,
    /// An error; it is tried again later.
    Failed,
}

impl State {
    /// Puts a run in line, once.
    fn enqueue(&mut self, run: &RunId) {
        if self.offered.insert(run.clone()) {
            self.ready.push_back(run.clone());
        }
    }

    /// Puts a run at the head of the line: an accepted answer goes before work that nobody began.
    fn enqueue_first(&mut self, run: &RunId) {
        if self.offered.insert(run.clone()) {
            self.ready.push_front(run.clone());
        }
    }

    /// Somebody may wait for this run.
    fn changed(&mut self, run: &RunId) {
        if let Some(watched) = self.watched.get_mut(run) {
            watched.changes += 1;
            watched.changed.notify_all();
        }
    }

    /// How many runs may be begun now.
    fn free(&self) -> usize {
        let places = self.places.as_ref().map_or(0, |(_, places)| *places);
        places.saturating_sub(self.active.len() + self.reserved)
    }

    fn dequeue(&mut self) -> Option<RunId> {
        let run = self.ready.pop_front()?;
        self.offered.remove(&run);
        Some(run)
    }
}

impl Hub {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            sessions: Arc::default(),
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            search: Condvar::new(),
            changed: Condvar::new(),
            closing: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- for the verbs of the program ---

    /// The origin sessions that this process speaks with.
    pub(crate) fn sessions(&self) -> &Arc<Sessions> {
        &self.sessions
    }

    /// The owner of the scheduler of this process, if one runs.
    pub(crate) fn owner(&self) -> Option<Owner> {
        self.lock()
            .attached
            .as_ref()
            .map(|attached| attached.owner.clone())
    }

    /// A run may be taken up now.
    pub(crate) fn offer(&self, run: &RunId) {
        self.put(run, State::enqueue);
    }

    /// A run whose answer was accepted may be taken up now, before work that nobody began.
    pub(crate) fn offer_first(&self, run: &RunId) {
        self.put(run, State::enqueue_first);
    }

    fn put(&self, run: &RunId, enqueue: fn(&mut State, &RunId)) {
        let mut state = self.lock();
        state.changed(run);
        state.unknown.remove(run);
        state.postponed.remove(run);
        if state.attached.is_some() && !state.draining {
            if state.active.contains(run) {
                state.again.insert(run.clone());
            } else {
                enqueue(&mut state, run);
            }
        }
        self.tell(state);
    }

    /// Wakes a worker for what is in line, and whoever looks at the whole.
    fn tell(&self, state: MutexGuard<'_, State>) {
        let has_work = !state.ready.is_empty() || !state.early.is_empty();
        let (sleeps, onlookers) = (0 < state.sleeping, 0 < state.onlookers);
        let ends = state.draining && state.reserved == 0;
        drop(state);
        if sleeps && ends {
            // Whoever waited for a place that was kept need not any more.
            self.work.notify_all();
        } else if sleeps && has_work {
            self.work.notify_one();
        }
        if onlookers {
            self.changed.notify_all();
        }
    }

    /// A place for a run that is about to be started, if one is free and nobody waits for it.
    pub(crate) fn reserve(&self) -> Option<Place<'_>> {
        let mut state = self.lock();
        if state.draining || !state.ready.is_empty() || state.free() == 0 {
            return None;
        }
        let runner = Arc::clone(&state.places.as_ref()?.0);
        state.reserved += 1;
        Some(Place {
            hub: self,
            runner,
            is_used: false,
        })
    }

    /// A run was taken away from its runner at this revision: the node stops.
    pub(crate) fn stop(&self, run: &RunId, revision: u64) {
        let active = self
            .lock()
            .attached
            .as_ref()
            .map(|attached| Arc::clone(&attached.active));
        if let Some(active) = active {
            active.taken_away(run, revision);
        }
        self.lock().changed(run);
    }

    /// A definition was registered: runs that were not known may be now.
    pub(crate) fn learned(&self) {
        let mut state = self.lock();
        if state.unknown.is_empty() {
            return;
        }
        state.unknown.clear();
        state.wants_sweep = true;
        drop(state);
        self.search.notify_all();
    }

    /// Watches a run, so that no change of it is missed from here on.
    pub(crate) fn watch<'a>(&'a self, run: &'a RunId) -> Watch<'a> {
        let mut state = self.lock();
        let is_known = state.active.contains(run) || state.offered.contains(run);
        let watched = state.watched.entry(run.clone()).or_default();
        watched.waiting += 1;
        Watch {
            hub: self,
            run,
            seen: watched.changes,
            changed: Arc::clone(&watched.changed),
            is_known,
        }
    }

    // --- for the scheduler ---

    pub(super) fn attach(
        &self,
        owner: &Owner,
        active: &Arc<ActiveRuns>,
    ) -> Result<(), WorkflowError> {
        let mut state = self.lock();
        if state.attached.is_some() {
            return Err(WorkflowError::Scheduler {
                problem: "runs already; one is enough for each set of workflows".to_owned(),
            });
        }
        *state = State {
            watched: std::mem::take(&mut state.watched),
            onlookers: state.onlookers,
            reserved: state.reserved,
            wants_sweep: true,
            attached: Some(Attached {
                owner: owner.clone(),
                active: Arc::clone(active),
            }),
            ..State::default()
        };
        Ok(())
    }

    /// Says who executes, once its workers are there.
    pub(super) fn open_places(&self, runner: &Arc<Runner>, workers: usize) {
        self.lock().places = Some((Arc::clone(runner), workers));
    }

    pub(super) fn detach(&self) {
        let mut state = self.lock();
        state.attached = None;
        state.places = None;
        drop(state);
        self.changed.notify_all();
    }

    /// The next run for a worker; none when the worker should end.
    pub(super) fn take(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(early) = state.early.pop_front() {
                return Some(Work::Early(early));
            }
            // A place that is kept is filled or given up soon: then somebody has to be there.
            if state.draining && state.reserved == 0 {
                return None;
            }
            let has_place = state.reserved == 0 || 0 < state.free();
            if has_place && let Some(run) = state.dequeue() {
                state.active.insert(run.clone());
                return Some(Work::Found(run));
            }
            if !state.saw_everything && !state.wants_sweep && !state.sweeping {
                // The last search was cut off at its limit: there may be more.
                state.wants_sweep = true;
                self.search.notify_all();
            }
            state.sleeping += 1;
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
        }
    }

    /// A worker is done with a run.
    pub(super) fn give_back(&self, run: &RunId, taken: Taken, wait: BackOff) {
        let mut state = self.lock();
        state.active.remove(run);
        state.changed(run);
        match taken {
            Taken::Done => {
                state.postponed.remove(run);
            }
            Taken::Unknown => {
                state.unknown.insert(run.clone());
            }
            Taken::Failed => {
                let errors = state
                    .postponed
                    .get(run)
                    .map_or(0, |postponed| postponed.errors)
                    + 1;
                let wait = wait.jittered_ms(errors, chance()).unsigned_abs();
                let until = MonotonicMillis(self.clock.monotonic().0.saturating_add(wait));
                state
                    .postponed
                    .insert(run.clone(), Postponed { until, errors });
            }
        }
        if state.again.remove(run) && !state.draining {
            state.enqueue(run);
        }
        self.tell(state);
    }

    /// Waits for a reason to search; gives how many known runs the search may meet. None when the sweep should end.
    pub(super) fn wait_for_sweep(&self, interval_ms: u64) -> Option<usize> {
        let waited = self.search.wait_timeout_while(
            self.lock(),
            Duration::from_millis(interval_ms),
            |state| !state.wants_sweep && !state.closed,
        );
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.closed {
            return None;
        }
        state.wants_sweep = false;
        state.sweeping = true;
        Some(state.ready.len() + state.active.len() + state.unknown.len() + state.postponed.len())
    }

    /// What a search found; `batch` is what it would have found at most beside known runs.
    pub(super) fn found(&self, runs: Vec<RunId>, batch: usize) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        state.sweeping = false;
        let mut taken = 0;
        for run in runs {
            let left_alone = state.active.contains(&run)
                || state.unknown.contains(&run)
                || state
                    .postponed
                    .get(&run)
                    .is_some_and(|postponed| now.0 < postponed.until.0);
            if left_alone || state.draining {
                continue;
            }
            taken += 1;
            state.enqueue(&run);
        }
        state.search_failed = false;
        state.saw_everything = taken < batch;
        state.idle_after_sweep = taken == 0;
        drop(state);
        self.work.notify_all();
        self.changed.notify_all();
    }

    pub(super) fn found_nothing_by_error(&self) {
        let mut state = self.lock();
        state.sweeping = false;
        state.search_failed = true;
        state.saw_everything = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Waits between two renewals. Returns whether it was woken for another reason than the time.
    pub(super) fn pause_renewal(&self, interval: Duration, closed: &AtomicBool) -> bool {
        let waited = self
            .closing
            .wait_timeout_while(self.lock(), interval, |_| !closed.load(Ordering::SeqCst));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        closed.load(Ordering::SeqCst)
    }

    /// Takes no new work from now on.
    pub(super) fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        state.ready.clear();
        state.offered.clear();
        state.again.clear();
        drop(state);
        self.work.notify_all();
    }

    /// Ends the sweep and the renewals.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.search.notify_all();
        self.closing.notify_all();
    }

    pub(super) fn wait_until_inactive(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.onlookers += 1;
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| !state.active.is_empty());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.onlookers -= 1;
        state.active.is_empty()
    }

    pub(super) fn wait_until_idle(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.onlookers += 1;
        let (mut state, idle) = self.look_until_idle(state, limit);
        state.onlookers -= 1;
        idle
    }

    fn look_until_idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> (MutexGuard<'a, State>, bool) {
        let mut left = limit;
        loop {
            // A search that begins after everything was given back sees all that they left.
            state.wants_sweep = true;
            state.idle_after_sweep = false;
            self.search.notify_all();
            loop {
                if state.draining || state.attached.is_none() {
                    return (state, false);
                }
                let busy =
                    !state.active.is_empty() || !state.ready.is_empty() || 0 < state.reserved;
                if !busy && state.idle_after_sweep {
                    return (state, true);
                }
                let searched = !state.wants_sweep && !state.sweeping;
                if !busy && searched && !state.search_failed {
                    break;
                }
                if left.is_zero() {
                    return (state, false);
                }
                let look = LOOK.min(left);
                let waited = self.changed.wait_timeout(state, look);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() {
                    left = left.saturating_sub(look);
                    // A store that could not be searched is asked again, but not at once.
                    state.search_failed = false;
                } else {
                    left = left.saturating_sub(LOOK_COST);
                }
            }
        }
    }
}

/// A number from 0 to 1, so that runs which failed together do not come back together.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share needs no more than a few digits"
    )]
    let share = random as f64 / u64::MAX as f64;
    share
}

/// A place for one run that is being started.
pub(crate) struct Place<'a> {
    hub: &'a Hub,
    runner: Arc<Runner>,
    is_used: bool,
}

impl Place<'_> {
    pub(crate) fn runner(&self) -> &Runner {
        &self.runner
    }

    /// Fills the place.
    pub(crate) fn begin(mut self, early: Early) {
        self.is_used = true;
        let mut state = self.hub.lock();
        state.reserved -= 1;
        state.active.insert(early.run().clone());
        state.early.push_back(Box::new(early));
        self.hub.tell(state);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        let mut state = self.hub.lock();
        state.reserved -= 1;
        self.hub.tell(state);
    }
}

/// Somebody waits for a run.
pub(crate) struct Watch<'a> {
    hub: &'a Hub,
    run: &'a RunId,
    seen: u64,
    changed: Arc<Condvar>,
    is_known: bool,
}

impl Watch<'_> {
    /// Whether the run was in line or executed here when the watch began, so that a change is sure to come.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Waits until the run changed since the last time, or until the limit. Returns whether it changed. Changes that other
    /// processes make are not seen here.
    pub(crate) fn wait(&mut self, limit: Duration) -> bool {
        let changes = |state: &State| {
            state
                .watched
                .get(self.run)
                .map_or(0, |watched| watched.changes)
        };
        let waited = self
            .changed
            .wait_timeout_while(self.hub.lock(), limit, |state| changes(state) == self.seen);
        let now = changes(&waited.unwrap_or_else(PoisonError::into_inner).0);
        let moved = now != self.seen;
        self.seen = now;
        moved
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut state = self.hub.lock();
        if let Some(watched) = state.watched.get_mut(self.run) {
            watched.waiting -= 1;
            if watched.waiting == 0 {
                state.watched.remove(self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdpoint_state::OwnerKind;
    use holdpoint_state::clock::ManualClock;

    use super::*;

    fn hub() -> Hub {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
        let hub = Hub::new(clock);
        let owner = Owner::new(OwnerKind::Host, "test");
        hub.attach(&owner, &Arc::new(ActiveRuns::default()))
            .unwrap();
        hub
    }

    fn runs(count: usize) -> Vec<RunId> {
        (0..count)
            .map(|n| RunId::new(format!("run-{n}")).unwrap())
            .collect()
    }

    #[test]
    fn case_037_a_search_that_fails_postpones_what_is_due() {
        let hub = hub();
        let [run] = <[RunId; 1]>::try_from(runs(1)).unwrap();
        assert_eq!(hub.wait_for_sweep(1), Some(0));
        hub.found_nothing_by_error();
        // Nothing has to happen for the next search: it comes with the interval, and finds what the first one would have found.
        assert_eq!(hub.wait_for_sweep(1), Some(0));
        hub.found(vec![run.clone()], 16);
        assert!(hub.take().is_some_and(|work| *work.run() == run));
    }

    #[test]
    fn a_store_that_can_not_be_searched_is_not_asked_in_a_circle() {
        let hub = Arc::new(hub());
        let searching = Arc::clone(&hub);
        let sweep = std::thread::spawn(move || {
            let mut searches = 0;
            while searching.wait_for_sweep(60_000).is_some() {
                searches += 1;
                searching.found_nothing_by_error();
            }
            searches
        });
        assert!(!hub.wait_until_idle(Duration::from_millis(500)));
        hub.close();
        let searches = sweep.join().unwrap();
        assert!((1..=10).contains(&searches), "{searches}");
    }

    #[test]
    fn case_047_runs_that_fail_together_do_not_come_back_together() {
        let hub = hub();
        let runs = runs(20);
        for run in &runs {
            hub.offer(run);
        }
        while let Some(run) = {
            let ready = !hub.lock().ready.is_empty();
            ready.then(|| hub.take()).flatten()
        } {
            hub.give_back(run.run(), Taken::Failed, BackOff::default());
        }
        let due: BTreeSet<u64> = hub
            .lock()
            .postponed
            .values()
            .map(|postponed| postponed.until.0 - hub.clock.monotonic().0)
            .collect();
        assert!(
            due.iter().all(|wait| (800..=1_200).contains(wait)),
            "{due:?}"
        );
        assert!(5 < due.len(), "{due:?}");
        // Until then a search leaves them alone.
        hub.found(runs, 64);
        assert!(hub.lock().ready.is_empty());
    }
}
