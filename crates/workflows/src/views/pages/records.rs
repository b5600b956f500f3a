//! What is kept beside a run, by place: recordings of its sessions, its settings, follow-ups and updates.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, Reads, ResourceKey, StateError};
use serde_json::Value;

use super::{Stored, blob, position, unsigned};
use crate::model::{FollowUpStatus, SegmentStatus};
use crate::views::{FollowUpDisplay, json_column};

/// A recorded entry.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRow {
    /// Its number in the run, from 1.
    pub seq: u64,
    /// Its id in the session.
    pub entry_id: String,
    /// Where it lies.
    pub digest: Digest,
    /// The entry, whole whatever its size.
    pub content: Value,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    /// Its number in the run, from 1.
    pub seq: u64,
    /// What happened.
    pub event_type: String,
    /// The node.
    pub node_id: Option<String>,
    /// The attempt.
    pub attempt_id: Option<String>,
    /// The turn.
    pub turn_id: Option<String>,
    /// The message.
    pub message_id: Option<String>,
    /// The call of a tool.
    pub tool_call_id: Option<String>,
    /// What the session said of it.
    pub payload: Option<Stored>,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// How many entries and events a run has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordTotals {
    /// Entries.
    pub entries: u64,
    /// Events.
    pub events: u64,
}

/// How many entries and events a run has: the numbers of the last ones, since they are numbered without gaps.
///
/// # Errors
///
/// Those of the database.
pub fn record_totals(reads: &impl Reads, run: ResourceKey) -> Result<RecordTotals, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT coalesce((SELECT max(run_seq) FROM session_entries WHERE run_key = :run), 0),
                 coalesce((SELECT max(run_seq) FROM session_events WHERE run_key = :run), 0)",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok(RecordTotals {
                entries: unsigned(row, 0)?,
                events: unsigned(row, 1)?,
            })
        })?)
}

/// The entries after one number up to another, in order. An entry comes whole: its large parts are found inside it.
///
/// # Errors
///
/// Those of the database.
pub fn entries(
    reads: &impl Reads,
    run: ResourceKey,
    (after, until): (u64, u64),
) -> Result<Vec<EntryRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT e.run_seq, e.entry_id, b.content, e.recorded_at, e.entry_hash
         FROM session_entries e LEFT JOIN blobs b ON b.blob_hash = e.entry_hash
         WHERE e.run_key = :run AND :after < e.run_seq AND e.run_seq <= :until ORDER BY e.run_seq",
    )?;
    let parameters =
        named_params! { ":run": run, ":after": position(after), ":until": position(until) };
    let rows = statement.query_map(parameters, |row| {
        Ok(EntryRow {
            seq: unsigned(row, 0)?,
            entry_id: row.get(1)?,
            content: json_column(row, 2)?.unwrap_or_default(),
            recorded_at: row.get(3)?,
            digest: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The events after one number up to another, in order; payloads of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn events(
    reads: &impl Reads,
    run: ResourceKey,
    (after, until): (u64, u64),
    most: u64,
) -> Result<Vec<EventRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT e.run_seq, e.event_type, e.node_id, e.attempt_id, e.turn_id, e.message_id, e.tool_call_id, e.recorded_at,
             e.payload_hash, b.byte_length, CASE WHEN b.byte_length <= :most THEN b.content END
         FROM session_events e LEFT JOIN blobs b ON b.blob_hash = e.payload_hash
         WHERE e.run_key = :run AND :after < e.run_seq AND e.run_seq <= :until ORDER BY e.run_seq",
    )?;
    let parameters = named_params! {
        ":run": run, ":after": position(after), ":until": position(until), ":most": position(most),
    };
    let rows = statement.query_map(parameters, |row| {
        Ok(EventRow {
            seq: unsigned(row, 0)?,
            event_type: row.get(1)?,
            node_id: row.get(2)?,
            attempt_id: row.get(3)?,
            turn_id: row.get(4)?,
            message_id: row.get(5)?,
            tool_call_id: row.get(6)?,
            recorded_at: row.get(7)?,
            payload: blob(row, 8, true)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How many entries of a run were recorded at an instant or before: found by halving, since both grow together.
///
/// # Errors
///
/// Those of the database.
pub fn newest_entry_at(
    reads: &impl Reads,
    run: ResourceKey,
    at: UnixMillis,
) -> Result<u64, StateError> {
    let (mut low, mut high) = (0, record_totals(reads, run)?.entries);
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT recorded_at FROM session_entries WHERE run_key = :run AND run_seq = :seq",
    )?;
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        let parameters = named_params! { ":run": run, ":seq": position(middle) };
        let recorded: Option<UnixMillis> = statement
            .query_row(parameters, |row| row.get(0))
            .optional()?;
        if recorded.is_none_or(|recorded| at < recorded) {
            high = middle - 1;
        } else {
            low = middle;
        }
    }
    Ok(low)
}

/// A recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// The session.
    pub session_id: String,
    /// Where it stands.
    pub status: SegmentStatus,
    /// What its recorder said when it was bound.
    pub binding: Value,
    /// Why it failed.
    pub failure: Option<Value>,
    /// When it began.
    pub created_at: UnixMillis,
}

/// The recording with this key.
///
/// # Errors
///
/// Those of the database.
pub fn segment(reads: &impl Reads, key: ResourceKey) -> Result<Option<Segment>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT s.session_id, s.status, b.content, f.content, s.created_at FROM session_segments s
             LEFT JOIN blobs b ON b.blob_hash = s.binding_hash
             LEFT JOIN blobs f ON f.blob_hash = s.failure_hash
             WHERE s.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(Segment {
                session_id: row.get(0)?,
                status: row.get(1)?,
                binding: json_column(row, 2)?.unwrap_or_default(),
                failure: json_column(row, 3)?,
                created_at: row.get(4)?,
            })
        })
        .optional()?)
}

