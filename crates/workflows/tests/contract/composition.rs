//! A workflow in another one: what its nodes see, where it ends, which limits hold, and that only its own sources execute it.

mod random;
mod sources;

use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::definition::{Definition, EffectSpec, NodeError, Workflow};
use holdpoint_workflows::model::{RequestStatus, RunStatus, effect_key};
use holdpoint_workflows::settings::Settings;
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{WorkflowError, Workflows, file};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// Adds one to its input: `{ n }` gives `n + 1`.
fn increment() -> Definition {
    Workflow::new("increment")
        .start_at("add")
        .compute("add", |ctx| Ok(number(ctx.input(), "n") + 1))
        .exit("done", "add")
        .build()
        .unwrap()
}

fn number(value: &Value, member: &str) -> i64 {
    value.get(member).and_then(Value::as_i64).unwrap_or(0)
}

fn nodes(view: &RunView) -> Vec<&str> {
    view.steps
        .iter()
        .map(|step| step.result.node_id.as_str())
        .collect()
}

#[test]
fn an_included_workflow_gets_its_input_and_gives_its_output() {
    let fixture = Fixture::new();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(41))
        .include("plus", &increment())
        .input_map(|ctx| Ok(json!({ "n": ctx.output::<i64>("first")? })))
        .compute("last", |ctx| ctx.output::<Value>("plus"))
        .edge("first", "plus")
        .edge("plus.done", "last")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": 42 }))
    );
    assert_eq!(
        nodes(&view),
        ["first", "plus", "plus/add", "plus/__piw_exit_done", "last"]
    );
    let mut events = fixture.events(&view.run_id);
    events.retain(|event| event.starts_with("include_"));
    assert_eq!(events, ["include_entered", "include_exited"]);
    let payloads: Vec<Value> = payloads(&fixture, &view.run_id, "include_");
    assert_eq!(
        payloads,
        [
            json!({ "mountPath": "plus", "workflowName": "increment", "invocation": 1 }),
            json!({ "mountPath": "plus", "workflowName": "increment", "invocation": 1, "exit": "done", "outputStored": true }),
        ]
    );
    // Readers see the alias of the exit, not what was needed to enter.
    let alias = view.results.get("plus").unwrap();
    assert_eq!(alias.node_id.as_str(), "plus/__piw_exit_done");
    assert_eq!(view.outputs.get("plus"), view.final_output.as_ref());
}

/// What the events of a run recorded whose names begin so.
fn payloads(fixture: &Fixture, run: &RunId, prefix: &'static str) -> Vec<Value> {
    let snapshot = fixture.store.db().snapshot().unwrap();
    let sql = snapshot.sql();
    let mut statement = sql
        .prepare_cached(
            "SELECT coalesce(e.payload, b.content) FROM events e JOIN runs r ON r.resource_key = e.resource_key
             LEFT JOIN blobs b ON b.blob_hash = e.payload_blob
             WHERE r.run_id = ?1 AND e.event_type LIKE ?2 || '%' ORDER BY e.event_seq",
        )
        .unwrap();
    statement
        .query_map((run, prefix), |row| row.get::<_, Vec<u8>>(0))
        .unwrap()
        .map(|bytes| serde_json::from_slice(&bytes.unwrap()).unwrap())
        .collect()
}

#[test]
fn edge_026_an_exit_without_a_route_completes_the_run() {
    let fixture = Fixture::new();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("plus", &increment())
        .edge("first", "plus")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!({ "n": 1 }));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": 2 }))
    );
}

#[test]
fn edge_015_an_end_without_an_exit_is_fine_for_a_root_and_refused_in_an_include() {
    let fixture = Fixture::new();
    let open = Workflow::new("open")
        .start_at("pick")
        .compute("pick", |_| Ok(json!({ "way": "b" })))
        .compute("a", |_| Ok("a"))
        .compute("b", |_| Ok("b"))
        .switch("pick", "$.way", [("a", "a"), ("b", "b")])
        .exit("a", "a")
        .build()
        .unwrap();
    assert_eq!(
        fixture.run(&open, json!(null)).final_output,
        Some(json!("b"))
    );
    let error = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("open", &open)
        .edge("first", "open")
        .build()
        .unwrap_err();
    assert_eq!(error.code(), "G9");
    assert!(error.to_string().contains("at b;"), "{error}");
}

