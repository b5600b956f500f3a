//! The wait of somebody who wants to know how a decision ends, and what is told of what happens next.

use std::sync::Barrier;
use std::time::Duration;

use holdpoint_decisions::commands::{self, Cancel, Waited};
use holdpoint_decisions::model::{Invalid, Limit, REASON_UNITS_MAX};
use holdpoint_decisions::views::{self, DecisionView, Next};
use holdpoint_decisions::{DecisionError, DecisionId};
use holdpoint_state::StateError;
use holdpoint_workflows::commands::Control;
use serde_json::json;

use crate::support::{AFTER_MS, Fixture, LONG, draft, expiring, timed};

fn view(fixture: &Fixture, decision: &DecisionId) -> DecisionView {
    views::fetch(&fixture.snapshot(), decision, fixture.now())
        .unwrap()
        .unwrap()
}

#[test]
fn the_limit_of_a_wait_ends_no_decision() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(timed);
    let events = fixture.count("SELECT count(*) FROM events");
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let waited = commands::wait(fixture.db(), &decision, limit).unwrap();
        assert!(matches!(waited, Waited::Open(_)), "{waited:?}");
    }
    // Not even when the deadline has passed meanwhile: a wait only reads.
    fixture.store.clock().advance(AFTER_MS.unsigned_abs());
    let waited = commands::wait(fixture.db(), &decision, Duration::from_millis(20)).unwrap();
    assert_eq!(waited.view().status.as_str(), "overdue");
    assert_eq!(fixture.count("SELECT count(*) FROM events"), events);
    assert_eq!(fixture.rows(&decision), [""; 0]);
    commands::sweep(fixture.db(), fixture.now()).unwrap();
    let waited = commands::wait(fixture.db(), &decision, Duration::ZERO).unwrap();
    assert!(matches!(waited, Waited::Resolved(_)), "{waited:?}");
    fixture.go_on(&run);
}

#[test]
fn a_wait_ends_with_the_decision() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let begun = Barrier::new(2);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            begun.wait();
            commands::wait(fixture.db(), &decision, LONG).unwrap()
        });
        begun.wait();
        fixture.answer(&decision, json!({ "choice": "go" }), "k");
        let waited = waiting.join().unwrap();
        assert_eq!(
            waited
                .view()
                .resolution
                .as_ref()
                .unwrap()
                .response()
                .unwrap()
                .choice()
                .as_str(),
            "go"
        );
    });
    let nobody = DecisionId::new("decision-0").unwrap();
    assert!(matches!(
        commands::wait(fixture.db(), &nobody, LONG),
        Err(DecisionError::State(StateError::NotFound { .. }))
    ));
}

