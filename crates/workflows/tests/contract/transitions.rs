//! A runner's proposals are checked against what is committed, and a claim that is lost gives no right.

use holdpoint_state::{ClaimLostReason, StateError};
use holdpoint_workflows::commands::{
    self, Answer, Ask, Claimed, Control, FinishedAttempt, Move, Plan,
};
use holdpoint_workflows::definition::{TimeBudget, Workflow};
use holdpoint_workflows::model::{RequestKind, RunStatus, TerminalStatus};
use holdpoint_workflows::routing::{NodeOutcome, NodeResult};
use holdpoint_workflows::{AttemptId, NodeId, WorkflowError};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, asking, attempt, echo, host};

fn finished(node: &str, id: &str, started_at: i64, output: Value) -> FinishedAttempt {
    let result = NodeResult {
        attempt_id: AttemptId::new(id).unwrap(),
        node_id: NodeId::new(node).unwrap(),
        node_type: "compute".to_owned(),
        outcome: NodeOutcome::Ok,
        started_at,
        finished_at: started_at,
        duration_ms: 0,
        output: Some(output),
        error: None,
        receipt: None,
    };
    FinishedAttempt::new(result, None).unwrap()
}

fn owned(claimed: Claimed) -> (holdpoint_state::Claim, i64) {
    match claimed {
        Claimed::Owned { claim, advanced } => (claim, advanced.started_at.unwrap().0),
        other => panic!("{other:?}"),
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it ends the result that a test made"
)]
fn refused<T: std::fmt::Debug>(result: Result<T, WorkflowError>) {
    assert!(
        matches!(result, Err(WorkflowError::Transition { .. })),
        "{result:?}"
    );
}

fn lost<T: std::fmt::Debug>(result: Result<T, WorkflowError>) -> ClaimLostReason {
    match result {
        Err(WorkflowError::State(StateError::ClaimLost { reason, .. })) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn edge_033_an_attempt_begins_only_where_the_route_leads() {
    let fixture = Fixture::new();
    let definition = asking();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let wrong = Plan::First {
        title: None,
        next: Move::Start(attempt("end", "a")),
    };
    refused(fixture.claim(&definition, &run, &host(), wrong));
    let (claim, started_at) = owned(fixture.claim_first(&definition, &run, &host()));
    let before = fixture.rows();
    let one = finished("start", "attempt-1", started_at, json!(1));
    for next in [
        Move::Start(attempt("end", "b")),
        Move::Start(attempt("start", "b")),
        Move::Complete,
        Move::End(TerminalStatus::TimedOut, "no".to_owned()),
        Move::End(TerminalStatus::Completed, "no".to_owned()),
    ] {
        refused(commands::advance(
            fixture.store.db(),
            &claim,
            &definition,
            Some(one.clone()),
            next,
        ));
    }
    // While an attempt goes on nothing else begins.
    let other = Move::Start(attempt("ask", "b"));
    refused(commands::advance(
        fixture.store.db(),
        &claim,
        &definition,
        None,
        other,
    ));
    // An id is used once.
    let used = Move::Start(attempt("ask", "attempt-1"));
    refused(commands::advance(
        fixture.store.db(),
        &claim,
        &definition,
        Some(one.clone()),
        used,
    ));
    assert_eq!(before, fixture.rows());
    let next = Move::Start(attempt("ask", "attempt-2"));
    commands::advance(fixture.store.db(), &claim, &definition, Some(one), next).unwrap();
}

#[test]
fn edge_034_only_the_present_attempt_finishes_and_only_once() {
    let fixture = Fixture::new();
    let definition = asking();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let (claim, started_at) = owned(fixture.claim_first(&definition, &run, &host()));
    let db = fixture.store.db();
    for wrong in [
        finished("start", "other", started_at, json!(1)),
        finished("ask", "attempt-1", started_at, json!(1)),
        finished("start", "attempt-1", started_at + 1, json!(1)),
    ] {
        let next = Move::Start(attempt("ask", "x"));
        refused(commands::advance(
            db,
            &claim,
            &definition,
            Some(wrong),
            next,
        ));
    }
    let right = finished("start", "attempt-1", started_at, json!(1));
    let next = Move::Start(attempt("ask", "attempt-2"));
    commands::advance(db, &claim, &definition, Some(right.clone()), next).unwrap();
    refused(commands::advance(
        db,
        &claim,
        &definition,
        Some(right),
        Move::HandOver,
    ));
    assert_eq!(fixture.count("SELECT count(*) FROM run_steps"), 1);
}

#[test]
fn edge_035_a_checkpoint_ends_with_its_accepted_answer_only() {
    let fixture = Fixture::new();
    let definition = Workflow::new("w")
        .start_at("ask")
        .checkpoint("ask")
        .build()
        .unwrap();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let (claim, started_at) = owned(fixture.claim_first(&definition, &run, &host()));
    let db = fixture.store.db();
    let checkpoint = |output: Value| {
        let mut result = finished("ask", "attempt-1", started_at, output)
            .result()
            .clone();
        result.node_type = "checkpoint".to_owned();
        FinishedAttempt::new(result, None).unwrap()
    };
    refused(commands::advance(
        db,
        &claim,
        &definition,
        Some(checkpoint(json!(1))),
        Move::Complete,
    ));
    let id = AttemptId::new("attempt-1").unwrap();
    commands::wait(
        db,
        &claim,
        &id,
        Ask::new(RequestKind::Checkpoint, json!({ "q": 1 })),
    )
    .unwrap();
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let answered = |output| Plan::Answered {
        finished: checkpoint(output),
        next: Move::Complete,
    };
    refused(fixture.claim(&definition, &run, &host(), answered(json!("no"))));
    let claimed = fixture
        .claim(&definition, &run, &host(), answered(json!("yes")))
        .unwrap();
    assert!(matches!(claimed, Claimed::Ended));
    assert_eq!(
        fixture.workflows.view(&run).unwrap().final_output,
        Some(json!("yes"))
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM interactive_requests WHERE consumed_at IS NOT NULL"),
        1
    );
}

#[test]
fn edge_036_a_time_budget_is_set_once() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let mut first = attempt("echo", "attempt-1");
    first.timeout = None;
    let plan = Plan::First {
        title: None,
        next: Move::Start(first),
    };
    let (claim, _) = owned(fixture.claim(&definition, &run, &host(), plan).unwrap());
    let db = fixture.store.db();
    let id = AttemptId::new("attempt-1").unwrap();
    commands::set_timeout(db, &claim, &id, TimeBudget::Unlimited).unwrap();
    refused(commands::set_timeout(
        db,
        &claim,
        &id,
        TimeBudget::Millis(5.0),
    ));
    refused(commands::set_timeout(
        db,
        &claim,
        &AttemptId::new("x").unwrap(),
        TimeBudget::Millis(5.0),
    ));
    assert_eq!(fixture.events(&run).last().unwrap(), "node_timeout_set");
}

#[test]
fn edge_037_a_run_completes_only_where_its_route_ends() {
    let fixture = Fixture::new();
    let definition = asking();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let (claim, started_at) = owned(fixture.claim_first(&definition, &run, &host()));
    let db = fixture.store.db();
    refused(commands::advance(
        db,
        &claim,
        &definition,
        None,
        Move::Complete,
    ));
    let one = finished("start", "attempt-1", started_at, json!(1));
    refused(commands::advance(
        db,
        &claim,
        &definition,
        Some(one),
        Move::Complete,
    ));
}

#[test]
fn edge_038_an_old_generation_is_refused_before_anything_else_is_looked_at() {
    let fixture = Fixture::new();
    let definition = asking();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let owner = host();
    let (old, _) = owned(fixture.claim_first(&definition, &run, &owner));
    fixture.store.clock().advance(30_000);
    let again = Plan::Again {
        next: Move::Start(attempt("start", "attempt-2")),
    };
    let (new, _) = owned(fixture.claim(&definition, &run, &owner, again).unwrap());
    assert_eq!((old.generation(), new.generation()), (1, 2));
    // The proposal is nonsense, and that is not what it is refused for.
    let nonsense = finished("nowhere", "nothing", -1, json!(1));
    let result = commands::advance(
        fixture.store.db(),
        &old,
        &echo(),
        Some(nonsense),
        Move::Complete,
    );
    assert_eq!(lost(result), ClaimLostReason::GenerationChanged);
}

#[test]
fn edge_039_the_same_host_gets_a_new_token_and_the_old_one_is_refused() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let owner = host();
    let (old, _) = owned(fixture.claim_first(&definition, &run, &owner));
    commands::hand_over(fixture.store.db(), &old).unwrap();
    let again = Plan::Again {
        next: Move::Start(attempt("echo", "attempt-2")),
    };
    let (new, _) = owned(fixture.claim(&definition, &run, &owner, again).unwrap());
    assert_eq!(
        lost(commands::hand_over(fixture.store.db(), &old)),
        ClaimLostReason::GenerationChanged
    );
    assert_eq!(new.generation(), 2);
}

