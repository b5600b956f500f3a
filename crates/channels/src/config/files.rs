//! Files that only their owner may read: how they are read, and how they are replaced. No rule of their content is here.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::Path;

use holdpoint_state::id::random_id;
use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::ConfigError;
use crate::protocol::Token;

/// The mode of every file.
const FILE_MODE: u32 = 0o600;
/// The mode of the directory.
const DIRECTORY_MODE: u32 = 0o700;
/// The bits that nobody but the owner may have.
const OTHERS: u32 = 0o077;
/// The longest configuration, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;
/// The longest token file, in bytes.
const TOKEN_BYTES_MAX: u64 = 4_096;

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ConfigError {
    let path = path.to_owned();
    move |source| ConfigError::Io {
        action,
        path,
        source,
    }
}

/// The directory is the owner's alone, or there is none yet.
pub(super) fn check_directory(path: &Path) -> Result<(), ConfigError> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(ConfigError::NotADirectory {
            path: path.to_owned(),
        }),
        Ok(found) => check_mode(path, found.mode(), DIRECTORY_MODE),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("looking at", path)(error)),
    }
}

fn check_mode(path: &Path, mode: u32, wanted: u32) -> Result<(), ConfigError> {
    let mode = mode & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    Err(ConfigError::NotPrivate {
        path: path.to_owned(),
        mode,
        wanted,
    })
}

/// Reads a file whose kind, mode and size are checked on what was opened, so that it can't be changed for another in between.
fn read(path: &Path, bytes_max: u64) -> Result<Option<Zeroizing<Vec<u8>>>, ConfigError> {
    // A pipe must not hold us up.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC)
        .bits()
        .cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("reading", path)(error)),
    };
    let found = file.metadata().map_err(failed("looking at", path))?;
    if !found.is_file() {
        return Err(ConfigError::NotAFile {
            path: path.to_owned(),
        });
    }
    check_mode(path, found.mode(), FILE_MODE)?;
    // Room for all of it at once: a vector that grows leaves copies behind that nobody wipes.
    let mut bytes = Zeroizing::new(Vec::with_capacity(
        usize::try_from(found.len().min(bytes_max) + 2).unwrap_or(0),
    ));
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(failed("reading", path))?;
    if bytes_max < bytes.len() as u64 {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
            bytes_max,
        });
    }
    Ok(Some(bytes))
}

/// Reads strict JSON; none when there is no such file. An error says where, never what.
pub(super) fn read_json<T: DeserializeOwned>(
    path: &Path,
    schema: &'static str,
) -> Result<Option<T>, ConfigError> {
    let Some(bytes) = read(path, CONFIG_BYTES_MAX)? else {
        return Ok(None);
    };
    let shape = |line, column| ConfigError::Shape {
        path: path.to_owned(),
        schema,
        line,
        column,
    };
    let value =
        serde_json::from_slice(&bytes).map_err(|error| shape(error.line(), error.column()))?;
    // The lenient reader above takes the last of two members of one name; this one takes neither.
    holdpoint_state::json::canonicalize(&bytes).or(Err(shape(1, 1)))?;
    Ok(Some(value))
}

/// Reads a token: one word, with white space around it.
pub(super) fn read_token(path: &Path) -> Result<Token, ConfigError> {
    let missing = || failed("reading", path)(io::Error::from(io::ErrorKind::NotFound));
    let bytes = read(path, TOKEN_BYTES_MAX)?.ok_or_else(missing)?;
    let text = std::str::from_utf8(&bytes).unwrap_or_default().trim();
    Token::new(Zeroizing::new(text.to_owned())).ok_or_else(|| ConfigError::NoToken {
        path: path.to_owned(),
    })
}

/// Makes the directory, for the owner alone.
pub(super) fn create_directory(path: &Path) -> Result<(), ConfigError> {
    let made = DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path);
    made.map_err(failed("making", path))?;
    check_directory(path)
}

/// Replaces a file as a whole: whoever reads it, also after a crash, finds the old one or the new one.
pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ConfigError> {
    let text = serde_json::to_vec_pretty(value)
        .map_err(|error| failed("writing", path)(io::Error::other(error)))?;
    let name = random_id(
        path.file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default(),
    );
    let temporary = path.with_file_name(format!(".{name}"));
    let written = write_new(&temporary, &text).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // What is left of it is private too, and of no use.
        drop(fs::remove_file(&temporary));
        return Err(failed("writing", path)(error));
    }
    fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
        .map_err(failed("protecting", path))?;
    let parent = path.parent().unwrap_or(path);
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(failed("writing", parent))
}

fn write_new(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    file.write_all(text)?;
    file.write_all(b"\n")?;
    file.sync_all()
}
