//! What commands and views read alike: each one SELECT. Nothing here writes.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::command::Sql;
use holdpoint_state::effects::EffectState;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{EffectId, StateError};
use serde_json::Value;

use super::channels::TELEGRAM_CURSOR;
use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose};
use crate::model::Attempt;
use crate::protocol::MessageRef;

/// A channel with its revision and its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChannelRow {
    pub(crate) revision: u64,
    pub(crate) cursor: u64,
    /// Before this instant the provider wants nothing sent.
    pub(crate) quiet_until: Option<UnixMillis>,
}

pub(crate) fn channel(
    sql: &Sql<'_>,
    channel: &ChannelId,
) -> Result<Option<ChannelRow>, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT r.revision, coalesce((SELECT cursor_value FROM channel_cursors k
                 WHERE k.channel_key = c.resource_key AND k.cursor_key = :name), '0'), c.quiet_until
             FROM channels c JOIN resources r ON r.resource_key = c.resource_key WHERE c.channel_id = :channel",
        )?
        .query_row(named_params! { ":channel": channel, ":name": TELEGRAM_CURSOR }, |row| {
            Ok(ChannelRow {
                revision: row.get::<_, i64>(0)?.unsigned_abs(),
                cursor: row.get::<_, String>(1)?.parse().unwrap_or(0),
                quiet_until: row.get(2)?,
            })
        })
        .optional()?)
}

/// An effect of a channel, as the choice of the next order needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EffectRow {
    pub(crate) state: EffectState,
    pub(crate) attempts: u32,
    pub(crate) next_attempt_at: Option<UnixMillis>,
}

impl EffectRow {
    /// Whether another attempt begins by itself, at `now`.
    pub(crate) fn is_due(&self, now: UnixMillis) -> bool {
        match self.state {
            EffectState::Pending => self.next_attempt_at.is_none_or(|at| at <= now),
            EffectState::Rejected => self.next_attempt_at.is_some_and(|at| at <= now),
            EffectState::Applying
            | EffectState::Applied
            | EffectState::Ambiguous
            | EffectState::Cancelled => false,
        }
    }
}

pub(crate) fn effect(
    sql: &Sql<'_>,
    channel: &ChannelId,
    purpose: Purpose,
    effect: &EffectId,
) -> Result<Option<EffectRow>, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT e.status, e.attempt_count, e.next_attempt_at FROM channels c JOIN effects e ON e.source_key = c.resource_key
             WHERE c.channel_id = :channel AND e.idempotency_key = :key AND e.effect_type = :type",
        )?
        .query_row(
            named_params! { ":channel": channel, ":key": effect.as_str(), ":type": purpose.effect_type() },
            |row| {
                Ok(EffectRow { state: state(row, 0)?, attempts: row.get(1)?, next_attempt_at: row.get(2)? })
            },
        )
        .optional()?)
}

fn state(row: &Row<'_>, column: usize) -> Result<EffectState, SqlError> {
    let word: String = row.get(column)?;
    EffectState::from_text(&word).ok_or(SqlError::InvalidQuery)
}

/// An attempt with the effect that it is one of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) channel: ChannelId,
    pub(crate) effect_id: EffectId,
    pub(crate) effect_revision: u64,
    pub(crate) state: EffectState,
    /// The number of the effect's last attempt, which need not be this one.
    pub(crate) attempts: u32,
    pub(crate) attempt: Attempt,
}

macro_rules! attempts {
    ($rest:literal) => {
        concat!(
            "SELECT c.channel_id, 'effect-' || lower(hex(r.aggregate_key)), r.revision, e.status, e.attempt_count, m.attempt_id,
                 m.decision_id, m.purpose, m.created_at, b.content
             FROM channel_messages m JOIN channels c ON c.resource_key = m.channel_key
             JOIN effects e ON e.resource_key = m.effect_key JOIN resources r ON r.resource_key = m.effect_key
             JOIN blobs b ON b.blob_hash = m.content_hash ",
            $rest
        )
    };
}

/// The row and the record of an attempt that began.
struct Raw {
    found: InFlight,
    record: Vec<u8>,
    purpose: String,
}

fn raw(row: &Row<'_>) -> Result<Raw, SqlError> {
    Ok(Raw {
        found: InFlight {
            channel: row.get(0)?,
            effect_id: row.get::<_, String>(1)?.into(),
            effect_revision: row.get::<_, i64>(2)?.unsigned_abs(),
            state: state(row, 3)?,
            attempts: row.get(4)?,
            attempt: Attempt {
                attempt_id: row.get(5)?,
                decision_id: row.get(6)?,
                purpose: Purpose::Delivery,
                request_digest: String::new(),
                presentation_digest: String::new(),
                started_at: row.get(8)?,
            },
        },
        purpose: row.get(7)?,
        record: row.get(9)?,
    })
}

