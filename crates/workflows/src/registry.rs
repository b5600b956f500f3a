//! Where the code of a run comes from: the definitions that this program knows, and the files that runs were started from.
//!
//! A run is executed only on a definition with the digest that it was pinned to. The digest covers what decides behaviour; a file
//! that changed in what is only displayed is still the same definition. Not here: what happens with a run whose definition is
//! gone or changed (`engine`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use holdpoint_state::Digest;
use serde_json::Value;

use crate::definition::{Definition, IncludeProblem, Library, Referrer, SourceIdentity};
use crate::file::{self, FileError, FileKind, Found, Kinds, Names, WorkflowFile};

/// How many differences between two definitions are told.
const DIFFERENCES_MAX: usize = 20;

/// Why a source gives no definition for a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// This program does not know the source at all; another one may.
    #[error("this program does not know {reference:?}")]
    Unknown {
        /// The source's reference.
        reference: String,
    },
    /// The source gives another definition now, or can't be read any more.
    #[error("{detail}")]
    Changed {
        /// What is there now.
        detail: String,
        /// The definition that it gives, if it gives one.
        digest: Option<Digest>,
    },
    /// The source is unchanged and still gives no definition.
    #[error("{error}")]
    LoadFailed {
        /// Why.
        error: String,
    },
}

/// Finds code by the identity that a run stored. The [`Registry`] is one; a program that keeps definitions elsewhere brings its
/// own.
pub trait SourceResolver: Send + Sync {
    /// The definition of a source, which must have this digest.
    ///
    /// # Errors
    ///
    /// [`Unresolved`] says whether the run waits, is parked, or fails.
    fn resolve(&self, source: &SourceIdentity, digest: Digest) -> Result<Definition, Unresolved>;

    /// The definition that a source gives now, whatever its digest.
    ///
    /// # Errors
    ///
    /// As [`SourceResolver::resolve`].
    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved>;
}

/// The definitions that a program registered, and workflow files read from disk each time.
#[derive(Debug, Default)]
pub struct Registry {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    /// By name; all versions that were registered, the latest last.
    inline: BTreeMap<String, Vec<Definition>>,
    /// By id, with the revision.
    builtin: BTreeMap<String, (String, Definition)>,
    /// Where workflow files are looked for by name.
    directories: Vec<PathBuf>,
    /// Node kinds of other crates, by their key.
    kinds: Kinds,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<&String> = self.kinds.keys().collect();
        formatter
            .debug_struct("Known")
            .field("inline", &self.inline)
            .field("builtin", &self.builtin)
            .field("directories", &self.directories)
            .field("kinds", &kinds)
            .finish()
    }
}

impl Registry {
    /// Makes a definition that the program built known by its name. Earlier ones of the name stay, for runs that are pinned to
    /// them.
    pub fn register(&self, definition: &Definition) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let versions = known
            .inline
            .entry(definition.name().to_owned())
            .or_default();
        versions.retain(|version| version.digest() != definition.digest());
        versions.push(definition.clone());
    }

    /// Makes a built-in definition known by its id and revision.
    pub fn register_builtin(&self, id: &str, revision: &str, definition: &Definition) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known
            .builtin
            .insert(id.to_owned(), (revision.to_owned(), definition.clone()));
    }

    /// Makes a node kind of another crate known to workflow files. A key that is registered already is given to this one.
    pub fn register_kind(&self, kind: Arc<dyn FileKind>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.kinds.insert(kind.key().to_owned(), kind);
    }

    /// The JSON Schema (draft 2020-12) of the workflow files that this program reads, with the node kinds that were registered.
    pub fn json_schema(&self) -> Value {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        file::json_schema_with(&known.kinds)
    }

    /// Looks for workflow files by name in these directories, in this order, before registered and built-in workflows.
    pub fn search(&self, directories: Vec<PathBuf>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.directories = directories;
    }

    /// The workflow file of a name in the directories that are searched.
    pub fn file_named(&self, name: &str) -> Option<PathBuf> {
        // A name is no path: it leads nowhere else.
        if name.contains(['/', '\\', '\0']) {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .directories
            .iter()
            .flat_map(|place| {
                file::SUFFIXES
                    .iter()
                    .map(move |suffix| place.join(format!("{name}{suffix}")))
            })
            .find(|path| path.is_file())
    }

    /// Reads a workflow file, which may include what the registry knows.
    ///
    /// # Errors
    ///
    /// Those of [`file::read`].
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<WorkflowFile, FileError> {
        file::read_with(path, self)
    }

    /// The workflow of a reference, as a program's command line or another domain has it: the path of a file, `builtin:ID`, or a name.
    ///
    /// # Errors
    ///
    /// [`IncludeProblem`] says what is wrong with the reference, or with what it names.
    pub fn find(&self, reference: &str) -> Result<(Definition, SourceIdentity), IncludeProblem> {
        let referrer = Referrer {
            workflow: reference,
            source: None,
        };
        Library::resolve(self, reference, &referrer)
    }

    /// The latest registered definition of a name.
    pub fn named(&self, name: &str) -> Option<Definition> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .inline
            .get(name)
            .and_then(|versions| versions.last().cloned())
            .or_else(|| {
                known
                    .builtin
                    .get(name)
                    .map(|(_, definition)| definition.clone())
            })
    }

    /// All registered names.
    pub fn names(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known
            .inline
            .keys()
            .chain(known.builtin.keys())
            .cloned()
            .collect()
    }

    /// The names of the files in the directories that are searched.
    fn file_names(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let entries = known
            .directories
            .iter()
            .filter_map(|place| std::fs::read_dir(place).ok())
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let stem = file::SUFFIXES
                    .iter()
                    .find_map(|suffix| name.strip_suffix(suffix))?;
                (!stem.is_empty()).then(|| stem.to_owned())
            })
            .collect()
    }

    fn version(&self, name: &str, digest: Digest) -> Option<Definition> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let versions = known.inline.get(name)?;
        versions
            .iter()
            .find(|version| version.digest() == digest.0)
            .cloned()
    }
}

