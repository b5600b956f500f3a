//! A queued command from both sides: the writer runs a [`Job`], the caller waits on its [`Ticket`].

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::command::{Change, Command, Outcome, Receipt, Transaction, run_command};
use crate::error::StateError;

/// A command as the writer sees it.
pub(crate) trait Job: Send {
    /// Runs the command inside the open transaction and keeps its result. May be called again after an undo.
    fn run(&mut self, transaction: &Transaction<'_>) -> JobState;

    /// The kept result is final: tell the caller.
    fn finish(self: Box<Self>);

    /// The command did not happen, for a reason outside it: tell the caller.
    fn fail(self: Box<Self>, error: StateError);
}

/// How a run of a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobState {
    /// Its rows may be committed.
    Done,
    /// It failed; rows that it wrote must be undone.
    Failed,
}

/// A command that was queued. Dropping the ticket does not cancel the command.
#[must_use = "the command's result comes through the ticket"]
pub struct Ticket<T, E> {
    slot: Arc<Slot<T, E>>,
}

struct Slot<T, E> {
    state: Mutex<SlotState<T, E>>,
    done: Condvar,
}

struct SlotState<T, E> {
    result: Option<Result<Receipt<T>, E>>,
    waker: Option<Waker>,
    waits: bool,
}

impl<T, E> Ticket<T, E> {
    /// Waits until the command is durable or refused.
    ///
    /// # Errors
    ///
    /// Those of the command.
    pub fn wait(self) -> Result<Receipt<T>, E> {
        let mut state = self
            .slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = state.result.take() {
                return result;
            }
            state.waits = true;
            state = self
                .slot
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the result is there, so that [`Ticket::wait`] returns at once.
    pub fn is_done(&self) -> bool {
        self.slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .result
            .is_some()
    }
}

impl<T, E> Future for Ticket<T, E> {
    type Output = Result<Receipt<T>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self
            .slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = state.result.take() {
            return Poll::Ready(result);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl<T, E> std::fmt::Debug for Ticket<T, E> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ticket")
            .field("is_done", &self.is_done())
            .finish()
    }
}

/// The two sides of a command.
pub(super) fn pair<T, E, B>(command: Command, body: B) -> (Ticket<T, E>, Box<dyn Job>)
where
    T: Send + 'static,
    E: From<StateError> + Send + 'static,
    B: FnMut(&mut Change<'_>) -> Result<Outcome<T>, E> + Send + 'static,
{
    let slot = Arc::new(Slot {
        state: Mutex::new(SlotState {
            result: None,
            waker: None,
            waits: false,
        }),
        done: Condvar::new(),
    });
    let ticket = Ticket {
        slot: Arc::clone(&slot),
    };
    (
        ticket,
        Box::new(Submitted {
            command,
            body,
            kept: None,
            slot: Some(slot),
        }),
    )
}

struct Submitted<T, E: From<StateError>, B> {
    command: Command,
    body: B,
    kept: Option<Result<Receipt<T>, E>>,
    slot: Option<Arc<Slot<T, E>>>,
}

impl<T, E, B> Submitted<T, E, B>
where
    E: From<StateError>,
{
    fn tell(&mut self, result: Result<Receipt<T>, E>) {
        let Some(slot) = self.slot.take() else { return };
        let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result = Some(result);
        let (waker, waits) = (state.waker.take(), state.waits);
        drop(state);
        if waits {
            slot.done.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T, E, B> Job for Submitted<T, E, B>
where
    T: Send,
    E: From<StateError> + Send,
    B: FnMut(&mut Change<'_>) -> Result<Outcome<T>, E> + Send,
{
    fn run(&mut self, transaction: &Transaction<'_>) -> JobState {
        let Self { command, body, .. } = self;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run_command(transaction, command, &mut *body)
        }));
        let result = caught.unwrap_or_else(|panic| {
            Err(StateError::Panicked {
                operation: command.operation.name,
                message: panic_text(panic.as_ref()),
            }
            .into())
        });
        let state = if result.is_ok() {
            JobState::Done
        } else {
            JobState::Failed
        };
        self.kept = Some(result);
        state
    }

    fn finish(mut self: Box<Self>) {
        if let Some(result) = self.kept.take() {
            self.tell(result);
        }
    }

    fn fail(mut self: Box<Self>, error: StateError) {
        self.tell(Err(error.into()));
    }
}

impl<T, E: From<StateError>, B> Drop for Submitted<T, E, B> {
    fn drop(&mut self) {
        // A job that is dropped untold would leave its caller waiting for ever.
        if self.slot.is_some() {
            self.tell(Err(StateError::Closed.into()));
        }
    }
}

/// What a panic said, as far as it said it in text.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}
