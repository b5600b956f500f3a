//! The clock of model turns: what is measured, what is never charged, and what happens when the budget is spent.

use holdpoint_workflows::commands::{
    self, Claiming, Control, FinishedAttempt, Move, Plan, TurnReport, TurnStart,
};
use holdpoint_workflows::definition::{TimeBudget, Timeout, Workflow};
use holdpoint_workflows::model::{RunStatus, SubmissionOutcome, TurnEnd};
use holdpoint_workflows::routing::{NodeOutcome, NodeResult};
use holdpoint_workflows::{RunId, WorkflowError, Workflows};
use serde_json::{Value, json};

use super::{Origin, naming};
use crate::support::{Fixture, LONG, attempt, host};
use crate::views::damage;

const OPEN: &str = "SELECT count(*) FROM attempt_active_intervals WHERE ended_at IS NULL";
const ALL: &str = "SELECT count(*) FROM attempt_active_intervals";

/// A session with a run that asks, and nobody who executes anything.
fn asked(fixture: &Fixture, id: &str) -> (Origin, RunId) {
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, id);
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    (origin, run)
}

fn spent(workflows: &Workflows) -> f64 {
    let requests = workflows.agent_requests(None, 10).unwrap();
    requests.first().unwrap().spent_ms
}

/// Executes whatever is due.
fn work(workflows: &Workflows) {
    let scheduler = workflows
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
}

#[test]
fn edge_073_elapsed_time_is_of_the_monotonic_clock() {
    let fixture = Fixture::new();
    let clock = fixture.store.clock().clone();
    let (mut origin, _) = asked(&fixture, "s");
    let message = origin.show_and_begin();
    clock.advance(150);
    origin.end(TurnEnd::Completed);
    let before = holdpoint_state::clock::Clock::now(&clock).0;
    clock.set_wall(before - 3_600_000);
    origin.begin(&message);
    clock.advance(80);
    origin.end(TurnEnd::Error);
    assert!((spent(&fixture.workflows) - 230.0).abs() < f64::EPSILON);
    assert_eq!((fixture.count(ALL), fixture.count(OPEN)), (2, 0));
}

#[test]
fn edge_074_a_turn_that_is_reported_twice_counts_once() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    let message = origin.show_and_begin();
    let (turn, _) = origin.turn.clone().unwrap();
    let again = TurnStart {
        turn: turn.clone(),
        message: message.message_id.clone(),
        run: run.clone(),
    };
    fixture.store.clock().advance(10);
    assert_eq!(
        origin.connection().start_turn(&again).unwrap(),
        TurnReport::Adopted
    );
    assert_eq!(fixture.count(OPEN), 1);
    fixture.store.clock().advance(10);
    assert_eq!(origin.end(TurnEnd::Completed), TurnReport::Noted);
    fixture.store.clock().advance(10);
    origin.turn = Some((turn, run));
    assert_eq!(origin.end(TurnEnd::Completed), TurnReport::Adopted);
    assert!((spent(&fixture.workflows) - 20.0).abs() < f64::EPSILON);
    assert_eq!((fixture.count(ALL), fixture.count(OPEN)), (1, 0));
}

#[test]
fn edge_075_what_nobody_measured_is_not_charged() {
    let fixture = Fixture::new();
    let clock = fixture.store.clock();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    clock.advance(500);
    fixture.workflows.look_after_sessions();
    clock.advance(20);
    clock.advance(86_400_000);
    // The process is gone, and the session goes on with another one.
    origin.move_to(&Workflows::new(fixture.store.open().unwrap()));
    assert!((spent(&origin.workflows) - 500.0).abs() < f64::EPSILON);
    // The turn goes on as far as anybody knows, and so does its clock.
    assert_eq!(fixture.count(OPEN), 1);
    clock.advance(7);
    origin.end(TurnEnd::Completed);
    assert!((spent(&origin.workflows) - 507.0).abs() < f64::EPSILON);
    assert_eq!(
        origin.workflows.view(&run).unwrap().status,
        RunStatus::Waiting
    );
    // A process that knows that it is alone can close them all.
    origin.workflows.recover_clocks().unwrap();
    assert_eq!(fixture.count(OPEN), 0);
}

