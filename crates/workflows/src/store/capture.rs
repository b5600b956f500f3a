//! `session_segments`, `session_entries`, `attempt_entries`, `session_events`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, ResourceKey, StateError};

use crate::capture::SessionEvent;
use crate::model::{EntryRole, SegmentStatus};

/// A recording as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct SegmentRow {
    pub(crate) run_key: ResourceKey,
    pub(crate) run_id: String,
    pub(crate) binding: Digest,
    pub(crate) status: SegmentStatus,
    pub(crate) entry_count: i64,
    pub(crate) event_count: i64,
    pub(crate) failure: Option<Digest>,
}

/// The recording of this change.
pub(crate) fn segment(change: &mut Change<'_>) -> Result<Option<SegmentRow>, StateError> {
    let id = change.resource().key().to_owned();
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT s.run_key, r.run_id, s.binding_hash, s.status, s.entry_count, s.event_count, s.failure_hash
             FROM session_segments s JOIN runs r ON r.resource_key = s.run_key WHERE s.segment_id = :id",
        )?
        .query_row(named_params! { ":id": id }, |row| {
            Ok(SegmentRow {
                run_key: row.get(0)?,
                run_id: row.get(1)?,
                binding: row.get(2)?,
                status: row.get(3)?,
                entry_count: row.get(4)?,
                event_count: row.get(5)?,
                failure: row.get(6)?,
            })
        })
        .optional()?)
}

/// What a new recording says.
pub(crate) struct NewSegment<'a> {
    pub(crate) run_key: ResourceKey,
    pub(crate) attempt: Option<i64>,
    pub(crate) capture_key: &'a str,
    pub(crate) session: &'a str,
    pub(crate) recorder: &'a str,
    pub(crate) binding: Digest,
}

/// Begins the recording of this change.
pub(crate) fn insert_segment(
    change: &mut Change<'_>,
    new: &NewSegment<'_>,
) -> Result<(), StateError> {
    let id = change.resource().key().to_owned();
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO session_segments (resource_key, segment_id, run_key, attempt_key, capture_key, session_id, recorder_id,
                 binding_hash, status, created_at)
             VALUES (:key, :id, :run, :attempt, :capture_key, :session, :recorder, :binding, 'recording', :now)",
        )?
        .execute(named_params! {
            ":key": key, ":id": id, ":run": new.run_key, ":attempt": new.attempt, ":capture_key": new.capture_key,
            ":session": new.session, ":recorder": new.recorder, ":binding": new.binding, ":now": now,
        })?;
    expect_one(written, "session_segments", &id)
}

/// An attempt of a run, with what its prompt and output are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LinkedAttempt {
    pub(crate) key: i64,
    pub(crate) prompt: Option<Digest>,
    pub(crate) output: Option<Digest>,
}

/// An attempt, if it belongs to the run.
pub(crate) fn attempt_of_run(
    change: &mut Change<'_>,
    run: ResourceKey,
    attempt: &str,
) -> Result<Option<LinkedAttempt>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT attempt_key, prompt_hash, coalesce(output_digest, output_hash) FROM node_attempts
             WHERE attempt_id = :attempt AND run_key = :run",
        )?
        .query_row(named_params! { ":attempt": attempt, ":run": run }, |row| {
            Ok(LinkedAttempt {
                key: row.get(0)?,
                prompt: row.get(1)?,
                output: row.get(2)?,
            })
        })
        .optional()?)
}

/// The place and content of an entry of the recording of this change.
pub(crate) fn entry(
    change: &mut Change<'_>,
    entry_id: &str,
) -> Result<Option<(i64, Digest)>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT entry_seq, entry_hash FROM session_entries WHERE segment_key = :key AND entry_id = :entry_id",
        )?
        .query_row(named_params! { ":key": key, ":entry_id": entry_id }, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Appends an entry to the recording of this change, at its place.
pub(crate) fn insert_entry(
    change: &mut Change<'_>,
    run: ResourceKey,
    (seq, entry_id): (i64, &str),
    content: Digest,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO session_entries (segment_key, entry_seq, run_key, run_seq, entry_id, entry_hash, recorded_at)
             VALUES (:key, :seq, :run,
                 (SELECT coalesce(max(run_seq), 0) + 1 FROM session_entries WHERE run_key = :run), :entry_id, :content, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":seq": seq, ":run": run, ":entry_id": entry_id, ":content": content, ":now": now,
        })?;
    expect_one(written, "session_entries", &seq)
}

