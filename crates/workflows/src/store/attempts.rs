//! `node_attempts` and `run_steps`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Content, Digest, ResourceKey, StateError};

use crate::id::{AttemptId, NodeId};
use crate::model::{AttemptStatus, RunStatus, TerminalStatus};
use crate::store::settings::BoundRow;

/// An attempt as commands see it.
#[derive(Debug, Clone)]
pub(crate) struct AttemptRow {
    pub(crate) key: i64,
    pub(crate) attempt_id: AttemptId,
    pub(crate) node_id: NodeId,
    pub(crate) node_type: String,
    pub(crate) status: AttemptStatus,
    pub(crate) started_at: UnixMillis,
    pub(crate) timeout_ms: Option<f64>,
    /// The settings that it began with: scope and change number.
    pub(crate) settings: Option<(ResourceKey, i64)>,
}

fn from_row(row: &Row<'_>) -> Result<AttemptRow, SqlError> {
    Ok(AttemptRow {
        key: row.get(0)?,
        attempt_id: row.get(1)?,
        node_id: row.get(2)?,
        node_type: row.get(3)?,
        status: row.get(4)?,
        started_at: row.get(5)?,
        timeout_ms: row.get(6)?,
        settings: row
            .get::<_, Option<ResourceKey>>(7)?
            .zip(row.get::<_, Option<i64>>(8)?),
    })
}

/// The attempt that goes on: pending, running or waiting.
pub(crate) fn active(change: &mut Change<'_>) -> Result<Option<AttemptRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT attempt_key, attempt_id, node_id, node_type, status, started_at, timeout_ms, settings_scope_key,
                 settings_change_number
             FROM node_attempts WHERE run_key = :key AND (status = 'pending' OR status = 'running' OR status = 'waiting')",
        )?
        .query_row(named_params! { ":key": key }, from_row)
        .optional()?)
}

/// Where the execution of a run stands: the cheap read of every step.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) status: RunStatus,
    pub(crate) detail: Option<String>,
    /// The attempt that goes on.
    pub(crate) active: Option<AttemptRow>,
    /// Whether that attempt ever asked something.
    pub(crate) asks: bool,
    /// Whether this very command begins the run, so that it has no history.
    pub(crate) is_first: bool,
}

impl Standing {
    /// A run that nobody executed yet has no attempts, so that nobody can have been asked either.
    pub(crate) fn begun(status: RunStatus) -> Self {
        Self {
            status,
            detail: None,
            active: None,
            asks: false,
            is_first: true,
        }
    }
}

/// Where the execution of this change's run stands.
pub(crate) fn standing(change: &mut Change<'_>) -> Result<Standing, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT a.attempt_key, a.attempt_id, a.node_id, a.node_type, a.status, a.started_at, a.timeout_ms,
                 a.settings_scope_key, a.settings_change_number, r.status, r.status_detail,
                 EXISTS (SELECT 1 FROM interactive_requests q WHERE q.attempt_key = a.attempt_key)
             FROM runs r
             LEFT JOIN node_attempts a ON a.run_key = r.resource_key
                 AND (a.status = 'pending' OR a.status = 'running' OR a.status = 'waiting')
             WHERE r.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            let attempt: Option<i64> = row.get(0)?;
            Ok(Standing {
                status: row.get(9)?,
                detail: row.get(10)?,
                active: attempt.map(|_| from_row(row)).transpose()?,
                asks: row.get(11)?,
                is_first: false,
            })
        })?)
}

/// The attempt of an accepted step, with what it ended with.
pub(crate) struct StepRow {
    pub(crate) attempt: AttemptRow,
    pub(crate) finished_at: Option<UnixMillis>,
    pub(crate) output: Option<Content>,
    pub(crate) error: Option<Digest>,
    pub(crate) receipt: Option<Digest>,
}

