//! The engine's own timer: one thread that raises the signal of a node whose time budget is spent.
//!
//! Deadlines are on the monotonic clock of the database, so that a test can turn it and a jump of the wall clock moves none.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use holdpoint_state::clock::{Clock, MonotonicMillis};

use crate::definition::{CancellationSource, StopReason};
use crate::error::WorkflowError;

/// How often a waiting thread looks at the clock, which may be turned by hand or stand still while the machine sleeps.
const LOOK_MS: u64 = 100;

/// The timer. Dropping the last handle ends its thread.
#[derive(Debug)]
pub(crate) struct Deadlines {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    armed: BTreeMap<(u64, u64), CancellationSource>,
    next: u64,
    closed: bool,
    /// Until when the timer sleeps at most; none while it looks.
    sleeps_until: Option<u64>,
}

impl Deadlines {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Result<Self, WorkflowError> {
        let shared = Arc::new(Shared {
            clock,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("holdpoint-timer".to_owned())
                .spawn(move || shared.serve())
                .map_err(|error| WorkflowError::Scheduler {
                    problem: format!("could not start its timer: {error}"),
                })?
        };
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The clock that budgets are measured on.
    pub(crate) fn now(&self) -> MonotonicMillis {
        self.shared.clock.monotonic()
    }

    /// Raises `source` with `TimedOut` once `after_ms` have passed, unless the guard is dropped before.
    pub(crate) fn arm(&self, after_ms: f64, source: &CancellationSource) -> Armed {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a budget is finite and positive; above u64 it saturates"
        )]
        let after = after_ms.ceil() as u64;
        let at = self.shared.clock.monotonic().0.saturating_add(after);
        let mut state = self.shared.lock();
        let key = (at, state.next);
        state.next += 1;
        // It looks again by itself, soon after a deadline was armed at the latest. Most are taken back long before.
        let is_late = state.sleeps_until.is_some_and(|until| at < until);
        state.armed.insert(key, source.clone());
        drop(state);
        if is_late {
            self.shared.changed.notify_all();
        }
        Armed {
            shared: Arc::clone(&self.shared),
            key,
        }
    }
}

impl Drop for Deadlines {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of a watcher is caught where it is called, so that it can't have panicked.
            drop(thread.join());
        }
    }
}

/// Takes its deadline back when it is dropped.
pub(crate) struct Armed {
    shared: Arc<Shared>,
    key: (u64, u64),
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.shared.lock().armed.remove(&self.key);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = self.clock.monotonic().0;
            let due: Vec<CancellationSource> = {
                let later = state.armed.split_off(&(now.saturating_add(1), 0));
                std::mem::replace(&mut state.armed, later)
                    .into_values()
                    .collect()
            };
            if !due.is_empty() {
                drop(state);
                for source in due {
                    source.stop(StopReason::TimedOut);
                }
                state = self.lock();
                continue;
            }
            state = match state.armed.first_key_value() {
                None => {
                    state.sleeps_until = Some(u64::MAX);
                    self.changed
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner)
                }
                Some(((at, _), _)) => {
                    let wait = at.saturating_sub(now).clamp(1, LOOK_MS);
                    state.sleeps_until = Some(now.saturating_add(wait));
                    let waited = self
                        .changed
                        .wait_timeout(state, Duration::from_millis(wait));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
            state.sleeps_until = None;
        }
    }
}
