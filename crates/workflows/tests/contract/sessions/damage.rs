//! What only damage makes of sessions is found, or refused by the schema itself.

use holdpoint_state::{Actor, Command, Outcome, StateError};
use holdpoint_workflows::{DOMAIN, model};
use serde_json::json;

use super::{Origin, naming};
use crate::support::{Fixture, LONG};
use crate::views::damage;

// lint:allow(sql-in-test): the test makes the damage that verify must find; no command can.
const DAMAGES: [(&str, &str); 8] = [
    ("activeClock", "UPDATE runs SET paused = 1"),
    ("activeClock", "UPDATE node_attempts SET timeout_ms = NULL"),
    (
        "activeClock",
        "UPDATE node_attempts SET status = 'interrupted'",
    ),
    (
        "validatingRequest",
        "UPDATE run_queue SET error_code = 'runnerNoProgress'",
    ),
    (
        "validatingRequest",
        "UPDATE interactive_requests SET status = 'cancelled'",
    ),
    (
        "sessionMessages",
        "UPDATE workflow_messages SET kind = 'notification'",
    ),
    (
        "sessionMessages",
        "UPDATE run_bindings SET owes_terminal_message = 1",
    ),
    (
        "nothingOpen",
        "UPDATE runs SET status = 'failed', finished_at = 1",
    ),
];

#[test]
fn edge_111_hand_made_violations_of_sessions_are_found() {
    for (invariant, sql) in DAMAGES {
        let mut fixture = Fixture::new();
        let scheduler = fixture.scheduler();
        let mut origin = Origin::new(&fixture.workflows, "s");
        let run = origin.start(&naming(), json!("Ada")).run_id;
        scheduler.stop(LONG);
        origin.show_and_begin();
        fixture
            .workflows
            .submit(&origin.submission(&run, json!(1), "k"))
            .unwrap();
        assert_eq!(fixture.violations(), Vec::<String>::new());
        damage(&fixture, &run, sql);
        let found = fixture.violations();
        assert!(
            found.iter().any(|line| line.starts_with(invariant)),
            "{invariant}: {sql}: {found:?}"
        );
        assert!(
            found.iter().all(|line| line.contains(run.as_str())),
            "{found:?}"
        );
        fixture.expects_damage = true;
    }
}

// lint:allow(sql-in-test): the test tries what the schema must refuse; no command does it.
const REFUSED: [&str; 5] = [
    "INSERT INTO workflow_turns (workflow_turn_id, message_key, run_key, target_session_id, state, started_at)
     SELECT 'second', message_key, run_key, target_session_id, 'started', 1 FROM workflow_turns",
    "UPDATE workflow_turns SET state = 'ended'",
    "UPDATE workflow_messages SET status = 'pending'",
    "UPDATE workflow_messages SET status = 'cancelled', pi_session_entry_id = NULL",
    "INSERT INTO attempt_active_intervals (attempt_key, interval_number, started_at, observed_at)
     SELECT attempt_key, interval_number + 1, 1, 1 FROM attempt_active_intervals",
];

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test tries what the schema must refuse; no command does it"
)]
fn the_schema_refuses_two_turns_two_clocks_and_half_states() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    origin.show_and_begin();
    for sql in REFUSED {
        let operation = DOMAIN.operation("run.accept_definition").unwrap();
        let command = Command::new(operation, model::resource(&run)).by(Actor::human("test"));
        let refused = fixture.store.db().commit(command, move |change| {
            change.sql().prepare_cached(sql)?.execute([])?;
            Ok::<_, StateError>(Outcome::Refused(()))
        });
        assert!(refused.is_err(), "{sql}");
    }
}
