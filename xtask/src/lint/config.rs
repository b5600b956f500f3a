//! `lint.toml`: what the lint knows of a workspace that the code itself can't say.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::LintError;

/// Where a workspace keeps its `lint.toml`: the first of these that exists, from the workspace root.
pub const PLACES: [&str; 2] = ["xtask/lint.toml", "lint.toml"];

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The golden file of the crate graph, from the workspace root; none leaves that rule out.
    pub graph: Option<String>,
    /// The page on which every operation has its row, from the workspace root; none leaves that rule out.
    pub operations: Option<String>,
    /// Paths that are not looked at, from the workspace root.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Rooms of every crate that does not say otherwise.
    #[serde(default)]
    pub rooms: Rooms,
    /// Crates by package name.
    #[serde(default)]
    pub crates: BTreeMap<String, Crate>,
    /// Dependencies that only the named crates may have.
    #[serde(default)]
    pub only: Vec<Only>,
    /// Dependencies that only high floors may have.
    #[serde(default)]
    pub above: Vec<Above>,
    /// Findings that are accepted, each with its reason.
    #[serde(default)]
    pub exceptions: Vec<Entry>,
}

/// What the lint knows of one crate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crate {
    /// A crate may depend on crates of lower floors only. None: a tool that stands beside the
    /// building; it may depend on every crate and no crate may depend on it.
    pub floor: Option<u32>,
    /// The crate is a domain: it brings tables and transitions.
    pub domain: Option<Domain>,
    /// Rooms of this crate; a list that is given replaces the one that all crates share.
    #[serde(default)]
    pub rooms: Rooms,
}

/// What the lint knows of a domain crate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// The page that explains the domain and names its invariants, from the workspace root.
    pub docs: String,
    /// Files that have to be there; patterns from the crate's folder.
    #[serde(default = "rooms_of_a_domain")]
    pub rooms: Vec<String>,
    /// Sources that declare something which is not of this domain, such as a testing kit; patterns from the crate's folder.
    #[serde(default)]
    pub beside: Vec<String>,
}

/// The rooms that every domain crate has, as the design draws them.
fn rooms_of_a_domain() -> Vec<String> {
    [
        "src/lib.rs",
        "src/schema.sql",
        "src/model.rs",
        "src/operations.rs",
        "src/commands.rs",
        "src/store.rs",
        "src/views.rs",
        "src/verify.rs",
        "tests/**/*.rs",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Which files of a crate may hold which SQL; patterns from the crate's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rooms {
    /// `INSERT`, `UPDATE`, `DELETE`, `REPLACE` on the tables of the crate's own schema.
    pub store: Option<Vec<String>>,
    /// DDL; the tables that these files create are the crate's domain.
    pub schema: Option<Vec<String>>,
    /// Transaction control, `ATTACH`, mutating `PRAGMA`, `VACUUM`, `REINDEX`, `ANALYZE`.
    pub engine: Option<Vec<String>>,
    /// `SELECT` only, whatever else is said.
    pub read_only: Option<Vec<String>>,
    /// Tests, benchmarks, examples: raw mutation needs a stated reason.
    pub tests: Option<Vec<String>>,
}

impl Rooms {
    /// These rooms, with `fallback` for each list that is not given.
    #[must_use]
    pub fn or(&self, fallback: &Self) -> Self {
        Self {
            store: self.store.clone().or_else(|| fallback.store.clone()),
            schema: self.schema.clone().or_else(|| fallback.schema.clone()),
            engine: self.engine.clone().or_else(|| fallback.engine.clone()),
            read_only: self
                .read_only
                .clone()
                .or_else(|| fallback.read_only.clone()),
            tests: self.tests.clone().or_else(|| fallback.tests.clone()),
        }
    }

    /// The rooms of a domain crate as the design draws them.
    #[must_use]
    pub fn of_a_domain() -> Self {
        let list = |patterns: &[&str]| Some(patterns.iter().map(|&text| text.to_owned()).collect());
        Self {
            store: list(&["src/store.rs", "src/store/**"]),
            schema: list(&[
                "src/schema.sql",
                "src/schema/**/*.sql",
                "src/migrations/**/*.sql",
            ]),
            engine: list(&[]),
            read_only: list(&[
                "src/views.rs",
                "src/views/**",
                "src/verify.rs",
                "src/verify/**",
            ]),
            tests: list(&["tests/**", "benches/**", "examples/**"]),
        }
    }
}

/// Dependencies that only some crates may have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Only {
    /// Package names.
    pub dependencies: Vec<String>,
    /// The crates that may have them.
    pub crates: Vec<String>,
    /// Why; printed with the finding.
    pub reason: String,
}

/// Dependencies that only high floors may have.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Above {
    /// The lowest floor that may have them.
    pub floor: u32,
    /// Package names; `*` stands for any text.
    pub dependencies: Vec<String>,
    /// Why; printed with the finding.
    pub reason: String,
}

/// An accepted finding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Name of the rule.
    pub rule: String,
    /// Pattern of the path, from the workspace root.
    pub path: String,
    /// Only findings whose message contains this text; all of them when it is left out.
    pub contains: Option<String>,
    /// Why it is right there.
    #[serde(default)]
    pub reason: String,
}

impl Config {
    /// Reads the `lint.toml` of the workspace in `root`; gives its path and text too.
    ///
    /// # Errors
    ///
    /// [`LintError::NoConfig`] when there is none, [`LintError::Config`] when it does not parse.
    pub fn read(root: &Path) -> Result<(Self, PathBuf, String), LintError> {
        let path = PLACES
            .iter()
            .map(|place| root.join(place))
            .find(|path| path.is_file())
            .ok_or_else(|| LintError::NoConfig {
                root: root.to_owned(),
            })?;
        let text = std::fs::read_to_string(&path).map_err(|source| LintError::Read {
            path: path.clone(),
            source,
        })?;
        let config = toml::from_str(&text).map_err(|source| LintError::Config {
            path: path.clone(),
            source: Box::new(source),
        })?;
        Ok((config, path, text))
    }
}
