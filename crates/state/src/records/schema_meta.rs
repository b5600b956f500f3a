//! `schema_meta`: the one row that says which schema a file has, and who made it.
//!
//! Written when a file is created or migrated, by the connection that does it, before there is a writer. No command writes it.

use rusqlite::{Connection, named_params};

use crate::clock::UnixMillis;
use crate::schema::Schema;

/// The version that the row names as the file's maker.
const APP_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Writes the row of a new file.
pub(crate) fn insert(
    connection: &Connection,
    schema: &Schema,
    now: UnixMillis,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO schema_meta
             (id, schema_name, schema_version, schema_digest, app_version, created_at, updated_at)
         VALUES (1, :name, :version, :digest, :app_version, :now, :now)",
        named_params! {
            ":name": schema.identity().schema_name, ":version": schema.identity().user_version,
            ":digest": schema.digest(), ":app_version": APP_VERSION, ":now": now,
        },
    )?;
    Ok(())
}

/// Says that the file has been led up to `schema`. Whether the row is the right one is checked before and after.
pub(crate) fn update(
    connection: &Connection,
    schema: &Schema,
    now: UnixMillis,
) -> rusqlite::Result<()> {
    connection.execute(
        "UPDATE schema_meta
         SET schema_version = :version, schema_digest = :digest, app_version = :app_version, updated_at = :now
         WHERE id = 1 AND schema_name = :name",
        named_params! {
            ":name": schema.identity().schema_name, ":version": schema.identity().user_version,
            ":digest": schema.digest(), ":app_version": APP_VERSION, ":now": now,
        },
    )?;
    Ok(())
}
