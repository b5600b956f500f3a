//! Values that are typed: JSON, or a file with JSON.

use std::io::Read as _;

use serde_json::Value;

use crate::error::CommandError;

/// The most bytes that are read for one value.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// Reads `JSON`, `@FILE` or `@-`.
pub(crate) fn read(what: &'static str, text: &str) -> Result<Value, CommandError> {
    match text.strip_prefix('@') {
        Some(file) => parse(what, &file_bytes(what, file)?),
        None => parse(what, text.as_bytes()),
    }
}

/// Reads a text: as it was typed, or all of `@FILE` or `@-`.
pub(crate) fn text(what: &'static str, text: &str) -> Result<String, CommandError> {
    match text.strip_prefix('@') {
        Some(file) => String::from_utf8(file_bytes(what, file)?).map_err(|error| {
            CommandError::input(
                what,
                format!("{file:?} is not UTF-8: {}", error.utf8_error()),
            )
        }),
        None => Ok(text.to_owned()),
    }
}

/// The bytes of a file, or of standard input.
pub(super) fn file_bytes(what: &'static str, file: &str) -> Result<Vec<u8>, CommandError> {
    let mut bytes = Vec::new();
    let read = if file == "-" {
        std::io::stdin()
            .lock()
            .take(BYTES_MAX + 1)
            .read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    match read {
        Ok(size) if BYTES_MAX < size as u64 => {
            Err(CommandError::input(what, "the file is larger than 16 MiB"))
        }
        Ok(_) => Ok(bytes),
        Err(error) => Err(CommandError::input(
            what,
            format!("{file:?} can't be read: {error}"),
        )),
    }
}

fn parse(what: &'static str, text: &[u8]) -> Result<Value, CommandError> {
    holdpoint_state::json::parse(text).map_err(|error| {
        CommandError::input(
            what,
            format!(
                "not JSON ({error}); text needs its quotes, as in '\"yes\"', and @FILE reads a file"
            ),
        )
    })
}
