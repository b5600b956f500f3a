//! Domain crates: each has its rooms, and what it declares is used, handled and documented.
//!
//! A crate is a domain when its entry in `lint.toml` names a docs page. What a crate declares is read from
//! its tokens (`read`): nothing is compiled, so that a macro of the crate's own counts as what it writes.
//! Not here: which file may hold which SQL (`sql`).

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::Package;

use super::config::{self, Rooms};
use super::finding::Finding;
use super::glob;
use super::rules::Rule;
use super::{LintError, Workspace};
use read::{Declared, Facts, Macros, Reach};

/// A docs page with the names that it shows as code.
struct Page<'a> {
    path: &'a str,
    /// None: there is no such file.
    text: Option<String>,
}

impl<'a> Page<'a> {
    fn read(workspace: &Workspace, path: &'a str) -> Result<Self, LintError> {
        let full = workspace.root.join(path);
        match std::fs::read_to_string(&full) {
            Ok(text) => Ok(Self {
                path,
                text: Some(text),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Self { path, text: None })
            }
            Err(source) => Err(LintError::Read { path: full, source }),
        }
    }

    /// True when the page shows the name as code. A missing page has a finding of its own.
    fn names(&self, name: &str) -> bool {
        self.text
            .as_ref()
            .is_none_or(|text| text.contains(&format!("`{name}`")))
    }

    /// True when a row of a table begins with the name.
    fn has_row(&self, name: &str) -> bool {
        let row = format!("| `{name}` |");
        self.text
            .as_ref()
            .is_none_or(|text| text.lines().any(|line| line.starts_with(&row)))
    }
}

/// The rules of domain crates.
///
/// # Errors
///
/// [`LintError::Read`] when a source or a page can't be read.
pub fn check(workspace: &Workspace) -> Result<Vec<Finding>, LintError> {
    let config = &workspace.config;
    let mut findings = Vec::new();
    let operations = config
        .operations
        .as_ref()
        .map(|path| Page::read(workspace, path))
        .transpose()?;
    if let Some(page) = operations.as_ref().filter(|page| page.text.is_none()) {
        findings.push(in_config(
            workspace,
            &format!("\"{}\"", page.path),
            Rule::OperationUndocumented,
            format!(
                "the operations page {} does not exist; write it from the code, or name the right one",
                page.path
            ),
        ));
    }
    for package in workspace.packages() {
        let domain = config
            .crates
            .get(package.name.as_str())
            .and_then(|entry| entry.domain.as_ref());
        if let Some(domain) = domain {
            findings.extend(Domain::read(workspace, package, domain)?.check(operations.as_ref())?);
        }
    }
    Ok(findings)
}

/// The folder of the modules that a file declares, with a closing `/`.
fn module_folder(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    match stem.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => format!("{folder}/"),
        _ => format!("{stem}/"),
    }
}

fn in_config(workspace: &Workspace, text: &str, rule: Rule, message: String) -> Finding {
    Finding {
        path: workspace.config_path.clone(),
        line: workspace.config_line(text),
        column: 1,
        rule,
        message,
    }
}

/// One domain crate and all that its sources declare.
struct Domain<'a> {
    workspace: &'a Workspace,
    config: &'a config::Domain,
    name: &'a str,
    folder: String,
    /// Every file of the crate, from its folder.
    files: Vec<String>,
    /// What each source of the domain says, by its path from the root.
    facts: BTreeMap<String, Facts>,
}

