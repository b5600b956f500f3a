//! What readers see. Every view reads a snapshot and never writes: none makes, queues or repairs anything, and a project that is not known is
//! empty.
//!
//! Owners of claims, tokens and what providers said privately are in none of them.
#![warn(clippy::wildcard_enum_match_arm)]

pub(crate) mod children;
mod due;
pub(crate) mod effects;
mod events;
mod explain;
mod list;
pub(crate) mod stored;

use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use serde::Serialize;

pub use children::children;
pub(crate) use children::untold;
pub use due::{Due, DueQuery, due};
pub use effects::effects;
pub use events::{EventView, events};
pub use explain::{Blocker, Explanation, explain};
pub use list::{Filter, QueueState, ReadyView, ResourceSummary, list};

use crate::error::ControllerError;
use crate::model::{ManagedResource, Target, Uid};

/// A managed resource; none when there is none of that name.
///
/// # Errors
///
/// Those of the database, and [`ControllerError::Corrupt`] for a document that is not the one that was stored.
pub fn resource(
    snapshot: &Snapshot<'_>,
    target: &Target,
) -> Result<Option<ManagedResource>, ControllerError> {
    match stored::find(&snapshot.sql(), target)? {
        Some(uid) => resource_of(snapshot, &uid),
        None => Ok(None),
    }
}

/// The managed resource of a uid; none when it was deleted.
///
/// # Errors
///
/// As [`resource`].
pub fn resource_of(
    snapshot: &Snapshot<'_>,
    uid: &Uid,
) -> Result<Option<ManagedResource>, ControllerError> {
    let sql = snapshot.sql();
    match stored::key_of(&sql, uid)? {
        Some(key) => stored::load(&sql, key),
        None => Ok(None),
    }
}

/// The uid of a target; none when there is no such resource.
///
/// # Errors
///
/// Those of the database.
pub fn uid(snapshot: &Snapshot<'_>, target: &Target) -> Result<Option<Uid>, ControllerError> {
    Ok(stored::find(&snapshot.sql(), target)?)
}

/// Whose child a request is.
pub(crate) fn uid_of_request(
    snapshot: &Snapshot<'_>,
    request: &str,
) -> Result<Option<Uid>, ControllerError> {
    Ok(children::by_request(&snapshot.sql(), request)?.map(|child| child.resource_uid))
}

/// What waits for a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueView {
    /// When the next pass is.
    pub available_at: UnixMillis,
    /// How many wake-ups the row has seen.
    pub queue_version: u64,
    /// How many passes failed since the last that did not.
    pub consecutive_errors: u64,
    /// Why the last one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// What waits for a resource; none when nothing does.
///
/// # Errors
///
/// Those of the database.
pub fn queue(snapshot: &Snapshot<'_>, uid: &Uid) -> Result<Option<QueueView>, ControllerError> {
    let sql = snapshot.sql();
    let Some(key) = stored::key_of(&sql, uid)? else {
        return Ok(None);
    };
    Ok(sql
        .prepare_cached(
            "SELECT q.available_at, q.queue_version, q.consecutive_errors, coalesce(q.last_error, b.content)
             FROM controller_queue q LEFT JOIN blobs b ON b.blob_hash = q.last_error_hash WHERE q.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, |row| {
            Ok(QueueView {
                available_at: row.get(0)?,
                queue_version: row.get::<_, i64>(1)?.unsigned_abs(),
                consecutive_errors: row.get::<_, i64>(2)?.unsigned_abs(),
                last_error: stored::error_text(row.get(3)?),
            })
        })
        .optional()?)
}
