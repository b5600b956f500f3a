//! The table of mutants is true: each text stands where it says, each rule and each guard has a mutant, and the result is written down.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use xtask::lint::rules::Rule;
use xtask::mutants::{MutantsError, Table};

/// The guards at run time and by type, each with at least one mutant.
const GUARDS: &[&str] = &[
    "&'static str",
    "accepted set by domain",
    "actor check",
    "authorizer",
    "commit hook",
    "conditions of an outcome",
    "exact shape",
    "fork check",
    "kernel's own",
    "history",
    "lease check",
    "operation check",
    "poison",
    "policy under an owner",
    "presence lock",
    "private construction",
    "query_only",
    "reader statement filter",
    "replay",
    "revision check",
    "retention",
    "same file",
    "stable plans",
    "transition check",
    "turnstile",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn every_text_stands_exactly_once_in_its_file() {
    let table = Table::read(&root()).unwrap();
    let wrong: Vec<String> = table
        .mutants
        .iter()
        .filter_map(|mutant| mutant.changes(&root()).err())
        .map(|error: MutantsError| error.to_string())
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_rule_and_every_guard_has_a_mutant() {
    let table = Table::read(&root()).unwrap();
    let found: BTreeSet<&str> = table
        .mutants
        .iter()
        .map(|mutant| mutant.of.as_str())
        .collect();
    let expected: BTreeSet<&str> = Rule::ALL
        .iter()
        .map(|rule| rule.name())
        .chain(GUARDS.iter().copied())
        .collect();
    assert_eq!(found, expected);
    let names: BTreeSet<&str> = table
        .mutants
        .iter()
        .map(|mutant| mutant.name.as_str())
        .collect();
    assert_eq!(
        names.len(),
        table.mutants.len(),
        "two mutants have one name"
    );
    for mutant in &table.mutants {
        assert!(
            !mutant.tests.is_empty() && !mutant.edits.is_empty(),
            "{}",
            mutant.name
        );
    }
}

#[test]
fn the_result_of_every_mutant_is_written_down() {
    let page = std::fs::read_to_string(root().join("docs/DEVELOPMENT.md")).unwrap();
    let table = Table::read(&root()).unwrap();
    let missing: Vec<&String> = table
        .mutants
        .iter()
        .map(|mutant| &mutant.name)
        .filter(|name| !page.contains(&format!("| `{name}` |")))
        .collect();
    assert!(
        missing.is_empty(),
        "run `cargo xtask mutants`, and put the rows into docs/DEVELOPMENT.md: {missing:?}"
    );
    let gone: Vec<&str> = page
        .lines()
        .filter(|line| line.contains("| noticed") || line.contains("| survives"))
        .filter(|line| {
            !table
                .mutants
                .iter()
                .any(|mutant| line.contains(&format!("| `{}` |", mutant.name)))
        })
        .collect();
    assert!(gone.is_empty(), "{gone:#?}");
}
