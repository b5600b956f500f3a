//! What every connection is set to, each setting read back: a setting that did not take is no setting.
//!
//! `PRAGMA name = value` succeeds when it does nothing. Not here: settings that belong to the file (`identity`, `create`).

use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};

use super::Fault;
use crate::error::Refusal;

/// The first SQLite that does not lose committed writes when a checkpoint races a reset of the log
/// (<https://www.sqlite.org/wal.html>, "the WAL-reset bug"), as number and as text.
const ENGINE_MINIMUM: (i32, &str) = (3_051_003, "3.51.3");

/// After how many pages in the log a commit copies them into the file. With 4 KiB pages: 16 MiB.
const AUTOCHECKPOINT_PAGES: &str = "4000";

/// How much of the file the writer keeps in memory at most: 64 MiB, as `cache_size` says KiB (<https://www.sqlite.org/pragma.html>).
const WRITER_CACHE_KIB: &str = "-65536";

/// To what a log is cut when it is reset after it grew beyond: 64 MiB, so that one slow reader does not keep the space for ever.
const JOURNAL_SIZE_LIMIT_BYTES: &str = "67108864";

/// How a connection is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// The connection can't change a byte of the database or its log.
    Look,
    /// As `Look`, and it takes no locks and makes no side files. Right only while nobody has the file open.
    LookAtRest,
    /// The connection may write.
    Write,
}

/// Opens a connection on a file that exists. SQLite never creates it: the mode would be the umask's.
pub(super) fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    // The path is resolved; a symbolic link in it is one that somebody put there since.
    let common = OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    match access {
        Access::Look => {
            Connection::open_with_flags(path, common | OpenFlags::SQLITE_OPEN_READ_ONLY)
        }
        Access::LookAtRest => Connection::open_with_flags(
            at_rest(path),
            common | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        ),
        Access::Write => {
            Connection::open_with_flags(path, common | OpenFlags::SQLITE_OPEN_READ_WRITE)
        }
    }
}

/// How long the connection waits for locks of others. It touches no file, so that it can come before anything is known.
pub(super) fn wait(connection: &Connection, busy_timeout_ms: u64) -> Result<(), Fault> {
    let timeout = i32::try_from(busy_timeout_ms)
        .unwrap_or(i32::MAX)
        .to_string();
    set(connection, "busy_timeout", &timeout, &timeout)
}

/// The settings of every connection, readers and writers alike.
pub(super) fn every(connection: &Connection) -> Result<(), Fault> {
    set(connection, "foreign_keys", "ON", "1")?;
    set(connection, "synchronous", "FULL", "2")?;
    set(
        connection,
        "journal_size_limit",
        JOURNAL_SIZE_LIMIT_BYTES,
        JOURNAL_SIZE_LIMIT_BYTES,
    )?;
    // A file from elsewhere must not run functions with side effects out of its schema.
    set(connection, "trusted_schema", "OFF", "0")?;
    // Damage shows when a page is read, not when it has spread. The check is cheap beside the read.
    set(connection, "cell_size_check", "ON", "1")?;
    // No writing of the schema table, of shadow tables or of the file past its journal, whatever a statement says.
    configure(
        connection,
        DbConfig::SQLITE_DBCONFIG_DEFENSIVE,
        "SQLITE_DBCONFIG_DEFENSIVE",
    )?;
    // A plan is made once. Otherwise a statement on a partial index is compiled again each time its parameters are bound.
    configure(
        connection,
        DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG,
        "SQLITE_DBCONFIG_ENABLE_QPSG",
    )
}

fn configure(connection: &Connection, option: DbConfig, name: &'static str) -> Result<(), Fault> {
    if connection.set_db_config(option, true)? {
        Ok(())
    } else {
        Err(mismatch(name, "1", "0"))
    }
}

/// What only the writer has. The log mode must be set by then; it is the file's.
pub(super) fn writer(connection: &Connection) -> Result<(), Fault> {
    // Blobs lie by their digests, so that each command touches pages anywhere in the file. SQLite's own two megabytes hold so few of
    // them that a large file is read again and again. Taken only as far as pages are touched.
    set(connection, "cache_size", WRITER_CACHE_KIB, WRITER_CACHE_KIB)?;
    set(
        connection,
        "wal_autocheckpoint",
        AUTOCHECKPOINT_PAGES,
        AUTOCHECKPOINT_PAGES,
    )?;
    expect(connection, "journal_mode", "wal")
}

/// What only the connection of retention has. The order of its commits is kept without a flush for each.
pub(super) fn deletes(connection: &Connection) -> Result<(), Fault> {
    set(connection, "foreign_keys", "OFF", "0")?;
    set(connection, "synchronous", "NORMAL", "1")
}

/// What makes a reader a reader.
pub(super) fn reads_only(connection: &Connection) -> Result<(), Fault> {
    expect(connection, "journal_mode", "wal")?;
    query_only(connection)
}

