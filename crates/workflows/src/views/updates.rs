//! What attempts published: the values that hold now, and all of them in order.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{Row, SqlError, named_params};
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;
use serde_json::Value;

use super::json_column;
use crate::id::{AttemptId, NodeId, RunId};
use crate::updates::estimate::{Estimate, Sample, estimate};
use crate::updates::{OVERALL, Progress, progress};

/// How many samples of a progress an estimate looks at: enough for its eight intervals and some samples that end none.
const SAMPLES: i64 = 64;

/// One published update.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateView {
    /// Its id.
    pub update_id: String,
    /// The attempt that published it.
    pub attempt_id: AttemptId,
    /// The node of the attempt.
    pub node_id: NodeId,
    /// Its number in the attempt, from 1.
    pub sequence: i64,
    /// The revision of the run that it made: unique, and growing, in the run.
    pub run_revision: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub update_type: String,
    /// Its key.
    pub key: String,
    /// Its data.
    pub data: Value,
    /// When it was recorded.
    pub recorded_at: UnixMillis,
}

/// How far the present attempt of a run is, as it said itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgressView {
    /// The node.
    pub node_id: NodeId,
    /// What it said last.
    pub progress: Progress,
    /// When it said so.
    pub recorded_at: UnixMillis,
    /// When it will be done, if that can be said.
    pub estimate: Option<Estimate>,
}

/// The values that hold now: of the attempt that goes on, or of the latest one, in the order in which they were published.
///
/// # Errors
///
/// Those of the database.
pub fn updates(snapshot: &Snapshot<'_>, run: &RunId) -> Result<Vec<UpdateView>, StateError> {
    let Some(attempt) = present_attempt(snapshot, run)? else {
        return Ok(Vec::new());
    };
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT u.update_id, a.attempt_id, a.node_id, u.update_seq, u.run_revision, u.update_type, u.update_key,
             b.content, u.recorded_at
         FROM workflow_updates u JOIN node_attempts a ON a.attempt_key = u.attempt_key
         LEFT JOIN blobs b ON b.blob_hash = u.data_hash
         WHERE u.attempt_key = :attempt AND u.update_seq = (SELECT max(l.update_seq) FROM workflow_updates l
             WHERE l.attempt_key = u.attempt_key AND l.update_type = u.update_type AND l.update_key = u.update_key)
         ORDER BY u.update_seq",
    )?;
    let rows = statement.query_map(named_params! { ":attempt": attempt }, from_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// All updates of a run above a revision of it, in order: at most `limit`.
///
/// # Errors
///
/// Those of the database.
pub fn update_history(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    after_revision: u64,
    limit: u16,
) -> Result<Vec<UpdateView>, StateError> {
    let after = i64::try_from(after_revision).unwrap_or(i64::MAX);
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT u.update_id, a.attempt_id, a.node_id, u.update_seq, u.run_revision, u.update_type, u.update_key,
             b.content, u.recorded_at
         FROM workflow_updates u JOIN node_attempts a ON a.attempt_key = u.attempt_key
         LEFT JOIN blobs b ON b.blob_hash = u.data_hash
         JOIN runs r ON r.resource_key = a.run_key
         WHERE r.run_id = :run AND :after < u.run_revision ORDER BY u.run_revision LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! { ":run": run, ":after": after, ":limit": i64::from(limit) },
        from_row,
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How far the present attempt is: its progress of key `overall`, or else the one that it published last.
///
/// # Errors
///
/// Those of the database.
pub fn current_progress(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    now: UnixMillis,
) -> Result<Option<ProgressView>, StateError> {
    let Some(attempt) = present_attempt(snapshot, run)? else {
        return Ok(None);
    };
    let mut samples: Vec<(NodeId, Sample)> = Vec::new();
    {
        let sql = snapshot.sql();
        let mut statement = sql.prepare_cached(
            "SELECT u.update_id, a.attempt_id, a.node_id, u.update_seq, u.run_revision, u.update_type, u.update_key,
             b.content, u.recorded_at
         FROM workflow_updates u JOIN node_attempts a ON a.attempt_key = u.attempt_key
         LEFT JOIN blobs b ON b.blob_hash = u.data_hash
         WHERE u.attempt_key = :attempt AND u.update_type = :type AND u.update_key = coalesce(
                 (SELECT o.update_key FROM workflow_updates o
                  WHERE o.attempt_key = :attempt AND o.update_type = :type AND o.update_key = :overall LIMIT 1),
                 (SELECT l.update_key FROM workflow_updates l
                  WHERE l.attempt_key = :attempt AND l.update_type = :type ORDER BY l.update_seq DESC LIMIT 1))
             ORDER BY u.update_seq DESC LIMIT :samples",
        )?;
        let parameters = named_params! {
            ":attempt": attempt, ":type": progress::TYPE, ":overall": OVERALL, ":samples": SAMPLES,
        };
        let rows = statement.query_map(parameters, from_row)?;
        for row in rows {
            let update = row?;
            // What a program of another version stored and this one can't read tells nothing.
            if let Ok(progress) = serde_json::from_value(update.data) {
                let at = update.recorded_at;
                samples.push((update.node_id, Sample { at, progress }));
            }
        }
    }
    let Some((node_id, latest)) = samples.first().cloned() else {
        return Ok(None);
    };
    let samples: Vec<Sample> = samples
        .into_iter()
        .rev()
        .map(|(_, sample)| sample)
        .collect();
    Ok(Some(ProgressView {
        node_id,
        recorded_at: latest.at,
        progress: latest.progress,
        estimate: estimate(&samples, now),
    }))
}

/// The attempt that goes on, or else the latest.
fn present_attempt(snapshot: &Snapshot<'_>, run: &RunId) -> Result<Option<i64>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT coalesce(
                 (SELECT a.attempt_key FROM node_attempts a WHERE a.run_key = r.resource_key
                     AND (a.status = 'pending' OR a.status = 'running' OR a.status = 'waiting')),
                 (SELECT max(a.attempt_key) FROM node_attempts a WHERE a.run_key = r.resource_key))
             FROM runs r WHERE r.run_id = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| row.get(0))
        .or_else(|error| match error {
            SqlError::QueryReturnedNoRows => Ok(None),
            other => Err(other),
        })?)
}

fn from_row(row: &Row<'_>) -> Result<UpdateView, SqlError> {
    Ok(UpdateView {
        update_id: row.get(0)?,
        attempt_id: row.get(1)?,
        node_id: row.get(2)?,
        sequence: row.get(3)?,
        run_revision: row.get::<_, i64>(4)?.unsigned_abs(),
        update_type: row.get(5)?,
        key: row.get(6)?,
        data: json_column(row, 7)?.unwrap_or_default(),
        recorded_at: row.get(8)?,
    })
}
