//! Who writes which table, from where.
//!
//! The texts of every Rust and SQL file of a crate are read as SQL (`file`, `statement`); here it is
//! decided whether a file may hold what it says. The tables that a crate's schema files create are its
//! domain. Only facts of the sources count: nothing is run, no database is opened.

mod doc;
mod file;
mod join;
mod opening;
mod rust;
mod statement;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use super::config::Rooms;
use super::exceptions::Exceptions;
use super::finding::Finding;
use super::glob;
use super::rules::Rule;
use super::{LintError, Workspace};
use file::{Facts, Places, Said};
use statement::Kind;

/// A crate with its rooms and what its files say.
struct Domain {
    name: String,
    /// Folder from the root, with a closing `/` unless it is the root.
    prefix: String,
    rooms: Rooms,
    files: Vec<Facts>,
}

/// A table and who defines it.
struct Table {
    domain: String,
    path: String,
}

/// The rules of SQL.
///
/// # Errors
///
/// [`LintError::Read`] when a source can't be read.
pub fn check(
    workspace: &Workspace,
    exceptions: &mut Exceptions,
) -> Result<Vec<Finding>, LintError> {
    let domains = read(workspace)?;
    let mut findings = Vec::new();
    let tables = tables(workspace, &domains, &mut findings);
    for domain in &domains {
        let test_modules: Vec<String> = domain
            .files
            .iter()
            .flat_map(|facts| facts.test_modules.iter().cloned())
            .collect();
        let mut asked_names = BTreeSet::new();
        let mut text_names = BTreeSet::new();
        for facts in &domain.files {
            asked_names.extend(facts.asked_names.iter());
            text_names.extend(facts.text_names.iter());
        }
        // One step is enough: a name of a name of a text is nothing that anybody writes for clarity.
        for (alias, name) in domain.files.iter().flat_map(|facts| &facts.aliases) {
            if asked_names.contains(alias) {
                asked_names.insert(name);
            }
            if text_names.contains(name) {
                text_names.insert(alias);
            }
        }
        for facts in &domain.files {
            findings.extend(
                exceptions.add_comments(&facts.path, &facts.source, |line| facts.item_end(line)),
            );
            findings.extend(facts.problems.iter().cloned());
            let in_crate = facts
                .path
                .strip_prefix(&domain.prefix)
                .unwrap_or(&facts.path);
            let judge = Judge {
                domain,
                tables: &tables,
                facts,
                in_crate,
                test_modules: &test_modules,
                asked_names: &asked_names,
            };
            findings.extend(facts.said.iter().filter_map(|said| judge.finding(said)));
            findings.extend(judge.unreadable(&text_names));
        }
    }
    Ok(findings)
}

fn read(workspace: &Workspace) -> Result<Vec<Domain>, LintError> {
    let shared = workspace.config.rooms.or(&Rooms::of_a_domain());
    let mut domains = Vec::new();
    let prefix_of = |package| {
        let folder = workspace.folder(package);
        if folder.is_empty() {
            folder
        } else {
            format!("{folder}/")
        }
    };
    let prefixes: Vec<String> = workspace.packages().into_iter().map(prefix_of).collect();
    let places = Places {
        root: &workspace.root,
        prefixes: &prefixes,
        exclude: &workspace.config.exclude,
    };
    for package in workspace.packages() {
        let folder = workspace.folder(package);
        let rooms = workspace
            .config
            .crates
            .get(package.name.as_str())
            .map_or_else(|| shared.clone(), |entry| entry.rooms.or(&shared));
        let mut paths = workspace.sources(&folder)?;
        // A target may lie outside its crate's folder.
        for target in &package.targets {
            let path = super::relative(&workspace.root, target.src_path.as_std_path());
            if !paths.contains(&path) && !glob::matches_any(places.exclude, &path) {
                paths.push(path);
            }
        }
        let prefix = prefix_of(package);
        domains.push(Domain {
            name: package.name.to_string(),
            files: file::read_all(&places, &prefix, &paths)?,
            prefix,
            rooms,
        });
    }
    // The lower floor owns a table that two crates define.
    domains.sort_by_key(|domain| {
        workspace
            .config
            .crates
            .get(&domain.name)
            .and_then(|entry| entry.floor)
            .unwrap_or(u32::MAX)
    });
    Ok(domains)
}

