//! The history of settings: what readers see of it, and what a run refuses to go on with.

use holdpoint_state::{Actor, StateError};
use holdpoint_workflows::WorkflowError;
use holdpoint_workflows::commands::{Control, Restart};
use serde_json::json;

use super::{batch, change, tuned, waiting};
use crate::support::{Fixture, LONG};
use crate::views::damage;

#[test]
fn a_history_is_read_in_pages() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    for number in 1..=5 {
        let wish = batch(&run, 10 + number)
            .request(format!("r-{number}"))
            .by(Actor::human("secret"))
            .from_source("page");
        change(&fixture.workflows, &wish);
    }
    let page = |after, limit| {
        fixture
            .workflows
            .settings_history(&run, None, (after, limit))
            .unwrap()
    };
    let first = page(0, 2);
    assert_eq!(first.initial, json!({ "batch": 10, "tags": [] }));
    assert_eq!(first.next, Some(2));
    let shown = serde_json::to_value(&first.changes[1]).unwrap();
    assert_eq!(
        (
            &shown["changeNumber"],
            &shown["requestId"],
            &shown["actorType"],
            &shown["source"]
        ),
        (&json!(2), &json!("r-2"), &json!("human"), &json!("page"))
    );
    assert_eq!(
        (&shown["patch"], &shown["value"]),
        (
            &json!([{ "op": "replace", "path": "/batch", "value": 12 }]),
            &json!({ "batch": 12, "tags": [] })
        )
    );
    // Who it was is nobody's to read.
    assert!(!serde_json::to_string(&first).unwrap().contains("secret"));
    let numbers: Vec<u64> = page(2, 100)
        .changes
        .iter()
        .map(|change| change.change_number)
        .collect();
    assert_eq!(
        (numbers, page(2, 3).next, page(5, 3).changes.len()),
        (vec![3, 4, 5], None, 0)
    );
}

/// A restart begins as the first run began.
#[test]
fn edge_011_a_restart_takes_no_settings_over() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    change(&fixture.workflows, &batch(&run, 11));
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    let scheduler = fixture.scheduler();
    let child = fixture
        .workflows
        .restart(&Restart::new(&run, revision))
        .unwrap()
        .value;
    let view = fixture.workflows.wait(&child, LONG).unwrap();
    scheduler.stop(LONG);
    let settings = serde_json::to_value(&view.settings).unwrap();
    assert_eq!(
        (&settings[0]["changeNumber"], &settings[0]["value"]),
        (&json!(0), &json!({ "batch": 10, "tags": [] }))
    );
}

// lint:allow(sql-in-test): the test makes the damage that verify must find; no command can.
const DAMAGES: [(&str, &str); 8] = [
    (
        "settingsHistory",
        "UPDATE workflow_setting_changes SET before_hash = after_hash WHERE change_number = 2",
    ),
    (
        "settingsHistory",
        "UPDATE workflow_setting_changes SET before_hash = after_hash WHERE change_number = 1",
    ),
    (
        "settingsHistory",
        "UPDATE workflow_setting_changes SET change_number = 7 WHERE change_number = 2",
    ),
    (
        "settingsHistory",
        "DELETE FROM workflow_setting_changes WHERE change_number = 3",
    ),
    (
        "settingsHistory",
        "UPDATE workflow_settings SET current_hash = initial_hash",
    ),
    (
        "settingsHistory",
        "UPDATE workflow_settings SET initial_hash = current_hash",
    ),
    (
        "settingsRevision",
        "UPDATE workflow_settings SET change_number = change_number + 1",
    ),
    (
        "settingsBinding",
        "UPDATE node_attempts SET settings_change_number = 1 WHERE node_id = 'ask'",
    ),
];

#[test]
fn edge_099_a_run_whose_settings_were_tampered_with_does_not_go_on() {
    for (invariant, sql) in DAMAGES {
        let mut fixture = Fixture::new();
        let run = waiting(&fixture, &tuned());
        for number in 1..=3 {
            change(&fixture.workflows, &batch(&run, 10 + number));
        }
        fixture.workflows.pause(&Control::of(&run)).unwrap();
        damage(&fixture, &run, sql);
        fixture.expects_damage = true;
        let found = fixture.violations();
        assert!(
            found.iter().any(|line| line.starts_with(invariant)),
            "{invariant}: {found:?}"
        );
        if invariant == "settingsBinding" {
            continue;
        }
        let rows = fixture.rows();
        let refused = fixture.workflows.resume(&Control::of(&run));
        assert!(
            matches!(
                refused,
                Err(WorkflowError::State(StateError::Corrupt { .. }))
            ),
            "{sql}: {refused:?}"
        );
        assert_eq!(fixture.rows(), rows);
    }
}

/// The runner looks for itself, since damage may come after the resume.
#[test]
fn edge_099_a_runner_parks_a_run_whose_settings_were_tampered_with() {
    let mut fixture = Fixture::new();
    let run = waiting(&fixture, &tuned());
    change(&fixture.workflows, &batch(&run, 11));
    fixture
        .workflows
        .answer(&holdpoint_workflows::commands::Answer::new(&run, json!(1)))
        .unwrap();
    let events = fixture.events(&run);
    let (_, sql) = DAMAGES[1];
    damage(&fixture, &run, sql);
    fixture.expects_damage = true;
    let scheduler = fixture.scheduler();
    // Another run goes on beside it, and what can't be taken up costs nobody anything.
    let other = fixture
        .workflows
        .run(&crate::support::echo(), json!(1))
        .unwrap();
    let view = fixture.workflows.wait(&other, LONG).unwrap();
    assert!(view.status.is_terminal());
    // It is not tried again and again: it is put aside, once, with words for a person.
    assert!(scheduler.wait_until_idle(LONG));
    let explained = fixture.workflows.explain(&run).unwrap();
    assert_eq!(
        explained.blocked_by.as_deref(),
        Some("settingsHistoryBroken")
    );
    insta::assert_snapshot!(explained.reason);
    assert!(
        explained
            .last_error
            .unwrap()
            .contains("its changes do not lead from the first document to the present one")
    );
    scheduler.stop(LONG);
    let parked = fixture.events(&run);
    assert_eq!(parked.len(), events.len() + 1);
    assert_eq!(parked[..events.len()], events[..]);
    let scheduler = fixture.scheduler();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    assert_eq!(fixture.events(&run), parked);
    // As long as it is damaged it is not resumed either.
    let refused = fixture.workflows.resume(&Control::of(&run));
    assert!(matches!(
        refused,
        Err(WorkflowError::State(StateError::Corrupt { .. }))
    ));
    // What is undone can go on.
    // lint:allow(sql-in-test): the test takes its own damage back.
    damage(
        &fixture,
        &run,
        "UPDATE workflow_setting_changes SET before_hash = (SELECT initial_hash FROM workflow_settings)",
    );
    fixture.expects_damage = false;
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert!(view.status.is_terminal());
}