#[test]
fn edge_078_a_paused_run_has_no_clock_after_a_reconnection() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    assert_eq!(fixture.count(OPEN), 1);
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(fixture.count(OPEN), 0);
    origin.disconnect();
    origin.attach();
    fixture.workflows.look_after_sessions();
    assert_eq!(fixture.count(OPEN), 0);
    // The turn still goes on; after the resume its time counts again.
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(fixture.count(OPEN), 1);
    origin.disconnect();
    assert_eq!(fixture.count(OPEN), 0);
    // Resumed by a process that does not have the session: the one that has it sees it when it looks.
    origin.attach();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    let other = Workflows::new(fixture.store.open().unwrap());
    other.resume(&Control::of(&run)).unwrap();
    assert_eq!(fixture.count(OPEN), 0);
    fixture.workflows.look_after_sessions();
    assert_eq!(fixture.count(OPEN), 1);
    origin.end(TurnEnd::Completed);
}

#[test]
fn edge_079_a_budget_is_spent_when_it_is_reached() {
    let fixture = Fixture::new();
    let clock = fixture.store.clock();
    let (mut origin, run) = asked(&fixture, "s");
    let message = origin.show_and_begin();
    clock.advance(999);
    origin.end(TurnEnd::Completed);
    work(&fixture.workflows);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    let waiting = view.current_attempt_id.unwrap();
    origin.begin(&message);
    clock.advance(1);
    origin.end(TurnEnd::Completed);
    work(&fixture.workflows);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.final_output, Some(json!("too late")));
    // The attempt that waited is the one that timed out.
    assert_eq!(view.steps[0].result.attempt_id, waiting);
    assert_eq!(view.steps[0].result.outcome, NodeOutcome::TimedOut);
    let events = fixture.events(&run);
    assert!(
        events.contains(&"run.interaction_timeout_started".to_owned()),
        "{events:?}"
    );
    assert_eq!(
        fixture.count(
            "SELECT count(*) FROM interactive_requests WHERE status = 'cancelled' AND revision = 2"
        ),
        1
    );
}

#[test]
fn edge_079_an_unlimited_budget_is_measured_and_never_spent_and_none_has_no_clock() {
    let patient = Workflow::new("patient")
        .start_at("name")
        .agent("name", |_| Ok("take your time".to_owned()))
        .timeout(Timeout::Unlimited)
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&patient, json!(null)).run_id;
    scheduler.stop(LONG);
    let message = origin.show_and_begin();
    fixture.store.clock().advance(1_000_000_000);
    origin.end(TurnEnd::Completed);
    assert!((spent(&fixture.workflows) - 1e9).abs() < f64::EPSILON);
    work(&fixture.workflows);
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Waiting
    );
    assert_eq!(
        fixture.workflows.agent_requests(None, 1).unwrap()[0].timeout_ms,
        None
    );

    // lint:allow(sql-in-test): no command makes an attempt of an agent without a budget.
    damage(&fixture, &run, "UPDATE node_attempts SET timeout_ms = NULL");
    origin.begin(&message);
    assert_eq!(fixture.count(OPEN), 0);
    origin.end(TurnEnd::Completed);
}

#[test]
fn edge_080_expiry_refuses_what_is_still_looked_at() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    let submission = origin.submission(&run, json!(1), "k");
    let submitted = fixture.workflows.submit(&submission).unwrap().value;
    fixture.store.clock().advance(1_000);
    origin.end(TurnEnd::Completed);
    let view = fixture.workflows.view(&run).unwrap();
    let now = holdpoint_state::clock::Clock::now(fixture.store.clock()).0;
    let started_at = fixture.count("SELECT started_at FROM node_attempts");
    let ended = |outcome| NodeResult {
        attempt_id: view.current_attempt_id.clone().unwrap(),
        node_id: "name".parse().unwrap(),
        node_type: "agent".to_owned(),
        outcome,
        started_at,
        finished_at: now,
        duration_ms: now - started_at,
        output: None,
        error: None,
        receipt: None,
    };
    let claiming = |outcome| Claiming {
        run: run.clone(),
        revision: view.run_revision,
        owner: host(),
        lease_ms: 30_000,
        definition: naming(),
        plan: Plan::Expired {
            finished: FinishedAttempt::new(ended(outcome), None).unwrap(),
            next: Move::Start(attempt("late", "attempt-late")),
        },
    };
    // The only end is that its time is spent.
    let refused = commands::claim(fixture.store.db(), claiming(NodeOutcome::Failed));
    assert!(
        matches!(refused, Err(WorkflowError::Transition { .. })),
        "{refused:?}"
    );
    commands::claim(fixture.store.db(), claiming(NodeOutcome::TimedOut)).unwrap();
    let verdict = fixture
        .workflows
        .wait_for_verdict(&run, &submitted.submission_id, LONG)
        .unwrap();
    assert_eq!(verdict.outcome, SubmissionOutcome::Rejected);
    assert_eq!(
        verdict.message.as_deref(),
        Some("the model-turn deadline expired")
    );
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.steps[0].result.outcome, NodeOutcome::TimedOut);
    assert_eq!(
        view.current_node.map(|node| node.to_string()),
        Some("late".to_owned())
    );
}

