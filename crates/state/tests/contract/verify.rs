//! Verification names each break with its table and rows, goes on after damage, and changes no byte.

use std::path::{Path, PathBuf};

use holdpoint_state::maintenance::{Check, VerifyReport, verify_file};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Digest, Outcome, Payload, Refusal, StateError};
use rusqlite::Connection;

/// A closed copy of a small store, to damage.
pub(crate) struct Damaged {
    store: TestStore,
    pub(crate) path: PathBuf,
    text: Payload,
}

impl Damaged {
    pub(crate) fn new() -> Self {
        let mut store = TestStore::counters().unwrap();
        let text = Payload::text("a long text that ".repeat(100_000)).unwrap();
        counter::create(store.db(), "a").unwrap();
        counter::create(store.db(), "b").unwrap();
        counter::add(store.db(), "a", 41).unwrap();
        let blob = text.clone();
        let command = Command::new(&counter::ADD, counter::resource("b")).by(Actor::host("h"));
        store
            .db()
            .commit(command, move |change| {
                change.put_blob(&blob)?;
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
            .unwrap();
        store.close();
        let path = store.directory().join("copy.sqlite");
        std::fs::copy(store.path(), &path).unwrap();
        Self { store, path, text }
    }

    fn sql(self, statements: &str) -> Self {
        let connection = Connection::open(&self.path).unwrap();
        connection
            .execute_batch(&format!("PRAGMA foreign_keys = OFF; {statements}"))
            .unwrap();
        connection.close().unwrap();
        self
    }

    /// Overwrites the one place where `old` stands.
    fn bytes(self, old: &[u8], new: &[u8]) -> Self {
        let mut bytes = std::fs::read(&self.path).unwrap();
        let places: Vec<_> = bytes
            .windows(old.len())
            .enumerate()
            .filter_map(|(at, window)| (window == old).then_some(at))
            .collect();
        assert!(!places.is_empty());
        bytes[places[0]..places[0] + new.len()].copy_from_slice(new);
        std::fs::write(&self.path, bytes).unwrap();
        self
    }

    fn verify(&self) -> VerifyReport {
        verify_file(&self.path, self.store.schema()).unwrap()
    }
}

/// `name table: ids` of each finding.
fn findings(report: &VerifyReport) -> Vec<String> {
    report
        .findings
        .iter()
        .map(|finding| {
            let table = finding.table.as_deref().unwrap_or("-");
            format!("{} {table}: {}", finding.name, finding.ids.join(", "))
        })
        .collect()
}

fn bytes_of(store: &TestStore) -> Vec<Vec<u8>> {
    // A process of its own reads the files: closing a descriptor here would drop SQLite's locks.
    ["", "-wal"]
        .into_iter()
        .map(|suffix| {
            let path = format!("{}{suffix}", store.path().display());
            let output = std::process::Command::new("cat")
                .arg(path)
                .output()
                .unwrap();
            assert!(output.status.success());
            output.stdout
        })
        .collect()
}

#[test]
fn a_sound_store_has_no_findings_and_keeps_every_byte() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    counter::add(store.db(), "a", 7).unwrap();
    let before = bytes_of(&store);
    let report = store.db().verify().unwrap();
    assert_eq!(findings(&report), Vec::<String>::new());
    assert!(report.is_clean());
    assert!(
        report
            .checks
            .iter()
            .all(|run| run.check == Check::Blobs || 0 < run.examined)
    );
    store.db().status().unwrap();
    store.db().doctor().unwrap();
    assert_eq!(bytes_of(&store), before);
}

#[test]
fn an_offline_verification_leaves_no_trace() {
    let damaged = Damaged::new();
    let before = std::fs::read(&damaged.path).unwrap();
    let listed = names(damaged.store.directory());
    assert!(damaged.verify().is_clean(), "{:?}", damaged.verify());
    assert_eq!(std::fs::read(&damaged.path).unwrap(), before);
    assert_eq!(names(damaged.store.directory()), listed);
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_live_store_is_not_verified_as_a_file() {
    let mut store = TestStore::counters().unwrap();
    let refused = |path: &Path| {
        let result = verify_file(path, store.schema());
        assert!(
            matches!(result, Err(StateError::Input { .. })),
            "{result:?}"
        );
    };
    refused(&store.path());
    let link = store.directory().join("link.sqlite");
    std::os::unix::fs::symlink(store.path(), &link).unwrap();
    refused(&link);
    let second = store.directory().join("second.sqlite");
    std::fs::hard_link(store.path(), &second).unwrap();
    refused(&second);
    std::fs::remove_file(&second).unwrap();
    let missing = verify_file(store.directory().join("none"), store.schema());
    assert!(
        matches!(missing, Err(StateError::Refused { .. })),
        "{missing:?}"
    );
    store.close();
    let refused = verify_file(store.path(), store.schema());
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );

    let copy = store.directory().join("copy.sqlite");
    std::fs::copy(store.path(), &copy).unwrap();
    std::fs::write(store.directory().join("copy.sqlite-wal"), b"").unwrap();
    let refused = verify_file(copy, store.schema());
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );
}

