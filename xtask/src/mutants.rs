//! `cargo xtask mutants`: takes one rule or one guard away at a time, and sees whether a test notices.
//!
//! `xtask/mutants.toml` is the table: what is taken away, by exact texts, and which tests have to fail then. The mutants are made in a
//! copy of the workspace under `target/mutants`; the sources themselves are never touched. Not part of `ci`, which only
//! checks that each text of the table still stands where the table says.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The table, from the root of the workspace.
pub const TABLE: &str = "xtask/mutants.toml";

/// How often a running test is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// The check could not run; nothing can be said of the tests.
#[derive(Debug, thiserror::Error)]
pub enum MutantsError {
    /// A file could not be read, written or started.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The table does not parse; the cause says where.
    #[error("{TABLE} is no table of mutants")]
    Table(#[source] Box<toml::de::Error>),
    /// A text of the table does not stand exactly once in its file, so that nobody knows what the mutant would be.
    #[error(
        "{mutant}: {file} has its text {found} times instead of once; change the entry in {TABLE} with the code"
    )]
    Text {
        /// The mutant.
        mutant: String,
        /// The file.
        file: String,
        /// How often the text stands there.
        found: usize,
    },
    /// A name that the table does not have.
    #[error("{TABLE} has no mutant {name}; `cargo xtask mutants --list` prints them")]
    Unknown {
        /// The name.
        name: String,
    },
}

/// The whole table.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The mutants, those of one crate beside each other, so that little is compiled again.
    #[serde(rename = "mutant")]
    pub mutants: Vec<Mutant>,
}

/// One rule or guard that is taken away.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mutant {
    /// A name of its own.
    pub name: String,
    /// The rule of the lint, or the guard, that the change takes away.
    pub of: String,
    /// What is changed.
    pub edits: Vec<Edit>,
    /// Arguments of `cargo test`; one of these commands has to fail.
    pub tests: Vec<String>,
    /// Why no test can notice: something else holds the same. Without it, a survivor is a failure.
    pub survives: Option<String>,
}

/// One exact change of a text.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// The file, from the root of the workspace.
    pub file: String,
    /// What stands there, exactly once.
    pub before: String,
    /// What stands there in the mutant.
    pub after: String,
}

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A test failed, as it should.
    Noticed,
    /// A test did not end in time; that is noticed too.
    Hung,
    /// Every test passed.
    Survived,
    /// The mutant does not compile, so that it says nothing of the tests.
    NotBuilt,
    /// The command ran no test at all: its filter is wrong.
    NoTest,
}

impl Verdict {
    /// The verdict as the table prints it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Noticed => "noticed",
            Self::Hung => "noticed (hung)",
            Self::Survived => "SURVIVED",
            Self::NotBuilt => "NOT BUILT",
            Self::NoTest => "NO TEST RAN",
        }
    }
}

impl Table {
    /// Reads the table of a workspace.
    ///
    /// # Errors
    ///
    /// [`MutantsError::Io`], [`MutantsError::Table`].
    pub fn read(root: &Path) -> Result<Self, MutantsError> {
        let text = read(&root.join(TABLE))?;
        toml::from_str(&text).map_err(|source| MutantsError::Table(Box::new(source)))
    }

    /// The mutants of these names, or all.
    ///
    /// # Errors
    ///
    /// [`MutantsError::Unknown`].
    pub fn chosen(&self, names: &[String]) -> Result<Vec<&Mutant>, MutantsError> {
        if names.is_empty() {
            return Ok(self.mutants.iter().collect());
        }
        names
            .iter()
            .map(|name| {
                self.mutants
                    .iter()
                    .find(|mutant| mutant.name == *name)
                    .ok_or_else(|| MutantsError::Unknown { name: name.clone() })
            })
            .collect()
    }
}