#[test]
fn what_happens_next_and_who_does_it() {
    let fixture = Fixture::new();
    let mut told = Vec::new();
    let mut tell = |name: &str, decision: &DecisionId| {
        told.push(format!("{name}: {}", view(&fixture, decision).next()));
    };
    let (_, open) = fixture.ask(draft);
    tell("open", &open);
    let (paused_run, with_default) = fixture.ask(timed);
    let (_, without) = fixture.ask(expiring);
    tell("with an automatic answer", &with_default);
    tell("without one", &without);
    fixture.workflows.pause(&Control::of(&paused_run)).unwrap();
    tell("paused", &with_default);
    fixture.store.clock().advance(AFTER_MS.unsigned_abs());
    tell("overdue and paused", &with_default);
    tell("overdue without one", &without);
    commands::sweep(fixture.db(), fixture.now()).unwrap();
    tell("given, and paused", &with_default);
    fixture.workflows.resume(&Control::of(&paused_run)).unwrap();
    tell("given", &with_default);
    fixture.go_on(&paused_run);
    tell("used", &with_default);
    fixture.settle_effects();
    tell("expired", &without);
    insta::assert_snapshot!(told.join("\n"), @r#"
    open: a person answers, of the audience operator; nothing happens by itself
    with an automatic answer: a person answers, of the audience operator; from 2026-01-01T00:10:00.000Z on the automatic answer "Go" is given
    without one: a person answers, of the audience operator; from 2026-01-01T00:10:00.000Z on it ends without an answer, and its run with it
    paused: its run is paused: somebody resumes it, before anybody can answer; its deadline, 2026-01-01T00:10:00.000Z, comes all the same
    overdue and paused: the deadline has passed, so that no person may answer: whoever works on this store next gives the automatic answer "Go", and the run stays paused until somebody resumes it
    overdue without one: the deadline has passed, so that no person may answer: whoever works on this store next ends the decision without an answer and cancels its run
    given, and paused: it is answered, and its run is paused: somebody resumes the run
    given: it is answered: whoever works on this store next goes on with its run
    used: nothing: it is over
    expired: nothing: it is over
    "#);
    let next = serde_json::to_value(view(&fixture, &open).next()).unwrap();
    assert_eq!(
        next,
        json!({ "what": "answer", "audience": "operator", "until": null, "automatic": null })
    );
    assert_eq!(view(&fixture, &without).next(), Next::Nothing);
}

#[test]
fn the_reason_of_a_cancellation_is_kept_whole_or_refused() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let longest = "é".repeat(usize::try_from(REASON_UNITS_MAX).unwrap());
    let refused = |reason: &str| {
        let cancel = Cancel::of(&decision).because(reason);
        match commands::cancel(fixture.db(), &cancel).unwrap_err() {
            DecisionError::Invalid(invalid) => invalid,
            other => panic!("{other}"),
        }
    };
    assert_eq!(
        refused(&format!("{longest}!")),
        Invalid::Limit {
            at: "the reason".to_owned(),
            limit: Limit::ReasonUnits,
            observed: REASON_UNITS_MAX + 1
        }
    );
    assert!(matches!(refused(" \n"), Invalid::Blank { .. }));
    assert!(matches!(
        refused("a\u{1b}[2J"),
        Invalid::ControlCharacter { code: 27, .. }
    ));
    assert_eq!(fixture.rows(&decision), [""; 0]);
    assert_eq!(view(&fixture, &decision).reason, None);
    commands::cancel(
        fixture.db(),
        &Cancel::of(&decision).because(longest.as_str()),
    )
    .unwrap();
    assert_eq!(view(&fixture, &decision).reason, Some(longest));
    fixture.settle_effects();
}

#[test]
fn what_a_screen_would_obey_is_neutralised_where_it_is_shown() {
    use holdpoint_decisions::document::parts::{parts, without_controls};
    use holdpoint_decisions::model::{Choice, Choices, Draft, Presentation, Request};
    let hostile = "pay \u{202e}001\u{202c} now\u{2066}\u{e0041}";
    let request = Request::new(Draft {
        run_id: "run".to_owned(),
        workflow_name: "wf".to_owned(),
        node_id: "gate".to_owned(),
        attempt_id: "attempt".to_owned(),
        audience: "operator".to_owned(),
        title: hostile.to_owned(),
        choices: Choices::new([("go", Choice::new(hostile))]).unwrap(),
        subject: json!(null),
        presentation: Presentation::new(hostile, Vec::new()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: fixture_time(),
    })
    .unwrap();
    // The request keeps what its author wrote: its digests are made of it.
    assert_eq!(request.title(), hostile);
    assert_eq!(request.document()["presentation"]["summary"], hostile);
    // What is shown of it has none of it.
    let shown = parts(&request.for_channels()).unwrap();
    let text = &shown[0].text;
    assert_eq!(
        text.matches("pay \u{fffd}001\u{fffd} now\u{fffd}\u{fffd}")
            .count(),
        3,
        "{text:?}"
    );
    // Letters and pictures that are joined stay as they are.
    let joined = "\u{1f469}\u{200d}\u{1f52c} \u{645}\u{6cc}\u{200c}\u{62e}\u{648} \u{270a}\u{fe0f}";
    assert_eq!(without_controls(joined), joined);
}

fn fixture_time() -> holdpoint_state::clock::UnixMillis {
    holdpoint_state::clock::UnixMillis(0)
}
