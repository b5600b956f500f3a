//! `checkpoint.answer`: one accepted answer for each request, and a receipt that every repeat gets again.

use holdpoint_state::id::random_id;
use holdpoint_state::{Actor, Change, Command, Database, Outcome, Payload, Receipt};
use serde_json::{Value, json};

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    RequestKind, RequestStatus, RunStatus, SubmissionOutcome, resource, submission_id,
};
use crate::operations;
use crate::store;
use crate::store::requests::RequestRow;

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

fn check_key(key: &str) -> Result<(), WorkflowError> {
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
    let request = find(change, &run, answer)?;
    if answer
        .session
        .as_ref()
        .is_some_and(|session| *session != request.session)
    {
        return Err(WorkflowError::NoRequest {
            run: run.run_id.to_string(),
        });
    }
    if !kinds.contains(&request.kind) {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
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
    if let Some(earlier) = store::requests::submission(change, request.key, &answer.key)? {
        if earlier.payload == payload.digest() && earlier.outcome == SubmissionOutcome::Accepted {
            return Ok(Outcome::Adopted(Answered {
                request_id: request.request_id,
                submission_id: earlier.submission_id,
                request_revision: earlier.request_revision,
            }));
        }
        return Err(conflict(format!(
            "the key was used for another answer, which is {}",
            earlier.outcome
        )));
    }
    // What a domain settles is no word of a person, and waits with the run until it is resumed.
    if run.paused && request.kind != RequestKind::External {
        return Err(conflict("the run is paused; resume it first".to_owned()));
    }
    if request.status != RequestStatus::Pending {
        return Err(conflict(format!(
            "the request is {} already",
            request.status
        )));
    }
    if let Some(expected) = answer
        .revision
        .filter(|expected| *expected != request.revision)
    {
        return Err(conflict(format!(
            "the request is at revision {}, not {expected}",
            request.revision
        )));
    }
    if store::requests::is_validating(change, request.key)? {
        return Err(conflict("another answer is being looked at".to_owned()));
    }

    let submission = submission_id(&request.request_id, &answer.key);
    let answered = Answered {
        request_id: request.request_id.clone(),
        submission_id: submission.clone(),
        request_revision: request.revision,
    };
    let receipt = change.put_blob(&Payload::json(&answered)?)?;
    let stored = change.put_blob(payload)?;
    store::requests::insert_submission(
        change,
        &submission,
        (request.key, request.revision),
        &answer.key,
        stored,
        (SubmissionOutcome::Accepted, receipt),
    )?;
    store::requests::settle(change, request.key, &submission)?;
    change.transition(run.status.as_str(), run.status.as_str())?;
    change.record(Payload::json(&json!({
        "requestId": request.request_id,
        "submissionId": submission,
        "kind": request.kind,
        "payloadStored": true,
    }))?);
    Ok(Outcome::Accepted(answered))
}

/// The request that an answer is for: the named one, the one in which the key was used, or the pending one.
fn find(
    change: &mut Change<'_>,
    run: &store::runs::RunRow,
    answer: &Answer,
) -> Result<RequestRow, WorkflowError> {
    if let Some(id) = &answer.request {
        return store::requests::named(change, id)?.ok_or_else(|| WorkflowError::NoRequest {
            run: run.run_id.to_string(),
        });
    }
    if let Some(used) = store::requests::with_submission(change, &answer.key)? {
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
