//! The judge as a table: every situation, every candidate, both sides of the deadline.

use std::fmt::Write as _;

use serde_json::json;

use super::*;
use crate::model::{Choice, Choices, Draft, OnTimeout, Presentation, TextInput};

const DEADLINE: UnixMillis = UnixMillis(1_000);

#[derive(Debug, Clone, Copy)]
enum Kind {
    Unlimited,
    Automatic,
    Expiring,
}

const KINDS: [Kind; 3] = [Kind::Unlimited, Kind::Automatic, Kind::Expiring];
const WINNERS: [Option<Provenance>; 5] = [
    None,
    Some(Provenance::Human),
    Some(Provenance::TimeoutPolicy),
    Some(Provenance::ExplicitCancel),
    Some(Provenance::ExpiredNoDefault),
];
const INSTANTS: [(&str, i64); 3] = [("before", 999), ("at", 1_000), ("after", 1_001)];

fn request(kind: Kind) -> Request {
    Request::new(draft(kind)).unwrap()
}

fn draft(kind: Kind) -> Draft {
    let automatic = OnTimeout {
        after_ms: 1_000.0,
        response: json!({ "choice": "go" }),
    };
    Draft {
        run_id: "run-1".to_owned(),
        workflow_name: "wf".to_owned(),
        node_id: "gate".to_owned(),
        attempt_id: "att-1".to_owned(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: Choices::new([
            ("go", Choice::new("Go")),
            (
                "redo",
                Choice::new("Redo").with_text(TextInput::new("why", "What?")),
            ),
        ])
        .unwrap(),
        subject: json!(null),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: matches!(kind, Kind::Automatic).then_some(automatic),
        expires_at: matches!(kind, Kind::Expiring).then_some(DEADLINE),
        created_at: UnixMillis(0),
    }
}

/// Every kind of candidate, for a request.
fn candidates<'a>(
    request: &Request,
    good: &'a Value,
    bad: &'a Value,
) -> [(&'static str, Candidate<'a>); 7] {
    let human = |seen, is_current, response| Candidate::Human {
        source: SubmissionSource::Channel,
        person: Some("ann"),
        seen,
        is_current,
        response,
    };
    let digest = Some(request.request_digest());
    let other = Some(DocumentDigest::of(&json!("another")).unwrap());
    [
        ("answer", human(digest, true, good)),
        ("bad answer", human(digest, true, bad)),
        ("other digest", human(other, true, bad)),
        ("other revision", human(None, false, bad)),
        ("timeout", Candidate::Timeout),
        ("expiry", Candidate::Expiry),
        ("cancel", Candidate::Cancel),
    ]
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Win(Some(response)) => format!("WINS with {}", response.choice()),
        Verdict::Win(None) => "WINS".to_owned(),
        Verdict::Repeat => "repeat".to_owned(),
        Verdict::KeyUsed => "key used".to_owned(),
        Verdict::Paused => "paused".to_owned(),
        Verdict::Stale => "stale".to_owned(),
        Verdict::Rejected(code) => format!("rejected {code}"),
        Verdict::Resolved(winner) => format!("resolved by {winner}"),
        Verdict::NotDue => "not due".to_owned(),
        Verdict::NotAllowed => "not allowed".to_owned(),
    }
}

#[test]
fn every_situation_has_its_verdict() {
    let (good, bad) = (
        json!({ "choice": "redo", "input": { "why": "x" } }),
        json!({ "choice": "stop" }),
    );
    let mut table = String::new();
    for kind in KINDS {
        let request = request(kind);
        for winner in WINNERS {
            for is_paused in [false, true] {
                let head = winner.map_or("open".to_owned(), |winner| winner.to_string());
                let pause = if is_paused { ", paused" } else { "" };
                writeln!(table, "{kind:?}, {head}{pause}").unwrap();
                for (name, candidate) in candidates(&request, &good, &bad) {
                    let situation = Situation {
                        request: &request,
                        requester: Some("ann"),
                        earlier: None,
                        is_paused,
                        winner,
                    };
                    let verdicts: Vec<String> = INSTANTS
                        .iter()
                        .map(|(_, now)| word(&judge(&situation, &candidate, UnixMillis(*now))))
                        .collect();
                    match verdicts.as_slice() {
                        [before, at, after] if before == at && at == after => {
                            writeln!(table, "    {name}: {before}").unwrap();
                        }
                        [before, at, after] => {
                            // The instant of the deadline belongs to what follows it.
                            assert_eq!(at, after);
                            writeln!(
                                table,
                                "    {name}: {before} | from the deadline on: {after}"
                            )
                            .unwrap();
                        }
                        _ => unreachable!(),
                    }
                }
            }
        }
    }
    insta::assert_snapshot!(table);
}

