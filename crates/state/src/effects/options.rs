//! How a worker works, how it is told to end, and what it says it did.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::back_off::BackOff;
use crate::records::leases::{Owner, OwnerKind};

/// Where the random part of a back-off comes from: a number from 0 to 1.
#[derive(Clone)]
pub struct Jitter(pub(super) Arc<dyn Fn() -> f64 + Send + Sync>);

impl Jitter {
    /// Random numbers of the operating system.
    pub fn random() -> Self {
        Self::from_fn(|| match getrandom::u32() {
            Ok(number) => f64::from(number) / f64::from(u32::MAX),
            Err(_) => 0.5,
        })
    }

    /// No jitter.
    pub fn none() -> Self {
        Self::from_fn(|| 0.5)
    }

    /// Another source.
    pub fn from_fn(unit: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(unit))
    }
}

impl std::fmt::Debug for Jitter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Jitter")
    }
}

/// How a worker works.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Whose leases the effects in flight are held by.
    pub owner: Owner,
    /// How long an effect is claimed before somebody else may take it over, in milliseconds; renewed at a third of it.
    pub lease_ms: u32,
    /// How often an idle worker looks, in milliseconds.
    pub poll_ms: u32,
    /// How many handlers act at the same time.
    pub concurrency: usize,
    /// How long failed effects wait.
    pub back_off: BackOff,
    /// The random part of it.
    pub jitter: Jitter,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            owner: Owner::new(OwnerKind::Host, "outbox"),
            lease_ms: 30_000,
            poll_ms: 500,
            concurrency: 4,
            back_off: BackOff::default(),
            jitter: Jitter::random(),
        }
    }
}

/// Tells a running worker to end. Clones are the same signal.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// A signal that is not given yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives the signal. What is in flight is finished first.
    pub fn stop(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    /// Whether the signal was given.
    pub fn is_stopped(&self) -> bool {
        *lock(&self.0.0)
    }

    /// Waits for the signal, at most this long.
    pub(super) fn wait(&self, duration_ms: u64) {
        let waited = self.0.1.wait_timeout_while(
            lock(&self.0.0),
            Duration::from_millis(duration_ms),
            |stopped| !*stopped,
        );
        drop(waited);
    }
}

/// What a worker did: how many effects came to each end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pass {
    /// Done, with a receipt.
    pub applied: u64,
    /// Provably not done.
    pub rejected: u64,
    /// Cannot be known: for a person.
    pub ambiguous: u64,
    /// Pending again, after a back-off.
    pub returned: u64,
    /// Not wanted any more.
    pub cancelled: u64,
    /// Left open, because the provider could not be asked; asked again when the claim has run out.
    pub left: u64,
    /// The claim was lost while acting: whoever owns the effect now finds the act by observation.
    pub lost: u64,
    /// Errors of handlers and of the store. The effects are unchanged and are tried again after a back-off.
    pub errors: u64,
    /// Types of due effects for which there is no handler. They stay pending.
    pub unknown: BTreeSet<String>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
