//! Reads YAML 1.2 text into a tree with positions.
//!
//! The reader is stricter than YAML: what two readers could understand differently is refused.
//! No anchors, aliases, merge keys or tags, no second document, no repeated keys, no `.inf` and `.nan`,
//! no numbers with leading zeros.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};
use holdpoint_state::json;
use serde_json::{Number, Value};

use super::error::Problem;
use super::tree::{Content, DEPTH_MAX, Key, Layout, Node, NodeIndex, Position, Tree};

type Located = (Position, Problem);
type Result<T> = std::result::Result<T, Located>;

/// Reads a YAML document.
pub(super) fn read(text: &str) -> Result<Tree> {
    Reader::of(text).document()
}

/// Reads all documents of a YAML stream. One that has nothing in it, as after a last `---`, is none.
pub(super) fn read_all(text: &str) -> Result<Vec<Tree>> {
    Reader::of(text).documents()
}

struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    tree: Tree,
    last: Position,
}

impl<'t> Reader<'t> {
    fn of(text: &'t str) -> Self {
        let options = granit_parser::options! { simple_key_max_lookahead: text.len().max(1024) };
        Self {
            text,
            parser: Parser::new_from_str_with_options(text, options),
            tree: Tree::default(),
            last: Position { line: 1, column: 1 },
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span)> {
        match self.parser.next() {
            Some(Ok((event, span))) => {
                self.last = position(&span);
                Ok((event, span))
            }
            Some(Err(error)) => {
                let at = Position {
                    line: error.marker().line(),
                    column: error.marker().col() + 1,
                };
                Err((
                    at,
                    Problem::Syntax {
                        message: error.info(),
                    },
                ))
            }
            None => Err((
                self.last,
                Problem::Syntax {
                    message: "the file ends too early".to_owned(),
                },
            )),
        }
    }

    fn document(mut self) -> Result<Tree> {
        let mut documents = 0;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) => {
                    documents += 1;
                    if 1 < documents {
                        return Err(refused(
                            &span,
                            "a second document; a file holds one workflow",
                        ));
                    }
                }
                event => {
                    self.value(event, &span, 0)?;
                }
            }
        }
        if self.tree.root().is_none() {
            let at = Position { line: 1, column: 1 };
            self.tree.push(Node {
                at,
                content: Content::Null,
                layout: Layout::Folded,
            });
        }
        Ok(self.tree)
    }

    fn documents(mut self) -> Result<Vec<Tree>> {
        let mut documents = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(documents),
                Event::StreamStart | Event::DocumentStart(..) => {}
                Event::DocumentEnd => {
                    let tree = std::mem::take(&mut self.tree);
                    let root = tree.root().and_then(|root| tree.node(root));
                    if root.is_some_and(|root| !matches!(root.content, Content::Null)) {
                        documents.push(tree);
                    }
                }
                event => {
                    self.value(event, &span, 0)?;
                }
            }
        }
    }

    /// Reads the value that `event` begins. A value is pushed after what it holds, so the document
    /// itself comes last.
    fn value(&mut self, event: Event<'t>, span: &Span, depth: usize) -> Result<NodeIndex> {
        if DEPTH_MAX < depth {
            return Err(refused(span, "a value nested deeper than 64 levels"));
        }
        let at = position(span);
        let (content, layout) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                plain_node(span, anchor, tag.is_some())?;
                let content = match style {
                    ScalarStyle::Plain => plain(span, &text)?,
                    _ => Content::Text(text.into_owned()),
                };
                (content, self.layout(span, style))
            }
            Event::SequenceStart(_, anchor, tag) => {
                plain_node(span, anchor, tag.is_some())?;
                let mut items = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::SequenceEnd {
                        break;
                    }
                    items.push(self.value(event, &span, depth + 1)?);
                }
                (Content::List(items), Layout::Folded)
            }
            Event::MappingStart(_, anchor, tag) => {
                plain_node(span, anchor, tag.is_some())?;
                (Content::Map(self.fields(depth)?), Layout::Folded)
            }
            Event::Alias(_) => {
                return Err(refused(span, "an alias; write the value where it is used"));
            }
            _ => return Err(refused(span, "something that is no value")),
        };
        Ok(self.tree.push(Node {
            at,
            content,
            layout,
        }))
    }

    fn fields(&mut self, depth: usize) -> Result<Vec<(Key, NodeIndex)>> {
        let mut fields: Vec<(Key, NodeIndex)> = Vec::new();
        let mut seen = BTreeMap::new();
        loop {
            let (event, span) = self.next()?;
            let name = match event {
                Event::MappingEnd => return Ok(fields),
                // A key is the text as written, so that the cases `true` and `1` need no quotes.
                Event::Scalar(name, _, anchor, tag) => {
                    plain_node(&span, anchor, tag.is_some())?;
                    name.into_owned()
                }
                _ => return Err(refused(&span, "a key that is no text")),
            };
            let at = position(&span);
            if let Some(first) = seen.insert(name.clone(), at) {
                return Err((at, Problem::DuplicateKey { key: name, first }));
            }
            if name == "<<" {
                return Err(refused(
                    &span,
                    "a merge key; write the members where they are used",
                ));
            }
            let (event, span) = self.next()?;
            let value = self.value(event, &span, depth + 1)?;
            fields.push((Key { at, name }, value));
        }
    }

    fn layout(&self, span: &Span, style: ScalarStyle) -> Layout {
        match style {
            // Lines that are folded into one are counted as one: then only the start is certain.
            ScalarStyle::Plain
                if span
                    .slice(self.text)
                    .is_some_and(|source| source.contains('\n')) =>
            {
                Layout::Folded
            }
            ScalarStyle::Plain => Layout::Line { skip: 0 },
            // An escape before the place would shift it; then only the start is certain.
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => {
                let escape = if style == ScalarStyle::DoubleQuoted {
                    '\\'
                } else {
                    '\''
                };
                let source = span.slice(self.text).unwrap_or_default();
                let quotes = 1..source.len().saturating_sub(1);
                let inner = source.get(quotes).unwrap_or_default();
                if inner.contains([escape, '\n']) {
                    Layout::Folded
                } else {
                    Layout::Line { skip: 1 }
                }
            }
            ScalarStyle::Literal => Layout::Block,
            ScalarStyle::Folded => Layout::Folded,
        }
    }
}

