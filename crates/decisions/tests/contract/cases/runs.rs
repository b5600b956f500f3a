//! A decision and its run: pauses, ends, crashes, races to resume, changed sources, loops.

use std::sync::Arc;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{Adopted, Conflict, Draft, Judged, Provenance, Rejection};
use holdpoint_decisions::{DecisionError, views};
use holdpoint_state::{Actor, ClaimLostReason, StateError};
use holdpoint_workflows::commands::{Control, OwnerRight, Start};
use holdpoint_workflows::definition::{NodeKind, Workflow};
use holdpoint_workflows::model::{RunStatus, resource};
use holdpoint_workflows::{RunId, WorkflowError, Workflows};
use serde_json::{Value, json};

use super::time::owner;
use crate::support::{AFTER_MS, Fixture, Gate, LONG, draft, gated, timed};

fn go() -> Value {
    json!({ "choice": "go" })
}

fn pause(fixture: &Fixture, run: &RunId) {
    fixture.workflows.pause(&Control::of(run)).unwrap();
}

fn resume(fixture: &Fixture, run: &RunId) {
    fixture.workflows.resume(&Control::of(run)).unwrap();
}

/// How often an event of this name was written.
fn events(fixture: &Fixture, name: &str) -> usize {
    let snapshot = fixture.snapshot();
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached("SELECT event_type FROM events").unwrap();
    let names: Vec<String> = statement
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    names.iter().filter(|found| *found == name).count()
}

#[test]
fn decision_23_a_paused_run_takes_no_answer() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    pause(&fixture, &run);
    let paused = Judged::Conflict {
        conflict: Conflict::Paused,
    };
    assert_eq!(fixture.answer(&decision, go(), "k1"), paused);
    assert_eq!(fixture.rows(&decision), [""; 0]);
    // A channel's cursor moves on, so that what it brought is kept.
    let candidate = fixture.candidate(&decision, go(), "cb-1");
    assert_eq!(fixture.submit(&candidate).unwrap(), paused);
    assert_eq!(fixture.rows(&decision), ["channel rejected paused"]);
    resume(&fixture, &run);
    let again = fixture.submit(&candidate).unwrap();
    assert!(
        matches!(
            again,
            Judged::Adopted {
                earlier: Adopted::Rejected { .. }
            }
        ),
        "{again:?}"
    );
    assert!(fixture.answer(&decision, go(), "k2").has_won());
    assert_eq!(fixture.go_on(&run).status, RunStatus::Completed);
}

#[test]
fn decision_24_a_pause_does_not_stop_the_policy() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    pause(&fixture, &run);
    fixture.store.clock().advance(AFTER_MS.unsigned_abs());
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    assert_eq!(swept.resolved.len(), 1);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.paused, view.queue_status.as_str()),
        (RunStatus::Waiting, true, "parked")
    );
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Waiting
    );
    assert_eq!(fixture.status(&decision), "accepted, waiting for capacity");
    resume(&fixture, &run);
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(go()));
    assert_eq!(events(&fixture, "interaction_accepted"), 1);
}

#[test]
fn decision_25_a_pause_changes_nothing_of_a_decision() {
    let fixture = Fixture::new();
    let definition = gated(draft);
    let scheduler = fixture.scheduler();
    let start = Start::new(&definition, json!({})).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    fixture.workflows.wait(&run, LONG).unwrap();
    let decision = fixture.asked(&run);
    let messages = "SELECT count(*) FROM workflow_messages WHERE kind = 'decision'";
    let revision = "SELECT revision FROM interactive_requests";
    assert_eq!((fixture.count(messages), fixture.count(revision)), (1, 1));
    pause(&fixture, &run);
    resume(&fixture, &run);
    assert_eq!((fixture.count(messages), fixture.count(revision)), (1, 1));
    // The session that is asked answers, another one can't.
    let answer = Answer::new(&decision, go(), "ann").key("k");
    let other = commands::answer(fixture.db(), &answer.clone().in_session("session-2"))
        .unwrap()
        .value;
    assert_eq!(other, Judged::NotFound);
    assert!(
        commands::answer(fixture.db(), &answer.in_session("session-1"))
            .unwrap()
            .value
            .has_won()
    );
    let pending =
        "SELECT count(*) FROM workflow_messages WHERE kind = 'decision' AND status = 'pending'";
    assert_eq!(fixture.count(pending), 0);
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    assert!(scheduler.wait_until_idle(LONG));
}

