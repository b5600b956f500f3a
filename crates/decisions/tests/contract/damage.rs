//! What `verify` finds: each invariant, broken as only another program could, past the kernel, the checks and the triggers of the schema.

use holdpoint_decisions::DOMAIN;
use holdpoint_decisions::commands::{self, Cancel};
use holdpoint_state::testing::plain;
use serde_json::json;

use crate::support::{Fixture, draft, timed};

const DAMAGES: &[(&str, &str)] = &[
    (
        "D1",
        "UPDATE human_decision_resolutions SET reason = 'why' WHERE outcome = 'accepted'",
    ),
    (
        "D1",
        "UPDATE human_decision_resolutions SET response_hash = NULL WHERE outcome = 'accepted'",
    ),
    (
        "D2",
        "UPDATE human_decision_resolutions SET channel = NULL WHERE provenance = 'human'",
    ),
    (
        "D2",
        "UPDATE human_decision_resolutions SET actor_id = NULL WHERE provenance = 'human'",
    ),
    (
        "D2",
        "UPDATE human_decision_resolutions SET idempotency_key = 'k' WHERE provenance <> 'human'",
    ),
    ("D3", "UPDATE human_decisions SET deadline_at = NULL"),
    ("D4", "UPDATE human_decisions SET deadline_at = created_at"),
    (
        "D4",
        "UPDATE human_decision_resolutions SET provenance = 'timeout_policy' WHERE provenance = 'human'",
    ),
    (
        "D4",
        "UPDATE human_decision_resolutions SET provenance = 'expired_no_default' WHERE outcome = 'cancelled'",
    ),
    (
        "D5",
        "UPDATE human_decision_submissions SET result = 'stale' WHERE result = 'won'",
    ),
    (
        "D5",
        "DELETE FROM human_decision_resolutions WHERE outcome = 'accepted'",
    ),
    (
        "D6",
        "UPDATE human_decision_submissions SET source = 'policy' WHERE result = 'won' AND source = 'human'",
    ),
    (
        "D6",
        "UPDATE human_decision_submissions SET idempotency_key = 'another' || submission_key WHERE result = 'won' AND source = 'human'",
    ),
    (
        "D7",
        "UPDATE human_decision_submissions SET winner_digest = request_digest WHERE result = 'already_resolved'",
    ),
    ("D8", "UPDATE node_attempts SET node_type = 'agent'"),
    ("D8", "DELETE FROM node_attempts"),
    ("D9", "UPDATE human_decisions SET attempt_key = 1"),
    ("D10", "UPDATE interactive_requests SET kind = 'checkpoint'"),
    ("D11", "UPDATE interactive_requests SET status = 'pending'"),
    (
        "D11",
        "UPDATE interactive_requests SET status = 'settled' WHERE status = 'pending'",
    ),
    ("D12", "DELETE FROM human_decision_resolutions"),
    ("D13", "DELETE FROM interactive_submissions"),
    ("D14", "UPDATE runs SET finished_at = 1"),
    (
        "D15",
        "UPDATE node_attempts SET status = 'running' WHERE status = 'waiting'",
    ),
    ("D16", "UPDATE interactive_requests SET consumed_at = NULL"),
    (
        "D17",
        "UPDATE workflow_messages SET status = 'pending' WHERE kind = 'decision'",
    ),
    (
        "D18",
        "DELETE FROM effects WHERE effect_type = 'decision.settle_presentations'",
    ),
    (
        "D18",
        "DELETE FROM effects WHERE effect_type = 'decision.cancel_parent'",
    ),
    (
        "D19",
        "UPDATE resources SET revision = revision + 1 WHERE resource_type = 'decision'",
    ),
    (
        "D19",
        "DELETE FROM events WHERE event_type = 'decision.requested'",
    ),
    (
        "D19",
        "DELETE FROM events WHERE event_type = 'decision.accepted'",
    ),
    (
        "decisionRows",
        "UPDATE human_decisions SET decision_id = 'x' || decision_id",
    ),
    (
        "decisionDocuments",
        "UPDATE human_decisions SET request_digest = randomblob(32) WHERE deadline_at IS NOT NULL",
    ),
    (
        "decisionDocuments",
        "UPDATE human_decisions SET title = 'Sell'",
    ),
    (
        "decisionDocuments",
        "UPDATE blobs SET content = substr(content, 2) WHERE blob_hash IN (SELECT request_hash FROM human_decisions)",
    ),
    ("decisionDeadlines", "DELETE FROM human_decision_deadlines"),
    (
        "decisionDeadlines",
        "UPDATE human_decision_deadlines SET deadline_at = 5",
    ),
];

/// Takes away what keeps such rows out.
const UNGUARD: &str = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
    DROP TRIGGER human_decisions_never_change;
    DROP TRIGGER human_decision_resolutions_never_change;
    DROP TRIGGER human_decision_submissions_never_change;";

/// An open decision, one that is answered and used, one that is answered and not used, one that is cancelled, and a candidate that lost.
fn world() -> Fixture {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let definition = crate::support::gated(draft);
    let start =
        holdpoint_workflows::commands::Start::new(&definition, json!({})).in_session("session-1");
    let shown = fixture.workflows.start(&start).unwrap().value;
    fixture
        .workflows
        .wait(&shown, crate::support::LONG)
        .unwrap();
    fixture.answer(&fixture.asked(&shown), json!({ "choice": "go" }), "k1");
    fixture
        .workflows
        .wait(&shown, crate::support::LONG)
        .unwrap();
    scheduler.stop(crate::support::LONG);
    let (_, unused) = fixture.ask(draft);
    fixture.answer(&unused, json!({ "choice": "go" }), "k2");
    fixture.answer(&unused, json!({ "choice": "go" }), "k3");
    let (_, cancelled) = fixture.ask(draft);
    let cancel = Cancel::of(&cancelled).leaving_the_run();
    commands::cancel(fixture.db(), &cancel).unwrap();
    fixture.ask(timed);
    fixture
}

#[test]
fn every_invariant_finds_what_breaks_it() {
    let fixture = world();
    assert_eq!(fixture.violations(), Vec::<String>::new());
    let mut unseen: Vec<&str> = DOMAIN
        .invariants
        .iter()
        .map(|invariant| invariant.name)
        .collect();
    for (index, (name, damage)) in DAMAGES.iter().enumerate() {
        let path = fixture
            .store
            .directory()
            .join(format!("damaged-{index}.sqlite"));
        fixture.db().backup(&path).unwrap();
        let connection = plain::open(&path).unwrap();
        connection.execute_batch(UNGUARD).unwrap();
        if *name == "D9" {
            // The constraint itself has to go.
            connection.execute_batch("CREATE TABLE copy AS SELECT * FROM human_decisions; DROP TABLE human_decisions;").unwrap();
            connection
                .execute_batch("ALTER TABLE copy RENAME TO human_decisions;")
                .unwrap();
        }
        connection
            .execute_batch(damage)
            .unwrap_or_else(|error| panic!("{damage}: {error}"));
        let invariant = DOMAIN
            .invariants
            .iter()
            .find(|invariant| invariant.name == *name)
            .unwrap();
        let mut statement = connection.prepare(invariant.violations).unwrap();
        assert!(
            statement.exists([]).unwrap(),
            "{name} does not see: {damage}"
        );
        unseen.retain(|unseen| unseen != name);
        drop(statement);
        drop(connection);
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(unseen, [""; 0], "never seen");
}
