//! How a running node learns that it should stop.
//!
//! Not here: deciding that a node must stop (the engine), or killing what does not listen ([`crate::shell`]).

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::NodeError;

/// Why a node is asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Somebody cancelled or paused the run, or the engine lost or gave up its claim.
    Cancelled,
    /// The node's own time budget is spent.
    TimedOut,
}

/// The end that the engine holds: it asks the node to stop, once.
#[derive(Debug, Clone, Default)]
pub struct CancellationSource {
    shared: Arc<Shared>,
}

/// The end that the node holds. Clones see the same request.
///
/// A node polls it, waits on it, or passes it to what it calls:
///
/// ```
/// use std::time::Duration;
/// use holdpoint_workflows::definition::{CancellationSource, StopReason};
///
/// let source = CancellationSource::new();
/// let signal = source.signal();
/// assert!(!signal.is_cancelled());
/// source.stop(StopReason::TimedOut);
/// source.stop(StopReason::Cancelled); // The first reason stays.
/// assert_eq!(signal.wait(Duration::from_secs(60)), Some(StopReason::TimedOut));
/// ```
#[derive(Debug, Clone, Default)]
pub struct CancellationSignal {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

type Watcher = Box<dyn FnOnce(StopReason) + Send>;

#[derive(Default)]
struct State {
    reason: Option<StopReason>,
    watchers: Vec<(u64, Watcher)>,
    next_watcher: u64,
}

impl CancellationSource {
    /// Makes a source that has not asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A signal that hears this source.
    pub fn signal(&self) -> CancellationSignal {
        CancellationSignal {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Asks the node to stop. The first reason stays; later calls change nothing.
    pub fn stop(&self, reason: StopReason) {
        let watchers = {
            let mut state = self.shared.lock();
            if state.reason.is_some() {
                return;
            }
            state.reason = Some(reason);
            std::mem::take(&mut state.watchers)
        };
        self.shared.changed.notify_all();
        // Outside the lock: a watcher may look at the signal. Whoever stops a node serves others too (the timer, the renewals), so
        // that a watcher which panics takes nobody with it, least of all the watchers after it.
        for (_, watcher) in watchers {
            if catch_unwind(AssertUnwindSafe(|| watcher(reason))).is_err() {
                tracing::error!("a watcher of a node's signal panicked");
            }
        }
    }
}

impl CancellationSignal {
    /// A signal that nobody can ever raise, for calls outside a run.
    pub fn never() -> Self {
        Self::default()
    }

    /// Whether the node should stop.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Why the node should stop, once it should.
    pub fn reason(&self) -> Option<StopReason> {
        self.shared.lock().reason
    }

    /// Stops the node with the right outcome if it should stop; for use with `?` in long work.
    ///
    /// # Errors
    ///
    /// A [`NodeError`] that the engine records as `cancelled` or `timed_out`, not as `failed`.
    pub fn check(&self) -> Result<(), NodeError> {
        self.reason()
            .map_or(Ok(()), |reason| Err(NodeError::stopped(reason)))
    }

    /// Waits until the node should stop, at most for `limit`.
    pub fn wait(&self, limit: Duration) -> Option<StopReason> {
        let state = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |state| state.reason.is_none());
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.reason
    }

    /// Calls `watcher` once when the node should stop: at once if it already should, never after the
    /// guard is dropped (unless the call has begun by then).
    ///
    /// The watcher runs on the thread that stops the node, so it must not block. A panic of it is logged and goes no further.
    pub fn watch(&self, watcher: impl FnOnce(StopReason) + Send + 'static) -> WatchGuard {
        let mut state = self.shared.lock();
        let id = state.next_watcher;
        state.next_watcher += 1;
        if let Some(reason) = state.reason {
            drop(state);
            watcher(reason);
        } else {
            state.watchers.push((id, Box::new(watcher)));
        }
        WatchGuard {
            shared: Arc::clone(&self.shared),
            id,
        }
    }
}

/// Takes its watcher back when it is dropped.
#[must_use = "the watcher is removed when the guard is dropped"]
pub struct WatchGuard {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        let id = self.id;
        self.shared
            .lock()
            .watchers
            .retain(|(other, _)| *other != id);
    }
}

impl fmt::Debug for WatchGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchGuard")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A panic of a waiter leaves the state whole, so poison says nothing here.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("reason", &self.lock().reason)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_watcher_hears_the_first_reason_once_and_not_after_its_guard() {
        let source = CancellationSource::new();
        let signal = source.signal();
        let (sender, heard) = mpsc::channel();
        let kept = sender.clone();
        let _kept = signal.watch(move |reason| kept.send(("kept", reason)).unwrap());
        let gone = sender.clone();
        drop(signal.watch(move |reason| gone.send(("gone", reason)).unwrap()));
        source.stop(StopReason::Cancelled);
        source.stop(StopReason::TimedOut);
        let _late = signal.watch(move |reason| sender.send(("late", reason)).unwrap());
        assert_eq!(
            heard.try_iter().collect::<Vec<_>>(),
            [
                ("kept", StopReason::Cancelled),
                ("late", StopReason::Cancelled)
            ]
        );
    }

    #[test]
    fn a_watcher_that_panics_takes_nobody_with_it() {
        let source = CancellationSource::new();
        let signal = source.signal();
        let (sender, heard) = mpsc::channel();
        let _first = signal.watch(|_| panic!("on purpose"));
        let _second = signal.watch(move |reason| sender.send(reason).unwrap());
        source.stop(StopReason::TimedOut);
        assert_eq!(heard.recv().unwrap(), StopReason::TimedOut);
    }

    #[test]
    fn waiting_ends_when_another_thread_stops_it() {
        let source = CancellationSource::new();
        let signal = source.signal();
        let waiter = std::thread::spawn(move || signal.wait(Duration::from_secs(30)));
        source.stop(StopReason::TimedOut);
        assert_eq!(waiter.join().unwrap(), Some(StopReason::TimedOut));
        assert_eq!(CancellationSignal::never().wait(Duration::ZERO), None);
    }
}
