//! The soak: resources that several processes change, hint and delete at random, while the hosts of their controller get SIGKILL at random and
//! are started again. It ends converged, nothing was done twice, nothing was lost, and no pass was made without a reason.
//!
//! `HOLDPOINT_SOAK_RESOURCES` says how many resources (default 300, up to 10,000), `HOLDPOINT_SOAK_SEED` what the dice begin with. The
//! seed says who does what and after how many passes a host dies; how the processes meet is up to the machine.
//!
//! The world outside is three kinds of files, each line or byte of them one appending write: `journal` is what the controller did,
//! `accepted-N` is what the store took of writer N, and `told/KEY` has a byte for each thing that a hint told of.

mod soaked;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use holdpoint_controllers::commands::{self, SpecChange};
use holdpoint_controllers::views::{self, DueQuery};
use holdpoint_controllers::{ControllerError, Controllers};
use holdpoint_state::clock::{Clock as _, SystemClock, UnixMillis};
use holdpoint_state::{Actor, Database, Disposition};
use holdpoint_workflows::definition::CancellationSignal;
use holdpoint_workflows::{SchedulerOptions, Workflows};

use self::soaked::{Soaked, Status};
use crate::host::{Home, Host, LONG, note, open};

const HOME: &str = "HOLDPOINT_SOAK_HOME";
const TASK: &str = "HOLDPOINT_SOAK_TASK";
const SEED: &str = "HOLDPOINT_SOAK_SEED";
const RESOURCES: &str = "HOLDPOINT_SOAK_RESOURCES";
const HOSTS: usize = 2;
const WRITERS: u64 = 2;
/// How many passes a host makes at once, which is how many a kill ends at most.
const WORKERS: usize = 2;
/// How many random wishes a writer has for each resource.
const WISHES: u64 = 2;
/// A quarter of all wishes is for so many resources, so that they meet passes and each other.
const HOT: u64 = 6;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

fn resources() -> u64 {
    number(RESOURCES).unwrap_or(300).clamp(HOT, 10_000)
}

fn read(home: &Path, file: &str) -> String {
    std::fs::read_to_string(home.join(file)).unwrap_or_default()
}

fn length(file: &Path) -> u64 {
    file.metadata().map_or(0, |found| found.len())
}

/// Dice (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn controllers(home: &Path, db: &Database) -> (Controllers, Workflows) {
    let workflows = Workflows::new(db.clone());
    let home = home.to_owned();
    let controllers = Controllers::new(&workflows, "/srv/soak")
        .unwrap()
        .register(Soaked { home })
        .unwrap();
    let workflows = controllers.attach(workflows);
    (controllers, workflows)
}

fn start(home: &Home, task: &str, seed: u64) -> Host {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "soak::process",
            "--ignored",
            "--test-threads=1",
            "--nocapture",
        ])
        .env(HOME, home.path())
        .env(TASK, task)
        .env(SEED, seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Host(command.spawn().unwrap())
}

#[test]
#[ignore = "a process of the soak"]
fn process() {
    let (Some(home), Ok(task)) = (
        std::env::var_os(HOME).map(PathBuf::from),
        std::env::var(TASK),
    ) else {
        return;
    };
    let db = open(&home);
    let (controllers, workflows) = controllers(&home, &db);
    if let Ok(writer) = task.parse() {
        write(&home, &db, &controllers, writer);
    } else {
        let options = SchedulerOptions {
            workers: WORKERS,
            poll_interval_ms: 50,
            ..SchedulerOptions::default()
        };
        let scheduler = workflows.scheduler(options).unwrap();
        progress(&home, "the word to stop", || home.join("stop").exists());
        assert!(scheduler.wait_until_idle(LONG));
        scheduler.stop(Duration::from_secs(10));
    }
    db.close();
}

/// A writer: makes its share of the resources, then wishes at random. What was taken is noted.
fn write(home: &Path, db: &Database, controllers: &Controllers, writer: u64) {
    let mut random = Random(number(SEED).unwrap() ^ (writer + 1) << 32);
    let accepted = format!("accepted-{writer}");
    let count = resources();
    let apply = |key: &str, random: &mut Random| {
        let spec = format!("value-{}", random.below(4));
        match controllers.apply::<Soaked>(key, &spec) {
            Ok(receipt) if receipt.value.change != SpecChange::Unchanged => {
                let applied = receipt.value;
                let line = format!("spec {} {} {spec}", applied.uid, applied.generation);
                note(home, &accepted, &line).unwrap();
            }
            Ok(_) | Err(ControllerError::Deleting { .. } | ControllerError::Unsteady { .. }) => {}
            Err(error) => panic!("apply {key}: {error}"),
        }
    };
    for number in (0..count).filter(|number| number % WRITERS == writer) {
        apply(&format!("key-{number}"), &mut random);
    }
    for _ in 0..WISHES * count {
        let among = if random.below(4) == 0 { HOT } else { count };
        let key = format!("key-{}", random.below(among));
        let target = controllers.target::<Soaked>(&key).unwrap();
        let wished = match random.below(20) {
            0..=9 => {
                apply(&key, &mut random);
                continue;
            }
            10..=16 => {
                // First it happens, then it is told: the next pass sees it, whatever is going on.
                note(&home.join("told"), &key, "").unwrap();
                let later = i64::try_from(random.below(100)).unwrap();
                let at = (random.below(4) == 0).then(|| UnixMillis(SystemClock.now().0 + later));
                commands::enqueue(db, &target, at).map(|_| Some("hint".to_owned()))
            }
            _ => commands::request_deletion(db, &target, Actor::control("soak")).map(|receipt| {
                let is_new = receipt.disposition == Disposition::Accepted;
                is_new.then(|| format!("delete {}", receipt.value.uid))
            }),
        };
        match wished {
            Ok(Some(line)) => note(home, &accepted, &line).unwrap(),
            Ok(None) | Err(ControllerError::NotFound { .. } | ControllerError::Unsteady { .. }) => {
            }
            Err(error) => panic!("{key}: {error}"),
        }
    }
    note(home, "done", "").unwrap();
}

