//! The sessions of a run: windows on what was recorded, and the state that the events of a window begin with.

use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Reads, ResourceKey, StateError};
use holdpoint_workflows::views::pages::{self, EventRow, Stored};
use serde_json::Value;

use super::rows::position;
use super::window::window;
use crate::documents::{
    Budget, Checkpoint, Entry, Event, INLINE_BYTES, Integrity, Session, Window,
};
use crate::render::Renderer;
use crate::replay::{CHECKPOINT_EVERY, SessionEventView, fold};

/// The state through the event with this number, from the nearest checkpoint before it. None before the first event.
pub(crate) fn checkpoint_before(
    reads: &impl Reads,
    run: ResourceKey,
    through: u64,
) -> Result<Option<Checkpoint>, StateError> {
    if through == 0 {
        return Ok(None);
    }
    let from = through / CHECKPOINT_EVERY * CHECKPOINT_EVERY;
    let state = load_checkpoint(reads, run, from)?;
    fold_between(reads, run, state, through).map(Some)
}

/// The stored state at an event that has a checkpoint; the state before all events at 0.
pub(crate) fn load_checkpoint(
    reads: &impl Reads,
    run: ResourceKey,
    through: u64,
) -> Result<Checkpoint, StateError> {
    let stored: Option<Vec<u8>> = reads
        .reading()
        .prepare_cached(
            "SELECT state FROM viewer_session_checkpoints WHERE run_key = :run AND event_seq = :seq",
        )?
        .query_row(
            named_params! { ":run": run, ":seq": position(through) },
            |row| row.get(0),
        )
        .optional()?;
    match stored {
        None => Ok(Checkpoint {
            through_seq: through,
            ..Checkpoint::default()
        }),
        Some(bytes) => serde_json::from_slice(&bytes).map_err(|error| StateError::Corrupt {
            what: format!("the checkpoint of a conversation at event {through}"),
            problem: error.to_string(),
        }),
    }
}

/// The state after the events up to a number.
pub(crate) fn fold_between(
    reads: &impl Reads,
    run: ResourceKey,
    state: Checkpoint,
    through: u64,
) -> Result<Checkpoint, StateError> {
    let rows = pages::events(reads, run, (state.through_seq, through), INLINE_BYTES)?;
    Ok(rows.iter().fold(state, apply))
}

fn apply(state: Checkpoint, row: &EventRow) -> Checkpoint {
    let payload = row.payload.as_ref().and_then(Stored::json);
    fold(
        state,
        &SessionEventView {
            seq: row.seq,
            event_type: &row.event_type,
            message_id: row.message_id.as_deref(),
            tool_call_id: row.tool_call_id.as_deref(),
            payload: payload.as_ref().unwrap_or(&Value::Null),
        },
    )
}

pub(super) fn entries(
    reads: &impl Reads,
    run: ResourceKey,
    (total, cursor): (u64, Option<u64>),
    renderer: &mut Renderer<'_>,
) -> Result<Window<Entry>, StateError> {
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::entries(reads, run, (from, until))?;
        Ok(rows.iter().map(|row| renderer.entry(row)).collect())
    })
}

pub(super) fn events(
    reads: &impl Reads,
    run: ResourceKey,
    (total, cursor): (u64, Option<u64>),
    renderer: &mut Renderer<'_>,
) -> Result<Window<Event>, StateError> {
    window(total, cursor, Budget::WINDOW, |from, until| {
        let rows = pages::events(reads, run, (from, until), INLINE_BYTES)?;
        Ok(rows.iter().map(|row| renderer.event(row)).collect())
    })
}

/// The session of a run, with the ends of its histories; `head` has what the summary says of it.
pub(super) fn session(
    reads: &impl Reads,
    run: ResourceKey,
    (entry_total, event_total): (u64, u64),
    renderer: &mut Renderer<'_>,
) -> Result<Session, StateError> {
    let entry_page = entries(reads, run, (entry_total, None), renderer)?;
    let event_page = events(reads, run, (event_total, None), renderer)?;
    let replay_checkpoint = checkpoint_before(reads, run, event_page.start)?;
    Ok(Session {
        binding: None,
        entry_page,
        event_page,
        capture: None,
        integrity: Some(Integrity {
            malformed: false,
            torn_tail: false,
        }),
        replay_checkpoint,
    })
}
