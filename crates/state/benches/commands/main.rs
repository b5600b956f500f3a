//! Commands per second against raw SQLite, on the same rows in the same run.
//!
//! `cargo bench -p holdpoint-state` prints, for 1, 8, 64 and 256 submitters, how the full command (checks, revision, event with a
//! 300-byte payload, domain row, effect) compares with (a) the same rows written by plain rusqlite in one transaction each and (b) the
//! same rows in one giant transaction without any checks; then the same over a store that holds many rows, the bytes of file for
//! one command, and four processes at once.
//!
//! Environment: `HOLDPOINT_BENCH_SECONDS` (per figure, default 3), `HOLDPOINT_BENCH_ROWS` (rows of the full store, default
//! 1000000), `HOLDPOINT_BENCH_COMMIT_MS` (makes every commit take at least so long, default 0).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark measures real time, prints it and fails by panicking"
)]

mod processes;
mod raw;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Identity, Options, Schema};

/// How many counters the submitters share.
pub(crate) const COUNTERS: usize = 64;
/// How many tickets one thread keeps in flight in the pipelined figure.
const IN_FLIGHT: usize = 64;

pub(crate) struct Settings {
    pub(crate) duration: Duration,
    pub(crate) rows: usize,
    pub(crate) commit_ms: u64,
}

/// One measured figure.
pub(crate) struct Figure {
    pub(crate) per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Figure {
    pub(crate) fn of(count: usize, elapsed: Duration, mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let at = |share: usize| {
            waits
                .get(waits.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        Self {
            per_second: count as f64 / elapsed.as_secs_f64(),
            p50: at(50),
            p99: at(99),
        }
    }

    fn print(&self, name: &str, per_commit: f64, giant: f64) {
        println!(
            "{name:<34} {:>9.0}/s   p50 {:>9.2?}   p99 {:>9.2?}   {:>5.2} of (a)   {:>5.3} of (b)",
            self.per_second,
            self.p50,
            self.p99,
            self.per_second / per_commit,
            self.per_second / giant
        );
    }
}

fn main() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    if let Ok(path) = std::env::var(processes::CHILD) {
        processes::child(Path::new(&path));
        return;
    }
    let settings = Settings {
        duration: Duration::from_secs(number("HOLDPOINT_BENCH_SECONDS", 3)),
        rows: usize::try_from(number("HOLDPOINT_BENCH_ROWS", 1_000_000)).unwrap(),
        commit_ms: number("HOLDPOINT_BENCH_COMMIT_MS", 0),
    };
    if std::env::var("HOLDPOINT_BENCH_ONLY").is_ok_and(|only| only == "one") {
        let store = Store::new(&settings);
        let a = raw::one_transaction_each(&store.copy("raw-a"), &settings).per_second;
        for _ in 0..3 {
            submit_blocking(&store.open(), &settings, 1).print("1 submitter", a, a);
            submit_blocking(&store.open(), &settings, 64).print("64 submitters", a, a);
        }
        return;
    }
    if std::env::var("HOLDPOINT_BENCH_ONLY").is_ok_and(|only| only == "pipelined") {
        let store = Store::new(&settings);
        submit_pipelined(&store.open(), &settings, 4).print(
            "256 in flight from 4 threads",
            1.0,
            1.0,
        );
        return;
    }
    println!(
        "SQLite {}, every commit takes at least {} ms",
        rusqlite::version(),
        settings.commit_ms
    );
    fsync_probe();

    println!("\nempty store");
    let empty = Store::new(&settings);
    let empty_64 = measure(&empty, &settings);
    println!(
        "{:.0} bytes of file for one command",
        Store::bytes_per_command(&settings)
    );
    drop(empty);

    if 0 < settings.rows {
        println!("\nstore with {} commands", settings.rows);
        let full = Store::new(&settings);
        raw::fill(&full.path, settings.rows);
        let full_64 = measure(&full, &settings);
        println!(
            "64 submitters: {:.2} of the empty store",
            full_64 / empty_64
        );
    }

    println!("\nfour processes at once");
    let shared = Store::new(&settings);
    processes::measure(&shared.path, &settings);
}

/// Prints all figures of one store and returns the commands per second at 64 submitters.
fn measure(store: &Store, settings: &Settings) -> f64 {
    let per_commit = raw::one_transaction_each(&store.copy("raw-a"), settings);
    let giant = raw::one_transaction(&store.copy("raw-b"), settings);
    let (a, b) = (per_commit.per_second, giant.per_second);
    per_commit.print("(a) raw, a transaction each", a, b);
    giant.print("(b) raw, one transaction", a, b);
    let mut at_64 = 0.0;
    for submitters in [1, 8, 64, 256] {
        let figure = submit_blocking(&store.open(), settings, submitters);
        figure.print(&format!("{submitters} submitters"), a, b);
        if submitters == 64 {
            at_64 = figure.per_second;
        }
    }
    submit_pipelined(&store.open(), settings, 4).print("256 in flight from 4 threads", a, b);
    at_64
}

/// Each thread sends one command and waits for it.
pub(crate) fn submit_blocking(db: &Database, settings: &Settings, submitters: usize) -> Figure {
    let start = Arc::new(Barrier::new(submitters + 1));
    let threads: Vec<_> = (0..submitters)
        .map(|thread| {
            let (db, start, duration) = (db.clone(), Arc::clone(&start), settings.duration);
            std::thread::spawn(move || {
                start.wait();
                let mut waits = Vec::new();
                let begun = Instant::now();
                let mut turn = thread;
                while begun.elapsed() < duration {
                    let sent = Instant::now();
                    announce(&db, turn).wait().unwrap();
                    waits.push(sent.elapsed());
                    turn += submitters;
                }
                waits
            })
        })
        .collect();
    start.wait();
    let begun = Instant::now();
    let waits: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    Figure::of(waits.len(), begun.elapsed(), waits)
}

/// Each thread keeps many tickets in flight.
fn submit_pipelined(db: &Database, settings: &Settings, submitters: usize) -> Figure {
    let threads: Vec<_> = (0..submitters)
        .map(|thread| {
            let (db, duration) = (db.clone(), settings.duration);
            std::thread::spawn(move || {
                let mut tickets = std::collections::VecDeque::new();
                let mut waits = Vec::new();
                let begun = Instant::now();
                let mut turn = thread;
                while begun.elapsed() < duration || !tickets.is_empty() {
                    while tickets.len() < IN_FLIGHT && begun.elapsed() < duration {
                        tickets.push_back((Instant::now(), announce(&db, turn)));
                        turn += submitters;
                    }
                    if let Some((sent, ticket)) = tickets.pop_front() {
                        ticket.wait().unwrap();
                        waits.push(Instant::elapsed(&sent));
                    }
                }
                waits
            })
        })
        .collect();
    let begun = Instant::now();
    let waits: Vec<_> = threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    Figure::of(waits.len(), begun.elapsed(), waits)
}

/// The full command: checks, revision, event with a 300-byte payload, domain row, effect.
pub(crate) fn announce(
    db: &Database,
    turn: usize,
) -> holdpoint_state::Ticket<i64, holdpoint_state::StateError> {
    counter::submit_announced(db, &counter_name(turn % COUNTERS), 1, &raw::note()).unwrap()
}

pub(crate) fn counter_name(index: usize) -> String {
    format!("counter-{index}")
}

/// A store in a directory of its own.
pub(crate) struct Store {
    directory: PathBuf,
    pub(crate) path: PathBuf,
    schema: Schema,
    commit_ms: u64,
}

impl Store {
    fn new(settings: &Settings) -> Self {
        use std::os::unix::fs::DirBuilderExt as _;
        // In the target directory, which is on the disk that is to be measured; the temporary directory may be memory.
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(holdpoint_state::id::random_id("bench"));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&directory)
            .unwrap();
        let store = Self {
            path: directory.join("state.sqlite"),
            directory,
            schema: schema(),
            commit_ms: settings.commit_ms,
        };
        let db = store.open();
        for index in 0..COUNTERS {
            counter::create(&db, &counter_name(index)).unwrap();
        }
        db.close();
        store
    }

    fn open(&self) -> Database {
        open(&self.path, &self.schema, self.commit_ms)
    }

    /// A copy for raw statements, so that they write into the same rows without disturbing ours.
    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.directory.join(name);
        let source = rusqlite::Connection::open(&self.path).unwrap();
        source
            .execute("VACUUM INTO ?1", [copy.to_str().unwrap()])
            .unwrap();
        copy
    }

