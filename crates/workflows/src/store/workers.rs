//! `run_workers` and `worker_messages`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, Digest, StateError};

use crate::model::{MessageOutcome, WorkerStatus};

/// A worker process that is about to be launched for the generation that this change claimed.
pub(crate) fn insert(
    change: &mut Change<'_>,
    epoch: &str,
    (host, generation): (&str, u64),
    envelope: Digest,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO run_workers (worker_epoch, run_key, generation, host_id, launch_envelope_hash, status, started_at)
             VALUES (:epoch, :key, :generation, :host, :envelope, 'starting', :now)",
        )?
        .execute(named_params! {
            ":epoch": epoch, ":key": key, ":generation": generation.cast_signed(), ":host": host, ":envelope": envelope,
            ":now": now,
        })?;
    expect_one(written, "run_workers", epoch)
}

/// Whoever claims the run knows that an earlier worker of it is nobody's any more.
pub(crate) fn orphan(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    change
        .sql()
        .prepare_cached(
            "UPDATE run_workers SET status = 'orphaned', finished_at = :now
             WHERE run_key = :key AND (status = 'starting' OR status = 'ready' OR status = 'running')",
        )?
        .execute(named_params! { ":key": key, ":now": now })?;
    Ok(())
}

/// The process of a worker, as its host knows it.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// What tells it from a later process with the same number.
    pub(crate) start: String,
}

/// The worker said that it is ready.
pub(crate) fn ready(
    change: &mut Change<'_>,
    epoch: &str,
    process: &Process,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_workers SET status = 'ready', pid = :pid, process_start_identity = :start, ready_at = :now
             WHERE worker_epoch = :epoch AND run_key = :key AND status = 'starting'",
        )?
        .execute(named_params! {
            ":epoch": epoch, ":key": key, ":pid": process.pid, ":start": process.start, ":now": now,
        })?;
    expect_one(written, "run_workers", epoch)
}

/// The worker begins: its first proposal is accepted in this change.
pub(crate) fn begin(change: &mut Change<'_>, epoch: &str) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE run_workers SET status = 'running' WHERE worker_epoch = :epoch AND run_key = :key AND status = 'ready'",
        )?
        .execute(named_params! { ":epoch": epoch, ":key": key })?;
    expect_one(written, "run_workers", epoch)
}

/// How a worker ended.
pub(crate) struct Ending {
    pub(crate) status: WorkerStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) diagnostic: Option<Digest>,
}

/// The worker ended. One that was found to be orphaned before stays that; what is known of its process is added.
pub(crate) fn finish(
    change: &mut Change<'_>,
    epoch: &str,
    ending: &Ending,
) -> Result<(), StateError> {
    let now = change.now();
    change
        .sql()
        .prepare_cached(
            "UPDATE run_workers SET status = CASE WHEN finished_at IS NULL THEN :status ELSE status END,
                 finished_at = coalesce(finished_at, :now), exit_code = :exit_code, signal = :signal, diagnostic_hash = :diagnostic
             WHERE worker_epoch = :epoch",
        )?
        .execute(named_params! {
            ":epoch": epoch, ":status": ending.status, ":exit_code": ending.exit_code, ":signal": ending.signal,
            ":diagnostic": ending.diagnostic, ":now": now,
        })?;
    Ok(())
}

/// A message of a worker, by its number.
#[derive(Debug, Clone)]
pub(crate) struct Message<'a> {
    pub(crate) epoch: &'a str,
    pub(crate) id: u64,
    pub(crate) fingerprint: Digest,
}

/// What became of a message: the answer to a repeat. The primary key is the arbiter of a number that is used twice.
pub(crate) fn insert_message(
    change: &mut Change<'_>,
    message: &Message<'_>,
    outcome: MessageOutcome,
    (result, error): (Option<Digest>, Option<Digest>),
) -> Result<(), StateError> {
    let now = change.now();
    let revision = match outcome {
        MessageOutcome::Accepted => Some(change.next_revision().cast_signed()),
        MessageOutcome::Rejected | MessageOutcome::ClaimLost => None,
    };
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO worker_messages (worker_key, message_number, request_fingerprint, outcome, accepted_revision, result_hash,
                 error_hash, completed_at)
             SELECT worker_key, :id, :fingerprint, :outcome, :revision, :result, :error, :now
             FROM run_workers WHERE worker_epoch = :epoch",
        )?
        .execute(named_params! {
            ":epoch": message.epoch, ":id": message.id.cast_signed(), ":fingerprint": message.fingerprint,
            ":outcome": outcome, ":revision": revision, ":result": result, ":error": error, ":now": now,
        })?;
    expect_one(written, "worker_messages", message.epoch)
}
