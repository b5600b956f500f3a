//! Resources: one row for each mutable thing, with its type, which never changes, and its revision.

use rusqlite::{OptionalExtension, named_params};

use super::leases::{self, LeaseView};
use crate::clock::UnixMillis;
use crate::command::{Change, Sql};
use crate::database::Snapshot;
use crate::error::StateError;
use crate::id::{EffectId, Resource};

/// The database's own name for a resource. Domain tables refer to it; it never leaves the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceKey(pub(crate) i64);

impl ResourceKey {
    /// The key that no row has: SQLite counts rows from 1.
    pub(crate) const NOWHERE: Self = Self(0);
}

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

/// A natural key as it is stored. Effect ids are 40 hex digits behind a fixed prefix: their 20 bytes are stored instead, because
/// there are more effects than anything else.
pub(crate) enum StoredKey<'a> {
    Text(&'a str),
    Effect([u8; 20]),
}

impl<'a> StoredKey<'a> {
    /// The stored form of a resource's key; none for an effect id of the wrong form, which names nothing.
    pub(crate) fn of(resource: &'a Resource) -> Option<Self> {
        if resource.kind() == EFFECT {
            EffectId::bytes_of(resource.key()).map(Self::Effect)
        } else {
            Some(Self::Text(resource.key()))
        }
    }
}

impl rusqlite::types::ToSql for StoredKey<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::{ToSqlOutput, ValueRef};
        Ok(match self {
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Effect(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// A natural key read from its column.
pub(crate) struct AggregateKey(pub(crate) String);

impl rusqlite::types::FromSql for AggregateKey {
    fn column_result(value: rusqlite::types::ValueRef<'_>) -> rusqlite::types::FromSqlResult<Self> {
        match value {
            rusqlite::types::ValueRef::Blob(bytes) => {
                Ok(Self(EffectId::from_bytes(bytes).to_string()))
            }
            other => other.as_str().map(|text| Self(text.to_owned())),
        }
    }
}

/// The resource type of effects.
const EFFECT: &str = "effect";

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
    let Some(ResourceRow { key, .. }) = fetch(sql, resource)? else {
        return Ok(None);
    };
    let (revision, created_at, updated_at): (i64, _, _) = sql
        .prepare_cached(
            "SELECT revision, created_at, updated_at FROM resources WHERE resource_key = ?1",
        )?
        .query_row([key], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(Some(ResourceView {
        revision: revision.unsigned_abs(),
        created_at,
        updated_at,
        lease: leases::view(sql, key)?,
    }))
}

/// The row of a resource.
///
/// Effects have no index on their id: an index over digests costs every command a page of its own somewhere in a tree as large as
/// the history, and what works with effects knows their row (see [`fetch_at`]). Only a person who names an effect pays for a scan.
pub(crate) fn fetch(sql: &Sql<'_>, resource: &Resource) -> Result<Option<ResourceRow>, StateError> {
    let Some(key) = StoredKey::of(resource) else {
        return Ok(None);
    };
    let mut statement = match key {
        StoredKey::Text(_) => sql.prepare_cached(
            "SELECT resource_key, revision FROM resources
             WHERE aggregate_key = ?1 AND resource_type = ?2 AND resource_type <> 'effect'",
        )?,
        StoredKey::Effect(_) => sql.prepare_cached(
            "SELECT resource_key, revision FROM resources WHERE aggregate_key = ?1 AND resource_type = ?2",
        )?,
    };
    statement
        .query_row((key, resource.kind()), |row| {
            Ok(ResourceRow {
                key: row.get(0)?,
                revision: row.get::<_, i64>(1)?.unsigned_abs(),
            })
        })
        .optional()
        .map_err(StateError::from)
}

/// The row of a resource whose database key the caller knows; none when another resource has that key.
pub(crate) fn fetch_at(
    sql: &Sql<'_>,
    resource: &Resource,
    key: ResourceKey,
) -> Result<Option<ResourceRow>, StateError> {
    let Some(stored) = StoredKey::of(resource) else {
        return Ok(None);
    };
    sql.prepare_cached(
        "SELECT revision FROM resources
         WHERE resource_key = ?1 AND aggregate_key = ?2 AND resource_type = ?3",
    )?
    .query_row((key, stored, resource.kind()), |row| {
        Ok(ResourceRow {
            key,
            revision: row.get::<_, i64>(0)?.unsigned_abs(),
        })
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
    let stored = StoredKey::of(resource).ok_or_else(|| StateError::Input {
        what: "effect id",
        problem: format!("{:?} is not effect- and 40 hex digits", resource.key()),
    })?;
    sql.prepare_cached(
        "INSERT INTO resources (resource_type, aggregate_key, revision, created_at, updated_at)
         VALUES (:kind, :key, 1, :now, :now)",
    )?
    .insert(named_params! { ":kind": resource.kind(), ":key": stored, ":now": now })
    .map(ResourceKey)
    .map_err(StateError::from)
}

/// Moves a resource from the revision of its row to a later one.
pub(crate) fn move_on(
    sql: &Sql<'_>,
    resource: &Resource,
    row: ResourceRow,
    revision: u64,
    now: UnixMillis,
) -> Result<(), StateError> {
    let written = sql
        .prepare_cached(
            "UPDATE resources SET revision = :next, updated_at = :now
             WHERE resource_key = :resource_key AND revision = :revision AND :revision < :next",
        )?
        .execute(named_params! {
            ":resource_key": row.key, ":revision": sql_integer(row.revision), ":next": sql_integer(revision),
            ":now": now,
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
