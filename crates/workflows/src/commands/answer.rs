//! `checkpoint.answer`: one accepted answer for each request, and a receipt that every repeat gets again.

use holdpoint_state::id::random_id;
use holdpoint_state::{Actor, Change, Command, Database, Outcome, Payload, Receipt, StateError};
use serde_json::{Value, json};

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    ExecutionMode, RequestKind, RequestStatus, RunStatus, SubmissionOutcome, resource,
    submission_id,
};
use crate::operations;
use crate::store;
use crate::store::requests::{RequestRow, SubmissionRow};

/// An answer to what a run asks.
#[derive(Debug, Clone)]
pub struct Answer {
    run: RunId,
    value: Value,
    request: Option<String>,
    revision: Option<u64>,
    key: String,
    session: Option<String>,
    actor: Actor,
}

impl Answer {
    /// An answer to whatever the run waits for. It becomes the output of the checkpoint as it is.
    pub fn new(run: &RunId, value: Value) -> Self {
        Self {
            run: run.clone(),
            value,
            request: None,
            revision: None,
            key: random_id("answer"),
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

    /// Sets the idempotency key. A caller that may have to repeat the answer sets its own.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// Says which session answers; it must be the one that is asked.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Says who answers.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }
}

/// The receipt of an accepted answer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answered {
    /// The request that is settled by it.
    pub request_id: String,
    /// The answer's id.
    pub submission_id: String,
    /// The request's revision when the answer was taken.
    pub request_revision: u64,
}

/// Answers a checkpoint. The run becomes eligible for the scheduler; the answer itself launches nothing.
///
/// A repeat with the same key and the same value gets the receipt of the first, also after the run went on.
///
/// Checks, in this order: the request exists and belongs to run and session; its kind is a checkpoint; the key is a repeat; the
/// run is not paused; the request is pending at the given revision; nobody looks at another answer.
///
/// # Errors
///
/// [`WorkflowError::Conflict`] when the request has another answer, the key another value, or the revision moved on;
/// [`WorkflowError::Rejected`] when the run waits for nothing that an answer could settle.
pub fn answer(db: &Database, answer: &Answer) -> Result<Receipt<Answered>, WorkflowError> {
    check_key(&answer.key)?;
    let payload = Payload::json(&answer.value)?;
    let command = Command::new(&operations::ANSWER, resource(&answer.run)).by(answer.actor.clone());
    let answer = answer.clone();
    db.commit(command, move |change| {
        submit(change, &answer, &payload, &[RequestKind::Checkpoint])
    })
    .map_err(no_run)
}

/// Settles the request of an attempt that a node kind of another crate parked, inside a change of that crate's own resource: the run
/// becomes eligible in the same transaction. The actor is that of the change.
///
/// The answer becomes what [`CustomNode::complete`](crate::definition::CustomNode::complete) makes of it. A repeat with the same
/// key and value gets the first receipt, and the run's revision does not move.
///
/// # Errors
///
/// As [`answer()`]; also [`WorkflowError::Rejected`] for a request that a domain may not settle, such as a checkpoint.
pub fn settle(
    change: &mut Change<'_>,
    run: &RunId,
    request: &str,
    (key, value): (&str, &Value),
) -> Result<Receipt<Answered>, WorkflowError> {
    let answer = Answer::new(run, value.clone())
        .to(request)
        .key(key)
        .by(change.actor().clone());
    check_key(&answer.key)?;
    let payload = Payload::json(value)?;
    let command = Command::new(&operations::SETTLE, resource(run)).by(answer.actor.clone());
    change
        .also(&command, |change| {
            submit(
                change,
                &answer,
                &payload,
                &[RequestKind::Decision, RequestKind::External],
            )
        })
        .map_err(no_run)
}

pub(super) fn check_key(key: &str) -> Result<(), WorkflowError> {
    if key.is_empty() || 512 < key.chars().count() {
        return Err(WorkflowError::Input {
            what: "answer key",
            problem: "it must have 1 to 512 characters".to_owned(),
        });
    }
    Ok(())
}

/// A run that does not exist is told in this domain's words.
pub(super) fn no_run(error: WorkflowError) -> WorkflowError {
    match error {
        WorkflowError::State(holdpoint_state::StateError::NotFound { resource }) => {
            WorkflowError::NoRun {
                run: resource.key().to_owned(),
            }
        }
        other => other,
    }
}

fn submit(
    change: &mut Change<'_>,
    answer: &Answer,
    payload: &Payload,
    kinds: &[RequestKind],
) -> Result<Outcome<Answered>, WorkflowError> {
    let run = store::runs::run(change)?;
    let wish = Wish {
        request: answer.request.as_deref(),
        session: answer.session.as_deref(),
        key: &answer.key,
        revision: answer.revision,
        kinds,
        despite_pause: false,
    };
    let request = match admit(change, &run, &wish, payload)? {
        Admitted::Fresh(request) => request,
        Admitted::Repeat(request, earlier) if earlier.outcome == SubmissionOutcome::Accepted => {
            return Ok(Outcome::Adopted(Answered {
                request_id: request.request_id,
                submission_id: earlier.submission_id,
                request_revision: earlier.request_revision,
            }));
        }
        Admitted::Repeat(request, earlier) => {
            return Err(used(&request, earlier.outcome));
        }
    };
    let answered = accept(change, &run, &request, &answer.key, payload, |answered| {
        Payload::json(answered)
    })?;
    Ok(Outcome::Accepted(answered))
}

/// What a candidate is for, and what its sender knows.
pub(super) struct Wish<'a> {
    pub(super) request: Option<&'a str>,
    pub(super) session: Option<&'a str>,
    pub(super) key: &'a str,
    pub(super) revision: Option<u64>,
    pub(super) kinds: &'a [RequestKind],
    /// Whether it is the policy of a domain, which a pause does not stop.
    pub(super) despite_pause: bool,
}

