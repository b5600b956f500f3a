//! The output of an agent in a session: a candidate that a runner looks at, or the model's visible text.
//!
//! A candidate is stored first and looked at later, by a runner that claims the run for it while the run goes on waiting: nothing
//! has to be undone when that runner is lost. An accepted candidate ends its attempt under the same claim. Not here: the look itself
//! (`engine::validation`).

use holdpoint_state::id::random_id;
use holdpoint_state::{
    Actor, ActorKind, Change, Claim, Command, Database, Digest, Outcome, Owner, Payload, Receipt,
};
use serde_json::{Value, json};

use super::advance::{self, Advanced, FinishedAttempt, Move};
use super::answer::{self, Admitted, Answered, Wish};
use super::worker::Said;
use super::{Touches, messages};
use crate::definition::Definition;
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    AttemptStatus, RequestKind, RunStatus, SubmissionOutcome, VALIDATION_LOST, cut, resource,
    submission_id,
};
use crate::operations;
use crate::store;

/// A candidate for the output of an agent.
#[derive(Debug, Clone)]
pub struct Submission {
    run: RunId,
    value: Value,
    request: Option<String>,
    revision: Option<u64>,
    key: String,
    session: Option<String>,
    actor: Actor,
}

impl Submission {
    /// A candidate for what the run asks of its session. In a text, JSON is looked for.
    pub fn new(run: &RunId, value: Value) -> Self {
        Self {
            run: run.clone(),
            value,
            request: None,
            revision: None,
            key: random_id("submission"),
            session: None,
            actor: Actor::control("program"),
        }
    }

