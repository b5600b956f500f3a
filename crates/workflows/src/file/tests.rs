//! Workflow files: what is read, and the place and words of every mistake.

mod includes;
mod mistakes;
mod random;
mod settings;
mod talk;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::{Value, json};

use super::*;
use crate::definition::{
    ActionExecution, CancellationSignal, NodeContext, NodeError, NodeKind, TimeBudget, Timeout,
};
use crate::id::{AttemptId, NodeId, RunId};
use crate::routing::{self, Next, NodeOutcome, NodeResult};
use crate::shell;

/// A run in memory: enough to try a definition, with answers for its checkpoints.
struct Trial<'d> {
    definition: &'d Definition,
    input: Value,
    outputs: BTreeMap<NodeId, Value>,
    results: BTreeMap<NodeId, NodeResult>,
    requests: Vec<Value>,
    steps: Vec<NodeId>,
}

impl<'d> Trial<'d> {
    fn new(definition: &'d Definition, input: Value) -> Self {
        let input = definition.normalize_input(input).unwrap();
        let (outputs, results) = (BTreeMap::new(), BTreeMap::new());
        Self {
            definition,
            input,
            outputs,
            results,
            requests: Vec::new(),
            steps: Vec::new(),
        }
    }

    fn run(&mut self, answers: &[Value]) -> Next {
        let mut answers = answers.iter();
        let mut node = self.definition.start_at().clone();
        loop {
            if let Err(failure) =
                routing::check_max_steps(self.definition, |_| self.steps.len() as u64, &node)
            {
                return Next::Fail(failure);
            }
            let outcome = self.step(&node, &mut answers);
            let result = result(&node, self.definition, outcome);
            self.steps.push(node.clone());
            routing::apply(&mut self.outputs, &mut self.results, result.clone());
            match routing::next(self.definition, &result) {
                Next::Node(next) => node = next,
                end => return end,
            }
        }
    }

    fn context<'a>(
        &'a self,
        node_id: &'a NodeId,
        run_id: &'a RunId,
        attempt_id: &'a AttemptId,
    ) -> NodeContext<'a> {
        NodeContext {
            publisher: crate::updates::Publisher::default(),
            run_id,
            node_id,
            visit: routing::visit_number(node_id, &self.steps),
            attempt_id,
            input: &self.input,
            outputs: &self.outputs,
            results: &self.results,
            cancellation: CancellationSignal::never(),
            settings: None,
            effect_id: None,
        }
    }

    fn step(
        &mut self,
        id: &NodeId,
        answers: &mut std::slice::Iter<'_, Value>,
    ) -> Result<Value, NodeError> {
        let (run_id, attempt_id) = (
            RunId::new("run-1").unwrap(),
            AttemptId::new("attempt-1").unwrap(),
        );
        let context = self.context(id, &run_id, &attempt_id);
        match &self.definition.node(id).unwrap().kind {
            NodeKind::Compute(compute) => (compute.run)(&context),
            NodeKind::Action(action) => {
                action.effect.resolve_request(&context)?;
                match &action.execution {
                    ActionExecution::Function(run) => run(&context),
                    ActionExecution::Shell(action) => {
                        let command = (action.exec)(&context)?;
                        let run = shell::run(&command, &context.cancellation);
                        let result = run.result.map_err(shell::ShellFailure::into_node_error)?;
                        match &action.parse {
                            Some(parse) => parse(&context, &result),
                            None => Ok(serde_json::to_value(result)?),
                        }
                    }
                }
            }
            NodeKind::Checkpoint(checkpoint) => {
                if let Some(run) = &checkpoint.run {
                    let request = run(&context)?;
                    self.requests.push(request);
                }
                Ok(answers
                    .next()
                    .expect("an answer for each checkpoint")
                    .clone())
            }
            _ => unreachable!("these files have no other kinds"),
        }
    }
}

fn result(id: &NodeId, definition: &Definition, outcome: Result<Value, NodeError>) -> NodeResult {
    NodeResult {
        attempt_id: AttemptId::new("attempt-1").unwrap(),
        node_id: id.clone(),
        node_type: definition.node(id).unwrap().kind.node_type().to_owned(),
        outcome: outcome
            .as_ref()
            .map_or_else(NodeError::outcome, |_| NodeOutcome::Ok),
        started_at: 0,
        finished_at: 1,
        duration_ms: 1,
        error: outcome.as_ref().err().map(ToString::to_string),
        output: outcome.ok(),
        receipt: None,
    }
}

fn example(name: &str) -> WorkflowFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name);
    read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Those that need a node kind of a crate above: its own tests read them.
const OF_OTHERS: &[&str] = &["ship.workflow.yaml"];

