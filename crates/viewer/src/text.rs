//! The one place where untrusted text becomes safe to show: [`Safe`] is what a terminal may be given, and only this room makes it.
//!
//! Model output, file names, tool results, titles: all of it can hold sequences that write the clipboard, move the cursor or turn the
//! reading direction. What steers a terminal is made visible, never dropped, so that a reader sees that it was there. Text is
//! measured in terminal cells and cut between graphemes. Not here: markup of pictures, colours, layout.

use std::borrow::Cow;
use std::fmt;

use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// How many characters without a cell of their own follow each other. More combining marks than any language writes only smear over
/// other lines.
const MARKS: usize = 8;

/// How many cells a tab is shown as.
const TAB: &str = "    ";

/// The character that stands for what did not fit.
const ELLIPSIS: &str = "…";

/// One line of text that can do nothing but be read: no control, no escape sequence, no invisible format character, no line break.
///
/// ```
/// use holdpoint_viewer::text::Safe;
///
/// let hostile = Safe::line("a\u{1b}]52;c;aGk=\u{7}b");
/// assert_eq!(hostile.as_str(), "a␛]52;c;aGk=␇b");
///
/// let wide = Safe::line("日本語");
/// assert_eq!(wide.width(), 6);
/// assert_eq!(wide.cut(5).as_str(), "日本…");
/// ```
///
/// Nothing else makes one:
///
/// ```compile_fail,E0423
/// let forged = holdpoint_viewer::text::Safe("a\u{1b}[2J".into());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Safe(String);

impl Safe {
    /// One line: line breaks are made visible too.
    pub fn line(text: &str) -> Self {
        Self(visible(text))
    }

    /// The lines of a text, each safe. An empty text is one empty line.
    pub fn lines(text: &str) -> Vec<Self> {
        let text = text
            .strip_suffix("\r\n")
            .or_else(|| text.strip_suffix('\n'))
            .unwrap_or(text);
        text.split('\n')
            .map(|line| Self::line(line.strip_suffix('\r').unwrap_or(line)))
            .collect()
    }