    /// The run that it is for.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Names the request that it answers, so that it can't meet a later one.
    #[must_use]
    pub fn to(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    /// Says which revision of the request the caller saw.
    #[must_use]
    pub fn expecting(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Sets the idempotency key. A caller that may have to repeat the candidate sets its own; a corrected one has another.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Says which session submits; it must be the one that is asked.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        let session = session.into();
        self.actor = Actor::new(ActorKind::Session, session.as_str());
        self.session = Some(session);
        self
    }

    /// Says who submits.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }
}

/// A candidate that is stored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Submitted {
    /// The request that it is for.
    pub request_id: String,
    /// The candidate's id.
    pub submission_id: String,
    /// The request's revision when it was taken.
    pub request_revision: u64,
    /// Where it stands: a repeat says what became of it.
    pub outcome: SubmissionOutcome,
    /// Why it was refused, when it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Stores a candidate for the output of an agent. A runner looks at it: see [`Verdict`](crate::views::Verdict).
///
/// A repeat with the same key and value gets what became of the first, also after the run went on.
///
/// # Errors
///
/// Those of [`answer()`](super::answer()), in the same order; [`WorkflowError::Rejected`] for a request that no agent answers by
/// submitting.
pub fn submit(db: &Database, submission: &Submission) -> Result<Receipt<Submitted>, WorkflowError> {
    answer::check_key(&submission.key)?;
    let payload = Payload::json(&submission.value)?;
    let command =
        Command::new(&operations::SUBMIT, resource(&submission.run)).by(submission.actor.clone());
    let submission = submission.clone();
    db.commit(command, move |change| {
        store_candidate(change, &submission, &payload)
    })
    .map_err(answer::no_run)
}

fn store_candidate(
    change: &mut Change<'_>,
    submission: &Submission,
    payload: &Payload,
) -> Result<Outcome<Submitted>, WorkflowError> {
    let run = store::runs::run(change)?;
    let wish = Wish {
        request: submission.request.as_deref(),
        session: submission.session.as_deref(),
        key: &submission.key,
        revision: submission.revision,
        kinds: &[RequestKind::Agent],
        despite_pause: false,
    };
    let request = match answer::admit(change, &run, &wish, payload)? {
        Admitted::Fresh(request) => request,
        Admitted::Repeat(request, earlier) => {
            let message = match (earlier.outcome, earlier.receipt) {
                (SubmissionOutcome::Rejected, Some(receipt)) => Some(text(change, receipt)?),
                _ => None,
            };
            return Ok(Outcome::Adopted(Submitted {
                request_id: request.request_id,
                submission_id: earlier.submission_id,
                request_revision: earlier.request_revision,
                outcome: earlier.outcome,
                message,
            }));
        }
    };
    if let Some(code) = run.park_code() {
        return Err(run.rejected(format!(
            "nobody can look at it: the run is parked with {code}; resume it first"
        )));
    }
    let id = submission_id(&request.request_id, &submission.key);
    let stored = change.put_blob(payload)?;
    store::requests::insert_submission(
        change,
        &id,
        (request.key, request.revision),
        &submission.key,
        stored,
        (SubmissionOutcome::Validating, None),
    )?;
    change.transition(run.status.as_str(), "waiting")?;
    change.record(Payload::json(&json!({
        "requestId": request.request_id,
        "submissionId": id,
        "payloadStored": true,
    }))?);
    Ok(Outcome::Accepted(Submitted {
        request_id: request.request_id,
        submission_id: id,
        request_revision: request.revision,
        outcome: SubmissionOutcome::Validating,
        message: None,
    }))
}

fn text(change: &mut Change<'_>, hash: Digest) -> Result<String, WorkflowError> {
    let bytes = store::attempts::content(change, hash)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The visible text of a model, once everything that it did has settled.
#[derive(Debug, Clone)]
pub struct AssistantText {
    run: RunId,
    text: String,
    entry: String,
    request: Option<String>,
    revision: Option<u64>,
    key: Option<String>,
    session: String,
    adopted: bool,
}

impl AssistantText {
    /// The text of the session's final entry.
    pub fn new(
        run: &RunId,
        session: impl Into<String>,
        text: impl Into<String>,
        entry: impl Into<String>,
    ) -> Self {
        Self {
            run: run.clone(),
            text: text.into(),
            entry: entry.into(),
            request: None,
            revision: None,
            key: None,
            session: session.into(),
            adopted: false,
        }
    }

    /// The run that it is for.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Names the request that it answers.
    #[must_use]
    pub fn to(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    /// Says which revision of the request the caller saw.
    #[must_use]
    pub fn expecting(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Sets the idempotency key; otherwise the entry is it.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Says that the entry was on the branch already, and was found by a recovery.
    #[must_use]
    pub fn found_by_recovery(mut self) -> Self {
        self.adopted = true;
        self
    }
}

/// Accepts the visible text of a model as the output of its agent.
///
/// # Errors
///
/// Those of [`answer()`](super::answer()), in the same order; [`WorkflowError::Rejected`] for a blank text and one over the
/// request's limit: the request stays as it is.
pub fn assistant(db: &Database, said: &AssistantText) -> Result<Receipt<Answered>, WorkflowError> {
    let said = said.clone();
    let key = said.key.clone().unwrap_or_else(|| said.entry.clone());
    answer::check_key(&key)?;
    let payload = Payload::json(&Value::String(said.text.clone()))?;
    let command = Command::new(&operations::ACCEPT_TEXT, resource(&said.run))
        .by(Actor::new(ActorKind::Session, said.session.as_str()));
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        let wish = Wish {
            request: said.request.as_deref(),
            session: Some(&said.session),
            key: &key,
            revision: said.revision,
            kinds: &[RequestKind::Assistant],
            despite_pause: false,
        };
        let request = match answer::admit(change, &run, &wish, &payload)? {
            Admitted::Fresh(request) => request,
            Admitted::Repeat(request, earlier) => {
                return Ok(Outcome::Adopted(Answered {
                    request_id: request.request_id,
                    submission_id: earlier.submission_id,
                    request_revision: earlier.request_revision,
                }));
            }
        };
        let contract = messages::contract(change, &request)?;
        let max_chars = contract
            .pointer("/expectedOutput/maxChars")
            .and_then(Value::as_u64);
        if said.text.trim().is_empty() {
            return Err(run.rejected("the text of the model is blank"));
        }
        let chars = said.text.chars().count();
        if let Some(max) = max_chars.filter(|max| *max < chars as u64) {
            return Err(run.rejected(format!(
                "the text of the model has {chars} characters, and at most {max} are wanted"
            )));
        }
        let answered = answer::accept(change, &run, &request, &key, &payload, |answered| {
            Payload::json(&json!({
                "requestId": answered.request_id,
                "submissionId": answered.submission_id,
                "requestRevision": answered.request_revision,
                "textDigest": Digest::of(said.text.as_bytes()).to_hex(),
                "entryId": said.entry,
                "maxChars": max_chars,
                "foundByRecovery": said.adopted,
            }))
        })?;
        Ok(Outcome::Accepted(answered))
    })
    .map_err(answer::no_run)
}

/// What came of the wish to look at a candidate.
#[derive(Debug)]
pub enum Validating {
    /// The runner looks at it under this claim.
    Owned(Claim),
    /// Whoever looked at it before was lost: it is refused, and nobody owns the run.
    Lost,
}

/// Takes a waiting run, read at `revision`, to look at its candidate. The run goes on waiting.
///
/// A candidate whose last runner was lost is refused instead: what kills one runner might kill each.
///
/// # Errors
///
/// [`WorkflowError::State`] with `LeaseHeld` while somebody else owns it and with `StaleRevision` when it moved on since it was
/// read; [`WorkflowError::Rejected`] when it is over, paused, parked for a reason, or has no candidate.
pub fn begin_validation(
    db: &Database,
    run: &RunId,
    revision: u64,
    (owner, lease_ms): (&Owner, i64),
) -> Result<Receipt<Validating>, WorkflowError> {
    let command = Command::new(&operations::CLAIM, resource(run))
        .by(Actor::host(owner.id()))
        .expecting(revision);
    let owner = owner.clone();
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        super::claim::check_open(&run)?;
        let look = look(change, &run)?;
        let claim = change.claim(&owner, lease_ms)?;
        let mut touches = Touches::default();
        touches.add(
            change,
            &operations::CLAIM,
            None,
            Some(Payload::json(&json!({ "generation": claim.generation() }))?),
        )?;
        store::workers::orphan(change)?;
        let looking = look.begin(change, &mut touches, &run)?;
        touches.finish(change)?;
        Ok(Outcome::Accepted(match looking {
            Looking::Begun => Validating::Owned(claim),
            Looking::Lost => Validating::Lost,
        }))
    })
}

