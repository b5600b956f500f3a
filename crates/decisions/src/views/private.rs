//! What only the private operator of a store may see: every candidate, with where it came from.

use std::fmt;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Snapshot, StateError};

use crate::digest::DocumentDigest;
use crate::model::{DecisionId, RejectCode, SubmissionResult, SubmissionSource};

/// One candidate and what became of it. Private: no model, run, viewer or channel sees it.
///
/// Its `Debug` shows neither actor nor key.
#[derive(Clone, PartialEq, Eq)]
pub struct SubmissionView {
    /// Its id.
    pub submission_id: String,
    /// Which road it came.
    pub source: SubmissionSource,
    /// What the sender saw.
    pub request_digest: DocumentDigest,
    /// The channel.
    pub channel: Option<String>,
    /// Who sent it.
    pub actor_id: Option<String>,
    /// What the channel calls the event.
    pub external_event_id: Option<String>,
    /// What tells it from others.
    pub idempotency_key: String,
    /// What became of it.
    pub result: SubmissionResult,
    /// Why it was refused.
    pub reject_code: Option<RejectCode>,
    /// The resolution that it lost against.
    pub winner_digest: Option<DocumentDigest>,
    /// When.
    pub submitted_at: UnixMillis,
}

impl fmt::Debug for SubmissionView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SubmissionView")
            .field("submission_id", &self.submission_id)
            .field("source", &self.source)
            .field("result", &self.result)
            .field("reject_code", &self.reject_code)
            .finish_non_exhaustive()
    }
}

/// The candidates of a decision, in the order in which they came.
///
/// # Errors
///
/// Those of the database.
pub fn submissions(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
) -> Result<Vec<SubmissionView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT s.submission_id, s.source, s.request_digest, s.channel, s.actor_id, s.external_event_id, s.idempotency_key,
             s.result, s.reject_code, s.winner_digest, s.submitted_at
         FROM human_decision_submissions s JOIN human_decisions d ON d.resource_key = s.decision_key
         WHERE d.decision_id = :decision ORDER BY s.submission_key",
    )?;
    let rows = statement.query_map(named_params! { ":decision": decision }, |row| {
        Ok(SubmissionView {
            submission_id: row.get(0)?,
            source: row.get(1)?,
            request_digest: row.get(2)?,
            channel: row.get(3)?,
            actor_id: row.get(4)?,
            external_event_id: row.get(5)?,
            idempotency_key: row.get(6)?,
            result: row.get(7)?,
            reject_code: row.get(8)?,
            winner_digest: row.get(9)?,
            submitted_at: row.get(10)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
