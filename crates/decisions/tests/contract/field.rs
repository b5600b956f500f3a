//! Cases from the field about decisions, that no numbered case of the reference shows.

use holdpoint_decisions::document::parts::parts;
use holdpoint_decisions::model::{Choice, Choices, OnTimeout, Presentation};
use holdpoint_decisions::model::{Judged, RejectCode, Rejection, Submission};
use holdpoint_decisions::node::{Deadline, HumanDecision};
use holdpoint_decisions::{DecisionId, views};
use holdpoint_state::Actor;
use holdpoint_workflows::commands::Start;
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, choices, draft};

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

fn by_another_person() -> Definition {
    let gate = HumanDecision::between("Pay", choices()).by_another_person();
    Workflow::new("paying")
        .start_at("gate")
        .node("gate", gate.into_kind())
        .switch("gate", "$.choice", [("go", "end"), ("redo", "end")])
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .build()
        .unwrap()
}

/// A decision of a run that this actor asked for.
fn asked_for_by(fixture: &Fixture, definition: &Definition, actor: Actor) -> DecisionId {
    let scheduler = fixture.scheduler();
    let start = Start::new(definition, json!({})).by(actor);
    let run = fixture.workflows.start(&start).unwrap().value;
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    fixture.asked(&run)
}

fn refused(code: RejectCode) -> Judged {
    Judged::Rejected {
        reason: Rejection::Invalid { code },
    }
}

#[test]
fn case_073_nobody_approves_a_wish_of_his_own_and_who_tried_is_recorded() {
    let fixture = Fixture::new();
    let decision = asked_for_by(&fixture, &by_another_person(), Actor::human("ann"));
    let go = json!({ "choice": "go" });
    // At the surface of the run, and with a name in the answer itself.
    assert_eq!(
        fixture.answer(&decision, go.clone(), "k1"),
        refused(RejectCode::Requester)
    );
    let named = json!({ "choice": "go", "by": "bob" });
    assert_eq!(
        fixture.answer(&decision, named, "k2"),
        refused(RejectCode::Requester)
    );
    // From elsewhere: as somebody whom the host knows to be Ann, and as somebody whom it does not know.
    let candidate = fixture.candidate(&decision, go.clone(), "cb-1");
    let ann = Submission {
        person: Some("ann".to_owned()),
        ..candidate
    };
    assert_eq!(
        fixture.submit(&ann).unwrap(),
        refused(RejectCode::Requester)
    );
    let somebody = fixture.candidate(&decision, go.clone(), "cb-2");
    assert_eq!(
        fixture.submit(&somebody).unwrap(),
        refused(RejectCode::UnknownPerson)
    );
    assert_eq!(
        fixture.rows(&decision),
        [
            "human rejected requester",
            "human rejected requester",
            "channel rejected requester",
            "channel rejected unknownPerson"
        ]
    );
    let kept = views::submissions(&fixture.snapshot(), &decision).unwrap();
    assert_eq!(kept[0].actor_id.as_deref(), Some("ann"));
    // It is still open, and another person answers it.
    let bob = Submission {
        person: Some("bob".to_owned()),
        ..fixture.candidate(&decision, go, "cb-3")
    };
    assert!(fixture.submit(&bob).unwrap().has_won());
}

#[test]
fn case_073_another_person_answers_at_the_surface_of_the_run() {
    let fixture = Fixture::new();
    let go = json!({ "choice": "go" });
    for asker in [Actor::human("bob"), Actor::control("bob"), Actor::system()] {
        let decision = asked_for_by(&fixture, &by_another_person(), asker);
        let key = format!("k-{decision}");
        assert!(fixture.answer(&decision, go.clone(), &key).has_won());
    }
    let decision = asked_for_by(&fixture, &by_another_person(), Actor::control("ann"));
    assert_eq!(
        fixture.answer(&decision, go, "k"),
        refused(RejectCode::Requester)
    );
}

#[test]
fn case_073_what_is_demanded_is_part_of_what_is_asked_and_shown() {
    let fixture = Fixture::new();
    let decision = asked_for_by(&fixture, &by_another_person(), Actor::human("ann"));
    let request = views::request(&fixture.snapshot(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(request.document()["answerers"], "anotherPerson");
    assert_eq!(
        request.for_channels().document()["answerers"],
        "anotherPerson"
    );
    let shown = parts(&request.for_channels()).unwrap();
    assert!(
        shown[0]
            .text
            .contains("Another person than the one who asked for this has to answer.")
    );
    // Without the demand whoever asked may answer, and nothing of it is in the request.
    let (_, open) = fixture.ask(draft);
    let request = views::request(&fixture.snapshot(), &open).unwrap().unwrap();
    assert_eq!(request.document().get("answerers"), None);
}

fn silent(choice: &str, change: impl Fn(HumanDecision) -> HumanDecision) -> Vec<String> {
    let choices = Choices::new([
        ("pay", Choice::new("Pay")),
        ("keep", Choice::new("Keep the money")),
    ])
    .unwrap();
    let gate = HumanDecision::between("Pay?", choices).until(Deadline::OnTimeout(OnTimeout {
        after_ms: 600_000.0,
        response: json!({ "choice": choice }),
    }));
    let inner = Workflow::new("paying")
        .start_at("gate")
        .node("gate", change(gate).into_kind())
        .switch("gate", "$.choice", [("pay", "end"), ("keep", "end")])
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .build()
        .unwrap();
    let told = inner.warnings();
    told.into_iter()
        .map(|(node, warning)| format!("{node}: {warning}"))
        .collect()
}

#[test]
fn case_068_an_automatic_answer_that_permits_is_told_when_it_is_built() {
    let told = silent("pay", |gate| gate);
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("gate: silence means yes"), "{told:?}");
    assert_eq!(silent("keep", |gate| gate), [""; 0]);
    // Said to be meant, it is no surprise any more.
    assert_eq!(silent("pay", HumanDecision::silence_is_consent), [""; 0]);
    // What is said about it decides nothing: runs of the one definition go on with the other.
    let snapshot = |gate: HumanDecision| format!("{gate:?}");
    let gate = || HumanDecision::between("Pay?", choices());
    assert_eq!(snapshot(gate()), snapshot(gate().silence_is_consent()));
}
