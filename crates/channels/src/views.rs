//! What readers see: each view is one SELECT on a snapshot. Nothing here writes.

use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Snapshot, StateError};

use crate::model::{Channel, Name};

/// The channel of that name.
///
/// # Errors
///
/// Those of the database.
pub fn fetch(snapshot: &Snapshot<'_>, name: &Name) -> Result<Option<Channel>, StateError> {
    snapshot
        .sql()
        .prepare_cached(
            "SELECT w.name, r.revision, w.created_at FROM channels w
             JOIN resources r ON r.resource_key = w.resource_key
             WHERE w.name = :name",
        )?
        .query_row(named_params! { ":name": name.as_str() }, |row| {
            Ok(Channel {
                name: row.get(0)?,
                // SQLite has no unsigned integers; a revision is never below 1.
                revision: row.get::<_, i64>(1)?.unsigned_abs(),
                created_at: row.get(2)?,
            })
        })
        .optional()
        .map_err(StateError::from)
}