    /// The lines of a text, none wider than `width` cells: broken at spaces where there are some, otherwise between graphemes.
    pub fn wrapped(text: &str, width: usize) -> Vec<Self> {
        Self::lines(text)
            .iter()
            .flat_map(|line| line.wrap(width))
            .collect()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many cells it takes.
    pub fn width(&self) -> usize {
        self.0.graphemes(true).map(cells).sum()
    }

    /// Its graphemes with the cells of each, in order: what goes into the cells of a screen.
    pub fn graphemes(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0
            .graphemes(true)
            .map(|grapheme| (grapheme, cells(grapheme)))
    }

    /// The text when it fits into `width` cells, otherwise as much of it as fits before an ellipsis.
    #[must_use]
    pub fn cut(&self, width: usize) -> Self {
        if self.width() <= width {
            return self.clone();
        }
        let Some(room) = width.checked_sub(1) else {
            return Self::default();
        };
        let (mut cut, mut used) = (String::new(), 0);
        for (grapheme, cells) in self.graphemes() {
            if room < used + cells {
                break;
            }
            cut.push_str(grapheme);
            used += cells;
        }
        cut.push_str(ELLIPSIS);
        Self::rejoined(cut, width)
    }

    /// The text cut to `width` cells and filled up with spaces to exactly that.
    #[must_use]
    pub fn fill(&self, width: usize) -> Self {
        let mut filled = self.cut(width);
        let missing = width.saturating_sub(filled.width());
        filled.0.extend(std::iter::repeat_n(' ', missing));
        filled
    }

    /// Lines of at most `width` cells. A grapheme that is wider than the whole area is left out: there is no place for it.
    pub fn wrap(&self, width: usize) -> Vec<Self> {
        if self.width() <= width {
            return vec![self.clone()];
        }
        let mut lines = Vec::new();
        let (mut line, mut used) = (String::new(), 0);
        // Where the line can be broken: the bytes and the cells up to and including its last space.
        let mut space: Option<(usize, usize)> = None;
        for (grapheme, cells) in self.graphemes() {
            if width < cells {
                continue;
            }
            if width < used + cells {
                let (rest, rest_cells) = match space.take() {
                    Some((at, before)) if grapheme != " " => (line.split_off(at), used - before),
                    _ => (String::new(), 0),
                };
                lines.push(std::mem::replace(&mut line, rest));
                used = rest_cells;
                // The break stands for the space.
                if grapheme == " " {
                    continue;
                }
            }
            line.push_str(grapheme);
            used += cells;
            if grapheme == " " {
                space = Some((line.len(), used));
            }
        }
        lines.push(line);
        lines
            .into_iter()
            .map(|line| Self::rejoined(line.trim_end_matches(' ').to_owned(), width))
            .collect()
    }

    /// Two texts, one after the other. Parts that join into one grapheme stay inert.
    #[must_use]
    pub fn then(&self, next: &Self) -> Self {
        Self::line(&format!("{}{}", self.0, next.0))
    }

    /// What was put together from graphemes of a safe text, and takes at most `width` cells: parts that were cut may join anew.
    fn rejoined(text: String, width: usize) -> Self {
        let mut text = Self(text);
        while width < text.width() {
            let end = text.0.grapheme_indices(true).next_back();
            let end = end.map_or(0, |(at, _)| at);
            text.0.truncate(end);
        }
        text
    }
}

impl fmt::Display for Safe {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl From<&str> for Safe {
    fn from(text: &str) -> Self {
        Self::line(text)
    }
}

/// How many cells a grapheme takes. One that is joined of many parts is drawn as one, never wider than two.
fn cells(grapheme: &str) -> usize {
    if grapheme.is_ascii() {
        return grapheme.len();
    }
    grapheme.width()
}

fn visible(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // The character that was written last, and how many without a cell there are since the last that has one.
    let (mut before, mut marks) = ('a', 0);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character == ' ' || character.is_ascii_graphic() {
            safe.push(character);
            (before, marks) = (character, 0);
        } else if let Some(sign) = sign(character) {
            safe.push_str(&sign);
            (before, marks) = (sign.chars().next_back().unwrap_or(' '), 0);
        } else if is_joiner(character) && !joins(before, character, characters.peek().copied()) {
            safe.push_str(&code(character));
            (before, marks) = ('>', 0);
        } else {
            marks = match character.width() {
                None | Some(0) => marks + 1,
                Some(_) => 0,
            };
            if marks <= MARKS {
                safe.push(character);
                before = character;
            } else if marks == MARKS + 1 {
                safe.push('\u{fffd}');
                before = '\u{fffd}';
            }
        }
    }
    safe
}

/// What joins or varies is part of what it stands in, and invisible anywhere else.
fn joins(before: char, joiner: char, next: Option<char>) -> bool {
    let visible = |c: char| !c.is_ascii() && !is_joiner(c) && sign(c).is_none();
    visible(before) && (joiner != ZERO_WIDTH_JOINER || next.is_some_and(visible))
}

const ZERO_WIDTH_JOINER: char = '\u{200d}';

/// Characters that change how their neighbours are drawn and are part of real words and emoji.
fn is_joiner(character: char) -> bool {
    matches!(
        character,
        '\u{200c}' | ZERO_WIDTH_JOINER | '\u{fe00}'..='\u{fe0f}'
    )
}

/// What is shown in place of a character that steers a terminal or can't be seen.
fn sign(character: char) -> Option<Cow<'static, str>> {
    Some(match character {
        '\t' => Cow::Borrowed(TAB),
        // The pictures of controls have the order of the controls.
        '\0'..='\u{1f}' => Cow::Owned(
            char::from_u32(0x2400 + u32::from(character))
                .unwrap_or('\u{fffd}')
                .to_string(),
        ),
        '\u{7f}' => Cow::Borrowed("␡"),
        _ if is_unseen(character) => Cow::Owned(code(character)),
        _ => return None,
    })
}

/// A character by its number, as `<U+202E>`.
fn code(character: char) -> String {
    format!("<U+{:04X}>", u32::from(character))
}

/// Controls of the 8-bit family, marks of reading direction, invisible format characters, tags and what no font draws.
fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}' | '\u{1160}'
            | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'
            | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1345f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests;