    fn bytes_per_command(settings: &Settings) -> f64 {
        let fresh = Self::new(settings);
        let before = checkpointed_size(&fresh.path);
        let commands = 50_000;
        let db = fresh.open();
        let tickets: Vec<_> = (0..commands).map(|turn| announce(&db, turn)).collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
        db.close();
        (checkpointed_size(&fresh.path) - before) as f64 / commands as f64
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

pub(crate) fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN],
    )
    .unwrap()
}

pub(crate) fn open(path: &Path, schema: &Schema, commit_floor_ms: u64) -> Database {
    let options = Options {
        commit_floor_ms,
        check_integrity: false,
        queue_capacity: 1 << 16,
        ..Options::default()
    };
    Database::open_with(path, schema, options).unwrap()
}

fn checkpointed_size(path: &Path) -> u64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    std::fs::metadata(path).unwrap().len()
}

/// What one fsync of a small append takes on this disk, now.
fn fsync_probe() {
    use std::io::Write as _;
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fsync-probe");
    let mut file = std::fs::File::create(&path).unwrap();
    let mut waits = Vec::new();
    for _ in 0..300 {
        let begun = Instant::now();
        file.write_all(&[7; 4_096]).unwrap();
        file.sync_data().unwrap();
        waits.push(begun.elapsed());
    }
    std::fs::remove_file(&path).unwrap();
    let total: Duration = waits.iter().sum();
    let figure = Figure::of(waits.len(), total, waits);
    println!(
        "fsync probe: p50 {:.2?}, p99 {:.2?}, {:.0}/s",
        figure.p50, figure.p99, figure.per_second
    );
}
