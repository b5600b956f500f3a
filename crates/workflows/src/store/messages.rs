//! `workflow_messages`: text that must appear in an origin session. Creating is idempotent by id; only evidence makes it sent.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Digest, Payload, StateError};

use crate::error::WorkflowError;
use crate::id::AttemptId;
use crate::model::{MessageKind, MessageStatus, message_id};

/// A message as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct MessageRow {
    pub(crate) key: i64,
    pub(crate) session: String,
    pub(crate) kind: MessageKind,
    pub(crate) source: String,
    pub(crate) content: Digest,
    pub(crate) status: MessageStatus,
    pub(crate) entry: Option<String>,
    /// It was cancelled once: also when it is sent now, it is no new prompt.
    pub(crate) was_cancelled: bool,
}

fn from_row(row: &Row<'_>) -> Result<MessageRow, SqlError> {
    Ok(MessageRow {
        key: row.get(0)?,
        session: row.get(1)?,
        kind: row.get(2)?,
        source: row.get(3)?,
        content: row.get(4)?,
        status: row.get(5)?,
        entry: row.get(6)?,
        was_cancelled: row.get(7)?,
    })
}

/// A message of the run of this change.
pub(crate) fn named(change: &mut Change<'_>, id: &str) -> Result<Option<MessageRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT message_key, target_session_id, kind, source_id, content_hash, status, pi_session_entry_id,
                 cancelled_at IS NOT NULL
             FROM workflow_messages WHERE workflow_message_id = :id AND run_key = :key",
        )?
        .query_row(named_params! { ":id": id, ":key": key }, from_row)
        .optional()?)
}

/// What a new message says. The same kind, source and key are the same message.
pub(crate) struct NewMessage<'a> {
    pub(crate) kind: MessageKind,
    pub(crate) source: &'a str,
    pub(crate) key: &'a str,
    pub(crate) content: &'a Payload,
}

/// Makes a message of the run of this change for its origin session, after all that the session was given before. A repeat meets
/// its earlier self. Returns the id.
///
/// # Errors
///
/// [`WorkflowError::Conflict`] when there is another message of that id.
pub(crate) fn create(
    change: &mut Change<'_>,
    new: &NewMessage<'_>,
) -> Result<String, WorkflowError> {
    let id = message_id(new.kind.as_str(), new.source, new.key);
    if let Some(earlier) = named(change, &id)? {
        let same = earlier.kind == new.kind
            && earlier.source == new.source
            && earlier.content == new.content.digest();
        return if same {
            Ok(id)
        } else {
            Err(WorkflowError::Conflict {
                what: format!("message {id}"),
                problem: "it exists with other content".to_owned(),
            })
        };
    }
    insert(change, &id, new)?;
    Ok(id)
}

fn insert(change: &mut Change<'_>, id: &str, new: &NewMessage<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let content = change.put_blob(new.content)?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_messages (workflow_message_id, run_key, target_session_id, kind, source_id, content_hash,
                 order_number, status, created_at, updated_at)
             SELECT :id, :key, b.origin_session_id, :kind, :source, :content,
                 (SELECT coalesce(max(m.order_number), 0) + 1 FROM workflow_messages m
                     WHERE m.target_session_id = b.origin_session_id), 'pending', :now, :now
             FROM run_bindings b WHERE b.run_key = :key",
        )?
        .execute(named_params! {
            ":id": id, ":key": key, ":kind": new.kind, ":source": new.source, ":content": content, ":now": now,
        })?;
    expect_one(written, "workflow_messages", id)
}

/// Makes the notification of an attempt of the run of this change. A repeat meets its earlier self.
pub(crate) fn notify(
    change: &mut Change<'_>,
    attempt: &AttemptId,
    content: &Payload,
) -> Result<(), WorkflowError> {
    let source = format!("notification-{}-{attempt}-0", change.resource().key());
    create(
        change,
        &NewMessage {
            kind: MessageKind::Notification,
            source: &source,
            key: "0",
            content,
        },
    )?;
    Ok(())
}

