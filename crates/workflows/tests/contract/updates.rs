//! Updates: what an attempt publishes is kept once, in order and within its limits, and only while the attempt goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use holdpoint_state::{Claim, Disposition};
use holdpoint_workflows::agents::{
    AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate,
};
use holdpoint_workflows::commands::{
    self, Claimed, Claiming, Control, Move, Plan, SessionUpdate, Start,
};
use holdpoint_workflows::definition::{CancellationSignal, EffectSpec, NodeError, Workflow};
use holdpoint_workflows::file;
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::shell::{ShellCommand, Stream, Streams};
use holdpoint_workflows::updates::{
    BURST, PAIR_LIMIT, Progress, ProgressStatus, Publisher, Update,
};
use holdpoint_workflows::{AttemptId, RunId, WorkflowError};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, attempt, echo, host, person};

fn update(update_type: &str, key: &str, data: &Value) -> Update {
    Update::new(update_type, key, data).unwrap()
}

/// A run whose first attempt goes on, with the claim on it for a day.
fn going_on(fixture: &Fixture) -> (RunId, AttemptId, Claim) {
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(1)).unwrap();
    let first = attempt("echo", &format!("{run}-1"));
    let claimed = commands::claim(
        fixture.store.db(),
        Claiming {
            run: run.clone(),
            revision: fixture.workflows.view(&run).unwrap().run_revision,
            owner: host(),
            lease_ms: 86_400_000,
            definition,
            plan: Plan::First {
                title: None,
                next: Move::Start(first.clone()),
            },
        },
    );
    let Claimed::Owned { claim, .. } = claimed.unwrap().value else {
        panic!("it is free");
    };
    (run, first.attempt_id, claim)
}

#[test]
fn edge_100_an_attempt_has_at_most_1024_pairs_also_when_many_publish_at_once() {
    let fixture = Fixture::new();
    let (run, attempt, claim) = going_on(&fixture);
    let publish = |key: &str, n: u32| {
        fixture.store.clock().advance(50);
        commands::publish(
            fixture.store.db(),
            &claim,
            &attempt,
            &update("item", key, &json!({ "n": n })),
        )
    };
    for n in 1..PAIR_LIMIT {
        publish(&format!("key-{n}"), n).unwrap();
    }
    // One place is left, and eight want it at the same moment.
    fixture.store.clock().advance(10_000);
    let accepted = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (db, claim, attempt) = (fixture.store.db(), &claim, &attempt);
                let last = update("item", &format!("last-{n}"), &json!({}));
                scope.spawn(move || commands::publish(db, claim, attempt, &last).is_ok())
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .filter(|accepted| *accepted)
            .count()
    });
    assert_eq!(accepted, 1);
    let refused = publish("one-more", 0);
    assert!(
        matches!(refused, Err(WorkflowError::Limit { .. })),
        "{refused:?}"
    );
    let other_type = commands::publish(
        fixture.store.db(),
        &claim,
        &attempt,
        &update("other", "key-1", &json!({})),
    );
    assert!(
        matches!(other_type, Err(WorkflowError::Limit { .. })),
        "{other_type:?}"
    );
    publish("key-7", 700).unwrap();
    let values = fixture.workflows.updates(&run).unwrap();
    assert_eq!(values.len(), 1_024);
    let last = values.last().unwrap();
    assert_eq!(
        (last.key.as_str(), last.sequence, &last.data),
        ("key-7", 1_025, &json!({ "n": 700 }))
    );
}

