//! Waiting until nothing is left to do.
//!
//! A run that was interrupted and is left alone for a while is still something to do, as long as that did not happen often: a worker that
//! was killed once is no reason to end with its run unfinished. An error that does not pass is one.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, SystemClock};

use super::{Hub, Line, State};

/// How long a wait for idleness sleeps at most before it looks again.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// What a look that was woken counts against the limit, so that a busy process can't keep a wait alive for ever.
pub(crate) const LOOK_COST: Duration = Duration::from_micros(100);
/// How many turns with a run may end badly one after the other while a wait for idleness still waits for the next.
///
/// With the default back-off of one, two and four seconds that is some seven seconds for a run whose workers all end.
pub(super) const PATIENCE_ERRORS: u32 = 3;

impl Hub {
    pub(crate) fn wait_until_inactive(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        state.onlookers += 1;
        let waited = self
            .changed
            .wait_timeout_while(state, limit, |state| state.is_active());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.onlookers -= 1;
        !state.is_active()
    }

    /// What is left of the limit when nothing is executed and a fresh search found nothing.
    pub(crate) fn wait_until_idle(&self, limit: Duration) -> Option<Duration> {
        let mut state = self.lock();
        state.onlookers += 1;
        let (mut state, left) = self.look_until_idle(state, limit);
        state.onlookers -= 1;
        left
    }

    fn look_until_idle<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        limit: Duration,
    ) -> (MutexGuard<'a, State>, Option<Duration>) {
        let begun = SystemClock.monotonic();
        let elapsed = || Duration::from_millis(SystemClock.monotonic().since(begun));
        loop {
            // A search that begins after everything was given back sees all that they left.
            state.wants_sweep = true;
            state.idle_after_sweep = false;
            state.patient_until = None;
            state.lines.iter_mut().for_each(Line::ask);
            self.search.notify_all();
            loop {
                if state.draining || state.attached.is_none() {
                    return (state, None);
                }
                let lines = &state.lines;
                let busy = !state.active.is_empty()
                    || !state.ready.is_empty()
                    || 0 < state.reserved
                    || lines.iter().any(Line::is_busy);
                let left = limit.saturating_sub(elapsed());
                // A search that went on when this one was asked for may have read the store, and the clock, before.
                let searched =
                    !state.wants_sweep && !state.sweeping && lines.iter().all(Line::was_searched);
                let found_nothing = state.idle_after_sweep && lines.iter().all(Line::is_idle);
                if !busy && searched && found_nothing {
                    return (state, Some(left));
                }
                let now = self.clock.monotonic();
                let patient = state.patient_until.is_some_and(|until| now < until)
                    || lines.iter().any(|line| line.holds_back(now));
                if !busy && searched && !state.search_failed && !patient {
                    break;
                }
                if left.is_zero() {
                    return (state, None);
                }
                let look = LOOK.min(left);
                let waited = self.changed.wait_timeout(state, look);
                let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                state = woken;
                if timeout.timed_out() {
                    // A store that could not be searched is asked again, but not at once.
                    state.search_failed = false;
                    state.lines.iter_mut().for_each(Line::forget_failure);
                }
            }
        }
    }
}