impl Mutant {
    /// The changed files: path from the root, text before and text after.
    ///
    /// # Errors
    ///
    /// [`MutantsError::Text`] when the table is no longer true, [`MutantsError::Io`].
    pub fn changes(&self, root: &Path) -> Result<Vec<Change>, MutantsError> {
        let mut changes: Vec<Change> = Vec::new();
        for edit in &self.edits {
            let known = changes.iter().position(|change| change.file == edit.file);
            let index = if let Some(index) = known {
                index
            } else {
                let before = read(&root.join(&edit.file))?;
                changes.push(Change {
                    file: edit.file.clone(),
                    after: before.clone(),
                    before,
                });
                changes.len() - 1
            };
            let Some(change) = changes.get_mut(index) else {
                continue;
            };
            // In the text as it is, so that no edit can make the place of another one.
            let found = change.before.matches(&edit.before).count();
            if found != 1 || edit.before == edit.after {
                return Err(MutantsError::Text {
                    mutant: self.name.clone(),
                    file: edit.file.clone(),
                    found,
                });
            }
            change.after = change.after.replacen(&edit.before, &edit.after, 1);
        }
        Ok(changes)
    }
}

/// A file of a mutant.
#[derive(Debug)]
pub struct Change {
    /// From the root of the workspace.
    pub file: String,
    /// The text without the mutant.
    pub before: String,
    /// The text with it.
    pub after: String,
}

/// A copy of the workspace that may be changed, with a target folder of its own.
struct Tree {
    root: PathBuf,
    target: PathBuf,
    timeout: Duration,
}

/// Makes the mutants one after the other, in a copy in the folder `place`, and prints a table of what became of them. True when each
/// was noticed, or is known to survive.
///
/// # Errors
///
/// [`MutantsError`] when the table is not true or something could not be run at all.
pub fn run(
    root: &Path,
    place: &Path,
    mutants: &[&Mutant],
    timeout: Duration,
    out: &mut dyn Write,
) -> Result<bool, MutantsError> {
    let told = |source| io_error("writing the table", source);
    // The whole table first: a wrong entry should not be found after an hour.
    for mutant in mutants {
        mutant.changes(root)?;
    }
    let copy = Tree::make(root, place, timeout)?;
    // What fails anyway notices nothing.
    let mut fails = BTreeSet::new();
    let commands: BTreeSet<&String> = mutants.iter().flat_map(|mutant| &mutant.tests).collect();
    for tests in commands {
        let verdict = copy.test(tests)?;
        if verdict != Verdict::Survived {
            writeln!(
                out,
                "without a mutant, `cargo test {tests}`: {}",
                verdict.as_str()
            )
            .map_err(told)?;
            fails.insert(tests);
            writeln!(out, "{}", read(&copy.target.join("test.log"))?).map_err(told)?;
        }
    }
    if !fails.is_empty() {
        return Ok(false);
    }
    writeln!(out, "| Rule or guard | Mutant | Verdict | Test | Seconds |").map_err(told)?;
    writeln!(out, "|---|---|---|---|---|").map_err(told)?;
    let mut all_noticed = true;
    for mutant in mutants {
        let start = now();
        let (verdict, tests) = copy.judge(mutant)?;
        let is_known = verdict == Verdict::Survived && mutant.survives.is_some();
        let is_noticed = matches!(verdict, Verdict::Noticed | Verdict::Hung);
        // A survivor that is noticed now has a reason that is wrong.
        all_noticed &= is_known || (is_noticed && mutant.survives.is_none());
        let said = match &mutant.survives {
            Some(reason) if is_known => format!("survives: {reason}"),
            Some(_) => format!("{}; the table says that it survives", verdict.as_str()),
            None => verdict.as_str().to_owned(),
        };
        writeln!(
            out,
            "| {} | `{}` | {said} | `{tests}` | {:.0} |",
            mutant.of,
            mutant.name,
            (now() - start).as_secs_f64()
        )
        .map_err(told)?;
        out.flush().map_err(told)?;
    }
    Ok(all_noticed)
}

impl Tree {
    /// Copies what git knows of, and what it would. A file that is equal stays, so that nothing is compiled for nothing.
    fn make(root: &Path, place: &Path, timeout: Duration) -> Result<Self, MutantsError> {
        let copy = Self {
            root: place.join("tree"),
            target: place.join("build"),
            timeout,
        };
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .map_err(|source| io_error("asking git for the files", source))?;
        let names = String::from_utf8_lossy(&listed.stdout);
        let mut kept = BTreeSet::new();
        for name in names.split('\0').filter(|name| !name.is_empty()) {
            let Ok(content) = fs::read(root.join(name)) else {
                // Removed, and not committed yet.
                continue;
            };
            let to = copy.root.join(name);
            if fs::read(&to).ok().as_deref() != Some(content.as_slice()) {
                write(&to, &content)?;
            }
            kept.insert(to);
        }
        remove_others(&copy.root, &kept)?;
        Ok(copy)
    }

