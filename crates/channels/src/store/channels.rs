//! The rows of channels, their cursors, and what they show.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, StateError};

use crate::identity::{ChannelId, TELEGRAM};

/// The one cursor that there is.
pub(crate) const TELEGRAM_CURSOR: &str = "telegram_update";

/// Writes the row of the channel that this change makes.
pub(crate) fn insert(
    change: &mut Change<'_>,
    channel: &ChannelId,
    profile: &str,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO channels (resource_key, channel_id, adapter_type, profile_key, created_at)
             VALUES (:key, :channel, :adapter, :profile, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":channel": channel, ":adapter": TELEGRAM, ":profile": profile, ":now": change.now(),
        })?;
    expect_one(written, "channels", channel)
}

/// Moves the cursor of this change's channel on. It never goes back.
pub(crate) fn advance_cursor(change: &mut Change<'_>, cursor: u64) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "INSERT INTO channel_cursors (channel_key, cursor_key, cursor_value, updated_at)
             VALUES (:key, :name, :value, :now)
             ON CONFLICT (channel_key, cursor_key) DO UPDATE SET cursor_value = excluded.cursor_value, updated_at = excluded.updated_at
             WHERE CAST(channel_cursors.cursor_value AS INTEGER) < CAST(excluded.cursor_value AS INTEGER)",
        )?
        .execute(named_params! {
            ":key": key, ":name": TELEGRAM_CURSOR, ":value": cursor.to_string(), ":now": change.now(),
        })?;
    Ok(())
}

/// Notes until when the provider wants nothing sent in this change's channel. It never comes nearer.
pub(crate) fn keep_quiet_until(
    change: &mut Change<'_>,
    instant: UnixMillis,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "UPDATE channels SET quiet_until = :at WHERE resource_key = :key AND (quiet_until IS NULL OR quiet_until < :at)",
        )?
        .execute(named_params! { ":key": key, ":at": instant })?;
    Ok(())
}

/// Says that a decision is shown in a channel. It may be shown already.
pub(crate) fn insert_shown(
    change: &mut Change<'_>,
    channel: &ChannelId,
    decision_id: &str,
) -> Result<(), StateError> {
    let now = change.now();
    change
        .sql()
        .prepare_cached(
            "INSERT INTO channel_shown (channel_key, decision_id, shown_at)
             SELECT resource_key, :decision, :now FROM channels WHERE channel_id = :channel
             ON CONFLICT (channel_key, decision_id) DO NOTHING",
        )?
        .execute(named_params! { ":channel": channel, ":decision": decision_id, ":now": now })?;
    Ok(())
}

/// Says that nothing is left to be done about a decision in a channel.
pub(crate) fn delete_shown(
    change: &mut Change<'_>,
    channel: &ChannelId,
    decision_id: &str,
) -> Result<(), StateError> {
    change
        .sql()
        .prepare_cached(
            "DELETE FROM channel_shown WHERE decision_id = :decision
                 AND channel_key = (SELECT resource_key FROM channels WHERE channel_id = :channel)",
        )?
        .execute(named_params! { ":channel": channel, ":decision": decision_id })?;
    Ok(())
}

/// Whether a cursor is ahead of that of this change's channel.
pub(crate) fn is_ahead(change: &mut Change<'_>, cursor: u64) -> Result<bool, StateError> {
    let key = change.resource_key()?;
    let stored: Option<String> = change
        .sql()
        .prepare_cached("SELECT cursor_value FROM channel_cursors WHERE channel_key = :key AND cursor_key = :name")?
        .query_row(named_params! { ":key": key, ":name": TELEGRAM_CURSOR }, |row| row.get(0))
        .optional()?;
    Ok(stored
        .and_then(|stored| stored.parse::<u64>().ok())
        .unwrap_or(0)
        < cursor)
}
