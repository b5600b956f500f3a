//! `human_decision_submissions`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Digest, StateError};

use crate::digest::DocumentDigest;
use crate::model::{
    ChannelId, DecisionId, RejectCode, Source, SubmissionResult, SubmissionSource, submission_id,
};

/// The row of a candidate.
pub(crate) struct NewSubmission<'a> {
    pub(crate) decision: &'a DecisionId,
    pub(crate) source: SubmissionSource,
    pub(crate) request_digest: DocumentDigest,
    /// Where a person's answer came from.
    pub(crate) from: Option<&'a Source>,
    /// Who acted when no person answered.
    pub(crate) actor: Option<&'a str>,
    pub(crate) key: &'a str,
    pub(crate) response: Option<Digest>,
    pub(crate) result: SubmissionResult,
    pub(crate) reject_code: Option<RejectCode>,
    pub(crate) winner: Option<DocumentDigest>,
}

/// An earlier candidate with the same key.
pub(crate) struct EarlierRow {
    /// Whether it was for the decision of this change.
    pub(crate) is_for_this: bool,
    pub(crate) source: SubmissionSource,
    pub(crate) request_digest: DocumentDigest,
    pub(crate) actor_id: Option<String>,
    pub(crate) event_id: Option<String>,
    pub(crate) response: Option<Digest>,
    pub(crate) result: SubmissionResult,
    pub(crate) reject_code: Option<RejectCode>,
}

fn earlier(row: &Row<'_>) -> Result<EarlierRow, SqlError> {
    Ok(EarlierRow {
        is_for_this: row.get(0)?,
        source: row.get(1)?,
        request_digest: row.get(2)?,
        actor_id: row.get(3)?,
        event_id: row.get(4)?,
        response: row.get(5)?,
        result: row.get(6)?,
        reject_code: row.get(7)?,
    })
}

/// The candidate of a channel with this key, whatever decision it was for.
pub(crate) fn of_channel(
    change: &mut Change<'_>,
    channel: &ChannelId,
    key: &str,
) -> Result<Option<EarlierRow>, StateError> {
    let decision = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT decision_key = :decision, source, request_digest, actor_id, external_event_id, response_hash, result, reject_code
             FROM human_decision_submissions
             WHERE channel IS NOT NULL AND channel = :channel AND idempotency_key = :key",
        )?
        .query_row(named_params! { ":decision": decision, ":channel": channel, ":key": key }, earlier)
        .optional()?)
}

/// The candidate of the policy or of control with this key.
pub(crate) fn of_decision(
    change: &mut Change<'_>,
    source: SubmissionSource,
    key: &str,
) -> Result<Option<EarlierRow>, StateError> {
    let decision = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT 1, source, request_digest, actor_id, external_event_id, response_hash, result, reject_code
             FROM human_decision_submissions WHERE decision_key = :decision AND source = :source AND idempotency_key = :key AND channel IS NULL",
        )?
        .query_row(named_params! { ":decision": decision, ":source": source, ":key": key }, earlier)
        .optional()?)
}

/// Writes what became of a candidate, for good.
pub(crate) fn insert(change: &mut Change<'_>, new: &NewSubmission<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let channel = new.from.map(|from| &from.channel);
    let id = submission_id(
        new.decision,
        new.source,
        channel.map(ChannelId::as_str),
        new.key,
    );
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO human_decision_submissions (submission_id, decision_key, source, request_digest, channel, actor_id,
                 external_event_id, idempotency_key, response_hash, result, reject_code, winner_digest, submitted_at)
             VALUES (:id, :decision, :source, :digest, :channel, :actor, :event, :key, :response, :result, :code, :winner, :now)",
        )?
        .execute(named_params! {
            ":id": id, ":decision": key, ":source": new.source, ":digest": new.request_digest, ":channel": channel,
            ":actor": new.from.map(|from| from.actor_id.as_str()).or(new.actor),
            ":event": new.from.map(|from| from.event_id.as_str()), ":key": new.key, ":response": new.response,
            ":result": new.result, ":code": new.reject_code, ":winner": new.winner, ":now": now,
        })?;
    expect_one(written, "human_decision_submissions", &id)
}
