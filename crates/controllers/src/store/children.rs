//! `controller_workflows`: the runs that resources asked for.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::{ResourceKey, expect_one};
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, StateError};
use holdpoint_workflows::RunId;

use super::{integer, keep_error};
use crate::error::ControllerError;
use crate::model::{ChildRecord, ChildRequest, ChildState, RequestKey, Uid};
use crate::views::children as read;

/// A child under a request key of this change's resource.
pub(crate) fn by_key(
    change: &mut Change<'_>,
    request: &RequestKey,
) -> Result<Option<ChildRecord>, ControllerError> {
    let key = change.resource_key()?;
    read::by_key(&change.sql(), key, request)
}

/// A child by the id of its request, whosever it is.
pub(crate) fn by_request(
    change: &Change<'_>,
    request: &str,
) -> Result<Option<ChildRecord>, ControllerError> {
    read::by_request(&change.sql(), request)
}

/// The request that reserved a run, and whose it is. None also for a resource that can't be told: its rows are damaged, and a telling that
/// fails after it wrote would undo the end of the run with it.
pub(crate) fn of_run(
    change: &Change<'_>,
    run: &RunId,
) -> Result<Option<(String, Uid)>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT w.request_id, r.aggregate_key FROM controller_workflows w JOIN resources r ON r.resource_key = w.resource_key
             JOIN controller_resources c ON c.resource_key = w.resource_key
             WHERE w.reserved_run_id = :run AND r.resource_type = 'controller'
                 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.resource_key = w.resource_key AND e.resource_revision > r.revision)",
        )?
        .query_row(named_params! { ":run": run }, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Writes the first attempt of a request.
pub(crate) fn insert(
    change: &mut Change<'_>,
    request_id: &str,
    request: &ChildRequest,
    fingerprint: Digest,
    run: &RunId,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO controller_workflows (request_id, resource_key, request_key, workflow_name, input_fingerprint, reserved_run_id,
                 status, attempt_count, created_at, updated_at)
             VALUES (:request, :key, :request_key, :workflow, :fingerprint, :run, 'pending', 1, :now, :now)",
        )?
        .execute(named_params! {
            ":request": request_id, ":key": key, ":request_key": request.request_key, ":workflow": request.workflow,
            ":fingerprint": fingerprint, ":run": run, ":now": now,
        })?;
    expect_one(written, "controller_workflows", request_id)
}

/// Writes the next attempt of a request.
pub(crate) fn begin_attempt(
    change: &mut Change<'_>,
    child: &ChildRecord,
    run: &RunId,
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_workflows SET attempt_count = :before + 1, reserved_run_id = :run, run_key = NULL, status = 'pending',
                 error_digest = NULL, error = NULL, error_hash = NULL, updated_at = :now
             WHERE request_id = :request AND attempt_count = :before",
        )?
        .execute(named_params! {
            ":request": child.request_id, ":before": integer(child.attempt), ":run": run, ":now": now,
        })?;
    expect_one(written, "controller_workflows", &child.request_id)
}

/// What is known of the run of a child.
pub(crate) struct RunOfChild {
    pub(crate) key: ResourceKey,
    pub(crate) state: ChildState,
    pub(crate) error: Option<String>,
}

/// The run of an id, as the state of the child whose run it is. A run that a stopping host gave back goes on.
pub(crate) fn run(change: &Change<'_>, run: &RunId) -> Result<Option<RunOfChild>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.resource_key, r.status, q.status = 'parked' AND (r.status = 'waiting' OR r.paused = 1 OR q.error_code IS NOT NULL)
             FROM runs r JOIN run_queue q ON q.run_key = r.resource_key WHERE r.run_id = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            let (status, waits): (String, bool) = (row.get(1)?, row.get(2)?);
            let state = match status.as_str() {
                "completed" => ChildState::Succeeded,
                "failed" | "timed_out" | "cancelled" => ChildState::Failed,
                _ if waits => ChildState::Waiting,
                _ => ChildState::Running,
            };
            Ok(RunOfChild {
                key: row.get(0)?,
                state,
                error: (state == ChildState::Failed).then(|| ended(&status)),
            })
        })
        .optional()?)
}

/// How a run ended, in words.
pub(crate) fn ended(status: &str) -> String {
    format!("the run ended as {status}")
}

/// Writes where a child is.
pub(crate) fn set_state(
    change: &mut Change<'_>,
    request: &str,
    state: ChildState,
    run: Option<ResourceKey>,
    error: Option<&str>,
) -> Result<(), StateError> {
    let error = keep_error(change, error)?;
    let (digest, inline, hash) = error
        .as_ref()
        .map_or((None, None, None), |error| error.columns());
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_workflows SET status = :state, run_key = coalesce(:run, run_key), error_digest = :digest, error = :error,
                 error_hash = :hash, updated_at = :now
             WHERE request_id = :request AND (status = :state OR (status <> 'succeeded' AND status <> 'failed'))",
        )?
        .execute(named_params! {
            ":request": request, ":state": state, ":run": run, ":digest": digest, ":error": inline, ":hash": hash, ":now": now,
        })?;
    expect_one(written, "controller_workflows", request)
}
