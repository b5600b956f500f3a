//! SQL text as a list of words: comments skipped, placeholders of templates made names.
//!
//! Nothing here judges. The tokenizer is the one of the `SQLite` grammar; what it can't read (an
//! apostrophe in prose) is stepped over, so that a broken beginning hides nothing behind it.

use std::borrow::Cow;

use sqlite3_parser::lexer::Splitter as _;
use sqlite3_parser::lexer::sql::Tokenizer;

/// The longest `{…}` that counts as a placeholder, in bytes; longer braces are code or JSON.
const PLACEHOLDER_BYTES_MAX: usize = 60;

/// One word or sign of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word<'a> {
    /// As written.
    pub(super) text: &'a str,
    /// Byte offset in the text.
    pub(super) start: usize,
    /// It stands for something that is only known when the program runs.
    pub(super) placeholder: bool,
}

impl Word<'_> {
    /// True for this keyword or sign, in any case.
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.text.eq_ignore_ascii_case(keyword)
    }

    /// True for one of these keywords or signs, in any case.
    pub(super) fn is_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    /// The byte offset behind the word.
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// True for what can stand as the name of a table: an identifier, quoted or not.
    pub(super) fn is_name(&self) -> bool {
        self.text.bytes().next().is_some_and(|first| {
            first.is_ascii_alphabetic()
                || matches!(first, b'_' | b'"' | b'`' | b'[' | b'\'')
                || first > 0x7f
        })
    }
}

/// A name without its quotes, in lower case: `SQLite` compares names without regard to ASCII case.
pub(super) fn plain_name(quoted: &str) -> String {
    let mut name = quoted.to_ascii_lowercase();
    for (open, close) in [('"', '"'), ('`', '`'), ('[', ']'), ('\'', '\'')] {
        if let Some(inner) = name
            .strip_prefix(open)
            .and_then(|rest| rest.strip_suffix(close))
        {
            name = match close {
                ']' => inner.to_owned(),
                _ => inner.replace(&format!("{close}{close}"), &close.to_string()),
            };
            break;
        }
    }
    name
}

/// The text with each `{…}` placeholder replaced by a name of the same length, and the byte ranges
/// of those names. Offsets stay what they were.
pub(super) fn fill_placeholders(text: &str) -> (Cow<'_, str>, Vec<(usize, usize)>) {
    // SQLite reads a byte order mark as a space.
    let text: Cow<'_, str> = if text.contains('\u{feff}') {
        text.replace('\u{feff}', "   ").into()
    } else {
        text.into()
    };
    if !text.contains('{') {
        return (text, Vec::new());
    }
    let mut bytes = text.as_bytes().to_vec();
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some(open) = text
        .get(at..)
        .and_then(|rest| rest.find('{'))
        .map(|found| at + found)
    {
        let Some(end) = placeholder_end(&text, open) else {
            at = open + 1;
            continue;
        };
        for byte in bytes.iter_mut().take(end).skip(open) {
            if !byte.is_ascii_alphanumeric() {
                *byte = b'_';
            }
        }
        ranges.push((open, end));
        at = end;
    }
    // Whole placeholders of ASCII became ASCII, so the bytes are still UTF-8.
    let filled = String::from_utf8(bytes).unwrap_or_else(|_| text.clone().into_owned());
    (filled.into(), ranges)
}

/// Where the placeholder that opens at `open` ends, when it is one: `{}`, `{name:?}`, `{{name}}`.
fn placeholder_end(text: &str, open: usize) -> Option<usize> {
    let rest = text.get(open..)?;
    let braces = if rest.starts_with("{{") { 2 } else { 1 };
    let close = rest.find('}')?;
    let inner = rest.get(braces..close)?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_:?#.$<>^+*- ".contains(c);
    if close > PLACEHOLDER_BYTES_MAX || !inner.chars().all(plain) {
        return None;
    }
    let closing = rest
        .get(close..)?
        .bytes()
        .take(braces)
        .take_while(|&byte| byte == b'}')
        .count();
    (closing == braces).then_some(open + close + braces)
}

/// All words and signs of a text whose placeholders are filled.
pub(super) fn split<'a>(filled: &'a str, placeholders: &[(usize, usize)]) -> Vec<Word<'a>> {
    let mut words = Vec::new();
    let mut tokenizer = Tokenizer::new();
    let mut at = 0;
    while let Some(rest) = filled.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
        // SQLite takes the end of the text for the end of a comment; this tokenizer does not.
        if rest.starts_with(b"/*") && !rest.windows(2).skip(2).any(|pair| pair == b"*/") {
            break;
        }
        let (found, length) = match tokenizer.split(rest) {
            Ok((found, length)) => (found.is_some(), length.max(1)),
            Err(_) => (false, 1),
        };
        if found && let Some(text) = filled.get(at..at + length) {
            let placeholder = placeholders
                .iter()
                .any(|&(start, end)| start < at + length && at < end);
            words.push(Word {
                text,
                start: at,
                placeholder,
            });
        }
        at += length;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        let (filled, ranges) = fill_placeholders(text);
        split(&filled, &ranges)
            .iter()
            .map(|word| {
                if word.placeholder {
                    format!("<{}>", word.text)
                } else {
                    word.text.to_owned()
                }
            })
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_placeholders_and_broken_text() {
        insta::assert_snapshot!(
            [
                "SELECT/* a */1 -- b\n, ?1, :name",
                "select {} , {table:?}.{{field}} where j = '{\"a\": 1}'",
                "can't update runs",
                "\u{feff}DELETE /* never closed",
            ]
            .map(words)
            .join("\n"),
            @r#"
            SELECT 1 , ?1 , :name
            select <__> , <_table___> . <__field__> where j = '{"a": 1}'
            can t update runs
            DELETE
            "#);
        assert_eq!(plain_name("\"Ru\"\"ns\""), "ru\"ns");
        assert_eq!(plain_name("[Runs]"), "runs");
    }
}
