//! Runs and steps per second against raw SQLite, on the same rows in the same run.
//!
//! `cargo bench -p holdpoint-workflows` prints, for workflows of one and of ten steps at concurrency 1, 16 and 64, how many runs and
//! steps a second a closed loop makes (each submitter starts a run and waits for its end), beside plain SQLite that writes the same
//! rows in the same transactions without a check; then the same again in a file with many finished runs, and the bytes of file
//! for one run, table by table.
//!
//! Environment: `HOLDPOINT_BENCH_SECONDS` (per figure, default 3), `HOLDPOINT_BENCH_RUNS` (finished runs of the full store, default
//! 100000; 0 leaves it out), `HOLDPOINT_BENCH_ONLY` (`STEPSxCONCURRENCY`, such as `1x64`: that figure alone, five times, on an empty store, or
//! on a full one when `HOLDPOINT_BENCH_RUNS` is set too).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark measures real time, prints it and fails by panicking"
)]

mod raw;
mod space;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdpoint_state::{Database, Identity, Options, Schema};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{DOMAIN, SchedulerOptions, Workflows};

/// The figures: steps of a run, and how many runs are waited for at once.
const FIGURES: [(u32, usize); 6] = [(1, 1), (1, 16), (1, 64), (10, 1), (10, 16), (10, 64)];
/// The input of the next run, apart from what runs make of the others, so that each stores blobs of its own.
static INPUT: AtomicU64 = AtomicU64::new(0);
/// The longest that a run may take.
const LIMIT: Duration = Duration::from_mins(1);

pub(crate) struct Settings {
    pub(crate) duration: Duration,
    runs: usize,
}

/// One measured figure.
pub(crate) struct Figure {
    pub(crate) runs_per_second: f64,
    /// Processor time of the whole process for one run, which other work on the machine disturbs less.
    cpu: Duration,
    /// What the process wrote for one run, log and file, in bytes: a number that no other work disturbs.
    written_bytes: u64,
    p50: Duration,
    p99: Duration,
}

/// What the process spent so far.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    cpu: Duration,
    written_bytes: u64,
}

