//! Pause, resume and cancel win over runners, repeat harmlessly, and leave nothing open.

use holdpoint_state::{Disposition, StateError};
use holdpoint_workflows::commands::{self, Answer, Control, ForeignClaim, Move, Plan, Start};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::DisplayStatus;
use holdpoint_workflows::{RunId, Scheduler, SchedulerOptions, WorkflowError};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, attempt, echo, host};

/// Goes on until it is stopped.
fn endless() -> Definition {
    Workflow::new("endless")
        .start_at("n")
        .compute("n", |ctx| {
            ctx.cancellation.wait(LONG);
            ctx.cancellation.check()?;
            Ok(1)
        })
        .build()
        .unwrap()
}

fn executing(fixture: &Fixture) -> (Scheduler, RunId) {
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&endless(), json!(null)).unwrap();
    fixture
        .workflows
        .wait_for(&run, LONG, |view| view.current_node.is_some())
        .unwrap();
    (scheduler, run)
}

fn waiting(fixture: &Fixture) -> (Scheduler, RunId) {
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Waiting
    );
    (scheduler, run)
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it ends the result that a test made"
)]
fn rejected<T: std::fmt::Debug>(result: Result<T, WorkflowError>) {
    assert!(
        matches!(result, Err(WorkflowError::Rejected { .. })),
        "{result:?}"
    );
}

#[test]
fn edge_046_a_second_run_waits_for_the_only_place_and_a_cancel_needs_none() {
    let fixture = Fixture::new();
    let scheduler = fixture
        .workflows
        .scheduler(SchedulerOptions {
            workers: 1,
            poll_interval_ms: 20,
            ..SchedulerOptions::default()
        })
        .unwrap();
    let first = fixture.workflows.run(&endless(), json!(null)).unwrap();
    fixture
        .workflows
        .wait_for(&first, LONG, |view| view.current_node.is_some())
        .unwrap();
    let second = fixture.workflows.run(&echo(), json!(1)).unwrap();
    assert_eq!(
        fixture.workflows.view(&second).unwrap().display_status,
        DisplayStatus::Queued
    );
    fixture.workflows.cancel(&Control::of(&first)).unwrap();
    assert_eq!(
        fixture.workflows.wait(&second, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_048_an_accepted_answer_goes_before_an_older_queued_run() {
    let fixture = Fixture::new();
    let (scheduler, asks) = waiting(&fixture);
    scheduler.stop(LONG);
    let options = SchedulerOptions {
        workers: 1,
        ..SchedulerOptions::default()
    };
    let scheduler = fixture.workflows.scheduler(options).unwrap();
    let busy = fixture.workflows.run(&endless(), json!(null)).unwrap();
    fixture
        .workflows
        .wait_for(&busy, LONG, |view| view.current_node.is_some())
        .unwrap();
    let older = fixture.workflows.run(&echo(), json!(1)).unwrap();
    fixture
        .workflows
        .answer(&Answer::new(&asks, json!(1)))
        .unwrap();
    fixture.workflows.cancel(&Control::of(&busy)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    let last = |run: &RunId| fixture.last_event_seq(run);
    assert!(last(&asks) < last(&older));
}

#[test]
fn an_accepted_answer_is_taken_up_by_its_own_plan_only() {
    let fixture = Fixture::new();
    let (scheduler, run) = waiting(&fixture);
    scheduler.stop(LONG);
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let definition = asking();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.display_status, DisplayStatus::Queued);
    let before = fixture.rows();
    let plan = Plan::Again {
        next: Move::Start(attempt("ask", "x")),
    };
    assert!(fixture.claim(&definition, &run, &host(), plan).is_err());
    assert_eq!(before, fixture.rows());
    let scheduler = fixture.scheduler();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_050_a_pause_parks_the_run_and_takes_the_claim_in_one_transaction() {
    let fixture = Fixture::new();
    let (scheduler, run) = executing(&fixture);
    let first = fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(first.value, commands::Paused::Runner);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.display_status, view.queue_status.as_str()),
        (DisplayStatus::Paused, "parked")
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM leases WHERE owner_id IS NOT NULL"),
        0
    );
    let before = fixture.rows();
    let second = fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(second.disposition, Disposition::Adopted);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(before, fixture.rows());
    assert_eq!(fixture.events(&run).last().unwrap(), "run_paused");
    scheduler.stop(LONG);
}

#[test]
fn edge_051_a_queued_run_without_a_request_is_not_pausable() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    rejected(fixture.workflows.pause(&Control::of(&run)));
}

#[test]
fn edge_052_a_waiting_run_is_not_resumed_and_the_text_says_what_it_waits_for() {
    let fixture = Fixture::new();
    let (scheduler, run) = waiting(&fixture);
    match fixture.workflows.resume(&Control::of(&run)) {
        Err(WorkflowError::Rejected { problem, .. }) => {
            assert!(problem.contains("answer"), "{problem}");
        }
        other => panic!("{other:?}"),
    }
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert_eq!(fixture.events(&run).last().unwrap(), "run.paused");
    let before = fixture.workflows.view(&run).unwrap().request.unwrap();
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.display_status, view.request.unwrap()),
        (DisplayStatus::Waiting, before)
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_055_cancel_while_paused() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let start = Start::new(&asking(), json!(null)).in_session("s");
    let run = fixture.workflows.start(&start).unwrap().value;
    fixture.workflows.wait(&run, LONG).unwrap();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    fixture
        .workflows
        .cancel(&Control::of(&run).because("not needed"))
        .unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!((view.status, view.paused), (RunStatus::Cancelled, false));
    assert_eq!(view.error.as_deref(), Some("not needed"));
    assert_eq!(view.request.unwrap().status.as_str(), "cancelled");
    // The session is free again, and a second cancel is refused.
    fixture
        .workflows
        .start(&Start::new(&asking(), json!(null)).in_session("s"))
        .unwrap();
    rejected(fixture.workflows.cancel(&Control::of(&run)));
    scheduler.stop(LONG);
}

