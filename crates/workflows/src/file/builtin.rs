//! The actions that workflow files have built in: reading and writing one file.
//!
//! Both stay inside the working directory of the engine: the path is relative, goes down only, and no
//! symbolic link on its way leads out. What is opened is reached through `beneath`, so that this also
//! holds while somebody changes the directory. Nothing here may open, make or rename anything by a path.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::beneath::{Directory, Missing};
use crate::definition::NodeError;

/// How large a file may be to be read.
const READ_MAX_BYTES: u64 = 1024 * 1024;

/// Held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes a file whole or not at all: a temporary file beside it, made durable and renamed. Writing the
/// same again changes nothing, so the action is idempotent. A file that was there keeps its permissions.
pub(super) fn write_file(path: &str, content: &Value) -> Result<Value, NodeError> {
    write_file_in(&std::env::current_dir()?, path, content)
}

fn write_file_in(base: &Path, path: &str, content: &Value) -> Result<Value, NodeError> {
    let bytes = match content {
        Value::String(text) => text.clone().into_bytes(),
        other => {
            let mut bytes = serde_json::to_vec_pretty(other)?;
            bytes.push(b'\n');
            bytes
        }
    };
    let target = inside(base, path)?;
    let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(refused(path, "does not name a file"));
    };
    // One writer of this process at a time: an attempt that was left behind may still be at work beside its successor.
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = reach(base, parent, path, Missing::Make)?;
    let permissions = match directory.look(name) {
        Ok(found) if !found.is_file => {
            return Err(refused(path, "names something that is no ordinary file"));
        }
        // The rename would replace it, whatever its mode says: only the directory is asked.
        Ok(found) if !found.owner_may_write() => {
            return Err(refused(path, "names a file that its owner may not write"));
        }
        Ok(found) => Some(found.permissions),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(at(&target, &error)),
    };
    let digest = hex(&Sha256::digest(&bytes));
    let temporary = format!(
        ".{}.{}.tmp",
        name.to_string_lossy(),
        digest.get(..16).unwrap_or_default()
    );
    let temporary = Path::new(&temporary).as_os_str();
    // Never through what is there: that may be a link that leads out, or the rest of an attempt that was killed.
    let cleared = match directory.remove(temporary) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let written = cleared
        .and_then(|()| directory.create(temporary, permissions))
        .and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        })
        .and_then(|()| directory.rename(temporary, name));
    if let Err(error) = written {
        // What is left of the attempt is of no use; the error to tell is the first one.
        let _left = directory.remove(temporary);
        return Err(at(&target, &error));
    }
    // The new name is durable when the directory is.
    directory.sync().map_err(|error| at(parent, &error))?;
    Ok(json!({ "path": path, "bytes": bytes.len(), "sha256": digest }))
}

/// Reads a text file.
pub(super) fn read_file(path: &str) -> Result<Value, NodeError> {
    read_file_in(&std::env::current_dir()?, path)
}

fn read_file_in(base: &Path, path: &str) -> Result<Value, NodeError> {
    let target = inside(base, path)?;
    // The file itself may be a link, if it ends inside: its end is what is reached and opened.
    let real = target.canonicalize().map_err(|error| at(&target, &error))?;
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else {
        return Err(refused(path, "does not name a file"));
    };
    let directory = reach(base, parent, path, Missing::Refuse)?;
    let file = directory
        .open_file(name)
        .map_err(|error| at(&target, &error))?
        .ok_or_else(|| refused(path, "names something that is no ordinary file"))?;
    text_of(file, &target, path)
}

/// The output of a node that reads `file`.
fn text_of(file: File, target: &Path, path: &str) -> Result<Value, NodeError> {
    let mut bytes = Vec::new();
    file.take(READ_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| at(target, &error))?;
    if READ_MAX_BYTES < bytes.len() as u64 {
        return Err(refused(path, "is larger than 1 MiB"));
    }
    let digest = hex(&Sha256::digest(&bytes));
    let text = String::from_utf8(bytes)
        .ok()
        .ok_or_else(|| refused(path, "is not UTF-8"))?;
    Ok(json!({ "path": path, "text": text, "sha256": digest }))
}

/// The file below `base`, if the path goes down only.
fn inside(base: &Path, path: &str) -> Result<PathBuf, NodeError> {
    let mut target = base.to_path_buf();
    for component in Path::new(path).components() {
        match component {
            Component::Normal(name) => target.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(refused(
                    path,
                    "leads out of the working directory; use a relative path without ..",
                ));
            }
        }
    }
    if target == base || path.ends_with('/') || path.contains('\0') {
        return Err(refused(path, "does not name a file"));
    }
    Ok(target)
}

/// The directory `found`, which lies below `base` after all links are followed.
///
/// Links are followed once, by name, to learn where the way leads. It is then walked without following
/// any: a link that appears meanwhile ends the walk, and no directory is made outside either.
fn reach(base: &Path, found: &Path, path: &str, missing: Missing) -> Result<Directory, NodeError> {
    let real_base = base.canonicalize().map_err(|error| at(base, &error))?;
    let there = found
        .ancestors()
        .find(|ancestor| fs::symlink_metadata(ancestor).is_ok())
        .unwrap_or(base);
    let real = there.canonicalize().map_err(|error| at(there, &error))?;
    let (Ok(below), Ok(rest)) = (real.strip_prefix(&real_base), found.strip_prefix(there)) else {
        return Err(refused(
            path,
            "leads out of the working directory through a symbolic link",
        ));
    };
    let mut directory = Directory::open(&real_base).map_err(|error| at(&real_base, &error))?;
    for name in below.iter().chain(rest) {
        directory = directory
            .down(name, missing)
            .map_err(|error| at(found, &error))?;
    }
    Ok(directory)
}

fn refused(path: &str, why: &str) -> NodeError {
    NodeError::named("PathError", format!("path {path:?} {why}"))
}

fn at(path: &Path, error: &std::io::Error) -> NodeError {
    NodeError::named("IoError", format!("{}: {error}", path.display()))
}

/// Lower case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .collect()
}

#[cfg(test)]
mod tests;
