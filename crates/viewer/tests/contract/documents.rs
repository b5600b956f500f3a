//! Every run of a store can be shown: the documents are what the client decodes, whatever happened to the run.

use holdpoint_state::Actor;
use holdpoint_state::json::{is_canonical, to_canonical};
use holdpoint_viewer::documents::{ListPage, PageKind};
use holdpoint_viewer::views::ListPosition;
use holdpoint_viewer::{ViewerError, views};
use holdpoint_workflows::capture::{SessionEntry, SessionEvent};
use holdpoint_workflows::commands::{self, Control, QueueFollowUp, SessionEnd, SettingsChange};
use holdpoint_workflows::definition::{NodeError, Workflow};
use holdpoint_workflows::model::EntryRole;
use holdpoint_workflows::{AttemptId, RunId};
use serde_json::{Value, json};

use crate::decoder;
use crate::support::{Fixture, asking, decided, entry, kinds, looping, telling, turn};

/// A store with a run of every kind and state that can be made without waiting.
fn many(fixture: &Fixture) -> Vec<RunId> {
    let failing = Workflow::new("failing")
        .start_at("fail")
        .compute("fail", |_| {
            Err::<(), _>(NodeError::new("as was wished\u{1b}[2J"))
        })
        .build()
        .unwrap();
    let db = fixture.store.db();
    let waits = fixture.run(&kinds(), json!({ "$artifact": "not one" }));
    let completed = fixture.run(&kinds(), json!(null));
    fixture.answer(&completed, json!({ "$escaped": true }));
    let cancelled = fixture.run(&kinds(), json!(1));
    fixture.workflows.cancel(&Control::of(&cancelled)).unwrap();
    let paused = fixture.run(&asking(), json!("x".repeat(40_000)));
    fixture.workflows.pause(&Control::of(&paused)).unwrap();
    let tuned = fixture.run(&asking(), json!(null));
    let change = SettingsChange::new(
        &tuned,
        json!([{ "op": "replace", "path": "/batch", "value": 2 }]),
    );
    let change = change.by(Actor::human("ada"));
    fixture.workflows.change_settings(&change).unwrap();
    let interactive = fixture.in_session(&asking(), "session-1");
    for prompt in ["first", "second"] {
        let queue = QueueFollowUp::new(&interactive, prompt);
        fixture.workflows.queue_follow_up(&queue).unwrap();
    }
    let recorded = fixture.run(&kinds(), json!(null));
    let segment = fixture.bind(&recorded, "one");
    let events: Vec<SessionEvent> = (0..60).flat_map(|n| turn(n, "hello", None)).collect();
    fixture.record(&segment, 1, &events);
    fixture.record_entries(
        &segment,
        &[
            entry("e1", "short"),
            entry("e2", &"z".repeat(30_000)),
            SessionEntry {
                entry_id: "e3".to_owned(),
                content: json!(["no object"]),
            },
        ],
    );
    let attempt = fixture.view(&recorded).state.steps[0].attempt_id.clone();
    let attempt: AttemptId = attempt.parse().unwrap();
    for (role, id) in [(EntryRole::First, "e1"), (EntryRole::Last, "e2")] {
        commands::link_entry(db, &segment, crate::support::RECORDER, (&attempt, role, id)).unwrap();
    }
    let broken = SessionEnd::Failed {
        code: "disk".to_owned(),
        message: "full".to_owned(),
    };
    commands::finish_session(db, &segment, crate::support::RECORDER, &broken).unwrap();
    let still_recorded = fixture.run(&asking(), json!(null));
    fixture.bind(&still_recorded, "one");
    let mut runs = vec![
        waits,
        completed,
        cancelled,
        paused,
        tuned,
        interactive,
        recorded,
        still_recorded,
    ];
    runs.push(fixture.run(&failing, json!(null)));
    runs.push(fixture.in_session(&telling(), "session-2"));
    runs.push(fixture.run(&decided(), json!(null)));
    runs.push(fixture.run(&looping(), json!(300)));
    // Never executed.
    runs.push(fixture.workflows.run(&asking(), json!(null)).unwrap());
    runs
}

