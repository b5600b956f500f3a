//! Each way in which a file can be another than the schema's has its refusal and one instruction, and the bytes stay.

use std::fs;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};

use holdpoint_state::schema::{Domain, Identity, Schema};
use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Options, Refusal, StateError};
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::{Home, options, refusal};
use crate::children::counters_schema;

/// What was done to a whole store, in SQL.
const TAMPERED: &[(&str, &str)] = &[
    ("application id", "PRAGMA application_id = 77"),
    ("no application id", "PRAGMA application_id = 0"),
    (
        "application id and version",
        "PRAGMA application_id = 77; PRAGMA user_version = 9",
    ),
    ("newer", "PRAGMA user_version = 2"),
    ("older", "PRAGMA user_version = 0"),
    ("schema_meta dropped", "DROP TABLE schema_meta"),
    ("schema_meta emptied", "DELETE FROM schema_meta"),
    (
        "schema_meta with other columns",
        "ALTER TABLE schema_meta RENAME COLUMN schema_name TO name",
    ),
    (
        "second row",
        "PRAGMA ignore_check_constraints = ON;
         INSERT INTO schema_meta SELECT 2, schema_name, schema_version, schema_digest, app_version, 0, 0 FROM schema_meta",
    ),
    (
        "other name",
        "UPDATE schema_meta SET schema_name = 'other'",
    ),
    (
        "other version in the row",
        "UPDATE schema_meta SET schema_version = 2",
    ),
    (
        "other digest",
        "UPDATE schema_meta SET schema_digest = zeroblob(32)",
    ),
    ("table added", "CREATE TABLE extra (a TEXT) STRICT"),
    ("table dropped", "DROP TABLE effect_attempts"),
    (
        "column added",
        "ALTER TABLE projects ADD COLUMN extra TEXT",
    ),
    (
        "column dropped",
        "ALTER TABLE effects DROP COLUMN external_ref",
    ),
    (
        "index added",
        "CREATE INDEX extra ON projects (created_at)",
    ),
    ("index dropped", "DROP INDEX leases_by_owner"),
    (
        "index altered",
        "DROP INDEX leases_by_owner; CREATE INDEX leases_by_owner ON leases (owner_id)",
    ),
    (
        "trigger added",
        "CREATE TRIGGER extra AFTER INSERT ON projects BEGIN SELECT 1; END",
    ),
    ("view added", "CREATE VIEW extra AS SELECT 1"),
    (
        "check altered",
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = replace(sql, 'generation >= 0', 'generation >= -1') WHERE name = 'leases'",
    ),
    (
        "foreign key broken",
        "PRAGMA foreign_keys = OFF; INSERT INTO leases (resource_key, generation) VALUES (4711, 0)",
    ),
    (
        "check broken",
        "PRAGMA ignore_check_constraints = ON; UPDATE resources SET revision = -1",
    ),
];

#[test]
fn each_difference_is_refused_with_one_instruction_and_no_byte_changes() {
    let mut found = String::new();
    for (what, sql) in TAMPERED {
        let home = Home::with_store();
        home.tamper(sql);
        let refusal = home.refusal();
        let text = format!("{what}\n    {}: {refusal}\n", variant(&refusal));
        found.push_str(&text.replace(
            &counters_schema().digest().to_hex(),
            "(the schema's digest)",
        ));
    }
    insta::assert_snapshot!(found);
}

/// The name of the variant: what a program compares.
fn variant(refusal: &Refusal) -> String {
    let debug = format!("{refusal:?}");
    debug
        .split([' ', '{'])
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn another_composition_is_refused() {
    const OTHER: Domain = Domain {
        ddl: "CREATE TABLE others (a TEXT) STRICT;",
        ..Domain::named("others")
    };
    let home = Home::with_store();
    let schema = Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN, OTHER],
    )
    .unwrap();
    assert!(matches!(
        home.refusal_with(&schema, options()),
        Refusal::Digest { .. }
    ));
}

