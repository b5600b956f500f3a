//! The crate graph rules, on small workspaces written for each case.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::fs;
use std::path::Path;

use tempfile::TempDir;
use xtask::lint::finding::{Format, render};
use xtask::lint::{LintError, Workspace, floors};

/// A workspace of crates with these dependency lines; the crates are empty.
fn workspace(lint: &str, crates: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "Cargo.toml",
        "[workspace]\nresolver = \"3\"\nmembers = [\"*\"]\nexclude = [\"target\"]\n",
    );
    write(root.path(), "lint.toml", lint);
    for (name, dependencies) in crates {
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n{dependencies}\n"
        );
        write(root.path(), &format!("{name}/Cargo.toml"), &manifest);
        write(root.path(), &format!("{name}/src/lib.rs"), "");
    }
    root
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn read(root: &TempDir) -> Workspace {
    Workspace::read(Some(&root.path().join("Cargo.toml"))).unwrap()
}

fn findings(root: &TempDir) -> String {
    render(&read(root).lint().unwrap().findings, Format::Human)
}

const FLOORS: &str = "
[crates.ground]
floor = 0
[crates.middle]
floor = 1
[crates.top]
floor = 4
[crates.tool]
";

#[test]
fn a_crate_stands_on_lower_floors_only() {
    let root = workspace(
        FLOORS,
        &[
            (
                "ground",
                "[dev-dependencies]\nmiddle = { path = \"../middle\" }",
            ),
            (
                "middle",
                "[dependencies]\nground = { path = \"../ground\" }\n[build-dependencies]\ntop = { path = \"../top\" }",
            ),
            (
                "top",
                "[dependencies]\nground = { path = \"../ground\" }\n[dependencies.tool]\npath = \"../tool\"",
            ),
            ("tool", "[dependencies]\nground = { path = \"../ground\" }"),
        ],
    );
    insta::assert_snapshot!(findings(&root), @r"
    ground/Cargo.toml:7:1: floor-order: ground (floor 0) may not depend on middle (floor 1); move what it needs down, or let the upper crate bring it in [dev dependency]
    middle/Cargo.toml:9:1: floor-order: middle (floor 1) may not depend on top (floor 4); move what it needs down, or let the upper crate bring it in [build dependency]
    top/Cargo.toml:8:1: floor-order: tool stands beside the building; no crate of it may depend on it [normal dependency]
    lint: 3 findings; docs/LINT.md explains each rule
    ");
}

#[test]
fn dev_dependencies_may_stay_on_their_floor() {
    let lint = "[crates.left]\nfloor = 2\n[crates.right]\nfloor = 2\n";
    let root = workspace(
        lint,
        &[
            (
                "left",
                "[dev-dependencies]\nright = { path = \"../right\" }",
            ),
            ("right", ""),
        ],
    );
    assert_eq!(findings(&root), "lint: no findings\n");
    let root = workspace(
        lint,
        &[
            ("left", "[dependencies]\nright = { path = \"../right\" }"),
            ("right", ""),
        ],
    );
    insta::assert_snapshot!(findings(&root), @r"
    left/Cargo.toml:7:1: floor-order: left (floor 2) may not depend on right (floor 2); move what it needs down, or let the upper crate bring it in [normal dependency]
    lint: 1 finding; docs/LINT.md explains each rule
    ");
}

#[test]
fn every_crate_has_a_floor_and_every_floor_a_crate() {
    let root = workspace("[crates.gone]\nfloor = 1\n", &[("new", "")]);
    insta::assert_snapshot!(findings(&root), @r"
    lint.toml:1:1: floor-unknown: the workspace has no crate gone; remove its entry
    new/Cargo.toml:2:1: floor-unknown: new has no floor; add `[crates.new]` with `floor = …` to lint.toml
    lint: 2 findings; docs/LINT.md explains each rule
    ");
}

#[test]
fn some_dependencies_belong_to_some_crates() {
    let lint = "
[crates.rusqlite]
[crates.ground]
floor = 0
[crates.middle]
floor = 1
[[only]]
dependencies = [\"rusqlite\"]
crates = [\"ground\"]
reason = \"one crate opens the database\"
";
    // A stand-in of that name: only the name counts.
    let root = workspace(
        &lint.replace("[crates.rusqlite]\n", ""),
        &[
            (
                "ground",
                "[dependencies]\nrusqlite = { path = \"../rusqlite\" }",
            ),
            (
                "middle",
                "[dev-dependencies]\nrusqlite = { path = \"../rusqlite\", optional = false }",
            ),
            ("rusqlite", ""),
        ],
    );
    insta::assert_snapshot!(findings(&root), @r"
    middle/Cargo.toml:7:1: floor-only: middle may not depend on rusqlite: one crate opens the database [dev dependency]
    rusqlite/Cargo.toml:2:1: floor-unknown: rusqlite has no floor; add `[crates.rusqlite]` with `floor = …` to lint.toml
    lint: 2 findings; docs/LINT.md explains each rule
    ");
}

#[test]
fn some_dependencies_belong_to_high_floors_also_through_others() {
    let lint = "
[crates.ground]
floor = 0
[crates.middle]
floor = 1
[crates.top]
floor = 4
[[above]]
floor = 4
dependencies = [\"tokio*\"]
reason = \"a command needs no async runtime\"
";
    let root = workspace(
        lint,
        &[
            (
                "ground",
                "[dependencies]\nclient = { path = \"../client\", optional = true }",
            ),
            (
                "middle",
                "[dependencies]\nground = { path = \"../ground\" }\n[dev-dependencies]\ntokio-test = { path = \"../tokio-test\" }",
            ),
            ("top", "[dependencies]\ntokio = { path = \"../tokio\" }"),
            ("client", "[dependencies]\ntokio = { path = \"../tokio\" }"),
            ("tokio", ""),
            ("tokio-test", ""),
        ],
    );
    let found = findings(&root);
    let about_floors: Vec<&str> = found
        .lines()
        .filter(|line| line.contains("floor-above"))
        .collect();
    insta::assert_snapshot!(about_floors.join("\n"), @r"
    ground/Cargo.toml:7:1: floor-above: ground (floor 0) brings in tokio by client -> tokio: a command needs no async runtime; only floor 4 and up may
    middle/Cargo.toml:9:1: floor-above: middle (floor 1) may not depend on tokio-test: a command needs no async runtime; only floor 4 and up may [dev dependency]
    ");
}

#[test]
fn a_new_edge_is_a_diff() {
    let lint = format!("graph = \"graph.txt\"\n{FLOORS}");
    let crates = [
        ("ground", ""),
        (
            "middle",
            "[dependencies]\nground = { path = \"../ground\" }",
        ),
        ("top", ""),
        ("tool", ""),
    ];
    let root = workspace(&lint, &crates);
    insta::assert_snapshot!(findings(&root), @r"
    graph.txt:1:1: crate-graph: the edge middle -> ground (normal) is new; if it is wanted, run `cargo xtask lint --bless` and commit the diff
    lint: 1 finding; docs/LINT.md explains each rule
    ");

    floors::bless(&read(&root)).unwrap();
    assert_eq!(findings(&root), "lint: no findings\n");
    insta::assert_snapshot!(fs::read_to_string(root.path().join("graph.txt")).unwrap(), @r"
    # The edges of the crate graph. `cargo xtask lint --bless` writes this file; read its diff.
    middle -> ground (normal)
    ");

    write(
        root.path(),
        "graph.txt",
        "# The edges of the crate graph. `cargo xtask lint --bless` writes this file; read its diff.\nmiddle -> other (normal)\n",
    );
    insta::assert_snapshot!(findings(&root), @r"
    graph.txt:1:1: crate-graph: the edge middle -> ground (normal) is new; if it is wanted, run `cargo xtask lint --bless` and commit the diff
    graph.txt:2:1: crate-graph: the edge middle -> other (normal) is gone; run `cargo xtask lint --bless` and commit the diff
    lint: 2 findings; docs/LINT.md explains each rule
    ");
}

#[test]
fn a_workspace_without_configuration_is_told_how_to_start() {
    let root = workspace("", &[("some", "")]);
    fs::remove_file(root.path().join("lint.toml")).unwrap();
    let error = Workspace::read(Some(&root.path().join("Cargo.toml"))).unwrap_err();
    assert!(matches!(error, LintError::NoConfig { .. }));
    let message = error.to_string();
    let start = message.split_once("write lint.toml:\n\n").unwrap().1;
    // What it shows is a configuration that the lint reads.
    write(root.path(), "lint.toml", start);
    assert!(findings(&root).contains("the workspace has no crate my-domain"));
}

#[test]
fn a_wrong_configuration_says_where() {
    let root = workspace("[crates.some]\nstorey = 1\n", &[("some", "")]);
    let error = Workspace::read(Some(&root.path().join("Cargo.toml"))).unwrap_err();
    let LintError::Config { source, .. } = &error else {
        panic!("{error}")
    };
    assert!(source.to_string().contains("storey"));
}