/// The attempt of the last accepted step.
pub(crate) fn last_step(change: &mut Change<'_>) -> Result<Option<StepRow>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT a.attempt_key, a.attempt_id, a.node_id, a.node_type, a.status, a.started_at, a.timeout_ms,
                 a.settings_scope_key, a.settings_change_number, a.finished_at, a.output_digest, a.output, a.output_hash, a.error_hash,
                 a.receipt_hash
             FROM run_steps s JOIN node_attempts a ON a.attempt_key = s.attempt_key
             WHERE s.run_key = :key ORDER BY s.step_index DESC LIMIT 1",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(StepRow {
                attempt: from_row(row)?,
                finished_at: row.get(9)?,
                output: Content::from_row(row, 10)?,
                error: row.get(13)?,
                receipt: row.get(14)?,
            })
        })
        .optional()?)
}

/// How often the run completed a node.
pub(crate) fn completed_at(change: &mut Change<'_>, node: &NodeId) -> Result<i64, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM node_attempts WHERE run_key = :key AND node_id = :node AND status = 'completed'",
        )?
        .query_row(named_params! { ":key": key, ":node": node.as_str() }, |row| row.get(0))?)
}

/// The nodes that the run has been at, with their types.
pub(crate) fn visited(change: &mut Change<'_>) -> Result<Vec<(String, String)>, StateError> {
    let key = change.resource_key()?;
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT DISTINCT node_id, node_type FROM node_attempts WHERE run_key = :key ORDER BY node_id",
    )?;
    let rows = statement.query_map(named_params! { ":key": key }, |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The bytes of a blob that a row of this domain refers to.
pub(crate) fn content(change: &mut Change<'_>, hash: Digest) -> Result<Vec<u8>, StateError> {
    change
        .sql()
        .prepare_cached("SELECT content FROM blobs WHERE blob_hash = :hash")?
        .query_row(named_params! { ":hash": hash }, |row| row.get(0))
        .optional()?
        .ok_or_else(|| StateError::Corrupt {
            what: format!("blob {hash}"),
            problem: "a row refers to it and it is not there".to_owned(),
        })
}

/// Keeps the prompt of an attempt.
pub(crate) fn set_prompt(
    change: &mut Change<'_>,
    attempt: i64,
    prompt: Digest,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET prompt_hash = :prompt WHERE attempt_key = :attempt AND finished_at IS NULL",
        )?
        .execute(named_params! { ":attempt": attempt, ":prompt": prompt })?;
    expect_one(written, "node_attempts", &attempt.to_string())
}

/// What a new attempt says.
pub(crate) struct NewRow<'a> {
    pub(crate) attempt_id: &'a AttemptId,
    pub(crate) node_id: &'a NodeId,
    pub(crate) node_type: &'a str,
    pub(crate) timeout_ms: Option<f64>,
    pub(crate) settings: Option<&'a BoundRow>,
}

/// Begins an attempt of the run of this change. Returns false when its id was used before.
pub(crate) fn insert(change: &mut Change<'_>, attempt: &NewRow<'_>) -> Result<bool, StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO node_attempts (attempt_id, run_key, node_id, attempt_number, node_type, status, started_at, timeout_ms,
                 settings_scope_key, settings_change_number, settings_hash)
             VALUES (:attempt_id, :key, :node_id,
                 (SELECT coalesce(max(attempt_number), 0) + 1 FROM node_attempts WHERE run_key = :key AND node_id = :node_id),
                 :node_type, 'running', :now, :timeout_ms, :scope, :change_number, :settings)
             ON CONFLICT (attempt_id) DO NOTHING",
        )?
        .execute(named_params! {
            ":attempt_id": attempt.attempt_id.as_str(), ":key": key, ":node_id": attempt.node_id.as_str(),
            ":node_type": attempt.node_type, ":now": now, ":timeout_ms": attempt.timeout_ms,
            ":scope": attempt.settings.map(|bound| bound.key), ":change_number": attempt.settings.map(|bound| bound.change_number),
            ":settings": attempt.settings.map(|bound| bound.hash),
        })?;
    Ok(written == 1)
}