/// Whatever else is the case: a key that was used says so first.
#[test]
fn a_key_that_was_used_decides_before_everything() {
    let (good, bad) = (json!({ "choice": "go" }), json!(1));
    for kind in KINDS {
        let request = request(kind);
        for winner in WINNERS {
            for is_paused in [false, true] {
                for (_, candidate) in candidates(&request, &good, &bad) {
                    for (_, now) in INSTANTS {
                        for (earlier, verdict) in [
                            (Earlier::Same, Verdict::Repeat),
                            (Earlier::Other, Verdict::KeyUsed),
                        ] {
                            let situation = Situation {
                                request: &request,
                                requester: Some("ann"),
                                earlier: Some(earlier),
                                is_paused,
                                winner,
                            };
                            assert_eq!(judge(&situation, &candidate, UnixMillis(now)), verdict);
                        }
                    }
                }
            }
        }
    }
}

/// What the reference says in words, over the same space.
#[test]
fn at_no_instant_may_both_a_person_and_a_policy_win() {
    let (good, bad) = (json!({ "choice": "go" }), json!(1));
    for kind in KINDS {
        let request = request(kind);
        for winner in WINNERS {
            for is_paused in [false, true] {
                for (_, now) in INSTANTS {
                    let situation = Situation {
                        request: &request,
                        requester: Some("ann"),
                        earlier: None,
                        is_paused,
                        winner,
                    };
                    let mut winners = Vec::new();
                    for (name, candidate) in candidates(&request, &good, &bad) {
                        if matches!(
                            judge(&situation, &candidate, UnixMillis(now)),
                            Verdict::Win(_)
                        ) {
                            winners.push(name);
                        }
                    }
                    // Nothing wins a second time; otherwise control may at any time, and one of the others at most.
                    if winner.is_some() {
                        assert_eq!(winners, [""; 0]);
                        continue;
                    }
                    assert_eq!(winners.pop(), Some("cancel"));
                    assert!(winners.len() <= 1, "{winners:?}");
                    let person = winners.contains(&"answer");
                    assert!(!person || !is_paused);
                    assert!(!person || now < DEADLINE.0 || request.expires_at().is_none());
                }
            }
        }
    }
}

/// Who may answer, whoever is asked. A person whom nobody knows is no other person.
#[test]
fn another_person_is_one_whom_the_host_knows() {
    let good = json!({ "choice": "go" });
    let mut table = String::new();
    for answerers in Answerers::ALL {
        let request = Request::answered_by(*answerers, draft(KINDS[0])).unwrap();
        for requester in [None, Some("ann")] {
            for person in [None, Some("ann"), Some("bob")] {
                let situation = Situation {
                    request: &request,
                    earlier: None,
                    requester,
                    is_paused: false,
                    winner: None,
                };
                let candidate = Candidate::Human {
                    source: SubmissionSource::Channel,
                    person,
                    seen: None,
                    is_current: true,
                    response: &good,
                };
                let verdict = word(&judge(&situation, &candidate, UnixMillis(1)));
                let name = |person: Option<&'static str>| person.unwrap_or("somebody");
                writeln!(
                    table,
                    "{answerers}, {} asked, {} answers: {verdict}",
                    name(requester),
                    name(person)
                )
                .unwrap();
            }
        }
    }
    insta::assert_snapshot!(table, @r"
    anyone, somebody asked, somebody answers: WINS with go
    anyone, somebody asked, ann answers: WINS with go
    anyone, somebody asked, bob answers: WINS with go
    anyone, ann asked, somebody answers: WINS with go
    anyone, ann asked, ann answers: WINS with go
    anyone, ann asked, bob answers: WINS with go
    anotherPerson, somebody asked, somebody answers: WINS with go
    anotherPerson, somebody asked, ann answers: WINS with go
    anotherPerson, somebody asked, bob answers: WINS with go
    anotherPerson, ann asked, somebody answers: rejected unknownPerson
    anotherPerson, ann asked, ann answers: rejected requester
    anotherPerson, ann asked, bob answers: WINS with go
    ");
}