    /// Makes a mutant, runs its tests until one fails, and takes it back.
    fn judge<'a>(&self, mutant: &'a Mutant) -> Result<(Verdict, &'a str), MutantsError> {
        // Of the copy, which is whole again after each: whoever works on the sources meanwhile disturbs nothing.
        let changes = mutant.changes(&self.root)?;
        for change in &changes {
            write(&self.root.join(&change.file), change.after.as_bytes())?;
        }
        let mut last = (Verdict::NoTest, "");
        for tests in &mutant.tests {
            last = (self.test(tests)?, tests.as_str());
            if last.0 != Verdict::Survived {
                break;
            }
        }
        for change in &changes {
            write(&self.root.join(&change.file), change.before.as_bytes())?;
        }
        Ok(last)
    }

    /// Builds and runs one command.
    fn test(&self, tests: &str) -> Result<Verdict, MutantsError> {
        let words: Vec<&str> = tests.split_whitespace().collect();
        // Filters are of no use to a build.
        let until = words
            .iter()
            .position(|word| *word == "--")
            .unwrap_or(words.len());
        let (without_filters, _) = words.split_at(until);
        let built = self
            .cargo("test")
            .args(without_filters)
            .arg("--no-run")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|source| io_error("starting cargo", source))?;
        if !built.success() {
            return Ok(Verdict::NotBuilt);
        }
        let log = self.target.join("test.log");
        let failed = |source| io_error("writing the log", source);
        let file = fs::File::create(&log).map_err(failed)?;
        let errors = file.try_clone().map_err(failed)?;
        let mut child = self
            .cargo("test")
            .args(&words)
            .stdout(file)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|source| io_error("starting cargo", source))?;
        let Some(passed) = self.wait(&mut child)? else {
            return Ok(Verdict::Hung);
        };
        let told = read(&log)?;
        let ran = told
            .lines()
            .any(|line| line.starts_with("running ") && !line.starts_with("running 0 "));
        Ok(match (passed, ran) {
            (_, false) => Verdict::NoTest,
            (true, true) => Verdict::Survived,
            (false, true) => Verdict::Noticed,
        })
    }

    fn cargo(&self, verb: &str) -> Command {
        let mut command = Command::new("cargo");
        command
            .arg(verb)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            // A snapshot that differs fails; it must not be written into the copy.
            .env("INSTA_UPDATE", "no")
            .env("RUST_BACKTRACE", "0")
            .env_remove("CARGO_MANIFEST_DIR")
            .env_remove("CARGO_PKG_NAME");
        command
    }

    /// Whether the child succeeded; nothing when its time was up. Then its whole process group is ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "the time of a test that hangs is real time; nothing is synchronised by it"
    )]
    fn wait(&self, child: &mut Child) -> Result<Option<bool>, MutantsError> {
        let failed = |source| io_error("waiting for a test", source);
        let deadline = now() + self.timeout;
        loop {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Ok(Some(status.success()));
            }
            if deadline <= now() {
                let group = format!("-{}", child.id());
                Command::new("kill")
                    .args(["-KILL", "--", &group])
                    .status()
                    .map_err(failed)?;
                child.wait().map_err(failed)?;
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn remove_others(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), MutantsError> {
    let failed = |source| io_error(&format!("cleaning {}", folder.display()), source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(&path, kept)?;
        } else if !kept.contains(&path) {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, MutantsError> {
    fs::read_to_string(path)
        .map_err(|source| io_error(&format!("reading {}", path.display()), source))
}

fn write(path: &Path, content: &[u8]) -> Result<(), MutantsError> {
    let failed = |source| io_error(&format!("writing {}", path.display()), source);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, content).map_err(failed)
}

fn io_error(action: &str, source: io::Error) -> MutantsError {
    MutantsError::Io {
        action: action.to_owned(),
        source,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a mutant took is for people; nothing depends on it"
)]
fn now() -> Instant {
    Instant::now()
}
