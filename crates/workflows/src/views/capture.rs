//! What was recorded of the sessions of a run: recordings, and their entries and events in pages, by the counters of the run.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, SqlError, named_params};
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;
use serde_json::Value;

use super::json_column;
use crate::capture::visible_text;
use crate::id::{AttemptId, RunId};
use crate::model::{EntryRole, SegmentStatus};

/// How many rows a page has at most.
pub const PAGE_ROWS: u16 = 256;
/// How many bytes of content a page holds before it ends early.
pub const PAGE_BYTES: usize = 1024 * 1024;

/// A recording.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SegmentView {
    /// Its id.
    pub segment_id: String,
    /// Its name in the run.
    pub capture_key: String,
    /// The session.
    pub session_id: String,
    /// The attempt that the session worked for, if it was one only.
    pub attempt_id: Option<AttemptId>,
    /// Where it stands.
    pub status: SegmentStatus,
    /// How many entries it has.
    pub entry_count: i64,
    /// How many events it has.
    pub event_count: i64,
    /// `{failedAt, code, message}` of one that failed.
    pub failure: Option<Value>,
    /// When it began.
    pub created_at: UnixMillis,
    /// When it ended.
    pub finished_at: Option<UnixMillis>,
    /// What is wrong with it; empty when all is well.
    pub problems: Vec<&'static str>,
}

/// The recordings of a run, in the order in which they began, each judged by its rows.
///
/// # Errors
///
/// Those of the database.
pub fn recordings(snapshot: &Snapshot<'_>, run: &RunId) -> Result<Vec<SegmentView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT s.segment_id, s.capture_key, s.session_id, a.attempt_id, s.status, s.entry_count, s.event_count, f.content,
             s.created_at, s.finished_at, r.status <> 'running' AND r.status <> 'waiting',
             (SELECT count(*) FROM session_entries e WHERE e.segment_key = s.resource_key),
             (SELECT count(*) FROM session_events e WHERE e.segment_key = s.resource_key)
         FROM runs r JOIN session_segments s ON s.run_key = r.resource_key
         LEFT JOIN node_attempts a ON a.attempt_key = s.attempt_key
         LEFT JOIN blobs f ON f.blob_hash = s.failure_hash
         WHERE r.run_id = :run ORDER BY s.resource_key",
    )?;
    let rows = statement.query_map(
        named_params! { ":run": run },
        |row| -> Result<_, SqlError> {
            let (entry_count, event_count) = (row.get(5)?, row.get(6)?);
            let (status, run_rests): (SegmentStatus, bool) = (row.get(4)?, row.get(10)?);
            let problems = [
                (
                    row.get::<_, i64>(11)? != entry_count,
                    "its entries are not as many as it counts",
                ),
                (
                    row.get::<_, i64>(12)? != event_count,
                    "its events are not as many as it counts",
                ),
                (
                    run_rests && status == SegmentStatus::Recording,
                    "it is still recorded, and its run does not go on",
                ),
            ];
            Ok(SegmentView {
                segment_id: row.get(0)?,
                capture_key: row.get(1)?,
                session_id: row.get(2)?,
                attempt_id: row.get(3)?,
                status,
                entry_count,
                event_count,
                failure: json_column(row, 7)?,
                created_at: row.get(8)?,
                finished_at: row.get(9)?,
                problems: problems
                    .into_iter()
                    .filter(|(holds, _)| *holds)
                    .map(|(_, problem)| problem)
                    .collect(),
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Recordings that go on and are not of this recorder.
pub(crate) fn abandoned_recordings(
    snapshot: &Snapshot<'_>,
    recorder: &str,
) -> Result<Vec<String>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT segment_id FROM session_segments WHERE status = 'recording' AND recorder_id <> :recorder ORDER BY resource_key",
    )?;
    let rows = statement.query_map(named_params! { ":recorder": recorder }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Recordings that go on and whose recorder is known to be dead.
pub(crate) fn recordings_of_dead(snapshot: &Snapshot<'_>) -> Result<Vec<String>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT segment_id, recorder_id FROM session_segments WHERE status = 'recording' ORDER BY resource_key",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))?;
    let mut found: Vec<(String, String)> = rows.collect::<Result<_, _>>()?;
    found.retain(|(_, recorder)| snapshot.is_dead_owner(recorder));
    Ok(found.into_iter().map(|(segment, _)| segment).collect())
}

/// A part of what was recorded, in the order of the run's counter.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Where the next page begins; none when this was the last.
    pub next_after: Option<i64>,
}

/// A captured entry.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// Its number among the entries of the run, from 1.
    pub run_seq: i64,
    /// The recording.
    pub segment_id: String,
    /// Its number in the recording, from 1.
    pub entry_seq: i64,
    /// Its id in the session.
    pub entry_id: String,
    /// The entry.
    pub content: Value,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// A captured event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Its number among the events of the run, from 1.
    pub run_seq: i64,
    /// The recording.
    pub segment_id: String,
    /// Its number in the recording, from 1.
    pub event_seq: i64,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The node that the session worked for.
    pub node_id: Option<String>,
    /// The attempt that the session worked for.
    pub attempt_id: Option<String>,
    /// The turn.
    pub turn_id: Option<String>,
    /// The message.
    pub message_id: Option<String>,
    /// The call of a tool.
    pub tool_call_id: Option<String>,
    /// What the session said of it.
    pub payload: Value,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// Entries of a run after a number, at most [`PAGE_ROWS`] and about [`PAGE_BYTES`].
///
/// # Errors
///
/// Those of the database.
pub fn session_entries(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    after: i64,
) -> Result<RecordPage<EntryView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT e.run_seq, length(b.content), s.segment_id, e.entry_seq, e.entry_id, b.content, e.recorded_at
         FROM runs r JOIN session_entries e ON e.run_key = r.resource_key
         JOIN session_segments s ON s.resource_key = e.segment_key
         LEFT JOIN blobs b ON b.blob_hash = e.entry_hash
         WHERE r.run_id = :run AND :after < e.run_seq ORDER BY e.run_seq LIMIT :rows",
    )?;
    let parameters =
        named_params! { ":run": run, ":after": after, ":rows": i64::from(PAGE_ROWS) + 1 };
    page(statement.query_map(parameters, |row| {
        let view = EntryView {
            run_seq: row.get(0)?,
            segment_id: row.get(2)?,
            entry_seq: row.get(3)?,
            entry_id: row.get(4)?,
            content: json_column(row, 5)?.unwrap_or_default(),
            recorded_at: row.get(6)?,
        };
        Ok((row.get(0)?, row.get(1)?, view))
    })?)
}

/// Events of a run after a number, up to another one: what a replay to that place reads. At most [`PAGE_ROWS`] and about
/// [`PAGE_BYTES`].
///
/// # Errors
///
/// Those of the database.
pub fn session_events(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    (after, until): (i64, i64),
) -> Result<RecordPage<EventView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT e.run_seq, length(b.content), s.segment_id, e.event_seq, e.event_type, e.node_id, e.attempt_id, e.turn_id,
             e.message_id, e.tool_call_id, b.content, e.recorded_at
         FROM runs r JOIN session_events e ON e.run_key = r.resource_key
         JOIN session_segments s ON s.resource_key = e.segment_key
         LEFT JOIN blobs b ON b.blob_hash = e.payload_hash
         WHERE r.run_id = :run AND :after < e.run_seq AND e.run_seq <= :until ORDER BY e.run_seq LIMIT :rows",
    )?;
    let parameters = named_params! {
        ":run": run, ":after": after, ":until": until, ":rows": i64::from(PAGE_ROWS) + 1,
    };
    page(statement.query_map(parameters, |row| {
        let view = EventView {
            run_seq: row.get(0)?,
            segment_id: row.get(2)?,
            event_seq: row.get(3)?,
            event_type: row.get(4)?,
            node_id: row.get(5)?,
            attempt_id: row.get(6)?,
            turn_id: row.get(7)?,
            message_id: row.get(8)?,
            tool_call_id: row.get(9)?,
            payload: json_column(row, 10)?.unwrap_or_default(),
            recorded_at: row.get(11)?,
        };
        Ok((row.get(0)?, row.get(1)?, view))
    })?)
}