/// Waits for something, as long as passes are made or writers write meanwhile.
fn progress(home: &Path, what: &str, is_so: impl Fn() -> bool) {
    let never = CancellationSignal::never();
    let files = ["passes", "accepted-0", "accepted-1"].map(|file| home.join(file));
    let (mut before, mut since) = (0, SystemClock.monotonic());
    while !is_so() {
        let now: u64 = files.iter().map(|file| length(file)).sum();
        if now != before {
            (before, since) = (now, SystemClock.monotonic());
        }
        let still = SystemClock.monotonic().since(since);
        assert!(still < 90_000, "{what}: nothing happened for {still} ms");
        never.wait(Duration::from_millis(5));
    }
}

/// Prints the seed when the test fails.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            #[expect(clippy::print_stderr, reason = "a failed test says how to repeat it")]
            {
                eprintln!("{SEED}={} {RESOURCES}={}", self.0, resources());
            }
        }
    }
}

/// Each pass has a reason of its own. A claim needs a queue row, and a row is there for one of these: something came since the claim before
/// (a creation, another spec, a deletion, a hint: one claim each at most, fewer where several came together); the pass before asked for
/// another (once for the finalizer of each resource that was made, once for each deletion of one whose act may be open); or a kill ended
/// the pass before, of which a host has one for each worker. A conflict and a pass that a deletion made fail are no reasons of their own: what came
/// during that pass has not been counted for a claim yet. So
///
/// `claims <= creations + spec changes + deletions + hints  +  creations + deletions  +  kills * workers`
///
/// and a loop that goes on without a reason breaks it in the end, however the wishes fall together.
#[test]
fn soak_everything_converges_whatever_is_killed() {
    let seed = number(SEED).unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seed = Seed(seed);
    let mut random = Random(seed.0);
    let begun = SystemClock.monotonic();
    let home = Home::new();
    let path = home.path();
    std::fs::create_dir(path.join("told")).unwrap();
    let mut hosts: Vec<_> = (0..HOSTS).map(|_| start(&home, "host", seed.0)).collect();
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|writer| start(&home, &writer.to_string(), seed.0))
        .collect();
    // A host dies after some tens of passes, or some hundreds when there are many resources.
    let (passes, done) = (path.join("passes"), path.join("done"));
    let (line, mut kills) = (37, 0);
    let are_done = || length(&done) == WRITERS;
    while !are_done() {
        let next = length(&passes) + line * (5 + random.below(resources().min(600)));
        progress(path, "more passes", || {
            are_done() || next <= length(&passes)
        });
        let victim = usize::try_from(random.below(2)).unwrap();
        let host = hosts.get_mut(victim).unwrap();
        host.kill();
        kills += 1;
        *host = start(&home, "host", seed.0);
    }
    for writer in &mut writers {
        assert!(writer.wait().success());
    }

    let db = home.open();
    let (soaked, _) = controllers(path, &db);
    let names = soaked.names();
    let query = DueQuery {
        project: soaked.project(),
        controllers: &names,
        now: UnixMillis(i64::MAX / 2),
        limit: 1,
    };
    progress(path, "an empty queue", || {
        let due = views::due(&db.snapshot().unwrap(), &query).unwrap();
        due.uids.is_empty() && due.next_at.is_none()
    });
    std::fs::write(path.join("stop"), "").unwrap();
    for host in &mut hosts {
        assert!(host.wait().success());
    }
    let took = SystemClock.monotonic().since(begun);

    let wishes = read(path, "accepted-0") + &read(path, "accepted-1");
    let wishes: Vec<Vec<&str>> = wishes
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let journal = read(path, "journal");
    check_world(path, &soaked, &wishes, &journal);

    // The events are what was accepted, no more and no less.
    let events = count_events(&db);
    let count = |name: &str| events.get(name).copied().unwrap_or(0);
    let taken = |word: &str| {
        wishes
            .iter()
            .filter(|wish| wish.first() == Some(&word))
            .count()
    };
    let (created, updated) = (count("resource.created"), count("resource.spec_updated"));
    let (deleted, hints) = (count("resource.deletion_requested"), taken("hint"));
    assert_eq!(created + updated, taken("spec"));
    assert_eq!(deleted, taken("delete"));
    assert_eq!(deleted, count("resource_deleted"));
    assert!(count("reconcile_failed") <= deleted, "{events:?}");

    let claims = count("lease.claimed");
    let bound = created + updated + deleted + hints + created + deleted + kills * WORKERS;
    assert!(
        claims <= bound,
        "{claims} passes, at most {bound} have a reason: {events:?}"
    );
    let begun = usize::try_from(length(&passes) / line).unwrap();
    assert!(
        begun <= claims && claims <= begun + kills * WORKERS,
        "{begun} of {claims} claims"
    );
    let verified = db.verify().unwrap();
    assert!(verified.is_clean(), "{:?}", verified.findings);
    db.close();
    println!(
        "{} keys: {created} made, {updated} changed, {deleted} deleted, {hints} hints; {kills} kills; \
             {claims} passes of {bound}, {} conflicts, {} failed, {} acts seen after a kill; {} journal lines; {took} ms",
        resources(),
        count("reconcile_conflict"),
        count("reconcile_failed"),
        count("effect_recovered"),
        journal.lines().count(),
    );
}

