//! Keeps the beginning of a stream and drains the rest, so that a loud child neither fills memory nor
//! blocks on a full pipe.

use std::io::{ErrorKind, Read};
use std::sync::{Mutex, PoisonError};

/// What is kept of one stream while it is read.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    bytes: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: bool,
}

impl Captured {
    /// Reads `stream` to its end. The first bytes are kept: enough of them for `max_chars`
    /// characters, of which UTF-8 needs at most four each.
    pub(crate) fn drain(&self, stream: impl Read, max_chars: usize) {
        self.drain_seen(stream, max_chars, |_| {});
    }

    /// The same; `seen` gets all bytes, as they come.
    pub(super) fn drain_seen(
        &self,
        mut stream: impl Read,
        max_chars: usize,
        mut seen: impl FnMut(&[u8]),
    ) {
        let max_bytes = max_chars.saturating_mul(4);
        let mut chunk = [0_u8; 16 * 1024];
        loop {
            let read = match stream.read(&mut chunk) {
                Ok(0) => return,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // The pipe broke: what came until now is what there is.
                Err(_) => return,
            };
            seen(chunk.get(..read).unwrap_or_default());
            let mut kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
            let room = max_bytes.saturating_sub(kept.bytes.len()).min(read);
            kept.bytes.extend(chunk.iter().take(room));
            kept.dropped |= room < read;
        }
    }

    /// The text until now and whether it was cut. Bytes that are no UTF-8 become U+FFFD.
    pub(crate) fn text(&self, max_chars: usize) -> (String, bool) {
        let kept = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.bytes);
        match text.char_indices().nth(max_chars) {
            // Dropped bytes were at least one character more than the kept ones, which are as
            // many as fit.
            None if !kept.dropped => (text.into_owned(), false),
            end => {
                let end = end.map_or(text.len(), |(at, _)| at);
                let head = text.get(..end).unwrap_or_default();
                (
                    format!("{head}\n[output cut after {max_chars} characters]"),
                    true,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(bytes: &[u8], max_chars: usize) -> (String, bool) {
        let captured = Captured::default();
        captured.drain(bytes, max_chars);
        captured.text(max_chars)
    }

    #[test]
    fn cuts_by_characters_with_a_visible_marker() {
        let marker = |n: usize| format!("\n[output cut after {n} characters]");
        assert_eq!(capture(b"abc", 3), ("abc".to_owned(), false));
        assert_eq!(capture(b"abcd", 3), (format!("abc{}", marker(3)), true));
        assert_eq!(capture("äöü".as_bytes(), 3), ("äöü".to_owned(), false));
        assert_eq!(
            capture("😀😀😀".as_bytes(), 2),
            (format!("😀😀{}", marker(2)), true)
        );
        assert_eq!(capture(b"a\xffb", 3), ("a\u{fffd}b".to_owned(), false));
        assert_eq!(capture(b"", 0), (String::new(), false));
        assert_eq!(capture(b"a", 0), (marker(0), true));
        let (text, cut) = capture(&vec![b'x'; 50_000], 10_000);
        assert_eq!((text.len(), cut), (10_000 + marker(10_000).len(), true));
    }
}
