//! What holds a tree: each blocker alone, references out of a tree, and damage.

#![expect(
    clippy::disallowed_methods,
    reason = "stands for store rooms that leave rows in states that no command leaves behind"
)]

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use holdpoint_state::maintenance::retention::Taking;
use holdpoint_state::{Actor, Command, NewEffect, Outcome, OwnerScope, Payload, StateError};
use holdpoint_workflows::retention::KEEP_MS;
use holdpoint_workflows::{DOMAIN, RunId, model};
use serde_json::json;

use super::blockers;
use crate::support::{Fixture, echo};

/// Rows that the commands do not make yet, or that only damage makes. `?1` is the run's key.
pub(super) fn put(fixture: &Fixture, run: &RunId, statements: &'static [&'static str]) {
    let command = Command::new(
        DOMAIN.operation("run.cancel").unwrap(),
        model::resource(run),
    )
    .by(Actor::system());
    fixture
        .store
        .db()
        .commit(command, move |change| {
            let key = change.resource_key()?;
            for sql in statements {
                change.sql().prepare_cached(sql)?.execute([key])?;
            }
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
}

pub(super) const TERMINAL_MESSAGE: &str = "INSERT INTO workflow_messages (workflow_message_id, run_key, target_session_id, kind, source_id,
         content_hash, order_number, status, pi_session_entry_id, created_at, updated_at)
     SELECT 'message-' || resource_key, resource_key, 'session-1', 'terminal', run_id, (SELECT min(blob_hash) FROM blobs), resource_key, 'pending', NULL, 1, 1
     FROM runs WHERE resource_key = ?1";
pub(super) const MESSAGE_SENT: &str = "UPDATE workflow_messages SET status = 'sent', pi_session_entry_id = 'entry' WHERE run_key = ?1";

/// Each blocker alone, on a run that was over and old: what is put, and what then holds the run.
const HOLDS: &[(&str, &[&str])] = &[
    (
        "queue",
        &["UPDATE run_queue SET status = 'parked', finished_at = NULL WHERE run_key = ?1"],
    ),
    (
        "attempt",
        &[
            ATTEMPT,
            "UPDATE node_attempts SET status = 'interrupted', finished_at = NULL WHERE run_key = ?1",
        ],
    ),
    (
        "recording",
        &[
            SEGMENT_RESOURCE_IS_ITS_RUN,
            "UPDATE session_segments SET status = 'recording', finished_at = NULL WHERE run_key = ?1",
        ],
    ),
    (
        "pendingRequest",
        &[
            ATTEMPT,
            REQUEST,
            "UPDATE interactive_requests SET status = 'pending' WHERE run_key = ?1",
        ],
    ),
    ("pendingMessage", &[TERMINAL_MESSAGE]),
    (
        "openTurn",
        &[
            TERMINAL_MESSAGE,
            MESSAGE_SENT,
            TURN,
            "UPDATE workflow_turns SET state = 'started', stop_reason = NULL, ended_at = NULL WHERE run_key = ?1",
        ],
    ),
    (
        "terminalMessage",
        &["UPDATE run_bindings SET execution_mode = 'interactive' WHERE run_key = ?1"],
    ),
    ("followUp", &[FOLLOW_UP]),
];
/// What does not hold a run: the same rows when they are over.
const FREE: &[&str] = &[
    ATTEMPT,
    SEGMENT_RESOURCE_IS_ITS_RUN,
    REQUEST,
    TERMINAL_MESSAGE,
    MESSAGE_SENT,
    TURN,
    FOLLOW_UP,
    FOLLOW_UP_OVER,
];

const ATTEMPT: &str = "INSERT INTO node_attempts (attempt_id, run_key, node_id, attempt_number, node_type, status, started_at, finished_at)
     VALUES ('attempt-' || ?1, ?1, 'echo', 1, 'compute', 'completed', 1, 1)";
const SEGMENT_RESOURCE_IS_ITS_RUN: &str = "INSERT INTO session_segments
         (resource_key, segment_id, run_key, capture_key, session_id, recorder_id, binding_hash, status, created_at, finished_at)
     SELECT resource_key, 'segment-' || resource_key, resource_key, 'c', 's', 'r', (SELECT min(blob_hash) FROM blobs), 'complete', 1, 1 FROM runs WHERE resource_key = ?1";
const REQUEST: &str = "INSERT INTO interactive_requests
         (request_id, run_key, attempt_key, target_session_id, kind, contract_hash, status, created_at)
     SELECT 'request-' || r.resource_key, r.resource_key, a.attempt_key, 's', 'checkpoint', (SELECT min(blob_hash) FROM blobs), 'cancelled', 1
     FROM runs r JOIN node_attempts a ON a.run_key = r.resource_key WHERE r.resource_key = ?1";
const TURN: &str = "INSERT INTO workflow_turns
         (workflow_turn_id, message_key, run_key, target_session_id, state, stop_reason, started_at, ended_at)
     SELECT 'turn-' || run_key, message_key, run_key, 'session-' || run_key, 'ended', 'completed', 1, 1
     FROM workflow_messages WHERE run_key = ?1";
const FOLLOW_UP: &str = "INSERT INTO workflow_follow_ups (resource_key, follow_up_id, run_key, request_id, order_number, target_session_id,
         actor_type, source_type, prompt_hash, status, created_at)
     SELECT resource_key, 'follow-' || resource_key, resource_key, 'r', 1, 's', 'human', 'text', (SELECT min(blob_hash) FROM blobs), 'queued', 1
     FROM runs WHERE resource_key = ?1";
