//! Pause, resume and cancel: what people do to a run from outside. They win over every proposal of a runner that has not
//! committed; the runner then loses its claim and writes nothing more.

use holdpoint_state::{
    Actor, Change, Command, Database, Outcome, Owner, OwnerKind, Payload, Receipt, StateError,
};
use serde_json::json;

use super::answer::no_run;
use super::park::{CONTROL_LEASE_MS, waiting_for};
use super::terminal::{self, Ending};
use super::{Touches, messages};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    ExecutionMode, PAUSED, PAUSED_BECAUSE, ParkCode, QueueStatus, RunStatus, TerminalStatus, cut,
    resource,
};
use crate::operations;
use crate::store;
use crate::store::requests::RequestRow;
use crate::store::runs::RunRow;

/// A wish to steer a run.
#[derive(Debug, Clone)]
pub struct Control {
    run: RunId,
    actor: Actor,
    host: Option<Owner>,
    foreign: ForeignClaim,
    expected: Option<u64>,
    reason: Option<String>,
}

/// What happens with a live claim of a host in another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForeignClaim {
    /// The command is refused until the claim is released or expires.
    #[default]
    Respect,
    /// The claim is taken away. The other host's runner finds out at its next write or renewal, and stops; an action that it is
    /// in the middle of is then recovered by the rules for lost runners.
    TakeOver,
}

impl Control {
    /// Steers a run as explicit control from outside.
    pub fn of(run: &RunId) -> Self {
        Self {
            run: run.clone(),
            actor: Actor::control("program"),
            host: None,
            foreign: ForeignClaim::Respect,
            expected: None,
            reason: None,
        }
    }

    /// Says who asks.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Says which host asks, so that its own claim is not foreign. [`Workflows`](crate::Workflows) does it by itself.
    #[must_use]
    pub fn on_host(mut self, host: &Owner) -> Self {
        self.host = Some(host.clone());
        self
    }

    /// Says what happens with a live claim of another host.
    #[must_use]
    pub fn foreign_claim(mut self, foreign: ForeignClaim) -> Self {
        self.foreign = foreign;
        self
    }

    /// Says which revision of the run the caller saw.
    #[must_use]
    pub fn expecting(mut self, revision: u64) -> Self {
        self.expected = Some(revision);
        self
    }

    /// Gives a reason, for the audit trail.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    pub(super) fn command(&self, operation: &'static holdpoint_state::Operation) -> Command {
        let command = Command::new(operation, resource(&self.run)).by(self.actor.clone());
        match self.expected {
            Some(revision) => command.expecting(revision),
            None => command,
        }
    }

    /// Whether somebody owns the run now. An owner that must be respected is an error.
    fn owner(&self, change: &mut Change<'_>) -> Result<Owned, StateError> {
        let now = change.now();
        let lease = change.lease()?;
        let Some((_, owner)) = lease.owner.as_ref().filter(|_| lease.is_live(now)) else {
            return Ok(if lease.generation == 0 {
                Owned::Never
            } else {
                Owned::Free
            });
        };
        let own = self.host.as_ref().is_some_and(|host| host.id() == owner);
        if own || self.foreign == ForeignClaim::TakeOver {
            return Ok(Owned::Live);
        }
        Err(StateError::LeaseHeld {
            resource: change.resource().clone(),
            expires_at: lease.expires_at.unwrap_or(now),
        })
    }
}

/// Who owns a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owned {
    /// A host, which this command may overrule.
    Live,
    /// Nobody now; somebody did.
    Free,
    /// Nobody ever.
    Never,
}

/// What a pause met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// A runner, which must be stopped: it has lost its claim.
    Runner,
    /// A parked run.
    Parked,
}

/// Pauses a run: one that a runner executes (the runner loses its claim in the same transaction), or a parked one that waits for
/// an answer. Repeating it changes nothing.
///
/// # Errors
///
/// [`WorkflowError::Rejected`] in any other state.
pub fn pause(db: &Database, control: &Control) -> Result<Receipt<Paused>, WorkflowError> {
    let control = control.clone();
    let command = control.command(&operations::PAUSE_PARKED);
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        if run.status.is_terminal() {
            return Err(run.rejected("it is over"));
        }
        if run.paused {
            return Ok(Outcome::Adopted(Paused::Parked));
        }
        let same = run.status.as_str();
        let paused = if control.owner(change)? == Owned::Live {
            change.instead(&operations::PAUSE_ACTIVE)?;
            store::queue::park(change, None, None)?;
            change.release()?;
            Paused::Runner
        } else if run.queue == QueueStatus::Parked && store::requests::pending(change)?.is_some() {
            Paused::Parked
        } else {
            return Err(run
                .rejected("it is not pausable: no runner executes it and it waits for no answer"));
        };
        change.transition(same, same)?;
        change.record(Payload::json(
            &json!({ "queue": "parked", "reason": control.reason }),
        )?);
        let because = control
            .reason
            .as_ref()
            .map(|reason| cut(&format!("{PAUSED_BECAUSE}{reason}")));
        let detail = because.as_deref().unwrap_or(PAUSED);
        store::runs::set_paused(change, true, Some(detail))?;
        if run.mode == ExecutionMode::Interactive {
            store::intervals::close_of_run(change)?;
        }
        Ok(Outcome::Accepted(paused))
    })
    .map_err(no_run)
}

/// Resumes a paused or parked run. Repeating it changes nothing.
///
/// The caller has compared the run's source with the present one; see [`Workflows::resume`](crate::Workflows::resume).
///
/// # Errors
///
/// [`WorkflowError::Rejected`] when the run is over, waits for an answer or for the review of an effect; the text says which.
/// [`WorkflowError::State`] with `Corrupt` when the history of its settings does not add up.
pub fn resume(db: &Database, control: &Control) -> Result<Receipt<()>, WorkflowError> {
    let control = control.clone();
    let command = control.command(&operations::RESUME);
    db.commit(command, move |change| take_up(change, &control))
        .map_err(no_run)
}

