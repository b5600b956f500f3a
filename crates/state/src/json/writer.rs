//! The one writer of canonical bytes. The parser and the serializer drive it; it knows neither.
//!
//! Members are written where they come and put in order when their object closes: an object whose keys come sorted,
//! which is the common case, costs one comparison a key and no copy. The order is by UTF-16 code units (RFC 8785,
//! section 3.2.3). UTF-8 bytes sort alike, unless characters beyond the basic plane meet U+E000 to U+FFFF.

use std::cmp::Ordering;
use std::ops::Range;

use super::{DEPTH_LIMIT, JsonError};

/// UTF-8 of every character beyond the basic plane starts with this byte or a greater one, and of no other.
const FIRST_BYTE_BEYOND_BASIC_PLANE: u8 = 0xF0;

/// Canonical bytes under construction.
pub(super) struct Writer {
    /// What is written so far. Number rooms append here.
    pub(super) out: Vec<u8>,
    /// The members of all open objects, innermost last.
    members: Vec<Member>,
    /// Where an object is put in order, kept for the next one.
    scratch: Vec<u8>,
    depth: usize,
}

/// An object that is open. Its owner closes it with [`Writer::end_object`].
pub(super) struct Object {
    /// Where its content starts in `out`.
    start: usize,
    /// Where its members start in `members`.
    base: usize,
    /// The member being written.
    current: usize,
    is_sorted: bool,
}

/// A member in `out`: `"key":value`.
#[derive(Clone, Copy)]
struct Member {
    start: usize,
    /// After the closing quote of the key.
    key_end: usize,
    end: usize,
    /// Nothing escaped, nothing beyond the basic plane: between two such keys, bytes sort as UTF-16 code units do.
    is_plain: bool,
}

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            out: Vec::with_capacity(capacity),
            members: Vec::new(),
            scratch: Vec::new(),
            depth: 0,
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    pub(super) fn begin_array(&mut self) -> Result<(), JsonError> {
        self.enter()?;
        self.out.push(b'[');
        Ok(())
    }

    pub(super) fn end_array(&mut self) {
        self.depth -= 1;
        self.out.push(b']');
    }

    pub(super) fn begin_object(&mut self) -> Result<Object, JsonError> {
        self.enter()?;
        self.out.push(b'{');
        let base = self.members.len();
        Ok(Object {
            start: self.out.len(),
            base,
            current: base,
            is_sorted: true,
        })
    }

    /// Starts a member. The key follows as a string, then [`Writer::end_key`], the value and [`Writer::end_member`].
    pub(super) fn begin_member(&mut self, object: &mut Object) {
        if object.start < self.out.len() {
            self.out.push(b',');
        }
        object.current = self.members.len();
        let start = self.out.len();
        self.members.push(Member {
            start,
            key_end: start,
            end: start,
            is_plain: false,
        });
    }

    pub(super) fn end_key(&mut self, object: &mut Object) {
        let key_end = self.out.len();
        let previous = match object.current.checked_sub(1) {
            Some(previous) if object.base <= previous => self.members.get(previous).copied(),
            _ => None,
        };
        let Some(member) = self.members.get_mut(object.current) else {
            return;
        };
        member.key_end = key_end;
        let key = member.key(&self.out);
        member.is_plain = !key
            .iter()
            .any(|byte| *byte == b'\\' || FIRST_BYTE_BEYOND_BASIC_PLANE <= *byte);
        if let Some(previous) = previous {
            object.is_sorted &=
                previous.is_plain && member.is_plain && previous.key(&self.out) < key;
        }
        self.out.push(b':');
    }

    pub(super) fn end_member(&mut self, object: &Object) {
        let end = self.out.len();
        if let Some(member) = self.members.get_mut(object.current) {
            member.end = end;
        }
    }

    /// Closes an object and puts its members in order.
    pub(super) fn end_object(&mut self, object: &Object) -> Result<(), JsonError> {
        if !object.is_sorted {
            self.sort(object)?;
        }
        self.members.truncate(object.base);
        self.depth -= 1;
        self.out.push(b'}');
        Ok(())
    }

    /// `error` as seen from `object`, whose current member it happened in.
    pub(super) fn under_current(&self, object: &Object, error: JsonError) -> JsonError {
        match self.members.get(object.current) {
            Some(member) => error.under_key(&member.key_text(&self.out)),
            None => error,
        }
    }

    /// Writes a string with its quotes.
    pub(super) fn string(&mut self, text: &str) {
        self.out.push(b'"');
        let mut rest = text.as_bytes();
        loop {
            let (run, special) = rest.split_at(plain_run(rest));
            self.out.extend_from_slice(run);
            let Some((byte, after)) = special.split_first() else {
                break;
            };
            self.special(*byte);
            rest = after;
        }
        self.out.push(b'"');
    }

    /// Writes one character of a string.
    pub(super) fn character(&mut self, character: char) {
        match u8::try_from(character) {
            Ok(byte) if is_special(byte) => self.special(byte),
            Ok(_) | Err(_) => self
                .out
                .extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }

    /// Writes the escape of a byte that a string cannot hold as it is (RFC 8785, section 3.2.2.2).
    fn special(&mut self, byte: u8) {
        let short = match byte {
            b'"' | b'\\' => byte,
            0x08 => b'b',
            0x09 => b't',
            0x0A => b'n',
            0x0C => b'f',
            0x0D => b'r',
            _ => {
                let low = byte & 0xF;
                let digit = if low < 10 {
                    b'0' + low
                } else {
                    b'a' + (low - 10)
                };
                self.out
                    .extend_from_slice(&[b'\\', b'u', b'0', b'0', b'0' + (byte >> 4), digit]);
                return;
            }
        };
        self.out.extend_from_slice(&[b'\\', short]);
    }

    fn enter(&mut self) -> Result<(), JsonError> {
        self.depth += 1;
        if self.depth < DEPTH_LIMIT {
            Ok(())
        } else {
            Err(JsonError::TooDeep)
        }
    }

    fn sort(&mut self, object: &Object) -> Result<(), JsonError> {
        let (_, members) = self.members.split_at_mut(object.base);
        let out = &self.out;
        if members.iter().all(|member| member.is_plain) {
            members.sort_unstable_by(|left, right| left.key(out).cmp(right.key(out)));
        } else {
            members.sort_by_cached_key(|member| {
                member.key_text(out).encode_utf16().collect::<Vec<u16>>()
            });
        }
        // The escaped form of a key is its only one here, so equal bytes are equal keys.
        for (member, next) in members.iter().zip(members.iter().skip(1)) {
            if member.key(out).cmp(next.key(out)) == Ordering::Equal {
                return Err(JsonError::DuplicateKey {
                    pointer: String::new(),
                }
                .under_key(&member.key_text(out)));
            }
        }
        self.scratch.clear();
        for member in members.iter() {
            if !self.scratch.is_empty() {
                self.scratch.push(b',');
            }
            self.scratch
                .extend_from_slice(span(out, member.start..member.end));
        }
        debug_assert_eq!(
            self.out.len() - object.start,
            self.scratch.len(),
            "BUG: sorting keeps every byte"
        );
        self.out.truncate(object.start);
        self.out.extend_from_slice(&self.scratch);
        Ok(())
    }
}

