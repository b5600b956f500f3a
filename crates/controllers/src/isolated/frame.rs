//! Frames of the channel: lines of canonical JSON (RFC 8785), each at most 1 MiB.
//!
//! A line that is too long is refused before it is kept whole. Not here: what frames mean (`message`).

use std::io::{self, BufRead, Read as _, Write};

use holdpoint_state::json;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest frame, in bytes, without its end.
pub(super) const FRAME_BYTES_MAX: usize = 1024 * 1024;

/// Why no frame could be read or written.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// The other side closed the channel between two frames.
    #[error("the channel was closed")]
    Closed,
    /// The channel broke, or was closed in the middle of a frame.
    #[error("the channel broke: {0}")]
    Io(#[source] io::Error),
    /// It is longer than agreed.
    #[error("a frame has more than {FRAME_BYTES_MAX} bytes")]
    TooLong,
    /// It is no canonical JSON of its kind.
    #[error("a frame is wrong: {0}")]
    Malformed(String),
}

/// Reads the next frame.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<T, FrameError> {
    let limit = u64::try_from(FRAME_BYTES_MAX).unwrap_or(u64::MAX) + 1;
    let mut line = Vec::new();
    let mut limited = from.take(limit);
    limited
        .read_until(b'\n', &mut line)
        .map_err(FrameError::Io)?;
    match line.pop() {
        None => return Err(FrameError::Closed),
        Some(b'\n') => {}
        Some(_) if FRAME_BYTES_MAX <= line.len() => return Err(FrameError::TooLong),
        Some(_) => return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into())),
    }
    if !json::is_canonical(&line) {
        return Err(FrameError::Malformed("it is no canonical JSON".to_owned()));
    }
    serde_json::from_slice(&line).map_err(|error| FrameError::Malformed(error.to_string()))
}

/// Writes a frame with one call.
pub(super) fn write<T: Serialize>(to: &mut impl Write, frame: &T) -> Result<(), FrameError> {
    let mut bytes =
        json::to_canonical(frame).map_err(|error| FrameError::Malformed(error.to_string()))?;
    if FRAME_BYTES_MAX < bytes.len() {
        return Err(FrameError::TooLong);
    }
    bytes.push(b'\n');
    to.write_all(&bytes)
        .and_then(|()| to.flush())
        .map_err(FrameError::Io)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_frame_arrives_as_it_was_sent_and_nothing_else_does() {
        let mut bytes = Vec::new();
        write(&mut bytes, &json!({ "b": 1, "a": "two\nlines" })).unwrap();
        write(&mut bytes, &json!(null)).unwrap();
        let mut from = bytes.as_slice();
        assert_eq!(read::<Value>(&mut from).unwrap()["b"], 1);
        assert_eq!(read::<Value>(&mut from).unwrap(), Value::Null);
        assert!(matches!(read::<Value>(&mut from), Err(FrameError::Closed)));
        for (bytes, is_malformed) in [
            (&b"{ }\n"[..], true),
            (b"{\"b\":1,\"a\":1}\n", true),
            (b"\n", true),
            (b"{}", false),
        ] {
            let read = read::<Value>(&mut &*bytes);
            let matches = if is_malformed {
                matches!(read, Err(FrameError::Malformed(_)))
            } else {
                matches!(read, Err(FrameError::Io(_)))
            };
            assert!(matches, "{read:?}");
        }
    }

    #[test]
    fn a_frame_of_more_than_its_limit_is_refused() {
        let longest = "x".repeat(FRAME_BYTES_MAX - 2);
        let mut bytes = Vec::new();
        write(&mut bytes, &longest).unwrap();
        assert_eq!(read::<String>(&mut bytes.as_slice()).unwrap(), longest);
        assert!(matches!(
            write(&mut Vec::new(), &format!("{longest}x")),
            Err(FrameError::TooLong)
        ));
        let mut more = vec![b'"'; FRAME_BYTES_MAX + 1];
        more.push(b'\n');
        assert!(matches!(
            read::<Value>(&mut more.as_slice()),
            Err(FrameError::TooLong)
        ));
    }
}
