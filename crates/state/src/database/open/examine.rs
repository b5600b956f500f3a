//! The first look at a file, by a connection that can't write, so that a refusal leaves the bytes as they were.
//!
//! Even a connection that only reads makes side files beside a database in write-ahead mode. A file without a log is therefore
//! first read as one at rest, which needs no locks and leaves nothing behind. If it turns out that somebody had it open after all,
//! that look proves nothing and the file is read the ordinary way. A store that is in use is never judged by a look at rest.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;

use super::identity::{self, Standing};
use super::{Fault, Options, settings};
use crate::schema::Schema;

/// Reads what the file is, and whether it is damaged.
pub(super) fn examine(path: &Path, schema: &Schema, options: &Options) -> Result<Standing, Fault> {
    let before = at_rest(path);
    let at_rest_look = before
        .is_some()
        .then(|| look(path, settings::Access::LookAtRest, schema, options));
    let standing = match at_rest_look {
        Some(looked) if looked.is_ok() || at_rest(path) == before => looked?,
        _ => look(path, settings::Access::Look, schema, options)?,
    };
    let must_check = match standing {
        Standing::Empty => false,
        Standing::Older { .. } => true,
        Standing::Whole => options.check_integrity,
    };
    if must_check {
        damage(path, before.is_some(), options)?;
    }
    Ok(standing)
}

fn look(
    path: &Path,
    access: settings::Access,
    schema: &Schema,
    options: &Options,
) -> Result<Standing, Fault> {
    let connection = settings::connect(path, access)?;
    settings::wait(&connection, options.busy_timeout_ms)?;
    // Whose file it is comes first: another program's schema need not even be readable for us.
    identity::read(&connection, schema)
}

/// Whether a file of ours is damaged.
///
/// SQLite does not load `CHECK` constraints of a file that it opened for reading only, so that an integrity check there finds no
/// broken one. This connection could write by its rights, and does not: `query_only` holds it, and it leaves the log alone when it
/// closes. Beside a file at rest it makes an empty log, and takes it away again.
fn damage(path: &Path, at_rest: bool, options: &Options) -> Result<(), Fault> {
    let connection = settings::connect(path, settings::Access::Write)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, !at_rest)?;
    settings::wait(&connection, options.busy_timeout_ms)?;
    settings::every(&connection)?;
    settings::query_only(&connection)?;
    identity::damage(&connection)
}

/// What a file at rest looks like from outside: device, inode, size, time of the last change. `None` while it has a log.
fn at_rest(path: &Path) -> Option<(u64, u64, u64, i64, i64)> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if fs::symlink_metadata(PathBuf::from(log)).is_ok() {
        return None;
    }
    let found = fs::metadata(path).ok()?;
    Some((
        found.dev(),
        found.ino(),
        found.size(),
        found.mtime(),
        found.mtime_nsec(),
    ))
}