#[test]
fn edge_057_a_run_of_a_foreign_host_is_left_alone_until_its_lease_ends() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(1)).unwrap();
    fixture.claim_first(&definition, &run, &host());
    let before = fixture.rows();
    for result in [
        fixture.workflows.cancel(&Control::of(&run)),
        fixture
            .workflows
            .pause(&Control::of(&run))
            .map(|receipt| receipt.map(|_| ())),
    ] {
        assert!(
            matches!(
                result,
                Err(WorkflowError::State(StateError::LeaseHeld { .. }))
            ),
            "{result:?}"
        );
    }
    assert_eq!(before, fixture.rows());
    fixture.store.clock().advance(30_000);
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    assert_eq!(fixture.count("SELECT generation FROM leases"), 2);
}

#[test]
fn a_foreign_claim_can_be_taken_over_on_purpose() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(1)).unwrap();
    let claimed = fixture.claim_first(&definition, &run, &host());
    let control = Control::of(&run).foreign_claim(ForeignClaim::TakeOver);
    fixture.workflows.pause(&control).unwrap();
    if let commands::Claimed::Owned { claim, .. } = claimed {
        let late = commands::hand_over(fixture.store.db(), &claim);
        assert!(late.unwrap_err().is_claim_lost());
    }
    fixture.workflows.cancel(&control).unwrap();
}

#[test]
fn edge_058_cancel_and_answer_race_to_one_winner() {
    let fixture = Fixture::new();
    for _ in 0..10 {
        let (scheduler, run) = waiting(&fixture);
        scheduler.stop(LONG);
        let workflows = &fixture.workflows;
        let (answered, cancelled) = std::thread::scope(|scope| {
            let answer = scope.spawn(|| workflows.answer(&Answer::new(&run, json!(1))));
            let cancel = scope.spawn(|| workflows.cancel(&Control::of(&run)));
            (answer.join().unwrap(), cancel.join().unwrap())
        });
        cancelled.unwrap();
        let view = workflows.view(&run).unwrap();
        assert_eq!(view.status, RunStatus::Cancelled);
        assert_eq!(view.request.unwrap().status.as_str(), "cancelled");
        let kept = fixture.count("SELECT count(*) FROM interactive_submissions");
        if answered.is_ok() {
            assert!(0 < kept);
        }
        assert_eq!(fixture.violations(), Vec::<String>::new());
    }
}

#[test]
fn edge_059_a_late_proposal_after_a_cancel_is_lost() {
    let fixture = Fixture::new();
    let (scheduler, run) = executing(&fixture);
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!((view.status, view.steps.len()), (RunStatus::Cancelled, 0));
    scheduler.stop(LONG);
}

#[test]
fn case_043_cancel_works_from_every_open_state_without_a_runner() {
    let fixture = Fixture::new();
    let definition = echo();
    let queued = fixture.workflows.run(&definition, json!(1)).unwrap();
    let lost = fixture.workflows.run(&definition, json!(2)).unwrap();
    fixture.claim_first(&definition, &lost, &host());
    fixture.store.clock().advance(30_000);
    let (scheduler, asking) = waiting(&fixture);
    scheduler.stop(LONG);
    for run in [queued, lost, asking] {
        drop(fixture.workflows.cancel(&Control::of(&run)));
        assert!(fixture.workflows.view(&run).unwrap().status.is_terminal());
    }
}

#[test]
fn case_026_a_restarted_process_is_not_its_own_predecessor() {
    assert_ne!(host().id(), host().id());
}

#[test]
fn who_pauses_a_run_may_say_why_and_everybody_reads_it() {
    let fixture = Fixture::new();
    let (scheduler, run) = executing(&fixture);
    let pause = Control::of(&run).because("the bill is not paid");
    fixture.workflows.pause(&pause).unwrap();
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        view.status_detail.as_deref(),
        Some("paused: the bill is not paid")
    );
    assert_eq!(
        fixture.workflows.explain(&run).unwrap().reason,
        "somebody paused it, because: the bill is not paid; resume it"
    );
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(fixture.workflows.view(&run).unwrap().status_detail, None);
    scheduler.stop(LONG);
}

#[test]
fn case_035_no_state_combines_paused_with_held() {
    let fixture = Fixture::new();
    let (scheduler, run) = executing(&fixture);
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    let explanation = fixture.workflows.explain(&run).unwrap();
    assert_eq!(
        (explanation.holder, explanation.blocked_by.as_deref()),
        (None, Some("paused"))
    );
    scheduler.stop(LONG);
}

#[test]
fn a_scheduler_that_stops_gives_its_runs_back_at_once() {
    let fixture = Fixture::new();
    let (scheduler, run) = executing(&fixture);
    scheduler.stop(std::time::Duration::ZERO);
    let explanation = fixture.workflows.explain(&run).unwrap();
    assert_eq!(
        (explanation.holder, explanation.blocked_by.as_deref()),
        (None, Some("noRunner"))
    );
    assert_eq!(fixture.events(&run).last().unwrap(), "run.queue_parked");
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
}
