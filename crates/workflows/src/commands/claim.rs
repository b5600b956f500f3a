//! `run.claim`: a runner takes a run and, in the same transaction, makes the first move of its plan.

use holdpoint_state::effects::EffectStart;
use holdpoint_state::{
    Actor, Change, Claim, Command, Database, Digest, Outcome, Owner, Payload, Receipt,
};
use serde_json::json;

use super::advance::{self, Advanced, FinishedAttempt, Move};
use super::park::park_ambiguous;
use super::{Touches, settings, terminal};
use crate::definition::Definition;
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    AttemptStatus, DEADLINE_EXPIRED, RunStatus, TITLE_LIMIT_CHARS, TerminalStatus, cut_to, resource,
};
use crate::operations;
use crate::routing::NodeOutcome;
use crate::store;
use crate::store::attempts::Standing;

/// A wish to take a run. The plan was made from what was read at `revision`, so that the command holds only there.
#[derive(Debug)]
pub struct Claiming {
    /// The run.
    pub run: RunId,
    /// The revision at which it was read.
    pub revision: u64,
    /// Who takes it.
    pub owner: Owner,
    /// How long the lease lasts without a renewal, in milliseconds.
    pub lease_ms: i64,
    /// The code that the run was started with.
    pub definition: Definition,
    /// The first move.
    pub plan: Plan,
}

/// What a runner does first with a run that it took.
#[derive(Debug, Clone)]
pub enum Plan {
    /// The run was never executed: it begins.
    First {
        /// Its title.
        title: Option<String>,
        /// The first node, or the end of a run whose title failed.
        next: Move,
    },
    /// Its answer was accepted: the attempt that waited ends with it.
    Answered {
        /// The end of the attempt, with the answer as its output.
        finished: FinishedAttempt,
        /// What follows.
        next: Move,
    },
    /// The model spent the time of its request: the attempt that waited ends, timed out.
    Expired {
        /// The end of the attempt.
        finished: FinishedAttempt,
        /// What follows.
        next: Move,
    },
    /// Its runner is gone: an attempt that went on is given up, accepted steps stay.
    Again {
        /// The node of the attempt that was given up, or what follows the last step.
        next: Move,
    },
}

impl Plan {
    /// The move of it.
    pub(crate) fn next(&self) -> &Move {
        match self {
            Self::First { next, .. }
            | Self::Answered { next, .. }
            | Self::Expired { next, .. }
            | Self::Again { next } => next,
        }
    }
}

/// What became of the claim.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each step, and moved; a box would cost more than it saves"
)]
#[derive(Debug)]
pub enum Claimed {
    /// The runner owns the run.
    Owned {
        /// The right to go on.
        claim: Claim,
        /// What became of the first move.
        advanced: Advanced,
    },
    /// The first move ended the run; nobody owns it.
    Ended,
    /// The outcome of an effect that a lost runner began can't be known: the run is parked, nobody owns it.
    Parked,
}

/// Takes a run. Never idempotent: each success is a new generation.
///
/// # Errors
///
/// [`WorkflowError::State`] with `LeaseHeld` while somebody else owns it and with `StaleRevision` when it moved on since it was
/// read; [`WorkflowError::Rejected`] when it is over, paused, parked for a reason, or waits for an answer.
pub fn claim(db: &Database, claiming: Claiming) -> Result<Receipt<Claimed>, WorkflowError> {
    db.commit(command(&claiming), move |change| take(change, &claiming))
}

/// The command of a claim.
pub(super) fn command(claiming: &Claiming) -> Command {
    Command::new(&operations::CLAIM, resource(&claiming.run))
        .by(Actor::host(claiming.owner.id()))
        .expecting(claiming.revision)
}

