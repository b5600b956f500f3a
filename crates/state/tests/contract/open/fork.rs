//! After a fork, the child's copy of a handle refuses to work, and its end touches nothing of the parent's.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fork::{Fork, fork, waitpid};
use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Snapshot, StateError};

use super::Home;
use super::race::{Crew, work};
use crate::children::counters_schema;

#[test]
fn case_010_a_forked_handle_refuses_and_touches_nothing() {
    let home = Home::with_store();
    // In a process of its own: a fork copies only the thread that asks for it.
    let mut crew = Crew::start("open::fork::child_that_forks", 1, None);
    crew.round(&home.path());
    crew.end();
}

#[test]
fn child_that_forks() {
    work(|path, _| {
        let db = Database::open(path, &counters_schema()).unwrap();
        counter::add(&db, "a", 1).unwrap();
        let snapshot = db.snapshot().unwrap();
        drop(db.snapshot().unwrap());
        let before = stats(path);
        match fork().unwrap() {
            Fork::Child => {
                let failed = in_forked_child(path, &db, &snapshot);
                drop(snapshot);
                drop(db);
                // No unwinding and no harness: the status tells the parent which check failed.
                std::process::exit(failed);
            }
            Fork::Parent(child) => {
                let status = waitpid(child).unwrap();
                assert_eq!(status, 0, "check {} failed in the child", status >> 8);
            }
        }
        assert!(before == stats(path), "the child touched a file");
        drop(snapshot);
        assert_eq!(counter::add(&db, "a", 1).unwrap().value, 2);
        // Still locked: what another process does to a store that nobody holds, it can't do to this one.
        let mut crew = Crew::start("open::race::child_that_takes_the_log", 1, None);
        crew.round(path);
        crew.end();
        db.close();
    });
}

/// Every file beside the store, by `stat`: reading them here would itself drop the locks.
fn stats(path: &Path) -> BTreeMap<PathBuf, (u64, u64, i64, i64)> {
    std::fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let found = entry.metadata().unwrap();
            let facts = (found.ino(), found.size(), found.mtime(), found.mtime_nsec());
            (entry.path(), facts)
        })
        .collect()
}

/// The number of the first check that fails, or 0.
fn in_forked_child(path: &Path, db: &Database, snapshot: &Snapshot<'_>) -> i32 {
    let forked = |result: Result<(), StateError>| matches!(result, Err(StateError::Forked { .. }));
    let checks = [
        forked(counter::add(db, "a", 1).map(|_| ())),
        forked(db.snapshot().map(|_| ())),
        forked(snapshot.sql().prepare_cached("SELECT 1").map(|_| ())),
        forked(Database::open(path, &counters_schema()).map(|_| ())),
    ];
    db.clone().close();
    checks
        .iter()
        .position(|passed| !passed)
        .map_or(0, |index| i32::try_from(index).unwrap_or(0) + 1)
}