/// What a candidate met.
pub(super) enum Admitted {
    /// A request that it may answer.
    Fresh(RequestRow),
    /// Its own earlier self, with the same payload.
    Repeat(RequestRow, SubmissionRow),
}

/// Whether a candidate may answer its request. The order of the checks is contract: the request exists and belongs to run and
/// session; its kind allows the action; the key is a repeat, or was used for something else; the run is not paused; the request is
/// pending at the given revision; nobody looks at another candidate.
pub(super) fn admit(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
    wish: &Wish<'_>,
    payload: &Payload,
) -> Result<Admitted, WorkflowError> {
    let request = find(change, run, wish)?;
    if wish
        .session
        .is_some_and(|session| session != request.session)
    {
        return Err(WorkflowError::NoRequest {
            run: run.run_id.to_string(),
        });
    }
    if !wish.kinds.contains(&request.kind) {
        let kinds: Vec<&str> = wish.kinds.iter().map(|kind| kind.as_str()).collect();
        return Err(run.rejected(format!(
            "request {} is of kind {}, not {}",
            request.request_id,
            request.kind,
            kinds.join(" or ")
        )));
    }
    let conflict = |problem: String| WorkflowError::Conflict {
        what: format!("the answer to {}", request.request_id),
        problem,
    };
    if let Some(earlier) = store::requests::submission(change, request.key, wish.key)? {
        if earlier.payload == payload.digest() {
            return Ok(Admitted::Repeat(request, earlier));
        }
        return Err(used(&request, earlier.outcome));
    }
    // What a domain settles is no word of a person, and waits with the run until it is resumed.
    if run.paused && request.kind != RequestKind::External && !wish.despite_pause {
        return Err(conflict("the run is paused; resume it first".to_owned()));
    }
    if request.status != RequestStatus::Pending {
        return Err(conflict(format!(
            "the request is {} already",
            request.status
        )));
    }
    if let Some(expected) = wish
        .revision
        .filter(|expected| *expected != request.revision)
    {
        return Err(conflict(format!(
            "the request is at revision {}, not {expected}",
            request.revision
        )));
    }
    if store::requests::validating(change, request.key)?.is_some() {
        return Err(conflict("another answer is being looked at".to_owned()));
    }
    Ok(Admitted::Fresh(request))
}

pub(super) fn used(request: &RequestRow, outcome: SubmissionOutcome) -> WorkflowError {
    WorkflowError::Conflict {
        what: format!("the answer to {}", request.request_id),
        problem: format!("the key was used for another answer, which is {outcome}"),
    }
}

/// Settles a request with an answer that needs no runner to look at it. The run becomes eligible.
pub(super) fn accept(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
    request: &RequestRow,
    key: &str,
    payload: &Payload,
    receipt: impl FnOnce(&Answered) -> Result<Payload, StateError>,
) -> Result<Answered, WorkflowError> {
    let submission = submission_id(&request.request_id, key);
    let answered = Answered {
        request_id: request.request_id.clone(),
        submission_id: submission.clone(),
        request_revision: request.revision,
    };
    let receipt = change.put_blob(&receipt(&answered)?)?;
    let stored = change.put_blob(payload)?;
    store::requests::insert_submission(
        change,
        &submission,
        (request.key, request.revision),
        key,
        stored,
        (SubmissionOutcome::Accepted, Some(receipt)),
    )?;
    store::requests::settle(change, request.key, &submission)?;
    if run.mode == ExecutionMode::Interactive {
        store::messages::cancel_of_source(change, &request.request_id)?;
        store::intervals::close_of_run(change)?;
    }
    change.transition(run.status.as_str(), run.status.as_str())?;
    change.record(Payload::json(&json!({
        "requestId": request.request_id,
        "submissionId": submission,
        "kind": request.kind,
        "payloadStored": true,
    }))?);
    Ok(answered)
}

/// The request that an answer is for: the named one, the one in which the key was used, or the pending one.
fn find(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
    wish: &Wish<'_>,
) -> Result<RequestRow, WorkflowError> {
    if let Some(id) = wish.request {
        return store::requests::named(change, id)?.ok_or_else(|| WorkflowError::NoRequest {
            run: run.run_id.to_string(),
        });
    }
    if let Some(used) = store::requests::with_submission(change, wish.key)? {
        return Ok(used);
    }
    match store::requests::pending(change)? {
        Some(pending) => Ok(pending),
        None if run.status == RunStatus::Waiting => Err(WorkflowError::Conflict {
            what: format!("the answer to run {}", run.run_id),
            problem: "it has its answer already, or waits for a review".to_owned(),
        }),
        None => Err(run.rejected("it waits for no answer")),
    }
}
