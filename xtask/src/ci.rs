//! `cargo xtask ci`: every check of the workspace, by name, each the same command that a person types.
//!
//! A step is a command line and nothing else, so that what fails here fails alone in the same way.

use std::io::{self, Write};
use std::process::Command;
use std::time::{Duration, Instant};

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What `--only` calls it.
    pub name: &'static str,
    /// What it holds, in a few words.
    pub about: &'static str,
    /// The program and its arguments.
    pub command: &'static [&'static str],
    /// Environment of the command.
    pub environment: &'static [(&'static str, &'static str)],
    /// What has to be installed: the program to ask, and the command that installs it.
    pub needs: Option<(&'static [&'static str], &'static [&'static str])>,
}

const PLAIN: Step = Step {
    name: "",
    about: "",
    command: &[],
    environment: &[],
    needs: None,
};

/// What is compiled for the workspace serves its example too.
const EXAMPLE: &[(&str, &str)] = &[("CARGO_TARGET_DIR", "target")];

/// The checks, cheap ones first where that does not hide what matters.
pub const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "formatting",
        command: &["cargo", "fmt", "--all", "--check"],
        ..PLAIN
    },
    Step {
        name: "lint",
        about: "floors, rooms and SQL",
        command: &["cargo", "xtask", "lint"],
        ..PLAIN
    },
    Step {
        name: "clippy",
        about: "clippy, warnings denied",
        command: &[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--",
            "-D",
            "warnings",
        ],
        ..PLAIN
    },
    Step {
        name: "deny",
        about: "bans, licences and sources of dependencies",
        command: &["cargo", "deny", "check", "bans", "licenses", "sources"],
        needs: Some((
            &["cargo", "deny", "--version"],
            &["cargo", "install", "cargo-deny", "--locked"],
        )),
        ..PLAIN
    },
    Step {
        name: "docs",
        about: "generated pages are those of the code",
        command: &["cargo", "xtask", "docs", "--check"],
        ..PLAIN
    },
    Step {
        name: "test",
        about: "all tests and doc-tests",
        command: &["cargo", "test", "--workspace", "--all-features"],
        ..PLAIN
    },
    Step {
        name: "example-fmt",
        about: "formatting of examples/extending",
        command: &[
            "cargo",
            "fmt",
            "--manifest-path",
            "examples/extending/Cargo.toml",
            "--package",
            "budgets",
            "--package",
            "tasks",
            "--check",
        ],
        ..PLAIN
    },
    Step {
        name: "example-clippy",
        about: "clippy on examples/extending, warnings denied",
        command: &[
            "cargo",
            "clippy",
            "--manifest-path",
            "examples/extending/Cargo.toml",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ],
        environment: EXAMPLE,
        ..PLAIN
    },
    Step {
        name: "example-test",
        about: "a domain of somebody else: its tests, lint and pages",
        command: &[
            "cargo",
            "test",
            "--manifest-path",
            "examples/extending/Cargo.toml",
            "--workspace",
        ],
        environment: EXAMPLE,
        ..PLAIN
    },
    Step {
        name: "doc",
        about: "API documentation without a warning",
        command: &["cargo", "doc", "--workspace", "--no-deps", "--all-features"],
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        ..PLAIN
    },
];

impl Step {
    /// The step of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        STEPS.iter().find(|step| step.name == name)
    }

    /// The command line as a person types it.
    pub fn line(&self) -> String {
        let variables = self
            .environment
            .iter()
            .map(|(name, value)| format!("{name}=\"{value}\""));
        let words = self.command.iter().map(|&word| word.to_owned());
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }

    fn run(&self) -> io::Result<bool> {
        if let Some((ask, install)) = self.needs
            && !command(ask)
                .output()
                .is_ok_and(|output| output.status.success())
            && !command(install).status()?.success()
        {
            return Ok(false);
        }
        let mut command = command(self.command);
        command.envs(self.environment.iter().copied());
        Ok(command.status()?.success())
    }
}

fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    // Cargo sets these for the running xtask; a cargo that it starts has to find its own.
    command
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_PKG_NAME");
    command
}

/// Runs the steps and says of each how it went; true when all passed.
///
/// # Errors
///
/// When a program can't be started, or the report can't be written.
pub fn run(steps: &[&Step], fail_fast: bool, out: &mut dyn Write) -> io::Result<bool> {
    let mut results: Vec<(&Step, bool, Duration)> = Vec::new();
    for step in steps {
        writeln!(out, "ci: {}: {} ({})", step.name, step.about, step.line())?;
        out.flush()?;
        let start = now();
        let passed = step.run()?;
        let took = now() - start;
        results.push((step, passed, took));
        let verdict = if passed { "passed" } else { "FAILED" };
        writeln!(
            out,
            "ci: {}: {verdict} in {:.1} s\n",
            step.name,
            took.as_secs_f64()
        )?;
        if !passed && fail_fast {
            break;
        }
    }
    for (step, passed, took) in &results {
        let verdict = if *passed { "passed" } else { "FAILED" };
        writeln!(
            out,
            "ci: {:14} {verdict} {:7.1} s",
            step.name,
            took.as_secs_f64()
        )?;
    }
    for (step, _, _) in results.iter().filter(|(_, passed, _)| !passed) {
        writeln!(
            out,
            "ci: {name} failed; run it alone with `cargo xtask ci --only {name}` or `{line}`",
            name = step.name,
            line = step.line()
        )?;
    }
    Ok(results.iter().all(|(_, passed, _)| *passed))
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a step took is for people; nothing depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        for step in STEPS {
            let named = Step::named(step.name).unwrap();
            assert_eq!(
                named.command, step.command,
                "two steps are called {}",
                step.name
            );
            assert!(!step.command.is_empty() && !step.about.is_empty());
        }
    }

    #[test]
    fn a_failure_names_the_step_and_how_to_run_it_alone() {
        let fails = Step {
            name: "fails",
            about: "always fails",
            command: &["cargo", "no-such-verb"],
            ..PLAIN
        };
        let passes = Step {
            name: "passes",
            about: "always passes",
            command: &["cargo", "--version"],
            ..PLAIN
        };
        let mut out = Vec::new();
        assert!(!run(&[&fails, &passes], false, &mut out).unwrap());
        let out = String::from_utf8(out).unwrap();
        assert!(
            out.contains("ci: fails failed; run it alone with `cargo xtask ci --only fails`"),
            "{out}"
        );
        assert!(
            out.contains("ci: passes: passed"),
            "the step behind a failure runs too: {out}"
        );

        let mut out = Vec::new();
        assert!(!run(&[&fails, &passes], true, &mut out).unwrap());
        assert!(
            !String::from_utf8(out).unwrap().contains("passes"),
            "the first failure ends it"
        );
    }
}
