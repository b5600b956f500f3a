//! A document as a tree in which every value knows its line and column.
//!
//! Not here: syntax (`yaml`), what the values mean (`format`).

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Number, Value};

/// How deep a document may nest.
pub(super) const DEPTH_MAX: usize = 64;

/// A place in a file, both from 1; the column counts characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The number of a value in its tree.
pub(super) type NodeIndex = usize;

/// All values of a document; the last one is the document itself.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Values that the reader of the document passes over: they are for others.
    hidden: BTreeSet<NodeIndex>,
}

/// One value of a document.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) content: Content,
    /// Where the characters of a text stand in the file.
    pub(super) layout: Layout,
}

/// How the characters of a text are laid out from its position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// In one run, after so many columns for a quote.
    Line { skip: usize },
    /// As a literal block: on its line and those after it, each indented as the first.
    Block,
    /// In a way that characters can't be found by counting.
    Folded,
}

#[derive(Debug)]
pub(super) enum Content {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<NodeIndex>),
    Map(Vec<(Key, NodeIndex)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) at: Position,
    pub(super) name: String,
}

impl Tree {
    pub(super) fn push(&mut self, node: Node) -> NodeIndex {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Lets the reader of the document pass over the member with this value.
    pub(super) fn hide(&mut self, index: NodeIndex) {
        self.hidden.insert(index);
    }

    pub(super) fn is_hidden(&self, index: NodeIndex) -> bool {
        self.hidden.contains(&index)
    }

    /// The members of an object, in the order of the file; none of anything else.
    pub(super) fn members(&self, index: NodeIndex) -> Vec<(String, NodeIndex)> {
        match self.node(index).map(|node| &node.content) {
            Some(Content::Map(fields)) => fields
                .iter()
                .map(|(key, value)| (key.name.clone(), *value))
                .collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn root(&self) -> Option<NodeIndex> {
        self.nodes.len().checked_sub(1)
    }

    pub(super) fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(index)
    }

    /// The value as plain JSON.
    pub(super) fn value(&self, index: NodeIndex) -> Value {
        match self.node(index).map(|node| &node.content) {
            None | Some(Content::Null) => Value::Null,
            Some(Content::Bool(flag)) => Value::Bool(*flag),
            Some(Content::Number(number)) => Value::Number(number.clone()),
            Some(Content::Text(text)) => Value::String(text.clone()),
            Some(Content::List(items)) => items.iter().map(|item| self.value(*item)).collect(),
            Some(Content::Map(fields)) => {
                let fields = fields
                    .iter()
                    .map(|(key, value)| (key.name.clone(), self.value(*value)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }

    /// The member of an object, or the item of a list by its number.
    pub(super) fn child(&self, index: NodeIndex, step: &str) -> Option<NodeIndex> {
        match &self.node(index)?.content {
            Content::Map(fields) => fields
                .iter()
                .find(|(key, _)| key.name == step)
                .map(|(_, value)| *value),
            Content::List(items) => items.get(step.parse::<usize>().ok()?).copied(),
            Content::Null | Content::Bool(_) | Content::Number(_) | Content::Text(_) => None,
        }
    }

    /// The place of the deepest value on a path that is there, for errors about what is missing too.
    pub(super) fn locate<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Position {
        let mut at = Position { line: 1, column: 1 };
        let Some(mut index) = self.root() else {
            return at;
        };
        if let Some(node) = self.node(index) {
            at = node.at;
        }
        for step in path {
            let Some(child) = self.child(index, step) else {
                break;
            };
            index = child;
            at = self.node(index).map_or(at, |node| node.at);
        }
        at
    }

    /// The place of a key itself, as against that of its value.
    pub(super) fn locate_key(&self, map: NodeIndex, name: &str) -> Option<Position> {
        match &self.node(map)?.content {
            Content::Map(fields) => fields
                .iter()
                .find(|(key, _)| key.name == name)
                .map(|(key, _)| key.at),
            Content::Null
            | Content::Bool(_)
            | Content::Number(_)
            | Content::Text(_)
            | Content::List(_) => None,
        }
    }

    /// The place of the character `offset` bytes into a text; the start of the text where that
    /// can't be known.
    pub(super) fn locate_in_text(&self, index: NodeIndex, offset: usize) -> Position {
        let Some(node) = self.node(index) else {
            return Position { line: 1, column: 1 };
        };
        let Content::Text(text) = &node.content else {
            return node.at;
        };
        let before = text.get(..offset).unwrap_or(text);
        let (line, column) = match before.rsplit_once('\n') {
            None => (0, before.chars().count()),
            Some((lines, last)) => (lines.matches('\n').count() + 1, last.chars().count()),
        };
        match node.layout {
            Layout::Line { skip } if line == 0 => Position {
                line: node.at.line,
                column: node.at.column + skip + column,
            },
            // The place of a block is that of its first line that is not empty.
            Layout::Block => Position {
                line: node.at.line
                    + line.saturating_sub(text.bytes().take_while(|byte| *byte == b'\n').count()),
                column: node.at.column + column,
            },
            Layout::Line { .. } | Layout::Folded => node.at,
        }
    }
}

impl Content {
    /// What the value is, in words.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Map(_) => "an object",
        }
    }
}