#[test]
fn all_examples_of_this_crate_are_read() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut count = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if is_workflow_file(&path) && !OF_OTHERS.contains(&name) {
            let file = read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert!(
                path.file_name()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .starts_with(file.definition.name())
            );
            count += 1;
        }
    }
    assert!(4 <= count);
}

/// Up to the file itself, which the test of the built-in action writes: this one must not write into
/// the repository.
#[test]
fn the_release_notes_are_drafted_from_the_history() {
    let file = example("release-notes.workflow.yaml");
    let mut trial = Trial::new(&file.definition, json!({"limit": 20}));
    let end = trial.run(&[json!({"approved": false, "reason": "later"})]);
    assert_eq!(
        end,
        Next::Complete(json!({"published": false, "reason": "later"}))
    );
    let request = &trial.requests[0];
    assert_eq!(request["file"], "target/release-notes.md");
    let draft = request["draft"].as_str().unwrap();
    assert!(draft.starts_with("# Release notes\n\n"), "{draft}");
    // An unpacked archive of the project has no history.
    assert!(
        draft.ends_with("\nNo commits.\n")
            || draft
                .lines()
                .any(|line| line.starts_with("- ") && line.ends_with(')')),
        "{draft}"
    );
    assert_eq!(
        file.definition
            .resolve_title(&trial.input)
            .unwrap()
            .unwrap(),
        "Release notes: target/release-notes.md"
    );
}

/// Edge case 22 of the workflows reference, in a file.
#[test]
fn a_loop_ends_or_meets_its_limit() {
    let file = example("countdown.workflow.yaml");
    let mut trial = Trial::new(&file.definition, json!({"from": 3}));
    assert_eq!(
        trial.run(&[]),
        Next::Complete(json!("lift-off after 3 steps"))
    );
    assert_eq!(trial.steps.len(), 4);
    let mut trial = Trial::new(&file.definition, json!({"from": 50}));
    let Next::Fail(failure) = trial.run(&[]) else {
        panic!("it should fail")
    };
    assert_eq!(
        failure.to_string(),
        "workflow \"countdown\" reached its limit of 20 steps before node \"count\""
    );
    assert_eq!(trial.steps.len(), 20);
}

#[test]
fn a_failure_takes_its_route() {
    let file = example("fallback.workflow.yaml");
    let mut trial = Trial::new(&file.definition, Value::Null);
    let Next::Complete(output) = trial.run(&[]) else {
        panic!("it should complete")
    };
    assert_eq!(output["commit"], Value::Null);
    assert!(
        output["why"]
            .as_str()
            .unwrap()
            .starts_with("CommandFailed: "),
        "{output}"
    );
}

#[test]
fn a_json_file_is_the_same_thing() {
    let file = example("approve.workflow.json");
    let mut trial = Trial::new(&file.definition, json!({"subject": "x"}));
    assert_eq!(
        trial.run(&[json!("no")]),
        Next::Complete(json!({"approved": false}))
    );
    assert_eq!(trial.requests[0]["subject"], "x");
    let mut trial = Trial::new(&file.definition, json!({"subject": "x"}));
    let Next::Fail(failure) = trial.run(&[json!("maybe")]) else {
        panic!("it should fail")
    };
    assert!(
        failure.to_string().contains("no case for \"maybe\""),
        "{failure}"
    );
}

#[test]
fn the_identity_is_path_and_bytes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.workflow.yaml");
    let text = "name: a\nstartAt: n\nnodes: { n: { compute: 1 } }\n";
    std::fs::write(&path, text).unwrap();
    let first = read(&path).unwrap();
    assert_eq!(first.source.reference(), path.to_str().unwrap());
    assert_eq!(first.source.source_type(), "file");
    assert_eq!(
        first.source,
        SourceIdentity::from_parts("file", &first.source.reference(), first.source.revision())
            .unwrap()
    );
    std::fs::write(&path, format!("# A comment\n{text}")).unwrap();
    let second = read(&path).unwrap();
    assert_ne!(first.source, second.source);
    assert_eq!(first.definition.digest(), second.definition.digest());
}