#[test]
fn case_112_a_flipped_byte_in_a_blob_is_found() {
    // The text lies in many pages, so that no check of SQLite looks at it.
    let damaged = Damaged::new().bytes(b"long text", b"lOng");
    let report = damaged.verify();
    assert_eq!(
        findings(&report),
        [format!("blobDigest blobs: {}", damaged.text.digest())]
    );
}

#[test]
fn case_112_a_changed_payload_is_found() {
    let report = Damaged::new()
        .bytes(b"{\"amount\":41}", b"{\"amount\":42}")
        .verify();
    assert_eq!(findings(&report), ["payloadDigest events: 3"]);
    let report = Damaged::new()
        .bytes(b"{\"amount\":41}", b"{\"amount\": 4}")
        .verify();
    assert_eq!(
        findings(&report),
        ["payloadDigest events: 3", "payloadForm events: 3"]
    );
}

#[test]
fn case_112_a_missing_event_is_found() {
    let report = Damaged::new()
        .sql("DELETE FROM events WHERE event_seq = 1")
        .verify();
    assert_eq!(findings(&report), ["eventsGapFree -: counter a"]);
    assert_eq!(report.findings[0].domain.as_deref(), Some("state"));
    let report = Damaged::new()
        .sql("UPDATE sqlite_sequence SET seq = 3 WHERE name = 'events'")
        .verify();
    assert_eq!(findings(&report), ["eventSequence -: 4"]);
}

#[test]
fn case_112_a_broken_reference_is_found_with_table_and_row() {
    let report = Damaged::new()
        .sql("DELETE FROM resources WHERE aggregate_key = 'a'")
        .verify();
    assert_eq!(
        findings(&report),
        ["foreignKey counters: 1", "foreignKey events: 1, 3"]
    );
    assert_eq!(report.findings[0].domain.as_deref(), Some("counter"));
}

#[test]
fn case_112_a_rule_of_a_domain_is_checked() {
    let report = Damaged::new()
        .sql("UPDATE counters SET value = 1000000")
        .verify();
    assert_eq!(findings(&report), ["counterRevision -: a, b"]);
    assert_eq!(report.findings[0].count, 2);
}

#[test]
fn json_that_is_not_canonical_is_found() {
    let text = "{ \"a\": 1 }";
    let digest = Digest::of(text.as_bytes());
    let report = Damaged::new()
        .sql(&format!(
            "INSERT INTO blobs (blob_hash, media_type, byte_length, content, created_at)
             VALUES (x'{digest}', 'application/json', {}, CAST('{text}' AS BLOB), 0)",
            text.len()
        ))
        .verify();
    assert_eq!(findings(&report), [format!("blobForm blobs: {digest}")]);
}

#[test]
fn each_difference_of_the_schema_is_named() {
    let report = Damaged::new()
        .sql(
            "DROP INDEX leases_by_owner; CREATE TABLE extra (a); PRAGMA application_id = 7;
             UPDATE schema_meta SET schema_name = 'other'",
        )
        .verify();
    assert_eq!(findings(&report), ["schema -: "]);
    insta::assert_debug_snapshot!(report.findings[0].details, @r#"
    [
        "application id 0x00000007 instead of 0x50495746",
        "index leases_by_owner is missing",
        "table extra is unexpected",
        "schema_meta names other version 1",
    ]
    "#);
}

#[test]
fn a_destroyed_page_is_reported_and_the_other_checks_go_on() {
    let damaged = Damaged::new();
    let mut bytes = std::fs::read(&damaged.path).unwrap();
    let connection = Connection::open(&damaged.path).unwrap();
    let root: u32 = connection
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'events'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    connection.close().unwrap();
    let root = usize::try_from(root).unwrap();
    bytes[(root - 1) * 4096..root * 4096].fill(0xA5);
    std::fs::write(&damaged.path, bytes).unwrap();
    let report = damaged.verify();
    assert_eq!(report.findings[0].check, Check::Integrity);
    assert_eq!(report.checks.len(), 6);
    assert_eq!(report.checks[4].check, Check::Blobs);
    assert_eq!(
        (report.checks[4].examined, report.checks[4].findings),
        (1, 0)
    );
}

#[test]
fn a_file_that_is_no_database_is_a_finding_or_a_refusal_never_a_panic() {
    let damaged = Damaged::new();
    std::fs::write(&damaged.path, b"this is no database, but it is longer than a header of one hundred bytes, for which SQLite looks first of all things").unwrap();
    let report = damaged.verify();
    assert!(!report.is_clean());
    let refused = holdpoint_state::maintenance::restore(
        &damaged.path,
        damaged.store.directory().join("other.sqlite"),
        damaged.store.schema(),
    );
    assert!(matches!(refused, Err(StateError::Refused { refusal, .. })
        if matches!(*refusal, Refusal::Integrity { .. })));
}
