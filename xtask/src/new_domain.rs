//! `cargo xtask new-domain`: a crate with every room of a domain, registered in its workspace.
//!
//! The template is a whole small domain, whose words are replaced: its code is about widgets, its prose about gadgets, because prose
//! writes `file locks` where code writes `file_locks`. The workspace says the rest: its members, its shared
//! dependencies, its lints, its `lint.toml`. A file that holds a line beginning with [`MARK`] gets the new domain's line above it.
//! Nothing that exists is overwritten.

mod manifest;

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use cargo_metadata::Metadata;
use sqlite3_parser::lexer::sql::Parser;
use sqlite3_parser::{Bump, FallibleIterator as _};

use crate::lint::{LintError, Workspace, floors, relative};

/// Above a comment that begins so, in a source of the workspace's own tools, the line of a new domain is put.
pub const MARK: &str = "// new-domain:";

/// How long a name may be, in characters.
const NAME_CHARS_MAX: usize = 40;

/// The floor of a new domain: it stands on the kernel alone.
const FLOOR: u32 = 1;

/// No domain was made. Unless the variant says otherwise, nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum NewDomainError {
    /// The name can't be taken.
    #[error("{name:?} is no name for a domain: {problem}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// There is something of that name.
    #[error("{what} exists already; choose another name, or remove it first")]
    Exists {
        /// What there is.
        what: String,
    },
    /// The workspace lacks something that the new crate stands on.
    #[error("{} lacks something: {problem}", path.display())]
    Workspace {
        /// The file.
        path: PathBuf,
        /// What is missing and what to add.
        problem: String,
    },
    /// The workspace could not be read, or its crate graph not written. The crate may have been written.
    #[error("could not read the workspace")]
    Lint(#[from] LintError),
    /// A file could not be written. Others may have been.
    #[error("could not read or write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A program that finishes the work could not be started. The crate is written.
    #[error("could not run {program}; the crate is written, run it yourself")]
    Program {
        /// The command line.
        program: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

/// What was made.
#[derive(Debug)]
pub struct NewDomain {
    /// The root of the workspace.
    pub root: PathBuf,
    /// The crate's package name.
    pub package: String,
    /// Every file that was written or changed, from the root.
    pub files: Vec<String>,
    /// The workspace's own tool, when it prints the new domain too: its pages have to be written again.
    pub tool: Option<String>,
}

/// The words that stand for the template's.
struct Words {
    /// `file-locks`: the folder and the domain.
    name: String,
    /// `holdpoint-file-locks`.
    package: String,
}

impl Words {
    /// `file_locks`: tables and modules.
    fn snake(&self) -> String {
        self.name.replace('-', "_")
    }

    /// `file_lock`: the one thing. What has no plural is its own.
    fn one(&self) -> String {
        let snake = self.snake();
        match snake.strip_suffix('s') {
            Some(one) if !one.is_empty() && !one.ends_with('s') => one.to_owned(),
            _ => snake,
        }
    }

    /// `FILE-LOCKS.md`.
    fn page(&self) -> String {
        format!("{}.md", self.name.to_ascii_uppercase())
    }

    /// The template's text in these words. Longer words are replaced first, so that none is taken for a part of another.
    fn fill(&self, template: &str) -> String {
        let (one, many) = (self.one(), self.snake());
        let words = [
            ("holdpoint_widgets", self.package.replace('-', "_")),
            ("widgetNames", format!("{}Names", first_lower(&camel(&one)))),
            ("Widgets", camel(&many)),
            ("widgets", many.clone()),
            ("Widget", camel(&one)),
            ("widget", one.clone()),
            ("Gadgets", first_upper(&spaced(&many))),
            ("gadgets", spaced(&many)),
            ("gadget", spaced(&one)),
        ];
        let mut text = template.to_owned();
        // By way of signs that no text has: a replacement must not be replaced again.
        let sign = |index: usize| format!("\u{1}{index}\u{2}");
        for (index, (word, _)) in words.iter().enumerate() {
            text = text.replace(word, &sign(index));
        }
        for (index, (_, replacement)) in words.iter().enumerate() {
            text = text.replace(&sign(index), replacement);
        }
        text
    }
}

fn camel(snake: &str) -> String {
    snake.split('_').map(first_upper).collect()
}

fn spaced(snake: &str) -> String {
    snake.replace('_', " ")
}

fn first_upper(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase())
        .into_iter()
        .chain(letters)
        .collect()
}

fn first_lower(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(letters)
        .collect()
}

// lint:allow(sql-ddl): the store room and the schema of the template, which are text here.
/// The template's files, from the crate's folder.
const TEMPLATE: &[(&str, &str)] = &[
    ("src/lib.rs", include_str!("../templates/domain/src/lib.rs")),
    (
        "src/schema.sql",
        include_str!("../templates/domain/src/schema.sql"),
    ),
    (
        "src/model.rs",
        include_str!("../templates/domain/src/model.rs"),
    ),
    (
        "src/operations.rs",
        include_str!("../templates/domain/src/operations.rs"),
    ),
    (
        "src/commands.rs",
        include_str!("../templates/domain/src/commands.rs"),
    ),
    (
        "src/store.rs",
        include_str!("../templates/domain/src/store.rs"),
    ),
    (
        "src/views.rs",
        include_str!("../templates/domain/src/views.rs"),
    ),
    (
        "src/verify.rs",
        include_str!("../templates/domain/src/verify.rs"),
    ),
    (
        "src/error.rs",
        include_str!("../templates/domain/src/error.rs"),
    ),
    (
        "tests/contract/main.rs",
        include_str!("../templates/domain/tests/contract/main.rs"),
    ),
];

/// The template's docs page.
const PAGE: &str = include_str!("../templates/domain/PAGE.md");

/// Writes the crate of a new domain into the workspace of `manifest`, or the one around the current folder, and registers it.
///
/// # Errors
///
/// [`NewDomainError`]. Names and files are checked before anything is written.
pub fn write(name: &str, manifest: Option<&Path>) -> Result<NewDomain, NewDomainError> {
    check_name(name)?;
    let workspace = Workspace::read(manifest)?;
    let root = workspace.root.clone();
    let words = Words {
        name: name.to_owned(),
        package: package_name(&workspace.metadata, name),
    };
    let folder = if root.join("crates").is_dir() {
        format!("crates/{name}")
    } else {
        name.to_owned()
    };
    let page = format!("docs/{}", words.page());
    for taken in [&folder, &page] {
        if root.join(taken).exists() {
            return Err(NewDomainError::Exists {
                what: taken.clone(),
            });
        }
    }
    let is_taken = |package: &&str| *package == words.package || *package == name;
    let packages = workspace.packages();
    if let Some(package) = packages
        .iter()
        .map(|package| package.name.as_str())
        .find(is_taken)
    {
        return Err(NewDomainError::Exists {
            what: format!("the crate {package}"),
        });
    }

    // Everything is worked out before the first file is written.
    let manifest_path = root.join("Cargo.toml");
    let manifest_text = read(&manifest_path)?;
    let shared =
        manifest::Shared::of(&manifest_text).map_err(|problem| NewDomainError::Workspace {
            path: manifest_path.clone(),
            problem,
        })?;
    let mut files = Files::default();
    files.put(
        "Cargo.toml",
        manifest::register(&manifest_text, &shared, &words.package, &folder),
    );
    files.put(
        &format!("{folder}/Cargo.toml"),
        manifest::of_crate(&shared, &words.package, &words.name),
    );
    let forbids_sql = read(&root.join("clippy.toml"))
        .is_ok_and(|text| text.contains("holdpoint_state::Change::sql"));
    for (path, template) in TEMPLATE {
        let mut text = words.fill(template);
        if *path == "src/store.rs" && !forbids_sql {
            text = without_expectation(&text);
        }
        files.put(&format!("{folder}/{path}"), text);
    }
    files.put(&page, words.fill(PAGE));
    let config = root.join(&workspace.config_path);
    files.put(
        &workspace.config_path,
        add_to_config(&read(&config)?, &words.package, &page),
    );
    let tool = add_to_tools(&workspace, &words, &mut files)?;
    files.write(&root)?;

    run(&root, "cargo", &["fmt", "--package", &words.package])?;
    // Read again: the crate and its edges are there now.
    floors::bless(&Workspace::read(Some(&manifest_path))?)?;
    Ok(NewDomain {
        root,
        package: words.package,
        files: files.0.into_iter().map(|(path, _)| path).collect(),
        tool,
    })
}

/// Writes the pages of the workspace's own tool again, which now knows the new domain; without one, does nothing.
///
/// # Errors
///
/// [`NewDomainError::Program`] when it could not be started or failed.
pub fn write_pages(made: &NewDomain) -> Result<(), NewDomainError> {
    match &made.tool {
        Some(tool) => run(
            &made.root,
            "cargo",
            &["run", "--quiet", "--package", tool, "--", "docs"],
        ),
        None => Ok(()),
    }
}

/// Files to write, from the root, in order.
#[derive(Default)]
struct Files(Vec<(String, String)>);

impl Files {
    fn put(&mut self, path: &str, text: String) {
        self.0.push((path.to_owned(), text));
    }

    fn write(&self, root: &Path) -> Result<(), NewDomainError> {
        for (path, text) in &self.0 {
            let path = root.join(path);
            let failed = |source| NewDomainError::File {
                path: path.clone(),
                source,
            };
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder).map_err(failed)?;
            }
            std::fs::write(&path, text).map_err(failed)?;
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), NewDomainError> {
    let wrong = |problem| {
        Err(NewDomainError::Name {
            name: name.to_owned(),
            problem,
        })
    };
    let is_plain = name
        .chars()
        .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-');
    if !is_plain || !name.starts_with(|letter: char| letter.is_ascii_lowercase()) {
        return wrong(
            "write lower-case letters, digits and `-`, a letter first, such as file-locks",
        );
    }
    if name.ends_with('-') || name.contains("--") {
        return wrong("each `-` stands between two words");
    }
    if NAME_CHARS_MAX < name.len() {
        return wrong("it has more than 40 characters");
    }
    if syn::parse_str::<syn::Ident>(&name.replace('-', "_")).is_err() {
        return wrong("it is a word of Rust");
    }
    if !is_table(&name.replace('-', "_")) {
        return wrong("it is a word of SQL");
    }
    if ["name", "names"].contains(&name) {
        return wrong("the template has a type of that name");
    }
    if [
        "state",
        "resources",
        "leases",
        "events",
        "effects",
        "blobs",
        "projects",
    ]
    .contains(&name)
    {
        return wrong("the kernel has that name");
    }
    Ok(())
}

/// Whether SQL takes the word as the name of a table, without quotes.
fn is_table(word: &str) -> bool {
    let statement = format!("SELECT id FROM {word}");
    let arena = Bump::new();
    matches!(
        Parser::new(&arena, statement.as_bytes()).next(),
        Ok(Some(_))
    )
}

/// In the workspace of the kernel a package has its prefix; elsewhere it is called as the domain.
fn package_name(metadata: &Metadata, name: &str) -> String {
    let is_ours = metadata
        .workspace_packages()
        .iter()
        .any(|package| package.name.as_str() == "holdpoint-state");
    if is_ours {
        format!("holdpoint-{name}")
    } else {
        name.to_owned()
    }
}

/// Without the `#![expect]` of a lint that this workspace does not configure: it would never be needed.
fn without_expectation(text: &str) -> String {
    match text.split_once("#![expect(") {
        Some((before, rest)) => {
            let after = rest.split_once(")]\n").map_or(rest, |(_, after)| after);
            format!("{before}{}", after.trim_start_matches(')'))
        }
        None => text.to_owned(),
    }
}

/// Puts the crate behind the last crate that has a floor.
fn add_to_config(text: &str, package: &str, page: &str) -> String {
    let entry = format!("[crates.{package}]\nfloor = {FLOOR}\ndomain.docs = \"{page}\"\n");
    let lines: Vec<&str> = text.lines().collect();
    let last_with_floor = lines
        .iter()
        .rposition(|line| line.starts_with("floor = ") || line.starts_with("floor="));
    // The end of that crate's part: an empty line before something new.
    let at = last_with_floor.and_then(|start| {
        lines
            .iter()
            .skip(start)
            .position(|line| line.trim().is_empty())
            .map(|length| start + length)
    });
    let mut out = String::new();
    match at {
        Some(at) => {
            for (index, line) in lines.iter().enumerate() {
                if index == at {
                    let _ = write!(out, "\n{entry}");
                }
                let _ = writeln!(out, "{line}");
            }
        }
        None => {
            let _ = write!(out, "{}\n\n{entry}", text.trim_end());
        }
    }
    out
}

/// Adds the domain to every source of a tool that has the mark, and to that tool's dependencies.
fn add_to_tools(
    workspace: &Workspace,
    words: &Words,
    files: &mut Files,
) -> Result<Option<String>, NewDomainError> {
    let mut tool = None;
    for package in workspace.packages() {
        let is_tool = workspace
            .config
            .crates
            .get(package.name.as_str())
            .is_some_and(|entry| entry.floor.is_none());
        if !is_tool {
            continue;
        }
        let mut sources = workspace.sources(&workspace.folder(package))?;
        sources.retain(|path| path.ends_with("docs.rs") || path.ends_with("main.rs"));
        let mut is_in_tool = false;
        for path in sources {
            let text = read(&workspace.root.join(&path))?;
            let marked = text.lines().any(|line| line.trim_start().starts_with(MARK));
            if marked {
                files.put(
                    &path,
                    add_above_mark(&text, &words.package.replace('-', "_")),
                );
                is_in_tool = true;
            }
        }
        if is_in_tool {
            let path = package.manifest_path.as_std_path();
            let text = read(path)?;
            files.put(
                &relative(&workspace.root, path),
                manifest::depend(&text, &words.package),
            );
            tool = Some(package.name.to_string());
        }
    }
    Ok(tool)
}

fn add_above_mark(text: &str, module: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with(MARK) {
            let indent: String = line.chars().take_while(|sign| *sign == ' ').collect();
            let _ = writeln!(out, "{indent}{module}::DOMAIN,");
        }
        let _ = writeln!(out, "{line}");
    }
    out
}

