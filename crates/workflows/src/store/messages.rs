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