#[test]
fn decision_26_the_end_of_a_run_ends_its_open_decision() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    assert_eq!(fixture.status(&decision), "cancelled");
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    assert_eq!(
        view.resolution.map(|resolution| resolution.provenance()),
        Some(Provenance::ExplicitCancel)
    );
    assert_eq!(events(&fixture, "decision.cancelled"), 1);
    let late = fixture.answer(&decision, go(), "k");
    assert!(
        matches!(
            late,
            Judged::Rejected {
                reason: Rejection::Cancelled { .. }
            }
        ),
        "{late:?}"
    );
    assert_eq!(
        fixture.rows(&decision),
        ["control won", "human already_resolved"]
    );
    // Its own cancellation is what is adopted now.
    let again = commands::cancel(fixture.db(), &commands::Cancel::of(&decision))
        .unwrap()
        .value;
    assert!(matches!(again, Judged::Adopted { .. }), "{again:?}");
    // The parent is being cancelled right here.
    assert_eq!(
        fixture.count("SELECT count(*) FROM effects WHERE effect_type = 'decision.cancel_parent'"),
        0
    );
}

#[test]
fn decision_27_an_answer_that_nobody_used_stays_an_answer() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    assert!(fixture.answer(&decision, go(), "k").has_won());
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    assert_eq!(fixture.status(&decision), "accepted");
    assert_eq!(
        fixture.count("SELECT count(*) FROM interactive_requests WHERE consumed_at IS NULL"),
        1
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE status = 'cancelled'"),
        1
    );
    assert_eq!(fixture.rows(&decision), ["human won"]);
}

#[test]
fn decision_28_the_policy_needs_the_present_lease_of_the_run() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    fixture.store.clock().advance(AFTER_MS.unsigned_abs());
    let claim = |owner| {
        fixture
            .db()
            .claim(resource(&run), Actor::host("test"), &owner, 1_000)
            .unwrap()
    };
    let lost = |refused: Result<_, DecisionError>| match refused {
        Err(DecisionError::State(StateError::ClaimLost { reason, .. })) => reason,
        other => panic!("{other:?}"),
    };
    let first = claim(owner());
    // Somebody else owns the run: it can't be taken, and the sweep comes back.
    let refused = commands::timeout(fixture.db(), &decision, OwnerRight::Taking(&owner()));
    assert!(
        matches!(
            refused,
            Err(DecisionError::State(StateError::LeaseHeld { .. }))
        ),
        "{refused:?}"
    );
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    assert_eq!(
        (swept.resolved.len(), swept.skipped),
        (0, vec![decision.clone()])
    );
    fixture.store.clock().advance(1_000);
    let refused = commands::timeout(fixture.db(), &decision, OwnerRight::Holding(&first));
    assert_eq!(lost(refused), ClaimLostReason::Expired);
    let second = claim(first.owner().clone());
    let refused = commands::timeout(fixture.db(), &decision, OwnerRight::Holding(&first));
    assert_eq!(lost(refused), ClaimLostReason::GenerationChanged);
    assert_eq!(fixture.rows(&decision), [""; 0]);
    let judged = commands::timeout(fixture.db(), &decision, OwnerRight::Holding(&second))
        .unwrap()
        .value;
    assert!(judged.has_won());
    fixture.db().release(second, Actor::host("test")).unwrap();
    assert_eq!(fixture.go_on(&run).final_output, Some(go()));
}

#[test]
fn decision_30_a_runner_that_died_costs_a_generation_and_no_answer() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    assert!(fixture.answer(&decision, go(), "k").has_won());
    let generation =
        "SELECT max(l.generation) FROM leases l JOIN runs r ON r.resource_key = l.resource_key";
    let before = fixture.count(generation);
    // A runner takes the run up and is gone.
    let claim = fixture
        .db()
        .claim(resource(&run), Actor::host("test"), &owner(), 1_000)
        .unwrap();
    drop(claim);
    fixture.store.clock().advance(1_001);
    let view = fixture.go_on(&run);
    assert_eq!(view.final_output, Some(go()));
    assert!(before + 2 <= fixture.count(generation));
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE node_id = 'gate'"),
        1
    );
    assert_eq!(fixture.count("SELECT count(*) FROM run_steps"), 2);
}

#[test]
fn decision_31_two_schedulers_resume_once() {
    let fixture = Fixture::new();
    let definition = gated(draft);
    for round in 0..10 {
        let run = fixture.run(&definition);
        let decision = fixture.asked(&run);
        let other = Workflows::new(fixture.store.open().unwrap());
        other.register(&definition);
        let options = || holdpoint_workflows::SchedulerOptions {
            workers: 1,
            poll_interval_ms: 50,
            ..Default::default()
        };
        let (one, two) = (
            fixture.workflows.scheduler(options()).unwrap(),
            other.scheduler(options()).unwrap(),
        );
        assert!(
            fixture
                .answer(&decision, go(), &format!("k{round}"))
                .has_won()
        );
        fixture.workflows.offer(&run);
        other.offer(&run);
        assert_eq!(
            fixture.workflows.wait(&run, LONG).unwrap().status,
            RunStatus::Completed
        );
        assert!(one.wait_until_idle(LONG) && two.wait_until_idle(LONG));
        one.stop(LONG);
        two.stop(LONG);
    }
    assert_eq!(events(&fixture, "interaction_accepted"), 10);
    assert_eq!(fixture.count("SELECT count(*) FROM run_steps"), 20);
}

