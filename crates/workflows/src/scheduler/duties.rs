//! Duties: the background work that domains above this one have, done by the scheduler on a thread of its own.
//!
//! A duty is level-based. It is called again and again, reads what is due, does it, and says when something is due next. A call too
//! many changes nothing, and a lost wake-up postpones work and never loses it. Not here: what is due (the domain), runs (`hub`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_state::Database;
use holdpoint_state::clock::{MonotonicMillis, UnixMillis};
use holdpoint_state::effects::BackOff;

use super::hub::{LOOK, LOOK_COST, chance};
use crate::engine::panic_text;

/// How soon a duty is called again at the earliest that says that something is due and did nothing, and after wake-ups that come fast.
const PAUSE_MS: u64 = 25;

/// Background work of a domain, such as applying what a deadline leads to.
///
/// A scheduler calls it ([`Workflows::with_duty`](crate::Workflows::with_duty)) when it starts, when the time comes that the last call
/// named, after runs were executed here, when [`Workflows::wake_duties`](crate::Workflows::wake_duties) says that something concerns it,
/// and at each poll interval, for what other processes did. One thread calls all duties of a scheduler, one after the other; no run
/// waits for it. Several processes may call the same duty at the same time, so that what it writes is a command with its own checks.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// use holdpoint_state::clock::UnixMillis;
/// use holdpoint_state::testing::TestStore;
/// use holdpoint_state::Database;
/// use holdpoint_workflows::{DOMAIN, Duty, DutyError, DutyPass, SchedulerOptions, Workflows};
///
/// /// Counts its calls; never has anything to do.
/// #[derive(Default)]
/// struct Idle(AtomicU64);
///
/// impl Duty for Idle {
///     fn name(&self) -> &str {
///         "idle"
///     }
///
///     fn run(&self, _db: &Database, _now: UnixMillis) -> Result<DutyPass, DutyError> {
///         self.0.fetch_add(1, Ordering::SeqCst);
///         Ok(DutyPass::nothing())
///     }
/// }
///
/// let store = TestStore::new([DOMAIN])?;
/// let idle = std::sync::Arc::new(Idle::default());
/// let workflows = Workflows::new(store.db().clone()).with_duty(idle.clone());
/// let scheduler = workflows.scheduler(SchedulerOptions::default())?;
/// assert!(scheduler.wait_until_idle(Duration::from_secs(30)));
/// assert_ne!(idle.0.load(Ordering::SeqCst), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Duty: Send + Sync + 'static {
    /// Its name, for the log.
    fn name(&self) -> &str;

    /// Does what is due at `now`. It must come to an end by itself: bounded batches, no waiting for the world.
    ///
    /// # Errors
    ///
    /// Anything. It is logged, and the duty is called again after a back-off.
    fn run(&self, db: &Database, now: UnixMillis) -> Result<DutyPass, DutyError>;
}

/// Why a duty could not be done.
pub type DutyError = Box<dyn std::error::Error + Send + Sync>;

/// What one call of a duty came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DutyPass {
    /// When something is due next, as far as is known. At or before the instant of the call: there is more to do now.
    pub next_due: Option<UnixMillis>,
    /// Whether it changed something, so that runs may be due: the scheduler looks for them at once.
    pub has_worked: bool,
}

impl DutyPass {
    /// It did nothing, and knows of nothing to come.
    pub fn nothing() -> Self {
        Self {
            next_due: None,
            has_worked: false,
        }
    }
}

/// What the duties' thread and its process tell each other. It exists without duties too, and costs nothing then.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    /// For the thread.
    rung: Condvar,
    /// For whoever waits for idleness.
    passed: Condvar,
}

#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the thread and who waits for it"
)]
struct State {
    /// How many duties are attached.
    duties: usize,
    wanted: bool,
    /// Somebody waits for a pass over all duties that begins after this was set.
    pass_wanted: bool,
    /// Such a pass goes on.
    passing: bool,
    passes: u64,
    /// How many calls changed something.
    worked: u64,
    /// In the last pass nobody worked and nobody is due.
    rested: bool,
    closed: bool,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something may concern the duties.
    pub(crate) fn ring(&self) {
        let mut state = self.lock();
        if state.duties != 0 && !state.wanted {
            state.wanted = true;
            drop(state);
            self.rung.notify_all();
        }
    }

    /// How often duties changed something.
    pub(super) fn worked(&self) -> u64 {
        self.lock().worked
    }

    /// Waits for a pass over all duties that begins from here on. Gives the time that is left, and whether nothing of them is due: it
    /// is, when a call changed something since there were `worked` of them. None when the time is up.
    pub(super) fn pass(&self, limit: Duration, worked: u64) -> Option<(Duration, bool)> {
        let mut state = self.lock();
        if state.duties == 0 {
            return Some((limit, true));
        }
        let mut left = limit;
        // A pass that goes on may have looked already: the one after it is the one.
        let last = state.passes + if state.passing { 2 } else { 1 };
        state.pass_wanted = true;
        self.rung.notify_all();
        while state.passes < last {
            if left.is_zero() || state.closed {
                return None;
            }
            let look = LOOK.min(left);
            let waited = self.passed.wait_timeout(state, look);
            let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            left = left.saturating_sub(if timeout.timed_out() { look } else { LOOK_COST });
        }
        Some((left, state.rested && state.worked == worked))
    }

