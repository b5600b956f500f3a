//! Every check of the lint, on this very workspace.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use xtask::lint::Workspace;
use xtask::lint::finding::{Finding, Format, render};
use xtask::lint::rules::Rule;

/// One run serves every test: a clean run is what all of them ask for.
static FINDINGS: LazyLock<Vec<Finding>> = LazyLock::new(|| {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let workspace = Workspace::read(Some(&manifest)).unwrap();
    workspace.lint().unwrap().findings
});

fn expect_none(of: impl Fn(Rule) -> bool) {
    let found: Vec<Finding> = FINDINGS
        .iter()
        .filter(|finding| of(finding.rule))
        .cloned()
        .collect();
    assert!(found.is_empty(), "\n{}", render(&found, Format::Human));
}

#[test]
fn floors_hold() {
    expect_none(|rule| {
        matches!(
            rule,
            Rule::FloorUnknown | Rule::FloorOrder | Rule::FloorOnly | Rule::FloorAbove
        )
    });
}

#[test]
fn the_crate_graph_is_the_golden_one() {
    expect_none(|rule| rule == Rule::CrateGraph);
}

#[test]
fn sql_stands_in_its_rooms() {
    expect_none(|rule| rule.name().starts_with("sql-") || rule == Rule::RustSyntax);
}

#[test]
fn domains_have_their_rooms_and_say_what_they_do() {
    expect_none(|rule| {
        matches!(
            rule,
            Rule::RoomMissing
                | Rule::OperationUnused
                | Rule::OperationUndocumented
                | Rule::EffectUnhandled
                | Rule::InvariantUndocumented
                | Rule::TableWithoutDomain
        )
    });
}

#[test]
fn exceptions_have_reasons_and_are_needed() {
    expect_none(|rule| matches!(rule, Rule::ExceptionReason | Rule::ExceptionUnused));
}

#[test]
fn the_documentation_explains_every_rule() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/LINT.md")).unwrap();
    let explained: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### `"))
        .filter_map(|rest| rest.strip_suffix('`'))
        .collect();
    let rules: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name()).collect();
    assert_eq!(
        explained, rules,
        "docs/LINT.md has one section for each rule, in their order"
    );
}

#[test]
fn every_dependency_has_its_reason() {
    const BASE: [&str; 5] = ["rusqlite", "serde", "serde_json", "sha2", "thiserror"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest: toml::Table = fs::read_to_string(root.join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let mut wanted: Vec<&str> = manifest["workspace"]["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .map(String::as_str)
        .filter(|name| !name.starts_with("holdpoint-") && !BASE.contains(name))
        .collect();
    wanted.sort_unstable();
    let page = fs::read_to_string(root.join("docs/DEPENDENCIES.md")).unwrap();
    let mut given: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    given.sort_unstable();
    assert_eq!(
        given, wanted,
        "docs/DEPENDENCIES.md has one line for each dependency"
    );
}
