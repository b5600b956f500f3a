//! A protected decision is answered by a verified person or its own policy, and by no tool.

use holdpoint_decisions::DecisionError;
use holdpoint_decisions::commands::{self, Answer, Cancel};
use holdpoint_decisions::model::Judged;
use holdpoint_state::{Actor, ActorKind, StateError};
use holdpoint_workflows::commands as workflows;
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::{WorkflowError, model};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, draft};

const BOTH: &str = "SELECT (SELECT count(*) FROM human_decision_submissions) + (SELECT count(*) FROM interactive_submissions)";

#[test]
fn decision_19_no_tool_answers() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let go = json!({ "choice": "go" });
    let answer = workflows::Answer::new(&run, go.clone()).to(decision.as_str());
    let refused = fixture.workflows.answer(&answer);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    let submission = workflows::Submission::new(&run, go.clone()).to(decision.as_str());
    let refused = fixture.workflows.submit(&submission);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    // Nor does anybody who only says so: the road of people is for people.
    for kind in ActorKind::ALL {
        if *kind != ActorKind::Human {
            let answer = Answer::new(&decision, go.clone(), "x").by(Actor::new(*kind, "model"));
            let refused = commands::answer(fixture.db(), &answer);
            assert!(
                matches!(
                    refused,
                    Err(DecisionError::State(StateError::ActorDenied { .. }))
                ),
                "{kind}: {refused:?}"
            );
        }
        if *kind != ActorKind::Control {
            let cancel = Cancel::of(&decision).by(Actor::new(*kind, "model"));
            let refused = commands::cancel(fixture.db(), &cancel);
            assert!(
                matches!(
                    refused,
                    Err(DecisionError::State(StateError::ActorDenied { .. }))
                ),
                "{kind}: {refused:?}"
            );
        }
    }
    assert_eq!(fixture.count(BOTH), 0);
    assert_eq!(fixture.status(&decision), "open");
}

#[test]
fn decision_20_a_choice_without_a_resolution_settles_nothing() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let answer = workflows::Answer::new(&run, json!({ "choice": "go" }));
    assert!(fixture.workflows.answer(&answer).is_err());
    let status = "SELECT status = 'pending' FROM interactive_requests";
    assert_eq!((fixture.count(status), fixture.count(BOTH)), (1, 0));
    assert_eq!(fixture.status(&decision), "open");
}

#[test]
fn decision_21_nothing_else_is_submitted_than_what_was_accepted() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    fixture.answer(&decision, json!({ "choice": "go" }), "k");
    let other = json!({ "choice": "redo", "input": { "why": "x" } });
    let answer = workflows::Answer::new(&run, other.clone()).to(decision.as_str());
    assert!(fixture.workflows.answer(&answer).is_err());
    let submission = workflows::Submission::new(&run, other).to(decision.as_str());
    assert!(fixture.workflows.submit(&submission).is_err());
    // The one row in each table is that of the accepted answer.
    assert_eq!(fixture.count(BOTH), 2);
    assert_eq!(
        fixture.go_on(&run).final_output,
        Some(json!({ "choice": "go" }))
    );
}

#[test]
fn decision_22_an_ordinary_checkpoint_is_no_decision() {
    let fixture = Fixture::new();
    let definition = Workflow::new("ordinary")
        .start_at("ask")
        .checkpoint("ask")
        .compute("end", |ctx| ctx.output::<Value>("ask"))
        .edge("ask", "end")
        .build()
        .unwrap();
    let run = fixture.run(&definition);
    let request = fixture.asked(&run);
    assert_eq!(
        fixture.answer(&request, json!({ "choice": "go" }), "k"),
        Judged::NotFound
    );
    let cancelled = commands::cancel(fixture.db(), &Cancel::of(&request))
        .unwrap()
        .value;
    assert_eq!(cancelled, Judged::NotFound);
    assert_eq!(fixture.count(BOTH), 0);
    // The ordinary road still leads there.
    fixture
        .workflows
        .answer(&workflows::Answer::new(&run, json!("yes")))
        .unwrap();
    assert_eq!(fixture.go_on(&run).final_output, Some(json!("yes")));
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        model::RunStatus::Completed
    );
}

#[test]
fn an_answer_names_its_session_and_its_run() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let session =
        fixture.count("SELECT count(*) FROM interactive_requests WHERE target_session_id <> ''");
    assert_eq!(session, 1);
    let answer = Answer::new(&decision, json!({ "choice": "go" }), "ann").key("k");
    for wrong in [
        answer.clone().in_session("another"),
        answer.clone().of_run("run-other"),
    ] {
        let judged = commands::answer(fixture.db(), &wrong).unwrap().value;
        assert_eq!(judged, Judged::NotFound);
    }
    assert_eq!(fixture.count(BOTH), 0);
    let right = answer.of_run(run.as_str());
    assert!(
        commands::answer(fixture.db(), &right)
            .unwrap()
            .value
            .has_won()
    );
}
