//! Opening and creating the file: nothing is written before everything about it has been checked.
//!
//! The order is contract. What `stat` tells comes first (`files`, `file_system`), without opening anything. Then the file is
//! examined by a connection that can't write (`examine`, `identity`); a refusal leaves its bytes as they were. Only then a
//! connection that can write is opened, and what it has to write (`create`, `migrate`, the journal mode) it writes while it holds
//! the turnstile, so that any number of processes that open one path at the same instant do it once. No room here opens the
//! database or its side files in another way than through SQLite: closing another descriptor would drop the process's locks.

mod create;
mod examine;
mod file_system;
mod files;
mod identity;
mod migrate;
mod path;
mod process;
mod settings;
mod stamp;

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::Options;
use super::guard::StatementGuard;
use super::turnstile::Turnstile;
use crate::error::{Refusal, StateError};
use crate::schema::Schema;

pub use file_system::FileSystem;
use identity::Standing;
use path::Place;
pub(super) use path::{DIRECTORY_MODE, open_lock_file};
pub use path::{product_path, product_path_in};
pub(super) use process::OpenHere;
pub(super) use stamp::Stamp;

/// An open write connection to a verified store.
pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) stamp: Arc<Stamp>,
    /// SQLite's count of schema changes at which this connection last read the schema.
    schema_cookie: Cell<i64>,
}

impl Opened {
    /// Whether the store is still the one that was verified; asked inside each transaction.
    pub(super) fn still_the_same(&self, guard: &StatementGuard) -> Result<(), StateError> {
        let cookie = self.stamp.check(&self.connection, |sql| {
            guard.control_number(&self.connection, sql)
        })?;
        if cookie != self.schema_cookie.get() {
            // SQLite would compile each cached statement anew when it runs, where the authorizer can't know for whom, and so
            // refuse it. The connection reads the schema now, and every statement is prepared again in its domain's name.
            self.connection
                .query_row("SELECT count(*) FROM main.sqlite_schema", [], |_| Ok(()))?;
            self.connection.flush_prepared_statement_cache();
            self.schema_cookie.set(cookie);
        }
        Ok(())
    }
}

/// What stopped the opening, before the path is added.
#[derive(Debug)]
enum Fault {
    Refused(Refusal),
    Sqlite(rusqlite::Error),
    State(StateError),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

impl Fault {
    /// The error for the caller. While a file is opened, damage that SQLite meets is a reason to refuse the file.
    fn at(self, path: &Path, options: &Options) -> StateError {
        use rusqlite::ErrorCode;
        let refusal = match self {
            Self::Refused(refusal) => refusal,
            Self::State(error) => return error,
            Self::Sqlite(error) => match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Refusal::NotADatabase {
                    detail: "its header is not SQLite's".into(),
                },
                Some(ErrorCode::DatabaseCorrupt) => Refusal::Integrity {
                    problems: vec![error.to_string()],
                },
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                    return StateError::Busy {
                        waited_ms: options.busy_timeout_ms,
                    };
                }
                _ => return error.into(),
            },
        };
        refused(path, refusal)
    }
}

fn refused(path: &Path, refusal: Refusal) -> StateError {
    StateError::Refused {
        path: path.to_owned(),
        refusal: Box::new(refusal),
    }
}

/// The one path by which the file at `path` is known, after symbolic links.
pub(super) fn real_path(path: &Path) -> Result<PathBuf, StateError> {
    Ok(path::resolve(path)?.real)
}

/// Opens the store at `path`, or creates it. The second part of the result counts it as open until it is dropped.
pub(super) fn open(
    path: &Path,
    schema: &Schema,
    options: &Options,
) -> Result<(Opened, OpenHere), StateError> {
    let here = OpenHere::enter()?;
    settings::engine(rusqlite::version_number(), rusqlite::version())
        .map_err(|refusal| refused(path, refusal))?;
    let place = settle(path, schema, options)?;
    let fault = |fault: Fault| fault.at(&place.real, options);
    let standing = examine::examine(&place.real, schema, options).map_err(fault)?;
    if standing == Standing::Empty {
        may_create(&place, schema, options)?;
    }
    let (connection, schema_cookie) =
        establish(&place, standing, schema, options).map_err(fault)?;
    let stamp = Stamp::new(&place.real, schema, schema_cookie)
        .map_err(|refusal| refused(&place.real, refusal))?;
    let opened = Opened {
        connection,
        stamp: Arc::new(stamp),
        schema_cookie: Cell::new(schema_cookie),
    };
    Ok((opened, here))
}

