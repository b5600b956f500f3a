//! A backup is whole or absent: everything acknowledged before it began, one file, verified, private.

use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use holdpoint_state::maintenance::verify_file;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Database, StateError};
use rusqlite::Connection;

use crate::children::{self, Child};
use crate::verify::names;

fn value(path: &std::path::Path, name: &str) -> i64 {
    let connection = Connection::open(path).unwrap();
    connection
        .query_row(
            "SELECT c.value FROM counters c JOIN resources r USING (resource_key) WHERE r.aggregate_key = ?1",
            [name],
            |row| row.get(0),
        )
        .unwrap()
}

#[test]
fn case_105_a_backup_under_load_holds_every_acknowledged_write() {
    let store = TestStore::counters().unwrap();
    let acknowledged: Vec<_> = (0..2).map(|_| AtomicI64::new(0)).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (index, acknowledged) in acknowledged.iter().enumerate() {
            let (store, stop) = (&store, &stop);
            scope.spawn(move || {
                let name = format!("writer-{index}");
                counter::create(store.db(), &name).unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let value = counter::add(store.db(), &name, 1).unwrap().value;
                    acknowledged.store(value, Ordering::SeqCst);
                }
            });
        }
        for round in 0..5 {
            // At least one write lies before each backup.
            while acknowledged
                .iter()
                .any(|written| written.load(Ordering::SeqCst) <= round)
            {
                std::thread::yield_now();
            }
            let before: Vec<_> = acknowledged
                .iter()
                .map(|written| written.load(Ordering::SeqCst))
                .collect();
            let target = store.directory().join(format!("backup-{round}.sqlite"));
            let report = store.db().backup(&target).unwrap();
            assert!(report.verified.is_clean());
            for (index, before) in before.into_iter().enumerate() {
                let copied = value(&target, &format!("writer-{index}"));
                assert!(before <= copied, "{copied} instead of at least {before}");
            }
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_backup_is_one_private_file_that_verifies() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let home = store.directory().join("backups");
    std::fs::create_dir(&home).unwrap();
    let target = home.join("odd name %20?.sqlite");
    let report = store.db().backup(&target).unwrap();
    assert_eq!(names(&home), ["odd name %20?.sqlite"]);
    let metadata = std::fs::metadata(&target).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), report.size_bytes);
    // Bytes 18 and 19 of the header say whether the file has a write-ahead log.
    assert_eq!(std::fs::read(&target).unwrap()[18..20], [1, 1]);
    assert!(verify_file(&target, store.schema()).unwrap().is_clean());
    assert_eq!(names(&home), ["odd name %20?.sqlite"]);
}

#[test]
fn case_110_an_existing_backup_is_never_replaced() {
    let store = TestStore::counters().unwrap();
    let target = store.directory().join("backup.sqlite");
    store.db().backup(&target).unwrap();
    let before = std::fs::read(&target).unwrap();
    counter::create(store.db(), "a").unwrap();
    let refused = store.db().backup(&target);
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(&target).unwrap(), before);
}

#[test]
fn case_110_a_killed_backup_leaves_no_backup_and_is_swept() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let home = store.directory().join("backups");
    std::fs::create_dir(&home).unwrap();
    let mut child = Child::start(
        "backup::child_stops_half_way",
        &store.path(),
        home.to_str().unwrap(),
    );
    child.wait_for("half-way");
    let target = home.join("backup.sqlite");
    let busy = store.db().backup(&target);
    assert!(matches!(busy, Err(StateError::InUse { .. })), "{busy:?}");
    child.kill();
    assert!(!target.exists());
    let left = names(&home);
    assert!(
        left.iter().any(|name| name.ends_with(".partial")),
        "{left:?}"
    );
    store.db().backup(&target).unwrap();
    assert_eq!(names(&home), ["backup.sqlite"]);
}

#[test]
fn child_stops_half_way() {
    let Some((path, home)) = children::task() else {
        return;
    };
    let db = Database::open(path, &children::counters_schema()).unwrap();
    let target = std::path::Path::new(&home).join("backup.sqlite");
    let result = db.backup_with(target, |_| {
        children::wait_for_parent("half-way");
        ControlFlow::Continue(())
    });
    drop(result);
}

#[test]
fn case_111_writers_go_on_during_a_backup_and_it_ends_cleanly_when_asked() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let target = store.directory().join("backup.sqlite");
    let mut seen = 0;
    store
        .db()
        .backup_with(&target, |progress| {
            assert_eq!(progress.copied_pages, progress.pages);
            counter::add(store.db(), "a", 1).unwrap();
            seen += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(0 < seen);
    assert_eq!(value(&target, "a"), 0);

    let listed = names(store.directory());
    let stopped = store
        .db()
        .backup_with(store.directory().join("other.sqlite"), |_| {
            ControlFlow::Break(())
        });
    assert!(matches!(stopped, Err(StateError::Io { .. })), "{stopped:?}");
    assert_eq!(names(store.directory()), listed);
}

#[test]
fn an_unsound_store_gives_no_backup() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    // Breaks the rule of the counter's domain; no check of SQLite's own sees it.
    counter::add(store.db(), "a", 1_000).unwrap();
    let before = names(store.directory());
    let refused = store.db().backup(store.directory().join("backup.sqlite"));
    assert!(
        matches!(refused, Err(StateError::Corrupt { .. })),
        "{refused:?}"
    );
    assert_eq!(names(store.directory()), before);
}
