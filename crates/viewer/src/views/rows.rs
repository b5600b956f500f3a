//! The rows that the projector keeps of a run.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Reads, ResourceKey, StateError};

/// Where the end of a history begins that a document shows, how long the history is, and how many bytes that end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) total: u64,
    pub(crate) bytes: u64,
}

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ViewerRun {
    pub(crate) revision: u64,
    pub(crate) retained_from: u64,
    pub(crate) summary: Vec<u8>,
    pub(crate) steps: Span,
    pub(crate) trace: Span,
    pub(crate) entries: Span,
    pub(crate) events: Span,
    pub(crate) visit_seq: u64,
    pub(crate) update_attempt: Option<i64>,
    pub(crate) update_total: u64,
    pub(crate) first_segment: Option<ResourceKey>,
    pub(crate) open_segments: u64,
    pub(crate) failed_segment: Option<ResourceKey>,
    pub(crate) updated_at: UnixMillis,
}

/// What is kept of a run; none before the projector saw it.
pub(crate) fn viewer_run(
    reads: &impl Reads,
    run: ResourceKey,
) -> Result<Option<ViewerRun>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT presentation_revision, retained_from_revision, summary, step_start, step_total, step_bytes,
                 trace_start, trace_total, trace_bytes, entry_start, entry_total, entry_bytes,
                 event_start, event_total, event_bytes, visit_seq, update_attempt, update_total,
                 first_segment, open_segments, failed_segment, updated_at
             FROM viewer_runs WHERE run_key = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok(ViewerRun {
                revision: unsigned(row, 0)?,
                retained_from: unsigned(row, 1)?,
                summary: row.get(2)?,
                steps: span(row, 3)?,
                trace: span(row, 6)?,
                entries: span(row, 9)?,
                events: span(row, 12)?,
                visit_seq: unsigned(row, 15)?,
                update_attempt: row.get(16)?,
                update_total: unsigned(row, 17)?,
                first_segment: row.get(18)?,
                open_segments: unsigned(row, 19)?,
                failed_segment: row.get(20)?,
                updated_at: row.get(21)?,
            })
        })
        .optional()?)
}

fn span(row: &Row<'_>, at: usize) -> Result<Span, SqlError> {
    Ok(Span {
        start: unsigned(row, at)?,
        total: unsigned(row, at + 1)?,
        bytes: unsigned(row, at + 2)?,
    })
}

pub(super) fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, SqlError> {
    Ok(row.get::<_, i64>(at)?.unsigned_abs())
}

pub(super) fn position(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}

/// The visit that a step is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VisitRow {
    pub(crate) step: u64,
    pub(crate) node: String,
    pub(crate) visit: u64,
    pub(crate) trace_seq: u64,
}

/// The visit at a step.
pub(crate) fn visit_at(
    reads: &impl Reads,
    run: ResourceKey,
    step: u64,
) -> Result<Option<VisitRow>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT step_index, node_id, visit, trace_seq FROM viewer_visits WHERE run_key = :run AND step_index = :step",
        )?
        .query_row(
            named_params! { ":run": run, ":step": position(step) },
            visit,
        )
        .optional()?)
}

/// The newest visit of a node up to a step.
pub(crate) fn newest_visit(
    reads: &impl Reads,
    run: ResourceKey,
    node: &str,
    step: u64,
) -> Result<Option<VisitRow>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT step_index, node_id, visit, trace_seq FROM viewer_visits
             WHERE run_key = :run AND node_id = :node AND step_index <= :step ORDER BY step_index DESC LIMIT 1",
        )?
        .query_row(
            named_params! { ":run": run, ":node": node, ":step": position(step) },
            visit,
        )
        .optional()?)
}

pub(super) fn visit(row: &Row<'_>) -> Result<VisitRow, SqlError> {
    Ok(VisitRow {
        step: unsigned(row, 0)?,
        node: row.get(1)?,
        visit: unsigned(row, 2)?,
        trace_seq: unsigned(row, 3)?,
    })
}
