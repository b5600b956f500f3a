//! A request has one accepted answer; repeats get its receipt.

use holdpoint_state::Disposition;
use holdpoint_workflows::WorkflowError;
use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::DisplayStatus;
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo};
use crate::views::damage;

#[expect(
    clippy::needless_pass_by_value,
    reason = "it ends the result that a test made"
)]
fn conflict<T: std::fmt::Debug>(result: Result<T, WorkflowError>) {
    assert!(
        matches!(result, Err(WorkflowError::Conflict { .. })),
        "{result:?}"
    );
}

#[test]
fn edge_060_the_same_key_and_value_get_the_saved_receipt() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    let answer = Answer::new(&run, json!({ "a": 1.0 })).key("k");
    let first = fixture.workflows.answer(&answer).unwrap();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    // Also after the run is over.
    let second = fixture
        .workflows
        .answer(&Answer::new(&run, json!({ "a": 1 })).key("k"))
        .unwrap();
    assert_eq!(
        (first.value, second.disposition),
        (second.value, Disposition::Adopted)
    );
    conflict(
        fixture
            .workflows
            .answer(&Answer::new(&run, json!(2)).key("k")),
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM interactive_submissions"),
        1
    );
    scheduler.stop(LONG);
}

#[test]
fn case_064_two_answers_have_one_winner() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let request = fixture.workflows.wait(&run, LONG).unwrap().request.unwrap();
    scheduler.stop(LONG);
    let workflows = &fixture.workflows;
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|value| {
                let answer = Answer::new(&run, json!(value)).to(&request.request_id);
                scope.spawn(move || workflows.answer(&answer))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    results
        .into_iter()
        .filter(Result::is_err)
        .for_each(conflict);
    assert_eq!(
        fixture.count("SELECT count(*) FROM interactive_submissions"),
        1
    );
}

#[test]
fn edge_065_an_answer_for_a_checkpoint_settles_no_other_kind() {
    let fixture = Fixture::new();
    let run = fixture.run(&asking(), json!(null)).run_id;
    // Of a run that is headless here, and was not where the row comes from.
    // lint:allow(sql-in-test): the test makes a row of another program; no command can.
    let sql = "UPDATE interactive_requests SET kind = 'agent'";
    damage(&fixture, &run, sql);
    let before = fixture.rows();
    let refused = fixture.workflows.answer(&Answer::new(&run, json!(1)));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(before, fixture.rows());
}

#[test]
fn edge_068_a_stale_revision_is_a_conflict() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let request = fixture.workflows.wait(&run, LONG).unwrap().request.unwrap();
    conflict(
        fixture
            .workflows
            .answer(&Answer::new(&run, json!(1)).expecting(request.revision + 1)),
    );
    fixture
        .workflows
        .answer(&Answer::new(&run, json!(1)).expecting(request.revision))
        .unwrap();
    scheduler.stop(LONG);
}

#[test]
fn edge_071_an_answer_launches_nothing_by_itself() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    fixture
        .workflows
        .answer(&Answer::new(&run, json!(1)))
        .unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.queue_status.as_str()),
        (RunStatus::Waiting, "parked")
    );
    assert_eq!(view.display_status, DisplayStatus::Queued);
    let scheduler = fixture.scheduler();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn a_paused_run_takes_no_answer_but_repeats_one() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    conflict(fixture.workflows.answer(&Answer::new(&run, json!(1))));
    scheduler.stop(LONG);
}

#[test]
fn a_request_is_found_by_run_session_and_id_only() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let other = fixture.workflows.run(&asking(), json!(2)).unwrap();
    let request = fixture
        .workflows
        .wait(&run, LONG)
        .unwrap()
        .request
        .unwrap()
        .request_id;
    fixture.workflows.wait(&other, LONG).unwrap();
    for answer in [
        Answer::new(&other, json!(1)).to(&request),
        Answer::new(&run, json!(1)).in_session("another"),
    ] {
        let result = fixture.workflows.answer(&answer);
        assert!(
            matches!(result, Err(WorkflowError::NoRequest { .. })),
            "{result:?}"
        );
    }
    let nowhere = holdpoint_workflows::RunId::new("nowhere").unwrap();
    let result = fixture.workflows.answer(&Answer::new(&nowhere, json!(1)));
    assert!(
        matches!(result, Err(WorkflowError::NoRun { .. })),
        "{result:?}"
    );
    let done = fixture.workflows.run(&echo(), json!(1)).unwrap();
    fixture.workflows.wait(&done, LONG).unwrap();
    let result = fixture.workflows.answer(&Answer::new(&done, json!(1)));
    assert!(
        matches!(result, Err(WorkflowError::Rejected { .. })),
        "{result:?}"
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_070_restarts_of_the_host_ask_nothing_again() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let scheduler = fixture.scheduler();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let before = fixture.rows();
    for _ in 0..5 {
        fixture.store.clock().advance(60_000);
        let scheduler = fixture.scheduler();
        assert!(scheduler.wait_until_idle(LONG));
        scheduler.stop(LONG);
    }
    assert_eq!(before, fixture.rows());
}

#[test]
fn a_failing_request_fails_the_checkpoint() {
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("ask")
        .checkpoint("ask")
        .request(|ctx| ctx.output::<u8>("nothing"))
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Failed);
    assert!(view.request.is_none());
}
