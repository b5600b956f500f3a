//! The directory of one resource: looking at its files, writing and removing one of them, and the mark that says whose it is.
//!
//! Every way is walked name by name through open directories and follows no link, so that nothing outside is reached, whoever changes
//! the directory meanwhile. Each directory on the way is asked for its mark: one that belongs to another resource is not entered. Not
//! here: what should be done (`plan`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::PathBuf;

use holdpoint_workflows::beneath::{Directory, Missing};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::plan::Seen;
use super::spec::MARKER;

/// How large a file may be to be compared: larger ones are none of ours.
const FILE_MAX_BYTES: u64 = 8 * 1024 * 1024;
/// How much that is not declared is looked at in one pass.
const OTHERS_MAX: usize = 1_000;
/// How large a mark may be to be read.
const MARK_MAX_BYTES: u64 = 16 * 1024;

/// Whose directory it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mark {
    /// The resource: its uid, so that another one of the same name is another one.
    pub(crate) uid: String,
    /// Its name, for people.
    pub(crate) resource: String,
    /// Whether the resource made the directory.
    pub(crate) made_directory: bool,
}

/// Why something was not done. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlaceError {
    /// Another resource has the directory.
    #[error(
        "the directory {directory:?} belongs to {owner}; if that is gone for ever, remove the file {MARKER} there"
    )]
    Taken {
        /// The directory.
        directory: String,
        /// What its mark says.
        owner: String,
    },
    /// A directory on the way is none.
    #[error("{path:?} can't be reached: something on the way is no directory")]
    Way {
        /// Where the way leads.
        path: String,
    },
    /// Another file is there than was expected.
    #[error("{path:?} was changed by somebody else meanwhile")]
    Changed {
        /// The file.
        path: String,
    },
    /// The system failed.
    #[error("{path:?}: {source}")]
    Io {
        /// What it was done to.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// The directory of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The project, whose own path is trusted.
    pub(crate) project: PathBuf,
    /// The directory, a path that goes down only.
    pub(crate) directory: String,
    /// The resource.
    pub(crate) uid: String,
    /// Its name, for people.
    pub(crate) resource: String,
}

/// A way to a file: the directory that it is in, open, and its name.
struct Reached<'p> {
    parent: Directory,
    name: &'p OsStr,
}

impl Place {
    /// Whether the directory is there and has this resource's mark.
    pub(crate) fn is_claimed(&self) -> Result<bool, PlaceError> {
        let Some(directory) = self.walk(&self.directory, Missing::Refuse)? else {
            return Ok(false);
        };
        let marked = read_mark(&directory).map_err(|source| io_at(&self.directory, source))?;
        Ok(self.own(marked).is_some())
    }

    /// Makes the directory this resource's own, if it is nobody's.
    pub(crate) fn claim(&self) -> Result<(), PlaceError> {
        if self.is_claimed()? {
            return self.clear_claim();
        }
        let made_directory = self.walk(&self.directory, Missing::Refuse)?.is_none();
        let directory = self.make(&self.directory)?;
        let mark = Mark {
            uid: self.uid.clone(),
            resource: self.resource.clone(),
            made_directory,
        };
        let at = |source| io_at(&self.directory, source);
        let bytes = serde_json::to_vec(&mark).map_err(|error| at(error.into()))?;
        // Two resources may come at the same time: the name is given by a link, which only one of them gets.
        let temporary = self.temporary_mark();
        let temporary = OsStr::new(&temporary);
        let linked = write_new(&directory, temporary, &bytes, None)
            .and_then(|()| directory.link(temporary, OsStr::new(MARKER)));
        let removed = directory.remove(temporary);
        match linked {
            Ok(()) => {}
            // Whose it is by now is asked again, below.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(error)),
        }
        removed.and_then(|()| directory.sync()).map_err(at)?;
        if self.is_claimed()? {
            Ok(())
        } else {
            Err(taken(&self.directory, &Marked::No))
        }
    }