/// The payload of an event of the recording of this change, with its type.
pub(crate) fn event(
    change: &mut Change<'_>,
    seq: i64,
) -> Result<Option<(String, Digest)>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached("SELECT event_type, payload_hash FROM session_events WHERE segment_key = :key AND event_seq = :seq")?
        .query_row(named_params! { ":key": key, ":seq": seq }, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Appends an event to the recording of this change, at its place.
pub(crate) fn insert_event(
    change: &mut Change<'_>,
    run: ResourceKey,
    (seq, event): (i64, &SessionEvent),
    payload: Digest,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO session_events (segment_key, event_seq, run_key, run_seq, event_type, node_id, attempt_id, turn_id,
                 message_id, tool_call_id, payload_hash, recorded_at)
             VALUES (:key, :seq, :run, (SELECT coalesce(max(run_seq), 0) + 1 FROM session_events WHERE run_key = :run), :type,
                 :node, :attempt, :turn, :message, :tool_call, :payload, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":seq": seq, ":run": run, ":type": event.event_type.as_str(),
            ":node": event.node_id.as_ref().map(crate::id::NodeId::as_str),
            ":attempt": event.attempt_id.as_ref().map(crate::id::AttemptId::as_str),
            ":turn": event.turn_id, ":message": event.message_id, ":tool_call": event.tool_call_id, ":payload": payload,
            ":now": now,
        })?;
    expect_one(written, "session_events", &seq)
}

/// Says how much the recording of this change has now.
pub(crate) fn set_counts(
    change: &mut Change<'_>,
    entries: i64,
    events: i64,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE session_segments SET entry_count = :entries, event_count = :events
             WHERE resource_key = :key AND status = 'recording'",
        )?
        .execute(named_params! { ":key": key, ":entries": entries, ":events": events })?;
    expect_one(written, "session_segments", change.resource().key())
}

/// Ends the recording of this change.
pub(crate) fn finish(
    change: &mut Change<'_>,
    to: SegmentStatus,
    failure: Option<Digest>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE session_segments SET status = :to, failure_hash = :failure, finished_at = :now
             WHERE resource_key = :key AND status = 'recording'",
        )?
        .execute(named_params! { ":key": key, ":to": to, ":failure": failure, ":now": now })?;
    expect_one(written, "session_segments", change.resource().key())
}

/// The entry that has a role for an attempt, as (recording, place).
pub(crate) fn linked(
    change: &mut Change<'_>,
    attempt: i64,
    role: EntryRole,
) -> Result<Option<(ResourceKey, i64)>, StateError> {
    Ok(change
        .sql()
        .prepare_cached("SELECT segment_key, entry_seq FROM attempt_entries WHERE attempt_key = :attempt AND role = :role")?
        .query_row(named_params! { ":attempt": attempt, ":role": role }, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Gives an entry of the recording of this change a role for an attempt.
pub(crate) fn link(
    change: &mut Change<'_>,
    attempt: i64,
    role: EntryRole,
    seq: i64,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO attempt_entries (attempt_key, role, segment_key, entry_seq) VALUES (:attempt, :role, :key, :seq)",
        )?
        .execute(named_params! { ":attempt": attempt, ":role": role, ":key": key, ":seq": seq })?;
    expect_one(written, "attempt_entries", &attempt)
}

/// The prompt of an attempt is read from its entry from now on.
pub(crate) fn take_prompt(
    change: &mut Change<'_>,
    attempt: i64,
    prompt: Digest,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached("UPDATE node_attempts SET prompt_hash = NULL WHERE attempt_key = :attempt AND prompt_hash = :prompt")?
        .execute(named_params! { ":attempt": attempt, ":prompt": prompt })?;
    expect_one(written, "node_attempts", &attempt)
}
