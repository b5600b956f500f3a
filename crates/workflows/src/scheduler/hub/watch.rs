//! Waiting for changes of one run.

use std::sync::{Arc, Condvar, PoisonError};
use std::time::Duration;

use super::{Hub, State};
use crate::id::RunId;

impl Hub {
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
}

/// A run that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Watched {
    waiting: usize,
    pub(super) changes: u64,
    /// Of this run only: a change of it wakes nobody else.
    pub(super) changed: Arc<Condvar>,
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
