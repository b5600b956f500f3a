//! What a store looked like when it was verified, to tell in each transaction whether it still does. Only reads.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::Connection;

use super::{identity, refused};
use crate::error::{Refusal, StateError};
use crate::schema::{Schema, Shape};

/// A verified store: its path, its file and its schema cookie.
#[derive(Debug)]
pub(in crate::database) struct Stamp {
    pub(in crate::database) path: PathBuf,
    schema: Schema,
    file: (u64, u64),
    /// SQLite's count of schema changes in the file, when the shape was last compared. It only saves work: the shape rules.
    cookie: AtomicI64,
}

impl Stamp {
    pub(super) fn new(path: &Path, schema: &Schema, cookie: i64) -> Result<Self, Refusal> {
        Ok(Self {
            path: path.to_owned(),
            schema: schema.clone(),
            file: file_at(path).ok_or(Refusal::Replaced)?,
            cookie: AtomicI64::new(cookie),
        })
    }

    /// Whether the store is still the one that was verified. `number` reads a pragma inside the caller's transaction, so that
    /// the answer holds until it ends. Three numbers of the file's first page and one `stat`: some microseconds. Returns SQLite's
    /// count of schema changes.
    ///
    /// # Errors
    ///
    /// [`StateError::Refused`] with what has changed.
    pub(in crate::database) fn check(
        &self,
        connection: &Connection,
        number: impl Fn(&'static str) -> rusqlite::Result<i64>,
    ) -> Result<i64, StateError> {
        let refuse = |refusal| Err(refused(&self.path, refusal));
        self.check_file()?;
        let expected = self.schema.identity();
        let application_id = number("PRAGMA application_id")?;
        if application_id != i64::from(expected.application_id) {
            return refuse(Refusal::ApplicationId {
                expected: expected.application_id,
                actual: i32::try_from(application_id).unwrap_or_default(),
            });
        }
        let version = number("PRAGMA user_version")?;
        if expected.user_version < version {
            return refuse(identity::newer(expected, version));
        }
        if version < expected.user_version {
            return refuse(Refusal::Version {
                expected: expected.user_version,
                actual: version,
            });
        }
        let cookie = number("PRAGMA schema_version")?;
        if cookie == self.cookie.load(Ordering::Relaxed) {
            return Ok(cookie);
        }
        // VACUUM and ANALYZE move the cookie too, and change nothing that matters.
        let differences = self.schema.shape().differences(&Shape::read(connection)?);
        if differences.is_empty() {
            self.cookie.store(cookie, Ordering::Relaxed);
            Ok(cookie)
        } else {
            refuse(Refusal::Shape { differences })
        }
    }

    /// Whether the file at the path is the one that was verified.
    ///
    /// # Errors
    ///
    /// [`StateError::Refused`] when it is not.
    pub(in crate::database) fn check_file(&self) -> Result<(), StateError> {
        if file_at(&self.path) == Some(self.file) {
            Ok(())
        } else {
            Err(refused(&self.path, Refusal::Replaced))
        }
    }

    /// A connection that can't write, while the file at the path is the one that was verified.
    ///
    /// # Errors
    ///
    /// [`StateError::Refused`] when it is not.
    pub(in crate::database) fn reader(
        &self,
        busy_timeout_ms: u64,
    ) -> Result<Connection, StateError> {
        self.check_file()?;
        super::reader(&self.path, busy_timeout_ms)
    }

    /// The same as [`Stamp::check`] for a connection that only reads.
    ///
    /// # Errors
    ///
    /// As [`Stamp::check`].
    pub(in crate::database) fn check_reader(
        &self,
        connection: &Connection,
    ) -> Result<(), StateError> {
        self.check(connection, |sql| {
            connection
                .prepare_cached(sql)?
                .query_row([], |row| row.get(0))
        })?;
        Ok(())
    }
}

/// Device and inode of the file that has the name now. By `stat`: opening it would cost the process its locks.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    found.is_file().then(|| (found.dev(), found.ino()))
}
