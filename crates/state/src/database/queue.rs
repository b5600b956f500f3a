//! The writer's queue: bounded, first in first out for those who wait for room too, closed once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::ticket::Job;
use crate::error::StateError;

/// What happens with commands that wait when the database is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    /// They run first.
    Drain,
    /// They are refused.
    Refuse,
}

/// Names one queue of this process, so that a writer's thread knows its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueId(u64);

thread_local! {
    /// The queue that this thread is the writer of.
    static WRITER_OF: Cell<Option<QueueId>> = const { Cell::new(None) };
    /// Whether this thread is inside a command's body.
    static IN_BODY: Cell<bool> = const { Cell::new(false) };
}

impl QueueId {
    /// Says that this thread is the writer: what would wait for it here would wait for ever.
    pub(super) fn serve_here(self) {
        WRITER_OF.set(Some(self));
    }

    pub(super) fn is_served_here(self) -> bool {
        WRITER_OF.get() == Some(self)
    }

    pub(super) fn is_in_body(self) -> bool {
        self.is_served_here() && IN_BODY.get()
    }
}

/// Marks this thread as running a command's body until it is dropped.
pub(super) struct InBody(());

impl InBody {
    pub(super) fn enter() -> Self {
        IN_BODY.set(true);
        Self(())
    }
}

impl Drop for InBody {
    fn drop(&mut self) {
        IN_BODY.set(false);
    }
}

/// How long the writer looks for another job before it sleeps. To wake a thread costs as much on a virtual machine.
const LINGER: Duration = Duration::from_micros(100);

/// A job and since when it waits.
pub(super) struct Queued {
    pub(super) job: Box<dyn Job>,
    pub(super) since: Instant,
    /// Whether it was sent together with the one before it, so that it says nothing of who else may send.
    pub(super) is_second: bool,
}

pub(crate) struct Queue {
    id: QueueId,
    state: Mutex<State>,
    has_job: Condvar,
    /// Whether jobs wait, for a writer that looks without taking the lock.
    is_pending: AtomicBool,
    capacity: usize,
}

