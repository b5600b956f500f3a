//! Writes of the viewer domain: the only room with INSERT, UPDATE or DELETE, on its own tables.
//!
//! Not here: what is written (`projector`), reading (`views`), the clock, other I/O.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::schema::{Deletion, Retention};
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, ResourceKey, StateError};

use crate::documents::Delta;
use crate::render::Held;
use crate::views::ViewerRun;

/// A position as SQLite has it.
fn integer(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// Writes what is kept of a run: its first row, or the present one.
pub(crate) fn put_run(
    change: &mut Change<'_>,
    run: ResourceKey,
    kept: &ViewerRun,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO viewer_runs (run_key, presentation_revision, retained_from_revision, summary,
                 step_start, step_total, step_bytes, trace_start, trace_total, trace_bytes,
                 entry_start, entry_total, entry_bytes, event_start, event_total, event_bytes,
                 visit_seq, update_attempt, update_total, first_segment, open_segments, failed_segment, updated_at)
             VALUES (:run, :revision, :retained, :summary, :step_start, :step_total, :step_bytes,
                 :trace_start, :trace_total, :trace_bytes, :entry_start, :entry_total, :entry_bytes,
                 :event_start, :event_total, :event_bytes, :visit_seq, :update_attempt, :update_total,
                 :first_segment, :open_segments, :failed_segment, :updated_at)
             ON CONFLICT (run_key) DO UPDATE SET presentation_revision = excluded.presentation_revision,
                 retained_from_revision = excluded.retained_from_revision, summary = excluded.summary,
                 step_start = excluded.step_start, step_total = excluded.step_total, step_bytes = excluded.step_bytes,
                 trace_start = excluded.trace_start, trace_total = excluded.trace_total, trace_bytes = excluded.trace_bytes,
                 entry_start = excluded.entry_start, entry_total = excluded.entry_total, entry_bytes = excluded.entry_bytes,
                 event_start = excluded.event_start, event_total = excluded.event_total, event_bytes = excluded.event_bytes,
                 visit_seq = excluded.visit_seq, update_attempt = excluded.update_attempt, update_total = excluded.update_total,
                 first_segment = excluded.first_segment, open_segments = excluded.open_segments,
                 failed_segment = excluded.failed_segment, updated_at = excluded.updated_at
             WHERE presentation_revision <= excluded.presentation_revision",
        )?
        .execute(named_params! {
            ":run": run, ":revision": integer(kept.revision), ":retained": integer(kept.retained_from),
            ":summary": kept.summary,
            ":step_start": integer(kept.steps.start), ":step_total": integer(kept.steps.total),
            ":step_bytes": integer(kept.steps.bytes),
            ":trace_start": integer(kept.trace.start), ":trace_total": integer(kept.trace.total),
            ":trace_bytes": integer(kept.trace.bytes),
            ":entry_start": integer(kept.entries.start), ":entry_total": integer(kept.entries.total),
            ":entry_bytes": integer(kept.entries.bytes),
            ":event_start": integer(kept.events.start), ":event_total": integer(kept.events.total),
            ":event_bytes": integer(kept.events.bytes),
            ":visit_seq": integer(kept.visit_seq), ":update_attempt": kept.update_attempt,
            ":update_total": integer(kept.update_total), ":first_segment": kept.first_segment,
            ":open_segments": integer(kept.open_segments), ":failed_segment": kept.failed_segment,
            ":updated_at": kept.updated_at,
        })?;
    expect_one(written, "viewer_runs", change.resource().key())
}

/// Moves the list on.
pub(crate) fn move_list(change: &mut Change<'_>) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO viewer_list (id, revision) VALUES (:id, 1)
             ON CONFLICT (id) DO UPDATE SET revision = revision + 1",
        )?
        .execute(named_params! { ":id": 1_i64 })?;
    expect_one(written, "viewer_list", "1")
}

/// Keeps a visit: the step, its node, which visit of the node it is, and the event with which it began.
pub(crate) fn insert_visit(
    change: &mut Change<'_>,
    run: ResourceKey,
    (step, node): (u64, &str),
    (visit, trace_seq): (u64, u64),
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO viewer_visits (run_key, node_id, step_index, visit, trace_seq)
             VALUES (:run, :node, :step, :visit, :trace_seq)",
        )?
        .execute(named_params! {
            ":run": run, ":node": node, ":step": integer(step), ":visit": integer(visit), ":trace_seq": integer(trace_seq),
        })?;
    expect_one(written, "viewer_visits", node)
}