    pub(super) fn open(&self, duties: usize) {
        *self.lock() = State {
            duties,
            wanted: true,
            ..State::default()
        };
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.duties = 0;
        drop(state);
        self.rung.notify_all();
        self.passed.notify_all();
    }

    /// Waits for the next reason to call duties. None when the thread should end.
    fn wait(&self, wait_ms: u64) -> Option<Reason> {
        let waited =
            self.rung
                .wait_timeout_while(self.lock(), Duration::from_millis(wait_ms), |state| {
                    !state.wanted && !state.pass_wanted && !state.closed
                });
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if state.closed {
            return None;
        }
        let reason = if std::mem::take(&mut state.pass_wanted) {
            state.passing = true;
            Reason::Pass
        } else if std::mem::take(&mut state.wanted) {
            Reason::Rung
        } else {
            Reason::Time
        };
        state.wanted = false;
        Some(reason)
    }

    /// Lets wake-ups that come fast become one. Whoever waits for a pass, and the end, are not kept waiting.
    fn pause(&self) {
        let waited =
            self.rung
                .wait_timeout_while(self.lock(), Duration::from_millis(PAUSE_MS), |state| {
                    !state.pass_wanted && !state.closed
                });
        drop(waited);
    }

    fn called(&self, has_worked: bool) {
        if has_worked {
            self.lock().worked += 1;
        }
    }

    fn end_pass(&self, rested: bool) {
        let mut state = self.lock();
        state.passing = false;
        state.passes += 1;
        state.rested = rested;
        drop(state);
        self.passed.notify_all();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// All of them, and somebody waits for it.
    Pass,
    /// All of them.
    Rung,
    /// Those whose time has come.
    Time,
}

/// The duties of a scheduler, on the thread that calls them.
pub(super) struct Duties {
    pub(super) db: Database,
    pub(super) all: Vec<Arc<dyn Duty>>,
    pub(super) bell: Arc<Bell>,
    pub(super) poll_interval_ms: u64,
    pub(super) back_off: BackOff,
    /// Called when a duty changed something: runs may be due.
    pub(super) has_worked: Box<dyn Fn() + Send>,
}

/// What is known of one duty.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// When it is called next at the latest, beside the poll interval.
    due: Option<UnixMillis>,
    /// It is called again no earlier than this.
    not_before: Option<MonotonicMillis>,
    errors: u32,
}

impl Duties {
    /// Calls the duties until the bell is closed.
    pub(super) fn serve(self) {
        let mut known = vec![Known::default(); self.all.len()];
        let mut last_all = None;
        let mut wait = 0;
        while let Some(reason) = self.bell.wait(wait) {
            let began = self.db.clock().monotonic();
            let polls = last_all
                .is_none_or(|last: MonotonicMillis| self.poll_interval_ms <= began.since(last));
            let all = reason != Reason::Time || polls || self.poll_interval_ms <= wait;
            if all {
                last_all = Some(began);
            }
            let mut rested = true;
            for (duty, known) in self.all.iter().zip(&mut known) {
                let now = self.db.clock().now();
                let is_held = known
                    .not_before
                    .is_some_and(|until| self.db.clock().monotonic().0 < until.0);
                if is_held || !(all || known.due.is_some_and(|due| due <= now)) {
                    continue;
                }
                rested &= !self.call(&**duty, known, now);
            }
            if reason == Reason::Pass {
                self.bell.end_pass(rested);
            } else {
                self.bell.pause();
            }
            wait = self.wait_ms(&known);
        }
    }

    /// One call. Returns whether there may be more to do at once.
    fn call(&self, duty: &dyn Duty, known: &mut Known, now: UnixMillis) -> bool {
        let done = catch_unwind(AssertUnwindSafe(|| duty.run(&self.db, now)))
            .unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_text(&*panic)).into()));
        let monotonic = self.db.clock().monotonic();
        match done {
            Ok(pass) => {
                let is_due = pass.next_due.is_some_and(|due| due <= now);
                *known = Known {
                    due: pass.next_due,
                    // What is due and can't be done yet, since somebody else has to act first, is no reason to turn on the spot.
                    not_before: (is_due && !pass.has_worked)
                        .then(|| MonotonicMillis(monotonic.0.saturating_add(PAUSE_MS))),
                    errors: 0,
                };
                self.bell.called(pass.has_worked);
                if pass.has_worked {
                    (self.has_worked)();
                }
                pass.has_worked
            }
            Err(error) => {
                known.errors = known.errors.saturating_add(1);
                let wait = self.back_off.jittered_ms(known.errors, chance());
                known.not_before = Some(MonotonicMillis(
                    monotonic.0.saturating_add(wait.unsigned_abs()),
                ));
                tracing::warn!(duty = duty.name(), error = %error, retry_in_ms = wait, "a duty could not be done");
                false
            }
        }
    }

    /// How long nothing is due that is known.
    fn wait_ms(&self, known: &[Known]) -> u64 {
        let (now, monotonic) = (self.db.clock().now(), self.db.clock().monotonic());
        let next = known.iter().map(|known| {
            let due = known
                .due
                .map_or(u64::MAX, |due| due.since(now).max(1).unsigned_abs());
            let held = known
                .not_before
                .map_or(0, |until| until.0.saturating_sub(monotonic.0));
            due.max(held).max(1)
        });
        next.min().unwrap_or(u64::MAX).min(self.poll_interval_ms)
    }
}