    /// Removes what is left of a claim that a crash cut short.
    fn clear_claim(&self) -> Result<(), PlaceError> {
        let Some(directory) = self.walk(&self.directory, Missing::Refuse)? else {
            return Ok(());
        };
        remove_if_there(&directory, OsStr::new(&self.temporary_mark()))
            .map_err(|source| io_at(&self.directory, source))
    }

    fn temporary_mark(&self) -> String {
        format!("{MARKER}.{}", self.uid)
    }

    /// Removes what is left of a writing that a crash cut short. Only the resource gives such names, and only it has the directory.
    pub(crate) fn clear(&self, path: &str, sha256: &str) -> Result<(), PlaceError> {
        match self.reach(path, Missing::Refuse) {
            Ok(Some(reached)) => {
                let temporary = temporary_of(reached.name, sha256);
                remove_if_there(&reached.parent, OsStr::new(&temporary))
                    .map_err(|source| io_at(path, source))
            }
            Ok(None) | Err(PlaceError::Way { .. } | PlaceError::Taken { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Gives the directory back, and removes it if the resource made it and nothing is left in it.
    pub(crate) fn release(&self) -> Result<(), PlaceError> {
        let Some(directory) = self.walk(&self.directory, Missing::Refuse)? else {
            return Ok(());
        };
        let at = |source| io_at(&self.directory, source);
        let Some(mark) = self.own(read_mark(&directory).map_err(at)?) else {
            return Ok(());
        };
        self.clear_claim()?;
        remove_if_there(&directory, OsStr::new(MARKER)).map_err(at)?;
        directory.sync().map_err(at)?;
        if mark.made_directory {
            self.remove_empty(&self.directory)?;
        }
        Ok(())
    }

    /// What is there under a path.
    pub(crate) fn look(&self, path: &str) -> Result<Seen, PlaceError> {
        let reached = match self.reach(path, Missing::Refuse) {
            Ok(Some(reached)) => reached,
            Ok(None) => return Ok(Seen::Absent),
            // Something that is no directory is in the way: it is not touched.
            Err(PlaceError::Way { .. }) => return Ok(Seen::Other),
            Err(error) => return Err(error),
        };
        seen(&reached).map_err(|source| io_at(path, source))
    }

    /// What is in the directory beside the files that are `known`: a bounded number of it, the rest is for later passes. The directories of
    /// other resources are left out with all that is in them, and names that are no text.
    pub(crate) fn others(
        &self,
        known: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, Seen>, PlaceError> {
        let mut found = BTreeMap::new();
        let mut left = vec![String::new()];
        while let Some(above) = left.pop() {
            let way = format!("{}/{above}", self.directory);
            let directory = match self.walk(&way, Missing::Refuse) {
                Ok(Some(directory)) => directory,
                Ok(None) | Err(PlaceError::Taken { .. } | PlaceError::Way { .. }) => continue,
                Err(error) => return Err(error),
            };
            let at = |source| io_at(&way, source);
            for name in directory.names(OTHERS_MAX).map_err(at)? {
                if OTHERS_MAX <= found.len() {
                    return Ok(found);
                }
                let Some(text) = name.to_str().filter(|name| *name != MARKER) else {
                    continue;
                };
                let path = if above.is_empty() {
                    text.to_owned()
                } else {
                    format!("{above}/{text}")
                };
                match directory.look(&name) {
                    Ok(there) if there.is_directory => left.push(path),
                    Ok(_) if known(&path) => {}
                    Ok(_) => drop(found.insert(path.clone(), self.look(&path)?)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(at(error)),
                }
            }
        }
        Ok(found)
    }

    /// Writes a file whole or not at all, if what is there is what `before` says.
    pub(crate) fn write(
        &self,
        path: &str,
        bytes: &[u8],
        before: Option<&str>,
    ) -> Result<(), PlaceError> {
        let at = |source| io_at(path, source);
        let changed = || PlaceError::Changed {
            path: path.to_owned(),
        };
        let reached = self.reach(path, Missing::Make)?.ok_or_else(changed)?;
        let sha256 = sha256(bytes);
        let is_expected = |there: &Seen| match (there, before) {
            (Seen::Absent, _) => true,
            (Seen::File(there), before) => Some(there.as_str()) == before,
            (Seen::Large | Seen::Other, _) => false,
        };
        let there = seen(&reached).map_err(at)?;
        if there == Seen::File(sha256.clone()) {
            return Ok(());
        }
        if !is_expected(&there) {
            return Err(changed());
        }
        let permissions = match reached.parent.look(reached.name) {
            Ok(found) => Some(found.permissions),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(at(error)),
        };
        let temporary = temporary_of(reached.name, &sha256);
        let temporary = OsStr::new(&temporary);
        let written = write_new(&reached.parent, temporary, bytes, permissions).and_then(|()| {
            if there == Seen::Absent {
                // A link takes the name only if nobody has it by now.
                reached.parent.link(temporary, reached.name)?;
                reached.parent.remove(temporary)
            } else if is_expected(&seen(&reached)?) {
                reached.parent.rename(temporary, reached.name)
            } else {
                Err(ErrorKind::AlreadyExists.into())
            }
        });
        if let Err(error) = written {
            // What is left of the attempt is of no use; the error to tell is the first one.
            let _left = reached.parent.remove(temporary);
            return Err(if error.kind() == ErrorKind::AlreadyExists {
                changed()
            } else {
                at(error)
            });
        }
        reached.parent.sync().map_err(at)
    }

    /// Removes a file that is as it was written, and the directories that are empty then. One that is gone already is done.
    pub(crate) fn remove(&self, path: &str, sha256: &str) -> Result<(), PlaceError> {
        let at = |source| io_at(path, source);
        let Some(reached) = self.reach(path, Missing::Refuse)? else {
            return Ok(());
        };
        match seen(&reached).map_err(at)? {
            Seen::Absent => return Ok(()),
            Seen::File(there) if there == sha256 => {}
            Seen::File(_) | Seen::Large | Seen::Other => {
                return Err(PlaceError::Changed {
                    path: path.to_owned(),
                });
            }
        }
        remove_if_there(&reached.parent, reached.name).map_err(at)?;
        reached.parent.sync().map_err(at)?;
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            if !self.remove_empty(&format!("{}/{parent}", self.directory))? {
                break;
            }
            above = parent;
        }
        Ok(())
    }

    /// Removes a directory if nothing is in it.
    fn remove_empty(&self, path: &str) -> Result<bool, PlaceError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(parent) = self.walk(above, Missing::Refuse)? else {
            return Ok(false);
        };
        match parent.remove_directory(OsStr::new(name)) {
            Ok(()) => parent
                .sync()
                .map(|()| true)
                .map_err(|source| io_at(path, source)),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::DirectoryNotEmpty
                ) =>
            {
                Ok(false)
            }
            // A directory that can't be removed, such as one that something is mounted on, is left behind.
            Err(_) => Ok(false),
        }
    }

    fn reach<'p>(
        &self,
        path: &'p str,
        missing: Missing,
    ) -> Result<Option<Reached<'p>>, PlaceError> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let way = if above.is_empty() {
            self.directory.clone()
        } else {
            format!("{}/{above}", self.directory)
        };
        let parent = match missing {
            Missing::Refuse => self.walk(&way, missing)?,
            Missing::Make => Some(self.make(&way)?),
        };
        Ok(parent.map(|parent| Reached {
            parent,
            name: OsStr::new(name),
        }))
    }

