//! How a run follows its decision: at once, exactly once, safely in the gap that a crash leaves, and although the decision is damaged.

use std::sync::Barrier;

use holdpoint_decisions::commands::{self, Cancel};
use holdpoint_decisions::views::{self, Next};
use holdpoint_decisions::{DecisionError, DecisionId, effects};
use holdpoint_state::Database;
use holdpoint_workflows::commands::{Control, OwnerRight};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{RunId, WorkflowError, Workflows};

use crate::cases::{changed, owner};
use crate::support::{AFTER_MS, Fixture, LONG, draft, expiring, timed};

fn status(fixture: &Fixture, run: &RunId) -> RunStatus {
    fixture.workflows.view(run).unwrap().status
}

#[test]
fn a_cancelled_decision_ends_its_run_at_once_and_once() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let together = Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                together.wait();
                commands::cancel(fixture.db(), &Cancel::of(&decision)).unwrap()
            });
        }
    });
    assert_eq!(status(&fixture, &run), RunStatus::Cancelled);
    let applied = "SELECT count(*) FROM effects WHERE effect_type = 'decision.cancel_parent' AND status = 'applied'";
    assert_eq!(fixture.count(applied), 1);
    let ended = "SELECT count(*) FROM events WHERE event_type = 'run_cancelled'";
    assert_eq!(fixture.count(ended), 1);
    // What settles presentations is left to a program that knows its channels.
    let left = "SELECT count(*) FROM effects WHERE effect_type = 'decision.settle_presentations' AND status = 'pending'";
    assert_eq!(fixture.count(left), 1);
}

/// The gap that a crash leaves: the decision has ended, and its run has not followed.
fn nothing_is_asked_again(fixture: &Fixture, run: &RunId, decision: &DecisionId) {
    let attempts = "SELECT count(*) FROM node_attempts";
    let before = fixture.count(attempts);
    let view = views::fetch(&fixture.snapshot(), decision, fixture.now())
        .unwrap()
        .unwrap();
    assert_eq!(view.next(), Next::RunIsCancelled);
    let refused = fixture.workflows.resume(&Control::of(run));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    assert_eq!(status(fixture, run), RunStatus::Waiting);
    assert_eq!(fixture.count(attempts), before);
    assert_eq!(effects::cancel_parents(fixture.db()).unwrap(), 1);
    assert_eq!(status(fixture, run), RunStatus::Cancelled);
    assert_eq!(effects::cancel_parents(fixture.db()).unwrap(), 0);
}

#[test]
fn a_run_in_the_gap_after_a_cancellation_is_not_resumed() {
    for is_paused in [false, true] {
        let fixture = Fixture::new();
        let (run, decision) = fixture.ask(draft);
        if is_paused {
            fixture.workflows.pause(&Control::of(&run)).unwrap();
        }
        let cancel = Cancel::of(&decision).leaving_the_run();
        commands::cancel(fixture.db(), &cancel).unwrap();
        nothing_is_asked_again(&fixture, &run, &decision);
    }
}

#[test]
fn a_run_in_the_gap_after_an_expiry_is_not_resumed() {
    for is_paused in [false, true] {
        let fixture = Fixture::new();
        let (run, decision) = fixture.ask(expiring);
        if is_paused {
            fixture.workflows.pause(&Control::of(&run)).unwrap();
        }
        fixture.store.clock().advance(AFTER_MS.unsigned_abs());
        commands::expire(fixture.db(), &decision, OwnerRight::Taking(&owner())).unwrap();
        nothing_is_asked_again(&fixture, &run, &decision);
    }
}

#[test]
fn a_repeat_after_a_crash_in_the_gap_ends_the_run() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let cancel = Cancel::of(&decision);
    commands::cancel(fixture.db(), &cancel.clone().leaving_the_run()).unwrap();
    assert_eq!(status(&fixture, &run), RunStatus::Waiting);
    commands::cancel(fixture.db(), &cancel).unwrap();
    assert_eq!(status(&fixture, &run), RunStatus::Cancelled);
}

#[test]
fn a_damaged_decision_lets_its_run_end_and_stays_damaged() {
    for (part, from, to) in [
        ("request", "\"schema\":", "\"scheme\":"),
        ("request", "request.v1", "request.v2"),
        ("request", "{", "["),
        ("subject", "\"a\"", "\"b\""),
        ("choices", "Redo", "Undo"),
    ] {
        let fixture = Fixture::new();
        let (run, decision) = fixture.ask(timed);
        let (path, db) = changed(&fixture, part, |text| text.replacen(from, to, 1));
        let damage = findings(&db);
        assert!(!damage.is_empty(), "{part}");
        let workflows = Workflows::new(db.clone());
        workflows.cancel(&Control::of(&run)).unwrap();
        let view = workflows.view(&run).unwrap();
        assert_eq!(view.status, RunStatus::Cancelled);
        // Nobody can read it now either, and it is not swept any more.
        let now = db.clock().now().plus(2 * AFTER_MS);
        let read = views::fetch(&db.snapshot().unwrap(), &decision, now);
        assert!(
            matches!(
                read,
                Err(DecisionError::Corrupt { .. } | DecisionError::Incompatible { .. })
            ),
            "{part}: {read:?}"
        );
        let swept = commands::sweep(&db, now).unwrap();
        assert_eq!((swept.resolved.len(), swept.unusable), (0, Vec::new()));
        assert_eq!(
            reason(&db),
            format!(
                "the run ended, and what was asked can't be read: {}",
                read.unwrap_err()
            )
        );
        // The rows hold together, and the damage is told as before.
        assert_eq!(findings(&db), damage, "{part}");
        drop(workflows);
        db.close();
        std::fs::remove_file(&path).unwrap();
    }
}

fn findings(db: &Database) -> Vec<String> {
    let found = db.verify().unwrap().findings;
    found.iter().map(|finding| format!("{finding:?}")).collect()
}

fn reason(db: &Database) -> String {
    let snapshot = db.snapshot().unwrap();
    snapshot
        .sql()
        .prepare_cached("SELECT reason FROM human_decision_resolutions")
        .unwrap()
        .query_row([], |row| row.get(0))
        .unwrap()
}
