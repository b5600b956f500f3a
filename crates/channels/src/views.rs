//! What readers see: each view is SELECTs on a snapshot. Nothing here writes.
//!
//! No address of a provider, no user, no chat, no digest of a text is in these types: only that there is a channel, what waits for a
//! person, and counts (channels reference, section 14).
#![warn(clippy::wildcard_enum_match_arm)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;

use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose, attempt_id};
use crate::store::read;

/// One channel, as its operator sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelView {
    /// The channel.
    pub channel: ChannelId,
    /// How often it changed.
    pub revision: u64,
    /// When it was made.
    pub created_at: UnixMillis,
    /// Whether a host has it now.
    pub hosted: bool,
    /// How many decisions are shown there and wait.
    pub open: u64,
    /// How many decisions that ended are still shown there with their buttons.
    pub unsettled: u64,
    /// How many deliveries and settlements wait for a person.
    pub ambiguous: u64,
    /// How many open decisions are not shown there, because every attempt of theirs was refused.
    pub refused: u64,
    /// Until when the provider wants nothing sent there, if it still does.
    pub quiet_until: Option<UnixMillis>,
}

/// A delivery or settlement that waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingView {
    /// Names it for `recover`.
    pub attempt_id: String,
    /// The channel.
    pub channel: ChannelId,
    /// What it was for.
    pub purpose: Purpose,
    /// The decision.
    pub decision_id: String,
    /// Why it waits: one of a closed set of words.
    pub error_code: Option<String>,
    /// Since when.
    pub since: UnixMillis,
    /// How many parts are known to be shown.
    pub parts: u64,
}

/// The channels that there are, by name.
///
/// # Errors
///
/// Those of the database.
pub fn list(snapshot: &Snapshot<'_>, now: UnixMillis) -> Result<Vec<ChannelView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT c.channel_id, r.revision, c.created_at,
             (SELECT l.owner_id FROM resources h JOIN leases l ON l.resource_key = h.resource_key
                 WHERE h.resource_type = 'channel_host' AND h.aggregate_key = c.channel_id AND l.expires_at > :now),
             (SELECT count(*) FROM channel_shown s JOIN human_decisions d ON d.decision_id = s.decision_id
                 WHERE s.channel_key = c.resource_key AND NOT EXISTS (
                     SELECT 1 FROM human_decision_resolutions w WHERE w.decision_key = d.resource_key)),
             (SELECT count(*) FROM channel_shown s JOIN human_decisions d ON d.decision_id = s.decision_id
                 JOIN human_decision_resolutions w ON w.decision_key = d.resource_key WHERE s.channel_key = c.resource_key),
             (SELECT count(*) FROM effects e WHERE e.source_key = c.resource_key AND e.status = 'ambiguous'),
             (SELECT count(DISTINCT m.decision_id) FROM effects e JOIN channel_messages m ON m.effect_key = e.resource_key
                 JOIN human_decisions d ON d.decision_id = m.decision_id
                 WHERE e.source_key = c.resource_key AND e.effect_type = 'channel.delivery' AND e.status = 'rejected'
                     AND e.next_attempt_at IS NULL AND NOT EXISTS (
                         SELECT 1 FROM human_decision_resolutions w WHERE w.decision_key = d.resource_key)),
             CASE WHEN c.quiet_until > :now THEN c.quiet_until END
         FROM channels c JOIN resources r ON r.resource_key = c.resource_key ORDER BY c.channel_id",
    )?;
    let rows = statement.query_map(named_params! { ":now": now }, |row| {
        let host: Option<String> = row.get(3)?;
        Ok(ChannelView {
            channel: row.get(0)?,
            revision: row.get::<_, i64>(1)?.unsigned_abs(),
            created_at: row.get(2)?,
            // The lease of a host that was killed outlives it.
            hosted: host.is_some_and(|host| !snapshot.is_dead_owner(&host)),
            open: row.get::<_, i64>(4)?.unsigned_abs(),
            unsettled: row.get::<_, i64>(5)?.unsigned_abs(),
            ambiguous: row.get::<_, i64>(6)?.unsigned_abs(),
            refused: row.get::<_, i64>(7)?.unsigned_abs(),
            quiet_until: row.get(8)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

macro_rules! waiting {
    ($condition:literal) => {
        concat!(
            "SELECT m.attempt_id, c.channel_id, m.purpose, m.decision_id, CAST(b.content AS TEXT), e.settled_at,
                 (SELECT count(*) FROM channel_message_parts p WHERE p.channel_key = m.channel_key AND p.decision_id = m.decision_id),
                 'effect-' || lower(hex(r.aggregate_key)), e.attempt_count
             FROM effects e JOIN channel_messages m ON m.effect_key = e.resource_key JOIN channels c ON c.resource_key = e.source_key
             JOIN resources r ON r.resource_key = e.resource_key LEFT JOIN blobs b ON b.blob_hash = e.error_hash
             WHERE m.status = 'pending' AND ",
            $condition,
            " ORDER BY m.message_key"
        )
    };
}

/// What may have been done, so that only a person can say, oldest first.
///
/// # Errors
///
/// Those of the database.
pub fn ambiguous(snapshot: &Snapshot<'_>) -> Result<Vec<WaitingView>, ChannelError> {
    waiting(snapshot, waiting!("e.status = 'ambiguous'"))
}

/// Deliveries of open decisions, and settlements of ended ones, that the provider refused as often as it may, oldest first. A person may
/// let them be tried again.
///
/// # Errors
///
/// Those of the database.
pub fn refused(snapshot: &Snapshot<'_>) -> Result<Vec<WaitingView>, ChannelError> {
    waiting(
        snapshot,
        waiting!(
            "e.status = 'rejected' AND e.next_attempt_at IS NULL AND ((e.effect_type = 'channel.delivery' AND EXISTS (
                 SELECT 1 FROM human_decisions d WHERE d.decision_id = m.decision_id AND NOT EXISTS (
                     SELECT 1 FROM human_decision_resolutions w WHERE w.decision_key = d.resource_key)))
                 OR e.effect_type = 'channel.settlement')"
        ),
    )
}

fn waiting(
    snapshot: &Snapshot<'_>,
    statement: &'static str,
) -> Result<Vec<WaitingView>, ChannelError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(statement)?;
    let rows = statement
        .query_map([], |row| {
            let purpose: String = row.get(2)?;
            let present = attempt_id(&row.get::<_, String>(7)?.into(), row.get(8)?);
            let view = WaitingView {
                attempt_id: row.get(0)?,
                channel: row.get(1)?,
                purpose: if purpose == "delivery" {
                    Purpose::Delivery
                } else {
                    Purpose::Settlement
                },
                decision_id: row.get(3)?,
                error_code: row.get(4)?,
                since: row.get(5)?,
                parts: row.get::<_, i64>(6)?.unsigned_abs(),
            };
            Ok((view.attempt_id == present).then_some(view))
        })
        .map_err(StateError::from)?;
    let mut found = Vec::new();
    for row in rows {
        found.extend(row.map_err(StateError::from)?);
    }
    Ok(found)
}

/// The next update that is read in a channel; none when there is no such channel.
///
/// # Errors
///
/// Those of the database.
pub fn cursor(snapshot: &Snapshot<'_>, channel: &ChannelId) -> Result<Option<u64>, StateError> {
    Ok(read::channel(&snapshot.sql(), channel)?.map(|row| row.cursor))
}