/// The tables that schema files create, by name; a second definition is a finding.
fn tables(
    workspace: &Workspace,
    domains: &[Domain],
    findings: &mut Vec<Finding>,
) -> BTreeMap<String, Table> {
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for domain in domains {
        let is_domain = workspace
            .config
            .crates
            .get(&domain.name)
            .is_some_and(|entry| entry.domain.is_some());
        for facts in &domain.files {
            let in_crate = facts
                .path
                .strip_prefix(&domain.prefix)
                .unwrap_or(&facts.path);
            if !in_room(domain.rooms.schema.as_ref(), in_crate) {
                continue;
            }
            for said in &facts.said {
                let Some(name) = said
                    .mutation
                    .table
                    .as_ref()
                    .filter(|_| said.mutation.creates_table())
                else {
                    continue;
                };
                if let Some(first) = tables.get(name) {
                    // A migration may create a table again that the schema file has: one crate, one table.
                    if first.domain != domain.name {
                        findings.push(said.finding(
                            facts,
                            Rule::SqlTableTwice,
                            format!(
                                "{name} is a table of {} already ({}); a table belongs to one domain",
                                first.domain, first.path
                            ),
                        ));
                    }
                    continue;
                }
                if !is_domain {
                    findings.push(said.finding(
                        facts,
                        Rule::TableWithoutDomain,
                        format!(
                            "{name} is a table of {}, which is no domain; name its docs page in {}: \
                             `domain.docs = \"docs/….md\"` under `[crates.{}]`",
                            domain.name, workspace.config_path, domain.name
                        ),
                    ));
                }
                let table = Table {
                    domain: domain.name.clone(),
                    path: facts.path.clone(),
                };
                tables.insert(name.clone(), table);
            }
        }
    }
    tables
}

fn in_room(room: Option<&Vec<String>>, in_crate: &str) -> bool {
    room.is_some_and(|patterns| glob::matches_any(patterns, in_crate))
}

/// Decides over what one file says.
struct Judge<'a> {
    domain: &'a Domain,
    tables: &'a BTreeMap<String, Table>,
    facts: &'a Facts,
    in_crate: &'a str,
    test_modules: &'a [String],
    /// Names that some file of the crate hands to something that runs SQL.
    asked_names: &'a BTreeSet<&'a String>,
}

