//! The rules that a compiler does not know: which crate may stand on which, what a domain crate has, and which
//! file may hold which SQL.
//!
//! The rules read a workspace and its `lint.toml`; they know nothing of Holdpoint, so that any
//! workspace can use them. They report, all findings in one run, and change nothing.
//!
//! ```no_run
//! # fn main() -> Result<(), xtask::lint::LintError> {
//! let workspace = xtask::lint::Workspace::read(None)?;
//! let report = workspace.lint()?;
//! assert!(report.findings.is_empty(), "{:?}", report.findings);
//! # Ok(())
//! # }
//! ```

pub mod config;
pub mod exceptions;
pub mod finding;
pub mod floors;
pub mod glob;
pub mod rooms;
pub mod rules;
pub mod sql;

use std::io;
use std::path::{Path, PathBuf};

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, Package};

use config::Config;
use exceptions::Exceptions;
use finding::Finding;

/// The lint could not run; nothing can be said of the workspace.
#[derive(Debug, thiserror::Error)]
pub enum LintError {
    /// `cargo metadata` failed: no workspace there, or a manifest that does not parse.
    #[error("could not read the workspace")]
    Metadata(#[source] Box<cargo_metadata::Error>),
    /// The workspace has no `lint.toml`; the message shows how to start.
    #[error("{} has neither xtask/lint.toml nor lint.toml. To start, write lint.toml:\n\n{}", root.display(), START)]
    NoConfig {
        /// The workspace's root.
        root: PathBuf,
    },
    /// `lint.toml` does not parse; the cause says where.
    #[error("{} is not a lint configuration", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What the parser says.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A file or folder could not be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The golden file of the crate graph could not be written.
    #[error("could not write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A thread of the lint panicked: a mistake in the lint itself.
    #[error("BUG: the lint panicked while it read the sources")]
    Panicked,
}

/// What a workspace without a `lint.toml` is shown.
const START: &str = r#"# The golden file of the crate graph; `lint --bless` writes it.
graph = "crate-graph.txt"

# A crate may depend on crates of lower floors only. Without `floor`: a tool beside the building.
[crates.my-domain]
floor = 1
# A domain has tables and transitions; its page names its invariants.
domain.docs = "docs/MY-DOMAIN.md"
# Rooms have defaults: src/store.rs writes, src/schema.sql defines, src/views.rs and src/verify.rs read.
# rooms.store = ["src/store.rs", "src/store/**"]

[[only]]
dependencies = ["rusqlite"]
crates = []
reason = "holdpoint-state opens the database; use holdpoint_state::sql"
"#;

/// A workspace with its configuration, ready to be judged.
#[derive(Debug)]
pub struct Workspace {
    /// The root folder.
    pub root: PathBuf,
    /// What cargo knows of it.
    pub metadata: Metadata,
    /// Its `lint.toml`.
    pub config: Config,
    /// Path of `lint.toml` from the root.
    pub config_path: String,
    config_text: String,
}

/// All that one run found.
#[derive(Debug)]
pub struct Report {
    /// What breaks a rule, sorted by place.
    pub findings: Vec<Finding>,
    /// The exceptions that the workspace makes.
    pub exceptions: Exceptions,
}

impl Workspace {
    /// Reads the workspace of `manifest`, or the one around the current folder.
    ///
    /// # Errors
    ///
    /// [`LintError`]: there is no workspace, or none with a `lint.toml`.
    pub fn read(manifest: Option<&Path>) -> Result<Self, LintError> {
        let mut command = MetadataCommand::new();
        command.features(CargoOpt::AllFeatures);
        if let Some(manifest) = manifest {
            command.manifest_path(manifest);
        }
        let metadata = command
            .exec()
            .map_err(|source| LintError::Metadata(Box::new(source)))?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        let (config, path, config_text) = Config::read(&root)?;
        let config_path = relative(&root, &path);
        Ok(Self {
            root,
            metadata,
            config,
            config_path,
            config_text,
        })
    }

    /// Applies every rule.
    ///
    /// # Errors
    ///
    /// [`LintError`] when a file can't be read.
    pub fn lint(&self) -> Result<Report, LintError> {
        let (mut exceptions, mut findings) =
            Exceptions::of_config(&self.config, &self.config_path, &self.config_text);
        findings.extend(floors::check(self)?);
        findings.extend(rooms::check(self)?);
        findings.extend(sql::check(self, &mut exceptions)?);
        let mut findings = exceptions.apply(findings);
        findings.sort();
        findings.dedup();
        Ok(Report {
            findings,
            exceptions,
        })
    }

    /// The crates of the workspace, by name.
    pub(crate) fn packages(&self) -> Vec<&Package> {
        let mut packages = self.metadata.workspace_packages();
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        packages
    }

    /// The folder of a crate from the root, with `/` between names; empty for the root itself.
    pub(crate) fn folder(&self, package: &Package) -> String {
        let folder = package
            .manifest_path
            .parent()
            .map(cargo_metadata::camino::Utf8Path::as_std_path);
        folder
            .map(|path| relative(&self.root, path))
            .unwrap_or_default()
    }

    /// The Rust and SQL files of a crate's folder, from the root, sorted.
    pub(crate) fn sources(&self, folder: &str) -> Result<Vec<String>, LintError> {
        let mut found = Vec::new();
        sources(self, &self.root.join(folder), true, &mut found)?;
        Ok(found)
    }

    /// The line of `lint.toml` on which a text stands, for findings about an entry.
    pub(crate) fn config_line(&self, text: &str) -> usize {
        self.config_text
            .lines()
            .position(|line| line.contains(text))
            .map_or(1, |index| index + 1)
    }
}

/// The Rust and SQL files under a folder, sorted; a folder with its own manifest is another crate.
fn sources(
    workspace: &Workspace,
    folder: &Path,
    is_crate: bool,
    found: &mut Vec<String>,
) -> Result<(), LintError> {
    let failed = |source| LintError::Read {
        path: folder.to_owned(),
        source,
    };
    if !is_crate && folder.join("Cargo.toml").is_file() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(folder)
        .map_err(failed)?
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name();
        let from_root = relative(&workspace.root, &path);
        if name.to_string_lossy().starts_with('.')
            || glob::matches_any(&workspace.config.exclude, &from_root)
        {
            continue;
        }
        if path.is_dir() {
            if path != workspace.metadata.target_directory.as_std_path() {
                sources(workspace, &path, false, found)?;
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "rs" || extension == "sql")
        {
            found.push(from_root);
        }
    }
    Ok(())
}

/// A path from the root, with `/` between names.
pub(crate) fn relative(root: &Path, path: &Path) -> String {
    let path = path.strip_prefix(root).unwrap_or(path);
    path.iter()
        .map(|name| name.to_string_lossy())
        .collect::<Vec<_>>()
        .join("/")
}