/// The session's branch has the message, also one that was cancelled: what is there is there.
pub(crate) fn mark_sent(
    change: &mut Change<'_>,
    message: i64,
    entry: &str,
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE workflow_messages SET status = 'sent', pi_session_entry_id = :entry, updated_at = :now
             WHERE message_key = :message AND (status = 'pending' OR status = 'cancelled')",
        )?
        .execute(named_params! { ":message": message, ":entry": entry, ":now": now })?;
    expect_one(written, "workflow_messages", &message)
}

/// Cancels what a request or decision has still to show.
pub(crate) fn cancel_of_source(change: &mut Change<'_>, source: &str) -> Result<(), StateError> {
    let now = change.now();
    change
        .sql()
        .prepare_cached(
            "UPDATE workflow_messages SET status = 'cancelled', cancelled_at = :now, updated_at = :now
             WHERE source_id = :source AND (kind = 'step' OR kind = 'decision') AND status = 'pending'",
        )?
        .execute(named_params! { ":source": source, ":now": now })?;
    Ok(())
}

/// Cancels what the run of this change has still to ask and, when it did not complete, its follow-ups. What a node told stays.
pub(crate) fn cancel_of_run(
    change: &mut Change<'_>,
    with_follow_ups: bool,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    change
        .sql()
        .prepare_cached(
            "UPDATE workflow_messages SET status = 'cancelled', cancelled_at = :now, updated_at = :now
             WHERE run_key = :key AND status = 'pending'
                 AND (kind = 'step' OR kind = 'decision' OR (kind = 'followUp' AND :with_follow_ups))",
        )?
        .execute(named_params! { ":key": key, ":now": now, ":with_follow_ups": with_follow_ups })?;
    Ok(())
}

/// What became of the messages of one request or decision.
#[derive(Debug, Clone, Default)]
pub(crate) struct OfSource {
    pub(crate) count: usize,
    pub(crate) has_pending: bool,
    /// The ids of those that are sent.
    pub(crate) sent: Vec<String>,
}

/// The messages of a request or decision.
pub(crate) fn of_source(
    change: &mut Change<'_>,
    source: &str,
    kind: MessageKind,
) -> Result<OfSource, StateError> {
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT workflow_message_id, status FROM workflow_messages WHERE source_id = :source AND kind = :kind
         ORDER BY order_number",
    )?;
    let rows = statement.query_map(named_params! { ":source": source, ":kind": kind }, |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, MessageStatus>(1)?))
    })?;
    let mut found = OfSource::default();
    for row in rows {
        let (id, status) = row?;
        found.count += 1;
        match status {
            MessageStatus::Pending => found.has_pending = true,
            MessageStatus::Sent => found.sent.push(id),
            MessageStatus::Cancelled => {}
        }
    }
    Ok(found)
}

/// The run of this change is over: its session has to be told, if it has one. Returns whether it has.
pub(crate) fn owe_terminal(change: &mut Change<'_>) -> Result<bool, StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_bindings SET owes_terminal_message = 1 WHERE run_key = :key AND execution_mode = 'interactive'",
        )?
        .execute(named_params! { ":key": key })?;
    Ok(written == 1)
}

/// The message about the end of the run of this change is made. Returns false when it was made before.
pub(crate) fn settle_terminal(change: &mut Change<'_>) -> Result<bool, StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_bindings SET owes_terminal_message = 0 WHERE run_key = :key AND owes_terminal_message = 1",
        )?
        .execute(named_params! { ":key": key })?;
    Ok(written == 1)
}

/// Takes the end of the run of this change off the view of a session.
pub(crate) fn clear_terminal(change: &mut Change<'_>, session: &str) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO session_terminal_views (target_session_id, cleared_run_key, cleared_at)
             VALUES (:session, :key, :now)
             ON CONFLICT (target_session_id) DO UPDATE SET cleared_run_key = :key, cleared_at = :now",
        )?
        .execute(named_params! { ":session": session, ":key": key, ":now": now })?;
    expect_one(written, "session_terminal_views", session)
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
            "UPDATE workflow_messages SET status = 'cancelled', cancelled_at = :now, updated_at = :now
             WHERE source_id = :source AND kind = 'followUp' AND status = 'pending'",
        )?
        .execute(named_params! { ":source": follow_up, ":now": now })?;
    Ok(())
}
