//! Reads JSON text into a tree with positions.
//!
//! [`holdpoint_state::json`] judges the text first, so this reader only finds the places in it. JSON is
//! not read as YAML: YAML refuses some characters that JSON allows in strings.

use std::collections::BTreeMap;
use std::str::Chars;

use holdpoint_state::json::{self, JsonError};
use serde_json::Value;

use super::error::Problem;
use super::tree::{Content, DEPTH_MAX, Key, Layout, Node, NodeIndex, Position, Tree};

type Located = (Position, Problem);
type Result<T> = std::result::Result<T, Located>;

const START: Position = Position { line: 1, column: 1 };

/// Reads a JSON document.
pub(super) fn read(text: &str) -> Result<Tree> {
    let offence = match json::parse(text.as_bytes()) {
        Ok(_) => None,
        Err(JsonError::Syntax {
            line,
            column,
            problem,
        }) => {
            let message = problem.to_owned();
            return Err((Position { line, column }, Problem::Syntax { message }));
        }
        Err(error) => Some(error.to_string()),
    };
    // The judge stopped at its first offence and this reader does too, where it is: what comes after
    // it may not even be JSON.
    let mut reader = Reader {
        rest: text.chars(),
        at: START,
        tree: Tree::default(),
        offence,
    };
    reader.value(0)?;
    match reader.offence {
        None => Ok(reader.tree),
        Some(message) => Err((START, Problem::Syntax { message })),
    }
}

struct Reader<'t> {
    rest: Chars<'t>,
    at: Position,
    tree: Tree,
    /// Why the text was refused, if it was.
    offence: Option<String>,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<char> {
        self.rest.clone().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next()?;
        if next == '\n' {
            self.at = Position {
                line: self.at.line + 1,
                column: 1,
            };
        } else {
            self.at.column += 1;
        }
        Some(next)
    }

    /// Skips white space, and the separators that the text has where it should.
    fn skip(&mut self, separators: &[char]) {
        while self
            .peek()
            .is_some_and(|c| c.is_ascii_whitespace() || separators.contains(&c))
        {
            self.next();
        }
    }

    /// The judge has a bound of its own, but says only afterwards that a text is too deep: a file of brackets must not use up the
    /// stack here.
    fn value(&mut self, depth: usize) -> Result<NodeIndex> {
        self.skip(&[]);
        let at = self.at;
        if DEPTH_MAX < depth {
            let message = "the file can't have a value nested deeper than 64 levels";
            return Err((
                at,
                Problem::Syntax {
                    message: message.to_owned(),
                },
            ));
        }
        let mut layout = Layout::Folded;
        let content = match self.peek() {
            Some('{') => self.object(depth)?,
            Some('[') => {
                self.next();
                let mut items = Vec::new();
                loop {
                    self.skip(&[',']);
                    if matches!(self.peek(), Some(']') | None) {
                        self.next();
                        break Content::List(items);
                    }
                    items.push(self.value(depth + 1)?);
                }
            }
            Some('"') => {
                let (source, text) = self.string()?;
                if !source.contains('\\') {
                    layout = Layout::Line { skip: 1 };
                }
                Content::Text(text)
            }
            _ => match self.word() {
                "null" => Content::Null,
                "true" => Content::Bool(true),
                "false" => Content::Bool(false),
                number => match json::parse(number.as_bytes()) {
                    Ok(Value::Number(number)) => Content::Number(number),
                    Ok(_) | Err(_) => return Err(self.offence_at(at)),
                },
            },
        };
        Ok(self.tree.push(Node {
            at,
            content,
            layout,
        }))
    }

    fn object(&mut self, depth: usize) -> Result<Content> {
        self.next();
        let mut fields: Vec<(Key, NodeIndex)> = Vec::new();
        let mut seen = BTreeMap::new();
        loop {
            self.skip(&[',']);
            if self.peek() != Some('"') {
                self.next();
                return Ok(Content::Map(fields));
            }
            let at = self.at;
            let (_, name) = self.string()?;
            if let Some(first) = seen.insert(name.clone(), at) {
                return Err((at, Problem::DuplicateKey { key: name, first }));
            }
            self.skip(&[':']);
            let value = self.value(depth + 1)?;
            fields.push((Key { at, name }, value));
        }
    }

    /// The source of a string, with its quotes, and its text.
    fn string(&mut self) -> Result<(&'t str, String)> {
        let (source, at) = (self.rest.as_str(), self.at);
        self.next();
        while let Some(c) = self.next() {
            match c {
                '"' => break,
                '\\' => drop(self.next()),
                _ => {}
            }
        }
        let source = self.since(source);
        match serde_json::from_str(source) {
            Ok(text) => Ok((source, text)),
            Err(_) => Err(self.offence_at(at)),
        }
    }

    fn offence_at(&self, at: Position) -> Located {
        let message = self
            .offence
            .clone()
            .unwrap_or_else(|| "not JSON".to_owned());
        (at, Problem::Syntax { message })
    }

    /// The source of a number or name.
    fn word(&mut self) -> &'t str {
        let source = self.rest.as_str();
        while self
            .peek()
            .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        {
            self.next();
        }
        self.since(source)
    }

    fn since(&self, source: &'t str) -> &'t str {
        source
            .get(..source.len() - self.rest.as_str().len())
            .unwrap_or_default()
    }
}
