//! What is queued for the origin session of a run.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{SqlError, named_params};
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;

use super::text_column;
use crate::id::RunId;
use crate::model::FollowUpStatus;

/// What people are shown of a follow-up: being sent is a fact of its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FollowUpDisplay {
    /// It waits for the run to complete, or for its turn.
    Queued,
    /// The session shows it.
    Sent,
    /// Somebody took it back.
    Removed,
    /// The run did not complete.
    Cancelled,
}

impl FollowUpDisplay {
    /// The word that is shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sent => "sent",
            Self::Removed => "removed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A follow-up. Who queued it stays private.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUpView {
    /// Its id.
    pub follow_up_id: String,
    /// Its place among those of its run, from 1.
    pub order_number: i64,
    /// What became of it.
    pub status: FollowUpDisplay,
    /// What the session is asked.
    pub prompt: String,
    /// Why it was removed or cancelled.
    pub reason: Option<String>,
    /// The session's entry that shows it.
    pub session_entry_id: Option<String>,
    /// When it was queued.
    pub created_at: UnixMillis,
}

/// The follow-ups of a run, in their order.
///
/// # Errors
///
/// Those of the database.
pub fn follow_ups(snapshot: &Snapshot<'_>, run: &RunId) -> Result<Vec<FollowUpView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT f.follow_up_id, f.order_number, f.status, p.content, w.content, f.created_at,
             (SELECT m.pi_session_entry_id FROM workflow_messages m
                 WHERE m.source_id = f.follow_up_id AND m.kind = 'followUp' AND m.status = 'sent')
         FROM runs r JOIN workflow_follow_ups f ON f.run_key = r.resource_key
         LEFT JOIN blobs p ON p.blob_hash = f.prompt_hash
         LEFT JOIN blobs w ON w.blob_hash = f.reason_hash
         WHERE r.run_id = :run ORDER BY f.order_number",
    )?;
    let rows = statement.query_map(
        named_params! { ":run": run },
        |row| -> Result<_, SqlError> {
            let session_entry_id: Option<String> = row.get(6)?;
            let status = match (row.get(2)?, &session_entry_id) {
                // Evidence wins: what is on the branch is there.
                (_, Some(_)) => FollowUpDisplay::Sent,
                (FollowUpStatus::Queued, None) => FollowUpDisplay::Queued,
                (FollowUpStatus::Removed, None) => FollowUpDisplay::Removed,
                (FollowUpStatus::Cancelled, None) => FollowUpDisplay::Cancelled,
            };
            Ok(FollowUpView {
                follow_up_id: row.get(0)?,
                order_number: row.get(1)?,
                status,
                prompt: text_column(row, 3)?.unwrap_or_default(),
                reason: text_column(row, 4)?,
                session_entry_id,
                created_at: row.get(5)?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}
