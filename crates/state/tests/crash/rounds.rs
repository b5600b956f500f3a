//! Kills at random instants.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdpoint_state::testing::counter;

use super::audit::{audit, read_log};
use super::child::{COUNTERS, OWNED, TOTAL, Task, open, start};
use super::random::Random;

/// How many kills one store goes through. Later stores start small again, so that a round stays cheap.
const ROUNDS_PER_STORE: u64 = 20;

/// A store with its counters and a log, in a temporary directory.
pub(crate) struct Home {
    _directory: tempfile::TempDir,
    pub(crate) store: PathBuf,
    pub(crate) log: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let home = Self {
            store: directory.path().join("state.sqlite"),
            log: directory.path().join("log"),
            _directory: directory,
        };
        let db = open(&home.store);
        for name in COUNTERS.into_iter().chain([TOTAL, OWNED]) {
            counter::create(&db, name).unwrap();
        }
        db.close();
        home
    }
}

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number")),
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "the kill comes at a random instant of real time"
)]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

#[expect(clippy::disallowed_methods, reason = "bounds a wait in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Waits until the child has acknowledged something new, or for long.
fn wait_for_a_word(home: &Home, before: usize) {
    let deadline = now() + Duration::from_secs(30);
    while read_log(&home.log).len() <= before {
        assert!(now() < deadline, "the child does nothing");
        wait(Duration::from_millis(1));
    }
}

/// Kills `rounds` children one after the other. Returns how many additions the audits found in all.
fn kill(rounds: u64, seed: u64) -> usize {
    let mut random = Random::new(seed);
    let mut found = 0;
    let mut home = Home::new();
    for round in 0..rounds {
        if round % ROUNDS_PER_STORE == 0 {
            home = Home::new();
        }
        let before = read_log(&home.log).len();
        let child = start(&home.store, &home.log, &Task::Work(random.next()), None);
        // Mostly in the middle of work; sometimes while the store is being opened.
        if random.below(10) != 0 {
            wait_for_a_word(&home, before);
        }
        wait(Duration::from_micros(random.below(30_000)));
        child.kill();
        let log = read_log(&home.log);
        let db = open(&home.store);
        found += audit(&db, &log);
        let report = db.verify().unwrap();
        assert!(report.is_clean(), "round {round}: {:?}", report.findings);
        db.close();
        truncate(&home, &log);
    }
    found
}

/// Cuts off a last line that the kill left unfinished, so that the next child's first line stands alone.
fn truncate(home: &Home, log: &[String]) {
    let length: usize = log.iter().map(|line| line.len() + 1).sum();
    if home.log.exists() {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&home.log)
            .unwrap();
        file.set_len(u64::try_from(length).unwrap()).unwrap();
    }
}

#[test]
fn every_acknowledged_command_survives_a_kill_at_any_instant() {
    let rounds = setting("HOLDPOINT_CRASH_ROUNDS").unwrap_or(300);
    let seed = setting("HOLDPOINT_CRASH_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("HOLDPOINT_CRASH_SEED={seed} HOLDPOINT_CRASH_ROUNDS={rounds}");
    // Two lanes, each with its own stores: while one waits for its child, the other looks.
    let lanes: Vec<_> = [(rounds.div_ceil(2), seed), (rounds / 2, !seed)]
        .into_iter()
        .map(|(rounds, seed)| std::thread::spawn(move || kill(rounds, seed)))
        .collect();
    let mut found = 0;
    for lane in lanes {
        match lane.join() {
            Ok(additions) => found += additions,
            Err(panic) => {
                println!("failed with HOLDPOINT_CRASH_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // A run in which nothing was written would prove nothing.
    assert!(
        usize::try_from(rounds).unwrap() < found,
        "only {found} additions"
    );
}
