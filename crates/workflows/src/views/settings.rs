//! Live settings: what they are now, and how they became so.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use serde::Serialize;
use serde_json::Value;

use super::json_column;
use crate::error::WorkflowError;
use crate::id::{RunId, ScopeId};
use crate::model::RunStatus;

/// The settings of one invocation of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsView {
    /// The scope.
    pub scope_id: ScopeId,
    /// The mount that has them; the root has the empty path.
    pub mount_path: String,
    /// The invocation, from 1.
    pub invocation: u32,
    /// How often they were changed: what a change may expect.
    pub change_number: u64,
    /// The document.
    pub value: Value,
    /// When they last changed, or were made.
    pub updated_at: UnixMillis,
}

/// One accepted change.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsChangeView {
    /// Its number, from 1.
    pub change_number: u64,
    /// The change.
    pub change_id: String,
    /// The request that made it.
    pub request_id: String,
    /// What kind of actor made it. Who that was stays in the store.
    pub actor_type: String,
    /// From where it came.
    pub source: String,
    /// The patch.
    pub patch: Value,
    /// The document after it.
    pub value: Value,
    /// When it was accepted.
    pub accepted_at: UnixMillis,
}

/// A part of the history of a scope, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsHistory {
    /// The scope.
    pub scope_id: ScopeId,
    /// What it began with.
    pub initial: Value,
    /// The changes.
    pub changes: Vec<SettingsChangeView>,
    /// The number to go on after, when there are more.
    pub next: Option<u64>,
}

