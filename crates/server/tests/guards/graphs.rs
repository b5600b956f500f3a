//! No unfinished graph becomes a run: it is told with its place and its code before anything is stored.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use holdpoint_workflows::file;
use tempfile::TempDir;

/// What has to be there for each mistake below.
const GOOD: &str = "name: graph
startAt: one
nodes:
  one: { compute: 1 }
  two: { compute: 2 }
edges:
  - { from: one, to: two }
";

/// The mistake, what stands in the good file, and what stands there instead.
const MISTAKES: [(&str, &str, &str); 7] = [
    (
        "a choice without a route",
        "to: two",
        "switch: { on: $.x, cases: {} }",
    ),
    (
        "a route to a missing node",
        "to: two",
        "switch: { on: $.x, cases: { a: two, b: three } }",
    ),
    ("a start at a missing node", "startAt: one", "startAt: zero"),
    ("two nodes with one id", "  two:", "  one:"),
    (
        "a loop without a bound",
        "  - { from: one, to: two }",
        "  - { from: one, to: two }\n  - { from: two, to: one }\nmaxSteps: .inf",
    ),
    (
        "an include that reaches itself",
        "nodes:",
        "includes: { again: { workflow: ./graph.workflow.yaml } }\nnodes:",
    ),
    ("a node that nobody reaches", "to: two", "to: one"),
];

#[test]
fn case_123_an_unfinished_graph_is_told_with_its_place_and_starts_nothing() {
    let directory = TempDir::new().unwrap();
    let home = directory.path().join("home");
    let path = directory.path().join("graph.workflow.yaml");
    let run = |more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_holdpoint"))
            .current_dir(directory.path())
            .arg("--home")
            .arg(&home)
            .args(["run", "--detach", "./graph.workflow.yaml"])
            .args(more)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let mut told = String::new();
    for (mistake, from, to) in MISTAKES {
        assert_eq!(GOOD.matches(from).count(), 1, "{from}");
        std::fs::write(&path, GOOD.replace(from, to)).unwrap();
        // What looks at a file and what starts a run are one function: they refuse the same.
        let error = file::read(&path).unwrap_err();
        let code = error.code().unwrap_or("-");
        assert!(0 < error.position.line, "{mistake}");
        let shown = error.to_string();
        let shown = shown.split_once("graph.workflow.yaml:").unwrap().1;
        writeln!(told, "{mistake}\n    {shown} [{code}]").unwrap();

        let output = run(&[]);
        assert_eq!(output.status.code(), Some(2), "{mistake}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(shown), "{mistake}: {stderr}");
        let output = run(&["--json"]);
        assert_eq!(output.status.code(), Some(2), "{mistake}");
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let message = document["error"]["message"].as_str().unwrap();
        assert!(message.contains(shown), "{mistake}: {document}");
        // Not even a store was made for it.
        assert!(!home.exists(), "{mistake}");
    }
    insta::assert_snapshot!(told);
    std::fs::write(&path, GOOD).unwrap();
    assert!(run(&[]).status.success());
}

#[test]
fn case_123_every_loop_has_a_bound_whether_its_file_names_one_or_not() {
    let text = GOOD.replace(
        "  - { from: one, to: two }",
        "  - { from: one, to: two }\n  - { from: two, to: one }",
    );
    let read = file::parse("graph.workflow.yaml", &text).unwrap();
    assert!(0 < read.max_steps());
}
