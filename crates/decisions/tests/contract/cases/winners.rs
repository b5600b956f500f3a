//! Who wins, who is told what, and which rows are left.

use std::sync::Barrier;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{
    Adopted, ChannelId, Conflict, Judged, RejectCode, Rejection, Source, Submission,
};
use holdpoint_decisions::views;
use holdpoint_state::testing::counter;
use serde_json::{Value, json};

use crate::support::{Fixture, choices, draft};

#[test]
fn decision_10_two_connections_have_one_winner() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let other = fixture.store.open().unwrap();
    let barrier = Barrier::new(2);
    let judged: Vec<Judged> = std::thread::scope(|scope| {
        let both = [
            (fixture.db(), json!({ "choice": "go" }), "a"),
            (
                &other,
                json!({ "choice": "redo", "input": { "why": "x" } }),
                "b",
            ),
        ];
        let threads: Vec<_> = both
            .into_iter()
            .map(|(db, response, key)| {
                let (decision, barrier) = (&decision, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    commands::answer(db, &Answer::new(decision, response, "ann").key(key))
                        .unwrap()
                        .value
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let won = judged.iter().filter(|judged| judged.has_won()).count();
    let told = judged
        .iter()
        .filter(|judged| {
            matches!(
                judged,
                Judged::Conflict {
                    conflict: Conflict::Winner { .. }
                }
            )
        })
        .count();
    assert_eq!((won, told), (1, 1), "{judged:?}");
    assert_eq!(judged[0].resolution(), judged[1].resolution());
    assert_eq!(
        fixture.rows(&decision),
        ["human won", "human already_resolved"]
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM human_decision_resolutions"),
        1
    );
}

#[test]
fn decision_11_the_same_command_again_adopts() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let revision = "SELECT revision FROM resources WHERE resource_type = 'decision'";
    let first = fixture.answer(&decision, json!({ "choice": "go" }), "k");
    assert_eq!(fixture.count(revision), 2);
    for _ in 0..2 {
        let again = fixture.answer(&decision, json!({ "choice": "go" }), "k");
        let Judged::Adopted {
            earlier: Adopted::Won { resolution },
        } = &again
        else {
            panic!("{again:?}");
        };
        assert_eq!(Some(resolution), first.resolution());
    }
    assert_eq!(fixture.count(revision), 2);
    assert_eq!(fixture.rows(&decision), ["human won"]);
}

#[test]
fn decision_12_a_key_means_one_answer() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    fixture.answer(&decision, json!({ "choice": "go" }), "k");
    let other = fixture.answer(
        &decision,
        json!({ "choice": "redo", "input": { "why": "x" } }),
        "k",
    );
    assert_eq!(
        other,
        Judged::Conflict {
            conflict: Conflict::Key
        }
    );
    assert_eq!(fixture.rows(&decision), ["human won"]);
    let receipt = views::receipt(&fixture.snapshot(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(receipt.response.choice().as_str(), "go");
}

#[test]
fn decision_13_a_key_is_of_its_channel_and_not_of_a_decision() {
    let fixture = Fixture::new();
    let (_, first) = fixture.ask(draft);
    let (_, second) = fixture.ask(draft);
    let go = || json!({ "choice": "go" });
    fixture
        .submit(&fixture.candidate(&first, go(), "cb-1"))
        .unwrap();
    let other = fixture
        .submit(&fixture.candidate(&second, go(), "cb-1"))
        .unwrap();
    assert_eq!(
        other,
        Judged::Conflict {
            conflict: Conflict::Key
        }
    );
    assert_eq!(fixture.rows(&second), [""; 0]);
    assert_eq!(fixture.status(&second), "open");
}

#[test]
fn decision_14_the_same_key_in_two_channels_is_two_candidates() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let first = fixture.candidate(&decision, json!({ "choice": "go" }), "k");
    let second = Submission {
        source: Source::new(ChannelId::new("telegram:other").unwrap(), "actor-100", "k").unwrap(),
        ..first.clone()
    };
    assert!(fixture.submit(&first).unwrap().has_won());
    let told = fixture.submit(&second).unwrap();
    assert!(
        matches!(
            told,
            Judged::Conflict {
                conflict: Conflict::Winner { .. }
            }
        ),
        "{told:?}"
    );
    let local = fixture.answer(&decision, json!({ "choice": "go" }), "k");
    assert!(
        matches!(
            local,
            Judged::Conflict {
                conflict: Conflict::Winner { .. }
            }
        ),
        "{local:?}"
    );
    assert_eq!(
        fixture.rows(&decision),
        [
            "channel won",
            "channel already_resolved",
            "human already_resolved"
        ]
    );
}

#[test]
fn decision_15_an_answer_to_something_else_is_stale() {
    let fixture = Fixture::new();
    let (_, earlier) = fixture.ask(draft);
    let (_, decision) = fixture.ask(draft);
    let old = fixture.candidate(&earlier, json!({ "choice": "go" }), "k1");
    let stale = Submission {
        decision_id: decision.clone(),
        ..old.clone()
    };
    assert_eq!(
        fixture.submit(&stale).unwrap(),
        Judged::Rejected {
            reason: Rejection::Stale
        }
    );
    // At the session likewise, and by the revision too.
    let at_session = Answer::new(&decision, json!({ "choice": "go" }), "ann").key("k2");
    for answer in [
        at_session.clone().seeing(old.request_digest),
        at_session.clone().key("k3").at_revision(2),
    ] {
        let judged = commands::answer(fixture.db(), &answer).unwrap().value;
        assert_eq!(
            judged,
            Judged::Rejected {
                reason: Rejection::Stale
            }
        );
    }
    assert_eq!(
        fixture.rows(&decision),
        ["channel stale", "human stale", "human stale"]
    );
    assert_eq!(fixture.status(&decision), "open");
    // A refusal is final: the same command later, when it would be right, is the same refusal.
    let again = fixture.submit(&stale).unwrap();
    assert_eq!(
        again,
        Judged::Adopted {
            earlier: Adopted::Stale
        }
    );
    let right = at_session.key("k4").at_revision(1);
    assert!(
        commands::answer(fixture.db(), &right)
            .unwrap()
            .value
            .has_won()
    );
}

#[test]
fn decision_16_what_may_not_be_given_is_rejected_and_kept() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let long = "x".repeat(4_001);
    let wrong: [(Value, RejectCode); 10] = [
        (json!({ "choice": "stop" }), RejectCode::UnknownChoice),
        (json!({ "choice": "redo" }), RejectCode::MissingInput),
        (
            json!({ "choice": "redo", "input": { "why": "a", "how": "b" } }),
            RejectCode::UnknownInput,
        ),
        (
            json!({ "choice": "redo", "input": { "how": "b" } }),
            RejectCode::UnknownInput,
        ),
        (
            json!({ "choice": "go", "input": { "why": "a" } }),
            RejectCode::UnexpectedInput,
        ),
        (
            json!({ "choice": "redo", "input": { "why": 5 } }),
            RejectCode::InputNotText,
        ),
        (
            json!({ "choice": "redo", "input": { "why": "" } }),
            RejectCode::InputTooShort,
        ),
        (
            json!({ "choice": "redo", "input": { "why": long } }),
            RejectCode::InputTooLong,
        ),
        (json!({}), RejectCode::Malformed),
        (json!([]), RejectCode::Malformed),
    ];
    let mut rows = Vec::new();
    for (index, (response, code)) in wrong.into_iter().enumerate() {
        let judged = if index % 2 == 0 {
            fixture.answer(&decision, response, &format!("k{index}"))
        } else {
            let candidate = fixture.candidate(&decision, response, &format!("k{index}"));
            fixture.submit(&candidate).unwrap()
        };
        assert_eq!(
            judged,
            Judged::Rejected {
                reason: Rejection::Invalid { code }
            }
        );
        rows.push(format!(
            "{} rejected {code}",
            if index % 2 == 0 { "human" } else { "channel" }
        ));
    }
    assert_eq!(fixture.rows(&decision), rows);
    assert_eq!(fixture.status(&decision), "open");
    // The cursor of the channel moved on with every one of them.
    let cursor = counter::value(&fixture.snapshot(), "cursor").unwrap();
    assert_eq!(cursor, Some(5));
}

#[test]
fn decision_17_lengths_are_code_units_of_utf_16() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let redo = |text: String| json!({ "choice": "redo", "input": { "why": text } });
    let judged = fixture.answer(&decision, redo("😀".repeat(4_000)), "k1");
    assert_eq!(
        judged,
        Judged::Rejected {
            reason: Rejection::Invalid {
                code: RejectCode::InputTooLong
            }
        }
    );
    let judged = fixture.answer(&decision, redo(format!("{}x", "😀".repeat(2_000))), "k2");
    assert_eq!(
        judged,
        Judged::Rejected {
            reason: Rejection::Invalid {
                code: RejectCode::InputTooLong
            }
        }
    );
    assert!(
        fixture
            .answer(&decision, redo("😀".repeat(2_000)), "k3")
            .has_won()
    );
}

#[test]
fn decision_18_the_text_is_kept_byte_for_byte() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let text = " \u{a0} x\r\n\te\u{301} \u{1b}[2J\n ";
    let answer = json!({ "choice": "redo", "input": { "why": text } });
    assert!(fixture.answer(&decision, answer.clone(), "k").has_won());
    assert_eq!(fixture.go_on(&run).final_output, Some(answer));
    let receipt = views::receipt(&fixture.snapshot(), &decision)
        .unwrap()
        .unwrap();
    assert_eq!(receipt.response.text(), Some(text));
}

#[test]
fn decision_37_two_choices_can_be_told_apart() {
    use holdpoint_decisions::model::{Choice, Choices, Invalid};
    let same = Choices::new([("a", Choice::new("Go")), ("b", Choice::new("Go"))]);
    assert_eq!(
        same,
        Err(Invalid::SameLabel {
            label: "Go".to_owned()
        })
    );
}

#[test]
fn decision_38_choices_are_shown_in_the_order_of_their_ids() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    let ids: Vec<_> = view
        .request
        .choices
        .iter()
        .map(|(id, _)| id.to_string())
        .collect();
    assert_eq!(ids, ["go", "redo"]);
    assert_eq!(view.request.choices, choices());
}
