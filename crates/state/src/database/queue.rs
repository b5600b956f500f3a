//! The writer's queue: bounded, first in first out, closed once.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
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

pub(crate) struct Queue {
    state: Mutex<State>,
    has_job: Condvar,
    has_room: Condvar,
    capacity: usize,
}

struct State {
    jobs: VecDeque<Box<dyn Job>>,
    closing: Option<Closing>,
    /// How many callers wait for room, so that the writer wakes nobody for nothing.
    waiting: usize,
    /// Whether the writer sleeps.
    idle: bool,
}

impl Queue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                closing: None,
                waiting: 0,
                idle: false,
            }),
            has_job: Condvar::new(),
            has_room: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    /// Appends a job; waits while the queue is full.
    pub(super) fn push(&self, job: Box<dyn Job>, timeout_ms: u64) -> Result<(), StateError> {
        let mut state = self.lock();
        if self.capacity <= state.jobs.len() {
            state = self.wait_for_room(state, timeout_ms)?;
        }
        if state.closing.is_some() {
            return Err(StateError::Closed);
        }
        state.jobs.push_back(job);
        if state.idle {
            state.idle = false;
            drop(state);
            self.has_job.notify_one();
        }
        Ok(())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the wait for room is real time of this process, not stored time"
    )]
    fn wait_for_room<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        timeout_ms: u64,
    ) -> Result<MutexGuard<'a, State>, StateError> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        state.waiting += 1;
        while self.capacity <= state.jobs.len() && state.closing.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.waiting -= 1;
                return Err(StateError::Busy {
                    waited_ms: timeout_ms,
                });
            }
            state = self
                .has_room
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.waiting -= 1;
        Ok(state)
    }

    /// Takes the next job; waits for one. `None` when the queue is closed and the writer may end.
    pub(super) fn pop(&self) -> Option<Box<dyn Job>> {
        let mut state = self.lock();
        loop {
            if state.closing == Some(Closing::Refuse) {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                self.tell_waiting(&state);
                return Some(job);
            }
            if state.closing.is_some() {
                return None;
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
    pub(super) fn try_pop(&self) -> Option<Box<dyn Job>> {
        let mut state = self.lock();
        if state.closing == Some(Closing::Refuse) {
            return None;
        }
        let job = state.jobs.pop_front();
        if job.is_some() {
            self.tell_waiting(&state);
        }
        job
    }

    /// Closes the queue. The first closing counts, but refusing may follow draining.
    pub(super) fn close(&self, closing: Closing) {
        let mut state = self.lock();
        if state.closing.is_none() || closing == Closing::Refuse {
            state.closing = Some(closing);
        }
        drop(state);
        self.has_job.notify_all();
        self.has_room.notify_all();
    }

    /// Everything that still waits, at the end of the writer.
    pub(super) fn take_rest(&self) -> Vec<Box<dyn Job>> {
        self.close(Closing::Refuse);
        self.lock().jobs.drain(..).collect()
    }

    fn tell_waiting(&self, state: &State) {
        if 0 < state.waiting {
            self.has_room.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held; if it did, the state would still be whole between any two statements.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
