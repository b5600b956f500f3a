//! The verbs on runs, in text and as documents.

use std::fmt::Write as _;

use serde_json::json;

use crate::support::{ASK, Home, held, plain_document};

#[test]
fn a_run_asks_is_answered_and_completes_in_text() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let mut told = String::new();
    let mut tell = |args: &[&str]| {
        let done = home.run(args);
        let shown: Vec<String> = args.iter().map(|arg| home.plain(arg)).collect();
        let _ = write!(
            told,
            "$ holdpoint {}   # {}\n{}{}\n",
            shown.join(" "),
            done.status,
            home.plain(&done.stdout),
            home.plain(&done.stderr)
        );
    };
    tell(&["list"]);
    tell(&[
        "run",
        "ask.workflow.yaml",
        "--input",
        r#"{"what":"tea"}"#,
        "--key",
        "one",
    ]);
    let run = home.newest();
    tell(&["list"]);
    tell(&["show", &run]);
    tell(&["explain", &run]);
    tell(&["pause", &run, "--reason", "lunch"]);
    tell(&["pause", &run]);
    tell(&["answer", &run, "true"]);
    tell(&["resume", &run]);
    tell(&["answer", &run, r#"{"yes":1}"#, "--key", "k"]);
    tell(&["answer", &run, r#"{"yes":1}"#, "--key", "k"]);
    tell(&["answer", &run, r#"{"yes":2}"#, "--key", "k"]);
    tell(&["work", "--until-idle"]);
    tell(&["show", &run]);
    tell(&["explain", &run]);
    tell(&[
        "run",
        "ask.workflow.yaml",
        "--input",
        r#"{"what":"tea"}"#,
        "--key",
        "one",
    ]);
    tell(&["restart", &run]);
    tell(&["cancel", &home.newest()]);
    insta::assert_snapshot!(told);
}

#[test]
fn documents_of_a_run() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let mut told = Vec::new();
    let mut tell = |args: &[&str]| {
        let (status, document) = home.json(args);
        let shown: Vec<String> = args.iter().map(|arg| home.plain(arg)).collect();
        told.push(json!({
            "command": shown.join(" "),
            "exit": status,
            "document": plain_document(&home, &document),
        }));
    };
    tell(&["list"]);
    tell(&["run", "ask.workflow.yaml"]);
    let run = home.newest();
    tell(&["list", "--status", "waiting"]);
    tell(&["explain", &run]);
    tell(&["pause", &run]);
    tell(&["resume", &run]);
    tell(&["answer", &run, "\"yes\"", "--key", "k"]);
    tell(&["answer", &run, "\"no\""]);
    tell(&["work", "--until-idle"]);
    tell(&["show", &run]);
    tell(&["restart", &run]);
    tell(&["cancel", &home.newest()]);
    tell(&["cancel", &run]);
    insta::assert_json_snapshot!(told);
}

#[test]
fn a_start_with_a_key_meets_its_earlier_self() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let start =
        |input: &str| home.json(&["run", "ask.workflow.yaml", "--key", "k", "--input", input]);
    let (status, first) = start(r#"{"what":"a"}"#);
    assert_eq!((status, &first["adopted"]), (3, &json!(false)));
    let (status, again) = start(r#"{"what":"a"}"#);
    assert_eq!((status, &again["adopted"]), (3, &json!(true)));
    assert_eq!(first["runId"], again["runId"]);
    let (status, error) = start(r#"{"what":"b"}"#);
    assert_eq!((status, &error["error"]["code"]), (4, &json!("conflict")));
}

#[test]
fn a_detached_run_is_executed_by_work() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let reserved = home.ok(&["run", "ask.workflow.yaml", "--detach"]);
    assert_eq!(reserved["displayStatus"], "queued");
    let worked = home.ok(&["work", "--until-idle"]);
    assert_eq!(worked["stopped"], "idle");
    assert_eq!(worked["runs"][0]["displayStatus"], "waiting");
}

/// A node's files and commands are relative to the working directory, so that no other directory may do.
#[test]
fn a_run_stays_in_its_directory() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.ok(&["run", "ask.workflow.yaml", "--detach"]);
    let run = run["runId"].as_str().unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut work = home.command(&["work", "--until-idle"]);
    let output = work.current_dir(other.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("belongs to another directory"), "{said}");
    assert_eq!(home.ok(&["show", run])["displayStatus"], "queued");
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", run])["displayStatus"], "waiting");
}

#[test]
fn run_leaves_other_runs_alone() {
    let home = Home::with("ask.workflow.yaml", ASK);
    home.write(
        "done.workflow.yaml",
        "name: done\nstartAt: a\nnodes: { a: { compute: 1 } }\nedges: []\n",
    );
    let other = home.ok(&["run", "ask.workflow.yaml", "--detach"]);
    let (status, _) = home.json(&["run", "done.workflow.yaml"]);
    assert_eq!(status, 0);
    let other = home.ok(&["show", other["runId"].as_str().unwrap()]);
    assert_eq!(other["displayStatus"], "queued");
}

/// Workflows reference, section 2.12: the project before the home, the first of a name wins.
#[test]
fn names_are_looked_for_in_the_project_and_then_in_the_home() {
    let home = Home::new();
    let workflow = |value: u8| {
        format!("name: one\nstartAt: a\nnodes: {{ a: {{ compute: {value} }} }}\nedges: []\n")
    };
    let (status, error) = home.json(&["run", "one"]);
    assert_eq!((status, &error["error"]["code"]), (7, &json!("notFound")));
    let global = home.path().join(".pi/agent/workflows/definitions");
    std::fs::create_dir_all(&global).unwrap();
    for directory in [".pi", ".pi/agent", ".pi/agent/workflows"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(home.path().join(directory), mode).unwrap();
    }
    std::fs::write(global.join("one.workflow.yaml"), workflow(3)).unwrap();
    assert_eq!(home.ok(&["run", "one"])["finalOutput"], 3);
    home.write("workflows/one.workflow.yaml", &workflow(2));
    assert_eq!(home.ok(&["run", "one"])["finalOutput"], 2);
    home.write(
        ".pi/workflows/one.workflow.json",
        r#"{"name":"one","startAt":"a","nodes":{"a":{"compute":1}},"edges":[]}"#,
    );
    assert_eq!(home.ok(&["run", "one"])["finalOutput"], 1);
}

#[test]
fn values_come_from_files_and_standard_input() {
    use std::io::Write as _;
    let home = Home::with("ask.workflow.yaml", ASK);
    home.write("input.json", r#"{"what":"files"}"#);
    let (_, run) = home.json(&["run", "ask.workflow.yaml", "--input", "@input.json"]);
    assert_eq!(run["input"]["what"], "files");
    let run = run["runId"].as_str().unwrap();
    let mut child = home
        .command(&["--json", "answer", run, "@-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"[1,2]").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
    home.ok(&["work", "--until-idle"]);
    assert_eq!(
        home.ok(&["show", run])["finalOutput"],
        json!({ "answer": [1, 2] })
    );
}

/// Cases 55 and 56: a harmless edit does not matter; a harmful one parks the run, says what differs and can be accepted.
#[test]
fn case_055_a_changed_definition_is_refused_with_its_difference_and_can_be_accepted() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.asking("ask.workflow.yaml");
    home.ok(&["pause", &run]);

    home.write("ask.workflow.yaml", &ASK.replace("Ask about", "Asking for"));
    home.ok(&["resume", &run]);
    home.ok(&["pause", &run]);

    home.write(
        "ask.workflow.yaml",
        &ASK.replace("\"nothing\"", "\"everything\""),
    );
    let (status, error) = home.json(&["resume", &run]);
    assert_eq!(
        (status, &error["error"]["code"]),
        (4, &json!("workflowSourceChanged"))
    );
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains("everything"), "{said}");
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "paused");

    home.ok(&["resume", &run, "--accept-definition"]);
    home.ok(&["resume", &run]);
    home.ok(&["answer", &run, "1"]);
    home.ok(&["work", "--until-idle"]);
    assert_eq!(home.ok(&["show", &run])["displayStatus"], "completed");
}

/// A file that is gone has nothing that could be accepted.
#[test]
fn a_run_whose_file_is_gone_says_so() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let run = home.asking("ask.workflow.yaml");
    home.ok(&["pause", &run]);
    let gone = |home: &Home| {
        for args in [
            &["resume", &run] as &[&str],
            &["resume", &run, "--accept-definition"],
        ] {
            let (status, error) = home.json(args);
            assert_eq!(
                (status, &error["error"]["code"]),
                (2, &json!("workflowFile")),
                "{args:?}: {error:#}"
            );
            assert_eq!(error["error"]["resource"]["key"], run);
            let text = home.run(args);
            assert!(text.stderr.contains("put it back"), "{}", text.stderr);
            assert!(!text.stderr.contains("--accept"), "{}", text.stderr);
        }
    };
    std::fs::remove_file(home.work().join("ask.workflow.yaml")).unwrap();
    gone(&home);
    home.write("ask.workflow.yaml", "name: [");
    gone(&home);
    home.write("ask.workflow.yaml", ASK);
    home.ok(&["resume", &run]);
}

/// Work that leaves a run alone until somebody steps in says so: when it parks it, and when it finds it parked.
#[test]
fn work_warns_of_parked_runs() {
    let home = Home::with("ask.workflow.yaml", ASK);
    let started = home.ok(&["run", "ask.workflow.yaml", "--detach"]);
    let run = started["runId"].as_str().unwrap();
    home.write("ask.workflow.yaml", &ASK.replace("nothing", "everything"));
    for _ in 0..2 {
        let worked = home.run(&["work", "--until-idle"]);
        assert_eq!(worked.status, 0);
        assert_eq!(worked.stderr.lines().count(), 1, "{}", worked.stderr);
        let begin = format!("warning: {run} is parked (workflowSourceChanged)");
        assert!(worked.stderr.starts_with(&begin), "{}", worked.stderr);
        assert!(
            worked.stderr.contains(&format!("explain {run}")),
            "{}",
            worked.stderr
        );
    }
    home.ok(&["resume", run, "--accept-definition"]);
    let worked = home.run(&["work", "--until-idle"]);
    assert_eq!(worked.stderr, "");
}

/// Case 49: nobody has to ask why a run stands still.
#[test]
fn case_049_explain_says_who_holds_a_run() {
    let home = Home::with("held.workflow.yaml", &held("idempotent"));
    let running = home.spawn(&["run", "held.workflow.yaml"]);
    home.wait_for_file("started");
    let explained = home.ok(&["explain", &home.newest()]);
    assert_eq!(explained["blockedBy"], "lease");
    assert_eq!(explained["holder"]["live"], true);
    assert_eq!(explained["generation"], 1);
    home.write("go", "");
    assert_eq!(running.end().status, 0);
}

#[test]
fn a_file_includes_workflows_by_path_and_by_name() {
    let home = Home::with(
        "both.workflow.yaml",
        r"
name: both
startAt: begin
nodes:
  begin: { compute: 1 }
includes:
  near: { workflow: ./parts/one.workflow.yaml }
  named: { workflow: two, input: { n: { jq: $outputs.near.output } } }
edges:
  - { from: begin, to: near }
  - { from: near.done, to: named }
",
    );
    let part = |name: &str, jq: &str| {
        format!(
            "name: {name}\nstartAt: work\nnodes: {{ work: {{ compute: {{ jq: '{jq}' }} }} }}\nexits: {{ done: {{ from: work }} }}\n"
        )
    };
    home.write("parts/one.workflow.yaml", &part("one", "20"));
    let missing = home.run(&["run", "both.workflow.yaml"]);
    assert!(
        missing.stderr.contains("both.workflow.yaml:8:22: ")
            && missing.stderr.contains("unknown workflow \"two\""),
        "{}",
        missing.stderr
    );
    home.write("workflows/two.workflow.yaml", &part("two", "$input.n + 1"));
    let shown = home.ok(&["run", "both.workflow.yaml"]);
    assert_eq!(
        shown["finalOutput"],
        json!({ "exit": "done", "output": 21 })
    );
    let mounted: Vec<String> = shown["mountedSources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mounted| {
            home.plain(&format!(
                "{} {}",
                mounted["mountPath"], mounted["reference"]
            ))
        })
        .collect();
    assert_eq!(mounted.len(), 2, "{shown}");
    assert!(
        mounted[0].ends_with("workflows/two.workflow.yaml\""),
        "{mounted:?}"
    );
    assert!(
        mounted[1].ends_with("parts/one.workflow.yaml\""),
        "{mounted:?}"
    );
    assert!(shown["definitionDigest"].is_string());
}
