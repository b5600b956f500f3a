//! What is stored: its integrity, its form, what of it is seen by whom, and when it goes.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{Audience, Block, Draft, Invalid, Judged, Limit, Presentation};
use holdpoint_decisions::{DecisionError, digest, views};
use holdpoint_state::maintenance::retention::Taking;
use holdpoint_state::testing::plain;
use holdpoint_state::{Database, Digest};
use holdpoint_workflows::commands::{Control, Restart};
use serde_json::{Value, json};

use crate::support::{AFTER_MS, Fixture, draft, timed};

// lint:allow(sql-in-test): the test makes the damage that a read must find; no command can.
const CHANGE: &str = "UPDATE blobs SET content = ?1, byte_length = ?3 WHERE blob_hash = ?2";

/// A copy of the store in which somebody changed the blobs of the decision: the one of the whole request, or of one of its parts.
pub(crate) fn changed(
    fixture: &Fixture,
    part: &str,
    change: impl Fn(String) -> String,
) -> (std::path::PathBuf, Database) {
    let path = fixture
        .store
        .directory()
        .join(format!("copy-{part}.sqlite"));
    fixture.db().backup(&path).unwrap();
    let connection = plain::open(&path).unwrap();
    // The part is a column of this domain's own table.
    let column = match part {
        "subject" => "SELECT subject_hash FROM human_decisions",
        "presentation" => "SELECT presentation_hash FROM human_decisions",
        "choices" => "SELECT choices_hash FROM human_decisions",
        _ => "SELECT request_hash FROM human_decisions",
    };
    let hash: Vec<u8> = connection.query_row(column, [], |row| row.get(0)).unwrap();
    let content: Vec<u8> = connection
        .query_row(
            "SELECT content FROM blobs WHERE blob_hash = ?1",
            [&hash],
            |row| row.get(0),
        )
        .unwrap();
    let content = change(String::from_utf8(content).unwrap()).into_bytes();
    let length = i64::try_from(content.len()).unwrap();
    connection
        .execute(CHANGE, (&content, &hash, length))
        .unwrap();
    drop(connection);
    let db = Database::open(&path, fixture.store.schema()).unwrap();
    (path, db)
}

fn bytes(path: &std::path::Path) -> Digest {
    Digest::of(&std::fs::read(path).unwrap())
}

fn unreadable(listed: views::Listed) -> DecisionError {
    match listed {
        views::Listed::Unreadable(unreadable) => unreadable.error,
        views::Listed::Readable(view) => panic!("it can be read: {view:?}"),
    }
}

/// One is damaged, and everything that reads many goes on without it.
#[test]
fn what_can_not_be_read_holds_up_nothing_else() {
    let fixture = Fixture::new();
    let (run, broken) = fixture.ask(timed);
    // The other one is younger, so that the broken one would be in its way.
    fixture.store.clock().advance(1);
    let (_, whole) = fixture.ask(timed);
    let (_, db) = changed(&fixture, "request", |text| {
        text.replace("\"plan\":\"a\"", "\"plan\":\"b\"")
    });
    let snapshot = db.snapshot().unwrap();
    let mut listed = views::open(&snapshot, fixture.now(), 10).unwrap();
    assert_eq!(listed.len(), 2);
    let views::Listed::Unreadable(unreadable) = listed.remove(0) else {
        panic!("{listed:?}");
    };
    assert_eq!(
        (&unreadable.decision_id, &unreadable.run_id),
        (&broken, &run)
    );
    assert!(matches!(unreadable.error, DecisionError::Corrupt { .. }));
    let view = listed.remove(0).readable().unwrap();
    assert_eq!(view.request.decision_id, whole);
    let mut of_run = views::of_run(&snapshot, &run, fixture.now()).unwrap();
    assert!(of_run.remove(0).readable().is_err());
    // A channel shows the others, also when a page of its scan has nothing that can be shown.
    let operators = [Audience::new("operator").unwrap()];
    let page = |after: Option<&views::OpenAfter>| {
        views::open_for_channel(&snapshot, &operators, fixture.now(), after, 1).unwrap()
    };
    let first = page(None);
    assert_eq!(first.requests, []);
    let second = page(first.after.as_ref());
    assert_eq!(second.requests[0].decision_id, whole);
    assert_eq!(page(second.after.as_ref()).after, None);
    drop(snapshot);
    // Each sweep finds it again, and says so to whoever sweeps.
    let now = fixture.now().plus(2 * AFTER_MS);
    fixture.store.clock().advance(2 * AFTER_MS.unsigned_abs());
    for resolved in [1, 0] {
        let swept = commands::sweep(&db, now).unwrap();
        let unusable: Vec<_> = swept.unusable.iter().map(|one| &one.decision).collect();
        assert_eq!((swept.resolved.len(), swept.skipped.len()), (resolved, 0));
        assert_eq!(unusable, [&broken]);
    }
    db.close();
}

