//! The lines of work that other domains bring: what was found of each kind, and whose turn it is.
//!
//! Kinds are launched in turn, runs being the first of them: after a launch the next kind goes first, and what has nothing is passed over.
//! A scheduler without other work has no line here, and pays a look at an empty list.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, MonotonicMillis, SystemClock};
use holdpoint_state::effects::BackOff;

use super::idle::PATIENCE_ERRORS;
use super::line::Launch;
use super::{Hub, State, chance};
use crate::engine::Stop;
use crate::scheduler::work::Holds;

/// What a worker does next.
#[derive(Debug)]
pub(crate) enum Next {
    Run(Launch),
    Item(Item),
}

/// One item of a kind.
#[derive(Debug)]
pub(crate) struct Item {
    /// Which kind, by its place in the list of the program.
    pub(crate) kind: usize,
    pub(crate) key: String,
    pub(crate) holds: Arc<Holds>,
}

/// How a worker's turn with an item ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Done,
    /// Nothing was done. If it is found again it is left alone for a moment.
    Nothing,
    /// It is tried again, and will likely go on then.
    Interrupted,
    /// It is tried again.
    Failed,
}

/// What a search came to.
#[derive(Debug)]
pub(crate) enum Searched {
    Found {
        keys: Vec<String>,
        /// How many it would have found at most.
        limit: usize,
        /// How many may be in line.
        batch: usize,
    },
    Failed {
        /// A wait for idleness waits for the next search.
        passes: bool,
    },
}

/// An item that is left alone for a while.
#[derive(Debug, Clone, Copy)]
struct LeftAlone {
    until: MonotonicMillis,
    errors: u32,
    left: Left,
}

/// What is known of one kind of work.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the search"
)]
pub(crate) struct Line {
    ready: VecDeque<String>,
    /// What is in `ready`, to find it.
    offered: BTreeSet<String>,
    active: BTreeMap<String, Arc<Holds>>,
    postponed: BTreeMap<String, LeftAlone>,
    wants_search: bool,
    /// A search is wanted soon: hints that come fast become one.
    is_hinted: bool,
    is_searching: bool,
    /// The last search did not see or take everything.
    has_more: bool,
    search_failed: bool,
    /// Something was given back since the last search began, which may not have seen what it left.
    is_stale: bool,
    /// Items that were given back since the last search began, which may have seen them as they were before.
    given_back: BTreeSet<String>,
    /// The last search found nothing to do.
    is_idle: bool,
    /// When the first item is tried again, among those that a wait for idleness waits for.
    patient_until: Option<MonotonicMillis>,
    search: Arc<Condvar>,
}

impl Line {
    /// How soon hints lead to a search at the latest, and an item is tried again with which there was nothing to do.
    pub(crate) const PAUSE_MS: u64 = 25;

    /// How many items are in line at most.
    pub(crate) fn batch(workers: usize) -> usize {
        workers.saturating_mul(4).max(16)
    }

    /// Whether a wait for idleness waits for what failed so often.
    pub(crate) fn is_patient(errors: u32) -> bool {
        errors <= PATIENCE_ERRORS
    }

    pub(super) fn waits(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.waits() || !self.active.is_empty()
    }

    pub(super) fn executes(&self) -> usize {
        self.active.len()
    }

    fn want_search(&mut self) {
        if !self.wants_search {
            self.wants_search = true;
            self.search.notify_all();
        }
    }

    /// Something that was given back may have made items due.
    fn hint(&mut self) {
        self.is_stale = true;
        self.is_idle = false;
        if !self.is_hinted {
            self.is_hinted = true;
            self.search.notify_all();
        }
    }

    /// Looks for more before the line is empty, so that no turn is missed for want of a search.
    fn refill(&mut self, places: usize) {
        if self.has_more && self.ready.len() <= places && !self.is_searching {
            self.want_search();
        }
    }

    // --- for whoever waits for idleness ---

