//! What the sweep waits for, and what it found.

use std::sync::PoisonError;
use std::time::Duration;

use super::idle::PATIENCE_ERRORS;
use super::{Hub, Taken};
use crate::id::RunId;

impl Hub {
    /// Waits for a reason to search; gives how many known runs the search may meet. None when the sweep should end.
    pub(crate) fn wait_for_sweep(&self, interval_ms: u64) -> Option<usize> {
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
        state.was_given_back = false;
        Some(state.ready.len() + state.active.len() + state.unknown.len() + state.postponed.len())
    }

    /// What a search found; `batch` is what it would have found at most beside known runs.
    pub(crate) fn found(&self, runs: Vec<RunId>, batch: usize) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        state.sweeping = false;
        let (mut taken, mut patient_until) = (0, None);
        for run in runs {
            if state.active.contains(&run) || state.unknown.contains(&run) || state.draining {
                continue;
            }
            let postponed = state.postponed.get(&run).copied();
            if let Some(postponed) = postponed.filter(|postponed| now < postponed.until) {
                if postponed.taken == Taken::Interrupted && postponed.errors <= PATIENCE_ERRORS {
                    let until = patient_until.unwrap_or(postponed.until);
                    patient_until = Some(until.min(postponed.until));
                }
                continue;
            }
            taken += 1;
            state.enqueue(&run);
        }
        state.search_failed = false;
        state.saw_everything = taken < batch;
        state.patient_until = patient_until;
        state.idle_after_sweep = taken == 0 && patient_until.is_none() && !state.was_given_back;
        drop(state);
        self.work.notify_all();
        self.changed.notify_all();
    }

    pub(crate) fn found_nothing_by_error(&self) {
        let mut state = self.lock();
        state.sweeping = false;
        state.search_failed = true;
        state.saw_everything = true;
        drop(state);
        self.changed.notify_all();
    }
}