/// One row with its number and the size of its content.
type Numbered<T> = (i64, Option<i64>, T);

/// Ends a page in time. One row more than a page was asked for.
fn page<T>(
    found: impl Iterator<Item = Result<Numbered<T>, SqlError>>,
) -> Result<RecordPage<T>, StateError> {
    let (mut rows, mut last, mut size_bytes) = (Vec::new(), 0, 0_usize);
    for row in found {
        if usize::from(PAGE_ROWS) <= rows.len() || PAGE_BYTES <= size_bytes {
            return Ok(RecordPage {
                rows,
                next_after: Some(last),
            });
        }
        let (number, bytes, row) = row?;
        last = number;
        let bytes = usize::try_from(bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        size_bytes = size_bytes.saturating_add(bytes);
        rows.push(row);
    }
    Ok(RecordPage {
        rows,
        next_after: None,
    })
}

/// An entry that has a role for an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkView {
    /// The role.
    pub role: EntryRole,
    /// The recording.
    pub segment_id: String,
    /// The entry.
    pub entry_id: String,
}

/// The entries that have a role for an attempt.
///
/// # Errors
///
/// Those of the database.
pub fn attempt_links(
    snapshot: &Snapshot<'_>,
    attempt: &AttemptId,
) -> Result<Vec<LinkView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT l.role, s.segment_id, e.entry_id FROM node_attempts a JOIN attempt_entries l ON l.attempt_key = a.attempt_key
         JOIN session_entries e ON e.segment_key = l.segment_key AND e.entry_seq = l.entry_seq
         JOIN session_segments s ON s.resource_key = l.segment_key
         WHERE a.attempt_id = :attempt ORDER BY l.role",
    )?;
    let rows = statement.query_map(named_params! { ":attempt": attempt.as_str() }, |row| {
        Ok(LinkView {
            role: row.get(0)?,
            segment_id: row.get(1)?,
            entry_id: row.get(2)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What an agent was told: the stored prompt, or the text of the entry that is linked as it.
///
/// # Errors
///
/// Those of the database.
pub fn prompt(snapshot: &Snapshot<'_>, attempt: &AttemptId) -> Result<Option<String>, StateError> {
    type Content = Option<Vec<u8>>;
    let found: Option<(Content, Content)> = snapshot
        .sql()
        .prepare_cached(
            "SELECT p.content, c.content FROM node_attempts a
             LEFT JOIN blobs p ON p.blob_hash = a.prompt_hash
             LEFT JOIN attempt_entries l ON l.attempt_key = a.attempt_key AND l.role = 'prompt'
             LEFT JOIN session_entries e ON e.segment_key = l.segment_key AND e.entry_seq = l.entry_seq
             LEFT JOIN blobs c ON c.blob_hash = e.entry_hash
             WHERE a.attempt_id = :attempt",
        )?
        .query_row(named_params! { ":attempt": attempt.as_str() }, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(found.and_then(|(stored, entry)| match (stored, entry) {
        (Some(text), _) => Some(String::from_utf8_lossy(&text).into_owned()),
        (None, Some(entry)) => visible_text(&serde_json::from_slice(&entry).ok()?),
        (None, None) => None,
    }))
}