    pub(super) fn ask(&mut self) {
        self.is_idle = false;
        self.patient_until = None;
        self.want_search();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    pub(super) fn was_searched(&self) -> bool {
        !self.wants_search && !self.is_searching
    }

    /// What stands against asking again at once.
    pub(super) fn holds_back(&self, now: MonotonicMillis) -> bool {
        self.search_failed || self.patient_until.is_some_and(|until| now < until)
    }

    pub(super) fn forget_failure(&mut self) {
        self.search_failed = false;
    }

    fn take(&mut self, kind: usize) -> Option<Item> {
        let key = self.ready.pop_front()?;
        self.offered.remove(&key);
        let holds = Arc::<Holds>::default();
        self.active.insert(key.clone(), Arc::clone(&holds));
        Some(Item { kind, key, holds })
    }

    /// Puts what was found in line. Gives when the first item that is left alone may be tried again.
    fn found(
        &mut self,
        keys: Vec<String>,
        limit: usize,
        batch: usize,
        now: MonotonicMillis,
    ) -> Option<MonotonicMillis> {
        let mut retry: Option<MonotonicMillis> = None;
        let mut patient = None;
        self.has_more = limit <= keys.len();
        if !self.has_more {
            // What was not found is not due any more; its errors are forgotten with it.
            let found: BTreeSet<&String> = keys.iter().collect();
            self.postponed
                .retain(|key, alone| now < alone.until || found.contains(key));
        }
        for key in keys {
            let is_known = self.active.contains_key(&key) || self.offered.contains(&key);
            // The search that was wanted with the return tells whether it is still due.
            if is_known || self.given_back.contains(&key) {
                continue;
            }
            let alone = self.postponed.get(&key);
            if let Some(alone) = alone.filter(|alone| now < alone.until) {
                let sooner = |at: Option<MonotonicMillis>| match at {
                    Some(at) if at <= alone.until => Some(at),
                    Some(_) | None => Some(alone.until),
                };
                retry = sooner(retry);
                if alone.left == Left::Interrupted && Self::is_patient(alone.errors) {
                    patient = sooner(patient);
                }
            } else if self.ready.len() < batch {
                self.offered.insert(key.clone());
                self.ready.push_back(key);
            } else {
                self.has_more = true;
            }
        }
        self.search_failed = false;
        self.patient_until = patient;
        self.is_idle = self.ready.is_empty() && patient.is_none() && !self.is_stale;
        retry
    }
}

impl State {
    /// What is launched next: the kind whose turn it is, or the first after it that has something.
    pub(super) fn next(&mut self) -> Option<Next> {
        let kinds = self.lines.len() + 1;
        for step in 0..kinds {
            let kind = (self.turn + step) % kinds;
            let next = match kind.checked_sub(1) {
                None => self.dequeue().map(|run| {
                    self.active.insert(run.clone());
                    Next::Run(Launch::Found(run))
                }),
                Some(line) => self
                    .lines
                    .get_mut(line)
                    .and_then(|found| found.take(line))
                    .map(Next::Item),
            };
            if next.is_some() {
                self.turn = kind + 1;
                return next;
            }
        }
        None
    }

    /// Something was given back: what other kinds found before may not be all.
    pub(super) fn hint_lines(&mut self) {
        for line in &mut self.lines {
            line.hint();
        }
    }
}

impl Hub {
    /// Has a line for each kind of work that other domains bring.
    pub(crate) fn open_lines(&self, kinds: usize) {
        let line = || Line {
            wants_search: true,
            ..Line::default()
        };
        self.lock().lines = std::iter::repeat_with(line).take(kinds).collect();
    }

    /// Something may have become due, of whatever kind.
    pub(crate) fn wake_lines(&self) {
        for line in &mut self.lock().lines {
            line.want_search();
        }
    }

    /// Lines that run low ask for more.
    pub(super) fn refill(&self, state: &mut State) {
        if state.lines.is_empty() {
            return;
        }
        let places = state.places.as_ref().map_or(0, |(_, places)| *places);
        for line in &mut state.lines {
            line.refill(places);
        }
        let low = state.ready.len() <= places;
        if low && !state.saw_everything && !state.wants_sweep && !state.sweeping {
            state.wants_sweep = true;
            self.search.notify_all();
        }
    }

