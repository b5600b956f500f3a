//! Where the file is, and the making of an empty one with the right modes. Not here: what is in it.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::refused;
use crate::error::{Refusal, StateError};
use crate::id::random_id;

/// The mode of the database, its side files, lock files and backups.
pub(super) const FILE_MODE: u32 = 0o600;
/// The mode of the directory.
pub(in crate::database) const DIRECTORY_MODE: u32 = 0o700;

/// The product's database in the home directory of the user: `~/.pi/agent/workflows/state.sqlite`.
///
/// Only the home directory decides; no other variable moves live storage. `None` when it is unknown or not absolute.
pub fn product_path() -> Option<PathBuf> {
    std::env::home_dir()
        .filter(|home| home.is_absolute())
        .map(|home| product_path_in(&home))
}

/// The product's database in a home directory that the caller names, such as a temporary one in tests.
///
/// ```
/// use holdpoint_state::database::product_path_in;
///
/// let path = product_path_in("/home/ada".as_ref());
/// assert_eq!(path.to_str(), Some("/home/ada/.pi/agent/workflows/state.sqlite"));
/// ```
pub fn product_path_in(home: &Path) -> PathBuf {
    home.join(".pi/agent/workflows/state.sqlite")
}

/// A database path with every symbolic link resolved, so that all names of one file lead to the same side files.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) real: PathBuf,
    pub(super) directory: PathBuf,
    pub(super) exists: bool,
}

/// Resolves `path`. A link to a file is followed; a link to nothing is refused, because what it leads to can't be checked.
pub(super) fn resolve(path: &Path) -> Result<Place, StateError> {
    let absolute = std::path::absolute(path).map_err(|source| failed("resolving", path, source))?;
    let no_file = |detail: &str| {
        refused(
            path,
            Refusal::NotAFile {
                detail: detail.into(),
            },
        )
    };
    let (Some(name), Some(parent)) = (absolute.file_name(), absolute.parent()) else {
        return Err(no_file("it names a directory"));
    };
    let (real, exists) = loop {
        match fs::canonicalize(&absolute) {
            Ok(real) => break (real, true),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(unreachable_path(path, error)),
        }
        match fs::symlink_metadata(&absolute) {
            Ok(found) if found.is_symlink() => {
                return Err(no_file("it is a symbolic link to nothing"));
            }
            // Somebody created it between the two looks: look again.
            Ok(_) => {}
            Err(_) => {
                // The directory may be missing too. It is resolved as soon as it exists.
                let parent = fs::canonicalize(parent).unwrap_or_else(|_| parent.to_owned());
                break (parent.join(name), false);
            }
        }
    };
    let directory = real
        .parent()
        .ok_or_else(|| no_file("it names a directory"))?
        .to_owned();
    Ok(Place {
        real,
        directory,
        exists,
    })
}

/// Makes the directory and an empty file, unless another process was faster.
///
/// The file gets its mode under a temporary name and appears under its own name closed and complete: no process ever meets it
/// with another mode, and no descriptor but SQLite's ever refers to a file that somebody may have open.
pub(super) fn create(place: &Place) -> Result<(), StateError> {
    create_directory(&place.directory)?;
    let mut name = std::ffi::OsString::from(".");
    name.push(place.real.file_name().unwrap_or_default());
    name.push(random_id(".new"));
    let temporary = place.directory.join(name);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&temporary)
        .map_err(|error| unreachable_path(&place.real, error))?;
    // The umask can only have taken bits away; put them back.
    file.set_permissions(Permissions::from_mode(FILE_MODE))
        .map_err(|source| failed("setting the mode of", &temporary, source))?;
    drop(file);
    let moved = move_if_absent(&temporary, &place.real);
    if !matches!(moved, Ok(true)) {
        // Somebody else's file has the name, or moving failed: the empty file of ours is of no use.
        drop(fs::remove_file(&temporary));
    }
    moved.map_err(|source| failed("creating", &place.real, source))?;
    // SQLite makes its own files durable, but the name of this one is ours to keep over a power cut.
    sync_directory(&place.directory)
}

/// Opens a lock file of ours beside a database, and makes it with the right mode when it is missing.
pub(in crate::database) fn open_lock_file(path: &Path) -> std::io::Result<fs::File> {
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path);
    match made {
        Ok(file) => {
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
            Ok(file)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path),
        Err(error) => Err(error),
    }
}

/// Gives a file its name unless the name is taken. Returns whether it did.
fn move_if_absent(from: &Path, to: &Path) -> std::io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        // Some file systems can't do it in one step. The file then has two names for an instant, which is why an empty file
        // may have two.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match fs::hard_link(from, to) {
            Ok(()) => fs::remove_file(from).map(|()| true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
        Err(error) => Err(error.into()),
    }
}

/// Makes each missing directory with mode 0700. Directories that exist are left as they are.
fn create_directory(directory: &Path) -> Result<(), StateError> {
    let mut missing = Vec::new();
    let mut ancestor = directory;
    while !ancestor.exists() {
        missing.push(ancestor);
        match ancestor.parent() {
            Some(parent) => ancestor = parent,
            None => break,
        }
    }
    for directory in missing.into_iter().rev() {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(unreachable_path(directory, error)),
        }
        fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))
            .map_err(|source| failed("setting the mode of", directory, source))?;
        if let Some(parent) = directory.parent() {
            sync_directory(parent)?;
        }
    }
    Ok(())
}

fn sync_directory(directory: &Path) -> Result<(), StateError> {
    match fs::File::open(directory).and_then(|opened| opened.sync_all()) {
        // A parent that may be passed through but not read can't be synced by us; its owner made it durable.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        other => other.map_err(|source| failed("syncing the directory", directory, source)),
    }
}

/// A missing right is a refusal that says so; everything else is an error of the operating system.
fn unreachable_path(path: &Path, error: std::io::Error) -> StateError {
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => refused(
            path,
            Refusal::Access {
                detail: format!("the store can't be reached or created ({error})"),
            },
        ),
        ErrorKind::NotADirectory => refused(
            path,
            Refusal::NotAFile {
                detail: "a part of the path is no directory".into(),
            },
        ),
        _ => failed("reaching", path, error),
    }
}

fn failed(action: &str, path: &Path, source: std::io::Error) -> StateError {
    StateError::Io {
        action: format!("{action} {}", path.display()),
        source,
    }
}