/// Refuses every statement that would change the file.
pub(super) fn query_only(connection: &Connection) -> Result<(), Fault> {
    set(connection, "query_only", "ON", "1")
}

/// Puts the file into write-ahead mode. This writes; it is done under the turnstile, when everything has been checked.
pub(super) fn write_ahead(connection: &Connection) -> Result<(), Fault> {
    set(connection, "journal_mode", "WAL", "wal")
}

/// Moves what the log holds into the file and cuts the log to nothing.
///
/// Done once, after the creation: a new store whose log is lost must still say whose it is, and not look like no store at all. When
/// others use the store already and do not let go of the log in time, their checkpoints do the same a little later.
pub(super) fn empty_the_log(connection: &Connection) -> Result<(), Fault> {
    if cut_log(connection)? {
        tracing::warn!("the log of the new store is in use and could not be emptied yet");
    }
    Ok(())
}

/// Moves what the log holds into the file and cuts the log to nothing. Returns whether somebody was in the way.
pub(super) fn cut_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
}

pub(super) fn is_wal(connection: &Connection) -> Result<bool, Fault> {
    Ok(read(connection, "journal_mode")? == "wal")
}

/// Refuses an engine that can lose committed writes.
pub(super) fn engine(number: i32, version: &str) -> Result<(), Refusal> {
    let (minimum, text) = ENGINE_MINIMUM;
    if minimum <= number {
        return Ok(());
    }
    Err(Refusal::Engine {
        actual: version.to_owned(),
        minimum: text,
    })
}

fn set(
    connection: &Connection,
    pragma: &'static str,
    value: &str,
    expected: &str,
) -> Result<(), Fault> {
    connection.execute_batch(&format!("PRAGMA {pragma} = {value}"))?;
    expect(connection, pragma, expected)
}

fn expect(connection: &Connection, pragma: &'static str, expected: &str) -> Result<(), Fault> {
    let actual = read(connection, pragma)?;
    if actual == expected {
        Ok(())
    } else {
        Err(mismatch(pragma, expected, &actual))
    }
}

fn mismatch(pragma: &'static str, expected: &str, actual: &str) -> Fault {
    Fault::Refused(Refusal::Pragma {
        pragma,
        expected: expected.to_owned(),
        actual: actual.to_owned(),
    })
}

fn read(connection: &Connection, pragma: &'static str) -> Result<String, Fault> {
    let value = connection.pragma_query_value(None, pragma, |row| row.get::<_, Value>(0))?;
    Ok(match value {
        Value::Integer(number) => number.to_string(),
        Value::Text(text) => text,
        other => format!("{other:?}"),
    })
}

/// The path as a URI that says: this file does not change while it is open (<https://www.sqlite.org/uri.html>).
fn at_rest(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => {
                // Writing to a string can't fail.
                let _ = write!(uri, "%{byte:02X}");
            }
        }
    }
    uri.push_str("?immutable=1");
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_007_the_running_engine_keeps_committed_writes() {
        engine(rusqlite::version_number(), rusqlite::version()).unwrap();
        engine(3_051_003, "3.51.3").unwrap();
        let refusal = engine(3_051_002, "3.51.2").unwrap_err();
        insta::assert_snapshot!(refusal, @"the running SQLite 3.51.2 can lose committed writes; 3.51.3 or newer is needed. Build with the bundled SQLite");
    }

    #[test]
    fn a_setting_that_does_not_take_is_refused() {
        // A database in memory can't have a write-ahead log, and SQLite says so only when it is asked.
        let connection = Connection::open_in_memory().unwrap();
        let Err(Fault::Refused(refusal)) = write_ahead(&connection) else {
            panic!("accepted");
        };
        insta::assert_snapshot!(refusal, @"journal_mode is memory instead of wal on a connection");
    }

    #[test]
    fn every_connection_reads_its_settings_back() {
        let connection = Connection::open_in_memory().unwrap();
        wait(&connection, 7_000).unwrap();
        every(&connection).unwrap();
        let read = |pragma| read(&connection, pragma).unwrap();
        insta::assert_snapshot!(
            [
                "busy_timeout",
                "foreign_keys",
                "synchronous",
                "journal_size_limit",
                "trusted_schema",
                "cell_size_check",
            ]
            .map(|pragma| format!("{pragma}={}", read(pragma)))
            .join(" "),
            @"busy_timeout=7000 foreign_keys=1 synchronous=2 journal_size_limit=67108864 trusted_schema=0 cell_size_check=1"
        );
    }

    #[test]
    fn a_path_becomes_a_uri_byte_by_byte() {
        assert_eq!(
            at_rest(Path::new("/a b/ä?#%.sqlite")),
            "file:/a%20b/%C3%A4%3F%23%25.sqlite?immutable=1"
        );
    }
}