/// How many statements a reader keeps prepared: those of one surface, so that a look at one run prepares nothing anew.
const READER_STATEMENTS: usize = 64;

/// A connection that can't write, to a store that this process has verified.
pub(super) fn reader(path: &Path, busy_timeout_ms: u64) -> Result<Connection, StateError> {
    let open = || -> Result<Connection, Fault> {
        let connection = settings::connect(path, settings::Access::Write)?;
        settings::wait(&connection, busy_timeout_ms)?;
        settings::every(&connection)?;
        settings::reads_only(&connection)?;
        connection.set_prepared_statement_cache_capacity(READER_STATEMENTS);
        Ok(connection)
    };
    let options = Options {
        busy_timeout_ms,
        ..Options::default()
    };
    open().map_err(|fault| fault.at(path, &options))
}

/// A second connection that can write, to a store that this process has verified: without foreign keys, and with commits that may be
/// lost whole.
pub(super) fn cleaner(stamp: &Arc<Stamp>, busy_timeout_ms: u64) -> Result<Opened, StateError> {
    stamp.check_file()?;
    let open = || -> Result<Connection, Fault> {
        let connection = settings::connect(&stamp.path, settings::Access::Write)?;
        settings::wait(&connection, busy_timeout_ms)?;
        settings::every(&connection)?;
        settings::writer(&connection)?;
        settings::deletes(&connection)?;
        Ok(connection)
    };
    let options = Options {
        busy_timeout_ms,
        ..Options::default()
    };
    Ok(Opened {
        connection: open().map_err(|fault| fault.at(&stamp.path, &options))?,
        stamp: Arc::clone(stamp),
        // No count of SQLite's: the first transaction reads the schema.
        schema_cookie: Cell::new(-1),
    })
}

/// Moves what the log holds into the file and cuts the log to nothing. Returns whether somebody was in the way.
pub(super) fn cut_log(connection: &Connection) -> rusqlite::Result<bool> {
    settings::cut_log(connection)
}

/// Checks what `stat` tells of the path, and makes an empty file where there is none.
fn settle(path: &Path, schema: &Schema, options: &Options) -> Result<Place, StateError> {
    let place = path::resolve(path)?;
    files::check(&place, options)?;
    if place.exists {
        return Ok(place);
    }
    may_create(&place, schema, options)?;
    path::create(&place)?;
    let place = path::resolve(&place.real)?;
    files::check(&place, options)?;
    Ok(place)
}

/// Whether a database may be made where there is none, or an empty file.
fn may_create(place: &Place, schema: &Schema, options: &Options) -> Result<(), StateError> {
    if !options.create {
        return Err(refused(&place.real, Refusal::Missing));
    }
    let paths = files::old_state(place, schema.identity().old_state);
    if paths.is_empty() {
        Ok(())
    } else {
        Err(refused(&place.real, Refusal::OldState { paths }))
    }
}

/// Opens the connection that writes, and makes the file what the schema says, if it is not yet.
fn establish(
    place: &Place,
    standing: Standing,
    schema: &Schema,
    options: &Options,
) -> Result<(Connection, i64), Fault> {
    let mut connection = settings::connect(&place.real, settings::Access::Write)?;
    // Until the store is accepted, closing this connection must not move pages from the log into the file.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    settings::wait(&connection, options.busy_timeout_ms)?;
    settings::every(&connection)?;
    if standing != Standing::Whole || !settings::is_wal(&connection)? {
        let turn = Turnstile::open(&place.real)?.enter(options.busy_timeout_ms)?;
        // Another process may have done it while this one waited, or have done something else: look again.
        match identity::read(&connection, schema)? {
            Standing::Empty => {
                settings::write_ahead(&connection)?;
                create::create(&connection, schema, options)?;
                settings::empty_the_log(&connection)?;
            }
            Standing::Older { .. } => migrate::migrate(&mut connection, schema, options)?,
            Standing::Whole => {}
        }
        settings::write_ahead(&connection)?;
        drop(turn);
    }
    settings::every(&connection)?;
    settings::writer(&connection)?;
    let schema_cookie = identity::whole(&connection, schema)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok((connection, schema_cookie))
}