fn read(path: &Path) -> Result<String, NewDomainError> {
    std::fs::read_to_string(path).map_err(|source| NewDomainError::File {
        path: path.to_owned(),
        source,
    })
}

fn run(root: &Path, program: &str, arguments: &[&str]) -> Result<(), NewDomainError> {
    let failed = |source| NewDomainError::Program {
        program: format!("{program} {}", arguments.join(" ")),
        source,
    };
    let status = std::process::Command::new(program)
        .args(arguments)
        .current_dir(root)
        .status()
        .map_err(failed)?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(io::Error::other(format!("it ended with {status}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_not_be_compiled_are_refused() {
        for name in ["budgets", "file-locks", "a", "x2-rays"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "Budgets",
            "file_locks",
            "2x",
            "-a",
            "a-",
            "a--b",
            "match",
            "order",
            "select",
            "values",
            "state",
            "names",
            "é",
            "../up",
        ] {
            assert!(
                matches!(check_name(name), Err(NewDomainError::Name { .. })),
                "{name}"
            );
        }
        assert!(check_name(&"x".repeat(41)).is_err());
    }

    #[test]
    fn words_take_the_place_of_those_of_the_template() {
        let words = |name: &str| Words {
            name: name.to_owned(),
            package: format!("holdpoint-{name}"),
        };
        let template = "holdpoint_widgets widgets Widget widget.x widgetNames Gadgets gadget";
        assert_eq!(
            words("file-locks").fill(template),
            "holdpoint_file_locks file_locks FileLock file_lock.x fileLockNames File locks file lock"
        );
        // A name without a plural, and one that is a word of the template.
        assert_eq!(words("access").fill("widgets Widget"), "access Access");
        assert_eq!(
            words("widget-gadgets").fill("widgets gadget"),
            "widget_gadgets widget gadget"
        );
    }
}