impl Names for Registry {
    fn named(&self, name: &str) -> Option<Found> {
        if let Some(path) = self.file_named(name) {
            return Some(Found::File(path));
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let registered = known.inline.get(name).and_then(|versions| versions.last());
        match registered {
            Some(definition) => Some(Found::Definition(
                definition.clone(),
                definition.source_identity(),
            )),
            None => built_in(&known, name),
        }
    }

    fn builtin(&self, id: &str) -> Option<Found> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        built_in(&known, id)
    }

    fn all_names(&self) -> Vec<String> {
        let mut names = self.names();
        names.extend(self.file_names());
        names.sort();
        names.dedup();
        names
    }

    fn all_builtins(&self) -> Vec<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.builtin.keys().cloned().collect()
    }

    fn all_kinds(&self) -> Vec<Arc<dyn FileKind>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.kinds.values().cloned().collect()
    }
}

fn built_in(known: &Known, id: &str) -> Option<Found> {
    let (revision, definition) = known.builtin.get(id)?;
    let source = SourceIdentity::Builtin {
        id: id.to_owned(),
        revision: revision.clone(),
    };
    Some(Found::Definition(definition.clone(), source))
}

/// A workflow that a program builds may include what the registry knows by name.
impl Library for Registry {
    fn resolve(
        &self,
        reference: &str,
        referrer: &Referrer<'_>,
    ) -> Result<(Definition, SourceIdentity), IncludeProblem> {
        file::Loader::new(self).resolve(reference, referrer)
    }
}

impl SourceResolver for Registry {
    fn resolve(&self, source: &SourceIdentity, digest: Digest) -> Result<Definition, Unresolved> {
        if let SourceIdentity::Inline { name, .. } = source
            && let Some(definition) = self.version(name, digest)
        {
            return Ok(definition);
        }
        let (definition, present) = self.present(source)?;
        if definition.digest() == digest.0 {
            if is_same_source(source, &present) {
                return Ok(definition);
            }
            return Err(Unresolved::Changed {
                detail: format!(
                    "the workflow came from {} and comes from {} now",
                    described(source),
                    described(&present)
                ),
                digest: Some(digest),
            });
        }
        Err(Unresolved::Changed {
            detail: format!(
                "{} gives definition {} now, and the run is pinned to sha256:{digest}",
                source.reference(),
                definition.digest_text(),
            ),
            digest: Some(Digest(definition.digest())),
        })
    }

    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved> {
        let unknown = || Unresolved::Unknown {
            reference: source.reference(),
        };
        match source {
            SourceIdentity::Inline { name, .. } => {
                let definition = self.named(name).ok_or_else(unknown)?;
                let source = SourceIdentity::inline(&definition);
                Ok((definition, source))
            }
            SourceIdentity::Builtin { id, .. } => {
                let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
                let (revision, definition) = known.builtin.get(id).ok_or_else(unknown)?;
                let source = SourceIdentity::Builtin {
                    id: id.clone(),
                    revision: revision.clone(),
                };
                Ok((definition.clone(), source))
            }
            SourceIdentity::File { path, sha256 } => read_file(self, Path::new(path), sha256),
        }
    }
}