#[test]
fn decision_33_a_changed_byte_is_found_by_every_read() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    for (part, from, to) in [
        ("subject", "\"a\"", "\"b\""),
        ("presentation", "Ship it?", "Sell it?"),
        ("choices", "Redo", "Undo"),
        ("request", "\"plan\":\"a\"", "\"plan\":\"b\""),
    ] {
        let (_, db) = changed(&fixture, part, |text| {
            assert!(text.contains(from), "{text}");
            text.replace(from, to)
        });
        let snapshot = db.snapshot().unwrap();
        let what = if part == "request" { "subject" } else { part };
        for error in [
            views::fetch(&snapshot, &decision, fixture.now()).unwrap_err(),
            unreadable(views::open(&snapshot, fixture.now(), 10).unwrap().remove(0)),
            commands::answer(
                &db,
                &Answer::new(&decision, json!({ "choice": "go" }), "ann"),
            )
            .unwrap_err(),
        ] {
            match &error {
                DecisionError::Corrupt {
                    decision: named,
                    what: found,
                } => {
                    assert_eq!((named.as_str(), *found), (decision.as_str(), what));
                }
                other => panic!("{part}: {other}"),
            }
            assert!(error.to_string().contains(decision.as_str()));
        }
    }
}

#[test]
fn decision_34_a_request_of_another_version_is_left_as_it_is() {
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(draft);
    for (index, (from, to)) in [
        ("human-decision-request.v1", "human-decision-request.v2"),
        ("\"attemptId\"", "\"body\":\"x\",\"attemptId\""),
        ("\"revision\":1,", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let (path, db) = changed(&fixture, "request", |text| text.replace(from, to));
        db.close();
        let before = bytes(&path);
        let db = Database::open(&path, fixture.store.schema()).unwrap();
        let error = views::fetch(&db.snapshot().unwrap(), &decision, fixture.now()).unwrap_err();
        assert!(
            matches!(error, DecisionError::Incompatible { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("reset the state"), "{error}");
        let refused = commands::answer(
            &db,
            &Answer::new(&decision, json!({ "choice": "go" }), "ann"),
        );
        assert!(
            matches!(refused, Err(DecisionError::Incompatible { .. })),
            "{refused:?}"
        );
        // The sweep steps over it.
        let swept = commands::sweep(&db, fixture.now()).unwrap();
        assert_eq!(swept.resolved.len(), 0);
        db.close();
        assert_eq!(bytes(&path), before, "case {index} changed the file");
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn decision_35_each_mistake_in_a_presentation_has_its_own_error() {
    let long = "x".repeat(16_000);
    let paragraph = |text: &str| Block::paragraph(text);
    let limit = |at: &str, limit, observed| Invalid::Limit {
        at: at.to_owned(),
        limit,
        observed,
    };
    for (presentation, error) in [
        (
            Presentation::new("a\u{1b}b", Vec::new()),
            Invalid::ControlCharacter {
                at: "presentation.summary".to_owned(),
                code: 0x1b,
            },
        ),
        (
            Presentation::new("s", vec![paragraph("p"); 257]),
            limit("presentation.blocks", Limit::Blocks, 257),
        ),
        (
            Presentation::new("s", vec![paragraph(&format!("{long}x"))]),
            limit("presentation.blocks[0].text", Limit::StringUnits, 16_001),
        ),
        (
            Presentation::new("s", vec![paragraph(&long); 4]),
            limit("presentation", Limit::PresentationUnits, 64_001),
        ),
        (
            Presentation::read(&json!({
                "schema": "pi-workflows.decision-presentation.v1", "summary": "s", "blocks": [], "body": "x"
            })),
            Invalid::UnknownField {
                at: "presentation".to_owned(),
                field: "body".to_owned(),
            },
        ),
    ] {
        assert_eq!(presentation, Err(error));
    }
    // At the limit it is right.
    let rest = "x".repeat(15_999);
    assert!(
        Presentation::new(
            "s",
            vec![
                paragraph(&long),
                paragraph(&long),
                paragraph(&long),
                paragraph(&rest)
            ]
        )
        .is_ok()
    );
}

#[test]
fn decision_36_texts_are_normalised_before_they_are_digested() {
    let fixture = Fixture::new();
    let with = |text: &'static str| {
        move |waiting: &holdpoint_workflows::definition::Waiting<'_>| Draft {
            presentation: Presentation::new("s", vec![Block::paragraph(text)]).unwrap(),
            ..draft(waiting)
        }
    };
    let (_, decision) = fixture.ask(with("Cafe\u{301}\r\nb\rc"));
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    assert_eq!(
        view.request.presentation.blocks(),
        [Block::paragraph("Caf\u{e9}\nb\nc")]
    );
    let normal = json!({
        "schema": "pi-workflows.decision-presentation.v1", "summary": "s",
        "blocks": [{ "kind": "paragraph", "text": "Caf\u{e9}\nb\nc" }],
    });
    let digest = digest::DocumentDigest::of(&normal).unwrap();
    assert_eq!(view.request.presentation_digest, digest);
}

#[test]
fn decision_42_what_everybody_sees_says_nothing_of_who_answered() {
    let fixture = Fixture::new();
    let (run, decision) = fixture.ask(draft);
    let candidate = fixture.candidate(
        &decision,
        json!({ "choice": "redo", "input": { "why": "the text" } }),
        "event-77",
    );
    let judged = fixture.submit(&candidate).unwrap();
    let lost = fixture.answer(&decision, json!({ "choice": "go" }), "key-of-ann");
    let view = fixture.go_on(&run);
    let snapshot = fixture.snapshot();
    let seen = views::fetch(&snapshot, &decision, fixture.now())
        .unwrap()
        .unwrap();
    let resolved = views::resolved(&snapshot, &decision).unwrap().unwrap();
    let receipt = views::receipt(&snapshot, &decision).unwrap().unwrap();
    let stored: String = snapshot
        .sql()
        .prepare_cached(
            "SELECT group_concat(CAST(b.content AS TEXT)) FROM interactive_submissions s JOIN blobs b ON b.blob_hash = s.receipt_hash",
        )
        .unwrap()
        .query_row([], |row| row.get::<_, Option<String>>(0))
        .unwrap()
        .unwrap_or_default();
    let public = [
        serde_json::to_string(&judged).unwrap(),
        serde_json::to_string(&lost).unwrap(),
        serde_json::to_string(&receipt).unwrap(),
        serde_json::to_string(&view).unwrap(),
        serde_json::to_string(&seen.resolution).unwrap(),
        seen.request.document().to_string(),
        serde_json::to_string(&resolved.resolution).unwrap(),
        stored,
        format!("{view:?} {seen:?} {resolved:?}"),
    ];
    for (index, text) in public.iter().enumerate() {
        for private in [
            "actor-100",
            "telegram:ops",
            "event-77",
            "key-of-ann",
            "\"ann\"",
            "idempotencyKey",
        ] {
            assert!(!text.contains(private), "{private} in {index}: {text}");
        }
    }
    // Debug shows no text of an answer either, and private types show nothing.
    let rows = views::submissions(&snapshot, &decision).unwrap();
    let debugged = format!(
        "{judged:?} {lost:?} {receipt:?} {candidate:?} {rows:?} {:?} {:?}",
        candidate.source,
        Answer::new(&decision, json!({ "choice": "the text" }), "ann").key("key-of-ann")
    );
    for private in [
        "actor-100",
        "telegram:ops",
        "event-77",
        "key-of-ann",
        "\"ann\"",
        "the text",
    ] {
        assert!(!debugged.contains(private), "{private}: {debugged}");
    }
    // The private operator sees it all.
    assert_eq!(rows[0].actor_id.as_deref(), Some("actor-100"));
    assert_eq!(rows[1].idempotency_key, "key-of-ann");
}

#[test]
fn decision_44_what_is_open_or_unsettled_keeps_the_whole_tree() {
    let fixture = Fixture::new();
    let (first, decision) = fixture.ask(draft);
    fixture.workflows.cancel(&Control::of(&first)).unwrap();
    let scheduler = fixture.scheduler();
    let revision = fixture.workflows.view(&first).unwrap().run_revision;
    let second = fixture
        .workflows
        .restart(&Restart::new(&first, revision))
        .unwrap()
        .value;
    fixture
        .workflows
        .wait(&second, crate::support::LONG)
        .unwrap();
    scheduler.stop(crate::support::LONG);
    fixture.store.clock().advance(1_000);
    let held = || {
        let plan = fixture.workflows.retention_plan(fixture.now()).unwrap();
        assert_eq!(plan.trees.len(), 1);
        let tree = plan.trees.into_iter().next().unwrap();
        assert_eq!(tree.members.len(), 2);
        let names: BTreeSet<String> = tree
            .blockers
            .iter()
            .map(|held| held.name.to_string())
            .collect();
        assert_eq!(tree.selected, names.is_empty());
        names
    };
    let names = held();
    assert!(
        names.contains("openDecision") && names.contains("decisionEffect"),
        "{names:?}"
    );
    let open = fixture.asked(&second);
    fixture.workflows.cancel(&Control::of(&second)).unwrap();
    let names = held();
    assert!(
        !names.contains("openDecision") && names.contains("decisionEffect"),
        "{names:?}"
    );
    fixture.settle_effects();
    fixture.store.clock().advance(1_000);
    assert_eq!(held(), BTreeSet::new());
    let taking = Taking {
        cutoff: fixture.now(),
        held: BTreeSet::new(),
    };
    let swept = fixture
        .db()
        .sweep(&taking, |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(swept.deleted.members, 2, "{swept:?}");
    for id in [&decision, &open] {
        assert_eq!(
            views::fetch(&fixture.snapshot(), id, fixture.now()).unwrap(),
            None
        );
        let gone = fixture.answer(id, json!({ "choice": "go" }), "k");
        assert_eq!(gone, Judged::NotFound);
    }
    for table in [
        "SELECT count(*) FROM human_decisions",
        "SELECT count(*) FROM human_decision_resolutions",
        "SELECT count(*) FROM human_decision_submissions",
        "SELECT count(*) FROM human_decision_deadlines",
        "SELECT count(*) FROM resources WHERE resource_type = 'decision'",
    ] {
        assert_eq!(fixture.count(table), 0, "{table}");
    }
}

/// What a person sees, in the document that travels, is what comes back.
#[test]
fn a_channel_request_is_read_as_it_was_sent() {
    use holdpoint_decisions::model::ChannelRequest;
    let fixture = Fixture::new();
    let (_, decision) = fixture.ask(crate::support::timed);
    let view = views::fetch(&fixture.snapshot(), &decision, fixture.now())
        .unwrap()
        .unwrap();
    let document = view.request.document();
    assert_eq!(ChannelRequest::read(&document).unwrap(), view.request);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut document = document.clone();
        change(&mut document);
        ChannelRequest::read(&document)
    };
    let with_subject = changed(&|document| document["subject"] = json!({ "plan": "a" }));
    assert_eq!(
        with_subject,
        Err(Invalid::UnknownField {
            at: "channel request".to_owned(),
            field: "subject".to_owned()
        })
    );
    assert!(changed(&|document| document["presentation"]["summary"] = "Sell it?".into()).is_err());
    assert!(changed(&|document| document["title"] = "a\u{1b}".into()).is_err());
    assert!(changed(&|document| document["sourceSchema"] = "v2".into()).is_err());
    assert_eq!(view.request.decision_id, decision);
}
