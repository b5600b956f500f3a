//! Finds what the includes of workflow files name, and reads it.
//!
//! A reference is a path, `builtin:ID` or a name. A path is relative to the file that has it. Who knows names and built-in
//! workflows brings them as [`Names`].
//!
//! Not here: whether what was found can be included (`definition::compose`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{FileError, Problem};
use super::kinds::{FileKind, Kinds};
use super::tree::Position;
use super::{WorkflowFile, is_workflow_file};
use crate::definition::{Definition, IncludeProblem, Library, Referrer, SourceIdentity};

/// What a reference to a built-in workflow begins with.
pub const BUILTIN_PREFIX: &str = "builtin:";

/// How many files may be read inside each other. Each of them is on the stack.
const DEPTH_MAX: usize = 32;

/// What a name leads to.
#[derive(Debug, Clone)]
pub enum Found {
    /// A workflow file.
    File(PathBuf),
    /// A definition that the program has already.
    Definition(Definition, SourceIdentity),
}

/// Knows workflows by their names.
pub trait Names {
    /// The workflow of a name.
    fn named(&self, name: &str) -> Option<Found>;

    /// The built-in workflow of an id.
    fn builtin(&self, id: &str) -> Option<Found>;

    /// All names, sorted, for an error that says what there is.
    fn all_names(&self) -> Vec<String>;

    /// All ids of built-in workflows, sorted.
    fn all_builtins(&self) -> Vec<String>;

    /// The node kinds of other crates.
    fn all_kinds(&self) -> Vec<Arc<dyn FileKind>> {
        Vec::new()
    }
}

/// Knows no names: files can include files only.
pub(super) struct NoNames;

impl Names for NoNames {
    fn named(&self, _name: &str) -> Option<Found> {
        None
    }

    fn builtin(&self, _id: &str) -> Option<Found> {
        None
    }

    fn all_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn all_builtins(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Why a reference gives no workflow.
pub(super) enum LoadError {
    /// The reference is wrong.
    Reference(IncludeProblem),
    /// The file that it names has a mistake of its own.
    File(Box<FileError>),
}

/// Reads files, each once, and knows which are being read.
pub(crate) struct Loader<'n> {
    names: &'n dyn Names,
    /// The files that are being read, outermost first, with the names of their workflows.
    open: RefCell<Vec<(PathBuf, String)>>,
    known: RefCell<BTreeMap<PathBuf, (Definition, SourceIdentity)>>,
}

impl<'n> Loader<'n> {
    pub(crate) fn new(names: &'n dyn Names) -> Self {
        Self {
            names,
            open: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Begins to read a file whose workflow has this name; while the guard lives, including it again is a cycle.
    pub(super) fn open(&self, path: &Path, workflow: &str) -> Opened<'_> {
        self.open
            .borrow_mut()
            .push((key(path), workflow.to_owned()));
        Opened { open: &self.open }
    }

    /// The node kinds of other crates, by key.
    pub(super) fn kinds(&self) -> Kinds {
        let kinds = self.names.all_kinds().into_iter();
        kinds.map(|kind| (kind.key().to_owned(), kind)).collect()
    }

    pub(super) fn load(
        &self,
        reference: &str,
        referrer: &Referrer<'_>,
    ) -> Result<(Definition, SourceIdentity), LoadError> {
        let found = if let Some(id) = reference.strip_prefix(BUILTIN_PREFIX) {
            let unknown = || IncludeProblem::UnknownBuiltin {
                id: id.to_owned(),
                available: self.names.all_builtins(),
            };
            self.names.builtin(id).ok_or_else(unknown)
        } else if is_path(reference) {
            path_of(reference, referrer).map(Found::File)
        } else {
            let unknown = || IncludeProblem::UnknownWorkflow {
                reference: reference.to_owned(),
                available: self.names.all_names(),
            };
            self.names.named(reference).ok_or_else(unknown)
        };
        match found.map_err(LoadError::Reference)? {
            Found::Definition(definition, source) => Ok((definition, source)),
            Found::File(path) => self.file(reference, &path),
        }
    }

    fn file(
        &self,
        reference: &str,
        path: &Path,
    ) -> Result<(Definition, SourceIdentity), LoadError> {
        let refuse = |problem| Err(LoadError::Reference(problem));
        let unresolved = |problem: String| IncludeProblem::Unresolved {
            reference: reference.to_owned(),
            problem,
        };
        let key = key(path);
        if let Some(known) = self.known.borrow().get(&key) {
            return Ok(known.clone());
        }
        {
            let open = self.open.borrow();
            if let Some(at) = open.iter().position(|(path, _)| *path == key) {
                let names = open.iter().skip(at).map(|(_, name)| name.clone());
                let again = open.get(at).map(|(_, name)| name.clone());
                return refuse(IncludeProblem::Cycle {
                    chain: names.chain(again).collect(),
                });
            }
            if DEPTH_MAX <= open.len() {
                return refuse(unresolved(format!(
                    "more than {DEPTH_MAX} workflow files include each other"
                )));
            }
        }
        if !is_workflow_file(path) {
            return refuse(IncludeProblem::NoWorkflow {
                reference: reference.to_owned(),
                problem: Problem::Suffix.to_string(),
            });
        }
        match super::read_by(&key, self) {
            Ok(WorkflowFile {
                definition, source, ..
            }) => {
                let read = (definition, source);
                self.known.borrow_mut().insert(key, read.clone());
                Ok(read)
            }
            Err(FileError {
                path: at,
                problem: Problem::Read { message },
                ..
            }) if at == key => refuse(unresolved(message)),
            Err(error) => Err(LoadError::File(Box::new(error))),
        }
    }
}

impl Library for Loader<'_> {
    fn resolve(
        &self,
        reference: &str,
        referrer: &Referrer<'_>,
    ) -> Result<(Definition, SourceIdentity), IncludeProblem> {
        self.load(reference, referrer).map_err(|error| match error {
            LoadError::Reference(problem) => problem,
            LoadError::File(error) => IncludeProblem::NoWorkflow {
                reference: reference.to_owned(),
                problem: error.to_string(),
            },
        })
    }
}

/// A file that is being read.
pub(super) struct Opened<'o> {
    open: &'o RefCell<Vec<(PathBuf, String)>>,
}

impl Drop for Opened<'_> {
    fn drop(&mut self) {
        self.open.borrow_mut().pop();
    }
}

/// One file has one path, by whatever path it is named: links and `..` are followed, so that what a run stores of it does not depend
/// on who named it first.
fn key(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

fn is_path(reference: &str) -> bool {
    reference.contains('/') || is_workflow_file(Path::new(reference))
}

/// The absolute path of a reference: a relative one begins where the file is that has it.
fn path_of(reference: &str, referrer: &Referrer<'_>) -> Result<PathBuf, IncludeProblem> {
    let path = Path::new(reference);
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    let directory = match referrer.source {
        Some(SourceIdentity::File { path, .. }) => Path::new(path).parent(),
        Some(SourceIdentity::Builtin { .. } | SourceIdentity::Inline { .. }) | None => None,
    };
    match directory {
        Some(directory) => Ok(directory.join(path)),
        None => Err(IncludeProblem::RelativeReference {
            workflow: referrer.workflow.to_owned(),
            reference: reference.to_owned(),
        }),
    }
}

/// The place of a file that could not be read at all.
pub(super) const START: Position = Position { line: 1, column: 1 };
