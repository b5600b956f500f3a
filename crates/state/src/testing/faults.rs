//! Faults of the file that a test can ask for.

use crate::database::{Database, faults};
use crate::error::StateError;

/// Lets the database file grow to `pages` pages at most, after which the disk is full for it. A file that is larger keeps its size. The
/// limit is the connection's: it ends with the handle.
///
/// # Errors
///
/// Those of a command that can't run.
pub fn limit_pages(db: &Database, pages: u32) -> Result<(), StateError> {
    faults::limit_pages(db, pages)
}

/// How many pages the database file has.
///
/// # Errors
///
/// As [`Database::snapshot`].
pub fn page_count(db: &Database) -> Result<u32, StateError> {
    db.snapshot()?
        .sql()
        .prepare_cached("SELECT page_count FROM pragma_page_count")?
        .query_row([], |row| row.get(0))
        .map_err(StateError::from)
}