    /// The directory at the end of a way, made if need be.
    fn make(&self, way: &str) -> Result<Directory, PlaceError> {
        let gone = || io_at(way, ErrorKind::NotFound.into());
        self.walk(way, Missing::Make)?.ok_or_else(gone)
    }

    /// The directory at the end of a way below the project; none if it is not there. No directory of another resource is entered.
    fn walk(&self, way: &str, missing: Missing) -> Result<Option<Directory>, PlaceError> {
        let at = |source| io_at(way, source);
        let mut directory = Directory::open(&self.project).map_err(at)?;
        let mut walked = String::new();
        for name in way.split('/').filter(|name| !name.is_empty()) {
            walked = if walked.is_empty() {
                name.to_owned()
            } else {
                format!("{walked}/{name}")
            };
            directory = match directory.down(OsStr::new(name), missing) {
                Ok(down) => down,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                Err(error) if is_no_directory(&error) => {
                    return Err(PlaceError::Way {
                        path: way.to_owned(),
                    });
                }
                Err(error) => return Err(at(error)),
            };
            match read_mark(&directory).map_err(at)? {
                Marked::No => {}
                Marked::By(mark) if mark.uid == self.uid => {}
                other => return Err(taken(&walked, &other)),
            }
        }
        Ok(Some(directory))
    }