fn position(span: &Span) -> Position {
    Position {
        line: span.start.line(),
        column: span.start.col() + 1,
    }
}

fn refused(span: &Span, what: &str) -> Located {
    (
        position(span),
        Problem::Syntax {
            message: format!("the file can't have {what}"),
        },
    )
}

fn plain_node(span: &Span, anchor: usize, tag: bool) -> Result<()> {
    if anchor != 0 {
        return Err(refused(span, "an anchor; write the value where it is used"));
    }
    if tag {
        return Err(refused(span, "a tag"));
    }
    Ok(())
}

/// A scalar without quotes, by the core schema of YAML 1.2.
fn plain(span: &Span, text: &str) -> Result<Content> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Content::Null),
        "true" | "True" | "TRUE" => return Ok(Content::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Content::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned.to_ascii_lowercase().as_str(), ".inf" | ".nan") {
        return Err(refused(
            span,
            "a number that JSON does not have; quote it if it is a text",
        ));
    }
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.contains(|c: char| c.is_ascii_digit())
        || unsigned.parse::<f64>().is_err()
    {
        return Ok(Content::Text(text.to_owned()));
    }
    let digits = unsigned.split(['.', 'e', 'E']).next().unwrap_or_default();
    if 1 < digits.len() && digits.starts_with('0') {
        return Err(refused(
            span,
            "a number with leading zeros; quote it if it is a text",
        ));
    }
    number(text.trim_start_matches('+')).map_or_else(
        || {
            Err(refused(
                span,
                "a number that a double does not hold exactly; quote it",
            ))
        },
        |number| Ok(Content::Number(number)),
    )
}

fn number(text: &str) -> Option<Number> {
    let is_integer = !text.contains(['.', 'e', 'E']);
    if is_integer {
        return match json::parse(text.as_bytes()).ok()? {
            Value::Number(number) => Some(number),
            _ => None,
        };
    }
    match crate::definition::value::number(text.parse().ok()?) {
        Value::Number(number) => Some(number),
        _ => None,
    }
}
