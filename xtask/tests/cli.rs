//! The command line: exit statuses, and that every form of output can be read by what it is for.
#![expect(
    clippy::unwrap_used,
    reason = "a test ends where the command is not what it says"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(arguments)
        .output()
        .unwrap()
}

fn corpus() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/Cargo.toml");
    path.to_str().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn findings_exit_with_1_in_every_format() {
    for format in ["human", "json", "github", "sarif"] {
        let output = xtask(&["lint", "--manifest-path", &corpus(), "--format", format]);
        assert_eq!(output.status.code(), Some(1), "{format}");
        let out = text(&output.stdout);
        match format {
            "json" => {
                let document: serde_json::Value = serde_json::from_str(&out).unwrap();
                let findings = document["findings"].as_array().unwrap();
                assert!(
                    findings
                        .iter()
                        .any(|finding| finding["rule"] == "sql-outside-store")
                );
                assert!(
                    findings
                        .iter()
                        .all(|finding| finding["line"].is_u64() && finding["column"].is_u64())
                );
            }
            "sarif" => {
                let document: serde_json::Value = serde_json::from_str(&out).unwrap();
                let results = document["runs"][0]["results"].as_array().unwrap();
                assert!(
                    results
                        .iter()
                        .any(|result| result["ruleId"] == "sql-outside-store")
                );
            }
            "github" => assert!(out.lines().all(|line| line.starts_with("::error file="))),
            _ => assert!(out.ends_with("findings; docs/LINT.md explains each rule\n")),
        }
    }
}

#[test]
fn exceptions_are_listed_and_exit_with_0() {
    let output = xtask(&["lint", "--manifest-path", &corpus(), "--exceptions"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("a broken file can't be made through the commands"));
}

#[test]
fn what_can_not_run_exits_with_2_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("Cargo.toml");
    let manifest = manifest.to_str().unwrap();
    let output = xtask(&["lint", "--manifest-path", manifest]);
    assert_eq!(output.status.code(), Some(2), "no workspace");
    assert!(text(&output.stderr).starts_with("xtask: could not read the workspace\n  because: "));

    let package = "[package]\nname = \"some\"\nversion = \"0.0.0\"\nedition = \"2024\"\n";
    fs::write(manifest, package).unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/lib.rs"), "").unwrap();
    let output = xtask(&["lint", "--manifest-path", manifest]);
    assert_eq!(output.status.code(), Some(2), "no configuration");
    assert!(text(&output.stderr).contains("To start, write lint.toml:"));

    fs::write(
        folder.path().join("lint.toml"),
        "[crates.some]\nfloor = 0\n",
    )
    .unwrap();
    let output = xtask(&["lint", "--manifest-path", manifest]);
    assert_eq!(output.status.code(), Some(0), "nothing to find");

    assert_eq!(
        xtask(&["ci", "--only", "no-such-step"]).status.code(),
        Some(2),
        "usage"
    );
}

#[test]
fn a_domain_that_can_not_be_made_exits_with_2_and_says_why() {
    let output = xtask(&["new-domain", "Orders", "--in", &corpus()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("\"Orders\" is no name for a domain: write lower-case"));
    // The corpus has a lint.toml, and no kernel to stand on.
    let output = xtask(&["new-domain", "orders", "--in", &corpus()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("add `holdpoint-state` to [workspace.dependencies]"));
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/orders");
    assert!(!made.exists());
}

#[test]
fn one_step_of_ci_runs_alone() {
    let output = xtask(&["ci", "--only", "fmt"]);
    let out = text(&output.stdout);
    assert!(
        out.starts_with("ci: fmt: formatting (cargo fmt --all --check)\n"),
        "{out}"
    );
    assert!(!out.contains("clippy"), "{out}");
}
