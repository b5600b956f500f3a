//! The process that will be killed: threads that add, reserve follow-ups, claim, renew, act and release, and a log of what they were
//! told.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::Arc;

use holdpoint_state::testing::{counter, crash};
use holdpoint_state::{
    Actor, Change, Claim, Command, Database, EffectStart, Identity, NewEffect, Options, Outcome,
    Owner, OwnerKind, OwnerScope, Payload, Schema, Settlement, StateError,
};
use serde_json::json;

use super::random::Random;

const STORE: &str = "HOLDPOINT_CRASH_CHILD_STORE";
const LOG: &str = "HOLDPOINT_CRASH_CHILD_LOG";
const TASK: &str = "HOLDPOINT_CRASH_CHILD_TASK";

/// The counters that the threads add to.
pub(crate) const COUNTERS: [&str; 3] = ["c0", "c1", "c2"];
/// The counter that is added to inside commands on others.
pub(crate) const TOTAL: &str = "total";
/// The counter that needs its lease.
pub(crate) const OWNED: &str = "owned";

pub(crate) fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN],
    )
    .unwrap()
}

pub(crate) fn open(path: &Path) -> Database {
    let options = Options {
        // The audit runs the whole verification.
        check_integrity: false,
        ..Options::default()
    };
    Database::open_with(path, &schema(), options).unwrap()
}

/// What the child is to do.
pub(crate) enum Task {
    /// Everything, until it is killed.
    Work(u64),
    /// One command, then `count` more in one transaction.
    Batch(u64),
}

/// Starts the child: this test binary again, with one test.
pub(crate) fn start(store: &Path, log: &Path, task: &Task, point: Option<&str>) -> Running {
    let mut process = Process::new(std::env::current_exe().unwrap());
    process
        .args([
            "--exact",
            "child::the_child",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(STORE, store)
        .env(LOG, log)
        .env(
            TASK,
            match task {
                Task::Work(seed) => format!("work {seed}"),
                Task::Batch(count) => format!("batch {count}"),
            },
        )
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit());
    if let Some(point) = point {
        process.env(crash::VARIABLE, point);
    }
    Running(process.spawn().unwrap())
}

/// A child that does not outlive its test: it is killed when the test fails, and ends by itself when its input does, because the
/// parent is gone.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Waits until it ends. Its input stays open for so long.
    pub(crate) fn wait(mut self) -> std::process::ExitStatus {
        let input = self.0.stdin.take();
        let status = self.0.wait().unwrap();
        drop(input);
        status
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Appends a line of what is known to be durable. One `write` for each line: what the kernel has taken survives the process.
struct Log(File);

impl Log {
    fn say(&self, line: &str) {
        (&self.0).write_all(format!("{line}\n").as_bytes()).unwrap();
    }
}

/// Does nothing in the parent's own run of the tests.
#[test]
fn the_child() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let log = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(std::env::var_os(LOG).unwrap())
        .unwrap();
    let log = Arc::new(Log(log));
    std::thread::spawn(|| {
        drop(std::io::stdin().read_to_end(&mut Vec::new()));
        std::process::exit(1);
    });
    let task = std::env::var(TASK).unwrap();
    let (word, number) = task.split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    let db = open(&store);
    if word == "batch" {
        batch(&db, &log, number);
    } else {
        work(&db, &log, number);
    }
}

/// One command alone, then `count` commands in one transaction.
fn batch(db: &Database, log: &Log, count: u64) {
    let receipt = add_ticket(db, "first", "c0", 1, 0).wait().unwrap();
    log.say(&added("first", "c0", 1, &receipt));
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (started, is_started) = std::sync::mpsc::channel();
    // The first of the batch holds the writer until the others have queued.
    let held = db
        .submit(
            Command::new(&counter::ADD, counter::resource("c0")),
            move |_| {
                let _ = started.send(());
                let _ = wait.recv();
                Ok::<_, StateError>(Outcome::Refused(()))
            },
        )
        .unwrap();
    is_started.recv().unwrap();
    let tickets: Vec<_> = (0..count)
        .map(|index| {
            let token = format!("batch{index}");
            (add_ticket(db, &token, "c0", 1, 3), token)
        })
        .collect();
    drop(go);
    held.wait().unwrap();
    for (ticket, token) in tickets {
        let receipt = ticket.wait().unwrap();
        log.say(&added(&token, "c0", 1, &receipt));
    }
    log.say("end");
}

fn work(db: &Database, log: &Arc<Log>, seed: u64) {
    let mut threads = Vec::new();
    for index in 0..3 {
        let (db, log) = (db.clone(), Arc::clone(log));
        threads.push(std::thread::spawn(move || {
            add_for_ever(&db, &log, seed, index);
        }));
    }
    own_for_ever(db, log, seed);
}

type AddTicket = holdpoint_state::Ticket<i64, StateError>;

/// An addition whose event says what it is. Bit 0 of `extras`: it adds to the total too; bit 1: it reserves a follow-up.
fn add_ticket(db: &Database, token: &str, name: &str, amount: i64, extras: u64) -> AddTicket {
    let (total, announce) = (extras & 1 == 1, extras & 2 == 2);
    let payload = Payload::json(
        &json!({ "token": token, "amount": amount, "announce": announce, "total": total }),
    )
    .unwrap();
    let command = Command::new(&counter::ADD, counter::resource(name))
        .by(Actor::host("child"))
        .recording(payload.clone());
    let token = token.to_owned();
    db.submit(command, move |change| {
        let value = counter::increase(change, amount)?;
        if announce {
            let key = format!("announce-{token}");
            let effect =
                NewEffect::new("counter.announce", key, OwnerScope::System, payload.clone());
            change.reserve_effect(&effect)?;
        }
        if total {
            add_to_total(change, &token, amount)?;
        }
        Ok(Outcome::Accepted(value))
    })
    .unwrap()
}

fn add_to_total(change: &mut Change<'_>, token: &str, amount: i64) -> Result<(), StateError> {
    let payload = Payload::json(&json!({ "token": token, "amount": amount }))?;
    let nested = Command::new(&counter::ADD, counter::resource(TOTAL)).recording(payload);
    change.also(&nested, |change| {
        Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, amount)?))
    })?;
    Ok(())
}

