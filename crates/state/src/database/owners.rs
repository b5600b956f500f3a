//! Which owners of leases are dead: a folder of lock files beside the database, one for each owner that said that it lives.
//!
//! A lease has to wait for its expiry, since it can't tell an owner that is gone from one that is slow. The operating system can: an
//! advisory lock ends with the process that holds it, whatever ended it, and not before. Whoever meets a live lease of an owner whose
//! lock is gone may therefore take over at once. Every doubt counts as life: an owner that never said anything, a file that is missing
//! or can't be looked at. A process that is stopped, or swapped out, keeps its lock and its leases.
//!
//! The folder never leads to the database: no descriptor of the store is opened here. Not here: what a lease is (`records::leases`).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat};

use super::open::{DIRECTORY_MODE, open_lock_file};
use super::presence::beside;
use super::{Database, Snapshot};
use crate::clock::UnixMillis;
use crate::error::StateError;
use crate::records::leases::{self, Owner};

/// The suffix of the folder.
pub(crate) const FOLDER: &str = ".owners";
/// The longest name of a file in it, in bytes.
const NAME_LIMIT: usize = 200;
/// How many files one cleaning looks at. What is left is for the next one.
const CLEAN_LIMIT: usize = 1_024;

/// The folder of one database.
#[derive(Debug)]
pub(crate) struct Owners {
    folder: PathBuf,
}

/// Says that an owner lives, until it is dropped or its process ends. Its leases can be taken over at once from then on.
///
/// Drop it when nothing works under the owner's leases any more.
#[must_use = "the owner counts as dead when this is dropped"]
#[derive(Debug)]
pub struct OwnerPresence {
    /// Held locked. The file stays as long as a lease names its owner: by its lock the owner is known to be dead.
    _file: File,
}

impl Owners {
    pub(super) fn new(database: &Path) -> Self {
        Self {
            folder: beside(database, FOLDER),
        }
    }

    /// Takes the owner's lock, before its first lease.
    pub(super) fn announce(&self, owner: &Owner) -> Result<OwnerPresence, StateError> {
        let path = self.file(owner.id()).ok_or_else(|| StateError::Input {
            what: "owner",
            problem: format!("{:?} can't be the name of a file", owner.id()),
        })?;
        let failed = |source: std::io::Error| StateError::Io {
            action: format!("locking {}", path.display()),
            source,
        };
        self.make_folder().map_err(failed)?;
        loop {
            let file = open_lock_file(&path).map_err(failed)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Somebody looks whether the file may go. That takes an instant.
                Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                    std::thread::yield_now();
                    continue;
                }
                Err(error) => return Err(failed(error.into())),
            }
            // It may have gone before we locked it: the lock must be on the file that others find.
            let locked = file.metadata().map_err(failed)?;
            if fs::metadata(&path).is_ok_and(|there| there.ino() == locked.ino()) {
                return Ok(OwnerPresence { _file: file });
            }
        }
    }

    /// Whether this owner said that it lives, and does no more. Some microseconds; makes nothing.
    pub(crate) fn is_dead(&self, owner: &str) -> bool {
        self.file(owner).is_some_and(|path| {
            lock_of_nobody(&path, FlockOperation::NonBlockingLockShared).is_some()
        })
    }

    /// Removes the files of dead owners that no lease names. An owner that is about to begin takes its file anew.
    pub(super) fn clean(
        &self,
        has_lease: impl Fn(&str) -> Result<bool, StateError>,
    ) -> Result<usize, StateError> {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return Ok(0);
        };
        let mut removed = 0;
        for entry in entries.take(CLEAN_LIMIT).flatten() {
            let name = entry.file_name();
            let Some((owner, path)) = name.to_str().and_then(|id| Some((id, self.file(id)?)))
            else {
                continue;
            };
            // The lock first: what a dead owner committed is seen by whoever reads after its death.
            let Some(lock) = lock_of_nobody(&path, FlockOperation::NonBlockingLockExclusive) else {
                continue;
            };
            if !has_lease(owner)? && fs::remove_file(&path).is_ok() {
                removed += 1;
            }
            drop(lock);
        }
        Ok(removed)
    }

    /// The file of an owner. None for an id that is no plain name, which can't have one.
    fn file(&self, owner: &str) -> Option<PathBuf> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name = !owner.is_empty()
            && owner.len() <= NAME_LIMIT
            && !owner.starts_with('.')
            && owner.bytes().all(plain);
        is_name.then(|| self.folder.join(owner))
    }

    fn make_folder(&self) -> std::io::Result<()> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(&self.folder) {
            // The umask can only have taken bits away.
            Ok(()) => fs::set_permissions(&self.folder, Permissions::from_mode(DIRECTORY_MODE)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if fs::symlink_metadata(&self.folder)?.is_dir() {
                    Ok(())
                } else {
                    Err(std::io::Error::new(
                        ErrorKind::NotADirectory,
                        format!("{} is no directory", self.folder.display()),
                    ))
                }
            }
            Err(error) => Err(error),
        }
    }
}

