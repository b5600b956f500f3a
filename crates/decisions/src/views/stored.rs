//! A stored decision, read whole and checked: every read of a request makes its digests again.

use holdpoint_state::StateError;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::command::Sql;
use holdpoint_state::json;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_workflows::RunId;
use serde::Serialize;
use serde_json::Value;

use crate::digest::DocumentDigest;
use crate::error::DecisionError;
use crate::model::{
    AcceptedRecord, CancelReason, CancellationRecord, Provenance, Request, Resolution,
};

/// A decision with what decides about it.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the run"
)]
pub(crate) struct Stored {
    pub(crate) request: Request,
    pub(crate) run: RunId,
    pub(crate) session: String,
    /// The person who asked for the run, if one did. Private.
    pub(crate) requester: Option<String>,
    pub(crate) is_paused: bool,
    /// Whether the attempt used the answer.
    pub(crate) is_consumed: bool,
    /// Whether a runner is taking the run up.
    pub(crate) is_taken_up: bool,
    /// Whether the run is over.
    pub(crate) is_over: bool,
    pub(crate) winner: Option<Winner>,
}

/// The one resolution of a decision.
pub(crate) struct Winner {
    pub(crate) digest: DocumentDigest,
    pub(crate) resolved_at: UnixMillis,
    pub(crate) resolution: Resolution,
    /// Why it was cancelled, in words for people.
    pub(crate) reason: Option<String>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the run"
)]
struct Columns {
    request: Option<Vec<u8>>,
    subject: Option<Vec<u8>>,
    presentation: Option<Vec<u8>>,
    choices: Option<Vec<u8>>,
    default_response: Option<Vec<u8>>,
    has_default: bool,
    digest: DocumentDigest,
    deadline_at: Option<UnixMillis>,
    created_at: UnixMillis,
    run: RunId,
    session: Option<String>,
    is_paused: bool,
    is_consumed: bool,
    is_taken_up: bool,
    is_over: bool,
    winner: Option<(Provenance, DocumentDigest, UnixMillis)>,
    record: Option<Vec<u8>>,
    reason: Option<String>,
    requester: Option<String>,
}

fn columns(row: &Row<'_>) -> Result<Columns, SqlError> {
    let winner: Option<Provenance> = row.get(15)?;
    Ok(Columns {
        request: row.get(0)?,
        subject: row.get(1)?,
        presentation: row.get(2)?,
        choices: row.get(3)?,
        default_response: row.get(4)?,
        has_default: row.get(5)?,
        digest: row.get(6)?,
        deadline_at: row.get(7)?,
        created_at: row.get(8)?,
        run: row.get(9)?,
        session: row.get(10)?,
        is_paused: row.get(11)?,
        is_consumed: row.get(12)?,
        is_taken_up: row.get(13)?,
        is_over: row.get(14)?,
        winner: match winner {
            Some(provenance) => Some((provenance, row.get(16)?, row.get(17)?)),
            None => None,
        },
        record: row.get(18)?,
        reason: row.get(19)?,
        requester: row.get(20)?,
    })
}

/// Reads a decision and checks it.
pub(crate) fn load(sql: &Sql<'_>, decision: &str) -> Result<Option<Stored>, DecisionError> {
    let read = || -> Result<Option<Columns>, StateError> {
        Ok(sql
            .prepare_cached(
                "SELECT request.content, subject.content, presentation.content, choices.content, automatic.content,
                     d.default_response_hash IS NOT NULL, d.request_digest, d.deadline_at, d.created_at, u.run_id,
                     q.target_session_id, u.paused, q.consumed_at IS NOT NULL, k.status = 'starting' OR k.status = 'running',
                     u.finished_at IS NOT NULL, r.provenance, r.resolution_digest, r.resolved_at, record.content, r.reason, asked.actor_id
                 FROM human_decisions d
                 JOIN runs u ON u.resource_key = d.run_key
                 JOIN run_queue k ON k.run_key = d.run_key
                 LEFT JOIN interactive_requests q ON q.request_id = d.decision_id
                 LEFT JOIN events asked ON asked.resource_key = d.run_key AND asked.resource_revision = 1
                     AND (asked.actor_type = 'human' OR asked.actor_type = 'control' OR asked.actor_type = 'session')
                 LEFT JOIN blobs request ON request.blob_hash = d.request_hash
                 LEFT JOIN blobs subject ON subject.blob_hash = d.subject_hash
                 LEFT JOIN blobs presentation ON presentation.blob_hash = d.presentation_hash
                 LEFT JOIN blobs choices ON choices.blob_hash = d.choices_hash
                 LEFT JOIN blobs automatic ON automatic.blob_hash = d.default_response_hash
                 LEFT JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
                 LEFT JOIN blobs record ON record.blob_hash = r.response_hash
                 WHERE d.decision_id = :decision",
            )?
            .query_row(named_params! { ":decision": decision }, columns)
            .optional()?)
    };
    read()?
        .map(|columns| checked(decision, columns))
        .transpose()
}

