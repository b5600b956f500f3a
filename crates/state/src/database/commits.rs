//! Wakes whoever waits in this process for the next commit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts the commits of this process's writer.
pub(crate) struct CommitSignal {
    count: AtomicU64,
    waiting: AtomicUsize,
    gate: Mutex<()>,
    changed: Condvar,
}

impl CommitSignal {
    pub(super) fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            gate: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// How many commits there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Says that there was a commit. Costs two atomic operations while nobody waits.
    pub(super) fn notify(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        // Either this load sees the waiter, or the waiter, who has counted itself first, sees the new count.
        if 0 < self.waiting.load(Ordering::SeqCst) {
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_all();
        }
    }

    /// Waits until the count is no longer `seen`, for at most `timeout`.
    pub(super) fn wait(&self, seen: u64, timeout: Duration) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        drop(
            self.changed
                .wait_timeout_while(gate, timeout, |()| self.count() == seen)
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
