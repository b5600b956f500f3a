//! Frames: one line of canonical JSON each, at most a mebibyte, read and written with bounded memory.
//!
//! What arrives is taken as it is or the connection ends: nothing is repaired here, and nothing of a bad frame is shown to anybody.

use std::io::{BufRead, ErrorKind};

use holdpoint_state::json;
use serde::Serialize;
use serde_json::Value;

/// The longest frame, in bytes, with its line break. What is written is shorter than that by the break, so that peers agree who do
/// and who don't count it.
pub(super) const FRAME_BYTES: usize = 1_048_576;
/// What a reader keeps between two frames, in bytes.
const KEPT_BYTES: usize = 16 * 1024;

/// Why a frame can't be taken. The connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    /// It has no end within the limit.
    #[error("the frame is longer than {FRAME_BYTES} bytes")]
    TooLong,
    /// There is no keep-alive line.
    #[error("the line is blank")]
    Blank,
    /// The peer went away in the middle of a line.
    #[error("the connection ended within a frame")]
    Cut,
    /// It is no canonical JSON.
    #[error("the frame is no canonical JSON")]
    NotCanonical,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// The next frame; nothing at the end of the connection. `line` is the memory that is used again.
pub(super) fn read(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> Result<Option<Value>, FrameError> {
    line.clear();
    line.shrink_to(KEPT_BYTES);
    loop {
        let part = match reader.fill_buf() {
            Ok(part) => part,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        if part.is_empty() {
            return if line.is_empty() {
                Ok(None)
            } else {
                Err(FrameError::Cut)
            };
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(part.len());
        if FRAME_BYTES <= line.len().saturating_add(taken) {
            return Err(FrameError::TooLong);
        }
        line.extend(part.iter().take(taken));
        reader.consume(taken.saturating_add(usize::from(end.is_some())));
        if end.is_some() {
            break;
        }
    }
    if line.is_empty() {
        return Err(FrameError::Blank);
    }
    if !json::is_canonical(line) {
        return Err(FrameError::NotCanonical);
    }
    match serde_json::from_slice(line) {
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(FrameError::NotCanonical),
    }
}

/// A message as a frame with its line break; nothing when it has no canonical form or is too long.
pub(super) fn write<T: Serialize + ?Sized>(message: &T) -> Option<Vec<u8>> {
    let mut frame = json::to_canonical(message).ok()?;
    frame.push(b'\n');
    (frame.len() <= FRAME_BYTES).then_some(frame)
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    fn all(bytes: &[u8]) -> (usize, Option<FrameError>) {
        // A small buffer, so that frames come in pieces.
        let (mut reader, mut line, mut count) = (BufReader::with_capacity(7, bytes), Vec::new(), 0);
        loop {
            match read(&mut reader, &mut line) {
                Ok(Some(_)) => count += 1,
                Ok(None) => return (count, None),
                Err(error) => return (count, Some(error)),
            }
        }
    }

    #[test]
    fn frames_are_taken_as_they_are_or_not_at_all() {
        assert!(matches!(all(b"{\"a\":1}\n{\"b\":[]}\n"), (2, None)));
        assert!(matches!(all(b"{}\n\n"), (1, Some(FrameError::Blank))));
        assert!(matches!(all(b"{}\n{\"a\""), (1, Some(FrameError::Cut))));
        for wrong in [
            "{ }",
            "{\"b\":1,\"a\":2}",
            "{\"a\":1,\"a\":1}",
            "1.0",
            "-0",
            "1E3",
            "\"\\u0041\"",
            "{}\r",
            "\"\\ud800\"",
            "nul",
            "\u{feff}{}",
            "\"\\/\"",
            "\"\\u001F\"",
            "{}{}",
        ] {
            let found = all(format!("{wrong}\n").as_bytes());
            assert!(
                matches!(found, (0, Some(FrameError::NotCanonical))),
                "{wrong}: {found:?}"
            );
        }
        assert!(matches!(
            all(b"\"\xff\"\n"),
            (0, Some(FrameError::NotCanonical))
        ));
    }

    #[test]
    fn the_limit_is_exact_and_holds_without_a_line_break() {
        let longest = format!("\"{}\"\n", "x".repeat(FRAME_BYTES - 3));
        assert_eq!(longest.len(), FRAME_BYTES);
        assert!(matches!(all(longest.as_bytes()), (1, None)));
        assert_eq!(
            write(&"x".repeat(FRAME_BYTES - 3)),
            Some(longest.into_bytes())
        );
        assert_eq!(write(&"x".repeat(FRAME_BYTES - 2)), None);
        let endless = "x".repeat(FRAME_BYTES);
        assert!(matches!(
            all(endless.as_bytes()),
            (0, Some(FrameError::TooLong))
        ));
    }

    #[test]
    fn members_are_in_the_order_of_utf_16() {
        let value = serde_json::json!({ "\u{ff61}": 1.0, "\u{10000}": 1e21, "a": "/\u{7f}\u{1f}" });
        let frame = String::from_utf8(write(&value).unwrap()).unwrap();
        assert_eq!(
            frame,
            "{\"a\":\"/\u{7f}\\u001f\",\"\u{10000}\":1e+21,\"\u{ff61}\":1}\n"
        );
    }
}
