//! Worker processes and what was answered to their messages.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use serde::Serialize;

use super::text_column;
use crate::id::RunId;
use crate::model::WorkerStatus;

/// A worker process of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerView {
    /// The generation of the run that it was launched for.
    pub generation: u64,
    /// Where it stands. One that counts as alive and whose run is not its own any more shows as `orphaned`.
    pub status: WorkerStatus,
    /// Its process; none before it was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// When it was launched.
    pub started_at: UnixMillis,
    /// When it was ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<UnixMillis>,
    /// When its end was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<UnixMillis>,
    /// The status with which its process ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How many of its messages were accepted.
    pub accepted_messages: u64,
    /// What it wrote last, and what its host had to say about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diagnostic: Option<String>,
}

/// The worker processes of a run, the latest first.
///
/// # Errors
///
/// Those of the database.
pub fn workers(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    now: UnixMillis,
    limit: usize,
) -> Result<Vec<WorkerView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT w.generation, w.status, w.pid, w.started_at, w.ready_at, w.finished_at, w.exit_code, w.signal,
             (SELECT count(*) FROM worker_messages m WHERE m.worker_key = w.worker_key AND m.outcome = 'accepted'),
             diagnostic.content, l.generation, l.expires_at
         FROM runs r
         JOIN run_workers w ON w.run_key = r.resource_key
         LEFT JOIN leases l ON l.resource_key = r.resource_key
         LEFT JOIN blobs diagnostic ON diagnostic.blob_hash = w.diagnostic_hash
         WHERE r.run_id = :run ORDER BY w.generation DESC LIMIT :limit",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = statement.query_map(named_params! { ":run": run, ":limit": limit }, |row| {
        let generation = row.get::<_, i64>(0)?.unsigned_abs();
        let stored: WorkerStatus = row.get(1)?;
        let owned = row.get::<_, Option<i64>>(10)? == Some(generation.cast_signed());
        let live = row
            .get::<_, Option<UnixMillis>>(11)?
            .is_some_and(|at| now < at);
        let status = if stored.is_live() && !(owned && live) {
            WorkerStatus::Orphaned
        } else {
            stored
        };
        Ok(WorkerView {
            generation,
            status,
            pid: row.get(2)?,
            started_at: row.get(3)?,
            ready_at: row.get(4)?,
            finished_at: row.get(5)?,
            exit_code: row.get(6)?,
            signal: row.get(7)?,
            accepted_messages: row.get::<_, i64>(8)?.unsigned_abs(),
            diagnostic: text_column(row, 9)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The fingerprint of a message that was accepted, and the answer that it got.
pub(crate) fn saved_answer(
    snapshot: &Snapshot<'_>,
    epoch: &str,
    message: u64,
) -> Result<Option<(Digest, Vec<u8>)>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT m.request_fingerprint, result.content
             FROM run_workers w
             JOIN worker_messages m ON m.worker_key = w.worker_key AND m.message_number = :message
             JOIN blobs result ON result.blob_hash = m.result_hash
             WHERE w.worker_epoch = :epoch",
        )?
        .query_row(
            named_params! { ":epoch": epoch, ":message": message.cast_signed() },
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?)
}
