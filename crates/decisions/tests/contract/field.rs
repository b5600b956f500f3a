//! Cases from the field about decisions, that no numbered case of the reference shows.

use holdpoint_decisions::model::{Choice, Choices, OnTimeout, Presentation};
use holdpoint_decisions::node::{Deadline, HumanDecision};
use holdpoint_decisions::views;
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use serde_json::{Value, json};

use crate::support::{Fixture, draft};

/// How long the answer may take, in milliseconds.
const WINDOW_MS: i64 = 600_000;
/// How long it takes to make what is shown, in milliseconds.
const MAKING_MS: u64 = 5_000;

fn slow(fixture: &Fixture) -> Definition {
    let clock = fixture.store.clock().clone();
    let gate = HumanDecision::between("Ship", Choices::new([("go", Choice::new("Go"))]).unwrap())
        .showing(move |_ctx| {
            clock.advance(MAKING_MS);
            Ok(Presentation::new("Ship it?", Vec::new())?)
        })
        .until(Deadline::OnTimeout(OnTimeout {
            after_ms: 600_000.0,
            response: json!({ "choice": "go" }),
        }));
    Workflow::new("slow")
        .start_at("gate")
        .node("gate", gate.into_kind())
        .switch("gate", "$.choice", [("go", "end")])
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .build()
        .unwrap()
}

#[test]
fn case_067_the_time_for_an_answer_begins_when_it_can_be_given() {
    let fixture = Fixture::new();
    let begun = fixture.now();
    let run = fixture.run(&slow(&fixture));
    let decision = fixture.asked(&run);
    let asked = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    let can_be_given = begun.plus(i64::try_from(MAKING_MS).unwrap());
    assert_eq!(asked.request.created_at, can_be_given);
    assert_eq!(asked.request.expires_at, Some(can_be_given.plus(WINDOW_MS)));
}

#[test]
fn case_074_an_answer_wakes_its_own_run_and_what_waits_can_be_answered() {
    let fixture = Fixture::new();
    let (first, answered) = fixture.ask(draft);
    let (second, open) = fixture.ask(draft);
    let judged = fixture.answer(&answered, json!({ "choice": "go" }), "k1");
    assert!(judged.has_won());
    // The other question is still open, and holds nothing up.
    assert_eq!(fixture.go_on(&first).status, RunStatus::Completed);
    let waiting = fixture.workflows.view(&second).unwrap();
    assert_eq!(waiting.status, RunStatus::Waiting);
    assert_eq!(waiting.request.unwrap().request_id, open.as_str());
    assert_eq!(fixture.status(&open), "open");
    let judged = fixture.answer(&open, json!({ "choice": "go" }), "k2");
    assert!(judged.has_won());
    assert_eq!(fixture.go_on(&second).status, RunStatus::Completed);
}
