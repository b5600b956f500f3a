//! Deadlines: which side of it an instant is on, and what may happen there.

use holdpoint_decisions::commands::{self, Cancel};
use holdpoint_decisions::model::{
    Conflict, Draft, Invalid, Judged, OnTimeout, Provenance, RejectCode, Rejection, Request,
};
use holdpoint_decisions::{DecisionError, DecisionId};
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Owner, OwnerKind, StateError};
use holdpoint_workflows::commands::OwnerRight;
use holdpoint_workflows::definition::Waiting;
use holdpoint_workflows::{AttemptId, NodeId, RunId};
use serde_json::json;

use crate::support::{AFTER_MS, Fixture, draft, expiring, timed};

pub(crate) fn owner() -> Owner {
    Owner::new(OwnerKind::Host, "test")
}

fn timeout(fixture: &Fixture, decision: &DecisionId) -> Judged {
    commands::timeout(fixture.db(), decision, OwnerRight::Taking(&owner()))
        .unwrap()
        .value
}

/// Turns the clock to so many milliseconds after the creation of the decision that was just asked.
fn to(fixture: &Fixture, decision: &DecisionId, after_ms: i64) {
    let request = holdpoint_decisions::views::request(&fixture.snapshot(), decision)
        .unwrap()
        .unwrap();
    fixture
        .store
        .clock()
        .set_wall(request.created_at().plus(after_ms).0);
}

/// A draft without a run, for what is refused before anything is stored.
fn alone() -> Draft {
    let (run, node, attempt) = (
        RunId::new("run-1").unwrap(),
        NodeId::new("gate").unwrap(),
        AttemptId::new("attempt-1").unwrap(),
    );
    draft(&Waiting {
        run_id: &run,
        workflow: "wf",
        session: "session",
        node_id: &node,
        attempt_id: &attempt,
        now: UnixMillis(1_000),
    })
}

#[test]
fn decision_01_an_answer_just_before_the_deadline_is_the_persons() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS - 1);
    let judged = fixture.answer(&decision, json!({ "choice": "go" }), "k");
    assert!(matches!(judged, Judged::Accepted { .. }));
    assert_eq!(judged.provenance(), Some(Provenance::Human));
}

#[test]
fn decision_02_from_the_deadline_on_it_is_the_policys() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS);
    let judged = fixture.answer(&decision, json!({ "choice": "go" }), "k");
    let expired = Rejection::Invalid {
        code: RejectCode::Expired,
    };
    assert_eq!(judged, Judged::Rejected { reason: expired });
    let judged = timeout(&fixture, &decision);
    assert!(matches!(judged, Judged::Accepted { .. }));
    assert_eq!(judged.provenance(), Some(Provenance::TimeoutPolicy));
    assert_eq!(
        fixture.rows(&decision),
        ["human rejected expired", "policy won"]
    );
}

#[test]
fn decision_03_the_policy_is_not_early() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS - 1);
    assert!(matches!(
        timeout(&fixture, &decision),
        Judged::NotDue {
            deadline_at: Some(_)
        }
    ));
    assert_eq!(fixture.rows(&decision), [""; 0]);
}

