//! What the host and an adapter child say to each other: one JSON object for each line, over the child's standard input and output.
//!
//! The talk is strict request and response. The host writes the launch line; the child writes one [`FromAdapter`] and reads one
//! [`ToAdapter`] before it writes the next. Both sides check every field before they use any: a line that breaks a rule is never
//! answered, it ends the child. Not here: what a message leads to (`commands`), processes and pipes (`host`), and the provider.
//!
//! # Where the reference is extended
//!
//! - `channel.part` tells of each part as it is confirmed, so that a crash between two parts leaves no doubt about the first.
//! - `channel.present` carries the parts that earlier attempts confirmed, since a new child has no memory of them.
//! - `channel.poll` carries [`OpenRequest`]s: what a token is made of, and not the text that was shown.
//! - The answer to `channel.answer` says what became of it ([`AnswerOutcome`]), for the text on the pressed button.
//! - `present` and `settle` may carry `retryAfter`, `ready` and `exiting` an `errorCode`.

mod checks;
mod code;
mod frames;
mod launch;
mod orders;
mod request;

use std::io::{self, BufRead, Read as _};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

pub(crate) use checks::{is_name, is_numeric};
pub use code::ErrorCode;
pub use frames::{
    AnswerReport, FromAdapter, MessageRef, PresentReport, Report, SendState, SettleReport,
};
pub use holdpoint_decisions::model::ChannelRequest;
pub use launch::{Launch, Token};
pub use orders::{AnswerOutcome, Order, SettleOutcome, ToAdapter, Verdict};
pub use request::{Choice, OpenRequest, Response, TextInput};

/// The schema of the launch line.
pub const LAUNCH_SCHEMA: &str = "pi-workflows.channel-adapter-launch.v1";
/// The schema of every other line.
pub const ADAPTER_SCHEMA: &str = "pi-workflows.channel-adapter.v1";
/// The longest line, in bytes, without its newline.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// The largest integer that every JSON reader carries exactly.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;
/// How many parts one recipient gets at most.
pub const PARTS_MAX: u32 = 20;
/// How many open requests of one profile a poll line has room for, in bytes. A request is not shown when it would not fit beside
/// those that are, since nobody would understand its buttons.
pub const POLL_BYTES_MAX: usize = LINE_BYTES_MAX - 4_096;

/// A line that breaks a rule. It never repeats what the line holds: that may be private.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("a line is longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The stream ended within a line.
    #[error("the stream ended within a line")]
    Cut,
    /// It is not strict JSON, or not an object.
    #[error("a line is not a JSON object")]
    Json,
    /// Another schema, or none.
    #[error("a line has another schema than {expected}")]
    Schema {
        /// The schema that is read here.
        expected: &'static str,
    },
    /// A field is missing, unknown, or not what it may be.
    #[error("{what} of a line is missing, unknown or not what it may be")]
    Field {
        /// The field, or the kind of message that has it.
        what: &'static str,
    },
    /// The stream itself failed.
    #[error("the stream failed")]
    Io(#[source] io::Error),
}

/// Reads one line; none at the end of the stream. The newline is not part of it.
///
/// # Errors
///
/// [`ProtocolError::TooLong`], without reading on; [`ProtocolError::Cut`] for a last line without a newline; those of the stream.
pub fn read_line(reader: &mut impl BufRead) -> Result<Option<Vec<u8>>, ProtocolError> {
    let mut line = Vec::new();
    let limit = LINE_BYTES_MAX as u64 + 1;
    reader
        .by_ref()
        .take(limit)
        .read_until(b'\n', &mut line)
        .map_err(ProtocolError::Io)?;
    if line.pop_if(|last| *last == b'\n').is_some() {
        return Ok(Some(line));
    }
    match line.len() {
        0 => Ok(None),
        long if LINE_BYTES_MAX < long => Err(ProtocolError::TooLong),
        _ => Err(ProtocolError::Cut),
    }
}

/// Writes a value as one line with its newline.
fn write<T: Serialize>(value: &T) -> Result<Vec<u8>, ProtocolError> {
    let mut line = holdpoint_state::json::to_canonical(value).map_err(drop_detail)?;
    if LINE_BYTES_MAX < line.len() {
        return Err(ProtocolError::TooLong);
    }
    line.push(b'\n');
    Ok(line)
}

/// Reads a line strictly: no key twice, no integer that a double can't carry, no lone surrogate.
fn read(line: &[u8], schema: &'static str) -> Result<Fields, ProtocolError> {
    if LINE_BYTES_MAX < line.len() {
        return Err(ProtocolError::TooLong);
    }
    let Ok(Value::Object(mut fields)) = holdpoint_state::json::parse(line) else {
        return Err(ProtocolError::Json);
    };
    match fields.remove("schema") {
        Some(Value::String(found)) if found == schema => Ok(Fields(fields)),
        _ => Err(ProtocolError::Schema { expected: schema }),
    }
}

fn drop_detail<E>(_: E) -> ProtocolError {
    ProtocolError::Json
}

/// The fields of a line that nobody took yet.
struct Fields(Map<String, Value>);

impl Fields {
    /// Takes a field that must be there.
    fn take<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, ProtocolError> {
        let wrong = ProtocolError::Field { what: name };
        let Some(value) = self.0.remove(name) else {
            return Err(wrong);
        };
        serde_json::from_value(value).or(Err(wrong))
    }

    /// Reads what is left as one value, whose type refuses every field that it does not know.
    fn rest<T: DeserializeOwned>(self, what: &'static str) -> Result<T, ProtocolError> {
        serde_json::from_value(Value::Object(self.0)).or(Err(ProtocolError::Field { what }))
    }
}

#[cfg(test)]
mod tests;
