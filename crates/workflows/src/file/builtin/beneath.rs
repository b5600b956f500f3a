//! One open directory, and what is done to the names in it.
//!
//! Each step takes one name relative to a descriptor and follows no link, so what happens to the way
//! after it was walked changes nothing. No path of more than one name may be given to a call here.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

/// What happens when a directory on the way is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is made.
    Make,
    /// It is an error.
    Refuse,
}

/// What is there under a name.
pub(super) struct Found {
    pub(super) is_file: bool,
    /// Reading, writing and running for owner, group and others. What runs a file as somebody else is
    /// not among them: the system too takes that away from a file that is written.
    pub(super) permissions: Mode,
}

impl Found {
    fn of(stat: &Stat) -> Self {
        let mode: RawMode = stat.st_mode;
        Self {
            is_file: FileType::from_raw_mode(mode) == FileType::RegularFile,
            permissions: Mode::from_raw_mode(mode)
                .intersection(Mode::RWXU | Mode::RWXG | Mode::RWXO),
        }
    }

    pub(super) fn owner_may_write(&self) -> bool {
        self.permissions.contains(Mode::WUSR)
    }
}

/// An open directory.
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory where every walk begins.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, WALK, Mode::empty())?))
    }

    /// The directory `name` in this one.
    pub(super) fn down(&self, name: &OsStr, missing: Missing) -> io::Result<Self> {
        let mut opened = rustix::fs::openat(&self.0, name, WALK, Mode::empty());
        if opened.as_ref().err() == Some(&Errno::NOENT) && missing == Missing::Make {
            match rustix::fs::mkdirat(&self.0, name, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            opened = rustix::fs::openat(&self.0, name, WALK, Mode::empty());
        }
        Ok(Self(opened?))
    }

    /// What is there under a name; of a link the link itself.
    pub(super) fn look(&self, name: &OsStr) -> io::Result<Found> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Found::of(&stat))
    }

    /// Makes a new file with exactly these permissions, or with those that new files have.
    pub(super) fn create(&self, name: &OsStr, permissions: Option<Mode>) -> io::Result<File> {
        // Nobody else may open it before it has the permissions of the file that it replaces.
        let first = match permissions {
            Some(_) => Mode::RUSR | Mode::WUSR,
            None => Mode::from_raw_mode(0o666),
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = rustix::fs::openat(&self.0, name, flags | OFlags::CLOEXEC, first)?;
        if let Some(permissions) = permissions {
            rustix::fs::fchmod(&file, permissions)?;
        }
        Ok(file.into())
    }

    /// Opens an ordinary file to read it; `None` if it is something else.
    pub(super) fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
        // Asked before it is opened, because opening a pipe is felt by who writes into it; and asked
        // again after, because something else may have the name by then. It is never waited for.
        if !self.look(name)?.is_file {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::openat(&self.0, name, flags | OFlags::CLOEXEC, Mode::empty())?;
        let found = Found::of(&rustix::fs::fstat(&file)?);
        Ok(found.is_file.then(|| file.into()))
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Makes the names in it durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }
}

/// How a directory is opened: never through a link, and not kept by commands that are started.
const WALK: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