#[test]
fn every_document_is_what_the_client_decodes() {
    let fixture = Fixture::new();
    let runs = many(&fixture);
    for run in &runs {
        let view = fixture.view_json(run);
        decoder::run_view(&view).unwrap_or_else(|problem| panic!("{run}: {problem}\n{view:#}"));
        let line = to_canonical(&view).unwrap();
        assert!(
            is_canonical(&line) && line.len() < 1_000_000,
            "{}",
            line.len()
        );
        for kind in PageKind::ALL {
            for cursor in [0, 1, 127, 300, u64::MAX] {
                let page = fixture.page(run, kind, cursor);
                decoder::page(&page).unwrap_or_else(|problem| panic!("{run}: {problem}\n{page:#}"));
                assert_eq!(page["cursor"], cursor);
                assert_eq!(page["revision"], view["revision"]);
            }
        }
    }
    let snapshot = fixture.store.db().snapshot().unwrap();
    let (page, next) =
        views::list_page(&snapshot, None, ListPosition::default(), 256, fixture.now()).unwrap();
    let page = serde_json::to_value(page).unwrap();
    decoder::list_page(&page).unwrap();
    assert_eq!(
        (page["total"].as_u64(), next),
        (Some(runs.len() as u64), None)
    );
    let newest_first: Vec<&str> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| i["runId"].as_str().unwrap())
        .collect();
    let made: Vec<&str> = runs.iter().rev().map(RunId::as_str).collect();
    assert_eq!(newest_first.len(), made.len());
    assert_eq!(newest_first[0], made[0]);
}

#[test]
fn the_decoder_refuses_what_the_client_refuses() {
    let fixture = Fixture::new();
    let run = fixture.run(&kinds(), json!(null));
    let good = fixture.view_json(&run);
    let breaks: [(&str, Value); 9] = [
        ("/display/status", json!("sleeping")),
        ("/display/controls", json!(["human-answer"])),
        ("/state/outputs", Value::Null),
        ("/state/steps/0/outcome", json!("great")),
        ("/graphCursor", json!(0)),
        ("/state/traceSeq", json!("7")),
        ("/workflow/edges/0", json!({ "from": "a" })),
        ("/session", Value::Null),
        ("/manifest/paths", json!({})),
    ];
    decoder::run_view(&good).unwrap();
    for (pointer, value) in breaks {
        let mut broken = good.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert!(decoder::run_view(&broken).is_err(), "{pointer}");
    }
}

/// The document with what differs from run to run replaced: ids and digests.
fn redacted(document: &Value, run: &RunId) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap();
    text = text.replace(run.as_str(), "RUN");
    let mut known = Vec::new();
    for step in document["state"]["steps"].as_array().into_iter().flatten() {
        known.push(step["attemptId"].as_str().unwrap().to_owned());
    }
    known.extend(
        document["state"]["currentAttemptId"]
            .as_str()
            .map(str::to_owned),
    );
    for event in document["tracePage"]["items"]
        .as_array()
        .into_iter()
        .flatten()
    {
        for member in ["updateId", "requestId", "effectId"] {
            known.extend(event["payload"][member].as_str().map(str::to_owned));
        }
    }
    for (index, id) in known.iter().enumerate() {
        text = text.replace(id.as_str(), &format!("ID-{index}"));
    }
    text
}

#[test]
fn a_run_of_every_kind_as_a_document() {
    let fixture = Fixture::new();
    let run = fixture.run(&kinds(), json!({ "issue": 7 }));
    let mut document = fixture.view_json(&run);
    // What the steps left of the store: their order and their times are those of the run itself.
    for step in document["state"]["steps"].as_array_mut().unwrap() {
        if let Some(action) = step.get_mut("action") {
            action["durationMs"] = json!(0);
            action["cwd"] = json!("/");
        }
        if let Some(took) = step.pointer_mut("/output/durationMs") {
            *took = json!(0);
        }
    }
    document["tracePage"]["items"] = document["tracePage"]["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            json!([
                event["seq"],
                event["type"],
                event["scope"],
                event["nodeId"],
                event["payload"]["data"]
            ])
        })
        .collect();
    insta::assert_snapshot!(redacted(&document, &run));
}

#[test]
fn a_decision_is_where_the_client_looks_for_it() {
    let fixture = Fixture::new();
    let run = fixture.run(&decided(), json!(null));
    let view = fixture.view_json(&run);
    assert_eq!(view["display"]["status"], "waiting");
    assert_eq!(
        view["display"]["controls"],
        json!(["pause", "cancel", "answer"])
    );
    let node = &view["workflow"]["nodes"]["review"];
    assert_eq!(node["humanDecision"]["audience"], "operator", "{node:#}");
    assert_eq!(node["humanDecision"]["choices"]["go"]["label"], "Go");
}

