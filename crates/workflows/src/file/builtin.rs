//! The actions that workflow files have built in: reading and writing one file.
//!
//! Both stay inside the working directory of the engine: the path is relative, goes down only, and no
//! symbolic link on its way leads out. That keeps a mistake in an expression small; it is no wall
//! against somebody who changes the directory at the same time.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::definition::NodeError;

/// How large a file may be to be read.
const READ_MAX_BYTES: u64 = 1024 * 1024;

/// Held while a file is written.
static WRITING: Mutex<()> = Mutex::new(());

/// Writes a file whole or not at all: a temporary file beside it, made durable and renamed. Writing the
/// same again changes nothing, so the action is idempotent.
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
    let directory = target.parent().unwrap_or(base).to_path_buf();
    // What is there of the way is followed to its end before anything is made: no directory appears outside either.
    let there = directory
        .ancestors()
        .find(|ancestor| fs::symlink_metadata(ancestor).is_ok())
        .unwrap_or(base);
    stays_inside(base, there, path)?;
    // One writer of this process at a time: an attempt that was left behind may still be at work beside its successor.
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    fs::create_dir_all(&directory).map_err(|error| at(&directory, &error))?;
    stays_inside(base, &directory, path)?;
    if fs::symlink_metadata(&target).is_ok_and(|found| !found.is_file()) {
        return Err(refused(path, "names something that is no ordinary file"));
    }
    let digest = hex(&Sha256::digest(&bytes));
    let temporary = directory.join(format!(
        ".{}.{}.tmp",
        file_name(&target),
        digest.get(..16).unwrap_or_default()
    ));
    // Never through what is there: that may be a link that leads out, or the rest of an attempt that was killed.
    let cleared = match fs::remove_file(&temporary) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    };
    let written = cleared
        .and_then(|()| File::create_new(&temporary))
        .and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, &target));
    if let Err(error) = written {
        // What is left of the attempt is of no use; the error to tell is the first one.
        let _left = fs::remove_file(&temporary);
        return Err(at(&target, &error));
    }
    // The new name is durable when the directory is.
    File::open(&directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|error| at(&directory, &error))?;
    Ok(json!({ "path": path, "bytes": bytes.len(), "sha256": digest }))
}

/// Reads a text file.
pub(super) fn read_file(path: &str) -> Result<Value, NodeError> {
    read_file_in(&std::env::current_dir()?, path)
}

fn read_file_in(base: &Path, path: &str) -> Result<Value, NodeError> {
    let target = inside(base, path)?;
    stays_inside(base, &target, path)?;
    // Asked before it is opened: opening a pipe waits for somebody who writes into it.
    let found = fs::metadata(&target).map_err(|error| at(&target, &error))?;
    if !found.is_file() {
        return Err(refused(path, "names something that is no ordinary file"));
    }
    let file = File::open(&target).map_err(|error| at(&target, &error))?;
    let mut bytes = Vec::new();
    file.take(READ_MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| at(&target, &error))?;
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

/// Whether something that is there lies below `base` after all links are followed.
fn stays_inside(base: &Path, found: &Path, path: &str) -> Result<(), NodeError> {
    let base = base.canonicalize().map_err(|error| at(base, &error))?;
    let real = found.canonicalize().map_err(|error| at(found, &error))?;
    if real.starts_with(&base) {
        Ok(())
    } else {
        Err(refused(
            path,
            "leads out of the working directory through a symbolic link",
        ))
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
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
mod tests {
    use super::*;

    #[test]
    fn writes_whole_files_and_again_the_same() {
        let home = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let output = write_file_in(home.path(), "notes/a.md", &json!("héllo\n")).unwrap();
            assert_eq!(
                (&output["path"], &output["bytes"]),
                (&json!("notes/a.md"), &json!(7))
            );
            assert_eq!(
                fs::read_to_string(home.path().join("notes/a.md")).unwrap(),
                "héllo\n"
            );
        }
        let read = read_file_in(home.path(), "./notes/a.md").unwrap();
        assert_eq!(read["text"], "héllo\n");
        write_file_in(home.path(), "notes/b.json", &json!({"a": 1})).unwrap();
        assert_eq!(
            fs::read_to_string(home.path().join("notes/b.json")).unwrap(),
            "{\n  \"a\": 1\n}\n"
        );
        let left: Vec<_> = fs::read_dir(home.path().join("notes")).unwrap().collect();
        assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), home.path().join("link")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), home.path().join("file"))
            .unwrap();
        std::os::unix::fs::symlink(outside.path().join("missing"), home.path().join("dangling"))
            .unwrap();
        fs::create_dir(home.path().join("dir")).unwrap();
        let absolute = outside.path().join("secret");
        for path in [
            "",
            ".",
            "..",
            "../x",
            "a/../../x",
            "/x",
            "dir",
            "dir/",
            "link/secret",
            "link/new/x",
            "link/new/deeper/x",
            "dangling/x",
            "file",
            "a\0b",
            absolute.to_str().unwrap(),
        ] {
            assert!(
                write_file_in(home.path(), path, &json!("y")).is_err(),
                "write {path:?}"
            );
            assert!(read_file_in(home.path(), path).is_err(), "read {path:?}");
        }
        assert_eq!(
            fs::read_to_string(outside.path().join("secret")).unwrap(),
            "x"
        );
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_temporary_name_that_leads_out_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let secret = outside.path().join("secret");
        fs::write(&secret, "x").unwrap();
        let digest = hex(&Sha256::digest(b"y"));
        let temporary = home.path().join(format!(".note.{}.tmp", &digest[..16]));
        std::os::unix::fs::symlink(&secret, &temporary).unwrap();
        write_file_in(home.path(), "note", &json!("y")).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "x");
        assert_eq!(fs::read_to_string(home.path().join("note")).unwrap(), "y");
        assert!(fs::symlink_metadata(&temporary).is_err());
    }

    #[test]
    fn a_pipe_is_refused_and_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let pipe = home.path().join("pipe");
        let made = std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap();
        assert!(made.success());
        assert!(read_file_in(home.path(), "pipe").is_err());
        assert!(write_file_in(home.path(), "pipe", &json!("y")).is_err());
    }

    #[test]
    fn only_texts_of_an_ordinary_size_are_read() {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("binary"), b"\xff").unwrap();
        fs::write(home.path().join("large"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
        fs::write(home.path().join("limit"), vec![b'x'; 1024 * 1024]).unwrap();
        assert!(read_file_in(home.path(), "binary").is_err());
        assert!(read_file_in(home.path(), "large").is_err());
        assert!(read_file_in(home.path(), "limit").is_ok());
        assert!(read_file_in(home.path(), "missing").is_err());
    }
}
