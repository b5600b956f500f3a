//! Backup: a consistent copy of a live store as one file, which has its final name only when it is whole, verified and durable.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;

use super::files;
use super::verify::{self, VerifyReport};
use crate::database::{Database, beside};
use crate::error::StateError;

/// How many pages are copied between two reports of progress.
const STEP_PAGES: i32 = 1_024;

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// The backup: one file without side files.
    pub path: PathBuf,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Its number of pages.
    pub pages: u64,
    /// The size of the store's write-ahead log before the copy, in bytes.
    pub wal_bytes_before: u64,
    /// The size of the store's write-ahead log after the copy, in bytes: it can't be reset meanwhile.
    pub wal_bytes_after: u64,
    /// The verification of the backup itself.
    pub verified: VerifyReport,
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupProgress {
    /// Pages that were copied.
    pub copied_pages: u64,
    /// Pages in all.
    pub pages: u64,
    /// The present size of the store's write-ahead log in bytes.
    pub wal_bytes: u64,
}

impl Database {
    /// Copies the store into the new file `target`: everything that was acknowledged before the call, at one instant.
    ///
    /// Writers go on meanwhile. The file has mode 0600 and its final name only once it is verified and durable; what a killed
    /// backup leaves has a hidden name ending in `.partial`, and the next backup to the same name sweeps it.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] when `target` exists, [`StateError::InUse`] while another copy into the same directory runs,
    /// [`StateError::Refused`] or [`StateError::Corrupt`] when the copy does not pass the verification. No file is left.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<BackupReport, StateError> {
        self.backup_with(target, |_| ControlFlow::Continue(()))
    }

    /// As [`Database::backup`], and tells how far it is; breaking ends it without a file.
    ///
    /// # Errors
    ///
    /// As [`Database::backup`]; [`StateError::Io`] of kind `Interrupted` after a break.
    pub fn backup_with(
        &self,
        target: impl AsRef<Path>,
        mut progress: impl FnMut(BackupProgress) -> ControlFlow<()>,
    ) -> Result<BackupReport, StateError> {
        let target = target.as_ref();
        if target.symlink_metadata().is_ok() {
            return Err(exists(target));
        }
        let directory = files::directory_of(target);
        let _copy_right = files::copy_right(target)?;
        let snapshot = self.snapshot()?;
        let source = snapshot.connection();
        // The first read fixes the snapshot. While it is open the backup reads it alone, so that commits never restart the copy.
        let pages: i64 = source.query_row(
            "SELECT page_count FROM pragma_page_count(), (SELECT count(*) FROM sqlite_schema)",
            [],
            |row| row.get(0),
        )?;
        let page_size: i64 = source.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        files::check_room(directory, pages.unsigned_abs() * page_size.unsigned_abs())?;

        let wal = beside(self.path(), "-wal");
        let wal_bytes_before = files::size_bytes(&wal);
        let partial = Partial::create(target)?;
        copy(source, &partial.path, &wal, &mut progress)?;
        drop(snapshot);
        let wal_bytes_after = files::size_bytes(&wal);
        let mut verified = verify::examine_copy(&partial.path, self.schema())?;
        verify::refuse(&partial.path, &verified)?;
        target.clone_into(&mut verified.path);
        let size_bytes = files::size_bytes(&partial.path);
        partial.finish(target)?;
        Ok(BackupReport {
            path: target.to_owned(),
            size_bytes,
            pages: pages.unsigned_abs(),
            wal_bytes_before,
            wal_bytes_after,
            verified,
        })
    }
}

/// A copy under its hidden name; removed again unless it is finished.
pub(super) struct Partial {
    pub(super) path: PathBuf,
}

impl Partial {
    pub(super) fn create(target: &Path) -> Result<Self, StateError> {
        let path = files::partial_name(target);
        files::create_private(&path).map_err(files::io(format!("creating {}", path.display())))?;
        Ok(Self { path })
    }

    /// Makes the copy durable, then gives it its name, then makes the name durable.
    pub(super) fn finish(self, target: &Path) -> Result<(), StateError> {
        let action = |verb: &str| files::io(format!("{verb} {}", target.display()));
        files::flush_file(&self.path).map_err(action("flushing"))?;
        match files::rename_new(&self.path, target) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(exists(target));
            }
            Err(error) => return Err(action("naming")(error)),
        }
        files::flush_directory(files::directory_of(target)).map_err(action("flushing the name of"))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // After the renaming there is nothing under this name.
        files::remove_copy(&self.path);
    }
}

fn copy(
    source: &Connection,
    target: &Path,
    wal: &Path,
    progress: &mut impl FnMut(BackupProgress) -> ControlFlow<()>,
) -> Result<(), StateError> {
    let mut copy = Connection::open_with_flags(
        target,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // The copy is flushed once, at its end; until then a crash leaves only a hidden file. Nobody else opens it.
    copy.pragma_update(None, "synchronous", "OFF")?;
    copy.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    let backup = Backup::new(source, &mut copy)?;
    loop {
        let step = backup.step(STEP_PAGES)?;
        let done = backup.progress();
        let pages = u64::from(done.pagecount.unsigned_abs());
        let told = progress(BackupProgress {
            copied_pages: pages.saturating_sub(u64::from(done.remaining.unsigned_abs())),
            pages,
            wal_bytes: files::size_bytes(wal),
        });
        if told.is_break() {
            return Err(StateError::Io {
                action: "making the backup".into(),
                source: std::io::ErrorKind::Interrupted.into(),
            });
        }
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            // The source is a fixed snapshot and the copy is ours alone, so that nobody can be in the way for long.
            _ => return Err(StateError::Busy { waited_ms: 0 }),
        }
    }
    drop(backup);
    // The copy says like its source that it has a write-ahead log. A single file must not.
    let mode: String =
        copy.pragma_update_and_check(None, "journal_mode", "DELETE", |row| row.get(0))?;
    if mode != "delete" {
        return Err(StateError::Corrupt {
            what: format!("the copy {}", target.display()),
            problem: format!("its journal mode stays {mode}"),
        });
    }
    copy.close().map_err(|(_, error)| error.into())
}

fn exists(target: &Path) -> StateError {
    StateError::Input {
        what: "path of the backup",
        problem: format!(
            "{} exists; name a new file, an existing one is never replaced",
            target.display()
        ),
    }
}
