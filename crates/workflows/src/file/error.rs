//! What can be wrong with a workflow file: where, what, and the way out.

use std::path::PathBuf;

use super::tree::Position;
use crate::definition::DefinitionError;

/// Why a workflow file was refused.
///
/// ```
/// use holdpoint_workflows::file;
///
/// let text = "name: hello\nstartat: greet\n";
/// let error = file::parse("/work/hello.workflow.yaml", text).unwrap_err();
/// assert_eq!((error.position.line, error.position.column), (2, 1));
/// assert!(error.to_string().starts_with("/work/hello.workflow.yaml:2:1: "));
/// ```
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}:{position}: {problem}", path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// The place in it.
    pub position: Position,
    /// What is wrong there.
    pub problem: Problem,
}

impl FileError {
    /// The code of the check that failed, if it is one of the workflows reference.
    pub fn code(&self) -> Option<&'static str> {
        match &self.problem {
            Problem::Definition(error) => Some(error.code()),
            Problem::Shape { code, .. } => Some(code),
            Problem::Included(error) => error.code(),
            Problem::Read { .. }
            | Problem::Suffix
            | Problem::Syntax { .. }
            | Problem::DuplicateKey { .. }
            | Problem::UnknownField { .. }
            | Problem::Expression { .. } => None,
        }
    }
}

/// What is wrong at a place of a workflow file.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file can't be read.
    #[error("can't be read: {message}")]
    Read {
        /// The error of the system.
        message: String,
    },
    /// The name of the file does not say its syntax.
    #[error("is no workflow file by its name; call it NAME.workflow.yaml or NAME.workflow.json")]
    Suffix,
    /// The text is not YAML or JSON, or has a construct that workflow files do not take.
    #[error("{message}")]
    Syntax {
        /// What is wrong.
        message: String,
    },
    /// An object has the same key twice.
    #[error("key {key:?} is there twice, first at {first}; keep one of the two")]
    DuplicateKey {
        /// The key.
        key: String,
        /// The place of the first one.
        first: Position,
    },
    /// An object has a member that the format does not know.
    #[error(
        "unknown field {field:?}{}; {}",
        meant.as_ref().map(|meant| format!(", did you mean {meant:?}?")).unwrap_or_default(),
        allowed_words(allowed)
    )]
    UnknownField {
        /// The member.
        field: String,
        /// All that the object may have.
        allowed: Vec<String>,
        /// The one that was probably meant.
        meant: Option<String>,
    },
    /// A value has the wrong shape.
    #[error("Invalid workflow definition: {message}")]
    Shape {
        /// The code of the check.
        code: &'static str,
        /// What is wrong, and what is expected.
        message: String,
    },
    /// An expression can't be compiled.
    #[error("expression: {message}")]
    Expression {
        /// What is wrong with it.
        message: String,
    },
    /// A file that this one includes has a mistake. Who reads a file gets the error of that file itself.
    #[error("{0}")]
    Included(Box<FileError>),
    /// The parts are well formed but make no definition.
    #[error("{0}")]
    Definition(DefinitionError),
}

fn allowed_words(allowed: &[String]) -> String {
    if allowed.is_empty() {
        "there are no fields here".to_owned()
    } else {
        format!("allowed are {}", allowed.join(", "))
    }
}

/// The name that was probably meant: the nearest one, at most two edits away.
pub(super) fn did_you_mean(given: &str, allowed: &[String]) -> Option<String> {
    let given = given.to_lowercase();
    allowed
        .iter()
        .map(|name| (distance(&given, &name.to_lowercase()), name))
        .filter(|(distance, name)| *distance <= 2 && *distance < name.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.clone())
}

/// Edits between two words: insert, delete, replace (Levenshtein), row by row.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, a) in a.chars().enumerate() {
        let mut next = vec![i + 1];
        for (j, (b, pair)) in b.iter().zip(row.windows(2)).enumerate() {
            let [diagonal, above] = pair else { continue };
            let left = next.get(j).copied().unwrap_or(usize::MAX);
            let replaced = diagonal + usize::from(a != *b);
            next.push(replaced.min(above + 1).min(left.saturating_add(1)));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}
