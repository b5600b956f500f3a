//! The rules of single fields, shared by both sides. Pure.

use super::{INTEGER_MAX, ProtocolError};

/// How long an id from outside may be, in bytes (decisions reference, section 2).
pub(super) const ID_BYTES_MAX: usize = 256;

/// What a rule says of one field.
pub(super) type Checked = Result<(), ProtocolError>;

pub(super) fn require(what: &'static str, holds: bool) -> Checked {
    if holds {
        Ok(())
    } else {
        Err(ProtocolError::Field { what })
    }
}

/// A text that names something: not empty, short, no control character.
pub(super) fn id(what: &'static str, text: &str) -> Checked {
    let fits = !text.trim().is_empty()
        && text.len() <= ID_BYTES_MAX
        && !text.chars().any(char::is_control);
    require(what, fits)
}

/// A digest as the contracts write it: `sha256:` and 64 lower-case hex digits.
pub(super) fn digest(what: &'static str, text: &str) -> Checked {
    require(
        what,
        text.strip_prefix("sha256:")
            .is_some_and(|digits| is_hex(digits, 64)),
    )
}

/// An id of the `channel-` family: 64 lower-case hex digits.
pub(super) fn stable_id(what: &'static str, text: &str) -> Checked {
    require(
        what,
        text.strip_prefix("channel-")
            .is_some_and(|digits| is_hex(digits, 64)),
    )
}

/// An integer that every JSON reader carries.
pub(super) fn safe(what: &'static str, number: u64) -> Checked {
    require(what, number <= INTEGER_MAX)
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits
        && text
            .bytes()
            .all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// A user or chat id: decimal text of a 64-bit integer, in its one spelling.
pub(crate) fn is_numeric(text: &str) -> bool {
    text.parse::<i64>()
        .is_ok_and(|number| number.to_string() == text)
}

/// A name in the private configuration: `^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 200
        && text
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_have_one_spelling() {
        for right in ["a", "0", "ops.eu-1_x", &"x".repeat(200)] {
            assert!(is_name(right), "{right}");
        }
        for wrong in ["", ".a", "-a", "a/b", "ä", "a b", &"x".repeat(201)] {
            assert!(!is_name(wrong), "{wrong}");
        }
        for right in ["0", "100", "-1001234567890", "9223372036854775807"] {
            assert!(is_numeric(right), "{right}");
        }
        for wrong in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            "1.0",
            "1e3",
            " 1",
            "9223372036854775808",
        ] {
            assert!(!is_numeric(wrong), "{wrong}");
        }
    }
}
