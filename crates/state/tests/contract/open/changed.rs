//! Whoever has a store open notices in the next transaction that it is no longer the same.

use std::fs;

use holdpoint_state::testing::counter;
use holdpoint_state::{Actor, Command, Database, Receipt, Refusal, StateError};
use rusqlite::Connection;

use super::{Home, options, refusal};
use crate::children::counters_schema;

fn opened(home: &Home) -> Database {
    Database::open_with(home.path(), &counters_schema(), options()).unwrap()
}

/// Neither a command nor a snapshot is given out; returns why.
fn refused(db: &Database) -> Refusal {
    let found = refusal(counter::add(db, "a", 1));
    let reading = refusal(db.snapshot());
    assert_eq!(found.to_string(), reading.to_string());
    let following = refusal(
        db.follow_events(0)
            .and_then(|mut follower| follower.next_batch(0)),
    );
    assert_eq!(found.to_string(), following.to_string());
    found
}

#[test]
fn case_015_a_version_raised_while_open_ends_writing_and_reading() {
    let home = Home::with_store();
    let db = opened(&home);
    drop(db.snapshot().unwrap());
    home.tamper("PRAGMA user_version = 2");
    assert!(matches!(refused(&db), Refusal::Newer { actual: 2, .. }));
    home.tamper("PRAGMA user_version = 1");
    counter::add(&db, "a", 1).unwrap();
}

#[test]
fn a_changed_schema_is_noticed() {
    let home = Home::with_store();
    let db = opened(&home);
    home.tamper("CREATE TABLE extra (a TEXT) STRICT");
    let Refusal::Shape { differences } = refused(&db) else {
        panic!("accepted");
    };
    assert_eq!(differences, ["table extra is unexpected"]);
    home.tamper("DROP TABLE extra");
    counter::add(&db, "a", 1).unwrap();
    home.tamper("PRAGMA application_id = 77");
    assert!(matches!(refused(&db), Refusal::ApplicationId { .. }));
}

#[test]
fn upkeep_that_keeps_the_shape_is_no_change() {
    let home = Home::with_store();
    let db = opened(&home);
    home.tamper("VACUUM; ANALYZE");
    counter::add(&db, "a", 1).unwrap();
    assert_eq!(
        counter::value(&db.snapshot().unwrap(), "a").unwrap(),
        Some(1)
    );
}

/// SQLite compiles a statement anew when it runs and the schema's number has moved, where the authorizer can't know for whom.
#[test]
fn statements_that_were_prepared_before_upkeep_go_on() {
    let home = Home::with_store();
    let db = opened(&home);
    for round in 1..4 {
        counter::add(&db, "a", 1).unwrap();
        home.tamper("VACUUM; ANALYZE");
        // Whoever reads first sees the change first.
        assert_eq!(
            counter::value(&db.snapshot().unwrap(), "a").unwrap(),
            Some(round)
        );
    }
    counter::add(&db, "a", 1).unwrap();
}

#[test]
fn a_replaced_or_removed_file_is_noticed_and_not_written() {
    let home = Home::with_store();
    let db = opened(&home);
    let mut follower = db.follow_events(0).unwrap();
    while !follower.next_batch(0).unwrap().is_empty() {}
    let other = Home::with_store();
    let content = fs::read(other.path()).unwrap();
    fs::rename(other.path(), home.path()).unwrap();
    assert!(matches!(refused(&db), Refusal::Replaced));
    // Nor does somebody who had read everything wait for ever.
    assert!(matches!(refusal(follower.next_batch(0)), Refusal::Replaced));
    drop(follower);
    db.close();
    assert_eq!(fs::read(home.path()).unwrap(), content);

    let home = Home::with_store();
    let db = opened(&home);
    fs::remove_file(home.path()).unwrap();
    assert!(matches!(refused(&db), Refusal::Replaced));
    assert!(!home.path().exists());
}

/// A command takes the write lock before it reads, so that it waits there instead of failing later, and fails as a whole.
#[test]
fn case_001_a_command_waits_for_the_write_lock_before_it_reads() {
    let home = Home::with_store();
    let db = opened(&home);
    let other = Connection::open(home.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let command = Command::new(&counter::ADD, counter::resource("a")).by(Actor::system());
    let blocked: Result<Receipt<i64>, _> = db.commit(command, |_| {
        unreachable!("the body ran without the write lock");
    });
    assert!(
        matches!(blocked, Err(StateError::Busy { .. })),
        "{blocked:?}"
    );
    // Readers are not blocked, and see nothing of it.
    assert_eq!(
        counter::value(&db.snapshot().unwrap(), "a").unwrap(),
        Some(0)
    );
    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(counter::add(&db, "a", 1).unwrap().value, 1);
}

/// Every connection waits as long as the settings say, readers too.
#[test]
fn case_003_readers_have_the_settings_of_the_writer() {
    let home = Home::with_store();
    let db = opened(&home);
    let snapshot = db.snapshot().unwrap();
    let read = |sql| -> String {
        let value: rusqlite::types::Value = snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap();
        format!("{value:?}")
    };
    assert_eq!(read("SELECT * FROM pragma_busy_timeout"), "Integer(200)");
    assert_eq!(read("SELECT * FROM pragma_foreign_keys"), "Integer(1)");
    assert_eq!(read("SELECT * FROM pragma_synchronous"), "Integer(2)");
    assert_eq!(read("SELECT * FROM pragma_journal_mode"), "Text(\"wal\")");
    assert_eq!(read("SELECT * FROM pragma_query_only"), "Integer(1)");
    assert_eq!(read("SELECT * FROM pragma_trusted_schema"), "Integer(0)");
}

/// A store that somebody took out of write-ahead mode is put back when it is opened.
#[test]
fn the_journal_mode_is_restored() {
    let home = Home::with_store();
    home.tamper("PRAGMA journal_mode = DELETE");
    let db = opened(&home);
    counter::add(&db, "a", 1).unwrap();
    db.close();
    let connection = Connection::open(home.path()).unwrap();
    let mode: String = connection
        .pragma_query_value(None, "journal_mode", |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "wal");
}
