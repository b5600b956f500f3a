//! Four processes that write as fast as they can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdpoint_state::StateError;
use holdpoint_state::testing::counter;

use super::child::{Child, Home, listen, millis, now, open, say, task};

const BUSY_TIMEOUT_MS: u64 = 5_000;

/// Adds until the parent says stop: to the counter of all, and to its own. Says how often, how often it was busy, and the longest wait.
#[test]
fn child_adds() {
    let Some((store, own)) = task() else { return };
    let db = open(&store, BUSY_TIMEOUT_MS);
    say("ready");
    listen();
    let stop = Arc::new(AtomicBool::new(false));
    let ear = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            listen();
            stop.store(true, Ordering::SeqCst);
        }
    });
    let (mut done, mut busy, mut longest) = (0_u64, 0_u64, Duration::ZERO);
    while !stop.load(Ordering::SeqCst) {
        for name in ["sum", own.as_str()] {
            let started = now();
            match counter::add(&db, name, 1) {
                Ok(_) => done += 1,
                Err(StateError::Busy { waited_ms }) => {
                    assert!(BUSY_TIMEOUT_MS <= waited_ms);
                    busy += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
            longest = longest.max(started.elapsed());
        }
    }
    ear.join().unwrap();
    say(&format!("{done} {busy} {}", millis(longest)));
}

#[test]
fn four_processes_lose_no_update_and_starve_nobody() {
    let names = ["p0", "p1", "p2", "p3"];
    let home = Home::new(&["sum", "p0", "p1", "p2", "p3"]);
    let mut children: Vec<Child> = names
        .iter()
        .map(|name| Child::start("writers::child_adds", &home.store, name))
        .collect();
    for child in &mut children {
        assert_eq!(child.hear(), "ready");
    }
    for child in &mut children {
        child.tell("go");
    }
    work_for(&home, 400);
    for child in &mut children {
        child.tell("stop");
    }
    let results: Vec<Vec<u64>> = children
        .iter_mut()
        .map(|child| {
            let words = child.hear();
            words.split(' ').map(|word| word.parse().unwrap()).collect()
        })
        .collect();
    for child in children {
        child.finish();
    }
    let done: u64 = results.iter().map(|result| result[0]).sum();

    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let value = |name: &str| {
        let value = counter::value(&db.snapshot().unwrap(), name).unwrap();
        u64::try_from(value.unwrap()).unwrap()
    };
    // No lost update: what was acknowledged is what is there, in sum and for each.
    let own: u64 = names.iter().map(|name| value(name)).sum();
    assert_eq!(value("sum") + own, done, "{results:?}");
    for (name, result) in names.iter().zip(&results) {
        assert!(value(name) <= result[0] && result[0] <= 2 * value(name) + 1);
        // Nobody had to wait for so long that it gave up.
        assert_eq!(result[1], 0, "{results:?}");
        assert!(result[2] < BUSY_TIMEOUT_MS, "{results:?}");
    }
    // Nobody starved. A fair turnstile gives nearly equal shares; a slow machine gets room.
    let slowest = results.iter().map(|result| result[0]).min().unwrap();
    let fastest = results.iter().map(|result| result[0]).max().unwrap();
    assert!(fastest <= 3 * slowest, "{results:?}");
    assert!(db.verify().unwrap().is_clean());
}

/// Waits until the processes have done this much together.
fn work_for(home: &Home, additions: i64) {
    let db = open(&home.store, BUSY_TIMEOUT_MS);
    let mut follower = db.follow_events(0).unwrap();
    let deadline = now() + Duration::from_mins(1);
    let mut seen = 0;
    while seen < additions {
        assert!(now() < deadline, "the processes stand still");
        let events = follower.next_batch(200).unwrap();
        seen += i64::try_from(events.len()).unwrap();
    }
}
