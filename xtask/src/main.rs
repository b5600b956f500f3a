//! `cargo xtask`: reads arguments, calls the library, prints. No rule stands here.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use xtask::ci::{self, Step};
use xtask::docs;
use xtask::lint::finding::{Format, render};
use xtask::lint::{Workspace, floors};
use xtask::mutants::{self, Table};
use xtask::new_domain;

/// Something could not be run at all.
const COULD_NOT_RUN: u8 = 2;

/// The checks and generators of this workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run every check. Exit status: 0 all passed, 1 one failed.
    Ci {
        /// Run this step alone; may be given several times.
        #[arg(long, value_name = "STEP", value_parser = STEP_NAMES.clone())]
        only: Vec<String>,
        /// Stop at the first failure.
        #[arg(long)]
        fail_fast: bool,
    },
    /// Check floors, rooms and SQL. Exit status: 0 clean, 1 findings, 2 could not run.
    Lint {
        /// Lint the workspace of this Cargo.toml.
        #[arg(long, value_name = "PATH")]
        manifest_path: Option<PathBuf>,
        /// How findings are printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        /// List the exceptions with their reasons instead of findings.
        #[arg(long)]
        exceptions: bool,
        /// Write the golden file of the crate graph first.
        #[arg(long)]
        bless: bool,
    },
    /// Write the crate of a new domain, with every room, its tests and its docs page, and register it.
    NewDomain {
        /// What the domain is called: lower-case, in the plural, such as file-locks.
        name: String,
        /// A workspace's folder or Cargo.toml; without it, the one around the current folder.
        #[arg(long = "in", value_name = "PATH")]
        workspace: Option<PathBuf>,
    },
    /// Take one rule or guard away at a time, in a copy, and see whether a test notices. Takes an hour. Exit status: 0 all
    /// noticed, 1 one survived.
    Mutants {
        /// Only this one; may be given several times.
        #[arg(long, value_name = "MUTANT")]
        only: Vec<String>,
        /// Print the table of what would be taken away, and do nothing.
        #[arg(long)]
        list: bool,
        /// After how many seconds a test counts as hanging.
        #[arg(long, value_name = "SECONDS", default_value_t = 300)]
        timeout: u64,
        /// The folder of the copy and of what is built of it; two at once need two.
        #[arg(long, value_name = "FOLDER")]
        place: Option<PathBuf>,
    },
    /// Write docs/schema.md and docs/operations.md. Exit status with --check: 0 equal, 1 different.
    Docs {
        /// Write nothing; say which pages differ.
        #[arg(long)]
        check: bool,
    },
}

static STEP_NAMES: std::sync::LazyLock<clap::builder::PossibleValuesParser> =
    std::sync::LazyLock::new(|| {
        ci::STEPS
            .iter()
            .map(|step| clap::builder::PossibleValue::new(step.name).help(step.about))
            .collect::<Vec<_>>()
            .into()
    });

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Ci { only, fail_fast } => run_ci(&only, fail_fast),
        Verb::Lint {
            manifest_path,
            format,
            exceptions,
            bless,
        } => run_lint(manifest_path.as_deref(), format, exceptions, bless),
        Verb::Docs { check } => run_docs(check),
        Verb::Mutants {
            only,
            list,
            timeout,
            place,
        } => run_mutants(&only, list, timeout, place),
        Verb::NewDomain { name, workspace } => run_new_domain(&name, workspace),
    };
    result.unwrap_or_else(|error| {
        let mut text = format!("xtask: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str("\n  because: ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        // Nothing is left to tell when standard error is gone.
        writeln!(io::stderr(), "{text}").ok();
        ExitCode::from(COULD_NOT_RUN)
    })
}

fn verdict(passed: bool) -> ExitCode {
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_ci(only: &[String], fail_fast: bool) -> Result<ExitCode, Box<dyn Error>> {
    let steps: Vec<&Step> = ci::STEPS
        .iter()
        .filter(|step| only.is_empty() || only.iter().any(|name| name == step.name))
        .collect();
    Ok(verdict(ci::run(&steps, fail_fast, &mut io::stdout())?))
}

fn run_lint(
    manifest: Option<&Path>,
    format: Format,
    exceptions: bool,
    bless: bool,
) -> Result<ExitCode, Box<dyn Error>> {
    let workspace = Workspace::read(manifest)?;
    if bless {
        floors::bless(&workspace)?;
    }
    let report = workspace.lint()?;
    let mut out = io::stdout().lock();
    if exceptions {
        for exception in &report.exceptions.all {
            writeln!(
                out,
                "{}:{}: {}: {}: {}",
                exception.path,
                exception.line,
                exception.rule,
                exception.covers(),
                exception.reason
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    write!(out, "{}", render(&report.findings, format))?;
    Ok(verdict(report.findings.is_empty()))
}

fn run_new_domain(name: &str, workspace: Option<PathBuf>) -> Result<ExitCode, Box<dyn Error>> {
    let manifest = workspace.map(|path| {
        if path.is_dir() {
            path.join("Cargo.toml")
        } else {
            path
        }
    });
    let made = new_domain::write(name, manifest.as_deref())?;
    new_domain::write_pages(&made)?;
    let mut out = io::stdout().lock();
    for file in &made.files {
        writeln!(out, "new-domain: wrote {file}")?;
    }
    writeln!(
        out,
        "new-domain: {package} is ready; `cargo test -p {package}` passes. docs/EXTENDING.md says what comes next",
        package = made.package
    )?;
    Ok(ExitCode::SUCCESS)
}

fn run_mutants(
    only: &[String],
    list: bool,
    timeout: u64,
    place: Option<PathBuf>,
) -> Result<ExitCode, Box<dyn Error>> {
    // As for the pages: the workspace that this binary was built from.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()?;
    let table = Table::read(&root)?;
    let chosen = table.chosen(only)?;
    let mut out = io::stdout().lock();
    if list {
        for mutant in chosen {
            writeln!(
                out,
                "{}: {}: {}",
                mutant.of,
                mutant.name,
                mutant.tests.join("; ")
            )?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let timeout = Duration::from_secs(timeout);
    let place = match place {
        Some(place) => std::path::absolute(place)?,
        None => root.join("target/mutants"),
    };
    let passed = mutants::run(&root, &place, &chosen, timeout, &mut out)?;
    Ok(verdict(passed))
}

fn run_docs(check: bool) -> Result<ExitCode, Box<dyn Error>> {
    // The pages belong to the workspace that this binary was built from.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let outdated = docs::outdated(&root, docs::pages()?)?;
    let mut out = io::stdout().lock();
    for page in &outdated {
        if check {
            writeln!(
                out,
                "docs: {} differs from the code; run `cargo xtask docs` and commit it",
                page.path
            )?;
        } else {
            docs::write(&root, page)?;
            writeln!(out, "docs: wrote {}", page.path)?;
        }
    }
    Ok(verdict(!check || outdated.is_empty()))
}
