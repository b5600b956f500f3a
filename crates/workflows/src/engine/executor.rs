//! Runs the code of authors on a thread of its own, so that code which hangs can be left behind.
//!
//! Rust can't end a thread. A node whose signal was raised gets a grace; after it the worker goes on without the thread, which
//! ends by itself when the code returns. What it returns then is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::panic_text;
use crate::definition::CancellationSignal;
use crate::error::WorkflowError;

type Job = Box<dyn FnOnce() + Send>;

/// How long the worker looks for the end of a job before it sleeps: to be put to sleep and woken costs as much, and most nodes take less.
const LOOK: Duration = Duration::from_micros(40);

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Ran<T> {
    /// It returned.
    Done(T),
    /// It panicked with this text.
    Panicked(String),
    /// It did not listen to its signal and was left behind.
    Abandoned,
}

/// A thread for the code of one node at a time.
#[derive(Debug)]
pub(crate) struct Executor {
    name: String,
    jobs: Option<Sender<Job>>,
}

/// Where a job's result is left.
struct Slot<T> {
    state: Mutex<SlotState<T>>,
    changed: Condvar,
    /// Whether there is something to see, for a thread that looks without taking the lock.
    has_changed: AtomicBool,
}

struct SlotState<T> {
    result: Option<Result<T, String>>,
    stopped: bool,
    /// Whether the worker sleeps.
    waits: bool,
}

impl Executor {
    pub(crate) fn new(name: String) -> Self {
        Self { name, jobs: None }
    }

    /// Runs a job until it returns, or until `grace` has passed since its signal was raised.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        signal: &CancellationSignal,
        grace: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Ran<T>, WorkflowError> {
        let slot = Arc::new(Slot {
            state: Mutex::new(SlotState {
                result: None,
                stopped: false,
                waits: false,
            }),
            changed: Condvar::new(),
            has_changed: AtomicBool::new(false),
        });
        let filled = Arc::clone(&slot);
        self.send(Box::new(move || {
            // The job and what it holds are gone before its result is seen.
            let result = catch_unwind(AssertUnwindSafe(job)).map_err(|panic| panic_text(&*panic));
            filled.change(|state| state.result = Some(result));
        }))?;
        let watched = Arc::clone(&slot);
        let _watch = signal.watch(move |_| {
            watched.change(|state| state.stopped = true);
        });
        let ran = slot.wait(grace);
        if matches!(ran, Ran::Abandoned) {
            // Its thread ends when the job returns, since nobody can send it another.
            self.jobs = None;
        }
        Ok(ran)
    }

    fn send(&mut self, job: Job) -> Result<(), WorkflowError> {
        let job = match &self.jobs {
            None => job,
            Some(jobs) => match jobs.send(job) {
                Ok(()) => return Ok(()),
                Err(returned) => returned.0,
            },
        };
        let (sender, receiver) = channel::<Job>();
        std::thread::Builder::new()
            .name(self.name.clone())
            .spawn(move || {
                while let Ok(job) = receiver.recv() {
                    job();
                }
            })
            .map_err(|error| thread_error(&error))?;
        // The receiver is alive: its thread just began.
        drop(sender.send(job));
        self.jobs = Some(sender);
        Ok(())
    }
}

fn thread_error(error: &std::io::Error) -> WorkflowError {
    WorkflowError::Scheduler {
        problem: format!("could not start a thread for a node: {error}"),
    }
}

impl<T> Slot<T> {
    fn lock(&self) -> std::sync::MutexGuard<'_, SlotState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut SlotState<T>)) {
        let mut state = self.lock();
        change(&mut state);
        let waits = state.waits;
        self.has_changed.store(true, Ordering::Release);
        drop(state);
        if waits {
            self.changed.notify_all();
        }
    }

    /// Gives others the processor, the job's thread first of all, until there is something to see or a short time is over.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a worker looks is real time of this process, not stored time"
    )]
    fn look(&self) {
        let since = Instant::now();
        while !self.has_changed.load(Ordering::Acquire) && since.elapsed() < LOOK {
            std::thread::yield_now();
        }
    }

    fn wait(&self, grace: Duration) -> Ran<T> {
        self.look();
        let mut state = self.lock();
        state.waits = true;
        let waiting = self
            .changed
            .wait_while(state, |state| state.result.is_none() && !state.stopped);
        let mut state = waiting.unwrap_or_else(PoisonError::into_inner);
        if state.result.is_none() {
            let waited = self
                .changed
                .wait_timeout_while(state, grace, |state| state.result.is_none());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match state.result.take() {
            Some(Ok(value)) => Ran::Done(value),
            Some(Err(panic)) => Ran::Panicked(panic),
            None => Ran::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definition::{CancellationSource, StopReason};

    #[test]
    fn results_panics_and_deaf_jobs() {
        let mut executor = Executor::new("test".to_owned());
        let never = CancellationSignal::never();
        let grace = Duration::from_millis(1);
        assert!(matches!(
            executor.run(&never, grace, || 7).unwrap(),
            Ran::Done(7)
        ));
        let ran = executor
            .run(&never, grace, || -> u8 { panic!("on purpose") })
            .unwrap();
        assert!(matches!(ran, Ran::Panicked(text) if text == "on purpose"));

        let source = CancellationSource::new();
        let (release, held) = channel::<()>();
        source.stop(StopReason::TimedOut);
        let ran = executor
            .run(&source.signal(), grace, move || held.recv().is_ok())
            .unwrap();
        assert!(matches!(ran, Ran::Abandoned));
        // The worker goes on with another thread while the first one hangs.
        assert!(matches!(
            executor.run(&never, grace, || 8).unwrap(),
            Ran::Done(8)
        ));
        drop(release);
    }
}
