//! The history of a run by place: its steps and its events.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, Reads, ResourceKey, StateError};

use super::{Stored, blob, inline_or_blob, position, unsigned};
use crate::id::{AttemptId, NodeId, ScopeId};
use crate::model::AttemptStatus;
use crate::routing::NodeOutcome;

/// A step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRow {
    /// Its place, from 0.
    pub index: u64,
    /// The attempt.
    pub attempt_id: AttemptId,
    /// The node.
    pub node_id: NodeId,
    /// The kind of the node.
    pub node_type: String,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// When it began.
    pub started_at: UnixMillis,
    /// When it ended.
    pub finished_at: UnixMillis,
    /// What it gave.
    pub output: Option<Stored>,
    /// What an agent was told, if that was stored.
    pub prompt: Option<Stored>,
    /// The entry of a session that says what an agent was told.
    pub prompt_entry: Option<Stored>,
    /// Why it has no output.
    pub error: Option<Stored>,
    /// What a shell, a function or an effect left.
    pub receipt: Option<Stored>,
    /// The scope, the change number and the digest of the settings that it read.
    pub settings: Option<(ScopeId, u64, Digest)>,
    /// The first entry of a session that belongs to it.
    pub first_entry: Option<String>,
    /// The last.
    pub last_entry: Option<String>,
}

/// The steps from one place to before another, in order; contents of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn steps(
    reads: &impl Reads,
    run: ResourceKey,
    (from, until): (u64, u64),
    most: u64,
) -> Result<Vec<StepRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT s.step_index, a.attempt_id, a.node_id, a.node_type, a.status, a.started_at, a.finished_at,
             a.output_digest, a.output, a.output_hash, o.byte_length, CASE WHEN o.byte_length <= :most THEN o.content END,
             a.prompt_hash, p.byte_length, CASE WHEN p.byte_length <= :most THEN p.content END,
             pe.entry_hash, pb.byte_length, CASE WHEN pb.byte_length <= :most THEN pb.content END,
             a.error_hash, e.byte_length, CASE WHEN e.byte_length <= :most THEN e.content END,
             a.receipt_hash, r.byte_length, CASE WHEN r.byte_length <= :most THEN r.content END,
             c.scope_id, a.settings_change_number, a.settings_hash,
             (SELECT f.entry_id FROM attempt_entries l JOIN session_entries f
                 ON f.segment_key = l.segment_key AND f.entry_seq = l.entry_seq
                 WHERE l.attempt_key = a.attempt_key AND l.role = 'first'),
             (SELECT f.entry_id FROM attempt_entries l JOIN session_entries f
                 ON f.segment_key = l.segment_key AND f.entry_seq = l.entry_seq
                 WHERE l.attempt_key = a.attempt_key AND l.role = 'last')
         FROM run_steps s
         JOIN node_attempts a ON a.attempt_key = s.attempt_key
         LEFT JOIN blobs o ON o.blob_hash = a.output_hash
         LEFT JOIN blobs p ON p.blob_hash = a.prompt_hash
         LEFT JOIN attempt_entries pl ON pl.attempt_key = a.attempt_key AND pl.role = 'prompt'
         LEFT JOIN session_entries pe ON pe.segment_key = pl.segment_key AND pe.entry_seq = pl.entry_seq
         LEFT JOIN blobs pb ON pb.blob_hash = pe.entry_hash
         LEFT JOIN blobs e ON e.blob_hash = a.error_hash
         LEFT JOIN blobs r ON r.blob_hash = a.receipt_hash
         LEFT JOIN workflow_settings c ON c.resource_key = a.settings_scope_key
         WHERE s.run_key = :run AND :from <= s.step_index AND s.step_index < :until ORDER BY s.step_index",
    )?;
    let parameters = named_params! {
        ":run": run, ":from": position(from), ":until": position(until), ":most": position(most),
    };
    let rows = statement.query_map(parameters, step)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn step(row: &Row<'_>) -> Result<StepRow, SqlError> {
    let status: AttemptStatus = row.get(4)?;
    let started_at: UnixMillis = row.get(5)?;
    let scope: Option<ScopeId> = row.get(24)?;
    let settings = match (scope, row.get::<_, Option<Digest>>(26)?) {
        (Some(scope), Some(hash)) => Some((scope, unsigned(row, 25)?, hash)),
        _ => None,
    };
    Ok(StepRow {
        index: unsigned(row, 0)?,
        attempt_id: row.get(1)?,
        node_id: row.get(2)?,
        node_type: row.get(3)?,
        outcome: status.outcome().unwrap_or(NodeOutcome::Cancelled),
        started_at,
        finished_at: row.get::<_, Option<_>>(6)?.unwrap_or(started_at),
        output: inline_or_blob(row, 7)?,
        prompt: blob(row, 12, false)?,
        prompt_entry: blob(row, 15, true)?,
        error: blob(row, 18, false)?,
        receipt: blob(row, 21, true)?,
        settings,
        first_entry: row.get(27)?,
        last_entry: row.get(28)?,
    })
}

