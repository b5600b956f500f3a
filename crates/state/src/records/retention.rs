//! Deletion of shared records, and when the last sweep came to its end. For retention only: the authorizer refuses each of these
//! statements on every other connection.
//!
//! Not here: which resources are dead (`maintenance::retention`).

use rusqlite::{OptionalExtension as _, named_params};

use crate::clock::UnixMillis;
use crate::command::Sql;
use crate::error::StateError;

/// Deletes a dead resource with everything that the kernel keeps of it: attempts and row of an effect, lease, events.
pub(crate) fn delete_resource(sql: &Sql<'_>, key: i64) -> Result<(), StateError> {
    // Foreign keys are off: what hangs on a row goes before it, by hand.
    for statement in [
        "DELETE FROM effect_attempts WHERE resource_key = ?1",
        "DELETE FROM effects WHERE resource_key = ?1",
        "DELETE FROM leases WHERE resource_key = ?1",
        "DELETE FROM events WHERE resource_key = ?1",
        "DELETE FROM resources WHERE resource_key = ?1",
    ] {
        sql.prepare_cached(statement)?.execute([key])?;
    }
    Ok(())
}

/// Deletes a blob that nothing refers to.
pub(crate) fn delete_blob(sql: &Sql<'_>, hash: &[u8]) -> Result<(), StateError> {
    sql.prepare_cached("DELETE FROM blobs WHERE blob_hash = ?1")?
        .execute([hash])?;
    Ok(())
}

/// Deletes a project that nothing refers to.
pub(crate) fn delete_project(sql: &Sql<'_>, project_id: &str) -> Result<(), StateError> {
    sql.prepare_cached("DELETE FROM projects WHERE project_id = ?1")?
        .execute([project_id])?;
    Ok(())
}

/// Says that a sweep came to its end.
pub(crate) fn record_sweep(
    sql: &Sql<'_>,
    completed_at: UnixMillis,
    cutoff: UnixMillis,
) -> Result<(), StateError> {
    sql.prepare_cached(
        "INSERT INTO retention_sweeps (id, completed_at, cutoff) VALUES (1, :completed_at, :cutoff)
         ON CONFLICT (id) DO UPDATE SET completed_at = excluded.completed_at, cutoff = excluded.cutoff",
    )?
    .execute(named_params! { ":completed_at": completed_at, ":cutoff": cutoff })?;
    Ok(())
}

/// When the last sweep came to its end.
pub(crate) fn last_sweep(sql: &Sql<'_>) -> Result<Option<UnixMillis>, StateError> {
    sql.prepare_cached("SELECT completed_at FROM retention_sweeps WHERE id = 1")?
        .query_row([], |row| row.get(0))
        .optional()
        .map_err(StateError::from)
}
