//! Workflow files: `NAME.workflow.yaml` and `NAME.workflow.json`, read into a [`Definition`].
//!
//! The file says everything: there are no functions, so what a node does is a value, an expression in
//! jq or a command. Two rules keep it readable by people who did not write it:
//!
//! - **Text is text, `{ jq: … }` is an expression.** No text is searched for something to replace.
//! - **A command is a list of arguments.** No shell reads it, so no value can become a command.
//!
//! ```yaml
//! name: hello
//! input:
//!   fields:
//!     who: { type: string, default: world }
//! startAt: log
//! nodes:
//!   log:
//!     shell:
//!       argv: [git, log, -1, --format=%s]
//!       parse: { jq: '.stdout | rtrimstr("\n")' }
//!       effect: { type: git.log, recovery: idempotent }
//!   greet:
//!     compute: { jq: '"Hello \($input.who), the last commit is: \($outputs.log)"' }
//! edges:
//!   - { from: log, to: greet }
//! ```
//!
//! # What an expression sees
//!
//! | Name | Value |
//! |---|---|
//! | `$input` | the input of the workflow, as it was normalised and stored |
//! | `$outputs` | the latest output of each node whose latest visit ended `ok`, by node id |
//! | `$results` | the latest result record of each node: `outcome`, `output`, `error`, `durationMs`, …, and `receipt` of a decision |
//! | `$run` | `{runId, nodeId, visit, attemptId}` and, in an action, `effectId` |
//! | `$settings` | the live settings as they were when the attempt began; null when the workflow has none |
//! | `.` | `{input, outputs, results, run, settings}`; in `parse` what the command gave: `{stdout, stderr, exitCode, …}`; in `title` and `normalize` the input |
//!
//! An expression gives exactly one value. It is pure: the filters `now`, `env`, `input`, `debug` and their
//! like do not exist. Its steps, the size and depth of its values and its time are limited
//! (`expression`). The dialect is that of [jaq](https://github.com/01mf02/jaq); for one, `.a = 1` does not
//! make an object of `null`.
//!
//! # Other files
//!
//! `includes` names workflows that are parts of this one, by a path relative to the file, by `builtin:ID` or by a name; they are read
//! with it (`library`). Inside them, all of the above is theirs.
//!
//! # Node kinds of other crates
//!
//! A [`FileKind`] that a program registered is a member of a node as those of this crate are, with its own value; the JSON Schema that the
//! program publishes has it too.
//!
//! # Identity
//!
//! The source identity of a file is its absolute path and the SHA-256 of its bytes. The digest of the
//! definition covers, for a file, all that decides behaviour: expressions and literals too
//! (`declared` in the snapshot), but not comments, titles, summaries and details.
//!
//! Not here: finding files by name, rows, running anything.

mod builtin;
mod compile;
mod document;
mod error;
mod expression;
mod format;
mod json;
mod kinds;
mod library;
mod read;
mod schema;
mod tree;
mod yaml;

#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

pub use document::{Document, Syntax};
pub use error::{FileError, Problem};
pub use expression::{
    DEPTH_MAX, Environment, EvaluationError, Expression, ExpressionError, SIZE_MAX, STEPS_MAX,
    TEXT_MAX_BYTES, TIME_MAX,
};
pub(crate) use kinds::Kinds;
pub use kinds::{FileKind, KindError, KindNode, KindValue, Template, Templated};
pub(crate) use library::Loader;
pub use library::{BUILTIN_PREFIX, Found, Names};
pub use tree::Position;

use crate::definition::{Definition, SourceIdentity};

/// How large a workflow file may be.
pub const FILE_MAX_BYTES: u64 = 1024 * 1024;

/// The endings of workflow files.
pub const SUFFIXES: [&str; 3] = [".workflow.yaml", ".workflow.yml", ".workflow.json"];

/// A workflow file that has been read and checked.
#[derive(Debug, Clone)]
pub struct WorkflowFile {
    /// The definition.
    pub definition: Definition,
    /// The identity of the file: absolute path and SHA-256 of its bytes.
    pub source: SourceIdentity,
    /// The absolute path.
    pub path: PathBuf,
}

/// Whether the name of a path is that of a workflow file.
pub fn is_workflow_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    SUFFIXES
        .iter()
        .any(|suffix| name.len() > suffix.len() && name.ends_with(suffix))
}

/// Reads a workflow file, with the files that it includes.
///
/// # Errors
///
/// [`FileError`] with the place of the first mistake, in this file or in one that it includes.
pub fn read(path: impl AsRef<Path>) -> Result<WorkflowFile, FileError> {
    read_with(path, &library::NoNames)
}

/// Reads a workflow file that may include workflows by their names too.
///
/// # Errors
///
/// As [`read`].
pub fn read_with(path: impl AsRef<Path>, names: &dyn Names) -> Result<WorkflowFile, FileError> {
    read_by(path.as_ref(), &Loader::new(names))
}

/// The bytes of a workflow file, or why it gives none.
///
/// It is asked what it is before it is opened, since opening a pipe waits for its writer; and never more is read than a file may
/// have, since what is there may grow, or never end.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let found = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !found.is_file() {
        return Err("it is no ordinary file".to_owned());
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(FILE_MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| error.to_string())?;
    if FILE_MAX_BYTES < bytes.len() as u64 {
        return Err("it is larger than 1 MiB".to_owned());
    }
    Ok(bytes)
}