/// A scope of settings.
#[derive(Debug, Clone, PartialEq)]
pub struct ScopeRow {
    /// Its id.
    pub scope_id: String,
    /// The mount that has it.
    pub mount_path: String,
    /// The invocation.
    pub invocation: u64,
    /// How often it was changed.
    pub change_number: u64,
    /// The document.
    pub value: Option<Stored>,
}

/// How many scopes of settings a run has.
///
/// # Errors
///
/// Those of the database.
pub fn settings_total(reads: &impl Reads, run: ResourceKey) -> Result<u64, StateError> {
    Ok(reads
        .reading()
        .prepare_cached("SELECT count(*) FROM workflow_settings WHERE active_run_key = :run")?
        .query_row(named_params! { ":run": run }, |row| unsigned(row, 0))?)
}

/// The scopes of a run by mount path and invocation, from one place to before another; documents of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn settings(
    reads: &impl Reads,
    run: ResourceKey,
    (from, until): (u64, u64),
    most: u64,
) -> Result<Vec<ScopeRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT s.scope_id, s.mount_path, s.invocation, s.change_number, s.current_hash, b.byte_length,
             CASE WHEN b.byte_length <= :most THEN b.content END
         FROM workflow_settings s LEFT JOIN blobs b ON b.blob_hash = s.current_hash
         WHERE s.active_run_key = :run ORDER BY s.mount_path, s.invocation LIMIT :limit OFFSET :from",
    )?;
    let parameters = named_params! {
        ":run": run, ":from": position(from), ":limit": position(until.saturating_sub(from)), ":most": position(most),
    };
    let rows = statement.query_map(parameters, |row| {
        Ok(ScopeRow {
            scope_id: row.get(0)?,
            mount_path: row.get(1)?,
            invocation: unsigned(row, 2)?,
            change_number: unsigned(row, 3)?,
            value: blob(row, 4, true)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A prompt that is queued for the origin session.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUpRow {
    /// Its id.
    pub follow_up_id: String,
    /// Its place, from 1.
    pub order: u64,
    /// What became of it.
    pub status: FollowUpDisplay,
    /// What the session is asked.
    pub prompt: Option<Stored>,
}

/// How many follow-ups a run has.
///
/// # Errors
///
/// Those of the database.
pub fn follow_up_total(reads: &impl Reads, run: ResourceKey) -> Result<u64, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT coalesce(max(order_number), 0) FROM workflow_follow_ups WHERE run_key = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| unsigned(row, 0))?)
}

/// The follow-ups after one place up to another, in order; prompts of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn follow_ups(
    reads: &impl Reads,
    run: ResourceKey,
    (after, until): (u64, u64),
    most: u64,
) -> Result<Vec<FollowUpRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT f.follow_up_id, f.order_number, f.status, f.prompt_hash, p.byte_length,
             CASE WHEN p.byte_length <= :most THEN p.content END,
             EXISTS (SELECT 1 FROM workflow_messages m WHERE m.source_id = f.follow_up_id AND m.kind = 'followUp'
                 AND m.status = 'sent')
         FROM workflow_follow_ups f LEFT JOIN blobs p ON p.blob_hash = f.prompt_hash
         WHERE f.run_key = :run AND :after < f.order_number AND f.order_number <= :until ORDER BY f.order_number",
    )?;
    let parameters = named_params! {
        ":run": run, ":after": position(after), ":until": position(until), ":most": position(most),
    };
    let rows = statement.query_map(parameters, |row| {
        let status = match (row.get(2)?, row.get::<_, bool>(6)?) {
            (_, true) => FollowUpDisplay::Sent,
            (FollowUpStatus::Queued, false) => FollowUpDisplay::Queued,
            (FollowUpStatus::Removed, false) => FollowUpDisplay::Removed,
            (FollowUpStatus::Cancelled, false) => FollowUpDisplay::Cancelled,
        };
        Ok(FollowUpRow {
            follow_up_id: row.get(0)?,
            order: unsigned(row, 1)?,
            status,
            prompt: blob(row, 3, false)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A value that an attempt published and that holds now.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateRow {
    /// Its number in the attempt.
    pub seq: u64,
    /// Its type.
    pub update_type: String,
    /// Its key.
    pub key: String,
    /// The node that published it.
    pub node_id: String,
    /// The value.
    pub data: Option<Stored>,
}

/// The numbers of the updates of an attempt that hold now, in the order in which they were published: one for each type and key, of
/// which an attempt has a limited number. Found from pair to pair, whatever the number of updates is.
///
/// # Errors
///
/// Those of the database.
pub fn update_places(reads: &impl Reads, attempt: i64) -> Result<Vec<u64>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "WITH RECURSIVE pairs (update_type, update_key) AS (
             SELECT * FROM (SELECT update_type, update_key FROM workflow_updates WHERE attempt_key = :attempt
                 ORDER BY update_type, update_key LIMIT 1)
             UNION ALL
             SELECT (SELECT n.update_type FROM workflow_updates n WHERE n.attempt_key = :attempt
                     AND (n.update_type, n.update_key) > (p.update_type, p.update_key)
                     ORDER BY n.update_type, n.update_key LIMIT 1),
                 (SELECT n.update_key FROM workflow_updates n WHERE n.attempt_key = :attempt
                     AND (n.update_type, n.update_key) > (p.update_type, p.update_key)
                     ORDER BY n.update_type, n.update_key LIMIT 1)
             FROM pairs p WHERE p.update_type IS NOT NULL)
         SELECT (SELECT max(u.update_seq) FROM workflow_updates u WHERE u.attempt_key = :attempt
             AND u.update_type = p.update_type AND u.update_key = p.update_key)
         FROM pairs p WHERE p.update_type IS NOT NULL ORDER BY 1",
    )?;
    let rows = statement.query_map(named_params! { ":attempt": attempt }, |row| {
        unsigned(row, 0)
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Updates of an attempt by their numbers; values of at most `most` bytes.
///
/// # Errors
///
/// Those of the database.
pub fn updates(
    reads: &impl Reads,
    attempt: i64,
    places: &[u64],
    most: u64,
) -> Result<Vec<UpdateRow>, StateError> {
    let sql = reads.reading();
    let mut statement = sql.prepare_cached(
        "SELECT u.update_seq, u.update_type, u.update_key, a.node_id, u.data_hash, b.byte_length,
             CASE WHEN b.byte_length <= :most THEN b.content END
         FROM workflow_updates u JOIN node_attempts a ON a.attempt_key = u.attempt_key
         LEFT JOIN blobs b ON b.blob_hash = u.data_hash
         WHERE u.attempt_key = :attempt AND u.update_seq = :seq",
    )?;
    let read = |row: &Row<'_>| -> Result<UpdateRow, SqlError> {
        Ok(UpdateRow {
            seq: unsigned(row, 0)?,
            update_type: row.get(1)?,
            key: row.get(2)?,
            node_id: row.get(3)?,
            data: blob(row, 4, true)?,
        })
    };
    let mut found = Vec::with_capacity(places.len());
    for place in places {
        let parameters = named_params! { ":attempt": attempt, ":seq": position(*place), ":most": position(most) };
        found.extend(statement.query_row(parameters, read).optional()?);
    }
    Ok(found)
}
