//! Each crash point, deterministically: what was said is there, and the command that was on its way is whole or absent.

use std::os::unix::process::ExitStatusExt as _;

use holdpoint_state::testing::counter;
use holdpoint_state::testing::crash::Point;

use super::audit::{audit, read_log};
use super::child::{Task, open, start};
use super::rounds::Home;

/// Runs one command and a batch of three; the child ends at `point`. Returns the log and the value of the counter.
fn crash_at(point: &str) -> (Vec<String>, i64) {
    let home = Home::new();
    let status = start(&home.store, &home.log, &Task::Batch(3), Some(point)).wait();
    assert_eq!(status.signal(), Some(9), "{point}: {status:?}");
    let log = read_log(&home.log);
    let db = open(&home.store);
    audit(&db, &log);
    assert!(db.verify().unwrap().is_clean(), "{point}");
    let value = counter::value(&db.snapshot().unwrap(), "c0").unwrap();
    // The store goes on.
    counter::add(&db, "c0", 1).unwrap();
    (log, value.unwrap())
}

#[test]
fn before_the_transaction_nothing_is_there() {
    let (log, value) = crash_at(Point::BeforeBegin.as_str());
    assert_eq!((log.len(), value), (0, 0));
    let (log, value) = crash_at("beforeBegin:2");
    assert_eq!((log.len(), value), (1, 1));
}

#[test]
fn inside_the_transaction_nothing_of_it_is_there() {
    let (log, value) = crash_at(Point::AfterCommand.as_str());
    assert_eq!((log.len(), value), (0, 0));
    // The first command, the one that holds the batch together, and each of the batch.
    for count in 2..=5 {
        let (log, value) = crash_at(&format!("afterCommand:{count}"));
        assert_eq!((log.len(), value), (1, 1), "{count}");
    }
}

#[test]
fn before_the_commit_nothing_of_it_is_there() {
    let (log, value) = crash_at(Point::BeforeCommit.as_str());
    assert_eq!((log.len(), value), (0, 0));
    let (log, value) = crash_at("beforeCommit:2");
    assert_eq!((log.len(), value), (1, 1));
}

#[test]
fn after_the_commit_everything_is_there_though_nobody_was_told() {
    let (log, value) = crash_at(Point::AfterCommit.as_str());
    assert_eq!((log.len(), value), (0, 1));
    let (log, value) = crash_at("afterCommit:2");
    assert_eq!((log.len(), value), (1, 4));
}

#[test]
fn without_a_crash_the_child_says_everything() {
    let home = Home::new();
    let status = start(&home.store, &home.log, &Task::Batch(3), None).wait();
    assert!(status.success());
    let log = read_log(&home.log);
    assert_eq!(log.last().map(String::as_str), Some("end"));
    assert_eq!(log.len(), 5);
    audit(&open(&home.store), &log);
}