#[test]
fn edge_100_a_burst_is_admitted_and_no_more_also_when_many_publish_at_once() {
    let fixture = Fixture::new();
    let (run, attempt, claim) = going_on(&fixture);
    let accepted: i64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (db, claim, attempt) = (fixture.store.db(), &claim, &attempt);
                scope.spawn(move || {
                    let same = update("item", "key", &json!({}));
                    let accepted =
                        (0..25).filter(|_| commands::publish(db, claim, attempt, &same).is_ok());
                    i64::try_from(accepted.count()).unwrap()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(accepted, BURST);
    let publish = || {
        commands::publish(
            fixture.store.db(),
            &claim,
            &attempt,
            &update("item", "key", &json!({})),
        )
    };
    let refused = publish().unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("run {run}: its attempt publishes too fast; wait 50 ms")
    );
    fixture.store.clock().advance(50);
    publish().unwrap();
    assert!(publish().is_err());
    assert_eq!(
        fixture.count("SELECT count(*) FROM workflow_updates"),
        BURST + 1
    );
}

#[test]
fn edge_101_what_was_published_is_a_copy() {
    let definition = Workflow::new("copying")
        .start_at("work")
        .compute("work", |ctx| {
            let mut data = json!({ "files": ["a"] });
            ctx.publish("build", "files", &data)?;
            data["files"] = json!([]);
            drop(data);
            Ok("done")
        })
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let view = fixture.run(&definition, json!(null));
    let values = fixture.workflows.updates(&view.run_id).unwrap();
    assert_eq!(values[0].data, json!({ "files": ["a"] }));
    assert_eq!(values[0].node_id.as_str(), "work");
    // One event and one revision of the run for each, and the update names it.
    let events = fixture.events(&view.run_id);
    assert_eq!(
        events
            .iter()
            .filter(|event| *event == "update_published")
            .count(),
        1
    );
    let at = events
        .iter()
        .position(|event| event == "update_published")
        .unwrap();
    assert_eq!(values[0].run_revision, u64::try_from(at).unwrap() + 1);
}

#[test]
fn only_the_attempt_that_goes_on_publishes() {
    let leaked: Arc<Mutex<Option<Publisher>>> = Arc::default();
    let leak = Arc::clone(&leaked);
    let definition = Workflow::new("leaking")
        .start_at("first")
        .compute("first", move |ctx| {
            ctx.publish("t", "k", &json!({ "by": "first" }))?;
            *leak.lock().unwrap() = Some(ctx.publisher.clone());
            Ok(1)
        })
        .checkpoint("ask")
        .edge("first", "ask")
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let view = fixture.run(&definition, json!(null));
    let before = fixture.rows();
    let late = leaked.lock().unwrap().clone().unwrap();
    let error = late
        .publish(update("t", "k", &json!({ "by": "a thread that was left" })))
        .unwrap_err();
    assert_eq!(error.name(), "UpdateRefused");
    assert_eq!(fixture.rows(), before);
    // The attempt that waits now is the present one, and it published nothing.
    assert_eq!(fixture.workflows.updates(&view.run_id).unwrap(), []);
    let all = fixture
        .workflows
        .update_history(&view.run_id, 0, 10)
        .unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(
        fixture
            .workflows
            .update_history(&view.run_id, all[0].run_revision, 10)
            .unwrap(),
        []
    );
    drop(late);

    // Under a claim, but about an attempt that never was.
    let (_, _, claim) = going_on(&fixture);
    let other = AttemptId::new("other").unwrap();
    let refused = commands::publish(
        fixture.store.db(),
        &claim,
        &other,
        &update("t", "k", &json!({})),
    );
    assert!(
        matches!(refused, Err(WorkflowError::Transition { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_repeat_of_a_request_id_adds_nothing_and_another_update_under_it_is_a_conflict() {
    let fixture = Fixture::new();
    let (_, attempt, claim) = going_on(&fixture);
    let called = |n: i64| {
        update("t", "k", &json!({ "n": n }))
            .calling("call-1")
            .unwrap()
    };
    let publish = |update: &Update| commands::publish(fixture.store.db(), &claim, &attempt, update);
    let first = publish(&called(1)).unwrap();
    publish(&update("t", "k", &json!({ "n": 2 }))).unwrap();
    let before = fixture.rows();
    let again = publish(&called(1)).unwrap();
    assert_eq!(
        (again.disposition, &again.value),
        (Disposition::Adopted, &first.value)
    );
    let other = publish(&called(3));
    assert!(
        matches!(other, Err(WorkflowError::Conflict { .. })),
        "{other:?}"
    );
    assert_eq!(fixture.rows(), before);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_updates"), 2);
    for bad in ["", &"x".repeat(513)] {
        assert!(update("t", "k", &json!({})).calling(bad).is_err());
    }
}

/// An interactive run whose agent's session is asked.
fn asked(fixture: &Fixture) -> RunId {
    let definition = Workflow::new("asked")
        .start_at("speak")
        .agent("speak", |_| Ok("say something".to_owned()))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let start = Start::new(&definition, json!(null)).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    run
}

#[test]
fn the_origin_session_publishes_while_its_request_is_pending() {
    let fixture = Fixture::new();
    let run = asked(&fixture);
    let said = |n: i64| update("t", "k", &json!({ "n": n }));
    let by = |update: Update| SessionUpdate::new(&run, update).by(person());
    let publish = |publishing: &SessionUpdate| fixture.workflows.publish_from_session(publishing);
    let first = by(said(1).calling("call-1").unwrap()).in_session("session-1");
    let receipt = publish(&first).unwrap();
    assert_eq!(
        (receipt.disposition, receipt.value.sequence),
        (Disposition::Accepted, 1)
    );
    // The attempt stays open.
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.run_revision),
        (RunStatus::Waiting, receipt.value.run_revision)
    );
    assert_eq!(publish(&first).unwrap().disposition, Disposition::Adopted);
    assert_eq!(fixture.workflows.updates(&run).unwrap().len(), 1);

    let before = fixture.rows();
    let stranger = publish(&by(said(2)).in_session("session-2"));
    assert!(
        matches!(stranger, Err(WorkflowError::NoRequest { .. })),
        "{stranger:?}"
    );
    let other = publish(&by(said(2)).about("request-of-another"));
    assert!(
        matches!(other, Err(WorkflowError::NoRequest { .. })),
        "{other:?}"
    );
    assert_eq!(fixture.rows(), before);

    fixture.workflows.pause(&Control::of(&run)).unwrap();
    let paused = publish(&by(said(2)));
    assert!(
        matches!(paused, Err(WorkflowError::Rejected { paused: true, .. })),
        "{paused:?}"
    );
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let over = publish(&by(said(2)));
    assert!(
        matches!(over, Err(WorkflowError::Rejected { .. })),
        "{over:?}"
    );
    // A repeat is told its receipt also now.
    assert_eq!(publish(&first).unwrap().value, receipt.value);
    let nobody = RunId::new("nobody").unwrap();
    let missing = publish(&SessionUpdate::new(&nobody, said(1)));
    assert!(
        matches!(missing, Err(WorkflowError::NoRun { .. })),
        "{missing:?}"
    );
}

#[test]
fn a_checkpoint_has_no_updates_of_a_session() {
    let fixture = Fixture::new();
    let view = fixture.run(&crate::support::asking(), json!(null));
    let refused = fixture.workflows.publish_from_session(&SessionUpdate::new(
        &view.run_id,
        update("t", "k", &json!({})),
    ));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
}

/// A command whose lines of standard output are `KEY DATA`; the word `none` gives no update.
fn telling(script: &str) -> holdpoint_workflows::definition::Definition {
    let script = script.to_owned();
    Workflow::new("telling")
        .start_at("work")
        .shell("work", EffectSpec::manual("test.tell"), move |_| {
            Ok(ShellCommand::new("sh").args(["-c", &script]))
        })
        .updates(Streams::Stdout, |_, stream, line| {
            assert_eq!(stream, Stream::Stdout);
            if line == "none" {
                return Ok(None);
            }
            let (key, data) = line
                .split_once(' ')
                .ok_or_else(|| NodeError::named("Parse", "no data"))?;
            let data: Value = serde_json::from_str(data)?;
            Ok(Some(Update::new("line", key, &data)?))
        })
        .parse(|_, result| Ok(result.exit_code))
        .build()
        .unwrap()
}

#[test]
fn lines_of_a_command_become_updates_while_it_runs() {
    let fixture = Fixture::new();
    let script = r#"echo 'a {"n":1}'; echo none; echo 'b {"n":2}'; echo 'a {"n":3}' >&2; printf 'a {"n":4}'"#;
    let view = fixture.run(&telling(script), json!(null));
    assert_eq!(view.final_output, Some(json!(0)));
    let values: Vec<(String, Value)> = fixture
        .workflows
        .updates(&view.run_id)
        .unwrap()
        .into_iter()
        .map(|update| (update.key, update.data))
        .collect();
    // The rest at the end of the stream counts; standard error was not asked for.
    assert_eq!(
        values,
        [
            ("b".to_owned(), json!({ "n": 2 })),
            ("a".to_owned(), json!({ "n": 4 }))
        ]
    );
}

#[test]
fn edge_031_a_refused_line_stops_the_command_and_fails_the_node() {
    let fixture = Fixture::new();
    let long = "head -c 70000 /dev/zero | tr '\\0' x; echo";
    for (lines, error) in [
        (long, "LineTooLong"),
        ("printf '\\377\\n'", "LineNotUtf8"),
        ("echo unparsable", "Parse"),
        (
            "echo 'b []'",
            "Error: the data of an update must be an object",
        ),
        // More than a burst.
        ("for i in $(seq 150); do echo 'b {}'; done", "UpdateRefused"),
    ] {
        // Nobody waits for the sleep: the process group is ended.
        let view = fixture.run(
            &telling(&format!("echo 'a {{}}'; {lines}; sleep 1000")),
            json!(null),
        );
        assert_eq!(view.status, RunStatus::Failed, "{lines}");
        let step = view.steps.last().unwrap();
        assert!(
            step.result.error.as_deref().unwrap().starts_with(error),
            "{:?}",
            step.result.error
        );
        let receipt = step.receipt.as_ref().unwrap();
        assert_eq!(receipt["signal"], "SIGTERM", "{receipt}");
        let first = &fixture
            .workflows
            .update_history(&view.run_id, 0, 1)
            .unwrap()[0];
        assert_eq!(first.key, "a");
    }
}

#[test]
fn a_workflow_file_makes_updates_of_lines() {
    let text = r#"
name: telling
startAt: work
nodes:
  work:
    shell:
      argv: [sh, -c, 'echo "{\"done\":1}"; echo plain; echo "{\"done\":2}"; echo "late" >&2']
      updates:
        streams: [stdout, stderr]
        parseLine:
          jq: 'if .stream == "stderr" then {type: "log", key: "last", data: {line}}
            elif (.line | startswith("{")) then [{type: "files", key: "all", data: (.line | fromjson)}] else null end'
      effect: { type: test.tell, recovery: idempotent }
edges: []
"#;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("telling.workflow.yaml");
    std::fs::write(&path, text).unwrap();
    let file = file::read(&path).unwrap();
    assert_eq!(
        file.definition.snapshot()["nodes"]["work"]["updates"]["streams"],
        "both"
    );
    let fixture = Fixture::new();
    let view = fixture.run(&file.definition, json!(null));
    assert_eq!(view.status, RunStatus::Completed, "{:?}", view.error);
    let mut values: Vec<(String, Value)> = fixture
        .workflows
        .updates(&view.run_id)
        .unwrap()
        .into_iter()
        .map(|update| (update.update_type, update.data))
        .collect();
    values.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(
        values,
        [
            ("files".to_owned(), json!({ "done": 2 })),
            ("log".to_owned(), json!({ "line": "late" }))
        ]
    );
}

/// Publishes twice, once in a form that is none, and says what it was told.
struct Publishing;

impl AgentExecutor for Publishing {
    fn execute(
        &self,
        _request: &AgentRequest,
        _cancellation: &CancellationSignal,
        update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let good = update("tool", "bash", json!({ "runs": 1 })).is_ok();
        let bad = update("Tool", "bash", json!({})).map_err(|error| error.name().to_owned());
        Ok(AgentReply {
            output: json!({ "good": good, "bad": bad.unwrap_err() }),
            receipt: json!({}),
        })
    }
}

#[test]
fn an_agent_without_a_session_publishes() {
    let definition = Workflow::new("speaking")
        .start_at("speak")
        .agent("speak", |_| Ok("say something".to_owned()))
        .build()
        .unwrap();
    let mut fixture = Fixture::new();
    fixture.workflows = fixture
        .workflows
        .clone()
        .executing_agents_with(Arc::new(Publishing));
    let view = fixture.run(&definition, json!(null));
    assert_eq!(
        view.final_output,
        Some(json!({ "good": true, "bad": "UpdateRefused" }))
    );
    let values = fixture.workflows.updates(&view.run_id).unwrap();
    assert_eq!((values.len(), &values[0].data), (1, &json!({ "runs": 1 })));
}

#[test]
fn progress_is_shown_with_the_time_that_is_left() {
    let fixture = Fixture::new();
    let (run, attempt, claim) = going_on(&fixture);
    assert_eq!(fixture.workflows.progress(&run).unwrap(), None);
    let publish = |key: &str, progress: &Progress| {
        let update = Update::new("progress", key, progress).unwrap();
        commands::publish(fixture.store.db(), &claim, &attempt, &update).unwrap();
    };
    let files =
        |done: f64| Progress::new(ProgressStatus::Running).counting(done, Some(10.0), "files");
    publish("part", &files(9.0));
    assert_eq!(
        fixture
            .workflows
            .progress(&run)
            .unwrap()
            .unwrap()
            .progress
            .completed,
        Some(9.0)
    );
    publish("overall", &files(0.0));
    fixture.store.clock().advance(4_000);
    publish("overall", &files(2.0));
    publish("part", &files(10.0));
    let shown = fixture.workflows.progress(&run).unwrap().unwrap();
    assert_eq!(
        (shown.node_id.as_str(), shown.progress.completed),
        ("echo", Some(2.0))
    );
    assert_eq!(shown.estimate.unwrap().remaining_ms, 16_000);
}

#[derive(Debug, Clone)]
struct Publishes {
    update_type: u8,
    key: u8,
    data: u8,
    request: Option<u8>,
    rest_ms: u64,
}

fn publishes() -> impl Strategy<Value = Publishes> {
    (
        0..3_u8,
        0..4_u8,
        0..3_u8,
        proptest::option::weighted(0.3, 0..4_u8),
        prop_oneof![Just(0), Just(60), Just(2_000)],
    )
        .prop_map(|(update_type, key, data, request, rest_ms)| Publishes {
            update_type,
            key,
            data,
            request,
            rest_ms,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A map with the last value of each pair, and the first update of each request id, say everything that is seen.
    #[test]
    fn updates_are_a_map_of_last_values(steps in proptest::collection::vec(publishes(), 1..60)) {
        let fixture = Fixture::new();
        let (run, attempt, claim) = going_on(&fixture);
        let mut values: BTreeMap<(String, String), (i64, Value)> = BTreeMap::new();
        let mut requests: BTreeMap<u8, (i64, String, String, Value)> = BTreeMap::new();
        let mut sequence = 0;
        for step in steps {
            fixture.store.clock().advance(step.rest_ms);
            let (update_type, key) = (format!("type-{}", step.update_type), format!("key-{}", step.key));
            let data = json!({ "data": step.data });
            let mut published = update(&update_type, &key, &data);
            if let Some(request) = step.request {
                published = published.calling(format!("call-{request}")).unwrap();
            }
            let result = commands::publish(fixture.store.db(), &claim, &attempt, &published);
            match step.request.and_then(|request| requests.get(&request)) {
                Some((seq, t, k, d)) if (t, k, d) == (&update_type, &key, &data) => {
                    let receipt = result.unwrap();
                    prop_assert_eq!((receipt.disposition, receipt.value.sequence), (Disposition::Adopted, *seq));
                }
                Some(_) => prop_assert!(result.is_err_and(|error| error.code() == "conflict")),
                None => {
                    sequence += 1;
                    prop_assert_eq!(result.unwrap().value.sequence, sequence);
                    if let Some(request) = step.request {
                        requests.insert(request, (sequence, update_type.clone(), key.clone(), data.clone()));
                    }
                    values.insert((update_type, key), (sequence, data));
                }
            }
        }
        let mut expected: Vec<(i64, String, String, Value)> =
            values.into_iter().map(|((t, k), (seq, data))| (seq, t, k, data)).collect();
        expected.sort_by_key(|value| value.0);
        let seen: Vec<(i64, String, String, Value)> = fixture.workflows.updates(&run).unwrap().into_iter()
            .map(|update| (update.sequence, update.update_type, update.key, update.data)).collect();
        prop_assert_eq!(seen, expected);
        let history = fixture.workflows.update_history(&run, 0, 1_000).unwrap();
        prop_assert_eq!(history.len(), usize::try_from(sequence).unwrap());
        prop_assert_eq!(fixture.violations(), Vec::<String>::new());
    }
}
