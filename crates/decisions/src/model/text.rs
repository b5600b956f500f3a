//! The checks of texts that people see. Lengths are UTF-16 code units, because all of the surfaces count so.

use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use super::invalid::{IDENTITY_BYTES_MAX, Invalid, Limit, REASON_UNITS_MAX, STRING_UNITS_MAX};

/// The length of a text in UTF-16 code units.
pub fn units(text: &str) -> u64 {
    u64::try_from(text.encode_utf16().count()).unwrap_or(u64::MAX)
}

/// Whether a text has nothing to read.
pub(super) fn is_blank(text: &str) -> bool {
    // The byte order mark is white space for ECMAScript and for the eye, and not for Unicode.
    text.chars().all(|c| c.is_whitespace() || c == '\u{feff}')
}

/// Line ends become LF, and what can be composed is composed (NFC). Nothing else changes.
pub(super) fn normalised(text: &str) -> String {
    let text = if text.contains('\r') {
        std::borrow::Cow::Owned(text.replace("\r\n", "\n").replace('\r', "\n"))
    } else {
        std::borrow::Cow::Borrowed(text)
    };
    if is_nfc(&text) {
        text.into_owned()
    } else {
        text.nfc().collect()
    }
}

/// Whether lines may be broken in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// One line: no control character at all.
    One,
    /// Lines and tabulators.
    Many,
}

/// A text that people see: not blank, not too long, nothing that a terminal obeys.
pub(super) fn check(at: &dyn Fn() -> String, text: &str, lines: Lines) -> Result<u64, Invalid> {
    if is_blank(text) {
        return Err(Invalid::Blank { at: at() });
    }
    let observed = units(text);
    if STRING_UNITS_MAX < observed {
        return Err(Invalid::Limit {
            at: at(),
            limit: Limit::StringUnits,
            observed,
        });
    }
    let obeyed = text
        .chars()
        .find(|c| c.is_control() && !(lines == Lines::Many && matches!(c, '\n' | '\t')));
    if let Some(c) = obeyed {
        return Err(Invalid::ControlCharacter {
            at: at(),
            code: u32::from(c),
        });
    }
    Ok(observed)
}

/// Why something was cancelled, in words for people: readable, inert, and not longer than anybody reads.
pub(crate) fn check_reason(text: &str) -> Result<(), Invalid> {
    let at = || "the reason".to_owned();
    let observed = units(text);
    if REASON_UNITS_MAX < observed {
        return Err(Invalid::Limit {
            at: at(),
            limit: Limit::ReasonUnits,
            observed,
        });
    }
    check(&at, text, Lines::Many).map(drop)
}

/// An actor id, an event id or a key: not blank and not longer than it needs to be. The text itself is private and not in the error.
pub(super) fn check_identity(what: &'static str, text: &str) -> Result<(), Invalid> {
    if is_blank(text) {
        return Err(Invalid::Blank {
            at: format!("the {what}"),
        });
    }
    let observed = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if IDENTITY_BYTES_MAX < observed {
        return Err(Invalid::Limit {
            at: format!("the {what}"),
            limit: Limit::IdentityBytes,
            observed,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_and_accents_have_one_form() {
        assert_eq!(normalised("a\r\nb\rc\n\rd"), "a\nb\nc\n\nd");
        assert_eq!(normalised("e\u{301}"), "é");
        assert_eq!(normalised("\u{212b} ﬁ \u{a0}"), "Å ﬁ \u{a0}");
    }

    #[test]
    fn what_is_shown_is_readable_and_inert() {
        let at = || "it".to_owned();
        assert_eq!(check(&at, "ä𝄞", Lines::One), Ok(3));
        assert_eq!(check(&at, "a\n\tb", Lines::Many), Ok(4));
        for (text, lines, code) in [
            ("a\nb", Lines::One, 10),
            ("a\tb", Lines::One, 9),
            ("a\u{1b}[2J", Lines::Many, 27),
            ("a\u{7f}", Lines::Many, 127),
            ("a\u{9b}", Lines::Many, 155),
            ("a\0", Lines::Many, 0),
        ] {
            let at_it = "it".to_owned();
            assert_eq!(
                check(&at, text, lines),
                Err(Invalid::ControlCharacter { at: at_it, code }),
                "{text:?}"
            );
        }
        for text in ["", " ", "\u{2003}\u{feff}\n"] {
            assert_eq!(
                check(&at, text, Lines::Many),
                Err(Invalid::Blank {
                    at: "it".to_owned()
                })
            );
        }
        let (longest, longer) = ("😀".repeat(8_000), format!("{}a", "😀".repeat(8_000)));
        assert_eq!(check(&at, &longest, Lines::One), Ok(16_000));
        assert_eq!(
            check(&at, &longer, Lines::One).unwrap_err().to_string(),
            "it has 16001; the limit is 16000 UTF-16 code units in one text"
        );
    }
}