/// Case 56: what decides behaviour changes the digest of a file's definition, the rest does not.
#[test]
fn case_56_the_digest_covers_what_a_file_says_of_behaviour() {
    let text = "name: a
title: A title
input:
  fields:
    who: { type: string, default: x, description: Who }
startAt: one
nodes:
  one: { compute: { jq: $input.who }, statusDetail: Working }
  two: { checkpoint: { summary: Go on?, request: { jq: $outputs.one } }, timeoutMs: null }
  three: { shell: { argv: [echo, hello], effect: { type: echo, recovery: manual } } }
edges:
  - { from: one, to: two }
  - { from: two, switch: { on: $.go, cases: { true: three } } }
";
    let digest = |text: &str| parse("a.workflow.yaml", text).unwrap().digest();
    let same = [
        ("A title", "Another title"),
        ("Working", "Working hard"),
        ("Go on?", "Shall it go on?"),
        ("description: Who", "description: Whoever"),
        ("name: a\n", "# comment\nname: \"a\"\n"),
    ];
    for (from, to) in same {
        assert!(text.contains(from));
        assert_eq!(
            digest(text),
            digest(&text.replace(from, to)),
            "{from} -> {to}"
        );
    }
    let other = [
        ("name: a", "name: b"),
        ("default: x", "default: y"),
        ("jq: $input.who", "jq: $input.who + \"\""),
        ("request: { jq: $outputs.one }", "request: { jq: $outputs }"),
        ("timeoutMs: null", "timeoutMs: 5"),
        ("[echo, hello]", "[echo, hallo]"),
        ("recovery: manual", "recovery: idempotent"),
        ("type: echo", "type: echo2"),
        ("on: $.go", "on: $.stop"),
        ("true: three", "yes: three"),
    ];
    for (from, to) in other {
        assert!(text.contains(from));
        assert_ne!(
            digest(text),
            digest(&text.replace(from, to)),
            "{from} -> {to}"
        );
    }
}

