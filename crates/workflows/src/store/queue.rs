//! `run_queue`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, Digest, StateError};

use crate::model::{ExecutionMode, QueueStatus, TerminalStatus};

/// Queues the run of this change. Only an interactive run reserves its session.
pub(crate) fn insert(
    change: &mut Change<'_>,
    session: &str,
    mode: ExecutionMode,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let session = match mode {
        ExecutionMode::Interactive => Some(session),
        ExecutionMode::Headless => None,
    };
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO run_queue (run_key, status, available_at, origin_session_id, created_at)
             VALUES (:key, 'queued', :now, :session, :now)",
        )?
        .execute(named_params! { ":key": key, ":session": session, ":now": now })?;
    expect_one(written, "run_queue", change.resource().key())
}

/// A runner took the run: the stored error is cleared, the start is noted once.
pub(crate) fn execute(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_queue SET status = 'running', error_code = NULL, error_hash = NULL, consecutive_errors = 0,
                 started_at = coalesce(started_at, :now)
             WHERE run_key = :key AND (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked')",
        )?
        .execute(named_params! { ":key": key, ":now": now })?;
    expect_one(written, "run_queue", change.resource().key())
}

/// A worker process is launched for the run. It has begun nothing yet.
pub(crate) fn launch(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_queue SET status = 'starting', error_code = NULL, error_hash = NULL, consecutive_errors = 0
             WHERE run_key = :key AND (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked')",
        )?
        .execute(named_params! { ":key": key })?;
    expect_one(written, "run_queue", change.resource().key())
}

/// No runner executes the run now.
pub(crate) fn park(
    change: &mut Change<'_>,
    code: Option<&str>,
    detail: Option<Digest>,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_queue SET status = 'parked', error_code = :code, error_hash = :detail
             WHERE run_key = :key AND (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked')",
        )?
        .execute(named_params! { ":key": key, ":code": code, ":detail": detail })?;
    expect_one(written, "run_queue", change.resource().key())
}

/// The run waits for a runner, from now on.
pub(crate) fn make_eligible(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_queue SET status = :status, available_at = :now, error_code = NULL, error_hash = NULL
             WHERE run_key = :key AND (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked')",
        )?
        .execute(named_params! { ":key": key, ":status": QueueStatus::Queued, ":now": now })?;
    expect_one(written, "run_queue", change.resource().key())
}

/// The run is over.
pub(crate) fn settle(
    change: &mut Change<'_>,
    status: TerminalStatus,
    code: Option<&str>,
    error: Option<Digest>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_queue SET status = :status, error_code = :code, error_hash = :error, finished_at = :now
             WHERE run_key = :key AND (status = 'queued' OR status = 'starting' OR status = 'running' OR status = 'parked')",
        )?
        .execute(named_params! {
            ":key": key, ":status": status.queue(), ":code": code, ":error": error, ":now": now,
        })?;
    expect_one(written, "run_queue", change.resource().key())
}