#[test]
fn decision_04_what_has_an_automatic_answer_never_expires() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS * 1_000);
    let refused = commands::expire(fixture.db(), &decision, OwnerRight::Taking(&owner()));
    assert!(
        matches!(
            refused,
            Err(DecisionError::State(StateError::InvalidTransition { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(fixture.rows(&decision), [""; 0]);
    // And what has none is never answered by itself, nor does it expire without a deadline.
    let (_, expiring) = fixture.ask(expiring);
    let (_, unlimited) = fixture.ask(draft);
    for decision in [&expiring, &unlimited] {
        let refused = commands::timeout(fixture.db(), decision, OwnerRight::Taking(&owner()));
        assert!(
            matches!(
                refused,
                Err(DecisionError::State(StateError::InvalidTransition { .. }))
            ),
            "{refused:?}"
        );
    }
    let refused = commands::expire(fixture.db(), &unlimited, OwnerRight::Taking(&owner()));
    assert!(
        matches!(
            refused,
            Err(DecisionError::State(StateError::InvalidTransition { .. }))
        ),
        "{refused:?}"
    );
}

#[test]
fn decision_05_control_may_cancel_past_the_deadline_and_the_policy_is_told() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS + 1);
    let judged = commands::cancel(fixture.db(), &Cancel::of(&decision))
        .unwrap()
        .value;
    assert_eq!(judged.provenance(), Some(Provenance::ExplicitCancel));
    let judged = timeout(&fixture, &decision);
    assert!(
        matches!(
            judged,
            Judged::Rejected {
                reason: Rejection::Cancelled { .. }
            }
        ),
        "{judged:?}"
    );
    assert_eq!(
        fixture.rows(&decision),
        ["control won", "policy already_resolved"]
    );
    // A second try of the policy adopts what the first was told.
    assert!(matches!(
        timeout(&fixture, &decision),
        Judged::Adopted { .. }
    ));
    assert_eq!(fixture.rows(&decision).len(), 2);
}

#[test]
fn decision_06_without_a_deadline_a_year_is_no_time() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    to(&fixture, &decision, 365 * 24 * 60 * 60 * 1_000);
    assert!(matches!(
        fixture.answer(&decision, json!({ "choice": "go" }), "k"),
        Judged::Accepted { .. }
    ));
}

#[test]
fn decision_07_two_deadlines_are_none() {
    let two = Draft {
        on_timeout: Some(OnTimeout {
            after_ms: 1.0,
            response: json!({ "choice": "go" }),
        }),
        expires_at: Some(UnixMillis(2_000)),
        ..alone()
    };
    assert_eq!(Request::new(two), Err(Invalid::TwoDeadlines));
    // Nor is a deadline that is not after the creation.
    let past = Draft {
        expires_at: Some(UnixMillis(1_000)),
        ..alone()
    };
    assert_eq!(Request::new(past), Err(Invalid::Deadline));
}

#[test]
fn decision_08_an_automatic_answer_must_be_one_that_may_be_given() {
    for (length, is_right) in [(4_000, true), (4_001, false)] {
        let response = json!({ "choice": "redo", "input": { "why": "x".repeat(length) } });
        let draft = Draft {
            on_timeout: Some(OnTimeout {
                after_ms: 1.0,
                response,
            }),
            ..alone()
        };
        match Request::new(draft) {
            Ok(_) => assert!(is_right),
            Err(error) => {
                assert!(!is_right);
                assert_eq!(
                    error,
                    Invalid::Default {
                        code: RejectCode::InputTooLong
                    }
                );
            }
        }
    }
}

#[test]
fn decision_09_a_time_until_the_deadline_is_a_duration() {
    let after = |after_ms: f64| {
        let response = json!({ "choice": "go" });
        Request::new(Draft {
            on_timeout: Some(OnTimeout { after_ms, response }),
            ..alone()
        })
    };
    for wrong in [
        0.0,
        -0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e30,
    ] {
        assert_eq!(after(wrong), Err(Invalid::AfterMs), "{wrong}");
    }
    // A fraction of a millisecond is dropped; less than one still leaves an instant for an answer.
    for (right, deadline) in [(1.9, 1_001), (1_000.0, 2_000), (0.5, 1_001)] {
        assert_eq!(
            after(right).unwrap().expires_at(),
            Some(UnixMillis(deadline)),
            "{right}"
        );
    }
}

#[test]
fn decision_40_the_policy_needs_no_channel() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS);
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    assert_eq!(swept.resolved, [(decision.clone(), run.clone())]);
    assert_eq!(
        fixture.go_on(&run).final_output,
        Some(json!({ "choice": "go" }))
    );
    // Swept again, there is nothing left.
    let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
    assert_eq!(swept, commands::Swept::default());
}

#[test]
fn decision_41_a_clock_that_is_set_back_changes_nothing_that_was_decided() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(timed);
    to(&fixture, &decision, AFTER_MS);
    let won = timeout(&fixture, &decision);
    to(&fixture, &decision, 1);
    let late = fixture.answer(
        &decision,
        json!({ "choice": "redo", "input": { "why": "x" } }),
        "k",
    );
    assert!(
        matches!(
            late,
            Judged::Conflict {
                conflict: Conflict::Winner { .. }
            }
        ),
        "{late:?}"
    );
    assert_eq!(late.resolution(), won.resolution());
    assert!(matches!(
        timeout(&fixture, &decision),
        Judged::Adopted { .. }
    ));
}
