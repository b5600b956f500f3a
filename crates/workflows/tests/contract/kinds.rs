//! Node kinds: those of other crates, which park an attempt with rows of their own, and agents and notifications.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Database, Outcome};
use holdpoint_workflows::agents::{
    AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate,
};
use holdpoint_workflows::commands::{self, Answer, Control, Start};
use holdpoint_workflows::definition::{
    CancellationSignal, CustomNode, DefinitionError, NodeContext, NodeError, NodeKind, NodeStep,
    NotificationKind, Park, Workflow,
};
use holdpoint_workflows::model::{RequestKind, RunStatus};
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{DOMAIN, RunId, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

/// A kind of the counter's domain: its attempt waits until somebody opens the counter; one more wait is counted beside it.
struct Gate {
    counter: &'static str,
    fails_beside: bool,
}

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "gate"
    }

    fn snapshot(&self) -> Value {
        json!({ "counter": self.counter })
    }

    fn execute(&self, context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        if context.input["through"] == true {
            return Ok(NodeStep::Output(json!("was open")));
        }
        let (name, fails) = (self.counter, self.fails_beside);
        let park = Park::new(json!({ "counter": name })).detail("waits at a gate");
        Ok(NodeStep::Park(park.beside(move |change, parked| {
            assert_eq!(parked.node_id.as_str(), "wait");
            let command =
                Command::new(&counter::ADD, counter::resource(name)).by(change.actor().clone());
            change.also(&command, |change| {
                counter::increase(change, 1)?;
                Ok::<_, WorkflowError>(Outcome::Accepted(()))
            })?;
            if fails {
                return Err(WorkflowError::Input {
                    what: "gate",
                    problem: "it can't be waited for".to_owned(),
                });
            }
            Ok(())
        })))
    }

    fn complete(&self, _context: &NodeContext<'_>, answer: Value) -> Result<Value, NodeError> {
        match answer.as_str() {
            Some("closed for ever") => Err(NodeError::named("Closed", "nobody comes through")),
            _ => Ok(json!({ "opened": answer })),
        }
    }
}

fn guarded(fails_beside: bool) -> holdpoint_workflows::definition::Definition {
    let gate = NodeKind::custom(Gate {
        counter: "gates",
        fails_beside,
    });
    Workflow::new("guarded")
        .start_at("wait")
        .node("wait", gate)
        .compute("through", |ctx| ctx.output::<Value>("wait"))
        .compute("refused", |_| Ok("refused"))
        .switch(
            "wait",
            "$result.outcome",
            [("ok", "through"), ("failed", "refused")],
        )
        .build()
        .unwrap()
}

/// A store with the counter's domain beside the workflows.
fn fixture() -> Fixture {
    let store = TestStore::new([counter::DOMAIN, DOMAIN]).unwrap();
    counter::create(store.db(), "gates").unwrap();
    Fixture {
        workflows: Workflows::new(store.db().clone()),
        store,
        expects_damage: false,
    }
}

/// Opens the gate, as the counter's domain would: in a change of its own resource.
fn open(db: &Database, view: &RunView, answer: &str) -> Result<u64, WorkflowError> {
    let (run, answer) = (view.run_id.clone(), json!(answer));
    let request = view.request.as_ref().unwrap().request_id.clone();
    let command = Command::new(&counter::ADD, counter::resource("gates")).by(Actor::host("gates"));
    db.commit(command, move |change| {
        counter::increase(change, 100)?;
        let receipt = commands::settle(change, &run, &request, ("open", &answer))?;
        Ok(Outcome::Accepted(receipt.value.request_revision))
    })
    .map(|receipt| receipt.value)
}

fn gates(fixture: &Fixture) -> i64 {
    let snapshot = fixture.store.db().snapshot().unwrap();
    counter::value(&snapshot, "gates").unwrap().unwrap()
}

