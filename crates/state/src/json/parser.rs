//! Reads JSON text by the letter of RFC 8259 and drives the writer. Repairs nothing.

use super::writer::{Writer, plain_run};
use super::{JsonError, number};

/// A place in a text, and the writer that gets what is read.
pub(super) struct Parser<'t, 'w> {
    text: &'t str,
    at: usize,
    writer: &'w mut Writer,
}

impl<'t, 'w> Parser<'t, 'w> {
    pub(super) fn new(text: &'t str, writer: &'w mut Writer) -> Self {
        Self {
            text,
            at: 0,
            writer,
        }
    }

    /// Reads one value and nothing after it.
    pub(super) fn document(mut self) -> Result<(), JsonError> {
        if self.text.starts_with('\u{FEFF}') {
            return Err(self.syntax("a byte order mark; JSON starts without one"));
        }
        self.value()?;
        self.space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.syntax("text after the end of the document")),
        }
    }

    fn value(&mut self) -> Result<(), JsonError> {
        self.space();
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.object(),
            Some(b'[') => self.array(),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true"),
            Some(b'f') => self.word("false"),
            Some(b'n') => self.word("null"),
            Some(_) => Err(self.syntax("a value should start here")),
            None => Err(self.syntax("the text ends where a value should start")),
        }
    }

    fn object(&mut self) -> Result<(), JsonError> {
        let mut object = self.writer.begin_object()?;
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return self.writer.end_object(&object);
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.syntax("a key in double quotes should start here"));
            }
            self.writer.begin_member(&mut object);
            self.string()?;
            self.writer.end_key(&mut object);
            self.space();
            if !self.take(b':') {
                return Err(self.syntax("a colon should follow the key"));
            }
            if let Err(error) = self.value() {
                return Err(self.writer.under_current(&object, error));
            }
            self.writer.end_member(&object);
            self.space();
            if self.take(b'}') {
                return self.writer.end_object(&object);
            }
            if !self.take(b',') {
                return Err(self.syntax("a comma or a closing brace should follow the member"));
            }
        }
    }

    fn array(&mut self) -> Result<(), JsonError> {
        self.writer.begin_array()?;
        self.at += 1;
        self.space();
        if self.take(b']') {
            self.writer.end_array();
            return Ok(());
        }
        let mut index = 0;
        loop {
            self.value().map_err(|error| error.under_index(index))?;
            self.space();
            if self.take(b']') {
                self.writer.end_array();
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.syntax("a comma or a closing bracket should follow the item"));
            }
            self.writer.out.push(b',');
            index += 1;
        }
    }

    /// Reads a string from its opening quote on. What may stand raw in JSON is also what the canonical form has raw.
    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        self.writer.out.push(b'"');
        loop {
            let rest = self.rest();
            let (run, special) = rest.split_at(plain_run(rest));
            self.writer.out.extend_from_slice(run);
            self.at += run.len();
            match special.first() {
                Some(b'"') => {
                    self.at += 1;
                    self.writer.out.push(b'"');
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => {
                    return Err(
                        self.syntax("a control character in a string; write it as an escape")
                    );
                }
                None => return Err(self.syntax("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let character = match self.rest().get(1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            Some(_) | None => return Err(self.syntax("an escape that JSON does not have")),
        };
        self.at += 2;
        self.writer.character(character);
        Ok(())
    }

    /// Reads `\uXXXX`, or two of them that are one surrogate pair.
    fn unicode_escape(&mut self) -> Result<(), JsonError> {
        let first = self.code_unit()?;
        let is_leading = (0xD800..0xDC00).contains(&first);
        let second = if is_leading && self.rest().starts_with(b"\\u") {
            Some(self.code_unit()?)
        } else {
            None
        };
        match char::decode_utf16([first].into_iter().chain(second)).next() {
            Some(Ok(character)) => {
                self.writer.character(character);
                Ok(())
            }
            Some(Err(_)) | None => Err(JsonError::LoneSurrogate {
                pointer: String::new(),
                unit: first,
            }),
        }
    }

    fn code_unit(&mut self) -> Result<u16, JsonError> {
        let digits = self.rest().get(2..6).unwrap_or_default();
        let mut unit = 0;
        for digit in digits {
            let Some(value) = char::from(*digit)
                .to_digit(16)
                .and_then(|value| u16::try_from(value).ok())
            else {
                return Err(self.syntax("four hexadecimal digits should follow \\u"));
            };
            unit = unit << 4 | value;
        }
        if digits.is_empty() {
            return Err(self.syntax("four hexadecimal digits should follow \\u"));
        }
        self.at += 6;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        self.take(b'-');
        // No digit follows a leading zero, so `01` ends after its zero and what follows is out of place.
        if !self.take(b'0') {
            self.digits()?;
        } else if matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.syntax("a number with a leading zero"));
        }
        let mut is_integer = true;
        if self.take(b'.') {
            is_integer = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            is_integer = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let literal = self.text.get(start..self.at).unwrap_or_default();
        if is_integer {
            number::write_integer_literal(&mut self.writer.out, literal)
        } else {
            number::write_decimal_literal(&mut self.writer.out, literal)
        }
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let count = self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if count == 0 {
            return Err(self.syntax("a digit should stand here"));
        }
        self.at += count;
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), JsonError> {
        if !self.rest().starts_with(word.as_bytes()) {
            return Err(self.syntax("a word that JSON does not have"));
        }
        self.at += word.len();
        self.writer.out.extend_from_slice(word.as_bytes());
        Ok(())
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &'t [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn syntax(&self, problem: &'static str) -> JsonError {
        let before =
            String::from_utf8_lossy(self.text.as_bytes().get(..self.at).unwrap_or_default());
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |line| line.chars().count())
            + 1;
        JsonError::Syntax {
            line,
            column,
            problem,
        }
    }
}
