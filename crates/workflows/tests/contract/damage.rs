//! What a run has beside its steps, damaged as no command would: `verify` finds it.

use holdpoint_workflows::capture::{SessionEntry, SessionEvent, SessionEventType};
use holdpoint_workflows::commands::{self, BindSession, QueueFollowUp, Start};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::{RunId, views};
use serde_json::json;

use crate::support::{Fixture, LONG, echo};
use crate::views::damage;

// lint:allow(sql-in-test): the test makes the damage that verify must find; no command can.
const DAMAGES: [(&str, &str); 11] = [
    (
        "updateCounts",
        "UPDATE workflow_updates SET pair_count = 2 WHERE update_seq = 2",
    ),
    (
        "updateCounts",
        "UPDATE workflow_updates SET update_seq = 7 WHERE update_seq = 2",
    ),
    (
        "updateCounts",
        "UPDATE workflow_updates SET run_revision = 3",
    ),
    (
        "followUps",
        "UPDATE workflow_messages SET source_id = 'x' WHERE kind = 'followUp'",
    ),
    (
        "followUps",
        "UPDATE workflow_follow_ups SET status = 'removed', reason_hash = prompt_hash",
    ),
    (
        "followUps",
        "UPDATE runs SET status = 'failed', finished_at = 1",
    ),
    (
        "captureCounts",
        "UPDATE session_segments SET event_count = 9",
    ),
    (
        "captureCounts",
        "UPDATE session_segments SET entry_count = 0",
    ),
    (
        "captureCounts",
        "DELETE FROM session_events WHERE event_seq = 1",
    ),
    (
        "captureSequence",
        "UPDATE session_events SET run_seq = 5 WHERE event_seq = 2",
    ),
    ("captureSequence", "UPDATE session_entries SET run_seq = 5"),
];

/// An interactive run that waits, with two updates, a follow-up, and a recording of an entry and two events.
fn recorded(fixture: &Fixture) -> RunId {
    let definition = Workflow::new("recorded")
        .start_at("work")
        .compute("work", |ctx| {
            ctx.publish("t", "k", &json!({ "n": 1 }))?;
            ctx.publish("t", "k", &json!({ "n": 2 }))?;
            Ok(1)
        })
        .checkpoint("ask")
        .edge("work", "ask")
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let start = Start::new(&definition, json!(null)).in_session("session-1");
    let run = fixture.workflows.start(&start).unwrap().value;
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    fixture
        .workflows
        .queue_follow_up(&QueueFollowUp::new(&run, "then test it"))
        .unwrap();
    let db = fixture.store.db();
    let bind = BindSession::new(&run, "one", "session-1", "host-1");
    let segment = commands::bind_session(db, &bind).unwrap().value.segment_id;
    let event = SessionEvent::new(SessionEventType::TurnStarted, json!({}));
    commands::append_events(db, &segment, "host-1", (1, &[event.clone(), event])).unwrap();
    let entry = SessionEntry {
        entry_id: "a".to_owned(),
        content: json!({}),
    };
    commands::append_entries(db, &segment, "host-1", &[entry]).unwrap();
    run
}

#[test]
fn edge_111_damaged_updates_follow_ups_and_recordings_are_found() {
    for (invariant, sql) in DAMAGES {
        let mut fixture = Fixture::new();
        let run = recorded(&fixture);
        assert_eq!(fixture.violations(), Vec::<String>::new());
        damage(&fixture, &run, sql);
        let expected = format!("{invariant}: Ok({:?})", run.as_str());
        let found = fixture.violations();
        assert!(found.contains(&expected), "{invariant} {sql}: {found:?}");
        if invariant == "captureCounts" {
            let snapshot = fixture.store.db().snapshot().unwrap();
            let shown = views::recordings(&snapshot, &run).unwrap();
            assert_eq!(shown[0].problems.len(), 1, "{sql}: {:?}", shown[0].problems);
        }
        fixture.expects_damage = true;
    }
}

// lint:allow(sql-in-test): the test makes the damage that the examination must find; no command can.
const CONTENTS: [(&str, &str); 4] = [
    ("runs", "UPDATE runs SET input = CAST('8' AS BLOB)"),
    ("runs", "UPDATE runs SET launch_options = CAST('8' AS BLOB)"),
    ("runs", "UPDATE runs SET final_output = CAST('8' AS BLOB)"),
    (
        "node_attempts",
        "UPDATE node_attempts SET output = CAST('8' AS BLOB)",
    ),
];

#[test]
fn content_in_a_row_that_is_not_that_of_its_digest_is_found() {
    for (table, sql) in CONTENTS {
        let mut fixture = Fixture::new();
        let view = fixture.run(&echo(), json!(7));
        let report = fixture.store.db().verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
        damage(&fixture, &view.run_id, sql);
        let report = fixture.store.db().verify().unwrap();
        let found = report.findings.iter().map(|finding| {
            (
                finding.name.as_str(),
                finding.table.as_deref(),
                finding.count,
            )
        });
        assert!(
            found.eq([("payloadDigest", Some(table), 1)]),
            "{sql}: {report:?}"
        );
        fixture.expects_damage = true;
    }
}
