//! Case 98: text that drives the terminal. None of it may reach a terminal raw, whichever way it comes.

use std::fmt::Write as _;

use crate::store::git;
use crate::support::Home;

const HOSTILE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{9b}31m\u{202e}\u{200b}\r";

/// Nothing but line breaks and tabs may drive the terminal.
fn assert_inert(what: &str, text: &str) {
    let hazard = text.chars().find(|c| {
        (c.is_control() && !matches!(c, '\n' | '\t'))
            || ('\u{202a}'..='\u{202e}').contains(c)
            || ('\u{200b}'..='\u{200f}').contains(c)
    });
    assert_eq!(hazard, None, "{what}: {text:?}");
}

fn check(home: &Home, args: &[&str]) -> String {
    let done = home.run(args);
    assert_inert(&format!("{args:?}"), &done.stdout);
    assert_inert(&format!("{args:?}"), &done.stderr);
    let json = home.run(&[&["--json"], args].concat());
    assert_inert(&format!("{args:?} --json"), &json.stdout);
    serde_json::from_str::<serde_json::Value>(&json.stdout).unwrap();
    done.stdout + &done.stderr
}

#[test]
fn case_098_titles_outputs_errors_requests_and_answers() {
    // YAML refuses such characters as they are, so that only an escape brings them in.
    let mut escaped = String::new();
    for c in HOSTILE.chars() {
        let _ = write!(escaped, "\\u{:04x}", u32::from(c));
    }
    let hostile = format!("\"{escaped}\"");
    let home = Home::with(
        "evil.workflow.yaml",
        &format!(
            r"
name: evil
title: {{ jq: '{hostile}' }}
startAt: out
nodes:
  out:
    statusDetail: {hostile}
    compute: {{ jq: '{{ text: {hostile} }}' }}
  ask:
    checkpoint:
      summary: {hostile}
      request: {{ text: {{ jq: $outputs.out.text }} }}
  fail:
    compute: {{ jq: 'error({hostile})' }}
edges:
  - {{ from: out, to: ask }}
  - {{ from: ask, to: fail }}
"
        ),
    );
    let said = check(&home, &["run", "evil.workflow.yaml", "--key", HOSTILE]);
    assert!(
        said.contains("␛]0;owned␇␛[2J‹U+009B›31m‹U+202E›‹U+200B›␍"),
        "{said}"
    );
    let run = home.newest();
    check(&home, &["list"]);
    check(&home, &["show", &run]);
    check(&home, &["explain", &run]);
    check(&home, &["answer", &run, &hostile]);
    check(&home, &["work", "--until-idle"]);
    check(&home, &["show", &run]);
    check(&home, &["explain", &run]);
    check(&home, &["effects", "list", "--all"]);
    check(&home, &["state", "status"]);
}

#[test]
fn an_error_of_several_lines_is_told_as_one() {
    let home = Home::with(
        "forge.workflow.json",
        r#"{ "name": "forge", "startAt": "a", "nodes": { "a": { "compute": { "jq": "error(\"x\\ncompleted\")" } } } }"#,
    );
    let run = home.run(&["run", "forge.workflow.json"]);
    assert!(
        run.stdout.contains("ExpressionError: x\n  completed\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn a_run_of_a_directory_that_it_could_not_keep_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let home = Home::with("ask.workflow.yaml", crate::support::ASK);
    let file = home.work().join("ask.workflow.yaml");
    let directory = home.work().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    std::fs::create_dir(&directory).unwrap();
    let args = ["run", file.to_str().unwrap(), "--detach"];
    let refused = home
        .command(&args)
        .current_dir(&directory)
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("working directory: "),
        "{refused:?}"
    );
    assert!(!home.store().exists());
}

#[test]
fn case_098_arguments_and_file_names() {
    let home = Home::new();
    check(&home, &["show", HOSTILE]);
    check(&home, &[HOSTILE]);
    check(&home, &["run", HOSTILE]);
    check(&home, &["list", "--status", HOSTILE]);
    check(&home, &["run", &format!("./{HOSTILE}.workflow.yaml")]);
    home.write(&format!("{HOSTILE}.workflow.yaml"), "nothing: here\n");
    check(&home, &["run", &format!("./{HOSTILE}.workflow.yaml")]);
    home.write(
        &format!("{HOSTILE}.workflow.yaml"),
        "name: one\nstartAt: a\nnodes: { a: { compute: 1 } }\nedges: []\n",
    );
    check(&home, &["run", &format!("./{HOSTILE}.workflow.yaml")]);
    check(&home, &["show", &home.newest()]);
    check(&home, &["state", "backup", &format!("{HOSTILE}.sqlite")]);
}

#[test]
fn case_098_subjects_of_the_git_history() {
    let home = Home::with(
        "release-notes.workflow.yaml",
        include_str!("../../../../examples/release-notes.workflow.yaml"),
    );
    git(&home, &["init", "-q"]);
    git(
        &home,
        &[
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            &format!("area: {HOSTILE}text"),
        ],
    );
    let said = check(&home, &["run", "release-notes.workflow.yaml"]);
    assert!(said.contains("␛]0;owned"), "{said}");
}

/// A directory may have a name that drives the terminal: the hint to go there is inert, and a shell reads it back.
#[test]
fn case_098_the_directory_of_a_hint() {
    let home = Home::with("ask.workflow.yaml", crate::support::ASK);
    let file = home.work().join("ask.workflow.yaml");
    let name = format!("it's\n{HOSTILE}error: forged");
    let directory = home.work().join(&name);
    std::fs::create_dir(&directory).unwrap();
    let args = ["run", file.to_str().unwrap(), "--detach"];
    let started = home
        .command(&args)
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let told = check(&home, &["work", "--until-idle"]);
    let line = told.lines().find(|line| line.contains("cd $'")).unwrap();
    let (_, cd) = line.split_once("by: ").unwrap();
    let (cd, _) = cd.split_once(" && ").unwrap();
    let script = format!("{cd} && pwd");
    let there = std::process::Command::new("bash")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&there.stdout),
        format!("{}\n", directory.canonicalize().unwrap().display())
    );
}

#[test]
fn a_cause_of_several_lines_begins_no_line_of_its_own() {
    let home = Home::new();
    home.write(
        "odd.workflow.yaml",
        "name: one\nstartAt: a\nnodes: { a: { compute: 1 } }\nedges: []\n",
    );
    let done = home.run(&["run", "./no\nerror: forged.workflow.yaml"]);
    assert!(
        !done
            .stderr
            .lines()
            .any(|line| line.starts_with("error: forged")),
        "{}",
        done.stderr
    );
}
