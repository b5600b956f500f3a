//! The creation of the schema in an empty file: all of it in one transaction, or none.
//!
//! Called only under the turnstile. A crash before the commit leaves an empty file, which the next one to open creates anew.

use rusqlite::Connection;

use super::identity::{self, Standing};
use super::{Fault, Options};
use crate::records::schema_meta;
use crate::schema::Schema;

/// Creates tables, identity and `schema_meta`, unless somebody has done so.
pub(super) fn create(
    connection: &Connection,
    schema: &Schema,
    options: &Options,
) -> Result<(), Fault> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = write(connection, schema, options);
    end(connection, result)
}

fn write(connection: &Connection, schema: &Schema, options: &Options) -> Result<(), Fault> {
    if identity::read(connection, schema)? != Standing::Empty {
        return Ok(());
    }
    let identity = schema.identity();
    connection.execute_batch(schema.ddl())?;
    connection.pragma_update(None, "application_id", identity.application_id)?;
    connection.pragma_update(None, "user_version", identity.user_version)?;
    schema_meta::insert(connection, schema, options.clock.now())?;
    Ok(())
}

/// Commits, or undoes everything and returns the first error.
pub(super) fn end(connection: &Connection, result: Result<(), Fault>) -> Result<(), Fault> {
    let result = result.and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if result.is_err()
        && !connection.is_autocommit()
        && let Err(error) = connection.execute_batch("ROLLBACK")
    {
        // SQLite undoes the transaction at the latest when the connection closes. The first error is the one that counts.
        tracing::error!(%error, "rollback failed");
    }
    result
}
