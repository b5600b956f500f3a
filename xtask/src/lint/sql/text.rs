//! A text that may be SQL, with the place in its file that each byte comes from.

/// From this byte of the text on, columns count from this place, until the next anchor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) at: usize,
    pub(super) line: usize,
    pub(super) column: usize,
}

/// A text out of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Text {
    pub(super) value: String,
    pub(super) anchors: Vec<Anchor>,
    /// It is handed to something that runs SQL.
    pub(super) asked_for: bool,
    /// It stands in a doc-test.
    pub(super) in_doc: bool,
    /// The constant or variable that it is the value of.
    pub(super) binding: Option<String>,
}

impl Text {
    /// A whole file as one text.
    pub(super) fn of_file(content: &str) -> Self {
        let mut text = Self {
            asked_for: true,
            ..Self::default()
        };
        text.push_lines(content, 1, 1);
        text
    }

    /// Adds what begins at this place and goes on in the file as it is.
    pub(super) fn push_lines(&mut self, content: &str, line: usize, column: usize) {
        for (index, part) in content.split_inclusive('\n').enumerate() {
            let column = if index == 0 { column } else { 1 };
            self.anchors.push(Anchor {
                at: self.value.len(),
                line: line + index,
                column,
            });
            self.value.push_str(part);
        }
    }

    /// Adds a text that has its own places.
    pub(super) fn push(&mut self, value: &str, anchors: &[Anchor]) {
        let before = self.value.len();
        self.value.push_str(value);
        self.anchors.extend(anchors.iter().map(|anchor| Anchor {
            at: before + anchor.at,
            ..*anchor
        }));
    }

    /// Line and column, both from 1, of a byte.
    pub(super) fn place(&self, offset: usize) -> (usize, usize) {
        let after = self.anchors.partition_point(|anchor| anchor.at <= offset);
        let Some(anchor) = after
            .checked_sub(1)
            .and_then(|index| self.anchors.get(index))
        else {
            return (1, 1);
        };
        let characters = self
            .value
            .get(anchor.at..offset)
            .map_or(0, |between| between.chars().count());
        (anchor.line, anchor.column + characters)
    }
}

/// What a string literal says, from how it is written; `None` for other literals. `line` and
/// `column` are the place of its first character.
pub(super) fn decode(written: &str, line: usize, column: usize) -> Option<(String, Vec<Anchor>)> {
    let quote = written.find('"')?;
    let prefix = written.get(..quote)?;
    let hashes = prefix.bytes().filter(|&byte| byte == b'#').count();
    let kind = prefix.trim_end_matches('#');
    let body_end = written.rfind('"').filter(|&end| end > quote)?;
    let body = written.get(quote + 1..body_end)?;
    let mut reader = Reader {
        value: String::with_capacity(body.len()),
        anchors: Vec::new(),
        line,
        column: column + quote + 1,
    };
    match kind {
        "r" | "br" | "cr" => reader.raw(body),
        "" | "b" | "c" if hashes == 0 => reader.escaped(body)?,
        _ => return None,
    }
    Some((reader.value, reader.anchors))
}

struct Reader {
    value: String,
    anchors: Vec<Anchor>,
    line: usize,
    column: usize,
}

impl Reader {
    fn anchor(&mut self) {
        self.anchors.push(Anchor {
            at: self.value.len(),
            line: self.line,
            column: self.column,
        });
    }

    fn step(&mut self, read: char) {
        if read == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
    }

    fn take(&mut self, read: char) {
        self.value.push(read);
        self.step(read);
        if read == '\n' {
            self.anchor();
        }
    }

    fn raw(&mut self, body: &str) {
        self.anchor();
        for read in body.chars() {
            self.take(read);
        }
    }

    /// Reads the escapes of the Rust reference; `None` when there is one that Rust does not have.
    fn escaped(&mut self, body: &str) -> Option<()> {
        self.anchor();
        let mut rest = body.chars().peekable();
        while let Some(read) = rest.next() {
            if read != '\\' {
                self.take(read);
                continue;
            }
            self.step(read);
            let escape = rest.next()?;
            self.step(escape);
            match escape {
                'n' => self.value.push('\n'),
                'r' => self.value.push('\r'),
                't' => self.value.push('\t'),
                '0' => self.value.push('\0'),
                '\\' | '"' | '\'' => self.value.push(escape),
                'x' => {
                    let digits: String = rest.by_ref().take(2).collect();
                    self.column += 2;
                    let byte = u8::from_str_radix(&digits, 16).ok()?;
                    self.value.push(if byte.is_ascii() {
                        char::from(byte)
                    } else {
                        char::REPLACEMENT_CHARACTER
                    });
                }
                'u' => {
                    let digits: String = rest
                        .by_ref()
                        .skip(1)
                        .take_while(|&digit| digit != '}')
                        .collect();
                    self.column += digits.chars().count() + 2;
                    let code = u32::from_str_radix(&digits.replace('_', ""), 16).ok()?;
                    self.value.push(char::from_u32(code)?);
                }
                // The end of a line and the white space that begins the next one are left out.
                '\n' | '\r' => {
                    while let Some(space) = rest.next_if(char::is_ascii_whitespace) {
                        self.step(space);
                    }
                }
                _ => return None,
            }
            self.anchor();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_say_what_the_compiler_says() {
        for written in [
            r#""plain""#,
            r#""tab\t quote\" back\\ zero\0 \x44ELETE \u{44}ELETE \u{1F600}""#,
            "\"over \\\n      lines\"",
            "\"two\nlines\"",
            "r\"raw \\n\"",
            "r##\"raw \"# text\"##",
        ] {
            let expected = syn::parse_str::<syn::LitStr>(written).unwrap().value();
            assert_eq!(decode(written, 1, 1).unwrap().0, expected, "{written}");
        }
        assert_eq!(
            decode("b\"DELETE\\xff\"", 1, 1).unwrap().0,
            "DELETE\u{fffd}"
        );
        assert_eq!(decode("cr#\"DELETE\"#", 1, 1).unwrap().0, "DELETE");
        for other in ["17", "'\"'", "b'\"'", "1.5e3"] {
            assert_eq!(decode(other, 1, 1), None, "{other}");
        }
    }

    #[test]
    fn places_survive_escapes_and_lines() {
        let (value, anchors) = decode("\"a\\n\\u{44}x \\\n    ELETE\"", 10, 5).unwrap();
        assert_eq!(value, "a\nDx ELETE");
        let text = Text {
            value,
            anchors,
            ..Text::default()
        };
        assert_eq!(text.place(0), (10, 6));
        assert_eq!(text.place(2), (10, 9));
        assert_eq!(text.place(3), (10, 15));
        assert_eq!(text.place(5), (11, 5));
    }
}
