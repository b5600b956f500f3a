//! `workflow_updates`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, Digest, StateError};

use crate::model::RequestStatus;
use crate::updates::Update;

/// What the last update of an attempt says about the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastUpdate {
    pub(crate) sequence: i64,
    pub(crate) pair_count: i64,
    pub(crate) rested_at: UnixMillis,
}

/// The last update of an attempt.
pub(crate) fn last(
    change: &mut Change<'_>,
    attempt: i64,
) -> Result<Option<LastUpdate>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT update_seq, pair_count, rested_at FROM workflow_updates
             WHERE attempt_key = :attempt ORDER BY update_seq DESC LIMIT 1",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| {
            Ok(LastUpdate {
                sequence: row.get(0)?,
                pair_count: row.get(1)?,
                rested_at: row.get(2)?,
            })
        })
        .optional()?)
}

/// Whether a pair of type and key has a value in an attempt.
pub(crate) fn has_pair(
    change: &mut Change<'_>,
    attempt: i64,
    update: &Update,
) -> Result<bool, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM workflow_updates
                 WHERE attempt_key = :attempt AND update_type = :type AND update_key = :key)",
        )?
        .query_row(
            named_params! { ":attempt": attempt, ":type": update.update_type(), ":key": update.key() },
            |row| row.get(0),
        )?)
}

/// An update that was stored under a request id.
#[derive(Debug, Clone)]
pub(crate) struct StoredUpdate {
    pub(crate) update_id: String,
    pub(crate) sequence: i64,
    pub(crate) run_revision: u64,
    pub(crate) update_type: String,
    pub(crate) key: String,
    pub(crate) data: Digest,
}

/// The update that the run of this change got under a request id, in the attempt or, without one, in any.
pub(crate) fn repeated(
    change: &mut Change<'_>,
    attempt: Option<i64>,
    request_id: &str,
) -> Result<Option<StoredUpdate>, StateError> {
    let run = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT u.update_id, u.update_seq, u.run_revision, u.update_type, u.update_key, u.data_hash
             FROM node_attempts a JOIN workflow_updates u ON u.attempt_key = a.attempt_key
             WHERE a.run_key = :run AND (:attempt IS NULL OR a.attempt_key = :attempt) AND u.request_id = :request_id
             ORDER BY u.attempt_key DESC LIMIT 1",
        )?
        .query_row(
            named_params! { ":run": run, ":attempt": attempt, ":request_id": request_id },
            |row| {
                Ok(StoredUpdate {
                    update_id: row.get(0)?,
                    sequence: row.get(1)?,
                    run_revision: row.get::<_, i64>(2)?.unsigned_abs(),
                    update_type: row.get(3)?,
                    key: row.get(4)?,
                    data: row.get(5)?,
                })
            },
        )
        .optional()?)
}

/// The attempt that asked a request, with the request's state.
pub(crate) fn attempt_of(
    change: &mut Change<'_>,
    request: i64,
) -> Result<(i64, RequestStatus), StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT attempt_key, status FROM interactive_requests WHERE request_key = :request",
        )?
        .query_row(named_params! { ":request": request }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?)
}

/// What a new row says beside the update itself.
pub(crate) struct NewRow<'a> {
    pub(crate) update_id: &'a str,
    pub(crate) attempt: i64,
    pub(crate) sequence: i64,
    pub(crate) pair_count: i64,
    pub(crate) rested_at: UnixMillis,
}

/// Appends an update at the next revision of the run of this change.
pub(crate) fn insert(
    change: &mut Change<'_>,
    update: &Update,
    row: &NewRow<'_>,
) -> Result<(), StateError> {
    let data = change.put_blob(update.data())?;
    let revision = i64::try_from(change.next_revision()).unwrap_or(i64::MAX);
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_updates (attempt_key, update_seq, update_id, request_id, run_revision, update_type, update_key,
                 data_hash, recorded_at, pair_count, rested_at)
             VALUES (:attempt, :seq, :id, :request_id, :revision, :type, :key, :data, :now, :pair_count, :rested_at)",
        )?
        .execute(named_params! {
            ":attempt": row.attempt, ":seq": row.sequence, ":id": row.update_id, ":request_id": update.request_id(),
            ":revision": revision, ":type": update.update_type(), ":key": update.key(), ":data": data, ":now": now,
            ":pair_count": row.pair_count, ":rested_at": row.rested_at,
        })?;
    expect_one(written, "workflow_updates", &row.update_id)
}