/// Another program's files, which have nothing of ours.
#[test]
fn foreign_files_stay_as_they_are() {
    for (journal_mode, identity) in [
        ("DELETE", "PRAGMA application_id = 77"),
        ("DELETE", "PRAGMA user_version = 1"),
        ("WAL", "PRAGMA application_id = 77"),
        ("WAL", "PRAGMA user_version = 0"),
    ] {
        let home = Home::empty();
        write_private(&home, b"");
        home.tamper(&format!(
            "PRAGMA journal_mode = {journal_mode}; {identity}; CREATE TABLE theirs (a); INSERT INTO theirs VALUES (1)"
        ));
        assert!(matches!(home.refusal(), Refusal::ApplicationId { .. }));
        let schema = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN]).unwrap();
        assert!(matches!(
            home.refusal_with(&schema, Options::default()),
            Refusal::ApplicationId { .. }
        ));
    }
}

#[test]
fn what_is_no_database_is_refused() {
    let long = b"not a database at all, but long enough for a header\n".repeat(100);
    for bytes in [&b"short"[..], &long[..], &[0; 4_096][..]] {
        let home = Home::empty();
        write_private(&home, bytes);
        assert!(matches!(home.refusal(), Refusal::NotADatabase { .. }));
    }
}

#[test]
fn a_truncated_store_is_refused() {
    let whole = fs::read(Home::with_store().path()).unwrap();
    for kept in [50, 100, 1_000, 4_096, whole.len() / 2, whole.len() - 1] {
        let home = Home::empty();
        write_private(&home, &whole[..kept]);
        let refusal = home.refusal();
        assert!(
            matches!(
                refusal,
                Refusal::NotADatabase { .. } | Refusal::Integrity { .. }
            ),
            "{kept} bytes: {refusal:?}"
        );
    }
}

#[test]
fn a_damaged_page_is_refused_unless_nobody_asks() {
    let home = Home::with_store();
    let mut bytes = fs::read(home.path()).unwrap();
    let last_page = bytes.len() - 4_096;
    bytes[last_page..].fill(0x5a);
    write_private(&home, &bytes);
    assert!(matches!(home.refusal(), Refusal::Integrity { .. }));
    let unchecked = Options {
        check_integrity: false,
        ..options()
    };
    Database::open_with(home.path(), &counters_schema(), unchecked).unwrap();
}

/// What is only in the log counts, and neither the log nor the file changes when it leads to a refusal.
#[test]
fn case_015_a_newer_version_in_the_log_is_seen() {
    let home = Home::with_store();
    let other = Connection::open(home.path()).unwrap();
    other.execute_batch("PRAGMA user_version = 2").unwrap();
    let before = without_index(&home);
    let found = refusal(Database::open_with(
        home.path(),
        &counters_schema(),
        options(),
    ));
    assert!(matches!(
        found,
        Refusal::Newer {
            expected: 1,
            actual: 2
        }
    ));
    assert_eq!(before, without_index(&home));

    // The same after the other program died and left its log behind.
    other
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .unwrap();
    drop(other);
    assert_eq!(before, without_index(&home));
    assert!(matches!(home_refusal(&home), Refusal::Newer { .. }));
    assert_eq!(before, without_index(&home));
}

fn home_refusal(home: &Home) -> Refusal {
    refusal(Database::open_with(
        home.path(),
        &counters_schema(),
        options(),
    ))
}

/// The files without the shared memory, which is a cache that every reader of a log writes. Reading the files drops the locks that
/// this process has on them (case 8), which makes it only harder for the code under test to leave them alone.
fn without_index(home: &Home) -> Vec<(String, Vec<u8>)> {
    home.files()
        .into_iter()
        .filter(|(name, _)| !name.ends_with("-shm"))
        .collect()
}

/// A lock of somebody else is no damage.
#[test]
fn case_018_a_locked_store_is_busy_not_corrupt() {
    let home = Home::with_store();
    let other = Connection::open(home.path()).unwrap();
    other
        .execute_batch(
            "PRAGMA locking_mode = EXCLUSIVE; BEGIN IMMEDIATE; DELETE FROM projects; COMMIT",
        )
        .unwrap();
    let result = Database::open_with(home.path(), &counters_schema(), options());
    assert!(
        matches!(result, Err(StateError::Busy { waited_ms: 200 })),
        "{result:?}"
    );
}

pub(super) fn write_private(home: &Home, bytes: &[u8]) {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(home.path())
        .unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    file.write_all(bytes).unwrap();
}
