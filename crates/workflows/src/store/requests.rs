//! `interactive_requests` and `interactive_submissions`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Digest, StateError};

use crate::id::RunId;
use crate::model::{RequestKind, RequestStatus, SubmissionOutcome};

/// A request as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct RequestRow {
    pub(crate) key: i64,
    pub(crate) request_id: String,
    pub(crate) session: String,
    pub(crate) kind: RequestKind,
    pub(crate) contract: Digest,
    pub(crate) revision: u64,
    pub(crate) status: RequestStatus,
}

fn from_row(row: &Row<'_>) -> Result<RequestRow, SqlError> {
    Ok(RequestRow {
        key: row.get(0)?,
        request_id: row.get(1)?,
        session: row.get(2)?,
        kind: row.get(3)?,
        contract: row.get(4)?,
        revision: row.get::<_, i64>(5)?.unsigned_abs(),
        status: row.get(6)?,
    })
}

/// The pending request of the run of this change.
pub(crate) fn pending(change: &mut Change<'_>) -> Result<Option<RequestRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT request_key, request_id, target_session_id, kind, contract_hash, revision, status
             FROM interactive_requests WHERE run_key = :key AND status = 'pending'",
        )?
        .query_row(named_params! { ":key": key }, from_row)
        .optional()?)
}

/// A request of the run of this change.
pub(crate) fn named(change: &mut Change<'_>, id: &str) -> Result<Option<RequestRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT request_key, request_id, target_session_id, kind, contract_hash, revision, status
             FROM interactive_requests WHERE request_id = :id AND run_key = :key",
        )?
        .query_row(named_params! { ":key": key, ":id": id }, from_row)
        .optional()?)
}

/// The run that has a request of this id: ids that domains name are unique in the whole store.
pub(crate) fn run_of(change: &mut Change<'_>, id: &str) -> Result<Option<RunId>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.run_id FROM interactive_requests q JOIN runs r ON r.resource_key = q.run_key
             WHERE q.request_id = :id",
        )?
        .query_row(named_params! { ":id": id }, |row| row.get(0))
        .optional()?)
}

/// The request of the run of this change in which an idempotency key was used, newest first.
pub(crate) fn with_submission(
    change: &mut Change<'_>,
    idempotency_key: &str,
) -> Result<Option<RequestRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT q.request_key, q.request_id, q.target_session_id, q.kind, q.contract_hash, q.revision, q.status
             FROM interactive_requests q JOIN interactive_submissions s ON s.request_key = q.request_key
             WHERE q.run_key = :key AND s.idempotency_key = :idempotency_key
             ORDER BY q.request_key DESC LIMIT 1",
        )?
        .query_row(
            named_params! { ":key": key, ":idempotency_key": idempotency_key },
            from_row,
        )
        .optional()?)
}

/// An accepted answer that its attempt has not used yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) request: i64,
    pub(crate) kind: RequestKind,
    pub(crate) payload: Digest,
    pub(crate) receipt: Option<Digest>,
}

/// The request of an attempt, with the payload of its accepted submission when it is settled and not yet used.
pub(crate) fn accepted_payload(
    change: &mut Change<'_>,
    attempt: i64,
) -> Result<Option<Accepted>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT q.request_key, q.kind, s.payload_hash, s.receipt_hash
             FROM interactive_requests q
             JOIN interactive_submissions s ON s.submission_id = q.accepted_submission_id
             WHERE q.attempt_key = :attempt AND q.status = 'settled' AND q.consumed_at IS NULL AND s.outcome = 'accepted'",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| {
            Ok(Accepted {
                request: row.get(0)?,
                kind: row.get(1)?,
                payload: row.get(2)?,
                receipt: row.get(3)?,
            })
        })
        .optional()?)
}

/// Whether the domain of an attempt's request took it back: nothing will answer it, and the run is about to end.
pub(crate) fn is_withdrawn(change: &mut Change<'_>, attempt: i64) -> Result<bool, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM interactive_requests WHERE attempt_key = :attempt AND status = 'cancelled')",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| row.get(0))?)
}

/// Makes the request of an attempt.
pub(crate) fn insert(
    change: &mut Change<'_>,
    id: &str,
    attempt: i64,
    session: &str,
    kind: RequestKind,
    contract: Digest,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO interactive_requests (request_id, run_key, attempt_key, target_session_id, kind, contract_hash,
                 status, created_at)
             VALUES (:id, :key, :attempt, :session, :kind, :contract, 'pending', :now)",
        )?
        .execute(named_params! {
            ":id": id, ":key": key, ":attempt": attempt, ":session": session, ":kind": kind, ":contract": contract,
            ":now": now,
        })?;
    expect_one(written, "interactive_requests", id)
}