    /// The mark, if it is this resource's.
    fn own(&self, marked: Marked) -> Option<Mark> {
        match marked {
            Marked::By(mark) if mark.uid == self.uid => Some(mark),
            Marked::No | Marked::By(_) | Marked::Unreadable => None,
        }
    }
}

/// The name that a file has until it is whole.
fn temporary_of(name: &OsStr, sha256: &str) -> String {
    let digest = sha256.get(..16).unwrap_or(sha256);
    format!(".{}.{digest}.tmp", name.to_string_lossy())
}

/// SHA-256 in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

fn io_at(path: &str, source: io::Error) -> PlaceError {
    PlaceError::Io {
        path: path.to_owned(),
        source,
    }
}

/// A link is told as a loop, since it is not followed.
fn is_no_directory(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotADirectory
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

fn seen(reached: &Reached<'_>) -> io::Result<Seen> {
    let found = match reached.parent.look(reached.name) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Seen::Absent),
        Err(error) => return Err(error),
    };
    if !found.is_file {
        return Ok(Seen::Other);
    }
    if FILE_MAX_BYTES < found.size_bytes {
        return Ok(Seen::Large);
    }
    let Some(file) = reached.parent.open_file(reached.name)? else {
        return Ok(Seen::Other);
    };
    // It may grow while it is read.
    let mut bytes = Vec::new();
    file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(if FILE_MAX_BYTES < bytes.len() as u64 {
        Seen::Large
    } else {
        Seen::File(sha256(&bytes))
    })
}

fn taken(directory: &str, marked: &Marked) -> PlaceError {
    let owner = match marked {
        Marked::By(mark) => format!("the resource {} ({})", mark.resource, mark.uid),
        Marked::No | Marked::Unreadable => "another resource".to_owned(),
    };
    PlaceError::Taken {
        directory: directory.to_owned(),
        owner,
    }
}

/// What a directory says about whose it is.
enum Marked {
    /// It is nobody's.
    No,
    /// It is this one's.
    By(Mark),
    /// It has a mark that can't be read.
    Unreadable,
}

fn read_mark(directory: &Directory) -> io::Result<Marked> {
    let file = match directory.open_file(OsStr::new(MARKER)) {
        Ok(Some(file)) => file,
        // Something else has the name: whose it is can't be known.
        Ok(None) => return Ok(Marked::Unreadable),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Marked::No),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MARK_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes).map_or(Marked::Unreadable, Marked::By))
}

fn write_new(
    directory: &Directory,
    name: &OsStr,
    bytes: &[u8],
    permissions: Option<rustix::fs::Mode>,
) -> io::Result<()> {
    // Never through what is there: that may be a link that leads out, or the rest of an attempt that was killed.
    remove_if_there(directory, name)?;
    let mut file = directory.create(name, permissions)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn remove_if_there(directory: &Directory, name: &OsStr) -> io::Result<()> {
    match directory.remove(name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
