//! A request as plain text, cut into the messages of a transport. Pure, so that what takes too many of them is refused before it is asked.
//!
//! All lengths are UTF-16 code units. Nothing is elided: [`join`] gives the content back. The limits are those of the narrowest transport
//! that shows requests; a request has to fit there whatever shows it, since its audience may be led there at any time.
//!
//! Not here: which transport that is, buttons, and sending it.

use std::fmt::Write as _;

use super::{Segment, segments};
use crate::model::{ChannelRequest, FINGERPRINT_CHARS, TRANSPORT_PARTS_MAX, to_iso};

/// How long one message may be.
pub const MESSAGE_UNITS_MAX: usize = 4_096;

/// How many messages one recipient gets at most for one document.
pub const PARTS_MAX: usize = TRANSPORT_PARTS_MAX;

/// How much of a message is left below the longest header, `Part 20/20`.
pub const CAPACITY_UNITS: usize =
    MESSAGE_UNITS_MAX - "Part 20/20\nDecision \n\n".len() - FINGERPRINT_CHARS;

/// What stands between two segments of one part.
const BETWEEN: &str = "\n\n";
const BETWEEN_UNITS: usize = BETWEEN.len();

/// One message of a split document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The whole text of the message: header, blank line, body.
    pub text: String,
    /// Where in `text` the body begins, in bytes.
    body_at: usize,
    /// The body goes on in the middle of the segment that the part before began.
    pub resumes: bool,
}

impl Part {
    /// The text below the header.
    pub fn body(&self) -> &str {
        self.text.get(self.body_at..).unwrap_or_default()
    }
}

/// The document needs more messages than one recipient may get. Nothing of it may be sent or become pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document needs {observed} messages; the limit is {PARTS_MAX}")]
pub struct TooManyParts {
    /// How many messages it needs.
    pub observed: usize,
}

/// How long a text is, in UTF-16 code units.
pub fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