/// Holds the columns against the request that was stored whole, and the request against its own digests.
fn checked(decision: &str, columns: Columns) -> Result<Stored, DecisionError> {
    let corrupt = |what: &'static str| DecisionError::Corrupt {
        decision: decision.to_owned(),
        what,
    };
    let document: Value = columns
        .request
        .as_deref()
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .ok_or_else(|| corrupt("request"))?;
    let request =
        Request::read(&document).map_err(|problem| DecisionError::stored(decision, problem))?;
    let is = |stored: &Option<Vec<u8>>, value: &dyn Fn() -> Option<Vec<u8>>| {
        stored.is_some() && *stored == value()
    };
    if !is(&columns.subject, &|| canonical(request.subject())) {
        return Err(corrupt("subject"));
    }
    if !is(&columns.presentation, &|| canonical(request.presentation())) {
        return Err(corrupt("presentation"));
    }
    if !is(&columns.choices, &|| canonical(request.choices())) {
        return Err(corrupt("choices"));
    }
    let default = request.default_response().and_then(canonical);
    if columns.default_response != default || columns.has_default != default.is_some() {
        return Err(corrupt("automatic answer"));
    }
    let is_the_row = request.decision_id().as_str() == decision
        && request.request_digest() == columns.digest
        && request.expires_at() == columns.deadline_at
        && request.created_at() == columns.created_at
        && request.run_id() == columns.run.as_str();
    if !is_the_row {
        return Err(corrupt("request"));
    }
    let winner = match columns.winner {
        None => None,
        Some((provenance, digest, resolved_at)) => {
            let record = columns.record.as_deref();
            let resolution = resolution(&request, provenance, digest, resolved_at, record);
            Some(Winner {
                digest,
                resolved_at,
                resolution: resolution.ok_or_else(|| corrupt("resolution"))?,
                reason: columns.reason,
            })
        }
    };
    Ok(Stored {
        run: columns.run,
        session: columns.session.ok_or_else(|| missing(decision))?,
        requester: columns.requester,
        is_paused: columns.is_paused,
        is_consumed: columns.is_consumed,
        is_taken_up: columns.is_taken_up,
        is_over: columns.is_over,
        winner,
        request,
    })
}

/// What everybody may see of a stored resolution, if it is what was stored.
fn resolution(
    request: &Request,
    provenance: Provenance,
    digest: DocumentDigest,
    at: UnixMillis,
    record: Option<&[u8]>,
) -> Option<Resolution> {
    use crate::model::record::{accepted_digest, cancelled_digest};
    let reason = match provenance {
        Provenance::Human | Provenance::TimeoutPolicy => {
            let record: Value = serde_json::from_slice(record?).ok()?;
            let record = AcceptedRecord::read(&record, request)?;
            let is_it =
                record.provenance() == provenance && accepted_digest(&record).ok()? == digest;
            return is_it.then(|| Resolution::Accepted {
                receipt: Box::new(record.receipt()),
            });
        }
        Provenance::ExplicitCancel => CancelReason::Cancelled,
        Provenance::ExpiredNoDefault => CancelReason::Expired,
    };
    let cancellation = CancellationRecord::new(
        request.decision_id().clone(),
        request.request_digest(),
        reason,
        at,
    );
    (cancelled_digest(&cancellation).ok()? == digest)
        .then_some(Resolution::Cancelled { cancellation })
}

fn canonical<T: Serialize + ?Sized>(value: &T) -> Option<Vec<u8>> {
    json::to_canonical(value).ok()
}

/// The decision has a resource and not what belongs to it.
pub(crate) fn missing(decision: &str) -> DecisionError {
    DecisionError::Corrupt {
        decision: decision.to_owned(),
        what: "rows",
    }
}