fn read_by(given: &Path, loader: &Loader<'_>) -> Result<WorkflowFile, FileError> {
    let failed = |message: String| FileError {
        path: given.to_path_buf(),
        position: library::START,
        problem: Problem::Read { message },
    };
    let bytes = bytes(given).map_err(failed)?;
    let path = std::path::absolute(given).map_err(|error| failed(error.to_string()))?;
    if path.to_str().is_none() {
        // It is kept as text, and a run could never find its file again.
        return Err(failed(
            "its path is not UTF-8; rename what has that name".to_owned(),
        ));
    }
    let source = identity(&path, &bytes);
    let definition = parse_bytes(given, &bytes, loader, Some(&source))?;
    Ok(WorkflowFile {
        definition,
        source,
        path,
    })
}

/// Reads the text of a workflow file; the name of `path` says its syntax. It is in no directory, so it includes nothing by a relative
/// path.
///
/// # Errors
///
/// [`FileError`] with the place of the first mistake.
pub fn parse(path: impl AsRef<Path>, text: &str) -> Result<Definition, FileError> {
    let loader = Loader::new(&library::NoNames);
    parse_bytes(path.as_ref(), text.as_bytes(), &loader, None)
}

/// The identity that a file with these bytes has: what a run keeps, and what a resume compares.
pub fn identity(absolute_path: &Path, bytes: &[u8]) -> SourceIdentity {
    SourceIdentity::File {
        path: absolute_path.to_string_lossy().into_owned(),
        sha256: builtin::hex(&Sha256::digest(bytes)),
    }
}

fn parse_bytes(
    path: &Path,
    bytes: &[u8],
    loader: &Loader<'_>,
    source: Option<&SourceIdentity>,
) -> Result<Definition, FileError> {
    definition(path, bytes, loader, source).map_err(|(position, problem)| match problem {
        Problem::Included(error) => *error,
        problem => FileError {
            path: path.to_path_buf(),
            position,
            problem,
        },
    })
}

fn definition(
    path: &Path,
    bytes: &[u8],
    loader: &Loader<'_>,
    source: Option<&SourceIdentity>,
) -> Result<Definition, (Position, Problem)> {
    let start = library::START;
    if !is_workflow_file(path) {
        return Err((start, Problem::Suffix));
    }
    let text = text(bytes)?;
    let is_json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let mut tree = if is_json {
        json::read(text)?
    } else {
        yaml::read(text)?
    };
    let kinds = loader.kinds();
    let of_kinds = kinds::set_apart(&mut tree, &kinds);
    let document: format::WorkflowDocument = read::document(&tree).map_err(|error| {
        let (at, problem) = error.into_problem(code);
        (at, kinds::with_keys(problem, &kinds))
    })?;
    let _open = loader.open(path, &document.name);
    compile::definition(&tree, document, (&kinds, of_kinds), loader, source)
}

/// The bytes of a file as text.
fn text(bytes: &[u8]) -> Result<&str, (Position, Problem)> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let before = String::from_utf8_lossy(before);
        let last = before.rsplit('\n').next().unwrap_or_default();
        let position = Position {
            line: before.matches('\n').count() + 1,
            column: last.chars().count() + 1,
        };
        (
            position,
            Problem::Syntax {
                message: "the text is not UTF-8".to_owned(),
            },
        )
    })
}

/// The JSON Schema (draft 2020-12) of workflow files, with the node kinds of this crate.
/// [`Registry::json_schema`](crate::Registry::json_schema) has those that a program registered too.
///
/// It describes the shape; that routes lead to nodes, that nodes can be reached and that expressions compile is checked when a file is
/// read.
pub fn json_schema() -> serde_json::Value {
    format::json_schema()
}

/// The same with the node kinds of other crates.
pub(crate) fn json_schema_with(kinds: &Kinds) -> serde_json::Value {
    kinds::with_kinds(format::json_schema(), kinds)
}

/// The check of the workflows reference, section 2.3, that a value of the wrong type breaks.
fn code(path: &[String]) -> &'static str {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["name", ..] => "V2",
        ["contractId", ..] => "V5",
        ["input", ..] => "V6",
        ["settings", ..] => "V7",
        ["title", ..] => "V8",
        ["startAt", ..] => "V9",
        ["maxSteps", ..] => "V10",
        ["nodes"] => "V11",
        ["nodes", _, "timeoutMs", ..] => "V16",
        ["nodes", _, "statusDetail", ..] => "V17",
        ["nodes", _, "compute" | "settingsRoute", ..] => "V21",
        ["nodes", _, "shell", "parse", ..] => "V24",
        ["nodes", _, "shell" | "writeFile" | "readFile", "effect", ..] => "V26",
        ["nodes", _, "shell" | "writeFile" | "readFile", ..] => "V23",
        ["nodes", _, "agent" | "assistantMessage", "prompt", ..] => "V18",
        ["nodes", _, "agent", "validate", ..] => "V20",
        ["nodes", _, "agent" | "assistantMessage", ..] => "V19",
        ["nodes", _, "notify", ..] => "V22",
        ["nodes", _, "checkpoint", ..] => "V27",
        ["nodes", ..] => "V15",
        ["includes", ..] => "V31",
        ["exits", ..] => "V32",
        ["edges", _, "switch", "on", ..] => "V34",
        ["edges", _, "switch", ..] => "V35",
        ["edges", ..] => "V33",
        _ => "V1",
    }
}
