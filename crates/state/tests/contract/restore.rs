//! A restore replaces a store only when nobody has it open, and the old one stays, whole, beside it.

use std::path::{Path, PathBuf};

use holdpoint_state::maintenance::restore;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Database, Identity, Refusal, Schema, StateError};
use rusqlite::Connection;

use crate::children::{self, Child};
use crate::verify::names;

/// A store whose counter `a` is at 1 in the backup and at 2 in the store, closed.
fn store_and_backup() -> (TestStore, PathBuf) {
    let mut store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    counter::add(store.db(), "a", 1).unwrap();
    let backup = store.directory().join("backup.sqlite");
    store.db().backup(&backup).unwrap();
    counter::add(store.db(), "a", 1).unwrap();
    store.close();
    (store, backup)
}

fn value(db: &Database) -> i64 {
    counter::value(&db.snapshot().unwrap(), "a")
        .unwrap()
        .unwrap()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[test]
fn a_backup_becomes_a_store_in_another_home() {
    use std::os::unix::fs::PermissionsExt as _;
    let (store, backup) = store_and_backup();
    let target = store.directory().join("home/deep/state.sqlite");
    let report = restore(&backup, &target, store.schema()).unwrap();
    assert_eq!(report.set_aside, None);
    for (path, mode) in [(target.as_path(), 0o600), (target.parent().unwrap(), 0o700)] {
        let metadata = std::fs::metadata(path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
    }
    let db = Database::open(&target, store.schema()).unwrap();
    assert_eq!(value(&db), 1);
    counter::add(&db, "a", 5).unwrap();
    assert!(db.verify().unwrap().is_clean());
}

#[test]
fn the_old_store_is_kept_aside() {
    let (store, backup) = store_and_backup();
    let report = restore(&backup, store.path(), store.schema()).unwrap();
    let aside = report.set_aside.unwrap();
    assert_eq!(value(&store.open().unwrap()), 1);
    assert_eq!(value(&Database::open(&aside, store.schema()).unwrap()), 2);
    assert!(backup.exists());
}

#[test]
fn case_108_an_open_store_is_not_replaced() {
    let (store, backup) = store_and_backup();
    let refused = || {
        let result = restore(&backup, store.path(), store.schema());
        assert!(
            matches!(result, Err(StateError::InUse { .. })),
            "{result:?}"
        );
    };
    let db = store.open().unwrap();
    refused();
    assert_eq!(value(&db), 2);
    db.close();

    let mut child = Child::start("restore::child_holds_open", &store.path(), "");
    child.wait_for("open");
    refused();
    child.release();
    child.finish();

    let other_program = Connection::open(store.path()).unwrap();
    let _: i64 = other_program
        .query_row("SELECT count(*) FROM counters", [], |row| row.get(0))
        .unwrap();
    refused();
    other_program.close().unwrap();

    assert_eq!(value(&store.open().unwrap()), 2);
    restore(&backup, store.path(), store.schema()).unwrap();
    assert_eq!(value(&store.open().unwrap()), 1);
}

#[test]
fn case_108_a_damaged_store_is_not_replaced_under_its_handle() {
    let (store, backup) = store_and_backup();
    let db = store.open().unwrap();
    // SQLite can't say any more who has such a file open. Another process does the damage: to close the file here would drop locks.
    let damaged = std::process::Command::new("dd")
        .args(["if=/dev/zero", "bs=64", "count=1", "conv=notrunc"])
        .arg(format!("of={}", store.path().display()))
        .output()
        .unwrap();
    assert!(damaged.status.success());
    let result = restore(&backup, store.path(), store.schema());
    assert!(
        matches!(result, Err(StateError::InUse { .. })),
        "{result:?}"
    );
    db.close();
    restore(&backup, store.path(), store.schema()).unwrap();
    assert_eq!(value(&store.open().unwrap()), 1);
}

#[test]
fn child_holds_open() {
    let Some((path, _)) = children::task() else {
        return;
    };
    let db = Database::open(path, &children::counters_schema()).unwrap();
    counter::add(&db, "a", 0).unwrap();
    children::wait_for_parent("open");
}

#[test]
fn case_108_an_old_log_is_not_replayed_into_the_restored_store() {
    let (store, backup) = store_and_backup();
    let mut child = Child::start("restore::child_writes_and_waits", &store.path(), "");
    child.wait_for("written");
    child.kill();
    assert!(beside(&store.path(), "-wal").exists());
    let report = restore(&backup, store.path(), store.schema()).unwrap();
    assert!(!beside(&store.path(), "-wal").exists());
    let aside = report.set_aside.unwrap();
    assert!(beside(&aside, "-wal").exists());
    assert_eq!(value(&store.open().unwrap()), 1);
    // What the killed process had acknowledged is in the old store's own log.
    assert_eq!(value(&Database::open(&aside, store.schema()).unwrap()), 102);
}

#[test]
fn child_writes_and_waits() {
    let Some((path, _)) = children::task() else {
        return;
    };
    let db = Database::open(path, &children::counters_schema()).unwrap();
    counter::add(&db, "a", 100).unwrap();
    children::wait_for_parent("written");
}

/// Between which two steps of a restore the machine stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    NothingMoved,
    DatabaseMoved,
    AllMoved,
    CopyNamed,
}

#[test]
fn case_108_a_restore_that_stopped_anywhere_is_finished_by_the_next() {
    for stopped in [
        Stopped::NothingMoved,
        Stopped::DatabaseMoved,
        Stopped::AllMoved,
        Stopped::CopyNamed,
    ] {
        let (store, backup) = store_and_backup();
        let mut child = Child::start("restore::child_writes_and_waits", &store.path(), "");
        child.wait_for("written");
        child.kill();
        let path = store.path();
        let mut aside = beside(&path, ".replaced-1");
        std::fs::write(beside(&path, ".restore-pending"), ".replaced-1").unwrap();
        let move_aside = |suffix: &str| {
            std::fs::rename(beside(&path, suffix), beside(&aside, suffix)).unwrap();
        };
        if stopped != Stopped::NothingMoved {
            move_aside("");
        }
        if matches!(stopped, Stopped::AllMoved | Stopped::CopyNamed) {
            move_aside("-wal");
            move_aside("-shm");
        }
        if stopped == Stopped::CopyNamed {
            std::fs::copy(&backup, &path).unwrap();
        }
        let refused = store.open();
        assert!(
            matches!(&refused, Err(StateError::Refused { refusal, .. })
                if matches!(**refusal, Refusal::RestoreUnfinished)),
            "{stopped:?}: {refused:?}"
        );

        let report = restore(&backup, &path, store.schema()).unwrap();
        assert_eq!(value(&store.open().unwrap()), 1, "{stopped:?}");
        if stopped == Stopped::NothingMoved {
            aside = report.set_aside.unwrap();
        }
        let old = Database::open(&aside, store.schema()).unwrap();
        assert_eq!(value(&old), 102, "{stopped:?}");
        assert!(!beside(&path, ".restore-pending").exists());
    }
}

#[test]
fn an_unsound_or_foreign_backup_changes_nothing() {
    let (store, backup) = store_and_backup();
    let connection = Connection::open(&backup).unwrap();
    connection
        .execute_batch("DELETE FROM events WHERE event_seq = 1")
        .unwrap();
    connection.close().unwrap();
    let before = std::fs::read(store.path()).unwrap();
    let listed = names(store.directory());
    let refused = restore(&backup, store.path(), store.schema());
    assert!(
        matches!(refused, Err(StateError::Corrupt { .. })),
        "{refused:?}"
    );

    let plain = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN]).unwrap();
    let refused = restore(&backup, store.path(), &plain);
    assert!(
        matches!(refused, Err(StateError::Refused { .. })),
        "{refused:?}"
    );

    let refused = restore(store.path(), store.path(), store.schema());
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(store.path()).unwrap(), before);
    assert_eq!(names(store.directory()), listed);
}

#[test]
fn a_store_that_is_no_database_any_more_can_be_restored() {
    let (store, backup) = store_and_backup();
    std::fs::write(store.path(), vec![7; 8192]).unwrap();
    let report = restore(&backup, store.path(), store.schema()).unwrap();
    assert_eq!(value(&store.open().unwrap()), 1);
    assert_eq!(
        std::fs::read(report.set_aside.unwrap()).unwrap(),
        vec![7; 8192]
    );
}

#[test]
fn a_store_is_not_restored_from_itself() {
    let (store, backup) = store_and_backup();
    let before = (std::fs::read(&backup).unwrap(), names(store.directory()));
    let refused = restore(&backup, &backup, store.schema());
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );
    let after = (std::fs::read(&backup).unwrap(), names(store.directory()));
    assert!(before == after);
}
