//! What readers see: each view is one SELECT on a snapshot. Nothing here writes.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Snapshot, StateError};

use crate::model::{Account, Budget, Limit, Name};

/// The budget of that name as it is at `now`: what the row says of a window that is over does not count.
///
/// # Errors
///
/// Those of the database.
pub fn fetch(
    snapshot: &Snapshot<'_>,
    name: &Name,
    now: UnixMillis,
) -> Result<Option<Budget>, StateError> {
    snapshot
        .sql()
        .prepare_cached(
            "SELECT b.name, r.revision, b.limit_units, b.window_ms, b.window_started_at, b.spent_units
             FROM budgets b JOIN resources r ON r.resource_key = b.resource_key
             WHERE b.name = :name",
        )?
        .query_row(named_params! { ":name": name.as_str() }, |row| {
            let limit = Limit {
                units: row.get(2)?,
                window_ms: row.get(3)?,
            };
            let account = Account {
                limit,
                window: row.get(4)?,
                spent_units: row.get(5)?,
            }
            .at(now);
            Ok(Budget {
                name: row.get(0)?,
                // SQLite has no unsigned integers; a revision is never below 1.
                revision: row.get::<_, i64>(1)?.unsigned_abs(),
                limit,
                // A budget that was made smaller may have spent more than it has.
                remaining_units: (limit.units - account.spent_units).max(0),
                next_window_at: account.window.plus(limit.window_ms),
            })
        })
        .optional()
        .map_err(StateError::from)
}
