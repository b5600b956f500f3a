//! A process that stands still while it holds the turn: the others wait for a bounded time, and recover.

use std::time::Duration;

use holdpoint_state::testing::counter;
use holdpoint_state::{Command, Database, Outcome, StateError};
use rustix::process::Signal;

use super::child::{Child, Home, listen, millis, now, open, say, task};

const BUSY_TIMEOUT_MS: u64 = 400;

/// Holds a transaction open in the body of a command until the parent speaks.
#[test]
fn child_holds() {
    let Some((store, _)) = task() else { return };
    let db = open(&store, 5_000);
    let command = Command::new(&counter::ADD, counter::resource("a"));
    let receipt = db.commit(command, |change| {
        let value = counter::increase(change, 100)?;
        say("holding");
        listen();
        Ok::<_, StateError>(Outcome::Accepted(value))
    });
    say(&format!("{}", receipt.unwrap().value));
}

/// Several commands that wait at once: each of them is told within the time-out, not one after the other.
fn all_are_busy(db: &Database) {
    let started = now();
    let tickets: Vec<_> = (0..16)
        .map(|_| {
            db.submit(
                Command::new(&counter::ADD, counter::resource("a")),
                |change| Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?)),
            )
            .unwrap()
        })
        .collect();
    for ticket in tickets {
        match ticket.wait() {
            Err(error @ StateError::Busy { waited_ms }) => {
                assert!(error.is_retryable());
                assert!(BUSY_TIMEOUT_MS <= waited_ms, "{waited_ms}");
            }
            other => panic!("{other:?}"),
        }
    }
    let waited = millis(started.elapsed());
    assert!(BUSY_TIMEOUT_MS <= waited, "{waited} ms");
    // Waits one after the other would be sixteen times as long; a loaded machine gets half of that.
    assert!(waited < 8 * BUSY_TIMEOUT_MS, "{waited} ms");
}

fn value(db: &Database) -> i64 {
    let value = counter::value(&db.snapshot().unwrap(), "a").unwrap();
    value.unwrap()
}

/// Writes as soon as the other one has gone on or died, whose locks come back a moment later.
fn recovers(db: &Database) {
    let deadline = now() + Duration::from_secs(20);
    loop {
        match counter::add(db, "a", 1) {
            Ok(_) => return,
            Err(StateError::Busy { .. }) => assert!(now() < deadline, "still busy"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_stopped_process_that_goes_on_finishes_its_command() {
    let home = Home::new(&["a"]);
    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let mut child = Child::start("still::child_holds", &home.store, "");
    assert_eq!(child.hear(), "holding");
    child.signal(Signal::STOP);
    all_are_busy(&db);
    // Readers are not blocked.
    assert_eq!(value(&db), 0);
    // A second time: the wait that was given up is taken up again.
    all_are_busy(&db);
    child.signal(Signal::CONT);
    child.tell("go");
    assert_eq!(child.hear(), "100");
    child.finish();
    recovers(&db);
    assert_eq!(value(&db), 101);
}

#[test]
fn a_stopped_process_that_is_killed_leaves_nothing() {
    let home = Home::new(&["a"]);
    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let mut child = Child::start("still::child_holds", &home.store, "");
    assert_eq!(child.hear(), "holding");
    child.signal(Signal::STOP);
    all_are_busy(&db);
    child.kill();
    recovers(&db);
    assert_eq!(value(&db), 1);
    assert!(db.verify().unwrap().is_clean());
}

/// A program that knows nothing of the turnstile holds SQLite's own lock.
#[test]
fn child_holds_the_file() {
    let Some((store, _)) = task() else { return };
    let connection = rusqlite::Connection::open(store).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    say("holding");
    listen();
    connection.execute_batch("ROLLBACK").unwrap();
}

#[test]
fn case_001_a_foreign_writer_makes_commands_busy_as_a_whole() {
    let home = Home::new(&["a"]);
    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let mut child = Child::start("still::child_holds_the_file", &home.store, "");
    assert_eq!(child.hear(), "holding");
    all_are_busy(&db);
    child.tell("go");
    child.finish();
    recovers(&db);
    assert_eq!(value(&db), 1);
}

/// A process that stands still in the queue, not at work, does not hold up those before it.
#[test]
fn waiting_is_not_charged_to_later_commands() {
    let home = Home::new(&["a"]);
    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let mut child = Child::start("still::child_holds", &home.store, "");
    assert_eq!(child.hear(), "holding");
    all_are_busy(&db);
    // A command that comes now has the whole time-out: it is there when the other one goes on.
    let ticket = db
        .submit(
            Command::new(&counter::ADD, counter::resource("a")),
            |change| Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?)),
        )
        .unwrap();
    child.tell("go");
    assert_eq!(child.hear(), "100");
    assert_eq!(ticket.wait().unwrap().value, 101);
    child.finish();
}