#[test]
fn edge_016_one_workflow_is_mounted_twice_side_by_side() {
    let fixture = Fixture::new();
    let child = increment();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("left", &child)
        .include("right", &child)
        .input_map(|ctx| Ok(json!({ "n": ctx.output::<Value>("left")?["output"] })))
        .edge("first", "left")
        .edge("left.done", "right")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!({ "n": 1 }));
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": 3 }))
    );
}

/// Enters `plus` again and again until it gave `until`, with what it gave before as its input.
fn looping(child: &Definition, max_steps: u32) -> Definition {
    Workflow::new("looping")
        .start_at("first")
        .max_steps(max_steps)
        .compute("first", |_| Ok(0))
        .include("plus", child)
        .input_map(|ctx| match ctx.outputs.get("plus") {
            None => Ok(json!({ "n": 0 })),
            Some(before) => Ok(json!({ "n": before.pointer("/output/n") })),
        })
        .compute("judge", |ctx| {
            let given: Value = ctx.output("plus")?;
            let until = Some(number(ctx.input(), "until"));
            Ok(json!({ "again": given.pointer("/output/n").and_then(Value::as_i64) < until, "given": given.get("output") }))
        })
        .compute("end", |ctx| {
            Ok(ctx.output::<Value>("judge")?.get("given").cloned())
        })
        .edge("first", "plus")
        .edge("plus.done", "judge")
        .switch("judge", "$.again", [("true", "plus"), ("false", "end")])
        .build()
        .unwrap()
}