#[test]
fn large_values_are_references_that_can_be_read_in_chunks() {
    let fixture = Fixture::new();
    let input = "€".repeat(200_000);
    let run = fixture.run(&asking(), json!(input));
    let other = fixture.run(&asking(), json!(1));
    let segment = fixture.bind(&run, "one");
    let said = "ж".repeat(20_000);
    fixture.record_entries(&segment, &[entry("e1", &said)]);
    let view = fixture.view_json(&run);
    let read = |reference: &Value| {
        let reference = &reference["$artifact"];
        let path = reference["path"].as_str().unwrap();
        let snapshot = fixture.store.db().snapshot().unwrap();
        let (mut bytes, mut offset, mut chunks) = (Vec::new(), 0, 0);
        loop {
            let chunk = views::content(&snapshot, run.as_str(), path, offset).unwrap();
            let data = decode(&chunk.data);
            assert!(data.len() <= 192 * 1024 && !data.is_empty());
            bytes.extend(data);
            chunks += 1;
            offset = chunk.next_offset;
            if chunk.complete {
                break;
            }
        }
        assert_eq!(reference["bytes"].as_u64(), Some(bytes.len() as u64));
        let digest = holdpoint_state::Digest::of(&bytes).to_hex();
        assert_eq!(reference["sha256"].as_str(), Some(digest.as_str()));
        // Another run does not refer to it.
        let foreign = views::content(&snapshot, other.as_str(), path, 0);
        assert!(matches!(foreign, Err(ViewerError::NoContent { .. })));
        let past = views::content(&snapshot, run.as_str(), path, offset);
        assert!(matches!(past, Err(ViewerError::NoContent { .. })));
        (bytes, chunks)
    };
    let (bytes, chunks) = read(&view["state"]["input"]);
    assert_eq!(serde_json::from_slice::<String>(&bytes).unwrap(), input);
    assert_eq!(chunks, 4);
    let entry = &view["session"]["entryPage"]["items"][0]["entry"];
    assert_eq!(
        (&entry["id"], &entry["message"]["role"]),
        (&json!("e1"), &json!("assistant"))
    );
    let (bytes, _) = read(&entry["message"]["content"][0]["text"]);
    assert_eq!(String::from_utf8(bytes).unwrap(), said);
}

#[test]
fn a_list_is_paged_at_one_revision() {
    let fixture = Fixture::new();
    let start = |n: i64| fixture.workflows.run(&asking(), json!(n)).unwrap();
    let made: Vec<RunId> = (0..7).map(start).collect();
    let pages = |snapshot: &holdpoint_state::Snapshot<'_>, hinted: bool| {
        let (mut found, mut position) = (Vec::new(), Some(ListPosition::default()));
        let revision = views::list_revision(snapshot).unwrap();
        while let Some(at) = position {
            let (page, next): (ListPage, _) =
                views::list_page(snapshot, Some(&revision), at, 3, fixture.now()).unwrap();
            assert_eq!((page.start, page.total), (at.start, 7));
            found.extend(page.items.into_iter().map(|entry| entry.run_id));
            position = next.map(|next| views::ListPosition {
                after: next.after.filter(|_| hinted),
                ..next
            });
        }
        found
    };
    let snapshot = fixture.store.db().snapshot().unwrap();
    let newest_first: Vec<String> = made.iter().rev().map(ToString::to_string).collect();
    assert_eq!(pages(&snapshot, true), newest_first);
    assert_eq!(pages(&snapshot, false), newest_first);
    let before = views::list_revision(&snapshot).unwrap();
    drop(snapshot);
    fixture.workflows.cancel(&Control::of(&made[0])).unwrap();
    let snapshot = fixture.store.db().snapshot().unwrap();
    let stale = views::list_page(
        &snapshot,
        Some(&before),
        ListPosition::default(),
        3,
        fixture.now(),
    );
    let now = views::list_revision(&snapshot).unwrap();
    assert!(
        matches!(stale, Err(ViewerError::ListChanged { revision }) if revision == now && now != before)
    );
}

#[test]
fn what_is_not_there_is_said_so() {
    let fixture = Fixture::new();
    let snapshot = fixture.store.db().snapshot().unwrap();
    let now = fixture.now();
    assert!(matches!(
        views::run_view(&snapshot, "no", now),
        Err(ViewerError::NoRun { .. })
    ));
    assert!(matches!(
        views::page(&snapshot, "no", (PageKind::Steps, 0), now),
        Err(ViewerError::NoRun { .. })
    ));
    assert!(matches!(
        views::content(&snapshot, "no", "x", 0),
        Err(ViewerError::NoRun { .. })
    ));
    assert!(matches!(
        views::deltas(&snapshot, "no", 1),
        Err(ViewerError::NoRun { .. })
    ));
    let (page, _) = views::list_page(&snapshot, None, ListPosition::default(), 9, now).unwrap();
    assert_eq!((page.total, page.items.len()), (0, 0));
}

fn decode(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap()
}