/// A candidate that somebody is about to look at.
pub(super) struct Look {
    request: String,
    submission: String,
    was_lost: bool,
}

/// What came of the beginning of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looking {
    Begun,
    /// Whoever looked before was lost. The candidate is refused, and the run given back.
    Lost,
}

/// The candidate of the run of this change, before anybody claims it for a look.
pub(super) fn look(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
) -> Result<Look, WorkflowError> {
    let request =
        store::requests::pending(change)?.ok_or_else(|| run.rejected("it waits for no answer"))?;
    let submission = store::requests::validating(change, request.key)?
        .ok_or_else(|| run.rejected("there is no candidate to look at"))?;
    Ok(Look {
        request: request.request_id,
        submission,
        // An owner that gave the lease back is gone from it; one that was lost still stands there.
        was_lost: change.lease()?.owner.is_some(),
    })
}

impl Look {
    /// Begins the look under the claim that this change made.
    pub(super) fn begin(
        &self,
        change: &mut Change<'_>,
        touches: &mut Touches,
        run: &store::runs::RunRow,
    ) -> Result<Looking, WorkflowError> {
        if self.was_lost {
            refuse(change, touches, run, VALIDATION_LOST)?;
            return Ok(Looking::Lost);
        }
        let payload = json!({ "requestId": self.request, "submissionId": self.submission });
        touches.add(
            change,
            &operations::VALIDATE,
            Some((run.status.as_str(), "waiting")),
            Some(Payload::json(&payload)?),
        )?;
        Ok(Looking::Begun)
    }
}

/// Whether somebody looks at a candidate of the run of this change.
pub(super) fn has_candidate(change: &mut Change<'_>) -> Result<bool, WorkflowError> {
    Ok(match store::requests::pending(change)? {
        Some(request) => store::requests::validating(change, request.key)?.is_some(),
        None => false,
    })
}

/// Refuses the candidate of the run of this change with a text, and gives the run back.
pub(super) fn refuse(
    change: &mut Change<'_>,
    touches: &mut Touches,
    run: &store::runs::RunRow,
    message: &str,
) -> Result<(), WorkflowError> {
    touches.add(
        change,
        &operations::REJECT_CANDIDATE,
        Some((run.status.as_str(), "waiting")),
        None,
    )?;
    let message = cut(message);
    let receipt = change.put_blob(&Payload::text(message.as_str())?)?;
    store::requests::reject_validating(change, Some(receipt))?;
    store::runs::set_detail(change, Some(&message))?;
    change.release()?;
    Ok(())
}