#[test]
fn edge_040_a_renewal_after_the_expiry_is_lost() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    let (claim, _) = owned(fixture.claim_first(&definition, &run, &host()));
    fixture.store.clock().advance(29_999);
    fixture.store.db().renew(&claim).unwrap();
    fixture.store.clock().advance(30_000);
    let late = fixture
        .store
        .db()
        .renew(&claim)
        .map_err(WorkflowError::from);
    assert_eq!(lost(late), ClaimLostReason::Expired);
}

#[test]
fn edge_041_a_claim_lost_in_the_middle_of_a_node_writes_no_failure() {
    let fixture = Fixture::new();
    let (entered, seen) = std::sync::mpsc::channel();
    let definition = Workflow::new("w")
        .start_at("n")
        .compute("n", move |ctx| {
            entered.send(ctx.attempt_id.clone())?;
            if ctx.cancellation.wait(LONG).is_none() {
                return Ok("nobody stopped it");
            }
            Ok("late")
        })
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!((view.status, view.steps.len()), (RunStatus::Running, 0));
    assert_eq!(view.error, None);
    // Resumed, the node is executed again by a new attempt.
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    seen.recv_timeout(LONG).unwrap();
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    scheduler.stop(LONG);
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE status = 'cancelled'"),
        2
    );
}

#[test]
fn edge_042_the_terminal_fact_settles_queue_and_lease_in_its_own_transaction() {
    let fixture = Fixture::new();
    let definition = echo();
    let run = fixture.workflows.run(&definition, json!(5)).unwrap();
    let (claim, started_at) = owned(fixture.claim_first(&definition, &run, &host()));
    let one = finished("echo", "attempt-1", started_at, json!(5));
    commands::advance(
        fixture.store.db(),
        &claim,
        &definition,
        Some(one),
        Move::Complete,
    )
    .unwrap();
    assert_eq!(
        fixture.count("SELECT count(*) FROM run_queue WHERE status = 'done'"),
        1
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM leases WHERE owner_id IS NOT NULL"),
        0
    );
    assert_eq!(fixture.count("SELECT count(*) FROM effects"), 0);
}
