//! The parts that a provider confirmed.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, StateError};

use super::read;
use crate::error::ChannelError;
use crate::identity::ChannelId;
use crate::protocol::MessageRef;

/// Writes a confirmed part of this change's channel, or adopts the same one. Returns whether it says what the stored one says.
pub(crate) fn insert(
    change: &mut Change<'_>,
    decision_id: &str,
    part: &MessageRef,
) -> Result<bool, StateError> {
    let key = change.resource_key()?;
    let now = change.now();
    let sql = change.sql();
    let stored: Option<(i64, String)> = sql
        .prepare_cached(
            "SELECT provider_message_id, content_digest FROM channel_message_parts
             WHERE channel_key = :key AND decision_id = :decision AND chat_id = :chat AND part_index = :part",
        )?
        .query_row(
            named_params! { ":key": key, ":decision": decision_id, ":chat": part.chat_id, ":part": part.part_index },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let message_id = i64::try_from(part.message_id).unwrap_or(i64::MAX);
    if let Some((message, digest)) = stored {
        return Ok(message == message_id && digest == part.content_digest);
    }
    sql.prepare_cached(
        "INSERT INTO channel_message_parts
             (channel_key, decision_id, chat_id, part_index, recipient_index, provider_message_id, content_digest, confirmed_at)
         VALUES (:key, :decision, :chat, :part, :recipient, :message, :digest, :now)",
    )?
    .execute(named_params! {
        ":key": key, ":decision": decision_id, ":chat": part.chat_id, ":part": part.part_index,
        ":recipient": part.recipient_index, ":message": message_id, ":digest": part.content_digest, ":now": now,
    })?;
    Ok(true)
}

/// All confirmed parts of a decision in a channel.
pub(crate) fn of_decision(
    change: &Change<'_>,
    channel: &ChannelId,
    decision_id: &str,
) -> Result<Vec<MessageRef>, ChannelError> {
    read::parts(&change.sql(), channel, decision_id)
}
