//! Files of a store and of its copies: names, modes, moves and flushes. Nothing here reads or writes what is in a live store.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};

use crate::database::beside;
use crate::error::StateError;

/// What SQLite keeps beside a database.
pub(super) const SIDE_SUFFIXES: [&str; 3] = ["-wal", "-shm", "-journal"];
/// The end of the name of a copy that is not finished.
const PARTIAL: &str = ".partial";

pub(super) fn io(action: impl Into<String>) -> impl FnOnce(Error) -> StateError {
    let action = action.into();
    move |source| StateError::Io { action, source }
}

/// The directory that a file lies in.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// The size of a file by its name, 0 when there is none.
pub(super) fn size_bytes(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// A hidden name beside `target` for a copy that is not finished yet.
pub(super) fn partial_name(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let unique = crate::id::random_id(&format!(".{name}"));
    directory_of(target).join(format!("{unique}{PARTIAL}"))
}

/// The unfinished copies of `target` that lie in its directory.
pub(super) fn leftovers(target: &Path) -> Vec<PathBuf> {
    let prefix = format!(
        ".{}-",
        target.file_name().unwrap_or_default().to_string_lossy()
    );
    let Ok(entries) = std::fs::read_dir(directory_of(target)) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name().is_some_and(|name| {
                let name = name.to_string_lossy();
                name.starts_with(&prefix) && name.ends_with(PARTIAL)
            })
        })
        .collect();
    found.sort();
    found
}

/// The right to make copies in a directory. Whoever has it knows that nobody else's copy is unfinished there.
pub(super) struct CopyRight {
    _directory: File,
}

/// Takes the copy right of the target's directory and sweeps what a killed copy of the same target left.
///
/// # Errors
///
/// [`StateError::InUse`] while another copy into this directory runs.
pub(super) fn copy_right(target: &Path) -> std::result::Result<CopyRight, StateError> {
    let directory = directory_of(target);
    let action = || format!("opening the directory {}", directory.display());
    let file = File::open(directory).map_err(io(action()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            return Err(StateError::InUse {
                path: directory.to_owned(),
                by: "another backup or restore writes here; wait for its end",
            });
        }
        // Some network file systems can't lock a directory: then nothing is swept, and the names are unique all the same.
        Err(_) => return Ok(CopyRight { _directory: file }),
    }
    for leftover in leftovers(target) {
        tracing::warn!(path = %leftover.display(), "removing an unfinished copy");
        remove_copy(&leftover);
    }
    Ok(CopyRight { _directory: file })
}

/// Makes an empty file with mode 0600, whatever the umask.
pub(super) fn create_private(path: &Path) -> Result<File> {
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes a directory and those above it with mode 0700.
pub(super) fn create_private_directory(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// Removes an unfinished copy with what SQLite may have put beside it. What can't be removed is swept by the next copy.
pub(super) fn remove_copy(path: &Path) {
    for suffix in SIDE_SUFFIXES {
        drop(std::fs::remove_file(beside(path, suffix)));
    }
    drop(std::fs::remove_file(path));
}

/// Flushes a file that no SQLite connection has open.
pub(super) fn flush_file(path: &Path) -> Result<()> {
    File::open(path)?.sync_all()
}

/// Flushes a directory, so that names in it are durable.
pub(super) fn flush_directory(path: &Path) -> Result<()> {
    File::open(path)?.sync_all()
}

/// Gives a file another name, but never in place of an existing file.
pub(super) fn rename_new(from: &Path, to: &Path) -> Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // The file system does not know the flag: look first. Two copies at the same instant are kept apart by the copy right.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::NOTSUP) => {
            if to.symlink_metadata().is_ok() {
                return Err(ErrorKind::AlreadyExists.into());
            }
            std::fs::rename(from, to)
        }
        Err(error) => Err(error.into()),
    }
}

/// Bytes that may still be written below `directory`.
pub(super) fn free_bytes(directory: &Path) -> Result<u64> {
    let volume = rustix::fs::statvfs(directory)?;
    Ok(volume.f_bavail.saturating_mul(volume.f_frsize))
}

/// Checks that a copy of `size_bytes` fits: twice, because the store's write-ahead log may grow meanwhile, and a reserve.
pub(super) fn check_room(directory: &Path, size_bytes: u64) -> std::result::Result<(), StateError> {
    const RESERVE_BYTES: u64 = 16 * 1024 * 1024;
    let needed = size_bytes.saturating_mul(2).saturating_add(RESERVE_BYTES);
    let free = free_bytes(directory).map_err(io(format!(
        "asking for the room in {}",
        directory.display()
    )))?;
    if free < needed {
        return Err(StateError::Io {
            action: format!(
                "making a copy in {}: {needed} bytes are needed, {free} are free; so it",
                directory.display()
            ),
            source: ErrorKind::StorageFull.into(),
        });
    }
    Ok(())
}

/// A SQLite URI of a path (<https://www.sqlite.org/uri.html>).
pub(super) fn uri(path: &Path, parameters: &str) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F',
    ];
    let mut text = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/.-_".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.extend(DIGITS.get(usize::from(byte >> 4)));
            text.extend(DIGITS.get(usize::from(byte & 15)));
        }
    }
    text.push('?');
    text.push_str(parameters);
    text
}

/// The files that restores of this store set aside.
pub(super) fn set_aside(database: &Path) -> Vec<PathBuf> {
    let prefix = format!(
        "{}.replaced-",
        database.file_name().unwrap_or_default().to_string_lossy()
    );
    let Ok(entries) = std::fs::read_dir(directory_of(database)) else {
        return Vec::new();
    };
    let mut found: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
        })
        .collect();
    found.sort();
    found
}
