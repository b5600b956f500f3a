//! `human_decision_resolutions`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, Digest, StateError};

use crate::digest::DocumentDigest;
use crate::model::{Provenance, Source};

/// The row of a resolution.
pub(crate) struct NewResolution<'a> {
    pub(crate) provenance: Provenance,
    /// The blob of the accepted record.
    pub(crate) response: Option<Digest>,
    pub(crate) reason: Option<&'a str>,
    /// Where a person's answer came from, with its key.
    pub(crate) human: Option<(&'a Source, &'a str)>,
    /// Who acted when no person answered.
    pub(crate) actor: Option<&'a str>,
    pub(crate) digest: DocumentDigest,
}

/// Writes the one winner of a decision.
///
/// The primary key is the arbiter between processes. `model::judge` saw no winner in this same transaction, so that a second row is a
/// broken file and no lost race.
pub(crate) fn insert(change: &mut Change<'_>, won: &NewResolution<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let source = won.human.map(|(source, _)| source);
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO human_decision_resolutions (decision_key, outcome, provenance, response_hash, reason, channel, actor_id,
                 external_event_id, idempotency_key, resolution_digest, resolved_at)
             VALUES (:key, :outcome, :provenance, :response, :reason, :channel, :actor, :event, :idempotency_key, :digest, :now)
             ON CONFLICT (decision_key) DO NOTHING",
        )?
        .execute(named_params! {
            ":key": key, ":outcome": won.provenance.outcome(), ":provenance": won.provenance, ":response": won.response,
            ":reason": won.reason, ":channel": source.map(|source| &source.channel),
            ":actor": source.map(|source| source.actor_id.as_str()).or(won.actor),
            ":event": source.map(|source| source.event_id.as_str()),
            ":idempotency_key": won.human.map(|(_, key)| key), ":digest": won.digest, ":now": now,
        })?;
    expect_one(
        written,
        "human_decision_resolutions",
        change.resource().key(),
    )
}