impl Member {
    /// The key as it stands in `out`, escaped, without its quotes.
    fn key<'o>(&self, out: &'o [u8]) -> &'o [u8] {
        span(out, self.start + 1..self.key_end - 1)
    }

    /// The key as text.
    fn key_text(&self, out: &[u8]) -> String {
        let quoted = span(out, self.start..self.key_end);
        serde_json::from_slice(quoted).unwrap_or_else(|error| {
            debug_assert!(
                false,
                "BUG: a key that was written and cannot be read: {error}"
            );
            String::from_utf8_lossy(quoted).into_owned()
        })
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "the bounds were measured on this buffer, which only grew; a wrong slice must not pass"
)]
fn span(out: &[u8], range: Range<usize>) -> &[u8] {
    &out[range]
}

const fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// How many bytes from the start may stand in a JSON string as they are, found eight at a time.
pub(super) fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    const SPACES: u64 = u64::from_le_bytes([0x20; 8]);
    const QUOTES: u64 = u64::from_le_bytes([b'"'; 8]);
    const BACKSLASHES: u64 = u64::from_le_bytes([b'\\'; 8]);
    let (chunks, tail) = bytes.as_chunks::<8>();
    let mut run = 0;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ QUOTES;
        let backslash = word ^ BACKSLASHES;
        // A byte below the subtrahend borrows into its high bit. Borrows go on upwards only, so the lowest mark is true.
        let marks = ((word.wrapping_sub(SPACES) & !word)
            | (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash))
            & HIGH_BITS;
        if marks != 0 {
            return run + (marks.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    run + tail.iter().take_while(|byte| !is_special(**byte)).count()
}
