//! The records of attempts: append only.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, EffectId, Payload, StateError};

use super::read::{self, InFlight};
use crate::error::ChannelError;
use crate::identity::{self, ChannelId, Purpose};
use crate::model::{Attempt, Ending};

/// Writes the record that an attempt begins.
pub(crate) fn insert_intent(
    change: &mut Change<'_>,
    channel: &ChannelId,
    effect: &EffectId,
    attempt: &Attempt,
) -> Result<(), ChannelError> {
    let id = identity::message_id(&attempt.record_basis(channel, "intent"))?;
    let content = Payload::json(&attempt.record(channel, None))?;
    let (effect_type, key) = (attempt.purpose.effect_type(), effect.as_str());
    let content = change.put_blob(&content)?;
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO channel_messages
                 (message_id, channel_key, decision_id, purpose, effect_key, attempt_id, content_hash, status, created_at, updated_at)
             SELECT :id, c.resource_key, :decision, :purpose, e.resource_key, :attempt, :content, 'pending', :now, :now
             FROM channels c JOIN effects e ON e.source_key = c.resource_key
             WHERE c.channel_id = :channel AND e.idempotency_key = :key AND e.effect_type = :type",
        )?
        .execute(named_params! {
            ":id": id, ":decision": attempt.decision_id, ":purpose": attempt.purpose.as_str(), ":attempt": attempt.attempt_id,
            ":content": content, ":now": now, ":channel": channel, ":key": key, ":type": effect_type,
        })
        .map_err(StateError::from)?;
    Ok(expect_one(written, "channel_messages", &id)?)
}

/// Writes the record that an attempt has ended.
pub(crate) fn insert_ending(
    change: &mut Change<'_>,
    found: &InFlight,
    ending: &Ending,
    id: Option<String>,
) -> Result<(), ChannelError> {
    let id = match id {
        Some(id) => id,
        None => identity::message_id(&found.attempt.record_basis(&found.channel, "complete"))?,
    };
    let content = Payload::json(&found.attempt.record(&found.channel, Some(ending)))?;
    let content = change.put_blob(&content)?;
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO channel_messages
                 (message_id, channel_key, decision_id, purpose, effect_key, attempt_id, content_hash, status, created_at, updated_at)
             SELECT :id, m.channel_key, m.decision_id, m.purpose, m.effect_key, m.attempt_id, :content, :status, m.created_at, :now
             FROM channel_messages m WHERE m.attempt_id = :attempt AND m.status = 'pending'",
        )?
        .execute(named_params! {
            ":id": id, ":content": content, ":status": ending.status.as_str(), ":attempt": found.attempt.attempt_id, ":now": now,
        })
        .map_err(StateError::from)?;
    Ok(expect_one(written, "channel_messages", &id)?)
}

/// The attempt of that name, whatever became of it.
pub(crate) fn by_attempt(
    change: &Change<'_>,
    attempt_id: &str,
) -> Result<Option<InFlight>, ChannelError> {
    read::attempt(&change.sql(), attempt_id)
}

/// How many ended attempts of the effect of an attempt have one of these errors.
pub(crate) fn waits(
    change: &Change<'_>,
    found: &InFlight,
    words: [&str; 2],
) -> Result<u32, ChannelError> {
    Ok(read::waits(
        &change.sql(),
        &found.attempt.attempt_id,
        words,
    )?)
}

/// The attempts of this change's channel that are in flight.
pub(crate) fn in_flight(
    change: &Change<'_>,
    channel: &ChannelId,
) -> Result<Vec<InFlight>, ChannelError> {
    read::in_flight(&change.sql(), channel)
}

/// Whether a decision was ever confirmed to be shown in this channel.
pub(crate) fn was_shown(
    change: &Change<'_>,
    channel: &ChannelId,
    decision_id: &str,
) -> Result<bool, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT 1 FROM channel_messages m JOIN channels c ON c.resource_key = m.channel_key
             WHERE m.decision_id = :decision AND m.purpose = 'delivery' AND m.status = 'confirmed' AND c.channel_id = :channel",
        )?
        .exists(named_params! { ":decision": decision_id, ":channel": channel })?)
}

/// Whether the next attempt is still wanted: a request is open and in time, or an ended decision is shown.
pub(crate) fn is_wanted(
    change: &Change<'_>,
    channel: &ChannelId,
    decision_id: &str,
    purpose: Purpose,
    now: UnixMillis,
) -> Result<bool, StateError> {
    let sql = change.sql();
    match purpose {
        Purpose::Delivery => Ok(sql
            .prepare_cached(
                "SELECT 1 FROM human_decisions d WHERE d.decision_id = :decision AND (d.deadline_at IS NULL OR d.deadline_at > :now)
                     AND NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)",
            )?
            .exists(named_params! { ":decision": decision_id, ":now": now })?),
        Purpose::Settlement => Ok(sql
            .prepare_cached(
                "SELECT 1 FROM channel_shown s JOIN channels c ON c.resource_key = s.channel_key
                 JOIN human_decisions d ON d.decision_id = s.decision_id
                 JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
                 WHERE s.decision_id = :decision AND c.channel_id = :channel",
            )?
            .exists(named_params! { ":decision": decision_id, ":channel": channel })?),
    }
}