struct State {
    jobs: VecDeque<Queued>,
    closing: Option<Closing>,
    /// Who waits for room, in the order of coming. Somebody who comes later does not get the place that became free for them.
    waiting: VecDeque<Arc<Condvar>>,
    /// Whether the writer sleeps.
    idle: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: QueueId(NEXT.fetch_add(1, Ordering::Relaxed)),
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                closing: None,
                waiting: VecDeque::new(),
                idle: false,
            }),
            has_job: Condvar::new(),
            is_pending: AtomicBool::new(false),
            capacity: capacity.max(1),
        }
    }

    pub(super) fn id(&self) -> QueueId {
        self.id
    }

    /// Appends a job; waits while the queue is full. Returns whether it is the only one that waits for the writer.
    pub(super) fn push(&self, job: Box<dyn Job>, timeout_ms: u64) -> Result<bool, StateError> {
        self.push_with(job, None, timeout_ms)
    }

    /// Appends a job, and at once another one that follows it: nothing comes between them. The second may go beyond the capacity.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a command waits is real time of this process, not stored time"
    )]
    pub(super) fn push_with(
        &self,
        job: Box<dyn Job>,
        second: Option<Box<dyn Job>>,
        timeout_ms: u64,
    ) -> Result<bool, StateError> {
        if self.id.is_in_body() {
            return Err(StateError::Misuse {
                operation: job.operation(),
                problem: "a command's body sends another command to its own database; `also` puts it into the same transaction"
                    .into(),
            });
        }
        let since = Instant::now();
        let mut state = self.lock();
        if self.capacity <= state.jobs.len() || !state.waiting.is_empty() {
            // The writer's own thread can't wait for room that only it could make.
            let timeout_ms = if self.id.is_served_here() {
                0
            } else {
                timeout_ms
            };
            state = self.wait_for_room(state, since, timeout_ms)?;
        }
        if state.closing.is_some() {
            return Err(StateError::Closed);
        }
        let is_alone = state.jobs.is_empty();
        let mut is_second = false;
        for job in std::iter::once(job).chain(second) {
            state.jobs.push_back(Queued {
                job,
                since,
                is_second,
            });
            is_second = true;
        }
        self.is_pending.store(true, Ordering::Relaxed);
        self.tell_waiting(&state);
        if state.idle {
            state.idle = false;
            drop(state);
            self.has_job.notify_one();
        }
        Ok(is_alone)
    }

    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        since: Instant,
        timeout_ms: u64,
    ) -> Result<MutexGuard<'a, State>, StateError> {
        let timeout = Duration::from_millis(timeout_ms);
        let me = Arc::new(Condvar::new());
        state.waiting.push_back(Arc::clone(&me));
        loop {
            let is_first = state
                .waiting
                .front()
                .is_some_and(|first| Arc::ptr_eq(first, &me));
            let has_room = is_first && state.jobs.len() < self.capacity;
            let left = timeout.saturating_sub(since.elapsed());
            if has_room || state.closing.is_some() || left.is_zero() {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &me));
                if has_room || state.closing.is_some() {
                    return Ok(state);
                }
                // Whoever came next may have been told nothing while this caller was the first.
                self.tell_waiting(&state);
                return Err(StateError::Busy {
                    waited_ms: timeout_ms,
                });
            }
            state = me
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Takes the next job; waits for one. `None` when the queue is closed and the writer may end.
    pub(super) fn pop(&self) -> Option<Queued> {
        let mut state = self.lock();
        let mut has_lingered = false;
        loop {
            if state.closing == Some(Closing::Refuse) {
                return None;
            }
            if let Some(job) = self.take_first(&mut state) {
                return Some(job);
            }
            if state.closing.is_some() {
                return None;
            }
            if !has_lingered {
                has_lingered = true;
                drop(state);
                self.linger(LINGER);
                state = self.lock();
                continue;
            }
            state.idle = true;
            state = self
                .has_job
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle = false;
        }
    }

    /// Takes the next job if there is one now.
    pub(super) fn try_pop(&self) -> Option<Queued> {
        let mut state = self.lock();
        if state.closing == Some(Closing::Refuse) {
            return None;
        }
        self.take_first(&mut state)
    }

    /// Gives others the processor until a job waits, for at most `patience`. Returns how long it took.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long the writer looks is real time of this process, not stored time"
    )]
    pub(super) fn linger(&self, patience: Duration) -> Duration {
        let since = Instant::now();
        loop {
            let spent = since.elapsed();
            if self.is_pending.load(Ordering::Relaxed) || patience <= spent {
                return spent;
            }
            std::thread::yield_now();
        }
    }

    fn take_first(&self, state: &mut State) -> Option<Queued> {
        let job = state.jobs.pop_front()?;
        self.is_pending
            .store(!state.jobs.is_empty(), Ordering::Relaxed);
        self.tell_waiting(state);
        Some(job)
    }

    /// Closes the queue. The first closing counts, but refusing may follow draining.
    pub(super) fn close(&self, closing: Closing) {
        let mut state = self.lock();
        if state.closing.is_none() || closing == Closing::Refuse {
            state.closing = Some(closing);
        }
        for waiting in &state.waiting {
            waiting.notify_one();
        }
        drop(state);
        self.has_job.notify_all();
    }

    /// Everything that still waits, at the end of the writer.
    pub(super) fn take_rest(&self) -> Vec<Queued> {
        self.close(Closing::Refuse);
        self.lock().jobs.drain(..).collect()
    }

    /// How many callers wait for room.
    #[cfg(feature = "testing")]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Wakes the first who waits, when there is room.
    fn tell_waiting(&self, state: &State) {
        if let Some(first) = state.waiting.front()
            && state.jobs.len() < self.capacity
        {
            first.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; if it did, the state would still be whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Transaction;
    use crate::database::ticket::JobState;

    struct Named(&'static str);

    impl Job for Named {
        fn run(&mut self, _: &Transaction<'_>) -> JobState {
            JobState::Done
        }

        fn finish(self: Box<Self>) {}

        fn fail(self: Box<Self>, _: StateError) {}

        fn operation(&self) -> &'static str {
            self.0
        }
    }

    #[test]
    fn who_comes_late_does_not_get_the_place_of_who_waits() {
        let queue = Queue::new(1);
        let push = |name| {
            queue.push(Box::new(Named(name)), 60_000).unwrap();
        };
        let next = || queue.pop().unwrap().job.operation();
        push("first");
        std::thread::scope(|scope| {
            scope.spawn(|| push("waits"));
            while queue.lock().waiting.is_empty() {
                std::thread::yield_now();
            }
            // Makes room and asks for it at once, before whoever waits has woken.
            scope.spawn(|| {
                assert_eq!(next(), "first");
                push("late");
            });
            while queue
                .lock()
                .jobs
                .iter()
                .any(|queued| queued.job.operation() == "first")
            {
                std::thread::yield_now();
            }
            assert_eq!(next(), "waits");
            assert_eq!(next(), "late");
        });
    }
}
