//! `workflow_turns`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, ResourceKey, StateError};

use crate::model::TurnEnd;

/// A turn as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct TurnRow {
    pub(crate) turn_id: String,
    pub(crate) message_id: String,
    pub(crate) run: ResourceKey,
    pub(crate) session: String,
    /// How it ended; none while it goes on.
    pub(crate) end: Option<TurnEnd>,
    pub(crate) entry: Option<String>,
    /// The request or follow-up that its message is about.
    pub(crate) source: String,
}

fn from_row(row: &Row<'_>) -> Result<TurnRow, SqlError> {
    Ok(TurnRow {
        turn_id: row.get(0)?,
        message_id: row.get(1)?,
        run: row.get(2)?,
        session: row.get(3)?,
        end: row.get(4)?,
        entry: row.get(5)?,
        source: row.get(6)?,
    })
}

/// Any turn. Reading it gives no right to change it.
pub(crate) fn named(change: &mut Change<'_>, id: &str) -> Result<Option<TurnRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT t.workflow_turn_id, m.workflow_message_id, t.run_key, t.target_session_id, t.stop_reason,
                 t.response_session_entry_id, m.source_id
             FROM workflow_turns t JOIN workflow_messages m ON m.message_key = t.message_key
             WHERE t.workflow_turn_id = :id",
        )?
        .query_row(named_params! { ":id": id }, from_row)
        .optional()?)
}

/// The turn that goes on in a session, whatever run it is of.
pub(crate) fn open(change: &mut Change<'_>, session: &str) -> Result<Option<TurnRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT t.workflow_turn_id, m.workflow_message_id, t.run_key, t.target_session_id, t.stop_reason,
                 t.response_session_entry_id, m.source_id
             FROM workflow_turns t JOIN workflow_messages m ON m.message_key = t.message_key
             WHERE t.target_session_id = :session AND t.state = 'started'",
        )?
        .query_row(named_params! { ":session": session }, from_row)
        .optional()?)
}

/// Begins a turn of the run of this change.
pub(crate) fn insert(
    change: &mut Change<'_>,
    id: &str,
    message: i64,
    session: &str,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_turns (workflow_turn_id, message_key, run_key, target_session_id, state, started_at)
             VALUES (:id, :message, :key, :session, 'started', :now)",
        )?
        .execute(
            named_params! { ":id": id, ":message": message, ":key": key, ":session": session, ":now": now },
        )?;
    expect_one(written, "workflow_turns", id)
}

/// Ends a turn.
pub(crate) fn end(
    change: &mut Change<'_>,
    id: &str,
    end: TurnEnd,
    entry: Option<&str>,
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE workflow_turns SET state = 'ended', stop_reason = :end, response_session_entry_id = :entry, ended_at = :now
             WHERE workflow_turn_id = :id AND state = 'started'",
        )?
        .execute(named_params! { ":id": id, ":end": end, ":entry": entry, ":now": now })?;
    expect_one(written, "workflow_turns", id)
}

/// Ends what goes on of the run of this change, since nobody will hear its end.
pub(crate) fn lose_of_run(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    change
        .sql()
        .prepare_cached(
            "UPDATE workflow_turns SET state = 'ended', stop_reason = 'lost', ended_at = :now
             WHERE run_key = :key AND state = 'started'",
        )?
        .execute(named_params! { ":key": key, ":now": now })?;
    Ok(())
}