/// Keeps that an edge was taken; false when it was before.
pub(crate) fn take_edge(
    change: &mut Change<'_>,
    run: ResourceKey,
    (from, to): (&str, &str),
    step: u64,
) -> Result<bool, StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO viewer_edges (run_key, from_node, to_node, first_step) VALUES (:run, :from, :to, :step)
             ON CONFLICT (run_key, from_node, to_node) DO NOTHING",
        )?
        .execute(named_params! { ":run": run, ":from": from, ":to": to, ":step": integer(step) })?;
    Ok(written == 1)
}

/// Keeps the patches that lead to a revision, and forgets those before `retained_from`.
pub(crate) fn put_deltas(
    change: &mut Change<'_>,
    run: ResourceKey,
    (revision, retained_from): (u64, u64),
    deltas: &[Delta],
) -> Result<(), StateError> {
    {
        let sql = change.sql();
        let mut statement = sql.prepare_cached(
            "INSERT INTO viewer_deltas (run_key, presentation_revision, delta_index, target_type, target_key, patch, recorded_at)
             VALUES (:run, :revision, :index, :target, :target_key, :patch, :now)",
        )?;
        for (index, delta) in (0_i64..).zip(deltas) {
            let patch = holdpoint_state::json::to_canonical(&delta.patch).map_err(|source| {
                StateError::Json {
                    what: "patch",
                    source,
                }
            })?;
            let written = statement.execute(named_params! {
                ":run": run, ":revision": integer(revision), ":index": index, ":target": delta.target_type.as_str(),
                ":target_key": delta.target_key, ":patch": patch, ":now": change.now(),
            })?;
            expect_one(written, "viewer_deltas", change.resource().key())?;
        }
    }
    change
        .sql()
        .prepare_cached(
            "DELETE FROM viewer_deltas WHERE run_key = :run AND presentation_revision < :floor",
        )?
        .execute(named_params! { ":run": run, ":floor": integer(retained_from) })?;
    Ok(())
}

/// Keeps the state of a conversation at an event.
pub(crate) fn insert_checkpoint(
    change: &mut Change<'_>,
    run: ResourceKey,
    seq: u64,
    state: &[u8],
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO viewer_session_checkpoints (run_key, event_seq, state, recorded_at) VALUES (:run, :seq, :state, :now)",
        )?
        .execute(named_params! {
            ":run": run, ":seq": integer(seq), ":state": state, ":now": change.now(),
        })?;
    expect_one(
        written,
        "viewer_session_checkpoints",
        change.resource().key(),
    )
}

/// Keeps what the documents of a run refer to. What is known already stays as it is.
pub(crate) fn hold(
    change: &mut Change<'_>,
    run: ResourceKey,
    held: &[Held],
) -> Result<(), StateError> {
    if held.is_empty() {
        return Ok(());
    }
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "INSERT INTO run_view_content (run_key, content_hash, media_type, byte_length, source_hash, pointer)
         VALUES (:run, :hash, :media, :length, :source, :pointer)
         ON CONFLICT (run_key, content_hash, media_type) DO NOTHING",
    )?;
    for content in held {
        statement.execute(named_params! {
            ":run": run, ":hash": content.path.digest, ":media": content.path.media_type(),
            ":length": integer(content.size_bytes), ":source": content.source, ":pointer": content.pointer,
        })?;
    }
    Ok(())
}

const fn of(table: &'static str, sql: &'static str) -> Deletion {
    Deletion { table, sql }
}

/// What goes with a run. `?1` is its key.
pub(crate) const RETENTION: Retention = Retention {
    deletions: &[
        of(
            "viewer_deltas",
            "DELETE FROM viewer_deltas WHERE run_key = ?1",
        ),
        of(
            "viewer_visits",
            "DELETE FROM viewer_visits WHERE run_key = ?1",
        ),
        of(
            "viewer_edges",
            "DELETE FROM viewer_edges WHERE run_key = ?1",
        ),
        of(
            "viewer_session_checkpoints",
            "DELETE FROM viewer_session_checkpoints WHERE run_key = ?1",
        ),
        of(
            "run_view_content",
            "DELETE FROM run_view_content WHERE run_key = ?1",
        ),
        of("viewer_runs", "DELETE FROM viewer_runs WHERE run_key = ?1"),
    ],
    ..Retention::NOTHING
};