/// Replaces what a plain text may not hold, each character by one U+FFFD: control characters except TAB and LF, and what a reader can't see
/// and a screen obeys ([`is_obeyed`]).
///
/// A request keeps such text as its author wrote it, because its digests are made of it: what is shown is neutralised by whoever shows it.
/// The length in code units never grows.
pub fn without_controls(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' | '\n' => c,
            c if c.is_control() || is_obeyed(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

/// Whether a character is no text but an order to the screen that shows it: the controls of the direction of writing (`Bidi_Control` of
/// Unicode), line and paragraph separators, the invisible operators and the tags that hide text in text. What joins letters and pictures
/// (U+200C, U+200D, variation selectors) is text.
pub fn is_obeyed(c: char) -> bool {
    matches!(u32::from(c),
        0x061c | 0x200b | 0x200e | 0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff | 0xfff9..=0xfffb | 0xe0000..=0xe007f)
}

/// The messages that show a request, the same for every recipient.
///
/// # Errors
///
/// [`TooManyParts`]: nothing of it may be sent, and nothing may wait for its answer.
pub fn parts(request: &ChannelRequest) -> Result<Vec<Part>, TooManyParts> {
    split(texts(&segments(request)), &request.fingerprint())
}

/// The text of each piece. Items that follow each other stay together, line by line.
fn texts(segments: &[Segment<'_>]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut last = Kind::Alone;
    for segment in segments {
        let (kind, text) = text(segment);
        match texts.last_mut() {
            Some(before) if kind != Kind::Alone && kind == last => {
                before.push('\n');
                before.push_str(&text);
            }
            _ => texts.push(text),
        }
        last = kind;
    }
    texts
}

/// What stays together with its neighbours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Alone,
    Bullet,
    Field,
    Choice,
}

fn text(segment: &Segment<'_>) -> (Kind, String) {
    match *segment {
        Segment::Title(text)
        | Segment::Summary(text)
        | Segment::Paragraph(text)
        | Segment::Section(text)
        | Segment::Preformatted(text) => (Kind::Alone, text.to_owned()),
        Segment::Bullet(text) => (Kind::Bullet, format!("• {text}")),
        Segment::Field { label, value } => (Kind::Field, format!("{label}: {value}")),
        Segment::Deadline { at, automatic } => {
            let then = match automatic {
                Some(label) => format!("\"{label}\" is chosen automatically."),
                None => "the decision ends without an answer.".to_owned(),
            };
            (Kind::Alone, format!("From {} on {then}", to_iso(at)))
        }
        Segment::AnotherPerson => (
            Kind::Alone,
            "Another person than the one who asked for this has to answer.".to_owned(),
        ),
        Segment::Choice { label, prompt, .. } => match prompt {
            Some(prompt) => (Kind::Choice, format!("→ {label}: {prompt}")),
            None => (Kind::Choice, format!("→ {label}")),
        },
    }
}

/// Splits `segments` into messages, each headed by its number and the decision's `fingerprint`.
///
/// Segments are joined by a blank line as long as they fit. One that does not fit starts a new part. One that is too long for a
/// part of its own is cut behind the last LF that fits, else at a character boundary, and what is left of it takes further
/// segments like any other.
///
/// ```
/// use holdpoint_decisions::document::parts::split;
///
/// let parts = split(["Ship it?", "Go\nRedo"], "bb93c16b02b4")?;
/// assert_eq!(parts[0].text, "Part 1/1\nDecision bb93c16b02b4\n\nShip it?\n\nGo\nRedo");
/// # Ok::<(), holdpoint_decisions::document::parts::TooManyParts>(())
/// ```
///
/// # Errors
///
/// [`TooManyParts`] with the number that it would take.
pub fn split<S: AsRef<str>>(
    segments: impl IntoIterator<Item = S>,
    fingerprint: &str,
) -> Result<Vec<Part>, TooManyParts> {
    let mut packer = Packer::default();
    for segment in segments {
        packer.take(&without_controls(segment.as_ref()));
    }
    let bodies = packer.finish();
    let count = bodies.len();
    if PARTS_MAX < count {
        return Err(TooManyParts { observed: count });
    }
    let headed = |(index, body): (usize, Body)| {
        let mut text = format!("Part {}/{count}\nDecision ", index + 1);
        // A longer text would push a full body over the limit of a message.
        text.extend(fingerprint.chars().take(FINGERPRINT_CHARS));
        text.push_str(BETWEEN);
        let body_at = text.len();
        let _written = write!(text, "{}", body.text);
        Part {
            text,
            body_at,
            resumes: body.resumes,
        }
    };
    Ok(bodies.into_iter().enumerate().map(headed).collect())
}

/// The content of a split document: the bodies, with the blank lines that the cuts between segments took.
pub fn join(parts: &[Part]) -> String {
    let mut content = String::new();
    for (index, part) in parts.iter().enumerate() {
        if 0 < index && !part.resumes {
            content.push_str(BETWEEN);
        }
        content.push_str(part.body());
    }
    content
}

#[derive(Debug, Default)]
struct Body {
    text: String,
    units: usize,
    resumes: bool,
}

#[derive(Debug, Default)]
struct Packer {
    done: Vec<Body>,
    open: Body,
}

impl Packer {
    fn take(&mut self, segment: &str) {
        let length = units(segment);
        if length == 0 {
            return;
        }
        if self.open.units != 0 {
            if self.open.units + BETWEEN_UNITS + length <= CAPACITY_UNITS {
                self.open.text.push_str(BETWEEN);
                self.open.text.push_str(segment);
                self.open.units += BETWEEN_UNITS + length;
                return;
            }
            self.close(false);
        }
        let mut rest = segment;
        let mut left = length;
        while CAPACITY_UNITS < left {
            let (piece, after) = cut(rest);
            self.open.text.push_str(piece);
            self.close(true);
            rest = after;
            left -= units(piece);
        }
        self.open.text.push_str(rest);
        self.open.units = left;
    }

    fn close(&mut self, resumes: bool) {
        let next = Body {
            resumes,
            ..Body::default()
        };
        self.done.push(std::mem::replace(&mut self.open, next));
    }

    fn finish(mut self) -> Vec<Body> {
        if self.open.units != 0 || self.done.is_empty() {
            self.done.push(self.open);
        }
        self.done
    }
}

/// The longest beginning of `text` that fits and ends well, and the rest. Neither is empty if the text is too long to fit.
fn cut(text: &str) -> (&str, &str) {
    let mut taken = 0;
    let mut fits = text.len();
    let mut line = None;
    for (at, c) in text.char_indices() {
        taken += c.len_utf16();
        if CAPACITY_UNITS < taken {
            fits = at;
            break;
        }
        if c == '\n' {
            line = Some(at + 1);
        }
    }
    text.split_at(line.unwrap_or(fits))
}