const FOLLOW_UP_OVER: &str = "UPDATE workflow_follow_ups SET status = 'cancelled', reason_hash = prompt_hash WHERE run_key = ?1";
/// The message of the follow-up, shown: the follow-up's own row stays queued for ever.
const FOLLOW_UP_SENT: &str = "INSERT INTO workflow_messages (workflow_message_id, run_key, target_session_id, kind, source_id,
         content_hash, order_number, status, pi_session_entry_id, created_at, updated_at)
     SELECT 'follow-up-' || resource_key, resource_key, 'session-1', 'followUp', 'follow-' || resource_key, (SELECT min(blob_hash) FROM blobs), 1000 + resource_key,
         'sent', 'entry', 1, 1 FROM runs WHERE resource_key = ?1";

#[test]
fn each_blocker_holds_alone_and_lets_go() {
    let mut fixture = Fixture::new();
    fixture.expects_damage = true;
    let free = fixture.ended(&echo(), "free", json!(0));
    put(&fixture, &free, FREE);
    let delivered = fixture.ended(&echo(), "delivered", json!(0));
    put(&fixture, &delivered, &[FOLLOW_UP, FOLLOW_UP_SENT]);
    let held: Vec<_> = HOLDS
        .iter()
        .map(|(name, statements)| {
            let run = fixture.ended(&echo(), name, json!(name));
            put(&fixture, &run, statements);
            run
        })
        .collect();
    let claimed = fixture.ended(&echo(), "lease", json!(0));
    let claim = fixture
        .store
        .db()
        .claim(
            model::resource(&claimed),
            Actor::host("test"),
            &crate::support::host(),
            60_000,
        )
        .unwrap();
    fixture.store.clock().advance(1);
    let cutoff = fixture.now();
    let plan = fixture.plan(cutoff);
    for (run, (name, _)) in held.iter().zip(HOLDS) {
        assert_eq!(blockers(&plan, run), [*name]);
    }
    assert_eq!(blockers(&plan, &claimed), ["lease"]);
    assert_eq!(blockers(&plan, &free), [""; 0]);
    assert_eq!(blockers(&plan, &delivered), [""; 0]);
    // Every blocker of the domain has its line here.
    let declared = holdpoint_workflows::DOMAIN.retention.blockers;
    assert!(
        declared
            .iter()
            .all(|blocker| HOLDS.iter().any(|(name, _)| *name == blocker.name))
    );
    // An expired lease holds nothing.
    drop(claim);
    fixture.store.clock().advance(60_000);
    assert_eq!(blockers(&fixture.plan(cutoff), &claimed), [""; 0]);

    let report = fixture
        .store
        .db()
        .sweep(&Taking::before(cutoff), |_| ControlFlow::Continue(()))
        .unwrap();
    assert_eq!(report.deleted.trees, 3);
    let mut left: Vec<_> = held.iter().map(ToString::to_string).collect();
    left.sort();
    assert_eq!(fixture.runs(), left);
    assert_eq!(references(&fixture), 0);
}