fn take_up(change: &mut Change<'_>, control: &Control) -> Result<Outcome<()>, WorkflowError> {
    let run = store::runs::run(change)?;
    if run.status.is_terminal() {
        return Err(run.rejected("it is over; restart it"));
    }
    super::settings::check_history(change)?;
    let now = change.now();
    let owned = change.lease()?.is_live(now);
    let request = store::requests::pending(change)?;
    let asks = request.is_some();
    let reason = Payload::json(&json!({ "reason": control.reason }))?;
    if let Some(request) = request.as_ref().filter(|_| run.paused && !owned) {
        change.instead(&operations::RESUME_REQUEST)?;
        change.transition(run.status.as_str(), run.status.as_str())?;
        change.record(reason);
        store::runs::set_paused(change, false, Some(waiting_for(request.kind)))?;
        if request.kind.is_of_agent() {
            ask_again(change, &run, request)?;
        }
        return Ok(Outcome::Accepted(()));
    }
    if owned || is_eligible(&run, asks) {
        return Ok(Outcome::Adopted(()));
    }
    if asks && run.park_code().is_none() {
        let is_of_agent = request.is_some_and(|request| request.kind.is_of_agent());
        return Err(run.rejected(if is_of_agent {
            "it waits for the model of its session; submit what it asks for"
        } else {
            "it waits for the answer of a checkpoint; answer it"
        }));
    }
    let key = change.resource_key()?;
    if run.park_code() == Some(ParkCode::EffectAmbiguous)
        && 0 < store::runs::ambiguous_effects(change, key)?
    {
        return Err(run.rejected("the outcome of an effect is unknown; resolve the effect first"));
    }
    let active = store::attempts::active(change)?;
    if run.status == RunStatus::Waiting
        && let Some(attempt) = &active
        && store::requests::is_withdrawn(change, attempt.key)?
    {
        // To run it again would ask again, although its end is decided and only not applied yet.
        return Err(run.rejected(
            "what it asked was taken back without an answer; it ends by what follows from that",
        ));
    }
    // A run that was parked for an effect waits for no answer, so that it runs again.
    let answered = active
        .map(|attempt| store::requests::accepted_payload(change, attempt.key))
        .transpose()?
        .flatten()
        .is_some();
    let to = if run.status == RunStatus::Waiting && !asks && !answered {
        RunStatus::Running
    } else {
        run.status
    };
    change.transition(run.status.as_str(), to.as_str())?;
    change.record(reason);
    if run.paused {
        store::runs::set_paused(change, false, None)?;
    }
    if to != run.status {
        store::runs::set_status(change, run.status, to, None)?;
    }
    if asks {
        store::queue::park(change, None, None)?;
    } else {
        store::queue::make_eligible(change)?;
    }
    Ok(Outcome::Accepted(()))
}

/// What a model was told before the pause is no prompt any more: it is asked again, at the next revision of the request. A candidate
/// that came before the pause is looked at all the same, and if it is accepted the new message is cancelled with the old ones.
fn ask_again(
    change: &mut Change<'_>,
    run: &RunRow,
    request: &RequestRow,
) -> Result<(), WorkflowError> {
    store::messages::cancel_of_source(change, &request.request_id)?;
    store::requests::bump(change, request.key)?;
    let request = RequestRow {
        revision: request.revision + 1,
        ..request.clone()
    };
    let contract = messages::contract(change, &request)?;
    let key = format!("{}:resumed", request.revision);
    messages::ask(
        change,
        run,
        &request,
        (messages::Reason::Resumed, &key),
        &contract,
    )
}

/// Whether the scheduler would take the run as it is.
fn is_eligible(run: &RunRow, asks: bool) -> bool {
    !run.paused
        && !asks
        && run.park_code().is_none()
        && (run.queue != QueueStatus::Parked || run.status != RunStatus::Waiting)
}

/// Ends a run. Works in every state that is not final, also when no runner is alive.
///
/// # Errors
///
/// [`WorkflowError::Rejected`] when it is over already; [`WorkflowError::State`] with `LeaseHeld` while a host of another process
/// executes it, unless the claim is to be taken over.
pub fn cancel(db: &Database, control: &Control) -> Result<Receipt<()>, WorkflowError> {
    let control = control.clone();
    let command = control.command(&operations::CANCEL);
    db.commit(command, move |change| end(change, &control))
        .map_err(no_run)
}

/// The body of [`cancel`].
pub(super) fn end(
    change: &mut Change<'_>,
    control: &Control,
) -> Result<Outcome<()>, WorkflowError> {
    let run = store::runs::run(change)?;
    if run.status.is_terminal() {
        return Err(run.rejected("it is over already"));
    }
    let stale = match control.owner(change)? {
        Owned::Live => {
            change.release()?;
            false
        }
        Owned::Never if matches!(run.queue, QueueStatus::Queued | QueueStatus::Starting) => false,
        Owned::Never | Owned::Free => {
            // A claim of its own first, so that a runner which only slept can't come back.
            change.claim(&Owner::new(OwnerKind::System, "cancel"), CONTROL_LEASE_MS)?;
            true
        }
    };
    let reason = control.reason.as_deref().unwrap_or("the run was cancelled");
    let ending = Ending {
        facts: json!({ "staleControl": stale, "reason": control.reason }),
        ..Ending::without_output(TerminalStatus::Cancelled, reason)
    };
    let mut touches = Touches::default();
    terminal::end(change, &mut touches, run.status, &ending)?;
    touches.finish(change)?;
    Ok(Outcome::Accepted(()))
}
