//! The node kind in Rust: what is asked is computed once, the answer completes the very attempt, every choice has its route.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::duty::DecisionDuty;
use holdpoint_decisions::effects::SettlePresentations;
use holdpoint_decisions::model::{
    Block, Choice, Choices, OnTimeout, Presentation, Provenance, TextInput,
};
use holdpoint_decisions::node::{AskPeople as _, Deadline, Given, HumanDecision};
use holdpoint_decisions::{answers, choices, views};
use holdpoint_state::{Actor, ActorKind};
use holdpoint_workflows::commands::{Answer as CheckpointAnswer, AssistantText, Submission};
use holdpoint_workflows::definition::{Definition, DefinitionError, NodeError, NodeKind, Workflow};
use holdpoint_workflows::model::RunStatus;
use serde_json::{Value, json};

use crate::support::{Fixture, LONG};

choices! {
    /// What a reviewer may say.
    pub(crate) enum Review {
        /// It goes out.
        Ship = "ship" => Choice::new("Ship"),
        /// It is done again.
        Redo = "redo" => Choice::new("Redo").with_text(TextInput::new("why", "What is missing?")),
    }
}

/// Asks for a review of what the input says; counts how often the presentation is made.
fn release(made: &Arc<AtomicU32>, deadline: Deadline) -> Definition {
    let counting = Arc::clone(made);
    let review = HumanDecision::of::<Review>("Ship it?")
        .to_computed(|ctx| {
            Ok(ctx.input["audience"]
                .as_str()
                .unwrap_or("operator")
                .to_owned())
        })
        .titled(|ctx| {
            Ok(format!(
                "Ship {}?",
                ctx.input["version"].as_str().unwrap_or_default()
            ))
        })
        .showing(move |ctx| {
            counting.fetch_add(1, Ordering::SeqCst);
            let notes: String = ctx.output("draft")?;
            Ok(Presentation::new(
                "All tests pass.",
                vec![Block::preformatted(notes)],
            )?)
        })
        .about(|ctx| Ok(json!({ "notes": ctx.outputs["draft"] })))
        .until(deadline);
    Workflow::new("release")
        .start_at("draft")
        .compute("draft", |ctx| {
            Ok(format!("Notes of {}", ctx.input()["version"]))
        })
        .ask_people("review", review, |review| match review {
            Review::Ship => "publish",
            Review::Redo => "again",
        })
        .compute("publish", |ctx| ctx.output::<Value>("review"))
        .compute("again", |ctx| {
            let given: Given<Review> = ctx.output("review")?;
            assert_eq!(given.choice, Review::Redo);
            Ok(given.text)
        })
        .edge("draft", "review")
        .build()
        .unwrap()
}

fn started(fixture: &Fixture, definition: &Definition, input: Value) -> holdpoint_workflows::RunId {
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(definition, input).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    run
}

