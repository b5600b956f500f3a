//! The line of runs: what a worker takes next, and where a run goes that it gives back.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::PoisonError;

use holdpoint_state::clock::MonotonicMillis;
use holdpoint_state::effects::BackOff;

use super::{Hub, Next};
use crate::engine::Early;
use crate::id::RunId;

/// A run that a worker executes next.
#[derive(Debug)]
pub(crate) enum Launch {
    /// A run that may be due.
    Found(RunId),
    /// A run that was claimed with its start.
    Early(Box<Early>),
}

impl Launch {
    pub(crate) fn run(&self) -> &RunId {
        match self {
            Self::Found(run) => run,
            Self::Early(early) => early.run(),
        }
    }
}

/// How a worker's turn with a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nothing more to do now.
    Done,
    /// This program does not have the workflow.
    Unknown,
    /// Its worker ended, or the store was busy: it is tried again, and will likely go on then.
    Interrupted,
    /// Another error; it is tried again later.
    Failed,
}

/// A run that is left alone for a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct Postponed {
    pub(super) until: MonotonicMillis,
    /// How many turns with it failed, one after the other.
    pub(super) errors: u32,
    /// The last of them.
    pub(super) taken: Taken,
}

impl Hub {
    /// What a worker does next; none when the worker should end.
    pub(crate) fn take(&self) -> Option<Next> {
        let mut state = self.lock();
        loop {
            if let Some(early) = state.early.pop_front() {
                // A run as any other: other kinds are next.
                state.turn = 1;
                return Some(Next::Run(Launch::Early(early)));
            }
            // A place that is kept is filled or given up soon: then somebody has to be there.
            if state.draining && state.reserved == 0 {
                return None;
            }
            let has_place = state.reserved == 0 || 0 < state.free();
            if has_place && let Some(next) = state.next() {
                self.refill(&mut state);
                return Some(next);
            }
            self.refill(&mut state);
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
    pub(crate) fn give_back(&self, run: &RunId, taken: Taken, wait: BackOff) {
        let mut state = self.lock();
        state.active.remove(run);
        state.changed(run);
        state.was_given_back = true;
        state.idle_after_sweep = false;
        match taken {
            Taken::Done => {
                state.postponed.remove(run);
            }
            Taken::Unknown => {
                state.unknown.insert(run.clone());
            }
            Taken::Interrupted | Taken::Failed => {
                let errors = state
                    .postponed
                    .get(run)
                    .map_or(0, |postponed| postponed.errors)
                    + 1;
                let wait = wait.jittered_ms(errors, chance()).unsigned_abs();
                let until = MonotonicMillis(self.clock.monotonic().0.saturating_add(wait));
                state.postponed.insert(
                    run.clone(),
                    Postponed {
                        until,
                        errors,
                        taken,
                    },
                );
            }
        }
        state.hint_lines();
        if state.again.remove(run) && !state.draining {
            state.enqueue(run);
        }
        self.tell(state);
    }
}

/// A number from 0 to 1, so that runs which failed together do not come back together.
pub(crate) fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share needs no more than a few digits"
    )]
    let share = random as f64 / u64::MAX as f64;
    share
}
