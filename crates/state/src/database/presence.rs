//! Who has the store open: a lock file beside the database, held shared by each handle and exclusively by a restore.
//!
//! SQLite's own locks tell who reads or writes now, not who will in a moment; a restore that replaced the file under an open handle
//! would mix two stores. The lock ends with the process that holds it.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::open::open_lock_file;
use crate::error::{Refusal, StateError};

/// The suffix of the lock file.
const SUFFIX: &str = ".open-lock";
/// The suffix of the note that a restore has begun to move files.
pub(crate) const RESTORE_NOTE: &str = ".restore-pending";

/// Says that the store is open, until it is dropped.
pub(crate) struct Presence {
    path: PathBuf,
    _file: File,
}

impl Presence {
    /// Runs `open` with the presence taken. When the store is not opened after all, no new lock file stays behind.
    pub(super) fn around<T>(
        database: &Path,
        open: impl FnOnce() -> Result<T, StateError>,
    ) -> Result<(Self, T), StateError> {
        let was_there = beside(database, SUFFIX).exists();
        // Where no lock file can be made, `open` says why; where it makes the directory first, no restore can be at work.
        let early = match Self::shared(database) {
            Err(StateError::Io { .. }) => None,
            other => Some(other?),
        };
        let opened = match open() {
            Ok(opened) => opened,
            Err(error) => {
                if let Some(presence) = early.filter(|_| !was_there) {
                    presence.withdraw(database);
                }
                return Err(error);
            }
        };
        let presence = match early {
            Some(presence) => presence,
            None => Self::shared(database)?,
        };
        Ok((presence, opened))
    }

    /// One of those that have the store open.
    fn shared(database: &Path) -> Result<Self, StateError> {
        let presence = Self::take(database, FlockOperation::NonBlockingLockShared)?;
        if beside(database, RESTORE_NOTE).exists() {
            return Err(StateError::Refused {
                path: database.to_owned(),
                refusal: Box::new(Refusal::RestoreUnfinished),
            });
        }
        Ok(presence)
    }

    /// The only one: nobody has the store open, and nobody can open it until this is dropped.
    ///
    /// # Errors
    ///
    /// [`StateError::InUse`] while somebody has it open.
    pub(crate) fn exclusive(database: &Path) -> Result<Self, StateError> {
        Self::take(database, FlockOperation::NonBlockingLockExclusive)
    }

    /// Whether there is a store at this path, by its lock file: one that is open or was.
    pub(crate) fn is_known(database: &Path) -> bool {
        beside(database, SUFFIX).exists()
    }

    fn take(database: &Path, operation: FlockOperation) -> Result<Self, StateError> {
        let path = beside(database, SUFFIX);
        let failed = |source: std::io::Error| StateError::Io {
            action: format!("locking {}", path.display()),
            source,
        };
        loop {
            let file = open_lock_file(&path).map_err(failed)?;
            match flock(&file, operation) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StateError::InUse {
                        path: database.to_owned(),
                        by: match operation {
                            FlockOperation::NonBlockingLockShared => {
                                "a restore is at work; open the store when it has ended"
                            }
                            _ => "a program has the store open; stop it first",
                        },
                    });
                }
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(failed(error.into())),
            }
            // Somebody who withdrew may have removed the file before we locked it: the lock must be on the file at the path.
            let locked = file.metadata().map_err(failed)?;
            if std::fs::metadata(&path).is_ok_and(|there| there.ino() == locked.ino()) {
                return Ok(Self { path, _file: file });
            }
        }
    }

    /// Removes the lock file if nobody else uses it.
    fn withdraw(self, database: &Path) {
        drop(self);
        if let Ok(alone) = Self::exclusive(database) {
            // A leftover lock file is harmless.
            drop(std::fs::remove_file(&alone.path));
        }
    }
}

/// The path of a file that lies beside the database under its name and a suffix.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
