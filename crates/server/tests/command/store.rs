//! `state`, and the release notes of the README in folders with and without history.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::json;

use crate::support::{ASK, Home};

#[test]
fn a_first_start_makes_closed_directories() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.asking("ask.workflow.yaml");
    for (path, mode) in [
        (".pi", 0o700),
        (".pi/agent", 0o700),
        (".pi/agent/workflows", 0o700),
        (".pi/agent/workflows/state.sqlite", 0o600),
    ] {
        let found = std::fs::metadata(home.path().join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(found & 0o777, mode, "{path}");
    }
}

#[test]
fn a_backup_is_restored_and_the_old_store_is_kept() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.asking("ask.workflow.yaml");
    let backup = home.work().join("copy.sqlite");
    let path = backup.to_str().unwrap();
    home.ok(&["state", "backup", path]);
    let (status, error) = home.json(&["state", "backup", path]);
    assert_eq!((status, &error["error"]["code"]), (2, &json!("input")));
    home.ok(&["cancel", &run]);
    let restored = home.ok(&["state", "restore", path]);
    let aside = restored["setAside"].as_str().unwrap();
    assert!(std::path::Path::new(aside).exists());
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "waiting");
    let text = home.run(&["state", "restore", path]);
    assert!(text.stdout.contains("the old store is"), "{}", text.stdout);
}

#[test]
fn status_doctor_and_verify_say_what_they_see() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.asking("ask.workflow.yaml");
    let status = home.run(&["state", "status"]);
    assert!(status.stdout.contains("SQLite "), "{}", status.stdout);
    let doctor = home.run(&["state", "doctor"]);
    assert!(
        doctor.stdout.contains("fine     engine: SQLite"),
        "{}",
        doctor.stdout
    );
    assert!(!doctor.stdout.contains("PROBLEM"), "{}", doctor.stdout);
    let verify = home.run(&["state", "verify"]);
    assert!(verify.stdout.ends_with("clean\n"), "{}", verify.stdout);
}

/// CI clones are shallow: the history that is there is told.
#[test]
fn release_notes_of_a_shallow_clone() {
    let origin = Home::with(
        "examples/release-notes.workflow.yaml",
        include_str!("../../../../examples/release-notes.workflow.yaml"),
    );
    git(&origin, &["init", "-q"]);
    git(
        &origin,
        &["commit", "-q", "--allow-empty", "-m", "state: old"],
    );
    git(&origin, &["add", "examples"]);
    git(&origin, &["commit", "-q", "-m", "state: new"]);
    let clone = Home::new();
    let url = format!("file://{}", origin.work().display());
    git(&clone, &["clone", "-q", "--depth", "1", &url, "."]);
    let run = clone.asking("examples/release-notes.workflow.yaml");
    clone.ok(&["answer", &run, r#"{"approved":true}"#]);
    clone.ok(&["work", "--until-idle"]);
    let written = clone.read("target/release-notes.md");
    assert!(
        written.contains("- new (") && !written.contains("- old ("),
        "{written}"
    );
}

/// Runs git in the working directory, whatever the machine's settings are.
pub(crate) fn git(home: &Home, args: &[&str]) {
    let made = Command::new("git")
        .args([
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.invalid",
            "-c",
            "commit.gpgsign=false",
        ])
        .args(args)
        .current_dir(home.work())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

/// What the README promises, in a repository, in one without commits, and in a folder that is none.
#[test]
fn release_notes_with_and_without_history() {
    for prepare in [
        &[] as &[&[&str]],
        &[&["init", "-q"]],
        &[
            &["init", "-q"],
            &["commit", "-q", "--allow-empty", "-m", "state: keep it"],
        ],
    ] {
        let home = Home::with(
            "examples/release-notes.workflow.yaml",
            include_str!("../../../../examples/release-notes.workflow.yaml"),
        );
        for args in prepare {
            git(&home, args);
        }
        let run = home.asking("examples/release-notes.workflow.yaml");
        home.ok(&["answer", &run, r#"{"approved":true}"#]);
        home.ok(&["work", "--until-idle"]);
        let written = home.read("target/release-notes.md");
        let expected = if prepare.len() == 2 {
            "- keep it ("
        } else {
            "No commits."
        };
        assert!(written.contains(expected), "{written}");
        let effects = home.ok(&["effects", "list", "--all", "--run", &run]);
        assert_eq!(effects["effects"].as_array().unwrap().len(), 2);
        assert_eq!(effects["effects"][1]["state"], "applied");
    }
}
