//! The turnstile between processes: a command takes its two locks, one behind the other, before it asks SQLite for its own.

use std::fs::File;

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Database, Options, StateError};

/// What a command may wait here. It always waits so long, because nobody lets go before.
const TIMEOUT_MS: u64 = 100;

#[test]
fn a_command_waits_behind_whoever_waits_and_whoever_works() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    for lock in ["queue-lock", "work-lock"] {
        let options = Options {
            busy_timeout_ms: TIMEOUT_MS,
            ..store.options()
        };
        let db = Database::open_with(store.path(), store.schema(), options).unwrap();
        let path = format!("{}.{lock}", store.path().display());
        let file = File::options().read(true).write(true).open(path).unwrap();
        file.lock().unwrap();
        // SQLite's own lock is free: without the turnstile the command would run.
        let result = counter::add(&db, "a", 1);
        assert!(
            matches!(result, Err(StateError::Busy { .. })),
            "{lock}: {result:?}"
        );
        file.unlock().unwrap();
        // What was given up holds up nobody.
        counter::add(store.db(), "a", 1).unwrap();
    }
    let snapshot = store.db().snapshot().unwrap();
    assert_eq!(counter::value(&snapshot, "a").unwrap(), Some(2));
}
