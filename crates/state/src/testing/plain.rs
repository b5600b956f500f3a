//! A plain connection, for benchmarks: what the same rows cost without the kernel. Never on a store that somebody has open.

use std::path::Path;

pub use rusqlite::Connection;

use crate::error::StateError;

/// Opens a database file with the product's settings of durability and without any check.
///
/// # Errors
///
/// Those of the database.
pub fn open(path: &Path) -> Result<Connection, StateError> {
    let connection = Connection::open(path)?;
    for (name, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
    ] {
        connection.pragma_update(None, name, value)?;
    }
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}
