//! One answer wins; everything else is told and recorded.

use holdpoint_decisions::commands::{self, Cancel};
use holdpoint_decisions::model::{Conflict, Judged, Provenance};
use holdpoint_state::{Owner, OwnerKind};
use holdpoint_workflows::commands::{Control, OwnerRight};
use holdpoint_workflows::model::RunStatus;
use serde_json::json;

use crate::support::{AFTER_MS, Fixture, draft, expiring, timed};

#[test]
fn the_answer_completes_the_attempt_that_asked() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    assert_eq!(fixture.status(&decision), "open");
    let answer = json!({ "choice": "redo", "input": { "why": " x \n" } });
    let judged = fixture.answer(&decision, answer.clone(), "k1");
    assert!(matches!(judged, Judged::Accepted { .. }), "{judged:?}");
    assert_eq!(fixture.status(&decision), "accepted, waiting for capacity");
    let view = fixture.go_on(&run);
    assert_eq!(
        (view.status, view.final_output),
        (RunStatus::Completed, Some(answer))
    );
    assert_eq!(fixture.status(&decision), "accepted");
    fixture.settle_effects();
    assert_eq!(fixture.rows(&decision), ["human won"]);
    assert!(fixture.db().verify().unwrap().is_clean());
}

#[test]
fn the_channel_answers_in_the_transaction_of_its_cursor() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let submission = fixture.candidate(&decision, json!({ "choice": "go" }), "cb-1");
    let judged = fixture.submit(&submission).unwrap();
    assert!(matches!(judged, Judged::Accepted { .. }), "{judged:?}");
    let lost = fixture.answer(&decision, json!({ "choice": "go" }), "k1");
    assert_eq!(lost.provenance(), Some(Provenance::Human));
    assert!(
        matches!(
            lost,
            Judged::Conflict {
                conflict: Conflict::Winner { .. }
            }
        ),
        "{lost:?}"
    );
    assert_eq!(
        fixture.rows(&decision),
        ["channel won", "human already_resolved"]
    );
    assert_eq!(fixture.go_on(&run).status, RunStatus::Completed);
}

#[test]
fn the_policy_and_the_expiry_apply_when_they_are_due() {
    let fixture = Fixture::new();
    let owner = Owner::new(OwnerKind::Host, "test");
    let (with_default, timed) = fixture.ask(timed);
    let (without, expiring) = fixture.ask(expiring);
    fixture
        .store
        .clock()
        .advance(u64::try_from(AFTER_MS).unwrap() - 1);
    let early = commands::timeout(fixture.db(), &timed, OwnerRight::Taking(&owner))
        .unwrap()
        .value;
    assert!(matches!(early, Judged::NotDue { .. }), "{early:?}");
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    assert_eq!(
        (swept.resolved.len(), swept.next_due),
        (0, Some(fixture.now().plus(1)))
    );
    fixture.store.clock().advance(1);
    assert_eq!(fixture.status(&timed), "overdue");
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    let mut resolved = vec![
        (timed.clone(), with_default.clone()),
        (expiring.clone(), without.clone()),
    ];
    resolved.sort();
    assert_eq!(swept.resolved, resolved);
    assert_eq!((swept.skipped.len(), swept.next_due), (0, None));
    fixture.settle_effects();
    assert_eq!(fixture.status(&expiring), "cancelled");
    assert_eq!(
        fixture.workflows.view(&without).unwrap().status,
        RunStatus::Cancelled
    );
    assert_eq!(
        fixture.go_on(&with_default).final_output,
        Some(json!({ "choice": "go" }))
    );
}

#[test]
fn a_cancelled_decision_takes_its_run_with_it() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let cancel = Cancel::of(&decision).because("not needed");
    let judged = commands::cancel(fixture.db(), &cancel).unwrap().value;
    assert_eq!(judged.provenance(), Some(Provenance::ExplicitCancel));
    assert_eq!(fixture.violations(), Vec::<String>::new());
    let again = commands::cancel(fixture.db(), &cancel).unwrap().value;
    assert!(matches!(again, Judged::Adopted { .. }), "{again:?}");
    fixture.settle_effects();
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Cancelled
    );
}

#[test]
fn the_end_of_a_run_ends_its_decision() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    holdpoint_workflows::commands::cancel(fixture.db(), &Control::of(&run)).unwrap();
    assert_eq!(fixture.status(&decision), "cancelled");
    assert_eq!(fixture.rows(&decision), ["control won"]);
    fixture.settle_effects();
}

#[test]
fn edge_39_a_parent_that_is_over_is_left_alone() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let cancel = Cancel::of(&decision).leaving_the_run();
    commands::cancel(fixture.db(), &cancel).unwrap();
    holdpoint_workflows::commands::cancel(fixture.db(), &Control::of(&run)).unwrap();
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    fixture.settle_effects();
    assert_eq!(fixture.workflows.view(&run).unwrap().run_revision, revision);
    assert_eq!(
        fixture.count("SELECT count(*) FROM effects WHERE status = 'applied'"),
        2
    );
}