fn count_events(db: &Database) -> BTreeMap<String, usize> {
    let (snapshot, mut after) = (db.snapshot().unwrap(), 0);
    let mut events = BTreeMap::new();
    loop {
        let batch = snapshot.events_after(after, 1_000).unwrap();
        let Some(last) = batch.last() else {
            return events;
        };
        after = last.seq;
        for event in batch {
            *events.entry(event.event_type).or_insert(0) += 1;
        }
    }
}

/// The world is as it is wanted, and it got there by acts that were wanted, each done once.
fn check_world(path: &Path, soaked: &Controllers, wishes: &[Vec<&str>], journal: &str) {
    let lines: BTreeSet<&str> = journal.lines().collect();
    assert_eq!(
        lines.len(),
        journal.lines().count(),
        "an act was done twice"
    );
    let (mut specs, mut generations) = (BTreeMap::new(), BTreeMap::new());
    for wish in wishes {
        if let ["spec", uid, generation, spec] = wish.as_slice() {
            let generation: u64 = generation.parse().unwrap();
            specs.insert((*uid, generation), *spec);
            let newest = generations.entry(*uid).or_insert(0);
            *newest = generation.max(*newest);
        }
    }
    // The last word for each resource; nothing was done that nobody wanted, and nothing after its end.
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    for line in journal.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let uid = match words.as_slice() {
            ["set", uid, generation, spec] => {
                let wanted = specs.get(&(*uid, generation.parse().unwrap()));
                assert_eq!(wanted, Some(spec), "{line}");
                *uid
            }
            ["remove", uid] => *uid,
            _ => panic!("{line}"),
        };
        let before = last.insert(uid, line);
        assert!(
            !before.is_some_and(|word| word.starts_with("remove")),
            "{line} after the end"
        );
    }
    let mut live = BTreeSet::new();
    for found in soaked.list::<Soaked>(10_001).unwrap() {
        let metadata = &found.resource.metadata;
        let (uid, generation) = (metadata.uid.to_string(), metadata.generation);
        assert_eq!(metadata.deletion_timestamp, None, "{uid}");
        assert_eq!(
            found.resource.status.observed_generation, generation,
            "{uid}"
        );
        // No accepted spec was lost, the last one is the journal's last word, and the last pass saw all that was told.
        assert_eq!(generations.get(uid.as_str()), Some(&generation), "{uid}");
        assert_eq!(
            specs.get(&(uid.as_str(), generation)),
            Some(&found.spec.as_str()),
            "{uid}"
        );
        let word = format!("set {uid} {generation} {}", found.spec);
        assert_eq!(last.get(uid.as_str()), Some(&word.as_str()));
        let told = length(&path.join("told").join(metadata.key.as_str()));
        let status = Status {
            acted: generation,
            told,
        };
        assert_eq!(found.status, status, "{} of {uid}", metadata.key);
        live.insert(uid);
    }
    let deleted: BTreeSet<&str> = wishes
        .iter()
        .filter_map(|wish| match wish.as_slice() {
            ["delete", uid] => Some(*uid),
            _ => None,
        })
        .collect();
    // Each resource is either there or was deleted by somebody's wish; whatever was made for a deleted one was removed.
    for uid in generations.keys() {
        assert_ne!(live.contains(*uid), deleted.contains(uid), "{uid}");
    }
    for uid in deleted {
        let word = last.get(uid);
        assert!(
            word.is_none_or(|word| word.starts_with("remove")),
            "{uid}: {word:?}"
        );
    }
}