/// Refuses the candidate that the runner looked at. Its request stays as it is; a corrected candidate comes under another key.
///
/// # Errors
///
/// [`WorkflowError::State`] with `ClaimLost` when the run is not owned any more.
pub fn reject_candidate(
    db: &Database,
    claim: &Claim,
    message: &str,
) -> Result<Receipt<()>, WorkflowError> {
    reject_candidate_said(db, claim, message, None)
}

/// [`reject_candidate`] with the message of the worker process that looked; it is the worker's first and last.
pub(crate) fn reject_candidate_said(
    db: &Database,
    claim: &Claim,
    message: &str,
    said: Option<&Said>,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::REJECT_CANDIDATE, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (message, said) = (message.to_owned(), said.cloned());
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        let mut touches = Touches::default();
        if let Some(said) = &said {
            said.open(change, None)?;
        }
        refuse(change, &mut touches, &run, &message)?;
        touches.finish(change)?;
        Ok(Outcome::Accepted(()))
    })
}

/// Accepts the candidate that the runner looked at: its attempt ends with the validated value, and the same claim goes on.
///
/// # Errors
///
/// [`WorkflowError::Transition`] when the proposal does not follow from what is committed; [`WorkflowError::State`] with
/// `ClaimLost` when the run belongs to somebody else now.
pub fn accept_candidate(
    db: &Database,
    claim: &Claim,
    definition: &Definition,
    submission: &str,
    finished: FinishedAttempt,
    next: Move,
) -> Result<Receipt<Advanced>, WorkflowError> {
    accept_candidate_said(db, claim, definition, submission, (finished, next), None)
}

/// [`accept_candidate`] with the message of the worker process that looked; it is the worker's first.
pub(crate) fn accept_candidate_said(
    db: &Database,
    claim: &Claim,
    definition: &Definition,
    submission: &str,
    (finished, next): (FinishedAttempt, Move),
    said: Option<&Said>,
) -> Result<Receipt<Advanced>, WorkflowError> {
    let command = Command::new(&operations::ACCEPT_INTERACTION, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (definition, submission) = (definition.clone(), submission.to_owned());
    let said = said.cloned();
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        let request = store::requests::pending(change)?
            .ok_or_else(|| run.transition("it waits for no answer"))?;
        let attempt = store::attempts::active(change)?
            .ok_or_else(|| run.transition("no attempt waits for an answer"))?;
        if store::requests::validating(change, request.key)?.as_deref() != Some(&*submission) {
            return Err(run.transition(format!("{submission} is not the candidate")));
        }
        let mut touches = Touches::default();
        touches.add(
            change,
            &operations::ACCEPT_INTERACTION,
            Some((run.status.as_str(), "running")),
            Some(Payload::json(&json!({
                "attemptId": attempt.attempt_id,
                "nodeId": attempt.node_id,
                "requestId": request.request_id,
                "submissionId": submission,
            }))?),
        )?;
        let receipt = Payload::json(&Answered {
            request_id: request.request_id.clone(),
            submission_id: submission.clone(),
            request_revision: request.revision,
        })?;
        let receipt = change.put_blob(&receipt)?;
        store::requests::accept_validating(change, &submission, receipt)?;
        store::requests::settle(change, request.key, &submission)?;
        store::messages::cancel_of_source(change, &request.request_id)?;
        store::intervals::close_of_run(change)?;
        store::runs::set_status(change, RunStatus::Waiting, RunStatus::Running, None)?;
        store::queue::execute(change)?;
        store::attempts::set_status(
            change,
            attempt.key,
            AttemptStatus::Waiting,
            AttemptStatus::Running,
        )?;
        let standing = store::attempts::standing(change)?;
        let proposal = (Some(&finished), &next);
        let advanced = advance::step(change, &mut touches, &definition, standing, proposal)?;
        if let Some(said) = &said {
            said.open(change, Some(&advanced))?;
        }
        touches.finish(change)?;
        Ok(Outcome::Accepted(advanced))
    })
}