#[test]
fn edge_025_a_mount_that_is_entered_again_begins_clean() {
    let fixture = Fixture::new();
    let inner = increment();
    // It sees an output of `add`, of `see` or of what it includes only if it was made since it was entered.
    let child = Workflow::new("child")
        .start_at("see")
        .compute("see", |ctx| {
            let seen: Vec<String> = ctx.outputs.keys().map(ToString::to_string).collect();
            let known: Vec<String> = ctx.results.keys().map(ToString::to_string).collect();
            Ok(json!([seen, known]))
        })
        .include("inner", &inner)
        .compute("add", |ctx| {
            let names: Vec<String> = ctx.outputs.keys().map(ToString::to_string).collect();
            Ok(json!({
                "n": ctx.output::<Value>("inner")?["output"],
                "before": ctx.output::<Value>("see")?,
                "after": names,
            }))
        })
        .edge("see", "inner")
        .edge("inner.done", "add")
        .exit("done", "add")
        .build()
        .unwrap();
    let view = fixture.run(&looping(&child, 100), json!({ "until": 3 }));
    assert_eq!(
        view.final_output,
        Some(json!({ "n": 3, "before": [[], []], "after": ["inner", "see"] }))
    );
    let entered = payloads(&fixture, &view.run_id, "include_entered");
    let invocations: Vec<(&str, i64)> = entered
        .iter()
        .map(|payload| {
            let path = payload["mountPath"].as_str().unwrap();
            (path, payload["invocation"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(
        invocations,
        [
            ("plus", 1),
            ("plus/inner", 1),
            ("plus", 2),
            ("plus/inner", 2),
            ("plus", 3),
            ("plus/inner", 3)
        ]
    );
}

/// `{ n }` gives `{ n: n + 1 }` after three nodes.
fn three_steps(max_steps: Option<u32>) -> Definition {
    let workflow = Workflow::new("three")
        .start_at("one")
        .compute("one", |_| Ok(1))
        .compute("two", |_| Ok(2))
        .compute("add", |ctx| {
            Ok(json!({ "n": number(ctx.input(), "n") + 1 }))
        })
        .edge("one", "two")
        .edge("two", "add")
        .exit("done", "add");
    match max_steps {
        Some(max_steps) => workflow.max_steps(max_steps),
        None => workflow,
    }
    .build()
    .unwrap()
}

#[test]
fn edge_024_the_limit_of_an_included_workflow_counts_from_its_latest_entry() {
    let fixture = Fixture::new();
    // Three entries of three steps each, and each invocation may make three.
    let view = fixture.run(&looping(&three_steps(Some(3)), 100), json!({ "until": 3 }));
    assert_eq!(view.final_output, Some(json!({ "n": 3 })));
    let view = fixture.run(&looping(&three_steps(Some(2)), 100), json!({ "until": 3 }));
    assert_eq!(view.status, RunStatus::Failed);
    assert_eq!(
        view.error.as_deref(),
        Some("workflow \"three\" reached its limit of 2 steps before node \"plus/add\"")
    );
}

#[test]
fn entering_and_leaving_is_no_step_and_the_root_is_asked_first() {
    let fixture = Fixture::new();
    // first, three steps, judge and end count; what leads in and out does not.
    let definition = |max_steps| looping(&three_steps(Some(3)), max_steps);
    let view = fixture.run(&definition(6), json!({ "until": 1 }));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(view.steps.len(), 8);
    let view = fixture.run(&definition(5), json!({ "until": 1 }));
    assert_eq!(
        view.error.as_deref(),
        Some("workflow \"looping\" reached its limit of 5 steps before node \"end\"")
    );
    // Both limits are reached at the same node: the outer workflow is named.
    let view = fixture.run(&looping(&three_steps(Some(2)), 3), json!({ "until": 1 }));
    assert_eq!(
        view.error.as_deref(),
        Some("workflow \"looping\" reached its limit of 3 steps before node \"plus/add\"")
    );
}

#[test]
fn the_limit_of_a_workflow_counts_what_it_includes() {
    let fixture = Fixture::new();
    // first, three steps inside, last: five.
    let middle = |max_steps| {
        Workflow::new("middle")
            .max_steps(max_steps)
            .start_at("first")
            .compute("first", |_| Ok(()))
            .include("inner", &three_steps(None))
            .compute("last", |_| Ok("last"))
            .edge("first", "inner")
            .edge("inner.done", "last")
            .exit("done", "last")
            .build()
            .unwrap()
    };
    let outer = |max_steps| {
        Workflow::new("outer")
            .start_at("begin")
            .compute("begin", |_| Ok(()))
            .include("middle", &middle(max_steps))
            .edge("begin", "middle")
            .build()
            .unwrap()
    };
    let view = fixture.run(&outer(5), json!({ "n": 1 }));
    assert_eq!(view.status, RunStatus::Completed);
    for (max_steps, node) in [(4, "middle/last"), (3, "middle/inner/add")] {
        let view = fixture.run(&outer(max_steps), json!({ "n": 1 }));
        let expected = format!(
            "workflow \"middle\" reached its limit of {max_steps} steps before node \"{node}\""
        );
        assert_eq!(view.error, Some(expected));
    }
}

#[test]
fn a_failure_inside_does_not_leave_by_an_exit() {
    let fixture = Fixture::new();
    let fails = Workflow::new("fails")
        .start_at("work")
        .compute("work", |_| Err::<(), _>(NodeError::new("it broke")))
        .exit("done", "work")
        .build()
        .unwrap();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("child", &fails)
        .compute("caught", |_| Ok("caught"))
        .edge("first", "child")
        .switch(
            "child.done",
            "$result.outcome",
            [("ok", "caught"), ("failed", "caught")],
        )
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.error.unwrap().contains("\"child/work\" failed"));
}

#[test]
fn an_exit_that_rejects_its_output_can_be_routed_by_the_parent() {
    let fixture = Fixture::new();
    let child = Workflow::new("child")
        .start_at("work")
        .compute("work", |ctx| Ok(ctx.input().clone()))
        .exit("done", "work")
        .validate_exit(|_, n: i64| {
            if n % 2 == 0 {
                Ok(n / 2)
            } else {
                Err(NodeError::new("it is odd"))
            }
        })
        .build()
        .unwrap();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("child", &child)
        .compute("good", |ctx| ctx.output::<Value>("child"))
        .compute("bad", |ctx| {
            let seen = ctx.result("child").and_then(|result| result.error.clone());
            Ok(json!([ctx.outputs.contains_key("child"), seen]))
        })
        .edge("first", "child")
        .switch(
            "child.done",
            "$result.outcome",
            [("ok", "good"), ("failed", "bad")],
        )
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(8));
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": 4 }))
    );
    let view = fixture.run(&definition, json!(7));
    assert_eq!(view.final_output, Some(json!([false, "Error: it is odd"])));
}

#[test]
fn an_input_that_the_included_workflow_refuses_fails_the_run() {
    let fixture = Fixture::new();
    let child = Workflow::new("child")
        .input::<i64>()
        .start_at("work")
        .compute("work", |ctx| Ok(*ctx.input()))
        .exit("done", "work")
        .build()
        .unwrap();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("child", &child)
        .edge("first", "child")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(1));
    assert_eq!(view.status, RunStatus::Completed);
    let view = fixture.run(&definition, json!("one"));
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.error.unwrap().contains("input of workflow \"child\""));
}

