//! `human_decisions` and `human_decision_deadlines`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, Payload, StateError};
use holdpoint_workflows::RunId;

use super::integer;
use crate::digest::DocumentDigest;
use crate::error::DecisionError;
use crate::model::{DecisionId, Request};
use crate::views::stored::{self, Stored};

/// The blobs of a request, ready to be stored.
pub(crate) struct Documents {
    pub(crate) subject: Payload,
    pub(crate) presentation: Payload,
    pub(crate) choices: Payload,
    pub(crate) default_response: Option<Payload>,
    pub(crate) request: Payload,
}

impl Documents {
    pub(crate) fn of(request: &Request) -> Result<Self, StateError> {
        Ok(Self {
            subject: Payload::json(request.subject())?,
            presentation: Payload::json(request.presentation())?,
            choices: Payload::json(request.choices())?,
            default_response: request.default_response().map(Payload::json).transpose()?,
            request: Payload::json(&request.document())?,
        })
    }
}

/// The keys of run and attempt, if the attempt is one of the run.
pub(crate) fn keys_of_attempt(
    change: &mut Change<'_>,
    run: &str,
    attempt: &str,
) -> Result<Option<(i64, i64)>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT a.run_key, a.attempt_key FROM node_attempts a JOIN runs r ON r.resource_key = a.run_key
             WHERE a.attempt_id = :attempt AND r.run_id = :run",
        )?
        .query_row(named_params! { ":attempt": attempt, ":run": run }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?)
}

/// The decision that an attempt asked for.
pub(crate) fn of_attempt(
    change: &mut Change<'_>,
    attempt: i64,
) -> Result<Option<(DecisionId, DocumentDigest)>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT decision_id, request_digest FROM human_decisions WHERE attempt_key = :attempt",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?)
}

/// Writes the row of the decision that this change makes.
pub(crate) fn insert(
    change: &mut Change<'_>,
    request: &Request,
    documents: &Documents,
    (run, attempt): (i64, i64),
) -> Result<(), StateError> {
    let subject = change.put_blob(&documents.subject)?;
    let presentation = change.put_blob(&documents.presentation)?;
    let choices = change.put_blob(&documents.choices)?;
    let default: Option<Digest> = match &documents.default_response {
        Some(default) => Some(change.put_blob(default)?),
        None => None,
    };
    let whole = change.put_blob(&documents.request)?;
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO human_decisions (resource_key, decision_id, run_key, attempt_key, audience, title, subject_hash,
                 presentation_hash, choices_hash, request_digest, presentation_revision, deadline_at, default_response_hash,
                 request_hash, created_at)
             VALUES (:key, :decision, :run, :attempt, :audience, :title, :subject, :presentation, :choices, :digest, :revision,
                 :deadline, :default, :request, :created_at)",
        )?
        .execute(named_params! {
            ":key": key, ":decision": request.decision_id(), ":run": run, ":attempt": attempt,
            ":audience": request.audience(), ":title": request.title(), ":subject": subject, ":presentation": presentation,
            ":choices": choices, ":digest": request.request_digest(), ":revision": integer(request.revision()),
            ":deadline": request.expires_at(), ":default": default, ":request": whole,
            ":created_at": request.created_at(),
        })?;
    expect_one(written, "human_decisions", request.decision_id())?;
    let Some(deadline) = request.expires_at() else {
        return Ok(());
    };
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO human_decision_deadlines (deadline_at, decision_id, decision_key)
             VALUES (:deadline, :decision, :key)",
        )?
        .execute(named_params! { ":deadline": deadline, ":decision": request.decision_id(), ":key": key })?;
    expect_one(written, "human_decision_deadlines", request.decision_id())
}

/// The decision of this change, with its integrity checked again.
pub(crate) fn load(change: &mut Change<'_>) -> Result<Option<Stored>, DecisionError> {
    let id = change.resource().key().to_owned();
    stored::load(&change.sql(), &id)
}

/// The deadline of an open decision is no matter of the sweep any more.
pub(crate) fn forget_deadline(
    change: &mut Change<'_>,
    request: &Request,
) -> Result<(), StateError> {
    let Some(deadline) = request.expires_at() else {
        return Ok(());
    };
    let written = change
        .sql()
        .prepare_cached(
            "DELETE FROM human_decision_deadlines WHERE deadline_at = :deadline AND decision_id = :decision",
        )?
        .execute(named_params! { ":deadline": deadline, ":decision": request.decision_id() })?;
    expect_one(written, "human_decision_deadlines", request.decision_id())
}

/// What the row of the decision of this change says, whatever its documents say.
pub(crate) struct DecisionRow {
    pub(crate) request_digest: DocumentDigest,
    pub(crate) run: RunId,
}

/// The row of the decision of this change, for the end of one whose documents can't be read.
pub(crate) fn row(change: &mut Change<'_>) -> Result<DecisionRow, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT d.request_digest, r.run_id FROM human_decisions d JOIN runs r ON r.resource_key = d.run_key
             WHERE d.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(DecisionRow {
                request_digest: row.get(0)?,
                run: row.get(1)?,
            })
        })?)
}

/// As [`forget_deadline`], for a decision whose documents can't be read: whether it has a deadline is not asked of them.
pub(crate) fn forget_deadline_of_row(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached("DELETE FROM human_decision_deadlines WHERE decision_key = :key")?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

/// The open decisions of the run of this change, oldest first.
pub(crate) fn open_of_run(change: &mut Change<'_>) -> Result<Vec<DecisionId>, StateError> {
    let key = change.resource_key()?;
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT d.decision_id FROM human_decisions d
         WHERE d.run_key = :key
             AND NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)
         ORDER BY d.created_at, d.resource_key",
    )?;
    let rows = statement.query_map(named_params! { ":key": key }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}
