//! Documents of other kinds than workflows, read by the same strict syntax: every value knows its place.
//!
//! A program that has files of its own reads them with this, so that its people meet one YAML and one kind of error. Not here: what the
//! values mean.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::error::{FileError, Problem};
use super::tree::{Position, Tree};
use super::{json, read, schema, text, yaml};

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2, without what two readers could understand differently.
    Yaml,
    /// JSON.
    Json,
}

impl Syntax {
    /// The syntax of a file: by its ending, and otherwise by how it begins.
    pub fn of(path: &Path, bytes: &[u8]) -> Self {
        let ending = path.extension().and_then(|ending| ending.to_str());
        let begin = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        match ending {
            Some("json") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            _ if begin.is_some_and(|byte| matches!(byte, b'{' | b'[')) => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// One document of a file.
///
/// ```
/// use holdpoint_workflows::file::{Document, Syntax};
///
/// let text = b"kind: lamp\nwatts: 40\n---\nkind: lamp\nwatts: bright\n";
/// let lamps = Document::read_all("lamps.yaml", text, Syntax::Yaml)?;
/// let schema = serde_json::json!({ "properties": { "watts": { "type": "integer" } } });
/// assert_eq!(lamps[0].check(&[], &schema), Ok(()));
/// let error = lamps[1].check(&[], &schema).unwrap_err();
/// assert_eq!(error.to_string(), "lamps.yaml:5:8: /watts must be of type integer, not \"bright\"");
/// # Ok::<(), holdpoint_workflows::file::FileError>(())
/// ```
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    tree: Tree,
}

impl Document {
    /// Reads all documents of a file: several of YAML, one of JSON.
    ///
    /// # Errors
    ///
    /// [`FileError`] with the place of the first mistake.
    pub fn read_all(
        path: impl AsRef<Path>,
        bytes: &[u8],
        syntax: Syntax,
    ) -> Result<Vec<Self>, FileError> {
        let path = path.as_ref();
        let trees = text(bytes).and_then(|text| match syntax {
            Syntax::Yaml => yaml::read_all(text),
            Syntax::Json => Ok(vec![json::read(text)?]),
        });
        let trees = trees.map_err(|(position, problem)| FileError {
            path: path.to_path_buf(),
            position,
            problem,
        })?;
        Ok(trees
            .into_iter()
            .map(|tree| Self {
                path: path.to_path_buf(),
                tree,
            })
            .collect())
    }

    /// The document as plain JSON.
    pub fn value(&self) -> Value {
        self.tree
            .root()
            .map_or(Value::Null, |root| self.tree.value(root))
    }

    /// Reads the document as a type. A member that the type does not know should be an error of it (`deny_unknown_fields`).
    ///
    /// # Errors
    ///
    /// [`FileError`] at the value that does not fit.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, FileError> {
        read::document(&self.tree).map_err(|error| {
            let (position, problem) = error.into_problem(|_| "");
            let problem = match problem {
                Problem::Shape { message, .. } => Problem::Syntax { message },
                other => other,
            };
            FileError {
                path: self.path.clone(),
                position,
                problem,
            }
        })
    }

    /// The place of the value that is reached by these members and item numbers; of the deepest one that is there.
    pub fn position(&self, way: &[&str]) -> Position {
        self.tree.locate(way.iter().copied())
    }

    /// An error about the value that is reached so.
    pub fn error(&self, way: &[&str], message: impl Into<String>) -> FileError {
        FileError {
            path: self.path.clone(),
            position: self.position(way),
            problem: Problem::Syntax {
                message: message.into(),
            },
        }
    }

    /// An error about the value that a JSON Pointer reaches from the value at `way`.
    pub fn error_at(&self, way: &[&str], pointer: &str, message: &str) -> FileError {
        let steps: Vec<String> = pointer
            .split('/')
            .skip(1)
            .map(|step| step.replace("~1", "/").replace("~0", "~"))
            .collect();
        let way: Vec<&str> = way
            .iter()
            .copied()
            .chain(steps.iter().map(String::as_str))
            .collect();
        let what = if pointer.is_empty() {
            "the value"
        } else {
            pointer
        };
        self.error(&way, format!("{what} {message}"))
    }

    /// Checks the value at `way` against a JSON Schema: shapes, without references and patterns. Other keywords say nothing here.
    ///
    /// # Errors
    ///
    /// [`FileError`] at the first value that does not fit.
    pub fn check(&self, way: &[&str], schema: &Value) -> Result<(), FileError> {
        let mut index = self.tree.root();
        for step in way {
            index = index.and_then(|index| self.tree.child(index, step));
        }
        let value = index.map_or(Value::Null, |index| self.tree.value(index));
        match schema::first_problem(schema, &value) {
            None => Ok(()),
            Some((pointer, problem)) => Err(self.error_at(way, &pointer, &problem)),
        }
    }
}
