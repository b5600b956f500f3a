//! What the parts of one process tell each other: work that was made, runs that were given back, changes that somebody waits for.
//!
//! Everything here is a hint and lives in memory: the store says what is true, and the sweep reads it. This room has the state that the
//! parts share and what the verbs of the program say; its rooms have what each part does with it. Not here: the store.

mod idle;
mod line;
mod others;
mod places;
mod search;
mod watch;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_state::Owner;
use holdpoint_state::clock::{Clock, MonotonicMillis};

use super::duties::Bell;
use crate::engine::{ActiveRuns, Early, Runner};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::sessions::Sessions;

use line::Postponed;
use watch::Watched;

pub(super) use idle::{LOOK, LOOK_COST};
pub(super) use line::{Launch, Taken, chance};
pub(super) use others::{Item, Left, Line, Next, Searched};
pub(crate) use watch::Watch;

/// The meeting point of a process.
#[derive(Debug)]
pub(crate) struct Hub {
    clock: Arc<dyn Clock>,
    /// The origin sessions that this process speaks with.
    sessions: Arc<Sessions>,
    /// Wakes the duties.
    bell: Arc<Bell>,
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
    /// A run was given back since the last search began, which may not have seen what it left.
    was_given_back: bool,
    /// The last search found nothing to do at all.
    idle_after_sweep: bool,
    /// When the first run that the last search left alone is tried again, among those that a wait for idleness waits for.
    patient_until: Option<MonotonicMillis>,
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
    /// Work of other kinds.
    lines: Vec<Line>,
    /// Which kind is launched next if it has something: 0 are runs, then come the lines.
    turn: usize,
    /// How many workers sleep, so that nobody is woken in vain: each wake-up is a system call.
    sleeping: usize,
    /// How many wait on `changed`.
    onlookers: usize,
}

#[derive(Debug)]
struct Attached {
    owner: Owner,
    active: Arc<ActiveRuns>,
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

    /// Whether work of another kind waits for a place.
    fn others_wait(&self) -> bool {
        self.lines.iter().any(Line::waits)
    }

    /// How many runs may be begun now.
    fn free(&self) -> usize {
        let places = self.places.as_ref().map_or(0, |(_, places)| *places);
        let others: usize = self.lines.iter().map(Line::executes).sum();
        places.saturating_sub(self.active.len() + others + self.reserved)
    }

    /// Whether a worker is at something.
    fn is_active(&self) -> bool {
        !self.active.is_empty() || self.lines.iter().any(|line| 0 < line.executes())
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
            bell: Arc::default(),
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

    /// Wakes the duties of this process.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
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
        let has_work = !state.ready.is_empty() || !state.early.is_empty() || state.others_wait();
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

    /// Something was changed that may have made runs due, or other work.
    pub(super) fn search(&self) {
        let mut state = self.lock();
        state.wants_sweep = true;
        state.hint_lines();
        drop(state);
        self.search.notify_all();
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
        Self::drain_lines(&mut state);
        drop(state);
        self.work.notify_all();
    }

    /// Ends the sweep and the renewals.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.search.notify_all();
        self.closing.notify_all();
    }
}
