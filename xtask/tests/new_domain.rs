//! A new domain lints clean, compiles without a warning and passes its own tests, as it is written.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where its workspace is not what it says"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use xtask::lint::finding::{Format, render};
use xtask::lint::rules::Rule;
use xtask::lint::{Workspace, floors};
use xtask::new_domain::{self, NewDomainError};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

fn write(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A workspace of somebody else, which depends on the kernel by path. It has our lints, profiles and lock file, so that what is
/// compiled for this workspace serves it too.
fn downstream(with_clippy: bool) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let ours: toml::Table = fs::read_to_string(repository().join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let mut shared = toml::Table::new();
    shared.insert("profile".into(), ours["profile"].clone());
    let mut lints = toml::Table::new();
    lints.insert("lints".into(), ours["workspace"]["lints"].clone());
    shared.insert("workspace".into(), lints.into());
    let manifest = format!(
        "{shared}\n[workspace.dependencies]\nholdpoint-state = {{ path = \"{}\" }}\n",
        repository().join("crates/state").display()
    );
    write(
        root.path(),
        "Cargo.toml",
        &format!("[workspace]\nresolver = \"3\"\nmembers = [\"app\"]\n\n{manifest}"),
    );
    write(
        root.path(),
        "app/Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.0.0\"\nedition = \"2024\"\n",
    );
    write(root.path(), "app/src/lib.rs", "//! The program.\n");
    write(
        root.path(),
        "lint.toml",
        "graph = \"graph.txt\"\n\n[crates.app]\nfloor = 9\n",
    );
    write(root.path(), "graph.txt", "");
    if with_clippy {
        fs::copy(
            repository().join("clippy.toml"),
            root.path().join("clippy.toml"),
        )
        .unwrap();
    }
    fs::copy(
        repository().join("Cargo.lock"),
        root.path().join("Cargo.lock"),
    )
    .unwrap();
    root
}

fn findings(root: &Path) -> String {
    let workspace = Workspace::read(Some(&root.join("Cargo.toml"))).unwrap();
    render(&workspace.lint().unwrap().findings, Format::Human)
}

/// Runs cargo in a workspace, with the folder of compiled code of this one.
fn cargo(root: &Path, arguments: &[&str]) {
    let target = Path::new(env!("CARGO_BIN_EXE_xtask"))
        .ancestors()
        .nth(2)
        .unwrap();
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root)
        .env("CARGO_TARGET_DIR", target)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {}:\n{}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_new_domain_in_another_workspace_passes_everything_at_once() {
    let root = downstream(true);
    let made = new_domain::write("file-locks", Some(&root.path().join("Cargo.toml"))).unwrap();
    assert_eq!(made.package, "file-locks");
    assert_eq!(made.tool, None);
    assert_eq!(findings(root.path()), "lint: no findings\n");
    cargo(root.path(), &["fmt", "--all", "--check"]);
    cargo(
        root.path(),
        &["clippy", "--quiet", "--all-targets", "--", "-D", "warnings"],
    );
    cargo(root.path(), &["test", "--quiet"]);
}

#[test]
fn two_new_domains_stand_beside_each_other() {
    let root = downstream(false);
    let manifest = root.path().join("Cargo.toml");
    new_domain::write("orders", Some(&manifest)).unwrap();
    new_domain::write("access", Some(&manifest)).unwrap();
    assert_eq!(findings(root.path()), "lint: no findings\n");
    // Without a clippy.toml that forbids it, the store room expects no lint.
    let store = fs::read_to_string(root.path().join("access/src/store.rs")).unwrap();
    assert!(!store.contains("expect("), "{store}");

    let before = fs::read_to_string(&manifest).unwrap();
    let twice = new_domain::write("orders", Some(&manifest));
    assert!(matches!(twice, Err(NewDomainError::Exists { .. })));
    assert_eq!(fs::read_to_string(&manifest).unwrap(), before);
}

#[test]
fn a_workspace_without_a_configuration_is_told_how_to_start() {
    let root = downstream(false);
    fs::remove_file(root.path().join("lint.toml")).unwrap();
    let refused = new_domain::write("orders", Some(&root.path().join("Cargo.toml")));
    assert!(matches!(refused, Err(NewDomainError::Lint(_))));
    assert!(!root.path().join("orders").exists());
}

/// Copies a workspace without what is compiled or hidden.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name();
        if name.to_string_lossy().starts_with('.') || name == "target" {
            continue;
        }
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(&name));
        } else {
            fs::copy(entry.path(), to.join(&name)).unwrap();
        }
    }
}

#[test]
fn a_new_domain_of_this_workspace_is_registered_everywhere() {
    let root = tempfile::tempdir().unwrap();
    copy(&repository(), root.path());
    let manifest = root.path().join("Cargo.toml");
    let made = new_domain::write("file-locks", Some(&manifest)).unwrap();
    assert_eq!(made.package, "holdpoint-file-locks");
    assert_eq!(made.tool.as_deref(), Some("xtask"));
    let text = |path: &str| fs::read_to_string(root.path().join(path)).unwrap();
    assert!(text("Cargo.toml").contains(
        "\nholdpoint-file-locks = { path = \"crates/file-locks\", version = \"0.1.0\" }\n"
    ));
    assert!(text("xtask/Cargo.toml").contains("\nholdpoint-file-locks.workspace = true\n"));
    assert!(
        text("xtask/src/docs.rs").contains("    holdpoint_file_locks::DOMAIN,\n    // new-domain:")
    );
    assert!(text("xtask/crate-graph.txt").contains("xtask -> holdpoint-file-locks (normal)"));

    // The generated page alone is left, and only a build can write it: `write_pages` runs one.
    let workspace = Workspace::read(Some(&manifest)).unwrap();
    let left: Vec<Rule> = workspace
        .lint()
        .unwrap()
        .findings
        .iter()
        .filter(|finding| finding.path.contains("file-locks"))
        .map(|finding| finding.rule)
        .collect();
    assert_eq!(left, [Rule::OperationUndocumented]);
    assert_eq!(
        floors::graph(&workspace),
        text("xtask/crate-graph.txt"),
        "the golden file is written"
    );
}
