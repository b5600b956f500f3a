//! Requests of kind `decision`: what a run that waits for a verified person may be told, and by whom. The domain that judges people
//! comes beside this one; here a kind of the counter's domain plays it.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, ActorKind, Command, Outcome};
use holdpoint_workflows::commands::{self, Answer, Control, Start, Submission};
use holdpoint_workflows::definition::{
    CustomNode, NodeContext, NodeError, NodeKind, NodeStep, Park, Workflow,
};
use holdpoint_workflows::model::{RequestKind, RunStatus};
use holdpoint_workflows::{DOMAIN, RunId, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, person};

/// A choice that a verified person makes.
struct Choice;

impl CustomNode for Choice {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "humanDecision": { "choices": ["yes", "no"] } })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(
            Park::new(json!({ "choices": ["yes", "no"] })).decision(),
        ))
    }
}

/// An interactive run that waits for its decision.
fn waiting() -> (Fixture, RunId, String) {
    let store = TestStore::new([counter::DOMAIN, DOMAIN]).unwrap();
    counter::create(store.db(), "judge").unwrap();
    let fixture = Fixture {
        workflows: Workflows::new(store.db().clone()),
        store,
        expects_damage: false,
    };
    let definition = Workflow::new("deciding")
        .start_at("decide")
        .node("decide", NodeKind::custom(Choice))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let start = Start::new(&definition, json!(null)).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    let request = view.request.unwrap();
    assert_eq!(request.kind, RequestKind::Decision);
    (fixture, run, request.request_id)
}

/// The judging domain settles the request, in a change of its own.
fn decide(
    fixture: &Fixture,
    (run, request): (&RunId, &str),
    (actor, key, choice): (Actor, &'static str, &'static str),
) -> Result<(), WorkflowError> {
    let (run, request) = (run.clone(), request.to_owned());
    let actor = match actor {
        // The counter knows no policies; who acts is not what these tests are about.
        actor if actor.kind() == ActorKind::Human => actor,
        _ => Actor::host("policy"),
    };
    let command = Command::new(&counter::ADD, counter::resource("judge")).by(actor);
    let db = fixture.store.db();
    db.commit(command, move |change| {
        counter::increase(change, 1)?;
        commands::settle(change, &run, &request, (key, &json!({ "choice": choice })))?;
        Ok(Outcome::Accepted(()))
    })
    .map(drop)
}

fn submissions(fixture: &Fixture) -> i64 {
    fixture.count("SELECT count(*) FROM interactive_submissions")
}

#[test]
fn edge_054_a_resumed_decision_is_the_same_request_without_a_new_message() {
    let (fixture, run, request) = waiting();
    let before = fixture.workflows.view(&run).unwrap().request.unwrap();
    let messages = "SELECT count(*) FROM workflow_messages";
    let count = fixture.count(messages);
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let after = fixture.workflows.view(&run).unwrap().request.unwrap();
    assert_eq!(
        (&after.request_id, after.revision),
        (&request, before.revision)
    );
    assert_eq!(fixture.count(messages), count);
}

#[test]
fn edge_064_no_tool_answers_a_protected_decision() {
    let (fixture, run, request) = waiting();
    let rows = fixture.rows();
    let answer = Answer::new(&run, json!({ "choice": "yes" })).to(&request);
    for actor in [Actor::new(ActorKind::Session, "session-1"), person()] {
        let refused = fixture.workflows.answer(&answer.clone().by(actor));
        assert!(
            matches!(refused, Err(WorkflowError::Rejected { .. })),
            "{refused:?}"
        );
    }
    let submission = Submission::new(&run, json!({ "choice": "yes" })).in_session("session-1");
    let refused = fixture.workflows.submit(&submission);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!((submissions(&fixture), fixture.rows()), (0, rows));
}

#[test]
fn edge_067_whoever_decides_second_is_told_and_changes_nothing() {
    let (fixture, run, request) = waiting();
    decide(
        &fixture,
        (&run, &request),
        (Actor::system(), "timeout", "no"),
    )
    .unwrap();
    let rows = fixture.rows();
    let late = decide(&fixture, (&run, &request), (person(), "person", "yes"));
    assert!(
        matches!(late, Err(WorkflowError::Conflict { .. })),
        "{late:?}"
    );
    assert_eq!((submissions(&fixture), fixture.rows()), (1, rows));
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.final_output, Some(json!({ "choice": "no" })));
}