fn added(token: &str, name: &str, amount: i64, receipt: &holdpoint_state::Receipt<i64>) -> String {
    format!(
        "add {token} {name} {amount} {} {}",
        receipt.revision, receipt.value
    )
}

fn add_for_ever(db: &Database, log: &Log, seed: u64, thread: u64) {
    let mut random = Random::new(seed ^ (thread << 32));
    for count in 0_u64.. {
        let token = format!("{seed:x}-{thread}-{count}");
        let name = COUNTERS[usize::try_from(random.below(3)).unwrap()];
        let amount = i64::try_from(random.below(9)).unwrap() + 1;
        if random.below(8) == 0 {
            fail_half_way(db, name);
        }
        let receipt = add_ticket(db, &token, name, amount, random.below(4))
            .wait()
            .unwrap();
        log.say(&added(&token, name, amount, &receipt));
    }
}

/// A command that writes and then fails: its transaction is undone, and its neighbours run again.
fn fail_half_way(db: &Database, name: &str) {
    let command = Command::new(&counter::ADD, counter::resource(name));
    let failed = db.commit(command, |change| {
        counter::increase(change, 1_000_000)?;
        Err::<Outcome<()>, _>(StateError::Closed)
    });
    assert!(matches!(failed, Err(StateError::Closed)), "{failed:?}");
}

fn own_for_ever(db: &Database, log: &Log, seed: u64) {
    let owner = Owner::new(OwnerKind::Host, "child");
    let mut random = Random::new(!seed);
    let mut count = 0_u64;
    loop {
        // So short that a crash leaves no long wait, and that it runs out now and then.
        let length_ms = 5 + i64::try_from(random.below(40)).unwrap();
        let claim = match db.claim(
            counter::resource(OWNED),
            Actor::host("child"),
            &owner,
            length_ms,
        ) {
            Ok(claim) => claim,
            Err(StateError::LeaseHeld { .. }) => continue,
            Err(error) => panic!("{error:?}"),
        };
        log.say(&format!("claim {}", claim.generation()));
        match own(db, log, seed, claim, &mut count, &mut random) {
            Ok(()) | Err(StateError::ClaimLost { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn owned(
    db: &Database,
    claim: &Claim,
    token: &str,
    mut body: impl FnMut(&mut Change<'_>) -> Result<(), StateError> + Send + 'static,
) -> Result<holdpoint_state::Receipt<i64>, StateError> {
    let payload = Payload::json(&json!({ "token": token, "amount": 1 }))?;
    let command = Command::new(&counter::ADD_OWNED, counter::resource(OWNED))
        .by(Actor::host("child"))
        .holding(claim)
        .recording(payload);
    db.commit(command, move |change| {
        body(change)?;
        Ok(Outcome::Accepted(counter::increase(change, 1)?))
    })
}

fn own(
    db: &Database,
    log: &Log,
    seed: u64,
    claim: Claim,
    count: &mut u64,
    random: &mut Random,
) -> Result<(), StateError> {
    // What a former owner left open may have happened: nobody acts on it again.
    owned(db, &claim, "recovery", |change| {
        change.recover_effects().map(drop)
    })?;
    for _ in 0..random.below(5) {
        *count += 1;
        let token = format!("{seed:x}-own-{count}");
        let payload = Payload::json(&json!({ "recovery": "manual", "token": token }))?;
        let effect = NewEffect::new("child.act", token.clone(), OwnerScope::Run, payload);
        let (told, starts) = std::sync::mpsc::channel();
        let receipt = owned(db, &claim, &token, move |change| {
            drop(told.send(change.begin_effect(&effect)?));
            Ok(())
        })?;
        log.say(&added(&token, OWNED, 1, &receipt));
        // A body may run twice; the last word counts.
        let Some(EffectStart::Execute(attempt)) = starts.try_iter().last() else {
            panic!("a fresh effect was not begun");
        };
        log.say(&format!("act {token}"));
        let settling = format!("{token}-done");
        let receipt = owned(db, &claim, &settling, move |change| {
            change.settle_effect(
                &attempt,
                Settlement::Applied {
                    result: None,
                    external_ref: None,
                },
            )
        })?;
        log.say(&added(&settling, OWNED, 1, &receipt));
        log.say(&format!("applied {token}"));
        if random.below(3) == 0 {
            db.renew(&claim)?;
        }
    }
    let generation = claim.generation();
    if random.below(2) == 0 {
        db.release(claim, Actor::host("child"))?;
        log.say(&format!("release {generation}"));
    }
    Ok(())
}