fn read_file(
    registry: &Registry,
    path: &Path,
    sha256: &str,
) -> Result<(Definition, SourceIdentity), Unresolved> {
    match registry.read_file(path) {
        Ok(read) => Ok((read.definition, read.source)),
        Err(error) => {
            // The same bytes that gave a definition once and give none now are a fault of this program, not an edit.
            let saved = SourceIdentity::File {
                path: path.to_string_lossy().into_owned(),
                sha256: sha256.to_owned(),
            };
            Err(if is_edited(&saved) {
                Unresolved::Changed {
                    detail: error.to_string(),
                    digest: None,
                }
            } else {
                Unresolved::LoadFailed {
                    error: error.to_string(),
                }
            })
        }
    }
}

/// Compares what a resolver gave with the sources of the included workflows that the run stored.
///
/// The digest of a definition covers what it includes, so that an edited mount is another definition already. What remains is a
/// built-in workflow of another revision, whose functions no digest covers; a mount whose workflow comes from elsewhere now; and a
/// mounted file that gives no workflow any more, which is a change of the source and no fault of this program.
pub(crate) fn compare_mounts(
    resolved: Result<Definition, Unresolved>,
    saved: &[(String, SourceIdentity)],
) -> Result<Definition, Unresolved> {
    let changed = |detail: String| Unresolved::Changed {
        detail,
        digest: None,
    };
    match resolved {
        Ok(definition) => {
            let present = definition
                .mounts()
                .iter()
                .map(|(path, mount)| (path.as_str(), &mount.source));
            let saved = saved.iter().map(|(path, source)| (path.as_str(), source));
            for (saved, present) in saved.zip(present) {
                let (path, source) = saved;
                if path != present.0 || !is_same_source(source, present.1) {
                    return Err(changed(format!(
                        "the workflow at {path:?} came from {} and comes from {} now",
                        described(source),
                        described(present.1)
                    )));
                }
            }
            Ok(definition)
        }
        Err(Unresolved::LoadFailed { error }) => {
            let edited = saved.iter().find(|(_, source)| is_edited(source));
            Err(match edited {
                Some((path, source)) => changed(format!(
                    "the workflow at {path:?} of {} was changed: {error}",
                    source.reference()
                )),
                None => Unresolved::LoadFailed { error },
            })
        }
        Err(other) => Err(other),
    }
}

/// Whether two identities name one source. What is in a file is for the digest to say, so that an edit of what is only displayed is
/// no change; a built-in workflow has its revision for that.
fn is_same_source(saved: &SourceIdentity, present: &SourceIdentity) -> bool {
    saved.source_type() == present.source_type()
        && saved.reference() == present.reference()
        && match saved {
            SourceIdentity::Builtin { revision, .. } => revision == present.revision(),
            SourceIdentity::File { .. } | SourceIdentity::Inline { .. } => true,
        }
}

fn described(source: &SourceIdentity) -> String {
    match source {
        SourceIdentity::Builtin { id, revision } => format!("builtin:{id} of revision {revision}"),
        SourceIdentity::File { path, .. } => path.clone(),
        SourceIdentity::Inline { name, .. } => format!("the program, as {name:?}"),
    }
}

/// Whether the bytes of a file are no longer those of the identity.
fn is_edited(source: &SourceIdentity) -> bool {
    match source {
        SourceIdentity::File { path, sha256 } => {
            !file::bytes(Path::new(path)).is_ok_and(|bytes| Digest::of(&bytes).to_hex() == *sha256)
        }
        SourceIdentity::Builtin { .. } | SourceIdentity::Inline { .. } => false,
    }
}

/// In what two definition snapshots differ, as JSON pointers with both values cut short. Empty when they are equal.
pub fn differences(saved: &Value, present: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", saved, present, &mut found);
    if DIFFERENCES_MAX < found.len() {
        let more = found.len() - DIFFERENCES_MAX;
        found.truncate(DIFFERENCES_MAX);
        found.push(format!("and {more} more"));
    }
    found
}

fn compare(at: &str, saved: &Value, present: &Value, found: &mut Vec<String>) {
    match (saved, present) {
        (Value::Object(saved), Value::Object(present)) => {
            for (key, value) in saved {
                let at = format!("{at}/{key}");
                match present.get(key) {
                    Some(other) => compare(&at, value, other, found),
                    None => found.push(format!("{at} is gone")),
                }
            }
            for key in present.keys().filter(|key| !saved.contains_key(*key)) {
                found.push(format!("{at}/{key} is new"));
            }
        }
        (Value::Array(saved), Value::Array(present)) if saved.len() == present.len() => {
            for (index, (value, other)) in saved.iter().zip(present).enumerate() {
                compare(&format!("{at}/{index}"), value, other, found);
            }
        }
        (saved, present) if saved == present => {}
        (saved, present) => {
            found.push(format!(
                "{at} was {} and is {}",
                short(saved),
                short(present)
            ));
        }
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        None => text,
        Some(_) => text.chars().take(80).chain(['…']).collect(),
    }
}
