//! `docs/EXTENDING.md` and its example: what the page shows is in the example, and the example keeps to the rules.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where its workspace is not what it says"
)]

use std::fs;
use std::path::{Path, PathBuf};

use xtask::lint::Workspace;
use xtask::lint::finding::{Format, render};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every text of the example.
fn texts(folder: &Path, into: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && name != "target" {
            texts(&path, into);
        } else if ["rs", "sql", "toml"]
            .iter()
            .any(|kind| name.ends_with(kind))
        {
            into.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_block_of_the_page_is_in_the_example() {
    let page = fs::read_to_string(repository().join("docs/EXTENDING.md")).unwrap();
    let mut sources = Vec::new();
    texts(&repository().join("examples/extending"), &mut sources);
    let mut blocks = 0;
    let mut parts = page.split("```");
    // Prose and blocks take turns.
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        let (kind, code) = block.split_once('\n').unwrap();
        if ["rust", "sql", "toml"].contains(&kind) {
            blocks += 1;
            assert!(
                sources.iter().any(|source| source.contains(code)),
                "docs/EXTENDING.md shows what the example does not have:\n{code}"
            );
        }
    }
    assert!(10 <= blocks, "{blocks} blocks");
}

#[test]
fn the_example_lints_clean() {
    let manifest = repository().join("examples/extending/Cargo.toml");
    let workspace = Workspace::read(Some(&manifest)).unwrap();
    let findings = workspace.lint().unwrap().findings;
    assert!(findings.is_empty(), "{}", render(&findings, Format::Human));
}

/// The lints that hold here hold there, so that the example shows code as it is written here.
#[test]
fn the_example_has_the_lints_of_this_workspace() {
    let lints = |manifest: &str| {
        let text = fs::read_to_string(repository().join(manifest)).unwrap();
        let table: toml::Table = text.parse().unwrap();
        let workspace = table.get("workspace").unwrap();
        (
            workspace.get("lints").unwrap().clone(),
            table.get("profile").unwrap().clone(),
        )
    };
    assert_eq!(
        lints("examples/extending/Cargo.toml"),
        lints("Cargo.toml"),
        "with other profiles everything would be compiled twice"
    );
    let clippy = |path: &str| fs::read_to_string(repository().join(path)).unwrap();
    assert_eq!(
        clippy("examples/extending/clippy.toml"),
        clippy("clippy.toml")
    );
}