impl Spent {
    pub(crate) fn so_far() -> Self {
        Self {
            cpu: cpu_time(),
            written_bytes: written_bytes(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(before.cpu),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

impl Figure {
    pub(crate) fn of(elapsed: Duration, spent: Spent, mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let at = |share: usize| {
            waits
                .get(waits.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        Self {
            runs_per_second: waits.len() as f64 / elapsed.as_secs_f64(),
            cpu: spent.cpu / u32::try_from(waits.len().max(1)).unwrap(),
            written_bytes: spent.written_bytes / u64::try_from(waits.len().max(1)).unwrap(),
            p50: at(50),
            p99: at(99),
        }
    }
}

fn main() {
    let number = |name: &str, default: u64| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let settings = Settings {
        duration: Duration::from_secs(number("HOLDPOINT_BENCH_SECONDS", 3)),
        runs: usize::try_from(number("HOLDPOINT_BENCH_RUNS", 100_000)).unwrap(),
    };
    if let Ok(only) = std::env::var("HOLDPOINT_BENCH_ONLY") {
        let (steps, concurrency) = only.split_once('x').unwrap();
        let (steps, concurrency) = (steps.parse().unwrap(), concurrency.parse().unwrap());
        let store = Store::new();
        if std::env::var_os("HOLDPOINT_BENCH_RUNS").is_some() {
            raw::fill(&store.path, settings.runs);
        }
        for _ in 0..5 {
            print(
                steps,
                concurrency,
                &store.measure(&settings, steps, concurrency),
                None,
            );
        }
        return;
    }
    println!("SQLite {}", holdpoint_state::sql::engine_version());
    fsync_probe();
    space::print();
    println!("\nempty store");
    let empty = Store::new();
    let before = empty.figures(&settings, true);
    drop(empty);
    if 0 < settings.runs {
        println!("\nstore with {} finished runs", settings.runs);
        let full = Store::new();
        raw::fill(&full.path, settings.runs);
        let after = full.figures(&settings, true);
        println!("\nwith {} finished runs, of the empty store", settings.runs);
        for ((steps, concurrency), (before, after)) in FIGURES.iter().zip(before.iter().zip(&after))
        {
            println!(
                "{steps:>2} steps at {concurrency:>2}: {:.2}",
                after / before
            );
        }
    }
}

fn print(steps: u32, concurrency: usize, figure: &Figure, floor: Option<f64>) {
    let ratio = floor.map_or_else(String::new, |floor| {
        format!("   {:.2} of raw", figure.runs_per_second / floor)
    });
    println!(
        "{steps:>2} steps at {concurrency:>2}   {:>7.0} runs/s   {:>7.0} steps/s   cpu {:>9.2?}   {:>6} bytes   p50 {:>9.2?}   p99 {:>9.2?}{ratio}",
        figure.runs_per_second,
        figure.runs_per_second * f64::from(steps),
        figure.cpu,
        figure.written_bytes,
        figure.p50,
        figure.p99,
    );
}

/// A store in a directory of its own.
pub(crate) struct Store {
    directory: PathBuf,
    pub(crate) path: PathBuf,
}

impl Store {
    pub(crate) fn new() -> Self {
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
        };
        // The definitions, which every run of every figure shares.
        for steps in [1, 10] {
            store.run(steps, 1, |_| false);
        }
        store
    }

    pub(crate) fn open(&self) -> Database {
        let options = Options {
            check_integrity: false,
            ..Options::default()
        };
        Database::open_with(&self.path, &schema(), options).unwrap()
    }

    /// A copy, so that what is written to it disturbs nothing.
    pub(crate) fn copy(&self, name: &str) -> PathBuf {
        let copy = self.directory.join(name);
        drop(std::fs::remove_file(&copy));
        raw::copy(&self.path, &copy);
        copy
    }

    /// Prints every figure beside its floor, and gives the runs per second.
    fn figures(&self, settings: &Settings, with_floor: bool) -> Vec<f64> {
        FIGURES
            .iter()
            .map(|(steps, concurrency)| {
                let floor = with_floor.then(|| {
                    raw::measure(&self.copy("raw"), settings, *steps, *concurrency).runs_per_second
                });
                let figure = self.measure(settings, *steps, *concurrency);
                print(*steps, *concurrency, &figure, floor);
                figure.runs_per_second
            })
            .collect()
    }

    fn measure(&self, settings: &Settings, steps: u32, concurrency: usize) -> Figure {
        let begun = Instant::now();
        self.run(steps, concurrency, |_| begun.elapsed() < settings.duration)
    }

    /// A closed loop: each submitter starts a run and waits for its end, one at least and then as long as `more` of the number it made.
    pub(crate) fn run(
        &self,
        steps: u32,
        concurrency: usize,
        more: impl Fn(usize) -> bool + Sync,
    ) -> Figure {
        let db = self.open();
        let workflows = Workflows::new(db.clone());
        let definition = definition(steps);
        let scheduler = workflows
            .scheduler(SchedulerOptions {
                workers: concurrency,
                ..SchedulerOptions::default()
            })
            .unwrap();
        assert!(scheduler.wait_until_idle(LIMIT));
        let start = Barrier::new(concurrency + 1);
        let figure = std::thread::scope(|scope| {
            let submitters: Vec<_> = (0..concurrency)
                .map(|_| {
                    let (workflows, definition, start, more) =
                        (&workflows, &definition, &start, &more);
                    scope.spawn(move || {
                        start.wait();
                        let mut waits = Vec::new();
                        loop {
                            let sent = Instant::now();
                            let input = INPUT.fetch_add(1_000, Ordering::Relaxed);
                            let run = workflows.run(definition, input).unwrap();
                            let end = workflows.wait_for_end(&run, LIMIT).unwrap().unwrap();
                            assert_eq!(end.status, RunStatus::Completed);
                            waits.push(sent.elapsed());
                            if !more(waits.len()) {
                                return waits;
                            }
                        }
                    })
                })
                .collect();
            start.wait();
            let (begun, spent) = (Instant::now(), Spent::so_far());
            let waits = submitters
                .into_iter()
                .flat_map(|submitter| submitter.join().unwrap())
                .collect();
            Figure::of(begun.elapsed(), Spent::so_far().since(spent), waits)
        });
        scheduler.stop(LIMIT);
        drop(workflows);
        db.close();
        figure
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.directory).unwrap();
    }
}

/// Nodes that add one, each to the output of the one before.
pub(crate) fn definition(steps: u32) -> Definition {
    let mut workflow = Workflow::new(format!("steps-{steps}"))
        .start_at("step-1")
        .compute("step-1", |ctx| Ok(ctx.input().as_i64().unwrap_or(0) + 1));
    for step in 2..=steps {
        let (before, node) = (format!("step-{}", step - 1), format!("step-{step}"));
        let read = before.clone();
        workflow = workflow
            .compute(&node, move |ctx| Ok(ctx.output::<i64>(&read)? + 1))
            .edge(&before, &node);
    }
    workflow.build().unwrap()
}

/// What this process wrote so far; nothing where the system does not tell.
fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// The processor time of this process so far, in steps of 10 ms; nothing where the system does not tell.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: u64 = after_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

pub(crate) fn schema() -> Schema {
    Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN]).unwrap()
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
    let now = Spent::so_far();
    let figure = Figure::of(waits.iter().sum(), now.since(now), waits);
    println!(
        "fsync probe: p50 {:.2?}, p99 {:.2?}, {:.0}/s",
        figure.p50, figure.p99, figure.runs_per_second
    );
}
