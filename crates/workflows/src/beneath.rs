//! One open directory, and what is done to the names in it: how files are written where others may write too.
//!
//! Each step takes one name relative to a descriptor and follows no link, so what happens to the way
//! after it was walked changes nothing. No path of more than one name may be given to a call here.
//! The built-in actions of workflow files stand on it, and domains whose effects are files.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;

/// What happens when a directory on the way is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// It is made.
    Make,
    /// It is an error.
    Refuse,
}

/// What is there under a name.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// Whether it is an ordinary file.
    pub is_file: bool,
    /// Whether it is a directory.
    pub is_directory: bool,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Reading, writing and running for owner, group and others. What runs a file as somebody else is
    /// not among them: the system too takes that away from a file that is written.
    pub permissions: Mode,
}

impl Found {
    fn of(stat: &Stat) -> Self {
        let mode: RawMode = stat.st_mode;
        Self {
            size_bytes: u64::try_from(stat.st_size).unwrap_or(0),
            is_directory: FileType::from_raw_mode(mode) == FileType::Directory,
            is_file: FileType::from_raw_mode(mode) == FileType::RegularFile,
            permissions: Mode::from_raw_mode(mode)
                .intersection(Mode::RWXU | Mode::RWXG | Mode::RWXO),
        }
    }

    /// Whether the mode lets its owner write it.
    pub fn owner_may_write(&self) -> bool {
        self.permissions.contains(Mode::WUSR)
    }
}

/// An open directory.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory where every walk begins.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, WALK, Mode::empty())?))
    }

    /// The directory `name` in this one.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn down(&self, name: &OsStr, missing: Missing) -> io::Result<Self> {
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
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn look(&self, name: &OsStr) -> io::Result<Found> {
        let stat = rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(Found::of(&stat))
    }

    /// Makes a new file with exactly these permissions, or with those that new files have.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn create(&self, name: &OsStr, permissions: Option<Mode>) -> io::Result<File> {
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
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn open_file(&self, name: &OsStr) -> io::Result<Option<File>> {
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

    /// Removes a file; of a link the link itself.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// Gives a file another name, in the place of what has it.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, from, &self.0, to)?)
    }

    /// Gives a file a second name, which nothing has yet.
    ///
    /// # Errors
    ///
    /// What the system says: [`io::ErrorKind::AlreadyExists`] when something has the name.
    pub fn link(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::linkat(
            &self.0,
            from,
            &self.0,
            to,
            AtFlags::empty(),
        )?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    ///
    /// What the system says: [`io::ErrorKind::DirectoryNotEmpty`] when something is in it.
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// The names in it, in no order, without itself and the one above: at most `limit` of them.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn names(&self, limit: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if limit <= names.len() {
                break;
            }
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.0)?)
    }
}

/// How a directory is opened: never through a link, and not kept by commands that are started.
const WALK: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