/// How many rows refer to a row that is not there.
fn references(fixture: &Fixture) -> i64 {
    fixture.count("SELECT count(*) FROM pragma_foreign_key_check")
}

#[test]
fn an_open_effect_holds_its_run() {
    let mut fixture = Fixture::new();
    fixture.expects_damage = true;
    let run = fixture.ended(&echo(), "acted", json!(1));
    let command = Command::new(
        DOMAIN.operation("run.cancel").unwrap(),
        model::resource(&run),
    )
    .by(Actor::system());
    fixture
        .store
        .db()
        .commit(command, |change| {
            change.reserve_effect(&NewEffect::new(
                "run.settle",
                "key",
                OwnerScope::Run,
                Payload::json(&json!({}))?,
            ))?;
            change.transition("queued", "cancelled")?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    fixture.store.clock().advance(1);
    let plan = fixture.plan(fixture.now());
    assert_eq!(blockers(&plan, &run), ["effect"]);
    let row = &plan.trees[0].blockers[0].rows[0];
    assert!(
        row.starts_with("effect-") && row.ends_with("(run.settle, pending)"),
        "{row}"
    );
}

#[test]
fn a_reference_out_of_a_tree_holds_both_trees() {
    let mut fixture = Fixture::new();
    fixture.expects_damage = true;
    let one = fixture.ended(&echo(), "one", json!(1));
    let other = fixture.ended(&echo(), "two", json!(2));
    put(&fixture, &one, &[ATTEMPT]);
    put(
        &fixture,
        &other,
        &[
            "INSERT INTO run_steps (run_key, step_index, attempt_key) SELECT ?1, 0, attempt_key FROM node_attempts",
        ],
    );
    fixture.store.clock().advance(1);
    let plan = fixture.plan(fixture.now());
    assert_eq!(blockers(&plan, &one), ["step"]);
    assert_eq!(blockers(&plan, &other), ["step"]);
}

#[test]
fn damage_that_makes_the_selection_doubtful_selects_nothing() {
    for (what, damage) in [
        (
            "launchOptions",
            "UPDATE runs SET launch_options_digest = NULL, launch_options = NULL,
                 launch_options_hash = (SELECT blob_hash FROM blobs WHERE media_type = 'text/plain') WHERE resource_key = ?1",
        ),
        (
            "launchOptions",
            "UPDATE runs SET launch_options = CAST('{' AS BLOB) WHERE resource_key = ?1",
        ),
        (
            "lineage",
            "UPDATE runs SET restart_number = 7 WHERE parent_key = ?1",
        ),
    ] {
        let mut fixture = Fixture::new();
        fixture.expects_damage = true;
        fixture.ended(&echo(), "good", json!(1));
        let run = fixture.ended(&echo(), "damaged", json!(1));
        let child = fixture.restarted(&run);
        fixture.end(&child);
        fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
        assert_eq!(fixture.plan(fixture.now()).selected_members, 3);
        let before = fixture.runs();
        put(&fixture, &run, Box::leak(Box::new([damage])));
        let error = fixture.workflows.retention_plan(fixture.now()).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        let error = fixture
            .workflows
            .sweep(BTreeSet::new(), |_| ControlFlow::Continue(()))
            .unwrap_err();
        assert_eq!(error.code(), "corrupt");
        let error = fixture
            .workflows
            .prune(fixture.now(), fixture.backup())
            .unwrap_err();
        assert_eq!(error.code(), "corrupt");
        assert!(!fixture.backup().exists());
        assert_eq!(fixture.runs(), before);
    }
}