/// The body of a claim.
pub(super) fn take(
    change: &mut Change<'_>,
    claiming: &Claiming,
) -> Result<Outcome<Claimed>, WorkflowError> {
    let run = store::runs::run(change)?;
    match claiming.plan {
        Plan::Expired { .. } => check_open(&run)?,
        Plan::First { .. } | Plan::Answered { .. } | Plan::Again { .. } => {
            check_claimable(change, &run)?;
        }
    }
    if run.definition_digest != Digest(claiming.definition.digest()) {
        return Err(run.transition("the runner brings another definition"));
    }
    let claim = change.claim(&claiming.owner, claiming.lease_ms)?;
    let mut touches = Touches::default();
    touches.add(
        change,
        &operations::CLAIM,
        None,
        Some(Payload::json(&json!({ "generation": claim.generation() }))?),
    )?;
    store::queue::execute(change)?;
    if 1 < claim.generation() {
        store::workers::orphan(change)?;
    }
    let definition = &claiming.definition;
    let begun = begin(change, &mut touches, (&run, definition), &claiming.plan)?;
    touches.finish(change)?;
    Ok(Outcome::Accepted(match (begun, claiming.plan.next()) {
        (Begun::Parked, _) => Claimed::Parked,
        (Begun::Moved(advanced), Move::Start(_)) => Claimed::Owned { claim, advanced },
        (Begun::Moved(_), Move::Complete | Move::End(..) | Move::HandOver) => Claimed::Ended,
    }))
}

/// What became of the first move under a claim.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It was made.
    Moved(Advanced),
    /// The outcome of an effect can't be known: the run is parked, and nobody owns it.
    Parked,
}

/// Makes the first move of a plan: the body of [`claim`], and of a worker process that begins.
pub(super) fn begin(
    change: &mut Change<'_>,
    touches: &mut Touches,
    (run, definition): (&store::runs::RunRow, &Definition),
    plan: &Plan,
) -> Result<Begun, WorkflowError> {
    let (finished, next) = match plan {
        Plan::First { title, next } => {
            begin_run(change, touches, run, title.as_deref(), next)?;
            if let (Some(settings), Move::Start(_)) = (definition.settings(""), next) {
                settings::create_scope(change, "", 1, settings.initial())?;
            }
            (None, next)
        }
        Plan::Answered { finished, next } => {
            check_settings(change, definition)?;
            take_answer(change, touches, run)?;
            (Some(finished), next)
        }
        Plan::Expired { finished, next } => {
            expire(change, touches, run, finished)?;
            (Some(finished), next)
        }
        Plan::Again { next } => {
            if run.status != RunStatus::Running {
                return Err(run.transition("it is not running, so that no runner was lost"));
            }
            check_settings(change, definition)?;
            let recovered = change.recover_effects()?;
            if let Some(effect) = recovered.ambiguous.first() {
                park_ambiguous(change, touches, run.status, effect.as_str())?;
                return Ok(Begun::Parked);
            }
            let replaced = store::attempts::replace_open(change)?;
            let payload = Payload::json(&json!({ "replacedAttempts": replaced }))?;
            let transition = Some(("running", "running"));
            touches.add(
                change,
                &operations::PREPARE_RESUME,
                transition,
                Some(payload),
            )?;
            (None, next)
        }
    };
    let standing = match (plan, next) {
        (Plan::First { .. }, Move::End(TerminalStatus::Failed, _)) => {
            Standing::begun(RunStatus::Queued)
        }
        (Plan::First { .. }, _) => Standing::begun(RunStatus::Running),
        _ => store::attempts::standing(change)?,
    };
    let advanced = advance::step(change, touches, definition, standing, (finished, next))?;
    Ok(match &advanced.effect {
        Some(EffectStart::Ambiguous { .. }) => Begun::Parked,
        _ => Begun::Moved(advanced),
    })
}

/// A run of a workflow without settings has no history of them to look at.
fn check_settings(change: &mut Change<'_>, definition: &Definition) -> Result<(), WorkflowError> {
    if definition.has_settings() {
        settings::check_history(change)?;
    }
    Ok(())
}

/// What the scheduler looks for, checked again: finding a run gives no right to it.
pub(super) fn check_claimable(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
) -> Result<(), WorkflowError> {
    check_open(run)?;
    // Nobody executed a queued run yet, so that nothing can have been asked.
    if run.status != RunStatus::Queued && store::requests::pending(change)?.is_some() {
        return Err(run.rejected("it waits for an answer"));
    }
    Ok(())
}

/// Whether anybody may take the run at all, for whatever it waits.
pub(super) fn check_open(run: &store::runs::RunRow) -> Result<(), WorkflowError> {
    if run.status.is_terminal() || run.queue.is_settled() {
        return Err(run.rejected("it is over"));
    }
    if run.paused {
        return Err(run.rejected("resume it first"));
    }
    if let Some(code) = run.park_code() {
        return Err(run.rejected(format!("it is parked with {code}; resume it first")));
    }
    Ok(())
}