#[test]
fn nobody_expires_a_request_that_has_time_left() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    fixture.store.clock().advance(999);
    origin.end(TurnEnd::Completed);
    let view = fixture.workflows.view(&run).unwrap();
    let ended = NodeResult {
        attempt_id: view.current_attempt_id.clone().unwrap(),
        node_id: "name".parse().unwrap(),
        node_type: "agent".to_owned(),
        outcome: NodeOutcome::TimedOut,
        started_at: 0,
        finished_at: 0,
        duration_ms: 0,
        output: None,
        error: None,
        receipt: None,
    };
    let before = fixture.rows();
    let refused = commands::claim(
        fixture.store.db(),
        Claiming {
            run: run.clone(),
            revision: view.run_revision,
            owner: host(),
            lease_ms: 30_000,
            definition: naming(),
            plan: Plan::Expired {
                finished: FinishedAttempt::new(ended, None).unwrap(),
                next: Move::Start(attempt("late", "attempt-late")),
            },
        },
    );
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(fixture.rows(), before);
}

#[test]
fn a_candidate_that_came_in_time_is_looked_at_before_the_deadline_is() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    fixture
        .workflows
        .submit(&origin.submission(&run, json!(7), "k"))
        .unwrap();
    fixture.store.clock().advance(5_000);
    origin.end(TurnEnd::Completed);
    work(&fixture.workflows);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.final_output, Some(json!({ "number": 7 })));
}

#[test]
fn a_running_scheduler_measures_and_expires_by_itself() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    origin.show_and_begin();
    // Nobody reports the end of the turn.
    fixture.store.clock().advance(1_500);
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    assert_eq!(view.final_output, Some(json!("too late")));
    scheduler.stop(LONG);
}

#[test]
fn the_budget_of_an_agent_is_resolved_and_saved_by_the_engine() {
    let definition = Workflow::new("budgets")
        .start_at("name")
        .agent("name", |_| Ok("name it".to_owned()))
        .timeout_with(|ctx| Ok(TimeBudget::Millis(ctx.input().as_f64().unwrap_or(1.0))))
        .build()
        .unwrap();
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    origin.start(&definition, json!(4_321));
    scheduler.stop(LONG);
    let request = &fixture.workflows.agent_requests(Some("s"), 1).unwrap()[0];
    assert_eq!(request.timeout_ms, Some(4_321.0));
    assert_eq!(request.contract["prompt"], Value::from("name it"));
}

#[test]
fn edge_055_a_cancel_of_a_paused_run_leaves_no_clock_no_question_and_a_free_session() {
    let fixture = Fixture::new();
    let (mut origin, run) = asked(&fixture, "s");
    origin.show_and_begin();
    fixture.store.clock().advance(30);
    fixture.workflows.look_after_sessions();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    fixture.store.clock().advance(1_000);
    fixture.workflows.look_after_sessions();
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!((view.status, view.paused), (RunStatus::Cancelled, false));
    assert_eq!((fixture.count(ALL), fixture.count(OPEN)), (1, 0));
    assert_eq!(
        fixture.count("SELECT CAST(total(elapsed_ms) AS INTEGER) FROM attempt_active_intervals"),
        30
    );
    assert_eq!(
        fixture.count(
            "SELECT count(*) FROM workflow_messages WHERE status = 'pending' AND kind <> 'terminal'"
        ),
        0
    );
    // Nothing opens it again, and the session may have the next run.
    fixture.workflows.look_after_sessions();
    assert_eq!(fixture.count(OPEN), 0);
    let start = commands::Start::new(&naming(), json!("Ada")).in_session("s");
    fixture.workflows.start(&start).unwrap();
}