#[test]
fn decision_32_an_answer_waits_for_the_source_that_asked() {
    let fixture = Fixture::new();
    let definition = gated(draft);
    let run = fixture.run(&definition);
    let decision = fixture.asked(&run);
    assert!(fixture.answer(&decision, go(), "k").has_won());
    let changed = Workflow::new("gated")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate(Arc::new(draft))))
        .compute("end", |_| Ok("changed"))
        .compute("more", |_| Ok("changed"))
        .edge("gate", "end")
        .edge("end", "more")
        .build()
        .unwrap();
    let elsewhere = Workflows::new(fixture.db().clone());
    elsewhere.register(&changed);
    let scheduler = elsewhere
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    let view = elsewhere
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    assert_eq!(fixture.status(&decision), "accepted, waiting for capacity");
    assert!(matches!(
        elsewhere.resume(&Control::of(&run)),
        Err(WorkflowError::SourceChanged { .. })
    ));
    scheduler.stop(LONG);
    // With the source that asked, the answer is used.
    resume(&fixture, &run);
    assert_eq!(fixture.go_on(&run).final_output, Some(go()));
    assert_eq!(fixture.rows(&decision), ["human won"]);
}

#[test]
fn decision_39_nobody_who_is_reached_is_no_answer() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(|waiting| Draft {
        audience: "nobody".to_owned(),
        ..draft(waiting)
    });
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    fixture.store.clock().advance(365 * 24 * 60 * 60 * 1_000);
    assert_eq!(
        commands::sweep(fixture.db(), fixture.now()).unwrap(),
        commands::Swept::default()
    );
    assert_eq!(fixture.status(&decision), "open");
    let operators = [holdpoint_decisions::model::Audience::new("operator").unwrap()];
    let shown =
        views::open_for_channel(&fixture.snapshot(), &operators, fixture.now(), None, 10).unwrap();
    assert_eq!(shown.requests, []);
    assert!(fixture.answer(&decision, go(), "k").has_won());
    fixture.workflows.offer(&run);
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
}

#[test]
fn decision_43_each_turn_of_a_loop_is_a_decision_of_its_own() {
    let fixture = Fixture::new();
    let definition = Workflow::new("loop")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate(Arc::new(draft))))
        .compute("again", |ctx| ctx.output::<Value>("gate"))
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .switch("gate", "$.choice", [("go", "end"), ("redo", "again")])
        .edge("again", "gate")
        .build()
        .unwrap();
    let run = fixture.run(&definition);
    let mut buttons = Vec::new();
    for turn in 0..2 {
        let decision = fixture.asked(&run);
        buttons.push(fixture.candidate(&decision, go(), &format!("button-{turn}")));
        let redo = json!({ "choice": "redo", "input": { "why": format!("turn {turn}") } });
        assert!(
            fixture
                .answer(&decision, redo, &format!("k{turn}"))
                .has_won()
        );
        fixture.go_on(&run);
    }
    let last = fixture.asked(&run);
    let all = views::of_run(&fixture.snapshot(), &run, fixture.now()).unwrap();
    let count = all.len();
    let views = all.into_iter().map(|listed| listed.readable().unwrap());
    let mut digests: Vec<_> = views.map(|view| view.request.request_digest).collect();
    digests.sort();
    digests.dedup();
    assert_eq!((count, digests.len()), (3, 3));
    for (turn, mut button) in buttons.into_iter().enumerate() {
        // What the button names is over; what is open now is something else.
        let told = fixture.submit(&button).unwrap();
        assert!(
            matches!(
                told,
                Judged::Conflict {
                    conflict: Conflict::Winner { .. }
                }
            ),
            "{told:?}"
        );
        button.decision_id = last.clone();
        button.idempotency_key = format!("moved-{turn}");
        let stale = fixture.submit(&button).unwrap();
        assert_eq!(
            stale,
            Judged::Rejected {
                reason: Rejection::Stale
            }
        );
    }
    assert!(fixture.answer(&last, go(), "last").has_won());
    assert_eq!(fixture.go_on(&run).final_output, Some(go()));
}