/// Sets the budget of an attempt that has none yet.
pub(crate) fn set_timeout(
    change: &mut Change<'_>,
    attempt: i64,
    timeout_ms: f64,
) -> Result<bool, StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET timeout_ms = :timeout_ms WHERE attempt_key = :attempt AND timeout_ms IS NULL",
        )?
        .execute(named_params! { ":attempt": attempt, ":timeout_ms": timeout_ms })?;
    Ok(written == 1)
}

/// Lets a settings route read the settings as they are now.
pub(crate) fn rebind(
    change: &mut Change<'_>,
    attempt: i64,
    bound: &BoundRow,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET settings_change_number = :number, settings_hash = :hash
             WHERE attempt_key = :attempt AND settings_scope_key = :scope AND settings_change_number < :number
                 AND finished_at IS NULL",
        )?
        .execute(named_params! {
            ":attempt": attempt, ":scope": bound.key, ":number": bound.change_number, ":hash": bound.hash,
        })?;
    expect_one(written, "node_attempts", &attempt)
}

/// Leaves one open state of an attempt for another.
pub(crate) fn set_status(
    change: &mut Change<'_>,
    attempt: i64,
    from: AttemptStatus,
    to: AttemptStatus,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET status = :to WHERE attempt_key = :attempt AND status = :from AND finished_at IS NULL",
        )?
        .execute(named_params! { ":attempt": attempt, ":from": from, ":to": to })?;
    expect_one(written, "node_attempts", &attempt)
}

/// What the end of an attempt says.
pub(crate) struct Ending<'a> {
    pub(crate) status: AttemptStatus,
    pub(crate) output: Option<&'a Content>,
    pub(crate) receipt: Option<Digest>,
    pub(crate) error: Option<Digest>,
    pub(crate) finished_at: UnixMillis,
}

/// Ends an attempt.
pub(crate) fn finish(
    change: &mut Change<'_>,
    attempt: i64,
    ending: &Ending<'_>,
) -> Result<(), StateError> {
    let output = ending.output.map(Content::columns).unwrap_or_default();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET status = :status, output_digest = :output_digest, output = :output, output_hash = :output_blob,
                 receipt_hash = :receipt, error_hash = :error, finished_at = :finished_at
             WHERE attempt_key = :attempt AND finished_at IS NULL",
        )?
        .execute(named_params! {
            ":attempt": attempt, ":status": ending.status, ":output_digest": output.0, ":output": output.1,
            ":output_blob": output.2, ":receipt": ending.receipt, ":error": ending.error, ":finished_at": ending.finished_at,
        })?;
    expect_one(written, "node_attempts", &attempt)
}

/// Ends every attempt of the run that is still open; its first error stays.
pub(crate) fn close_open(
    change: &mut Change<'_>,
    status: TerminalStatus,
    error: Option<Digest>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET status = :status, error_hash = coalesce(error_hash, :error), finished_at = :now
             WHERE run_key = :key AND finished_at IS NULL",
        )?
        .execute(named_params! {
            ":key": key, ":status": status.open_attempt(), ":error": error, ":now": now,
        })?;
    Ok(())
}

/// Gives up the attempts that a recovery replaces. Returns how many there were.
pub(crate) fn replace_open(change: &mut Change<'_>) -> Result<usize, StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    Ok(change
        .sql()
        .prepare_cached(
            "UPDATE node_attempts SET status = 'cancelled', finished_at = :now
             WHERE run_key = :key AND finished_at IS NULL",
        )?
        .execute(named_params! { ":key": key, ":now": now })?)
}

/// Appends a finished attempt to the history of the run.
pub(crate) fn append_step(change: &mut Change<'_>, attempt: i64) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO run_steps (run_key, step_index, attempt_key)
             VALUES (:key, (SELECT coalesce(max(step_index), -1) + 1 FROM run_steps WHERE run_key = :key), :attempt)",
        )?
        .execute(named_params! { ":key": key, ":attempt": attempt })?;
    expect_one(written, "run_steps", &attempt)
}
