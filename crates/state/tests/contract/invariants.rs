//! Every rule of the kernel finds what breaks it, and finds nothing in a sound store: a rule that nothing can break holds nothing.

use std::collections::BTreeSet;
use std::path::Path;

use holdpoint_state::maintenance::{Check, verify_file};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Owner, OwnerKind};
use rusqlite::Connection;

/// The damage that each rule is there for. `a` is a counter that was created, announced, claimed and told of; its announcement, the
/// effect with the lowest key, is pending; `b` has a second one.
const DAMAGE: &[(&str, &str)] = &[
    (
        "eventsGapFree",
        "DELETE FROM events WHERE resource_key = (SELECT key FROM a) AND resource_revision = 1",
    ),
    (
        "eventSequence",
        "UPDATE sqlite_sequence SET seq = 1 WHERE name = 'events'",
    ),
    (
        "eventOrder",
        "UPDATE events SET event_seq = 1000 WHERE resource_key = (SELECT key FROM a) AND resource_revision = 1",
    ),
    (
        "leaseOwner",
        "UPDATE leases SET owner_id = NULL WHERE resource_key = (SELECT key FROM a)",
    ),
    (
        "leaseGeneration",
        "UPDATE leases SET generation = generation - 1 WHERE resource_key = (SELECT key FROM a)",
    ),
    (
        "leaseTimes",
        "UPDATE leases SET expires_at = heartbeat_at WHERE resource_key = (SELECT key FROM a)",
    ),
    (
        "projectId",
        "INSERT INTO projects (project_id, canonical_path, created_at) VALUES ('project-1', '/x', 0)",
    ),
    (
        "blobLength",
        "INSERT INTO blobs (blob_hash, media_type, byte_length, content, created_at)
         VALUES (zeroblob(32), 'text/plain', 7, x'00', 0)",
    ),
    (
        "effectRow",
        "INSERT INTO resources (resource_type, aggregate_key, created_at, updated_at) VALUES ('effect', zeroblob(20), 0, 0)",
    ),
    (
        "effectIdentity",
        "UPDATE resources SET aggregate_key = (SELECT aggregate_key FROM resources WHERE resource_key = (SELECT key FROM effect))
         WHERE resource_type = 'effect'",
    ),
    (
        "effectLine",
        "UPDATE effects SET status = 'applying', ordering_key = 'line'",
    ),
    (
        "X1",
        "UPDATE effects SET settled_at = 1 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X2",
        "UPDATE effects SET attempt_count = 2 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X3",
        "UPDATE effects SET status = 'applying' WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X4",
        "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, started_at, finished_at, outcome)
         SELECT key, 1, 'o', 7, 6, 'applied' FROM effect",
    ),
    (
        "X5",
        "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, started_at, finished_at, outcome)
         SELECT key, 1, 'o', 1, 2, 'applied' FROM effect UNION ALL SELECT key, 2, 'o', 3, 4, 'applied' FROM effect",
    ),
    (
        "X6",
        "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, started_at, finished_at, outcome)
         SELECT key, 1, 'o', 1, 2, 'applied' FROM effect;
         UPDATE effects SET attempt_count = 1 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X7",
        "UPDATE effects SET status = 'applied', settled_at = 1 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X8",
        "UPDATE effects SET source_revision = 99 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X9",
        "UPDATE resources SET resource_type = 'counter' WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X10",
        "UPDATE effects SET status = 'cancelled', settled_at = 1 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X11",
        "UPDATE resources SET revision = 9 WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X12",
        "UPDATE resources SET resource_type = 'run' WHERE resource_key = (SELECT key FROM a);
         UPDATE effects SET owner_scope = 'channel' WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X13",
        "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, lease_generation, started_at)
         SELECT key, 1, 'o', 99, 1 FROM effect",
    ),
    (
        "X15",
        "UPDATE effects SET status = 'ambiguous', settled_at = 1, next_attempt_at = 5
         WHERE resource_key = (SELECT key FROM effect)",
    ),
    (
        "X17",
        "UPDATE effects SET owner_scope = 'controller', source_key = (SELECT key FROM a), idempotency_key = 'k',
             effect_type = 'kind.' || resource_key",
    ),
    (
        "X18",
        "INSERT INTO leases (resource_key, generation, owner_type, owner_id, token_hash, acquired_at, heartbeat_at, expires_at)
         SELECT key, 1, 'host', 'o', zeroblob(32), 1, 1, 9 FROM effect;
         UPDATE effects SET status = 'applied', settled_at = 1 WHERE resource_key = (SELECT key FROM effect)",
    ),
];

/// A closed store with rows of every kind.
fn store() -> TestStore {
    let mut store = TestStore::counters().unwrap();
    let db = store.db();
    for name in ["a", "b"] {
        counter::create(db, name).unwrap();
        counter::submit_announced(db, name, 1, "note")
            .unwrap()
            .wait()
            .unwrap();
    }
    let owner = Owner::new(OwnerKind::Host, "worker");
    db.claim(
        counter::resource("a"),
        Actor::host("worker"),
        &owner,
        60_000,
    )
    .unwrap();
    store.close();
    store
}

/// The rules of the domains that a copy of the store breaks after `damage`.
fn broken(store: &TestStore, name: &str, damage: &str) -> BTreeSet<String> {
    let path = store.directory().join(format!("{name}.sqlite"));
    std::fs::copy(store.path(), &path).unwrap();
    tamper(&path, damage);
    verify_file(&path, store.schema())
        .unwrap()
        .findings
        .into_iter()
        .filter(|finding| finding.check == Check::Invariants)
        .map(|finding| {
            assert!(
                0 < finding.count && !finding.ids.is_empty(),
                "{name}: {finding:?}"
            );
            finding.name
        })
        .collect()
}

fn tamper(path: &Path, damage: &str) {
    let connection = Connection::open(path).unwrap();
    connection
        .execute_batch(&format!(
            "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
             CREATE TEMP TABLE a AS SELECT resource_key AS key FROM resources WHERE aggregate_key = 'a';
             CREATE TEMP TABLE effect AS SELECT min(resource_key) AS key FROM effects;
             {damage};"
        ))
        .unwrap();
    connection.close().unwrap();
}

#[test]
fn each_rule_finds_what_breaks_it() {
    let store = store();
    assert_eq!(broken(&store, "sound", "SELECT 1"), BTreeSet::new());
    let rules: Vec<_> = holdpoint_state::DOMAIN
        .invariants
        .iter()
        .map(|rule| rule.name)
        .collect();
    let tried: Vec<_> = DAMAGE.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        rules, tried,
        "each rule needs the damage that it is there for"
    );
    for (name, damage) in DAMAGE {
        let found = broken(&store, name, damage);
        assert!(found.contains(*name), "{name}: only {found:?}");
    }
}

/// `docs/STATE.md` says what `verify` runs.
#[test]
fn the_page_names_every_rule() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/STATE.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<_> = holdpoint_state::DOMAIN
        .invariants
        .iter()
        .map(|rule| rule.name)
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert_eq!(missing, Vec::<&str>::new());
}
