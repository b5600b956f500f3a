//! `controller_queue`: one row for each resource that is to be looked at.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::{ResourceKey, expect_one};
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, StateError};

use super::{integer, keep_error};

/// What waits for a resource.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) available_at: UnixMillis,
    pub(crate) queue_version: u64,
    pub(crate) consecutive_errors: u64,
}

/// What waits for the resource of this change.
pub(crate) fn waiting(change: &mut Change<'_>) -> Result<Option<Waiting>, StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT available_at, queue_version, consecutive_errors FROM controller_queue WHERE resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(Waiting {
                available_at: row.get(0)?,
                queue_version: row.get::<_, i64>(1)?.unsigned_abs(),
                consecutive_errors: row.get::<_, i64>(2)?.unsigned_abs(),
            })
        })
        .optional()?)
}

/// Asks for a pass of a resource at `at`, or at the earlier time that is asked for already. Every call grows the version, so that a pass
/// that goes on sees that something came.
pub(crate) fn enqueue_key(
    change: &mut Change<'_>,
    key: ResourceKey,
    at: UnixMillis,
) -> Result<(), StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO controller_queue (resource_key, project_id, controller_name, available_at, queue_version, created_at, updated_at)
             SELECT resource_key, project_id, controller_name, :at, 1, :now, :now FROM controller_resources WHERE resource_key = :key
             ON CONFLICT (resource_key) DO UPDATE SET available_at = min(controller_queue.available_at, excluded.available_at),
                 queue_version = controller_queue.queue_version + 1, updated_at = excluded.updated_at",
        )?
        .execute(named_params! { ":key": key, ":at": at, ":now": now })?;
    expect_one(written, "controller_queue", "the row of a resource")
}

/// Asks for a pass of this change's resource.
pub(crate) fn enqueue(change: &mut Change<'_>, at: UnixMillis) -> Result<(), StateError> {
    let key = change.resource_key()?;
    enqueue_key(change, key, at)
}

/// The pass found nothing more to do.
pub(crate) fn remove(change: &mut Change<'_>, seen_version: u64) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "DELETE FROM controller_queue WHERE resource_key = :key AND queue_version = :seen",
        )?
        .execute(named_params! { ":key": key, ":seen": integer(seen_version) })?;
    expect_one(written, "controller_queue", change.resource().key())
}

/// When the next pass is, and what it must know.
pub(crate) struct Again<'a> {
    pub(crate) at: UnixMillis,
    /// Whether this is a wake-up of its own, beside those that were counted.
    pub(crate) is_new: bool,
    pub(crate) errors: u64,
    pub(crate) error: Option<&'a str>,
}

/// Sets when the next pass is.
pub(crate) fn set(change: &mut Change<'_>, again: &Again<'_>) -> Result<(), StateError> {
    let error = keep_error(change, again.error)?;
    let (digest, inline, hash) = error
        .as_ref()
        .map_or((None, None, None), |error| error.columns());
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE controller_queue SET available_at = :at, queue_version = queue_version + :grown, consecutive_errors = :errors,
                 last_error_digest = :digest, last_error = :error, last_error_hash = :hash, updated_at = :now
             WHERE resource_key = :key",
        )?
        .execute(named_params! {
            ":key": key, ":at": again.at, ":grown": i64::from(again.is_new), ":errors": integer(again.errors),
            ":digest": digest, ":error": inline, ":hash": hash, ":now": now,
        })?;
    expect_one(written, "controller_queue", change.resource().key())
}

/// The next pass is at once; what is known of failures stays.
pub(crate) fn make_due(change: &mut Change<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached("UPDATE controller_queue SET available_at = :now, updated_at = :now WHERE resource_key = :key")?
        .execute(named_params! { ":key": key, ":now": now })?;
    expect_one(written, "controller_queue", change.resource().key())
}
