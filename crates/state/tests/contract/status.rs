//! Status and doctor say what stands open and what is wrong, without secrets.

use holdpoint_state::maintenance::{DoctorReport, Level};
use holdpoint_state::testing::{START, TestStore, counter};
use holdpoint_state::{Actor, Database, Owner, OwnerKind};

use crate::children::{self, Child};
use crate::verify::names;

fn level(report: &DoctorReport, name: &str) -> Level {
    report
        .checks
        .iter()
        .find(|check| check.name == name)
        .unwrap()
        .level
}

#[test]
fn a_status_has_camel_case_names_and_no_private_ids() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let owner = Owner::new(OwnerKind::Host, "secret-owner");
    let _claim = store
        .db()
        .claim(
            counter::resource("a"),
            Actor::host("secret-actor"),
            &owner,
            5_000,
        )
        .unwrap();
    let status = store.db().status().unwrap();
    assert_eq!(status.sizes.wal_bytes % 8, 0);
    assert!(0 < status.sizes.database_bytes && 0 < status.pages.count);
    assert!(status.write_ahead_log.checkpointed_frames <= status.write_ahead_log.frames);
    assert!(0 < status.write_ahead_log.frames);
    let mut json = serde_json::to_value(&status).unwrap();
    assert!(!json.to_string().contains("secret"), "{json}");
    // What differs from machine to machine.
    for pointer in [
        "/path",
        "/engine",
        "/fileSystem",
        "/sizes",
        "/pages",
        "/writeAheadLog",
        "/schema/digest",
    ] {
        *json.pointer_mut(pointer).unwrap() = "…".into();
    }
    insta::assert_json_snapshot!(json);
}

#[test]
fn an_expired_lease_is_not_active() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let owner = Owner::new(OwnerKind::Host, "host");
    let _claim = store
        .db()
        .claim(counter::resource("a"), Actor::host("host"), &owner, 5_000)
        .unwrap();
    store.clock().advance(5_000);
    let report = store.db().doctor().unwrap();
    assert_eq!(
        (report.status.leases.active, report.status.leases.expired),
        (0, 1)
    );
    assert_eq!(level(&report, "leases"), Level::Notice);
}

#[test]
fn the_oldest_snapshot_of_this_process_is_known() {
    let store = TestStore::counters().unwrap();
    assert_eq!(store.db().status().unwrap().readers.oldest_age_ms, None);
    let snapshot = store.db().snapshot().unwrap();
    store.clock().advance(61_000);
    let younger = store.db().snapshot().unwrap();
    let report = store.db().doctor().unwrap();
    assert_eq!(report.status.readers.open_snapshots, 2);
    assert_eq!(report.status.readers.oldest_age_ms, Some(61_000));
    assert_eq!(level(&report, "writeAheadLog"), Level::Notice);
    drop((snapshot, younger));
    assert_eq!(store.db().status().unwrap().readers.open_snapshots, 0);
}

#[test]
fn the_doctor_sees_modes_clock_old_state_and_broken_rules() {
    use std::os::unix::fs::PermissionsExt as _;
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let healthy = store.db().doctor().unwrap();
    for check in healthy
        .checks
        .iter()
        .filter(|check| check.name != "fileSystem")
    {
        assert_eq!(check.level, Level::Fine, "{check:?}");
    }

    let mode = |mode| std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(store.directory(), mode(0o755)).unwrap();
    std::fs::create_dir(store.directory().join("queue")).unwrap();
    std::fs::hard_link(store.path(), store.directory().join("second")).unwrap();
    store.clock().set_wall(START - 3_600_000);
    let report = store.db().doctor().unwrap();
    assert_eq!(report.worst(), Level::Problem);
    assert_eq!(level(&report, "modes"), Level::Problem);
    assert_eq!(level(&report, "hardLinks"), Level::Problem);
    assert_eq!(level(&report, "clock"), Level::Problem);
    assert_eq!(level(&report, "oldState"), Level::Notice);

    std::fs::remove_file(store.directory().join("second")).unwrap();
    rusqlite::Connection::open(store.path())
        .unwrap()
        .execute("UPDATE counters SET value = 100000", [])
        .unwrap();
    let report = store.db().doctor().unwrap();
    assert_eq!(level(&report, "rules"), Level::Problem);
    assert_eq!(report.status.findings[0].ids, ["a"]);
}

/// A process of its own can't take the store alone, so that this process still holds its locks.
fn assert_locked(store: &TestStore) {
    Child::start("status::child_finds_the_store_locked", &store.path(), "").finish();
}

#[test]
fn case_008_no_maintenance_drops_the_locks_of_this_process() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    assert_locked(&store);
    store.db().verify().unwrap();
    store.db().status().unwrap();
    store.db().doctor().unwrap();
    store
        .db()
        .backup(store.directory().join("copy.sqlite"))
        .unwrap();
    let refused = holdpoint_state::maintenance::verify_file(store.path(), store.schema());
    assert!(refused.is_err());
    let refused = holdpoint_state::maintenance::restore(
        store.directory().join("copy.sqlite"),
        store.path(),
        store.schema(),
    );
    assert!(refused.is_err());
    assert_locked(&store);
}

#[test]
fn child_finds_the_store_locked() {
    let Some((path, _)) = children::task() else {
        return;
    };
    let other = rusqlite::Connection::open(path).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    let error = other
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE")
        .unwrap_err();
    assert_eq!(
        error.sqlite_error_code(),
        Some(rusqlite::ErrorCode::DatabaseBusy)
    );
}

#[test]
fn a_refused_file_gets_no_lock_file_beside_it() {
    let store = TestStore::counters().unwrap();
    let home = store.directory().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let path = home.join("notes.txt");
    std::fs::write(&path, "not a database").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    Database::open(&path, store.schema()).unwrap_err();
    assert_eq!(names(&home), ["notes.txt"]);
}