/// The lock of a file that nobody else holds. None when somebody does, and for everything that can't be found out.
fn lock_of_nobody(path: &Path, operation: FlockOperation) -> Option<std::os::fd::OwnedFd> {
    // A file of another kind must not keep whoever looks waiting.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty()).ok()?;
    let is_file = fstat(&file).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::RegularFile
    });
    (is_file && flock(&file, operation).is_ok()).then_some(file)
}

impl Database {
    /// Says that `owner` lives, from now until the presence is dropped or this process ends. To be said before its first claim:
    /// whoever meets its leases after its death then need not wait for their expiry. Files of dead owners that nothing needs any
    /// more go on this occasion.
    ///
    /// ```
    /// use holdpoint_state::testing::{TestStore, counter};
    /// use holdpoint_state::{Actor, Owner, OwnerKind, StateError};
    ///
    /// let store = TestStore::counters()?;
    /// counter::create(store.db(), "orders")?;
    /// let claim = |owner: &Owner| store.db().claim(counter::resource("orders"), Actor::host("h"), owner, 30_000);
    /// let (first, second) = (Owner::new(OwnerKind::Host, "first"), Owner::new(OwnerKind::Host, "second"));
    /// let presence = store.db().announce_owner(&first)?;
    /// assert_eq!(claim(&first)?.generation(), 1);
    /// assert!(matches!(claim(&second), Err(StateError::LeaseHeld { .. })));
    /// // As when its process is killed: no time has to pass.
    /// drop(presence);
    /// assert_eq!(claim(&second)?.generation(), 2);
    /// # Ok::<(), StateError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] for an id that is no plain name, [`StateError::Io`] when the folder or the file can't be made or
    /// locked. The leases of the owner then end by their expiry only, which is safe.
    pub fn announce_owner(&self, owner: &Owner) -> Result<OwnerPresence, StateError> {
        self.check_process()?;
        let presence = self.shared().owners.announce(owner)?;
        self.clean_owners()?;
        Ok(presence)
    }

    /// Removes the files of dead owners that no lease names any more. Returns how many.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn clean_owners(&self) -> Result<usize, StateError> {
        self.check_process()?;
        self.shared().owners.clean(|owner| {
            // A snapshot of its own for each: it must begin after the death of the owner is known.
            leases::names_owner(&self.snapshot()?.sql(), owner)
        })
    }
}

impl Snapshot<'_> {
    /// The owners of leases that have not expired at `now` which are known to be dead: their leases can be taken over.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn dead_owners(&self, now: UnixMillis) -> Result<Vec<String>, StateError> {
        let mut owners = leases::live_owners(&self.sql(), now)?;
        owners.retain(|owner| self.owners().is_dead(owner));
        Ok(owners)
    }

    /// Whether an owner said that it lives, and does no more. Every doubt counts as life: one that never said it, and one whose file
    /// [was removed](Database::clean_owners), are not known to be dead.
    pub fn is_dead_owner(&self, owner: &str) -> bool {
        self.owners().is_dead(owner)
    }
}