impl Judge<'_> {
    fn finding(&self, said: &Said) -> Option<Finding> {
        let mutation = &said.mutation;
        let asked_for = said.asked_for
            || said
                .binding
                .as_ref()
                .is_some_and(|name| self.asked_names.contains(name));
        if !mutation.is_sql(asked_for, |table| self.tables.contains_key(table)) {
            return None;
        }
        let rooms = &self.domain.rooms;
        let what = mutation.what();
        let in_schema = in_room(rooms.schema.as_ref(), self.in_crate);
        let (rule, message) = if self.is_test(said) {
            (
                Rule::SqlInTest,
                format!(
                    "{what} in test code; write through the domain's commands or the testing kit, \
                     or say why with `// lint:allow(sql-in-test): …` above it"
                ),
            )
        } else if in_room(rooms.read_only.as_ref(), self.in_crate) {
            (
                Rule::SqlReadRoom,
                format!("{what} in a room that only reads; move it to the store room"),
            )
        } else {
            match mutation.kind {
                Kind::Rows if in_schema || in_room(rooms.store.as_ref(), self.in_crate) => {
                    return self.foreign(said);
                }
                Kind::Rows => (
                    Rule::SqlOutsideStore,
                    format!(
                        "{what} outside a store room of {}; {}",
                        self.domain.name,
                        self.where_to(rooms.store.as_ref())
                    ),
                ),
                Kind::Shape if in_schema => return self.foreign(said),
                Kind::Shape => (
                    Rule::SqlDdl,
                    format!(
                        "{what} outside the schema files of {}; {}",
                        self.domain.name,
                        self.where_to(rooms.schema.as_ref())
                    ),
                ),
                Kind::Engine if in_room(rooms.engine.as_ref(), self.in_crate) => return None,
                Kind::Engine => (
                    Rule::SqlEngine,
                    format!(
                        "{what} outside an engine room; transactions, pragmas and the file belong to the \
                         kernel: use a command, or a maintenance function of the state crate"
                    ),
                ),
            }
        };
        Some(said.finding(self.facts, rule, message))
    }

    /// A finding for each piece of SQL that nobody can read before the program runs.
    fn unreadable(&self, text_names: &BTreeSet<&String>) -> Vec<Finding> {
        let rooms = &self.domain.rooms;
        let is_exempt = [&rooms.engine, &rooms.tests]
            .into_iter()
            .any(|room| in_room(room.as_ref(), self.in_crate));
        if is_exempt || self.is_test_file() {
            return Vec::new();
        }
        self.facts
            .unread
            .iter()
            .filter(|(line, _, name)| {
                !self.facts.is_test_line(*line)
                    && !name.as_ref().is_some_and(|name| text_names.contains(name))
            })
            .map(|&(line, column, ref name)| Finding {
                path: self.facts.path.clone(),
                line,
                column,
                rule: Rule::SqlUnreadable,
                message: format!(
                    "SQL that is put together at run time{}; write the statement as a literal or a constant",
                    name.as_ref().map_or_else(String::new, |name| format!(" (`{name}` has no text here)"))
                ),
            })
            .collect()
    }

    fn where_to(&self, room: Option<&Vec<String>>) -> String {
        match room.map(Vec::as_slice) {
            Some([first, ..]) => format!("move it to {}{first}", self.domain.prefix),
            Some([]) | None => "call a function of the crate that owns the table".to_owned(),
        }
    }

    /// A finding when the table is not one of this crate's domain.
    fn foreign(&self, said: &Said) -> Option<Finding> {
        let mutation = &said.mutation;
        let (verb, what) = (&mutation.verb, mutation.what());
        let name = mutation.table.as_ref()?;
        let message = if mutation.table_is_placeholder {
            format!(
                "{verb} on a table whose name is only known at run time; write one statement for each table"
            )
        } else {
            match self.tables.get(name) {
                Some(table) if table.domain == self.domain.name => return None,
                // `sql-table-twice` says it already.
                Some(_) if mutation.creates_table() => return None,
                Some(table) => format!(
                    "{what}, a table of {} ({}); call a function of that crate inside the same change",
                    table.domain, table.path
                ),
                None => format!(
                    "{what}, which no schema file defines; add it to the schema of {}",
                    self.domain.name
                ),
            }
        };
        Some(said.finding(self.facts, Rule::SqlOtherDomain, message))
    }

    fn is_test(&self, said: &Said) -> bool {
        said.in_doc || self.is_test_file() || self.facts.is_test_line(said.line)
    }

    fn is_test_file(&self) -> bool {
        let rooms = &self.domain.rooms;
        // A domain that tests bring along has its store room by name.
        let is_named = [&rooms.store, &rooms.schema, &rooms.engine]
            .into_iter()
            .any(|room| in_room(room.as_ref(), self.in_crate));
        (in_room(rooms.tests.as_ref(), self.in_crate) && !is_named)
            || self.test_modules.iter().any(|module| {
                self.in_crate
                    .strip_prefix(module.as_str())
                    .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    }
}
