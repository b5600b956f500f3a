//! Runs are executed to their end by the scheduler of the process.

use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::model::RunStatus;
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo};

#[test]
fn a_run_of_one_step_completes() {
    let fixture = Fixture::new();
    let view = fixture.run(&echo(), json!({ "a": 1 }));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(view.final_output, Some(json!({ "a": 1 })));
    assert_eq!(
        fixture.events(&view.run_id),
        [
            "run.queued",
            "lease.claimed",
            "run_initialized",
            "node_started",
            "node_finished",
            "run_completed"
        ]
    );
}

#[test]
fn a_checkpoint_parks_the_run_and_its_answer_lets_it_go_on() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    let request = view.request.unwrap();
    assert_eq!(request.contract["request"], json!(1));
    assert_eq!(request.contract["summary"], json!("May it go on?"));

    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")).key("k"))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!([1, "yes"])));
    scheduler.stop(LONG);
    assert_eq!(
        fixture.events(&run),
        [
            "run.queued",
            "lease.claimed",
            "run_initialized",
            "node_started",
            "node_finished",
            "node_started",
            "checkpoint_requested",
            "interaction_submitted",
            "lease.claimed",
            "interaction_accepted",
            "node_finished",
            "node_started",
            "node_finished",
            "run_completed"
        ]
    );
}
