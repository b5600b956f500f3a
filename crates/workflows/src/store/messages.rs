//! `workflow_messages`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, Payload, StateError};

use crate::id::AttemptId;
use crate::model::message_id;

/// Makes the notification of an attempt of the run of this change. A repeat meets its earlier self.
pub(crate) fn notify(
    change: &mut Change<'_>,
    attempt: &AttemptId,
    content: &Payload,
) -> Result<(), StateError> {
    let source = format!("notification-{}-{attempt}-0", change.resource().key());
    let id = message_id("notification", &source, "0");
    let (key, now) = (change.resource_key()?, change.now());
    let content = change.put_blob(content)?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_messages (workflow_message_id, run_key, target_session_id, kind, source_id, content_hash,
                 order_number, status, created_at, updated_at)
             VALUES (:id, :key, (SELECT origin_session_id FROM run_bindings WHERE run_key = :key), 'notification', :source, :content,
                 (SELECT coalesce(max(m.order_number), 0) + 1 FROM workflow_messages m WHERE m.target_session_id =
                     (SELECT origin_session_id FROM run_bindings WHERE run_key = :key)), 'pending', :now, :now)",
        )?
        .execute(named_params! { ":id": id, ":key": key, ":source": source, ":content": content, ":now": now })?;
    expect_one(written, "workflow_messages", &id)
}

/// Makes the message of the follow-up of this change, behind all that its session was given before.
pub(crate) fn queue_follow_up(
    change: &mut Change<'_>,
    run: holdpoint_state::ResourceKey,
    session: &str,
    content: &Payload,
) -> Result<(), StateError> {
    let source = change.resource().key().to_owned();
    let id = message_id("followUp", &source, "0");
    let now = change.now();
    let content = change.put_blob(content)?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_messages (workflow_message_id, run_key, target_session_id, kind, source_id, content_hash,
                 order_number, status, created_at, updated_at)
             VALUES (:id, :run, :session, 'followUp', :source, :content,
                 (SELECT coalesce(max(order_number), 0) + 1 FROM workflow_messages WHERE target_session_id = :session),
                 'pending', :now, :now)",
        )?
        .execute(named_params! {
            ":id": id, ":run": run, ":session": session, ":source": source, ":content": content, ":now": now,
        })?;
    expect_one(written, "workflow_messages", &id)
}

/// Whether a follow-up is on its session's branch.
pub(crate) fn is_sent(change: &mut Change<'_>, follow_up: &str) -> Result<bool, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM workflow_messages
                 WHERE source_id = :source AND kind = 'followUp' AND status = 'sent')",
        )?
        .query_row(named_params! { ":source": follow_up }, |row| row.get(0))?)
}

/// Cancels the message of a follow-up that is not to be shown any more.
pub(crate) fn cancel_follow_up(change: &mut Change<'_>, follow_up: &str) -> Result<(), StateError> {
    let now = change.now();
    change
        .sql()
        .prepare_cached(
            "UPDATE workflow_messages SET status = 'cancelled', updated_at = :now
             WHERE source_id = :source AND kind = 'followUp' AND status = 'pending'",
        )?
        .execute(named_params! { ":source": follow_up, ":now": now })?;
    Ok(())
}
