//! Whether a file is a store of this schema: identity, version, digest, exact shape; and whether it is damaged. Only reads.
//!
//! The order is contract: whose file it is comes before anything else, then its version, `schema_meta`, the digest, the shape.

use rusqlite::Connection;

use super::Fault;
use crate::error::Refusal;
use crate::id::Digest;
use crate::schema::{Identity, Schema, SchemaPolicy, Shape};

/// How many findings of a check are reported.
const FINDINGS_MAX: usize = 10;

/// What a file is to a schema, when it is not refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is in it: a creation that has not come further, or not yet.
    Empty,
    /// An older version that the schema's migrations can lead up.
    Older {
        /// The version in the file.
        version: i64,
    },
    /// Exactly what the schema says.
    Whole,
}

/// Reads what the file is, all in one read transaction unless the caller has one open.
pub(super) fn read(connection: &Connection, schema: &Schema) -> Result<Standing, Fault> {
    in_read(connection, || standing(connection, schema))
}

/// Checks once more that the file is exactly what the schema says, and returns its schema cookie from the same instant.
pub(super) fn whole(connection: &Connection, schema: &Schema) -> Result<i64, Fault> {
    in_read(connection, || match standing(connection, schema)? {
        Standing::Whole => number(connection, "schema_version"),
        // Somebody put another file there between two looks.
        Standing::Empty | Standing::Older { .. } => Err(Refusal::Replaced.into()),
    })
}

/// The integrity and foreign-key checks. Their cost grows with the file.
pub(super) fn damage(connection: &Connection) -> Result<(), Fault> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))?;
    let problems: Vec<String> = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    if problems != ["ok"] {
        return Err(Refusal::Integrity { problems }.into());
    }
    let problems = broken_references(connection)?;
    if problems.is_empty() {
        Ok(())
    } else {
        Err(Refusal::ForeignKeys { problems }.into())
    }
}

/// The first rows whose foreign keys lead to nothing, in words.
pub(super) fn broken_references(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare("PRAGMA foreign_key_check")?;
    let rows = statement.query_map([], |row| {
        let table: String = row.get(0)?;
        let row_id: Option<i64> = row.get(1)?;
        let parent: String = row.get(2)?;
        Ok(match row_id {
            Some(row_id) => format!("{table} row {row_id} refers to no row of {parent}"),
            None => format!("a row of {table} refers to no row of {parent}"),
        })
    })?;
    rows.take(FINDINGS_MAX).collect()
}

fn in_read<T>(
    connection: &Connection,
    read: impl FnOnce() -> Result<T, Fault>,
) -> Result<T, Fault> {
    if !connection.is_autocommit() {
        return read();
    }
    connection.execute_batch("BEGIN DEFERRED")?;
    let result = read();
    // A read has nothing to undo; the first error is the one that counts.
    let ended = connection.execute_batch("ROLLBACK");
    let value = result?;
    ended?;
    Ok(value)
}

fn standing(connection: &Connection, schema: &Schema) -> Result<Standing, Fault> {
    let identity = schema.identity();
    let application_id = number(connection, "application_id")?;
    let version = number(connection, "user_version")?;
    if application_id == 0 && version == 0 && is_empty(connection)? {
        return Ok(Standing::Empty);
    }
    if application_id != i64::from(identity.application_id) {
        return Err(Refusal::ApplicationId {
            expected: identity.application_id,
            actual: i32::try_from(application_id).unwrap_or_default(),
        }
        .into());
    }
    if identity.user_version < version {
        return Err(newer(identity, version).into());
    }
    let older = version < identity.user_version;
    if older && !leads_up(schema, version) {
        return Err(Refusal::Version {
            expected: identity.user_version,
            actual: version,
        }
        .into());
    }
    let digest = stored_digest(connection, identity, version)?;
    if older {
        return Ok(Standing::Older { version });
    }
    if digest != schema.digest() {
        return Err(Refusal::Digest {
            expected: schema.digest().to_hex(),
            actual: digest.to_hex(),
        }
        .into());
    }
    let differences = schema.shape().differences(&Shape::read(connection)?);
    if differences.is_empty() {
        Ok(Standing::Whole)
    } else {
        Err(Refusal::Shape { differences }.into())
    }
}

pub(super) fn newer(identity: &Identity, actual: i64) -> Refusal {
    Refusal::Newer {
        expected: identity.user_version,
        actual,
    }
}

/// Whether the migrations lead from `version` to the schema's.
fn leads_up(schema: &Schema, version: i64) -> bool {
    schema.policy() == SchemaPolicy::Migrating
        && schema
            .migrations()
            .first()
            .is_some_and(|first| first.to_version <= version + 1)
}

/// The digest in the one row of `schema_meta`, when the row is the schema's.
fn stored_digest(
    connection: &Connection,
    identity: &Identity,
    version: i64,
) -> Result<Digest, Fault> {
    let meta = |detail: String| Fault::Refused(Refusal::SchemaMeta { detail });
    let rows = match rows_of_meta(connection) {
        Ok(rows) => rows,
        Err(error) => {
            return Err(match error.sqlite_error_code() {
                // The table or a column does not exist, or a value has another type.
                None | Some(rusqlite::ErrorCode::Unknown) => {
                    meta("the table is missing or has other columns".into())
                }
                Some(_) => error.into(),
            });
        }
    };
    match rows.as_slice() {
        [] => Err(meta("the row is missing".into())),
        [(name, _, _)] if name != identity.schema_name => Err(meta(format!(
            "the schema is {name:?} instead of {:?}",
            identity.schema_name
        ))),
        [(_, stored, _)] if *stored != version => Err(meta(format!(
            "its version {stored} is not the file's version {version}"
        ))),
        [(_, _, digest)] => Ok(*digest),
        [_, ..] => Err(meta("there is more than one row".into())),
    }
}

fn rows_of_meta(connection: &Connection) -> rusqlite::Result<Vec<(String, i64, Digest)>> {
    let mut statement = connection.prepare(
        "SELECT schema_name, schema_version, schema_digest FROM main.schema_meta LIMIT 2",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

fn is_empty(connection: &Connection) -> Result<bool, Fault> {
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM main.sqlite_schema", [], |row| {
            row.get(0)
        })?;
    Ok(objects == 0)
}

fn number(connection: &Connection, pragma: &str) -> Result<i64, Fault> {
    Ok(connection.pragma_query_value(None, pragma, |row| row.get(0))?)
}