impl<'a> Domain<'a> {
    fn read(
        workspace: &'a Workspace,
        package: &'a Package,
        config: &'a config::Domain,
    ) -> Result<Self, LintError> {
        let folder = workspace.folder(package);
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let files: Vec<String> = workspace
            .sources(&folder)?
            .into_iter()
            .map(|path| {
                path.strip_prefix(&prefix)
                    .map(str::to_owned)
                    .unwrap_or(path)
            })
            .collect();
        let shared = workspace.config.rooms.or(&Rooms::of_a_domain());
        let rooms = workspace
            .config
            .crates
            .get(package.name.as_str())
            .map_or_else(|| shared.clone(), |entry| entry.rooms.or(&shared));
        let tests = rooms.tests.unwrap_or_default();
        let mut sources = BTreeMap::new();
        for file in &files {
            let is_of_the_domain = file.starts_with("src/")
                && Path::new(file)
                    .extension()
                    .is_some_and(|extension| extension == "rs")
                && !glob::matches_any(&tests, file)
                && !glob::matches_any(&config.beside, file);
            if is_of_the_domain {
                let full = workspace.root.join(format!("{prefix}{file}"));
                let source = std::fs::read_to_string(&full)
                    .map_err(|source| LintError::Read { path: full, source })?;
                sources.insert(file, source);
            }
        }
        let macros: Macros = sources
            .values()
            .flat_map(|source| read::macros(source))
            .collect();
        let mut facts: BTreeMap<String, Facts> = sources
            .iter()
            .map(|(file, source)| (format!("{prefix}{file}"), Facts::of(source, &macros)))
            .collect();
        let for_tests: Vec<String> = facts
            .iter()
            .flat_map(|(path, facts)| {
                let folder = module_folder(path);
                facts
                    .test_modules
                    .iter()
                    .map(move |name| format!("{folder}{name}"))
            })
            .collect();
        facts.retain(|path, _| {
            !for_tests.iter().any(|module| {
                path.strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
        });
        Ok(Self {
            workspace,
            config,
            name: package.name.as_str(),
            folder: prefix,
            files,
            facts,
        })
    }

    fn check(&self, operations: Option<&Page<'_>>) -> Result<Vec<Finding>, LintError> {
        let page = Page::read(self.workspace, &self.config.docs)?;
        let mut findings = self.rooms();
        findings.extend(self.operations(operations));
        findings.extend(self.effects());
        findings.extend(self.invariants(&page));
        Ok(findings)
    }

    /// Every room is there, and the crate shows itself as a domain.
    fn rooms(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        for room in &self.config.rooms {
            let stem = room.strip_suffix(".rs");
            let is_there = self.files.iter().any(|file| {
                glob::matches(room, file)
                    || stem.is_some_and(|stem| *file == format!("{stem}/mod.rs"))
            });
            if !is_there {
                findings.push(self.in_manifest(format!(
                    "{} is a domain and has no {room}; every domain crate has the same rooms",
                    self.name
                )));
            }
        }
        let shows_itself = self
            .facts
            .get(&format!("{}src/lib.rs", self.folder))
            .is_none_or(|facts| facts.names_domain);
        if !shows_itself {
            findings.push(self.in_manifest(format!(
                "{} is a domain and its src/lib.rs has no DOMAIN; a program composes the domains that it wants",
                self.name
            )));
        }
        if self.facts.values().all(|facts| facts.operations.is_empty()) {
            findings.push(self.in_manifest(format!(
                "{} is a domain and declares no Operation that can be read; without one nothing of it can be written",
                self.name
            )));
        }
        findings
    }

    fn operations(&self, page: Option<&Page<'_>>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let used: BTreeSet<&String> = self.facts.values().flat_map(|facts| &facts.used).collect();
        for (path, operation) in self.declared(|facts| &facts.operations) {
            let constant = operation.constant.as_deref().unwrap_or_default();
            if !used.contains(&constant.to_owned()) {
                findings.push(operation.finding(
                    path,
                    Rule::OperationUnused,
                    format!(
                        "no function of {} uses {constant}; write its command, or remove it",
                        self.name
                    ),
                ));
            }
            if !operation.is_documented {
                findings.push(operation.finding(
                    path,
                    Rule::OperationUndocumented,
                    format!("{constant} has no documentation; say in a sentence who does what"),
                ));
            }
            let Some(name) = self.text_of(operation) else {
                continue;
            };
            if let Some(page) = page.filter(|page| !page.has_row(name)) {
                findings.push(operation.finding(
                    path,
                    Rule::OperationUndocumented,
                    format!(
                        "{} has no row for `{name}`; add {constant} to the operations of DOMAIN and write the page from the code",
                        page.path
                    ),
                ));
            }
        }
        findings
    }

    fn effects(&self) -> Vec<Finding> {
        let handled: BTreeSet<&str> = self
            .facts
            .values()
            .flat_map(|facts| &facts.handled)
            .filter_map(|handled| self.text_of(handled))
            .collect();
        self.declared(|facts| &facts.effects)
            .filter(|(_, effect)| effect.reach != Reach::External)
            .filter_map(|(path, effect)| {
                let name = self.text_of(effect)?;
                (!handled.contains(name)).then(|| {
                    effect.finding(
                        path,
                        Rule::EffectUnhandled,
                        format!(
                            "nothing in {} does the work of the local effect `{name}`; implement LocalHandler for it, \
                             settle it with apply_local_effects, or declare it external",
                            self.name
                        ),
                    )
                })
            })
            .collect()
    }

    fn invariants(&self, page: &Page<'_>) -> Vec<Finding> {
        if page.text.is_none() {
            let message = format!(
                "the docs page {} of {} does not exist; write it, or name the right one",
                page.path, self.name
            );
            let entry = format!("\"{}\"", page.path);
            return vec![in_config(
                self.workspace,
                &entry,
                Rule::InvariantUndocumented,
                message,
            )];
        }
        self.declared(|facts| &facts.invariants)
            .filter_map(|(path, invariant)| {
                let name = self.text_of(invariant)?;
                (!page.names(name)).then(|| {
                    invariant.finding(
                        path,
                        Rule::InvariantUndocumented,
                        format!(
                            "{} does not name the invariant `{name}`; say there what it promises",
                            page.path
                        ),
                    )
                })
            })
            .collect()
    }

    fn declared<'s>(
        &'s self,
        of: impl Fn(&'s Facts) -> &'s Vec<Declared>,
    ) -> impl Iterator<Item = (&'s String, &'s Declared)> {
        self.facts
            .iter()
            .flat_map(move |(path, facts)| of(facts).iter().map(move |declared| (path, declared)))
    }

    /// The declared name: its literal, or that of the constant which it names.
    fn text_of<'s>(&'s self, declared: &'s Declared) -> Option<&'s str> {
        match &declared.name {
            read::Name::Text(text) => Some(text),
            read::Name::Constant(name) => self
                .facts
                .values()
                .find_map(|facts| facts.texts.get(name))
                .map(String::as_str),
        }
    }

    fn in_manifest(&self, message: String) -> Finding {
        Finding {
            path: format!("{}Cargo.toml", self.folder),
            line: 1,
            column: 1,
            rule: Rule::RoomMissing,
            message,
        }
    }
}
