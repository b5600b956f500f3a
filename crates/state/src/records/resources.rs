//! Resources: one row for each mutable thing, with its type, which never changes, and its revision.

use rusqlite::{OptionalExtension, named_params};

use crate::clock::UnixMillis;
use crate::command::Sql;
use crate::error::StateError;
use crate::id::Resource;

/// The database's own name for a resource. Domain tables refer to it; it never leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey(pub(crate) i64);

impl rusqlite::types::ToSql for ResourceKey {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(self.0.into())
    }
}

impl rusqlite::types::FromSql for ResourceKey {
    fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        value.as_i64().map(Self)
    }
}

/// A resource row as the checks read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResourceRow {
    pub(crate) key: ResourceKey,
    pub(crate) revision: u64,
}

/// The row of a resource.
pub(crate) fn fetch(sql: &Sql<'_>, resource: &Resource) -> Result<Option<ResourceRow>, StateError> {
    sql.prepare_cached(
        "SELECT resource_key, revision FROM resources WHERE aggregate_key = ?1 AND resource_type = ?2",
    )?
    .query_row((resource.key(), resource.kind()), |row| {
        Ok(ResourceRow { key: row.get(0)?, revision: row.get::<_, i64>(1)?.unsigned_abs() })
    })
    .optional()
    .map_err(StateError::from)
}

/// Makes a resource at revision 1: its creation is its first accepted change.
pub(crate) fn insert(
    sql: &Sql<'_>,
    resource: &Resource,
    now: UnixMillis,
) -> Result<ResourceKey, StateError> {
    sql.prepare_cached(
        "INSERT INTO resources (resource_type, aggregate_key, revision, created_at, updated_at)
         VALUES (:kind, :key, 1, :now, :now)",
    )?
    .insert(named_params! { ":kind": resource.kind(), ":key": resource.key(), ":now": now })
    .map(ResourceKey)
    .map_err(StateError::from)
}

/// Moves a resource from `revision` to the next one.
pub(crate) fn bump(
    sql: &Sql<'_>,
    resource: &Resource,
    row: ResourceRow,
    now: UnixMillis,
) -> Result<(), StateError> {
    let written = sql
        .prepare_cached(
            "UPDATE resources SET revision = revision + 1, updated_at = :now
             WHERE resource_key = :resource_key AND revision = :revision",
        )?
        .execute(named_params! {
            ":resource_key": row.key, ":revision": sql_integer(row.revision), ":now": now,
        })?;
    expect_one(written, "resources", resource.key())
}

/// Checks that a statement wrote exactly one row: another count means that a row which the checks saw is not there.
///
/// # Errors
///
/// [`StateError::Corrupt`] otherwise.
pub fn expect_one(
    written: usize,
    table: &str,
    key: &(impl std::fmt::Display + ?Sized),
) -> Result<(), StateError> {
    if written == 1 {
        Ok(())
    } else {
        Err(StateError::Corrupt {
            what: format!("{table} row {key}"),
            problem: format!("{written} rows written instead of one"),
        })
    }
}

/// A counter as SQLite stores it. Revisions and generations grow by one from 0, so that they can't pass `i64::MAX`.
pub(crate) fn sql_integer(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}