#[test]
fn what_is_asked_is_computed_once_and_the_answer_completes_the_attempt() {
    let fixture = Fixture::new();
    let made = Arc::new(AtomicU32::new(0));
    let definition = release(&made, Deadline::None);
    let run = started(
        &fixture,
        &definition,
        json!({ "version": "1.2", "audience": "release" }),
    );
    let decision = fixture.asked(&run);
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    assert_eq!(view.request.title, "Ship 1.2?");
    assert_eq!(view.request.audience.as_str(), "release");
    assert_eq!(view.request.node_id, "review");
    assert_eq!(view.request.workflow_name, "release");
    assert_eq!(view.request.created_at, fixture.now());
    assert_eq!(
        view.request.presentation.blocks(),
        [Block::preformatted("Notes of \"1.2\"")]
    );
    let request = views::request(&fixture.snapshot(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(
        request.document()["subject"],
        json!({ "notes": "Notes of \"1.2\"" })
    );

    // Leading and trailing space is part of what was said.
    let response = json!({ "choice": "redo", "input": { "why": " more\n" } });
    let judged = commands::answer(fixture.db(), &Answer::new(&decision, response, "ann")).unwrap();
    assert!(judged.value.has_won());
    let view = fixture.go_on(&run);
    assert_eq!(view.final_output, Some(json!(" more\n")));
    assert_eq!(made.load(Ordering::SeqCst), 1);
    // The step keeps what everybody may see of the answer.
    let receipt = view.steps[1].receipt.clone().unwrap();
    assert_eq!(receipt["provenance"], "human");
    assert!(!receipt.to_string().contains("ann"), "{receipt}");
    assert_eq!(
        view.steps[1].result.output,
        Some(json!({ "choice": "redo", "input": { "why": " more\n" } }))
    );
}

#[test]
fn the_duty_of_the_scheduler_gives_the_automatic_answer_when_it_is_due() {
    let fixture = Fixture::new();
    let deadline = Deadline::OnTimeout(OnTimeout {
        after_ms: 600_000.0,
        response: json!({ "choice": "ship" }),
    });
    let definition = release(&Arc::default(), deadline);
    let duty = DecisionDuty::new(fixture.db(), SettlePresentations::new()).unwrap();
    let workflows = fixture.workflows.clone().with_duty(Arc::new(duty));
    let scheduler = workflows
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    let run = workflows
        .run(&definition, json!({ "version": "1.2" }))
        .unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(workflows.view(&run).unwrap().status, RunStatus::Waiting);
    // One millisecond before, it is no work at all.
    fixture.store.clock().advance(599_999);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(workflows.view(&run).unwrap().status, RunStatus::Waiting);
    fixture.store.clock().advance(1);
    assert!(scheduler.wait_until_idle(LONG));
    let view = workflows.view(&run).unwrap();
    assert_eq!(view.final_output, Some(json!({ "choice": "ship" })));
    assert_eq!(
        view.steps[1].receipt.as_ref().unwrap()["provenance"],
        "timeout"
    );
    scheduler.stop(LONG);
}

#[test]
fn the_duty_ends_a_decision_without_an_automatic_answer_and_its_run() {
    let fixture = Fixture::new();
    let at = fixture.now().plus(600_000);
    let definition = release(&Arc::default(), Deadline::ExpiresAt(at));
    let duty = DecisionDuty::new(fixture.db(), SettlePresentations::new()).unwrap();
    let workflows = fixture.workflows.clone().with_duty(Arc::new(duty));
    let scheduler = workflows
        .scheduler(holdpoint_workflows::SchedulerOptions::default())
        .unwrap();
    let run = workflows
        .run(&definition, json!({ "version": "1.2" }))
        .unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    let decision = fixture.asked(&run);
    fixture.store.clock().advance(600_000);
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(workflows.view(&run).unwrap().status, RunStatus::Cancelled);
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    let provenance = view.resolution.map(|resolution| resolution.provenance());
    assert_eq!(provenance, Some(Provenance::ExpiredNoDefault));
    scheduler.stop(LONG);
}

#[test]
fn decision_09_what_can_not_be_asked_fails_the_attempt_and_leaves_nothing() {
    let fixture = Fixture::new();
    let policy = |after_ms: f64, choice: &str| {
        Deadline::OnTimeout(OnTimeout {
            after_ms,
            response: json!({ "choice": choice }),
        })
    };
    for deadline in [
        policy(0.0, "ship"),
        policy(-1.0, "ship"),
        policy(f64::NAN, "ship"),
        policy(f64::INFINITY, "ship"),
        // A text is missing, and a choice that does not exist.
        policy(1.0, "redo"),
        policy(1.0, "sink"),
        // Beyond the last instant, but only when it is counted from now.
        policy(253_402_300_799_000.0, "ship"),
        // The deadline has come before anybody was asked: nobody could ever be.
        Deadline::ExpiresAt(fixture.now()),
        Deadline::ExpiresAt(fixture.now().plus(-1_000)),
    ] {
        let run = started(
            &fixture,
            &release(&Arc::default(), deadline),
            json!({ "version": "1" }),
        );
        let view = fixture.workflows.view(&run).unwrap();
        assert_eq!(view.status, RunStatus::Failed);
        assert!(view.error.unwrap().contains("InvalidDecision"));
    }
    let untitled = HumanDecision::of::<Review>("x").titled(|_| Ok(" ".to_owned()));
    let failing = HumanDecision::of::<Review>("x").showing(|_| Err(NodeError::new("no notes")));
    for review in [untitled, failing] {
        let definition = Workflow::new("w")
            .start_at("review")
            .ask_people("review", review, |_| "end")
            .compute("end", |_| Ok(1))
            .build()
            .unwrap();
        let run = started(&fixture, &definition, json!({}));
        assert_eq!(
            fixture.workflows.view(&run).unwrap().status,
            RunStatus::Failed
        );
    }
    let open = views::open(&fixture.snapshot(), fixture.now(), 10).unwrap();
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn a_model_and_an_ordinary_answer_are_refused_before_anything_is_written() {
    let fixture = Fixture::new();
    let run = started(
        &fixture,
        &release(&Arc::default(), Deadline::None),
        json!({ "version": "1" }),
    );
    let decision = fixture.asked(&run);
    let rows = || -> i64 {
        let snapshot = fixture.snapshot();
        let count = "SELECT (SELECT count(*) FROM human_decision_submissions) + (SELECT count(*) FROM interactive_submissions)
             + (SELECT count(*) FROM events)";
        let sql = snapshot.sql();
        sql.prepare_cached(count)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    };
    let before = rows();
    let response = json!({ "choice": "ship" });
    let refused = [
        fixture
            .workflows
            .answer(&CheckpointAnswer::new(&run, response.clone()))
            .map(drop),
        fixture
            .workflows
            .submit(&Submission::new(&run, response.clone()))
            .map(drop),
        fixture
            .workflows
            .assistant(&AssistantText::new(&run, "session", "entry", "ship"))
            .map(drop),
    ];
    for result in refused {
        assert!(result.is_err(), "{result:?}");
    }
    for actor in [
        Actor::new(ActorKind::Session, "s"),
        Actor::control("tool"),
        Actor::host("h"),
    ] {
        let answer = Answer::new(&decision, response.clone(), "x").by(actor);
        assert!(commands::answer(fixture.db(), &answer).is_err());
    }
    assert_eq!(rows(), before);
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Waiting
    );
}

#[test]
fn choices_that_only_the_program_knows_are_checked_when_the_workflow_is_built() {
    let choices = Choices::new([("a", Choice::new("A")), ("b", Choice::new("B"))]).unwrap();
    let with = |cases: Vec<(&str, &str)>| {
        Workflow::new("w")
            .start_at("ask")
            .node(
                "ask",
                HumanDecision::between("A or B?", choices.clone()).into_kind(),
            )
            .compute("end", |_| Ok(1))
            .switch("ask", "$.choice", cases)
            .build()
    };
    assert!(with(vec![("a", "end"), ("b", "end")]).is_ok());
    for cases in [
        vec![("a", "end")],
        vec![("a", "end"), ("b", "end"), ("c", "end")],
    ] {
        let built = with(cases);
        assert!(
            matches!(built, Err(DefinitionError::Cases { .. })),
            "{built:?}"
        );
    }
}

#[test]
fn a_snapshot_has_what_is_fixed_and_says_what_is_computed() {
    let made = Arc::default();
    let computed = release(&made, Deadline::None);
    let fixed = HumanDecision::of::<Review>("Ship?").until(Deadline::OnTimeout(OnTimeout {
        after_ms: 5.0,
        response: json!({ "choice": "ship" }),
    }));
    let fixed = Workflow::new("w")
        .start_at("review")
        .ask_people("review", fixed, |_| "end")
        .compute("end", |_| Ok(1))
        .build()
        .unwrap();
    let shown = [&computed, &fixed]
        .map(|definition| format!("{:#}", definition.snapshot()["nodes"]["review"]["declared"]));
    insta::assert_snapshot!(shown.join("\n"));
}

/// A worker sends what its node drafted. The host makes the request again, and takes what the definition fixes from the definition.
#[test]
fn the_word_of_a_worker_changes_nothing_that_is_fixed() {
    let choices = Choices::new([("a", Choice::new("A"))]).unwrap();
    let decision = HumanDecision::between("A?", choices).about(|ctx| Ok(ctx.input.clone()));
    let NodeKind::Custom(node) = decision.into_kind() else {
        panic!("a kind of this crate")
    };
    let honest = json!({
        "audience": "operator", "title": "A?", "choices": { "a": { "label": "A" } }, "subject": 1,
        "presentation": { "schema": "pi-workflows.decision-presentation.v1", "summary": "A?", "blocks": [] },
    });
    assert!(node.park_again(&honest).is_some());
    for (member, forged) in [
        ("title", json!("Forged?")),
        ("audience", json!("nobody")),
        ("choices", json!({ "forged": { "label": "Forged" } })),
        (
            "onTimeout",
            json!({ "afterMs": 1, "response": { "choice": "a" }, }),
        ),
    ] {
        let mut said = honest.clone();
        said[member] = forged;
        let made = format!("{:?}", node.park_again(&said));
        assert!(
            !made.contains("orged") && !made.contains("nobody") && !made.contains("afterMs"),
            "{made}"
        );
    }
    // What can't be asked is made by nobody.
    for (member, forged) in [
        ("subject", Value::Null),
        ("title", json!(7)),
        ("more", json!(1)),
    ] {
        let mut said = honest.clone();
        if member == "subject" {
            said.as_object_mut().unwrap().remove(member);
        } else {
            said[member] = forged;
        }
        assert!(node.park_again(&said).is_none(), "{member}");
    }
}

/// What is missing, as its author wrote it.
#[derive(Debug, Clone, PartialEq)]
struct Missing(String);

impl From<String> for Missing {
    fn from(text: String) -> Self {
        Self(text)
    }
}

answers! {
    /// What a reader says.
    enum Reading of ReadingChoice {
        /// It is good.
        Good = "good" => "Good",
        /// Something is missing.
        Poor(Missing: TextInput::new("what", "What is missing?")) = "poor" => "Poor",
        /// Something else.
        Other(String: TextInput::new("text", "What then?").units(0, 10)) = "other" => "Something else",
    }
}

#[test]
fn a_text_arrives_as_the_type_of_its_variant() {
    let reading = Workflow::new("reading")
        .start_at("ask")
        .ask_people(
            "ask",
            HumanDecision::answered_as::<Reading>("Good?"),
            |_| "end",
        )
        .compute("end", |ctx| {
            Ok(match ctx.output::<Reading>("ask")? {
                Reading::Good => json!("good"),
                Reading::Poor(Missing(what)) => json!(["poor", what]),
                Reading::Other(text) => json!(["other", text]),
            })
        })
        .build()
        .unwrap();
    let fixture = Fixture::new();
    for (key, answer, output) in [
        ("k1", json!({ "choice": "good" }), json!("good")),
        (
            "k2",
            json!({ "choice": "poor", "input": { "what": " x\n" } }),
            json!(["poor", " x\n"]),
        ),
        (
            "k3",
            json!({ "choice": "other", "input": { "text": "" } }),
            json!(["other", ""]),
        ),
    ] {
        let run = fixture.run(&reading);
        assert!(fixture.answer(&fixture.asked(&run), answer, key).has_won());
        assert_eq!(fixture.go_on(&run).final_output, Some(output));
    }
    for none in [
        json!({ "choice": "poor" }),
        json!({ "choice": "none" }),
        json!(1),
    ] {
        assert!(
            serde_json::from_value::<Reading>(none.clone()).is_err(),
            "{none}"
        );
    }
}