impl Raw {
    fn read(self) -> Result<InFlight, ChannelError> {
        let Self {
            mut found,
            record,
            purpose,
        } = self;
        let corrupt = || ChannelError::Corrupt {
            what: format!("attempt {}", found.attempt.attempt_id),
        };
        let record: Value = serde_json::from_slice(&record).map_err(|_error| corrupt())?;
        let purpose = Purpose::from_text(&purpose).ok_or_else(corrupt)?;
        let text = |name: &str| {
            record
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        found.attempt.purpose = purpose;
        found.attempt.request_digest = text("requestDigest");
        found.attempt.presentation_digest = text("presentationDigest");
        Ok(found)
    }
}

/// The attempt of that name, whatever became of it.
pub(crate) fn attempt(sql: &Sql<'_>, attempt_id: &str) -> Result<Option<InFlight>, ChannelError> {
    let found = sql
        .prepare_cached(attempts!(
            "WHERE m.attempt_id = :attempt AND m.status = 'pending'"
        ))?
        .query_row(named_params! { ":attempt": attempt_id }, raw)
        .optional()
        .map_err(StateError::from)?;
    found.map(Raw::read).transpose()
}

/// The attempts of a channel that are in flight.
pub(crate) fn in_flight(sql: &Sql<'_>, channel: &ChannelId) -> Result<Vec<InFlight>, ChannelError> {
    let mut statement = sql.prepare_cached(attempts!(
        "WHERE c.channel_id = :channel AND m.status = 'pending' AND e.status = 'applying' AND m.created_at =
             (SELECT max(o.created_at) FROM channel_messages o WHERE o.effect_key = m.effect_key AND o.status = 'pending')
         ORDER BY m.message_key"
    ))?;
    let rows = statement
        .query_map(named_params! { ":channel": channel }, raw)
        .map_err(StateError::from)?;
    let mut found = Vec::new();
    for row in rows {
        found.push(row.map_err(StateError::from)?.read()?);
    }
    // Two attempts of one effect may have begun in one millisecond: the name says which is the present one.
    found.retain(|one: &InFlight| one.is_present());
    Ok(found)
}

/// How many ended attempts of the effect of an attempt had to wait and were not refused: their error is one of these words.
pub(crate) fn waits(
    sql: &Sql<'_>,
    attempt_id: &str,
    [first, second]: [&str; 2],
) -> Result<u32, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT count(*) FROM channel_messages m JOIN effect_attempts a ON a.resource_key = m.effect_key
             JOIN blobs b ON b.blob_hash = a.error_hash
             WHERE m.attempt_id = :attempt AND m.status = 'pending' AND a.outcome = 'rejected'
                 AND (CAST(b.content AS TEXT) = :first OR CAST(b.content AS TEXT) = :second)",
        )?
        .query_row(
            named_params! { ":attempt": attempt_id, ":first": first, ":second": second },
            |row| row.get(0),
        )?)
}

/// Whether the provider refused this attempt, as its record says: provably not done, or only in part.
pub(crate) fn was_refused(sql: &Sql<'_>, attempt_id: &str) -> Result<bool, StateError> {
    Ok(sql
        .prepare_cached(
            "SELECT 1 FROM channel_messages WHERE attempt_id = :attempt AND status = 'failed'",
        )?
        .exists(named_params! { ":attempt": attempt_id })?)
}

impl InFlight {
    /// Whether this is the effect's present attempt.
    pub(crate) fn is_present(&self) -> bool {
        crate::identity::attempt_id(&self.effect_id, self.attempts) == self.attempt.attempt_id
    }
}

/// The confirmed parts of a decision in a channel, in the order in which they are shown.
pub(crate) fn parts(
    sql: &Sql<'_>,
    channel: &ChannelId,
    decision_id: &str,
) -> Result<Vec<MessageRef>, ChannelError> {
    let mut statement = sql.prepare_cached(
        "SELECT p.chat_id, p.provider_message_id, p.recipient_index, p.part_index, p.content_digest
         FROM channel_message_parts p JOIN channels c ON c.resource_key = p.channel_key
         WHERE c.channel_id = :channel AND p.decision_id = :decision ORDER BY p.chat_id, p.part_index",
    )?;
    let rows = statement
        .query_map(
            named_params! { ":channel": channel, ":decision": decision_id },
            |row| {
                Ok(MessageRef {
                    chat_id: row.get(0)?,
                    message_id: row.get::<_, i64>(1)?.unsigned_abs(),
                    recipient_index: row.get(2)?,
                    part_index: row.get(3)?,
                    content_digest: row.get(4)?,
                })
            },
        )
        .map_err(StateError::from)?;
    Ok(rows.collect::<Result<_, _>>().map_err(StateError::from)?)
}

/// The decisions that are shown in a channel and not settled, oldest first, and whether each has ended.
pub(crate) fn shown(sql: &Sql<'_>, channel: &ChannelId) -> Result<Vec<(String, bool)>, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT s.decision_id, EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)
         FROM channel_shown s JOIN channels c ON c.resource_key = s.channel_key JOIN human_decisions d ON d.decision_id = s.decision_id
         WHERE c.channel_id = :channel ORDER BY d.created_at, d.decision_id",
    )?;
    let rows = statement.query_map(named_params! { ":channel": channel }, |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