/// The scopes of a run, by mount path and invocation. A run without settings, or none of that id, has none.
///
/// # Errors
///
/// Those of the database.
pub fn settings(snapshot: &Snapshot<'_>, run: &RunId) -> Result<Vec<SettingsView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT s.scope_id, s.mount_path, s.invocation, s.change_number, b.content, c.updated_at
         FROM runs r
         JOIN workflow_settings s ON s.active_run_key = r.resource_key
         JOIN resources c ON c.resource_key = s.resource_key
         LEFT JOIN blobs b ON b.blob_hash = s.current_hash
         WHERE r.run_id = :run ORDER BY s.mount_path, s.invocation",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, |row| {
        Ok(SettingsView {
            scope_id: row.get(0)?,
            mount_path: row.get(1)?,
            invocation: row.get(2)?,
            change_number: row.get::<_, i64>(3)?.unsigned_abs(),
            value: json_column(row, 4)?.unwrap_or(Value::Null),
            updated_at: row.get(5)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The changes of a scope with a number above `after`, at most `limit`; the only scope of the run unless one is named.
///
/// # Errors
///
/// [`WorkflowError::NoRun`], [`WorkflowError::NoSettings`], and [`WorkflowError::Input`] when one has to be named.
pub fn settings_history(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    scope: Option<&str>,
    (after, limit): (u64, usize),
) -> Result<SettingsHistory, WorkflowError> {
    let scope = find(snapshot, run, scope)?;
    let initial = document(snapshot, scope.initial)?;
    let limit = limit.max(1);
    let mut changes = changes(snapshot, scope.key, after, limit)?;
    let more = limit < changes.len();
    changes.truncate(limit);
    let next = changes
        .last()
        .filter(|_| more)
        .map(|change| change.change_number);
    Ok(SettingsHistory {
        scope_id: scope.scope_id,
        initial,
        changes,
        next,
    })
}

/// One change more than `limit`, if there is one.
fn changes(
    snapshot: &Snapshot<'_>,
    scope: i64,
    after: u64,
    limit: usize,
) -> Result<Vec<SettingsChangeView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT c.change_number, c.change_id, c.request_id, c.actor_type, c.source_type, patch.content, after.content,
             c.accepted_at
         FROM workflow_setting_changes c
         LEFT JOIN blobs patch ON patch.blob_hash = c.patch_hash
         LEFT JOIN blobs after ON after.blob_hash = c.after_hash
         WHERE c.scope_key = :scope AND c.change_number > :after ORDER BY c.change_number LIMIT :limit",
    )?;
    let parameters = named_params! {
        ":scope": scope,
        ":after": i64::try_from(after).unwrap_or(i64::MAX),
        ":limit": i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1),
    };
    let rows = statement.query_map(parameters, |row| {
        Ok(SettingsChangeView {
            change_number: row.get::<_, i64>(0)?.unsigned_abs(),
            change_id: row.get(1)?,
            request_id: row.get(2)?,
            actor_type: row.get(3)?,
            source: row.get(4)?,
            patch: json_column(row, 5)?.unwrap_or(Value::Null),
            value: json_column(row, 6)?.unwrap_or(Value::Null),
            accepted_at: row.get(7)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

struct Found {
    key: i64,
    scope_id: ScopeId,
    mount_path: String,
    change_number: u64,
    initial: Digest,
    current: Digest,
    status: RunStatus,
}

/// The named scope of a run, or its only one.
fn find(snapshot: &Snapshot<'_>, run: &RunId, scope: Option<&str>) -> Result<Found, WorkflowError> {
    let mut found = scopes(snapshot, run, scope)?;
    let Some(first) = found.pop() else {
        if !exists(snapshot, run)? {
            return Err(WorkflowError::NoRun {
                run: run.to_string(),
            });
        }
        return Err(WorkflowError::NoSettings {
            run: run.to_string(),
            scope: scope.map(str::to_owned),
        });
    };
    if found.is_empty() {
        return Ok(first);
    }
    let mut names: Vec<String> = found
        .iter()
        .map(|found| found.scope_id.to_string())
        .collect();
    names.push(first.scope_id.to_string());
    Err(WorkflowError::Input {
        what: "settings scope",
        problem: format!("run {run} has several; name one of {}", names.join(", ")),
    })
}

fn scopes(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    scope: Option<&str>,
) -> Result<Vec<Found>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT s.resource_key, s.scope_id, s.mount_path, s.change_number, s.initial_hash, s.current_hash, r.status
         FROM runs r JOIN workflow_settings s ON s.active_run_key = r.resource_key
         WHERE r.run_id = :run AND (:scope IS NULL OR s.scope_id = :scope) ORDER BY s.mount_path, s.invocation",
    )?;
    let rows = statement.query_map(named_params! { ":run": run, ":scope": scope }, |row| {
        Ok(Found {
            key: row.get(0)?,
            scope_id: row.get(1)?,
            mount_path: row.get(2)?,
            change_number: row.get::<_, i64>(3)?.unsigned_abs(),
            initial: row.get(4)?,
            current: row.get(5)?,
            status: row.get(6)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn exists(snapshot: &Snapshot<'_>, run: &RunId) -> Result<bool, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached("SELECT 1 FROM runs WHERE run_id = :run")?
        .exists(named_params! { ":run": run })?)
}

/// A scope as a change finds it.
#[derive(Debug, Clone)]
pub(crate) struct ScopeToChange {
    pub(crate) scope_id: ScopeId,
    pub(crate) mount_path: String,
    pub(crate) status: RunStatus,
    pub(crate) change_number: u64,
    pub(crate) value: Value,
    /// Whether the request made a change already.
    pub(crate) is_repeat: bool,
}

/// The scope that a request wants to change.
pub(crate) fn scope_to_change(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    scope: Option<&str>,
    request: &str,
) -> Result<ScopeToChange, WorkflowError> {
    let found = find(snapshot, run, scope)?;
    let is_repeat = was_made(snapshot, found.key, request)?;
    Ok(ScopeToChange {
        value: document(snapshot, found.current)?,
        scope_id: found.scope_id,
        mount_path: found.mount_path,
        status: found.status,
        change_number: found.change_number,
        is_repeat,
    })
}

fn was_made(snapshot: &Snapshot<'_>, scope: i64, request: &str) -> Result<bool, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT 1 FROM workflow_setting_changes WHERE scope_key = :scope AND request_id = :request",
        )?
        .exists(named_params! { ":scope": scope, ":request": request })?)
}

/// The document with this digest.
pub(crate) fn document(snapshot: &Snapshot<'_>, hash: Digest) -> Result<Value, WorkflowError> {
    let corrupt = |problem: String| {
        WorkflowError::State(StateError::Corrupt {
            what: format!("settings {hash}"),
            problem,
        })
    };
    let bytes: Option<Vec<u8>> = snapshot
        .sql()
        .prepare_cached("SELECT content FROM blobs WHERE blob_hash = :hash")?
        .query_row(named_params! { ":hash": hash }, |row| row.get(0))
        .optional()
        .map_err(StateError::from)?;
    let bytes = bytes.ok_or_else(|| corrupt("its blob is not there".to_owned()))?;
    serde_json::from_slice(&bytes).map_err(|error| corrupt(error.to_string()))
}

/// The document of the latest scope of a mount of a run, as it is now.
pub(crate) fn present_settings(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    mount_path: &str,
) -> Result<Option<Value>, WorkflowError> {
    scopes(snapshot, run, None)?
        .into_iter()
        .rfind(|found| found.mount_path == mount_path)
        .map(|found| document(snapshot, found.current))
        .transpose()
}
