//! `cargo xtask`: the lint, the generated pages and new domains of this workspace, through Holdpoint's own library.

use std::error::Error;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use holdpoint_state::{Domain, Identity, Schema, StateError};
use xtask::lint::Workspace;
use xtask::lint::finding::{Format, render};
use xtask::{docs, lint, new_domain};

/// What a store of this project is: its numbers are nobody else's, so that no other program opens it by mistake.
const IDENTITY: Identity = Identity {
    application_id: 0x4275_6467,
    user_version: 1,
    schema_name: "budgeted-agents",
    old_state: &[],
};

/// What the project stands on.
const BELOW: &[Domain] = &[holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN];

/// The project's own domains, lowest first.
const OWN: &[Domain] = &[
    budgets::DOMAIN,
    // new-domain: `cargo xtask new-domain` puts the line of a new domain above this one.
];

/// Something could not be run at all.
const COULD_NOT_RUN: u8 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["lint"] => run_lint(false),
        ["lint", "--bless"] => run_lint(true),
        ["docs"] => write_docs(),
        ["new-domain", name] => write_domain(name),
        _ => Err("cargo xtask lint [--bless] | docs | new-domain NAME".into()),
    };
    result.unwrap_or_else(|error| {
        // Nothing is left to tell when standard error is gone.
        writeln!(io::stderr(), "{error}").ok();
        ExitCode::from(COULD_NOT_RUN)
    })
}

fn run_lint(bless: bool) -> Result<ExitCode, Box<dyn Error>> {
    let workspace = Workspace::read(None)?;
    if bless {
        lint::floors::bless(&workspace)?;
    }
    let findings = workspace.lint()?.findings;
    write!(io::stdout(), "{}", render(&findings, Format::Human))?;
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

fn write_docs() -> Result<ExitCode, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    // Domains that collide are told of before anything is written.
    compose()?;
    docs::write(&root, &docs::operations_of(OWN))?;
    Ok(ExitCode::SUCCESS)
}

fn compose() -> Result<Schema, StateError> {
    Schema::compose(IDENTITY, BELOW.iter().chain(OWN).copied())
}

fn write_domain(name: &str) -> Result<ExitCode, Box<dyn Error>> {
    let made = new_domain::write(name, None)?;
    new_domain::write_pages(&made)?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn the_workspace_lints_clean() {
        let workspace = Workspace::read(Some(&root().join("Cargo.toml"))).unwrap();
        let findings = workspace.lint().unwrap().findings;
        assert!(findings.is_empty(), "{}", render(&findings, Format::Human));
    }

    #[test]
    fn the_domains_compose() {
        let schema = compose().unwrap();
        assert!(
            schema
                .tables()
                .any(|table| table == ("budget_calls", "budgets"))
        );
    }

    #[test]
    fn the_page_is_that_of_the_code() {
        let pages = vec![docs::operations_of(OWN)];
        let outdated = docs::outdated(&root(), pages).unwrap();
        assert!(outdated.is_empty(), "run `cargo xtask docs`: {outdated:?}");
    }
}