    /// A worker is done with an item.
    pub(crate) fn give_back_item(&self, item: &Item, left: Left, wait: BackOff) {
        let mut state = self.lock();
        let now = self.clock.monotonic();
        if let Some(line) = state.lines.get_mut(item.kind) {
            line.active.remove(&item.key);
            let before = line.postponed.remove(&item.key);
            let (errors, wait_ms) = match left {
                Left::Done => (0, None),
                Left::Nothing => (0, Some(Line::PAUSE_MS)),
                Left::Interrupted | Left::Failed => {
                    let errors = before.map_or(0, |before| before.errors).saturating_add(1);
                    let wait_ms = wait.jittered_ms(errors, chance()).unsigned_abs();
                    (errors, Some(wait_ms))
                }
            };
            if let Some(wait_ms) = wait_ms {
                let until = MonotonicMillis(now.0.saturating_add(wait_ms));
                let alone = LeftAlone {
                    until,
                    errors,
                    left,
                };
                line.postponed.insert(item.key.clone(), alone);
            }
            if line.is_searching {
                line.given_back.insert(item.key.clone());
            }
            line.want_search();
        }
        state.hint_lines();
        if left == Left::Done {
            // It may have started a run, or settled what one waits for.
            state.was_given_back = true;
            state.idle_after_sweep = false;
            state.wants_sweep = true;
            self.search.notify_all();
        }
        self.tell(state);
    }

    /// Waits for a reason to search for a kind; gives how many known items the search may meet beside those in line. None when the
    /// search should end: a scheduler that stops takes nothing new.
    pub(crate) fn wait_for_search(&self, kind: usize, wait_ms: u64) -> Option<usize> {
        let begun = SystemClock.monotonic();
        let mut state = self.lock();
        loop {
            if state.closed || state.draining {
                return None;
            }
            let line = state.lines.get_mut(kind)?;
            let wait_ms = if line.is_hinted {
                wait_ms.min(Line::PAUSE_MS)
            } else {
                wait_ms
            };
            let left_ms = wait_ms.saturating_sub(SystemClock.monotonic().since(begun));
            if line.wants_search || left_ms == 0 {
                line.wants_search = false;
                line.is_hinted = false;
                line.is_searching = true;
                line.is_stale = false;
                line.given_back.clear();
                return Some(line.active.len() + line.postponed.len());
            }
            let search = Arc::clone(&line.search);
            let waited = search.wait_timeout(state, Duration::from_millis(left_ms));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// What a search came to. Gives in how many milliseconds the first item that is left alone may be tried again.
    pub(crate) fn searched(&self, kind: usize, searched: Searched) -> Option<u64> {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let is_draining = state.draining;
        let line = state.lines.get_mut(kind)?;
        line.is_searching = false;
        let retry = match searched {
            Searched::Found { .. } if is_draining => None,
            Searched::Found { keys, limit, batch } => line.found(keys, limit, batch, now),
            Searched::Failed { passes } => {
                line.search_failed = passes;
                line.is_idle = !passes && !line.waits() && !line.is_stale;
                None
            }
        };
        let wakes = line.waits() && 0 < state.sleeping;
        drop(state);
        if wakes {
            self.work.notify_all();
        }
        self.changed.notify_all();
        retry.map(|until| until.0.saturating_sub(now.0))
    }

    /// What the items hold that are executed now.
    pub(crate) fn held(&self) -> Vec<Arc<Holds>> {
        let state = self.lock();
        let active = state.lines.iter().flat_map(|line| line.active.values());
        active.cloned().collect()
    }

    /// Tells the items that are executed to end.
    pub(crate) fn stop_items(&self) {
        for holds in self.held() {
            holds.signals.stop(Stop::Drain);
        }
    }

    /// Takes no item from now on.
    pub(super) fn drain_lines(state: &mut State) {
        for line in &mut state.lines {
            line.ready.clear();
            line.offered.clear();
            line.search.notify_all();
        }
    }
}
