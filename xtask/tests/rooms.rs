//! Domain crates whose pages are missing; the corpus has everything else.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::fs;
use std::path::Path;

use xtask::lint::Workspace;
use xtask::lint::finding::{Format, render};

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

#[test]
fn pages_that_do_not_exist_are_findings() {
    let root = tempfile::tempdir().unwrap();
    write(
        root.path(),
        "Cargo.toml",
        "[package]\nname = \"boats\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
    );
    write(
        root.path(),
        "lint.toml",
        "operations = \"operations.md\"\n[crates.boats]\ndomain = { docs = \"boats.md\", rooms = [] }\n",
    );
    write(
        root.path(),
        "src/lib.rs",
        "pub const DOMAIN: Domain = Domain { invariants: &[Invariant { name: \"afloat\" }], ..Domain::named(\"boats\") };\n\
         /// Sinks.\npub const SINK: Operation = Operation { name: \"boat.sink\" };\n\
         fn sink() { go(&SINK) }\n",
    );
    let findings = || {
        let workspace = Workspace::read(Some(&root.path().join("Cargo.toml"))).unwrap();
        render(&workspace.lint().unwrap().findings, Format::Human)
    };
    insta::assert_snapshot!(findings(), @r#"
    lint.toml:1:1: operation-undocumented: the operations page operations.md does not exist; write it from the code, or name the right one
    lint.toml:3:1: invariant-undocumented: the docs page boats.md of boats does not exist; write it, or name the right one
    lint: 2 findings; docs/LINT.md explains each rule
    "#);
    write(root.path(), "operations.md", "| `boat.sink` | Sinks. |\n");
    write(root.path(), "boats.md", "`afloat`\n");
    assert_eq!(findings(), "lint: no findings\n");
}
