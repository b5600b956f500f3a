//! Inert text: characters that drive a terminal, change the direction of text or can't be seen are made visible.
//!
//! Control characters of the first block show as their pictures (`␛`), all others as `‹U+202E›`. Line breaks and tabs stay where a
//! text may have several lines.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Makes a text of several lines inert.
pub(crate) fn block(text: &str) -> Cow<'_, str> {
    inert(text, |c| matches!(c, '\n' | '\t'))
}

/// Makes a text inert that must stay on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    inert(text, |_| false)
}

fn inert(text: &str, kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    if text.chars().all(|c| kept(c) || !is_hazard(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if kept(c) || !is_hazard(c) {
            safe.push(c);
        } else {
            match u32::from(c) {
                code @ 0..=0x1f => safe.extend(char::from_u32(0x2400 + code)),
                0x7f => safe.push('\u{2421}'),
                // Writing to a string does not fail.
                code => {
                    let _ = write!(safe, "‹U+{code:04X}›");
                }
            }
        }
    }
    Cow::Owned(safe)
}

/// Makes a JSON text inert without changing what it says: such characters can only stand inside its strings.
pub(crate) fn escape_in_json(json: &str) -> Cow<'_, str> {
    let is_kept = |c: char| c == '\n' || !is_hazard(c);
    if json.chars().all(is_kept) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_kept(c) {
            safe.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(safe, "\\u{unit:04x}");
            }
        }
    }
    Cow::Owned(safe)
}

/// Whether a character must not reach a terminal as it is.
///
/// Variation selectors 15 and 16 stay: they only choose between two pictures of the character before them.
fn is_hazard(c: char) -> bool {
    matches!(u32::from(c),
        0..=0x1f | 0x7f..=0x9f
        | 0xad | 0x34f | 0x61c | 0x115f | 0x1160 | 0x17b4 | 0x17b5 | 0x180b..=0x180f
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0x3164
        | 0xfe00..=0xfe0d | 0xfeff | 0xffa0 | 0xfff0..=0xfffb
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

/// The first `columns` columns of a line, so that a live line never wraps. A character outside ASCII counts as two.
pub(crate) fn fit(line: &str, columns: usize) -> String {
    let mut used = 0;
    let mut fitted = String::new();
    for c in line.chars() {
        let width = if c.is_ascii() { 1 } else { 2 };
        if columns <= used + width {
            break;
        }
        used += width;
        fitted.push(c);
    }
    fitted
}

/// A duration for people.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1_000..=59_999 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        _ => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
    }
}

/// An instant for people: UTC, to the second.
pub(crate) fn instant(unix_ms: i64) -> String {
    let days = unix_ms.div_euclid(86_400_000);
    let second = unix_ms.rem_euclid(86_400_000) / 1_000;
    // Proleptic Gregorian date of a day number (Hinnant, "chrono-compatible low-level date algorithms").
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// A value for people: text as its lines, everything else as JSON, indented.
pub(crate) fn value(value: &serde_json::Value, indent: &str) -> String {
    let text = match value {
        serde_json::Value::String(text) => text.clone(),
        other => format!("{other:#}"),
    };
    text.lines()
        .map(|line| format!("{indent}{line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_passes() {
        let hostile = [
            "\u{1b}]0;owned\u{7}",
            "\u{1b}[2J\u{1b}[H",
            "\u{9b}31m",
            "a\rb",
            "abc\u{202e}cba",
            "zero\u{200b}width",
            "\u{7f}",
            "\u{e0041}tag",
            "two\nlines\tand a tab",
        ];
        let shown: Vec<String> = hostile.iter().map(|text| line(text).into_owned()).collect();
        insta::assert_snapshot!(shown.join("\n"), @r#"
␛]0;owned␇
␛[2J␛[H
‹U+009B›31m
a␍b
abc‹U+202E›cba
zero‹U+200B›width
␡
‹U+E0041›tag
two␊lines␉and a tab
"#);
        assert_eq!(block("a\n\tb"), "a\n\tb");
        assert!(matches!(line("plain ü 日本 👍\u{fe0f}"), Cow::Borrowed(_)));
        for c in '\0'..='\u{10ffff}' {
            if c.is_control() {
                assert!(is_hazard(c), "{c:?}");
            }
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value =
            serde_json::json!({ "a\u{202e}": ["\u{9b}31m", "\u{1b}[0m", "\u{e0041}", "ü"] });
        let text = value.to_string();
        let safe = escape_in_json(&text);
        assert!(!safe.chars().any(is_hazard), "{safe}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&safe).unwrap(),
            value
        );
    }

    #[test]
    fn lines_fit_and_times_read() {
        assert_eq!(fit("abcdef", 4), "abc");
        assert_eq!(fit("日本", 4), "日");
        assert_eq!(
            [duration(7), duration(1_250), duration(61_000)],
            ["7 ms", "1.2 s", "1 min 1 s"]
        );
        assert_eq!(instant(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(instant(-1), "1969-12-31 23:59:59 UTC");
    }
}
