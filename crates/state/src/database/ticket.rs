//! A queued command from both sides: the writer runs a [`Job`], the caller waits on its [`Ticket`].

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::command::{Change, Command, Outcome, Receipt, Transaction, run_command};
use crate::error::StateError;

use super::queue::{InBody, QueueId};

/// A command as the writer sees it.
pub(crate) trait Job: Send {
    /// Runs the command inside the open transaction and keeps its result. May be called again after an undo.
    fn run(&mut self, transaction: &Transaction<'_>) -> JobState;

    /// The kept result is final: tell the caller.
    fn finish(self: Box<Self>);

    /// The command did not happen, for a reason outside it: tell the caller.
    fn fail(self: Box<Self>, error: StateError);

    /// The name of its operation.
    fn operation(&self) -> &'static str;
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
    queue: QueueId,
    operation: &'static str,
    /// Whether the command was the only one that waited for the writer when it was queued.
    pub(super) is_alone: bool,
}

/// The tickets of two commands that were sent together.
pub type Tickets<T, U, E> = (Ticket<T, E>, Ticket<U, E>);

/// How long the caller of a command that came alone looks for its result before it sleeps: about a commit on a fast disk. To be
/// woken costs as much as a part of it on a virtual machine.
const LOOK: Duration = Duration::from_micros(250);

struct Slot<T, E> {
    state: Mutex<SlotState<T, E>>,
    done: Condvar,
}

struct SlotState<T, E> {
    result: Option<Told<T, E>>,
    waker: Option<Waker>,
    waits: bool,
}

/// What a caller is told: a result, or the panic of its own code that was to make an error of its own type.
type Told<T, E> = Result<Result<Receipt<T>, E>, Box<dyn Any + Send>>;

fn open<T, E>(told: Told<T, E>) -> Result<Receipt<T>, E> {
    told.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<T, E: From<StateError>> Ticket<T, E> {
    /// Waits until the command is durable or refused.
    ///
    /// # Errors
    ///
    /// Those of the command. [`StateError::Misuse`] on the writer's own thread, as in the body of another command, where the wait
    /// would never end; the command itself still runs.
    ///
    /// # Panics
    ///
    /// When the conversion of a [`StateError`] into `E` panicked.
    pub fn wait(self) -> Result<Receipt<T>, E> {
        if self.is_alone && !self.queue.is_served_here() {
            self.look();
        }
        let mut state = self
            .slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(told) = state.result.take() {
                drop(state);
                return open(told);
            }
            if self.queue.is_served_here() {
                return Err(waits_for_itself(self.operation).into());
            }
            state.waits = true;
            state = self
                .slot
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T, E> Ticket<T, E> {
    /// Gives others the processor until the result is there, for a short time.
    #[expect(
        clippy::disallowed_methods,
        reason = "how long a caller looks is real time of this process, not stored time"
    )]
    fn look(&self) {
        let since = Instant::now();
        while since.elapsed() < LOOK && !self.is_done() {
            std::thread::yield_now();
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

fn waits_for_itself(operation: &'static str) -> StateError {
    StateError::Misuse {
        operation,
        problem: "the writer's own thread waits for a command that only it could run".into(),
    }
}

impl<T, E: From<StateError>> Future for Ticket<T, E> {
    type Output = Result<Receipt<T>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self
            .slot
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = state.result.take() {
            drop(state);
            return Poll::Ready(open(told));
        }
        // Outside a body an executor may well poll here: it was woken by this very thread, and returns to it.
        if self.queue.is_in_body() {
            return Poll::Ready(Err(waits_for_itself(self.operation).into()));
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
pub(super) fn pair<T, E, B>(
    queue: QueueId,
    command: Command,
    body: B,
) -> (Ticket<T, E>, Box<dyn Job>)
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
        queue,
        operation: command.operation.name,
        is_alone: false,
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

/// How the last run of a command ended.
enum Kept<T, E> {
    Result(Result<Receipt<T>, E>),
    Panic(String),
}

struct Submitted<T, E: From<StateError>, B> {
    command: Command,
    body: B,
    kept: Option<Kept<T, E>>,
    slot: Option<Arc<Slot<T, E>>>,
}

impl<T, E, B> Submitted<T, E, B>
where
    E: From<StateError>,
{
    fn tell(&mut self, told: Told<T, E>) {
        let Some(slot) = self.slot.take() else { return };
        let mut state = slot.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.result = Some(told);
        let (waker, waits) = (state.waker.take(), state.waits);
        drop(state);
        if waits {
            slot.done.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Tells an error. Making the caller's own type of it is the caller's code: its panic is the caller's too.
    fn tell_error(&mut self, error: StateError) {
        let told = catch_unwind(AssertUnwindSafe(|| E::from(error))).map(Err);
        self.tell(told);
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
        self.kept = None;
        let in_body = InBody::enter();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run_command(transaction, command, &mut *body)
        }));
        drop(in_body);
        let (kept, state) = match caught {
            Ok(Ok(receipt)) => (Kept::Result(Ok(receipt)), JobState::Done),
            Ok(Err(error)) => (Kept::Result(Err(error)), JobState::Failed),
            Err(panic) => {
                let message = panic_text(panic.as_ref());
                // Dropping what was thrown is foreign code too.
                std::mem::forget(panic);
                (Kept::Panic(message), JobState::Failed)
            }
        };
        self.kept = Some(kept);
        state
    }

    fn finish(mut self: Box<Self>) {
        let (operation, message) = match self.kept.take() {
            Some(Kept::Result(result)) => return self.tell(Ok(result)),
            Some(Kept::Panic(message)) => (self.command.operation.name, message),
            None => (self.command.operation.name, "outside its body".to_owned()),
        };
        self.tell_error(StateError::Panicked { operation, message });
    }

    fn fail(mut self: Box<Self>, error: StateError) {
        self.tell_error(error);
    }

    fn operation(&self) -> &'static str {
        self.command.operation.name
    }
}

impl<T, E: From<StateError>, B> Drop for Submitted<T, E, B> {
    fn drop(&mut self) {
        // A job that is dropped untold would leave its caller waiting for ever.
        if self.slot.is_some() {
            self.tell_error(StateError::Closed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{LeaseRule, Operation};
    use crate::database::queue::Queue;
    use crate::id::Resource;

    const NOTHING: Operation = Operation {
        name: "nothing.do",
        event: "nothing.done",
        resource: "nothing",
        summary: "Does nothing.",
        actors: &[],
        lease: LeaseRule::NotRequired,
        from: &[],
        to: &[],
    };

    #[test]
    fn a_job_that_nobody_runs_tells_its_caller() {
        let command = Command::new(&NOTHING, Resource::new("nothing", "n"));
        let (ticket, job) = pair(Queue::new(1).id(), command, |_| {
            Ok::<_, StateError>(Outcome::Accepted(()))
        });
        drop(job);
        assert!(matches!(ticket.wait(), Err(StateError::Closed)));
    }
}