/// `ask` in a workflow in a workflow.
fn asking_inside() -> Definition {
    let inner = Workflow::new("inner")
        .start_at("before")
        .compute("before", |ctx| Ok(ctx.input().clone()))
        .checkpoint("ask")
        .request(|ctx| ctx.output::<Value>("before"))
        .action("act", EffectSpec::idempotent("test.act"), |ctx| {
            Ok(json!({
                "input": ctx.input(),
                "before": ctx.output::<Value>("before")?,
                "answer": ctx.output::<Value>("ask")?,
                "effect": ctx.effect_id.is_some(),
            }))
        })
        .edge("before", "ask")
        .edge("ask", "act")
        .exit("done", "act")
        .build()
        .unwrap();
    let middle = Workflow::new("middle")
        .start_at("wrap")
        .compute("wrap", |ctx| Ok(json!({ "wrapped": ctx.input() })))
        .include("inner", &inner)
        .input_map(|ctx| ctx.output::<Value>("wrap"))
        .compute("unwrap", |ctx| {
            Ok(ctx.output::<Value>("inner")?.get("output").cloned())
        })
        .edge("wrap", "inner")
        .edge("inner.done", "unwrap")
        .exit("out", "unwrap")
        .build()
        .unwrap();
    Workflow::new("outer")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("middle", &middle)
        .edge("first", "middle")
        .build()
        .unwrap()
}

#[test]
fn what_an_included_node_sees_is_the_same_after_a_restart_of_the_host() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run(&asking_inside(), json!("hello"))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    assert_eq!(view.waiting_on.unwrap().as_str(), "middle/inner/ask");
    let request = view.request.unwrap();
    assert_eq!(request.contract["request"], json!({ "wrapped": "hello" }));

    // Another process, which only has the definition.
    let later = Workflows::new(fixture.store.db().clone());
    later.register(&asking_inside());
    later.answer(&Answer::new(&run, json!("yes"))).unwrap();
    let scheduler = later
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    let view = later.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(
        view.final_output,
        Some(json!({
            "exit": "out",
            "output": {
                "input": { "wrapped": "hello" },
                "before": { "wrapped": "hello" },
                "answer": "yes",
                "effect": true,
            }
        }))
    );
    let node = "middle/inner/act".parse().unwrap();
    assert_eq!(
        fixture.text("SELECT idempotency_key FROM effects"),
        effect_key(&run, "test.act", &node, 1)
    );
}
#[test]
fn each_mount_has_its_source_and_readers_see_those_that_are_public() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&increment(), json!(null)).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.definition_digest, view.mounted_sources.len()),
        (None, 0)
    );

    let path = fixture.store.directory().join("child.workflow.json");
    std::fs::write(&path, CHILD).unwrap();
    let child = file::read(&path).unwrap().definition;
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("of-file", &child)
        .include("of-program", &increment())
        .edge("first", "of-file")
        .edge("of-file.done", "of-program")
        .build()
        .unwrap();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.definition_digest, Some(definition.digest_text()));
    let mounted: Vec<(&str, &str)> = view
        .mounted_sources
        .iter()
        .map(|mounted| {
            let source = &mounted.source;
            (mounted.mount_path.as_str(), source.reference.as_str())
        })
        .collect();
    assert_eq!(mounted, [("of-file", path.to_str().unwrap())]);
    assert_eq!(fixture.count("SELECT count(*) FROM run_sources"), 4);
}

const CHILD: &str = r#"{
  "name": "child",
  "startAt": "ask",
  "nodes": {
    "ask": { "checkpoint": { "summary": "Go on?" } },
    "end": { "compute": { "jq": "[$input, $outputs.ask]" } }
  },
  "edges": [{ "from": "ask", "to": "end" }],
  "exits": { "done": { "from": "end" } }
}"#;

const PARENT: &str = r#"{
  "name": "parent",
  "startAt": "first",
  "nodes": { "first": { "compute": 1 } },
  "includes": { "child": { "workflow": "./child.workflow.json", "input": { "jq": "$outputs.first" } } },
  "edges": [{ "from": "first", "to": "child" }]
}"#;

