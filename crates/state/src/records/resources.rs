//! Resources: one row for each mutable thing, with its type, which never changes, and its revision.

use rusqlite::{OptionalExtension, named_params};

use super::leases::{self, LeaseView};
use crate::clock::UnixMillis;
use crate::command::{Change, Sql};
use crate::database::Snapshot;
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

/// A resource as a reader may see it. Having it gives no right to change what it shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceView {
    /// The revision: how many changes were accepted.
    pub revision: u64,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// Its lease.
    pub lease: LeaseView,
}

impl Snapshot<'_> {
    /// A resource's revision, times and lease; `None` when there is no such resource.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn resource(&self, resource: &Resource) -> Result<Option<ResourceView>, StateError> {
        view(&self.sql(), resource)
    }
}

impl Change<'_> {
    /// Another resource's revision, times and lease, read inside the transaction; `None` when there is no such resource.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn view_of(&self, resource: &Resource) -> Result<Option<ResourceView>, StateError> {
        view(&self.kernel_sql(), resource)
    }
}

fn view(sql: &Sql<'_>, resource: &Resource) -> Result<Option<ResourceView>, StateError> {
    let row: Option<(ResourceKey, i64, UnixMillis, UnixMillis)> = sql
        .prepare_cached(
            "SELECT resource_key, revision, created_at, updated_at FROM resources
             WHERE aggregate_key = ?1 AND resource_type = ?2",
        )?
        .query_row((resource.key(), resource.kind()), |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((key, revision, created_at, updated_at)) = row else {
        return Ok(None);
    };
    Ok(Some(ResourceView {
        revision: revision.unsigned_abs(),
        created_at,
        updated_at,
        lease: leases::view(sql, key)?,
    }))
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
