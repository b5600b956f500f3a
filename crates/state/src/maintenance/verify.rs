//! Verification: everything that must hold for a store, each break named with its table and rows. It never writes.
//!
//! All of it reads one snapshot in bounded memory. A break is a finding, not an error: the report of a damaged store goes as far
//! as the damage lets it.

mod content;
mod examination;
mod report;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::files::{self, SIDE_SUFFIXES};
use crate::database::{Database, Presence, beside};
use crate::error::{Refusal, StateError};
use crate::schema::Schema;

use examination::Examination;
pub(super) use report::refuse;
pub use report::{Check, CheckRun, Finding, VerifyReport};

impl Database {
    /// Verifies the open store on one snapshot, whatever other processes do meanwhile.
    ///
    /// It writes nothing. The write-ahead log can't be reset while it runs.
    ///
    /// # Errors
    ///
    /// Those of opening a snapshot. What is wrong with the store is in the report.
    pub fn verify(&self) -> Result<VerifyReport, StateError> {
        let snapshot = self.snapshot()?;
        let connection = snapshot.connection();
        examine(connection, self.schema(), self.path(), Depth::Whole)
    }
}

/// Verifies a named, inactive copy of a store, such as a backup, without a lock and without a byte written.
///
/// # Errors
///
/// [`StateError::Input`] when the path is that of a live store: it has side files, a second name, or the lock file of an opened
/// store beside it. [`StateError::Refused`] when there is no file.
pub fn verify_file(path: impl AsRef<Path>, schema: &Schema) -> Result<VerifyReport, StateError> {
    let path = inactive(path.as_ref())?;
    examine_copy(&path, schema)
}

/// The real path of a file, once it is known to be no live store.
pub(super) fn inactive(path: &Path) -> Result<PathBuf, StateError> {
    let live = |problem: String| StateError::Input {
        what: "path of a backup",
        problem: format!("{}: {problem}", path.display()),
    };
    let real = std::fs::canonicalize(path).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => StateError::Refused {
            path: path.to_owned(),
            refusal: Box::new(Refusal::Missing),
        },
        _ => files::io(format!("finding {}", path.display()))(source),
    })?;
    let metadata =
        std::fs::metadata(&real).map_err(files::io(format!("looking at {}", real.display())))?;
    if !metadata.is_file() {
        return Err(live("it is not a regular file".into()));
    }
    if 1 < metadata.nlink() {
        return Err(live(
            "it has a second name, which may be a live store; name a copy".into(),
        ));
    }
    if Presence::is_known(&real) {
        return Err(live(
            "this is the place of a live store; verify it there, or name a backup of it".into(),
        ));
    }
    for suffix in SIDE_SUFFIXES {
        if beside(&real, suffix).exists() {
            return Err(live(format!(
                "a {suffix} file lies beside it, so that it is in use or only a part of a store"
            )));
        }
    }
    Ok(real)
}

/// Verifies a file that nobody writes.
pub(super) fn examine_copy(path: &Path, schema: &Schema) -> Result<VerifyReport, StateError> {
    // `immutable` takes no locks and makes no side files. It is wrong on a live store; this is none.
    let connection = Connection::open_with_flags(
        files::uri(path, "immutable=1"),
        OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_URI,
    )?;
    examine(&connection, schema, path, Depth::Whole)
}

/// How far an examination goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Without blobs and payloads.
    Structure,
    /// Everything.
    Whole,
}

pub(super) fn examine(
    connection: &Connection,
    schema: &Schema,
    path: &Path,
    depth: Depth,
) -> Result<VerifyReport, StateError> {
    let mut examination = Examination::new(connection, schema);
    examination.run(Check::Integrity, Examination::integrity)?;
    examination.run(Check::ForeignKeys, Examination::foreign_keys)?;
    examination.run(Check::Schema, Examination::schema)?;
    examination.run(Check::Invariants, Examination::invariants)?;
    if depth == Depth::Whole {
        examination.run(Check::Blobs, Examination::blobs)?;
        examination.run(Check::Payloads, Examination::payloads)?;
    }
    Ok(examination.report(path))
}