#[test]
fn edge_045_an_edited_mount_parks_its_runs_and_the_old_file_lets_them_go_on() {
    let fixture = Fixture::new();
    let directory = fixture.store.directory();
    let (parent, child) = (
        directory.join("parent.workflow.json"),
        directory.join("child.workflow.json"),
    );
    std::fs::write(&parent, PARENT).unwrap();
    std::fs::write(&child, CHILD).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run_file(&file::read(&parent).unwrap(), json!(null))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Waiting);

    // What is only displayed is no change; what is executed is one; and a file that gives no workflow is one too, since the root is
    // as it was.
    let displayed = CHILD.replace("Go on?", "Shall it go on?");
    let changed = CHILD.replace("$outputs.ask]", "$outputs.ask, 2]");
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    for (text, is_refused) in [
        (displayed.as_str(), false),
        (changed.as_str(), true),
        ("{", true),
        (CHILD, false),
    ] {
        std::fs::write(&child, text).unwrap();
        let before = fixture.rows();
        let resumed = fixture.workflows.resume(&Control::of(&run));
        if is_refused {
            let error = resumed.unwrap_err();
            assert!(
                matches!(error, WorkflowError::SourceChanged { .. }),
                "{error}"
            );
            assert_eq!(before, fixture.rows());
        } else {
            resumed.unwrap();
            fixture.workflows.pause(&Control::of(&run)).unwrap();
        }
    }
    fixture.workflows.resume(&Control::of(&run)).unwrap();

    std::fs::write(&child, &changed).unwrap();
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    assert_eq!(view.status, RunStatus::Waiting);
    std::fs::write(&child, CHILD).unwrap();
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": [1, "yes"] }))
    );
    scheduler.stop(LONG);
}

#[test]
fn the_example_asks_again_until_a_person_approves() {
    let fixture = Fixture::new();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/proposal.workflow.yaml");
    let example = file::read(path).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run_file(&example, json!({ "topic": "a holiday" }))
        .unwrap();
    for (asked, answer) in [
        (
            "We propose a holiday.",
            json!({ "approved": false, "reason": "it is hot" }),
        ),
        (
            "We propose a holiday. Besides, it is hot.",
            json!({ "approved": true }),
        ),
    ] {
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        let request = view.request.unwrap();
        assert_eq!(
            request.contract.pointer("/request/text"),
            Some(&json!(asked))
        );
        fixture
            .workflows
            .answer(&Answer::new(&run, answer))
            .unwrap();
        fixture
            .workflows
            .wait_for(&run, LONG, |view| {
                view.status.is_terminal()
                    || view.request.as_ref().is_some_and(|now| {
                        now.request_id != request.request_id && now.status == RequestStatus::Pending
                    })
            })
            .unwrap();
    }
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        view.final_output,
        Some(json!({ "text": "We propose a holiday. Besides, it is hot." }))
    );
    scheduler.stop(LONG);
}

/// `{ limit }` are its settings; its node gives what it reads of them.
fn limited() -> Definition {
    Workflow::new("limited")
        .settings(Settings::new(json!({ "limit": 1 })))
        .start_at("read")
        .compute("read", |ctx| ctx.settings::<Value>())
        .exit("done", "read")
        .build()
        .unwrap()
}

#[test]
fn each_invocation_has_settings_of_its_own() {
    let fixture = Fixture::new();
    let definition = Workflow::new("parent")
        .settings(Settings::new(json!({ "name": "parent" })))
        .start_at("count")
        .compute("count", |ctx| {
            Ok(json!({ "visit": ctx.visit, "again": ctx.visit < 3 }))
        })
        .include("mapped", &limited())
        .settings_map(|ctx| {
            let count: Value = ctx.output("count")?;
            Ok(json!({ "limit": count.get("visit"), "of": ctx.settings::<Value>()? }))
        })
        .include("declared", &limited())
        .compute("end", |ctx| {
            Ok(json!([
                ctx.outputs.get("mapped"),
                ctx.outputs.get("declared")
            ]))
        })
        .switch(
            "count",
            "$.again",
            [("true", "mapped"), ("false", "declared")],
        )
        .edge("mapped.done", "count")
        .edge("declared.done", "end")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(
        view.final_output,
        Some(json!([
            { "exit": "done", "output": { "limit": 2, "of": { "name": "parent" } } },
            { "exit": "done", "output": { "limit": 1 } },
        ]))
    );
    let scopes = fixture
        .text("SELECT group_concat(mount_path || ' ' || invocation, ', ') FROM (SELECT * FROM workflow_settings ORDER BY mount_path, invocation)");
    assert_eq!(scopes, " 1, declared 1, mapped 1, mapped 2");
}