/// Settles a pending request with its one accepted submission.
pub(crate) fn settle(
    change: &mut Change<'_>,
    request: i64,
    submission: &str,
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE interactive_requests SET status = 'settled', accepted_submission_id = :submission, settled_at = :now,
                 revision = revision + 1
             WHERE request_key = :request AND status = 'pending'",
        )?
        .execute(named_params! { ":request": request, ":submission": submission, ":now": now })?;
    expect_one(written, "interactive_requests", &request)
}

/// Notes that the finish of the attempt used the accepted answer.
pub(crate) fn consume(change: &mut Change<'_>, request: i64) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE interactive_requests SET consumed_at = :now
             WHERE request_key = :request AND status = 'settled' AND consumed_at IS NULL",
        )?
        .execute(named_params! { ":request": request, ":now": now })?;
    expect_one(written, "interactive_requests", &request)
}

/// Cancels what the run still asks, also an answer that was accepted and never used; its submission is kept.
pub(crate) fn cancel_open(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "UPDATE interactive_requests SET status = 'cancelled', accepted_submission_id = NULL, settled_at = NULL,
                 revision = revision + 1
             WHERE run_key = :key AND (status = 'pending' OR (status = 'settled' AND consumed_at IS NULL))",
        )?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

/// The domain of a pending request takes it back.
pub(crate) fn withdraw(change: &mut Change<'_>, request: i64) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE interactive_requests SET status = 'cancelled', revision = revision + 1
             WHERE request_key = :request AND status = 'pending'",
        )?
        .execute(named_params! { ":request": request })?;
    expect_one(written, "interactive_requests", &request)
}

/// Rejects candidates that nobody will look at any more.
pub(crate) fn reject_validating(
    change: &mut Change<'_>,
    receipt: Option<Digest>,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "UPDATE interactive_submissions SET outcome = 'rejected', receipt_hash = coalesce(:receipt, receipt_hash)
             WHERE outcome = 'validating'
                 AND request_key IN (SELECT request_key FROM interactive_requests WHERE run_key = :key)",
        )?
        .execute(named_params! { ":key": key, ":receipt": receipt })?;
    Ok(())
}

/// A submission as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct SubmissionRow {
    pub(crate) submission_id: String,
    pub(crate) request_revision: u64,
    pub(crate) payload: Digest,
    pub(crate) outcome: SubmissionOutcome,
    pub(crate) receipt: Option<Digest>,
}

/// The submission with an idempotency key.
pub(crate) fn submission(
    change: &mut Change<'_>,
    request: i64,
    idempotency_key: &str,
) -> Result<Option<SubmissionRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT submission_id, request_revision, payload_hash, outcome, receipt_hash FROM interactive_submissions
             WHERE request_key = :request AND idempotency_key = :idempotency_key",
        )?
        .query_row(
            named_params! { ":request": request, ":idempotency_key": idempotency_key },
            |row| {
                Ok(SubmissionRow {
                    submission_id: row.get(0)?,
                    request_revision: row.get::<_, i64>(1)?.unsigned_abs(),
                    payload: row.get(2)?,
                    outcome: row.get(3)?,
                    receipt: row.get(4)?,
                })
            },
        )
        .optional()?)
}

/// The candidate for this request that a runner has to look at.
pub(crate) fn validating(
    change: &mut Change<'_>,
    request: i64,
) -> Result<Option<String>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT submission_id FROM interactive_submissions WHERE request_key = :request AND outcome = 'validating'",
        )?
        .query_row(named_params! { ":request": request }, |row| row.get(0))
        .optional()?)
}

/// A candidate is the answer.
pub(crate) fn accept_validating(
    change: &mut Change<'_>,
    submission: &str,
    receipt: Digest,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE interactive_submissions SET outcome = 'accepted', receipt_hash = :receipt
             WHERE submission_id = :submission AND outcome = 'validating'",
        )?
        .execute(named_params! { ":submission": submission, ":receipt": receipt })?;
    expect_one(written, "interactive_submissions", submission)
}

/// The next revision of a pending request: it is asked again.
pub(crate) fn bump(change: &mut Change<'_>, request: i64) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE interactive_requests SET revision = revision + 1 WHERE request_key = :request AND status = 'pending'",
        )?
        .execute(named_params! { ":request": request })?;
    expect_one(written, "interactive_requests", &request)
}

/// Stores a submission.
pub(crate) fn insert_submission(
    change: &mut Change<'_>,
    id: &str,
    request: (i64, u64),
    idempotency_key: &str,
    payload: Digest,
    (outcome, receipt): (SubmissionOutcome, Option<Digest>),
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO interactive_submissions (submission_id, request_key, idempotency_key, request_revision, payload_hash,
                 outcome, receipt_hash, submitted_at)
             VALUES (:id, :request, :idempotency_key, :revision, :payload, :outcome, :receipt, :now)",
        )?
        .execute(named_params! {
            ":id": id, ":request": request.0, ":revision": super::runs::integer(request.1),
            ":idempotency_key": idempotency_key, ":payload": payload, ":outcome": outcome, ":receipt": receipt,
            ":now": now,
        })?;
    expect_one(written, "interactive_submissions", id)
}
