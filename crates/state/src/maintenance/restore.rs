//! Restore: puts a verified backup in the place of a store that nobody has open, and keeps the old store aside.
//!
//! The order is safe against a crash at any instant. (1) The backup is copied to a hidden name in the store's directory, verified
//! there and flushed. (2) A note is written and flushed; while it lies there no handle opens the store, so that nobody makes a new
//! store where the old one is half moved. (3) The old database file and then its side files move aside.
//! (4) The copy gets its name and the directory is flushed. (5) The note goes. A crash between (2) and (5) leaves the old store
//! and the backup whole: running the restore again finishes the move and goes on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;

use super::backup::Partial;
use super::files::{self, SIDE_SUFFIXES};
use super::verify::{self, VerifyReport};
use crate::clock::{Clock as _, SystemClock};
use crate::database::{Presence, RESTORE_NOTE, beside};
use crate::error::StateError;
use crate::schema::Schema;

/// How long other programs may take to let go of the old store, in milliseconds.
const BUSY_MS: u64 = 500;

/// A restore that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    /// The store.
    pub path: PathBuf,
    /// Where the old database file is now; its side files have the same name with their suffixes.
    pub set_aside: Option<PathBuf>,
    /// The size of the restored store in bytes.
    pub size_bytes: u64,
    /// The verification of the restored copy.
    pub verified: VerifyReport,
}

/// Puts the backup in the place of the store at `target`, or makes it the store where there is none.
///
/// The backup stays as it is. The old store, with its side files, is kept beside the new one under a name with the time.
///
/// # Errors
///
/// [`StateError::InUse`] while anybody has the store open, [`StateError::Input`] when `backup` is a live store,
/// [`StateError::Refused`] or [`StateError::Corrupt`] when the backup is not sound or of another schema. The store is as it was.
pub fn restore(
    backup: impl AsRef<Path>,
    target: impl AsRef<Path>,
    schema: &Schema,
) -> Result<RestoreReport, StateError> {
    let target = &place_of(target.as_ref())?;
    let backup = verify::inactive(backup.as_ref())?;
    if backup == *target {
        return Err(StateError::Input {
            what: "path of a backup",
            problem: format!("{} is the store itself", target.display()),
        });
    }
    let alone = Presence::exclusive(target)?;
    let _copy_right = files::copy_right(target)?;
    let old = alone_in_sqlite(target)?;

    let directory = files::directory_of(target);
    files::check_room(directory, files::size_bytes(&backup))?;
    let partial = Partial::create(target)?;
    copy_bytes(&backup, &partial.path)
        .map_err(files::io(format!("copying {}", backup.display())))?;
    let mut verified = verify::examine_copy(&partial.path, schema)?;
    verify::refuse(&backup, &verified)?;
    target.clone_into(&mut verified.path);
    files::flush_file(&partial.path).map_err(files::io("flushing the restored copy"))?;

    let note = beside(target, RESTORE_NOTE);
    finish_interrupted(target, &note)?;
    let set_aside = move_aside(target, &note)?;
    drop(old);
    let size_bytes = files::size_bytes(&partial.path);
    partial.finish(target)?;
    remove_note(&note)?;
    drop(alone);
    Ok(RestoreReport {
        path: target.clone(),
        set_aside,
        size_bytes,
        verified,
    })
}

/// The real path of a store that may not exist yet. Its directory is made when it is missing.
fn place_of(target: &Path) -> Result<PathBuf, StateError> {
    let directory = files::directory_of(target);
    files::create_private_directory(directory)
        .map_err(files::io(format!("creating {}", directory.display())))?;
    let Some(name) = target.file_name() else {
        return Err(StateError::Input {
            what: "path of the store",
            problem: format!("{} names no file", target.display()),
        });
    };
    match std::fs::canonicalize(target) {
        Ok(real) => Ok(real),
        Err(_) => std::fs::canonicalize(directory)
            .map(|real| real.join(name))
            .map_err(files::io(format!("finding {}", directory.display()))),
    }
}

/// Makes sure that no other program has the old store open in SQLite, and keeps it so while the connection lives.
///
/// In exclusive locking mode SQLite uses no shared memory, and without a checkpoint at the end it leaves all files as they are.
fn alone_in_sqlite(target: &Path) -> Result<Option<Connection>, StateError> {
    if !target.exists() {
        return Ok(None);
    }
    // Without a log there is nothing to leave alone, and SQLite removes the empty one that it makes.
    let has_log = 0 < files::size_bytes(&beside(target, "-wal"));
    let connection = Connection::open_with_flags(
        target,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    if has_log {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    match connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE") {
        Ok(()) => Ok(Some(connection)),
        Err(error) => match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Err(StateError::InUse {
                path: target.to_owned(),
                by: "another program has the file open; stop it first",
            }),
            // A damaged store is why somebody restores; nobody can work with it.
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// Copies the content only, so that the copy keeps its own mode.
fn copy_bytes(from: &Path, to: &Path) -> std::io::Result<u64> {
    let mut to = std::fs::OpenOptions::new().write(true).open(to)?;
    std::io::copy(&mut std::fs::File::open(from)?, &mut to)
}

/// Moves the side files of a database that an interrupted restore had moved already.
fn finish_interrupted(target: &Path, note: &Path) -> Result<(), StateError> {
    let Ok(text) = std::fs::read_to_string(note) else {
        return Ok(());
    };
    // The note's text is the suffix. A torn note was written before anything moved.
    let suffix = text.trim();
    let aside = beside(target, suffix);
    if suffix.is_empty() || !aside.exists() || target.exists() {
        return Ok(());
    }
    move_side_files(target, &aside)
}

/// Writes the note and moves the old store, if there is one.
fn move_aside(target: &Path, note: &Path) -> Result<Option<PathBuf>, StateError> {
    let has_old = target.exists();
    let has_side_files = SIDE_SUFFIXES
        .iter()
        .any(|suffix| beside(target, suffix).exists());
    if !has_old && !has_side_files {
        return Ok(None);
    }
    let mut stamp = SystemClock.now().0;
    let suffix = loop {
        let suffix = format!(".replaced-{stamp}");
        if !beside(target, &suffix).exists() {
            break suffix;
        }
        stamp += 1;
    };
    let directory = files::directory_of(target);
    let written = || -> std::io::Result<()> {
        use std::io::Write as _;
        // An older note goes in place: its work was finished above.
        drop(std::fs::remove_file(note));
        let mut file = files::create_private(note)?;
        file.write_all(suffix.as_bytes())?;
        file.sync_all()?;
        files::flush_directory(directory)
    };
    written().map_err(files::io(format!("writing {}", note.display())))?;
    let aside = beside(target, &suffix);
    if has_old {
        files::rename_new(target, &aside)
            .map_err(files::io(format!("moving {} aside", target.display())))?;
    }
    move_side_files(target, &aside)?;
    Ok(has_old.then_some(aside))
}

fn move_side_files(target: &Path, aside: &Path) -> Result<(), StateError> {
    for suffix in SIDE_SUFFIXES {
        let (from, to) = (beside(target, suffix), beside(aside, suffix));
        if from.exists() {
            files::rename_new(&from, &to)
                .map_err(files::io(format!("moving {} aside", from.display())))?;
        }
    }
    files::flush_directory(files::directory_of(target))
        .map_err(files::io("flushing the names of the old store"))
}

fn remove_note(note: &Path) -> Result<(), StateError> {
    let removed = match std::fs::remove_file(note) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => files::flush_directory(files::directory_of(note)),
    };
    removed.map_err(files::io(format!("removing {}", note.display())))
}
