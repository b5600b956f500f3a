//! What `stat` tells of a store before anything is opened: kind, links, modes, rights, file system.
//!
//! Nothing here opens a file: closing a descriptor of a database would drop the locks that this process holds on it.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};

use super::file_system::{FileSystem, Reach};
use super::path::{DIRECTORY_MODE, FILE_MODE, Place};
use super::{Options, refused};
use crate::database::beside;
use crate::database::owners::FOLDER;
use crate::error::{Refusal, StateError};

/// The files that lie beside a database: SQLite's own, and the locks.
const BESIDE: [&str; 6] = [
    "-wal",
    "-shm",
    "-journal",
    ".queue-lock",
    ".work-lock",
    ".open-lock",
];

/// The bits that let others read or write a file.
const OTHERS: u32 = 0o077;

/// The bits that let others put files into a directory, and take ours away. Who can only list it learns the names of files that
/// it can't read; a directory that an embedder chose may allow that. The directories that we make allow nothing.
const OTHERS_WRITE: u32 = 0o022;

/// Checks the place of a store. Of a missing one, the nearest directory that exists.
pub(super) fn check(place: &Place, options: &Options) -> Result<(), StateError> {
    check_place(place, options).map_err(|refusal| refused(&place.real, refusal))
}

fn check_place(place: &Place, options: &Options) -> Result<(), Refusal> {
    let Some(nearest) = place.real.ancestors().find(|path| path.exists()) else {
        return Err(Refusal::NotAFile {
            detail: "no part of the path exists".into(),
        });
    };
    check_file_system(nearest, options)?;
    check_log(place)?;
    if !place.exists {
        if place.directory.exists() {
            check_directory(&place.directory)?;
        }
        return Ok(());
    }
    let found = stat(&place.real)?;
    if !found.is_file() {
        return Err(Refusal::NotAFile {
            detail: kind_of(&found).into(),
        });
    }
    // Under the moment's second name of its creation a file is empty. Nothing can be lost by two names of nothing.
    if found.nlink() > 1 && found.len() > 0 {
        return Err(Refusal::HardLinks {
            links: found.nlink(),
        });
    }
    check_mode(&place.real, &found, OTHERS, FILE_MODE)?;
    for suffix in BESIDE {
        let mut beside = place.real.clone().into_os_string();
        beside.push(suffix);
        let beside = PathBuf::from(beside);
        if let Ok(found) = fs::symlink_metadata(&beside) {
            if !found.is_file() {
                return Err(Refusal::NotAFile {
                    detail: format!("{} is {}", beside.display(), kind_of(&found)),
                });
            }
            check_mode(&beside, &found, OTHERS, FILE_MODE)?;
        }
    }
    check_owners(&place.real)?;
    check_directory(&place.directory)?;
    check_right(
        &place.real,
        Access::READ_OK | Access::WRITE_OK,
        "the database needs the right to read and write",
    )
}

/// Refuses a log whose database is missing or has no bytes. SQLite would take the log for a leftover and remove it.
///
/// A creation gives the file its first page before it makes a log. Looking at the log first therefore never meets one that another
/// process is just making.
fn check_log(place: &Place) -> Result<(), Refusal> {
    let mut log = place.real.clone().into_os_string();
    log.push("-wal");
    let log = PathBuf::from(log);
    let Ok(found) = fs::symlink_metadata(&log) else {
        return Ok(());
    };
    if !found.is_file() || found.len() == 0 {
        return Ok(());
    }
    match fs::metadata(&place.real) {
        Ok(database) if !database.is_file() || 0 < database.len() => Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => Ok(()),
        _ => Err(Refusal::LogWithoutDatabase {
            log,
            size_bytes: found.len(),
        }),
    }
}

/// The folder of owners, if there is one: who could put files into it could declare a living owner dead.
fn check_owners(database: &Path) -> Result<(), Refusal> {
    let folder = beside(database, FOLDER);
    let Ok(found) = fs::symlink_metadata(&folder) else {
        return Ok(());
    };
    if !found.is_dir() {
        return Err(Refusal::NotAFile {
            detail: format!("{} is {}, not a folder", folder.display(), kind_of(&found)),
        });
    }
    check_mode(&folder, &found, OTHERS, DIRECTORY_MODE)
}

/// Old state beside a missing database: the names that exist. They are not looked into.
pub(super) fn old_state(place: &Place, names: &[&str]) -> Vec<PathBuf> {
    names
        .iter()
        .map(|name| place.directory.join(name))
        .filter(|path| fs::symlink_metadata(path).is_ok())
        .collect()
}

fn check_file_system(path: &Path, options: &Options) -> Result<(), Refusal> {
    let file_system = match options.pretend_file_system {
        Some(kind) => FileSystem::named(kind),
        None => FileSystem::of(path).map_err(|error| Refusal::Access {
            detail: format!(
                "the file system of {} can't be asked ({error})",
                path.display()
            ),
        })?,
    };
    match file_system.reach() {
        Reach::Local | Reach::Unknown => Ok(()),
        Reach::Shared => Err(Refusal::FileSystem {
            kind: file_system.kind().to_owned(),
        }),
    }
}

fn check_directory(directory: &Path) -> Result<(), Refusal> {
    let found = stat(directory)?;
    if !found.is_dir() {
        return Err(Refusal::NotAFile {
            detail: format!("{} is no directory", directory.display()),
        });
    }
    check_mode(directory, &found, OTHERS_WRITE, DIRECTORY_MODE)?;
    check_right(
        directory,
        Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK,
        "WAL needs the right to create files in the directory",
    )
}

fn check_mode(path: &Path, found: &Metadata, forbidden: u32, wanted: u32) -> Result<(), Refusal> {
    let actual = found.mode() & 0o7777;
    if actual & forbidden == 0 {
        return Ok(());
    }
    Err(Refusal::Mode {
        what: path.display().to_string(),
        actual,
        wanted,
    })
}

fn check_right(path: &Path, right: Access, needs: &str) -> Result<(), Refusal> {
    accessat(CWD, path, right, AtFlags::EACCESS).map_err(|error| Refusal::Access {
        detail: format!(
            "{needs}: {} ({})",
            path.display(),
            std::io::Error::from(error)
        ),
    })
}

fn stat(path: &Path) -> Result<Metadata, Refusal> {
    fs::metadata(path).map_err(|error| Refusal::Access {
        detail: format!("{} can't be looked at ({error})", path.display()),
    })
}

fn kind_of(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a file"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "of an unknown kind"
    }
}