#[test]
fn a_kind_of_another_crate_parks_with_rows_of_its_own_and_is_settled_by_it() {
    let fixture = fixture();
    let view = fixture.run(&guarded(false), json!({}));
    assert_eq!(view.status, RunStatus::Waiting);
    assert_eq!(view.status_detail.as_deref(), Some("waits at a gate"));
    let request = view.request.clone().unwrap();
    assert_eq!(request.kind, RequestKind::External);
    assert_eq!(
        request.contract,
        json!({ "kind": "external", "nodeId": "wait", "nodeType": "gate", "request": { "counter": "gates" } })
    );
    assert_eq!(gates(&fixture), 1);
    // A person's answer is for checkpoints; nothing is stored of it.
    let refused = fixture
        .workflows
        .answer(&Answer::new(&view.run_id, json!("let me in")));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );

    open(fixture.store.db(), &view, "by hand").unwrap();
    assert_eq!(gates(&fixture), 101);
    // A repeat moves the counter, since it is another command of it, and the run not at all.
    let revision = fixture.workflows.view(&view.run_id).unwrap().run_revision;
    open(fixture.store.db(), &view, "by hand").unwrap();
    assert_eq!(
        fixture.workflows.view(&view.run_id).unwrap().run_revision,
        revision
    );
    // Another answer under the key takes the whole command with it.
    let conflict = open(fixture.store.db(), &view, "otherwise");
    assert!(
        matches!(conflict, Err(WorkflowError::Conflict { .. })),
        "{conflict:?}"
    );
    assert_eq!(gates(&fixture), 201);

    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&view.run_id, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!({ "opened": "by hand" })));
}

#[test]
fn an_answer_of_a_domain_can_fail_its_attempt() {
    let fixture = fixture();
    let view = fixture.run(&guarded(false), json!({}));
    open(fixture.store.db(), &view, "closed for ever").unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&view.run_id, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!("refused")));
    let error = view.steps[0].result.error.clone().unwrap();
    assert_eq!(error, "Closed: nobody comes through");
}

#[test]
fn a_kind_of_another_crate_may_give_its_output_at_once() {
    let fixture = fixture();
    let view = fixture.run(&guarded(false), json!({ "through": true }));
    assert_eq!(view.final_output, Some(json!("was open")));
    assert_eq!(view.steps[0].result.node_type, "gate");
}

#[test]
fn rows_that_can_not_be_written_leave_neither_request_nor_rows() {
    let fixture = fixture();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&guarded(true), json!({})).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.request.map(|request| request.request_id), None);
    assert_eq!(gates(&fixture), 0);
    let why = fixture.workflows.explain(&run).unwrap();
    assert!(
        format!("{why:?}").contains("it can't be waited for"),
        "{why:?}"
    );
}

#[test]
fn a_run_that_is_cancelled_takes_the_answer_of_a_domain_no_more() {
    let fixture = fixture();
    let view = fixture.run(&guarded(false), json!({}));
    fixture
        .workflows
        .cancel(&Control::of(&view.run_id))
        .unwrap();
    let late = open(fixture.store.db(), &view, "late");
    assert!(
        matches!(late, Err(WorkflowError::Conflict { .. })),
        "{late:?}"
    );
    assert_eq!(gates(&fixture), 1);
}

