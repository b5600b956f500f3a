//! Opening and creating the file: settings, identity, exact shape.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::Options;
use super::guard::StatementGuard;
use crate::error::{Refusal, StateError};
use crate::schema::Schema;

/// An open write connection to a verified store.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    schema_cookie: i64,
}

impl Opened {
    /// Whether the store is still the one that was verified; asked inside each transaction.
    pub(super) fn still_the_same(&self, guard: &StatementGuard) -> Result<(), StateError> {
        let cookie = guard.control_number(&self.connection, "PRAGMA schema_version")?;
        if cookie == self.schema_cookie {
            return Ok(());
        }
        Err(StateError::Refused {
            path: self.path.clone(),
            refusal: Box::new(Refusal::Shape {
                differences: vec!["the schema was changed while it was open".into()],
            }),
        })
    }
}

/// The product's database: `~/.pi/agent/workflows/state.sqlite`.
pub fn product_path() -> Option<PathBuf> {
    std::env::home_dir().map(|home| home.join(".pi/agent/workflows/state.sqlite"))
}

pub(super) fn open(path: &Path, schema: &Schema, options: &Options) -> Result<Opened, StateError> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_millis(options.busy_timeout_ms))?;
    for (name, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
    ] {
        connection.pragma_update(None, name, value)?;
    }
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version == 0 {
        connection.execute_batch(&format!(
            "BEGIN IMMEDIATE; {} PRAGMA user_version = {}; COMMIT;",
            schema.ddl(),
            schema.identity().user_version
        ))?;
    }
    let schema_cookie = connection.pragma_query_value(None, "schema_version", |row| row.get(0))?;
    Ok(Opened {
        connection,
        path: path.to_owned(),
        schema_cookie,
    })
}

/// A connection that can't write.
pub(super) fn reader(path: &Path, busy_timeout_ms: u64) -> Result<Connection, StateError> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(Duration::from_millis(busy_timeout_ms))?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    connection.pragma_update(None, "query_only", "ON")?;
    Ok(connection)
}