fn begin_run(
    change: &mut Change<'_>,
    touches: &mut Touches,
    run: &store::runs::RunRow,
    title: Option<&str>,
    next: &Move,
) -> Result<(), WorkflowError> {
    if run.status != RunStatus::Queued {
        return Err(run.transition("it was begun already"));
    }
    if matches!(next, Move::End(TerminalStatus::Failed, _)) {
        return Ok(());
    }
    let title = title.map(|title| cut_to(title, TITLE_LIMIT_CHARS));
    let payload = Payload::json(&json!({ "title": title }))?;
    touches.add(
        change,
        &operations::INITIALIZE,
        Some(("queued", "running")),
        Some(payload),
    )?;
    store::runs::set_status(change, RunStatus::Queued, RunStatus::Running, None)?;
    if let Some(title) = &title {
        store::runs::set_title(change, title)?;
    }
    Ok(())
}

/// The same attempt goes on with its accepted answer.
fn take_answer(
    change: &mut Change<'_>,
    touches: &mut Touches,
    run: &store::runs::RunRow,
) -> Result<(), WorkflowError> {
    let attempt = store::attempts::active(change)?
        .ok_or_else(|| run.transition("no attempt waits for an answer"))?;
    if store::requests::accepted_payload(change, attempt.key)?.is_none() {
        return Err(run.transition("its answer is not accepted yet"));
    }
    let payload = Payload::json(&json!({
        "attemptId": attempt.attempt_id,
        "nodeId": attempt.node_id,
    }))?;
    touches.add(
        change,
        &operations::ACCEPT_INTERACTION,
        Some(("waiting", "running")),
        Some(payload),
    )?;
    store::runs::set_status(change, RunStatus::Waiting, RunStatus::Running, None)?;
    store::attempts::set_status(
        change,
        attempt.key,
        AttemptStatus::Waiting,
        AttemptStatus::Running,
    )?;
    Ok(())
}

/// The model spent the time of its request: nobody can answer it any more, and the same attempt goes on only to end.
fn expire(
    change: &mut Change<'_>,
    touches: &mut Touches,
    run: &store::runs::RunRow,
    finished: &FinishedAttempt,
) -> Result<(), WorkflowError> {
    let request = store::requests::pending(change)?
        .filter(|request| request.kind.is_of_agent())
        .ok_or_else(|| run.rejected("no model spends its time"))?;
    let attempt = store::attempts::active(change)?
        .ok_or_else(|| run.transition("no attempt waits for an answer"))?;
    let budget = attempt.timeout_ms.filter(|budget| 0.0 < *budget);
    let spent = store::intervals::spent_ms(change, attempt.key)?;
    if budget.is_none_or(|budget| spent < budget) {
        return Err(run.rejected("there is time left"));
    }
    if finished.result().outcome != NodeOutcome::TimedOut {
        return Err(run.transition("an attempt without time left ends timed out only"));
    }
    let payload = Payload::json(&json!({
        "requestId": request.request_id,
        "attemptId": attempt.attempt_id,
        "spentMs": spent,
        "timeoutMs": budget,
    }))?;
    touches.add(
        change,
        &operations::EXPIRE,
        Some((run.status.as_str(), "running")),
        Some(payload),
    )?;
    store::intervals::close_of_run(change)?;
    let receipt = change.put_blob(&Payload::text(DEADLINE_EXPIRED)?)?;
    store::requests::reject_validating(change, Some(receipt))?;
    store::requests::cancel_open(change)?;
    store::messages::cancel_of_source(change, &request.request_id)?;
    store::runs::set_status(
        change,
        RunStatus::Waiting,
        RunStatus::Running,
        Some(DEADLINE_EXPIRED),
    )?;
    store::attempts::set_status(
        change,
        attempt.key,
        AttemptStatus::Waiting,
        AttemptStatus::Running,
    )?;
    Ok(())
}

/// Ends a run that nobody can execute: its workflow can't be loaded.
pub(super) fn fail_queued(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
    (code, error): (&str, &str),
) -> Result<(), WorkflowError> {
    let mut touches = Touches::default();
    let ending = terminal::Ending {
        code: Some(code),
        ..terminal::Ending::without_output(TerminalStatus::Failed, error)
    };
    terminal::end(change, &mut touches, run.status, &ending)?;
    touches.finish(change)?;
    Ok(())
}