/// A step of an attempt that a recording has entries of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLink {
    /// Its place, from 0.
    pub index: u64,
}

/// The step of an attempt of a run, if it is one already.
///
/// # Errors
///
/// Those of the database.
pub fn linked_step(
    reads: &impl Reads,
    run: ResourceKey,
    attempt: &str,
) -> Result<Option<StepLink>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT s.step_index FROM node_attempts a JOIN run_steps s ON s.attempt_key = a.attempt_key
             WHERE a.attempt_id = :attempt AND s.run_key = :run",
        )?
        .query_row(named_params! { ":attempt": attempt, ":run": run }, |row| {
            Ok(StepLink {
                index: unsigned(row, 0)?,
            })
        })
        .optional()?)
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceRow {
    /// The revision that it led to: its place among the events of the run, from 1.
    pub revision: u64,
    /// What happened.
    pub event_type: String,
    /// When.
    pub recorded_at: UnixMillis,
    /// What else is known of it.
    pub payload: Option<Stored>,
    /// What an update published: it lies with the update.
    pub update: Option<Stored>,
}

/// The events of a run after one revision up to another, in order; contents of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn trace(
    reads: &impl Reads,
    run: ResourceKey,
    (after, until): (u64, u64),
    most: u64,
) -> Result<Vec<TraceRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT e.resource_revision, e.event_type, e.recorded_at,
             e.payload_digest, e.payload, e.payload_blob, b.byte_length, CASE WHEN b.byte_length <= :most THEN b.content END
         FROM events e LEFT JOIN blobs b ON b.blob_hash = e.payload_blob
         WHERE e.resource_key = :run AND :after < e.resource_revision AND e.resource_revision <= :until
         ORDER BY e.resource_revision",
    )?;
    let parameters = named_params! {
        ":run": run, ":after": position(after), ":until": position(until), ":most": position(most),
    };
    let rows = statement.query_map(parameters, |row| {
        Ok(TraceRow {
            revision: unsigned(row, 0)?,
            event_type: row.get(1)?,
            recorded_at: row.get(2)?,
            payload: inline_or_blob(row, 3)?,
            update: None,
        })
    })?;
    let mut rows: Vec<TraceRow> = rows.collect::<Result<_, _>>()?;
    for row in &mut rows {
        if row.event_type == UPDATE_PUBLISHED {
            row.update = published(reads, row, most)?;
        }
    }
    Ok(rows)
}

/// The event of a published update. Its payload names the update, whose data lies beside it.
const UPDATE_PUBLISHED: &str = "update_published";

fn published(reads: &impl Reads, row: &TraceRow, most: u64) -> Result<Option<Stored>, StateError> {
    let payload = row.payload.as_ref().and_then(Stored::json);
    let Some(id) = payload
        .as_ref()
        .and_then(|payload| payload.get("updateId")?.as_str())
    else {
        return Ok(None);
    };
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT u.data_hash, b.byte_length, CASE WHEN b.byte_length <= :most THEN b.content END
             FROM workflow_updates u JOIN blobs b ON b.blob_hash = u.data_hash WHERE u.update_id = :id",
        )?
        .query_row(
            named_params! { ":id": id, ":most": position(most) },
            |row| blob(row, 0, true),
        )
        .optional()?
        .flatten())
}

/// The stored snapshot of a definition.
///
/// # Errors
///
/// Those of the database.
pub fn definition(
    reads: &impl Reads,
    digest: Digest,
    most: u64,
) -> Result<Option<Stored>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT d.definition_hash, b.byte_length, CASE WHEN b.byte_length <= :most THEN b.content END
             FROM workflow_definitions d JOIN blobs b ON b.blob_hash = d.definition_hash
             WHERE d.definition_digest = :digest",
        )?
        .query_row(
            named_params! { ":digest": digest, ":most": position(most) },
            |row| blob(row, 0, true),
        )
        .optional()?
        .flatten())
}