#[test]
fn inputs_are_checked_field_by_field() {
    let text = "name: a
input:
  fields:
    who: { type: string }
    count: { type: integer, default: 3 }
    extra: { type: any, optional: true }
  normalize: { jq: '. + {twice: (.count * 2)}' }
startAt: n
nodes: { n: { compute: 1 } }
";
    let definition = parse("a.workflow.yaml", text).unwrap();
    let mut table = String::new();
    for input in [
        json!({"who": "x"}),
        json!({"who": "x", "count": 4.0, "extra": [1]}),
        json!(null),
        json!([]),
        json!({"who": 1}),
        json!({"who": "x", "count": 1.5}),
        json!({"who": "x", "cuont": 1}),
        json!({"who": "x", "extra": null}),
    ] {
        let found = match definition.normalize_input(input.clone()) {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        writeln!(table, "{input} => {found}").unwrap();
    }
    insta::assert_snapshot!(table, @r#"
    {"who":"x"} => {"count":3,"twice":6,"who":"x"}
    {"count":4.0,"extra":[1],"who":"x"} => {"count":4,"extra":[1],"twice":8,"who":"x"}
    null => InputError: input "who" is missing; it is a string
    [] => InputError: the input must be an object, not []
    {"who":1} => InputError: input "who" must be a string, not 1
    {"count":1.5,"who":"x"} => InputError: input "count" must be an integer, not 1.5
    {"cuont":1,"who":"x"} => InputError: unknown input "cuont", did you mean "count"?; allowed are who, count, extra
    {"extra":null,"who":"x"} => {"count":3,"extra":null,"twice":6,"who":"x"}
    "#);
}

#[test]
fn commands_are_lists_of_arguments() {
    let text = r#"name: a
startAt: n
nodes:
  n:
    timeoutMs: { jq: '$input.n * 1000' }
    shell:
      argv: [printf, "%s|", "$(id)", "{ jq: .x }", { jq: '"a b", "c" | [.] | .[0]' }, 1.0, true]
      env: { NAME: { jq: $input.n } }
      cwd: /
      allowNonZeroExit: true
      maxOutputChars: 10
      effect: { type: " print ", recovery: manual, request: { n: { jq: $input.n } } }
"#;
    let text = text.replace(r#"'"a b", "c" | [.] | .[0]'"#, r#"'["a b", "; rm", 2]'"#);
    let definition = parse("a.workflow.yaml", &text).unwrap();
    let trial = Trial::new(&definition, json!({"n": 2}));
    let id = NodeId::new("n").unwrap();
    let node = definition.node(&id).unwrap();
    let (run_id, attempt_id) = (RunId::new("r").unwrap(), AttemptId::new("a").unwrap());
    let context = NodeContext {
        publisher: crate::updates::Publisher::default(),
        run_id: &run_id,
        node_id: &id,
        visit: 1,
        attempt_id: &attempt_id,
        input: &trial.input,
        outputs: &trial.outputs,
        results: &trial.results,
        cancellation: CancellationSignal::never(),
        settings: None,
        effect_id: Some("effect-1"),
    };
    assert_eq!(
        node.timeout.resolve(&context),
        Ok(TimeBudget::Millis(2000.0))
    );
    let NodeKind::Action(action) = &node.kind else {
        panic!("an action")
    };
    assert_eq!(action.effect.effect_type, "print");
    assert_eq!(action.effect.resolve_request(&context), Ok(json!({"n": 2})));
    let ActionExecution::Shell(shell) = &action.execution else {
        panic!("a command")
    };
    let command = (shell.exec)(&context).unwrap();
    assert_eq!(command.command, "printf");
    assert_eq!(
        command.args,
        [
            "%s|",
            "$(id)",
            "{ jq: .x }",
            "a b",
            "; rm",
            "2",
            "1",
            "true"
        ]
    );
    assert_eq!(command.env["NAME"], "2");
    assert_eq!(command.cwd.as_deref(), Some(Path::new("/")));
    assert_eq!(
        (command.allow_non_zero_exit, command.max_output_chars),
        (true, 10)
    );
}

#[test]
fn timeouts() {
    let timeout = |text: &str| {
        let text = format!("name: a\nstartAt: n\nnodes: {{ n: {{ compute: 1{text} }} }}\n");
        let definition = parse("a.workflow.yaml", &text).unwrap();
        format!("{:?}", definition.nodes().values().next().unwrap().timeout)
    };
    assert_eq!(timeout(""), format!("{:?}", Timeout::Default));
    assert_eq!(
        timeout(", timeoutMs: null"),
        format!("{:?}", Timeout::Unlimited)
    );
    assert_eq!(timeout(", timeoutMs: 0.5"), "Fixed(0.5)");
    assert_eq!(timeout(", timeoutMs: { jq: '1' }"), "Function");
}

#[test]
fn files_that_are_none() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    assert!(matches!(
        read(at("no.workflow.yaml")).unwrap_err().problem,
        Problem::Read { .. }
    ));
    std::fs::write(at("a.yaml"), "name: a").unwrap();
    assert_eq!(read(at("a.yaml")).unwrap_err().problem, Problem::Suffix);
    std::fs::write(at("big.workflow.yaml"), vec![b'#'; 1024 * 1024 + 1]).unwrap();
    assert!(matches!(
        read(at("big.workflow.yaml")).unwrap_err().problem,
        Problem::Read { .. }
    ));
    // What can't be read to its end: a pipe that nobody writes into, a device, a folder.
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe.workflow.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", at("device.workflow.yaml")).unwrap();
    std::fs::create_dir(at("folder.workflow.yaml")).unwrap();
    // What no run could find again, since it keeps the path as text.
    let odd = std::ffi::OsStr::from_bytes(b"odd\xff.workflow.yaml");
    std::fs::write(
        home.path().join(odd),
        "name: a\nstartAt: a\nnodes: { a: { compute: 1 } }",
    )
    .unwrap();
    let problem = read(home.path().join(odd)).unwrap_err().to_string();
    assert!(problem.contains("not UTF-8; rename"), "{problem}");
    for name in ["pipe", "device", "folder"] {
        assert!(matches!(
            read(at(&format!("{name}.workflow.yaml")))
                .unwrap_err()
                .problem,
            Problem::Read { .. }
        ));
    }
    std::fs::write(at("bytes.workflow.yaml"), b"name: a\ntitle: \xff\n").unwrap();
    let error = read(at("bytes.workflow.yaml")).unwrap_err();
    assert_eq!(error.position, Position { line: 2, column: 8 });
    for (name, is) in [
        ("a.workflow.yaml", true),
        ("a.workflow.yml", true),
        ("a.workflow.json", true),
        (".workflow.json", false),
        ("a.json", false),
        ("workflow.yaml", false),
    ] {
        assert_eq!(is_workflow_file(Path::new(name)), is, "{name}");
    }
}

#[test]
fn a_file_of_brackets_is_refused_before_the_stack_ends() {
    for text in ["[", "{\"a\":", "[{\"a\":"] {
        let deep = text.repeat(1024 * 1024 / text.len());
        for name in ["a.workflow.json", "a.workflow.yaml"] {
            let error = parse(name, &deep).unwrap_err();
            assert!(
                matches!(error.problem, Problem::Syntax { .. }),
                "{name} {text}: {error}"
            );
        }
    }
    // In JSON as in YAML, 64 levels and no more.
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    for name in ["a.workflow.json", "a.workflow.yaml"] {
        let too_deep = |depth| {
            let error = parse(name, &nested(depth)).unwrap_err().to_string();
            error.contains("64 levels")
        };
        assert!(!too_deep(65), "{name}");
        assert!(too_deep(66), "{name}");
    }
}

#[test]
fn the_schema_is_a_document() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&json_schema()).unwrap());
}