#[test]
fn a_kind_has_a_name_of_its_own() {
    struct Named(&'static str);
    impl CustomNode for Named {
        fn node_type(&self) -> &str {
            self.0
        }
        fn snapshot(&self) -> Value {
            Value::Null
        }
        fn execute(&self, _: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
            Ok(NodeStep::Output(Value::Null))
        }
    }
    for taken in ["compute", "agent", "", "two words", "1st"] {
        let built = Workflow::new("w")
            .start_at("n")
            .node("n", NodeKind::custom(Named(taken)))
            .build();
        assert!(
            matches!(built, Err(DefinitionError::NodeType { .. })),
            "{taken:?}: {built:?}"
        );
    }
    let pinned = |name| {
        let built = Workflow::new("w")
            .start_at("n")
            .node("n", NodeKind::custom(Named(name)))
            .build();
        built.unwrap().digest()
    };
    assert_ne!(pinned("gate"), pinned("door"));
}

/// Gives its prompt back, with the number of the call.
#[derive(Default)]
struct Echo {
    calls: AtomicUsize,
}

impl AgentExecutor for Echo {
    fn execute(
        &self,
        request: &AgentRequest,
        _cancellation: &CancellationSignal,
        _update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if request.prompt == "fail" {
            return Err(AgentFailure {
                error: NodeError::named("Model", "it is overloaded"),
                receipt: Some(json!({ "call": call })),
            });
        }
        // Prose around JSON, as models answer.
        let said = json!({ "said": request.prompt, "visit": request.visit });
        Ok(AgentReply {
            output: json!(format!("Here it is:\n```json\n{said}\n```\n")),
            receipt: json!({ "call": call }),
        })
    }
}

#[derive(serde::Deserialize)]
struct Said {
    said: String,
}

fn speaking() -> holdpoint_workflows::definition::Definition {
    Workflow::new("speaking")
        .start_at("speak")
        .agent("speak", |ctx| {
            Ok(ctx.input().as_str().unwrap_or_default().to_owned())
        })
        .expects("what was said")
        .validate(|_, said: Said| match said.said.as_str() {
            "nonsense" => Err(NodeError::new("that makes no sense")),
            _ => Ok(said.said),
        })
        .build()
        .unwrap()
}

#[test]
fn the_agent_of_a_headless_run_is_executed_by_the_program() {
    let mut fixture = Fixture::new();
    fixture.workflows = fixture
        .workflows
        .clone()
        .executing_agents_with(Arc::new(Echo::default()));
    let view = fixture.run(&speaking(), json!("hello"));
    assert_eq!(view.final_output, Some(json!("hello")));
    assert_eq!(view.steps[0].receipt, Some(json!({ "call": 1 })));
    let prompt = fixture.count(
        "SELECT count(*) FROM node_attempts a JOIN blobs b ON b.blob_hash = a.prompt_hash
         WHERE CAST(b.content AS TEXT) = 'hello'",
    );
    assert_eq!(prompt, 1);
    // What the author's check refuses fails the attempt, and keeps prompt and receipt.
    for (prompt, error) in [
        ("nonsense", "Error: that makes no sense"),
        ("fail", "Model: it is overloaded"),
    ] {
        let view = fixture.run(&speaking(), json!(prompt));
        assert_eq!(view.status, RunStatus::Failed);
        assert_eq!(view.steps[0].result.error.as_deref(), Some(error));
        assert!(view.steps[0].receipt.is_some());
    }
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE prompt_hash IS NULL"),
        0
    );
}

#[test]
fn a_program_without_an_executor_leaves_agents_to_others() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&speaking(), json!("hello")).unwrap();
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Queued
    );
    let other = fixture
        .workflows
        .clone()
        .executing_agents_with(Arc::new(Echo::default()));
    let scheduler = other
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    assert_eq!(other.wait(&run, LONG).unwrap().status, RunStatus::Completed);
    scheduler.stop(LONG);
}

#[test]
fn the_agent_of_an_interactive_run_asks_its_session() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let start = Start::new(&speaking(), json!("hello")).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    let request = view.request.unwrap();
    assert_eq!(request.kind, RequestKind::Agent);
    assert_eq!(request.contract["prompt"], "hello");
    assert_eq!(request.contract["expectedOutput"], "what was said");
}

#[test]
fn a_notification_is_kept_with_its_step_and_needs_a_session() {
    let definition = Workflow::new("telling")
        .start_at("tell")
        .notify("tell", NotificationKind::Progress, |ctx| {
            Ok(ctx.input().as_str().unwrap_or_default().to_owned())
        })
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let tell = |input: &str, session: Option<&str>| -> (RunId, RunView) {
        let scheduler = fixture.scheduler();
        let mut start = Start::new(&definition, json!(input));
        if let Some(session) = session {
            start = start.in_session(session);
        }
        let run = fixture.workflows.start(&start).unwrap().value;
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        (run, view)
    };
    let (_, told) = tell("half way", Some("session-1"));
    assert_eq!(told.status, RunStatus::Completed);
    let messages = "SELECT count(*) FROM workflow_messages m JOIN blobs b ON b.blob_hash = m.content_hash
         WHERE m.kind = 'notification' AND m.status = 'pending' AND m.target_session_id = 'session-1'
             AND json_extract(CAST(b.content AS TEXT), '$.text') = 'half way'";
    assert_eq!(fixture.count(messages), 1);
    for (text, session) in [("  ", Some("session-1")), ("half way", None)] {
        let (_, view) = tell(text, session);
        assert_eq!(view.status, RunStatus::Failed, "{text:?} {session:?}");
    }
    assert_eq!(
        fixture.count("SELECT count(*) FROM workflow_messages WHERE kind = 'notification'"),
        1
    );
}
