//! What a process that died was executing is taken up at once; what a process executes that only stands still is not.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Database, Identity, Schema};
use holdpoint_workflows::definition::{CancellationSignal, Definition, Workflow};
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::{DOMAIN, RunId, SchedulerOptions, Workflows};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::{Fixture, LONG};

const STORE: &str = "HOLDPOINT_OWNERS_STORE";
const MARK: &str = "child-says ";
/// How many runs the child starts. One is executed, the others are queued behind it.
const RUNS: usize = 4;

/// One step, which does what the process that executes it says.
fn definition(step: impl Fn() + Send + Sync + 'static) -> Definition {
    Workflow::new("one-step")
        .start_at("step")
        .compute("step", move |ctx| {
            step();
            Ok(ctx.input().clone())
        })
        .build()
        .unwrap()
}

fn options() -> SchedulerOptions {
    SchedulerOptions {
        workers: 1,
        poll_interval_ms: 50,
        ..SchedulerOptions::default()
    }
}

fn say(words: &str) {
    use std::io::Write as _;
    let mut output = std::io::stdout().lock();
    writeln!(output, "{MARK}{words}").unwrap();
    output.flush().unwrap();
}

/// The process that is killed: it comes to the middle of a step and stays there.
#[test]
#[ignore = "the child of the tests of owners"]
fn child() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let schema =
        Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN]).unwrap();
    let workflows = Workflows::new(Database::open(store, &schema).unwrap());
    let definition = definition(|| {
        say("in the step");
        CancellationSignal::never().wait(Duration::from_mins(10));
    });
    for number in 0..RUNS {
        let run = workflows.run(&definition, json!(number)).unwrap();
        say(run.as_str());
    }
    let _scheduler = workflows.scheduler(options()).unwrap();
    CancellationSignal::never().wait(Duration::from_mins(10));
}

/// The child, and the runs that it started. It ends with this value.
struct Other {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    fn start(store: &Path) -> (Self, Vec<RunId>) {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "owners::child", "--ignored", "--nocapture"])
            .env(STORE, store)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let mut other = Self { process, output };
        let runs = (0..RUNS)
            .map(|_| RunId::new(other.hear()).unwrap())
            .collect();
        assert_eq!(other.hear(), "in the step");
        (other, runs)
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0);
            if let Some((_, words)) = line.split_once(MARK) {
                return words.trim_end().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn kill(self) {
        drop(self);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Sets the clock of this process to the time of the child's, and turns it no further: no lease ends by its time here.
fn stand_still(store: &TestStore) {
    store.clock().set_wall(SystemClock.now().0);
}

/// Whether the clock of this process says that the run's lease is live.
fn is_leased(store: &TestStore, run: &RunId) -> bool {
    let resource = store
        .db()
        .snapshot()
        .unwrap()
        .resource(&model::resource(run))
        .unwrap()
        .unwrap();
    resource.lease.is_live(store.clock().now())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test shows how long a takeover takes in real time"
)]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn work_of_a_killed_process_begins_again_before_its_lease_ends() {
    let fixture = Fixture::new();
    let (other, runs) = Other::start(&fixture.store.path());
    stand_still(&fixture.store);
    other.kill();
    assert!(is_leased(&fixture.store, &runs[0]));

    // As a program that is started again: it registers its code and then executes.
    let first = Arc::new(Mutex::new(None));
    let began = Arc::clone(&first);
    let restarted = now();
    fixture.workflows.register(&definition(move || {
        began.lock().unwrap().get_or_insert_with(now);
    }));
    let scheduler = fixture.workflows.scheduler(options()).unwrap();
    for run in &runs {
        let view = fixture.workflows.wait(run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed);
    }
    let took = first.lock().unwrap().unwrap().duration_since(restarted);
    println!("the first step of the remaining work began after {took:.2?}");
    scheduler.stop(LONG);

    let generation = |run| fixture.workflows.explain(run).unwrap().generation;
    assert_eq!(
        runs.iter().map(generation).collect::<Vec<_>>(),
        [2, 1, 1, 1]
    );
    // The attempt that was killed in its middle is given up, and its file is gone with the last lease that named its owner.
    assert_eq!(
        fixture.count("SELECT count(*) FROM node_attempts WHERE status = 'cancelled'"),
        1
    );
    let folder = fixture.store.directory().join("state.sqlite.owners");
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn work_of_a_stopped_process_is_left_alone_until_it_is_dead() {
    let fixture = Fixture::new();
    let (other, runs) = Other::start(&fixture.store.path());
    other.signal(Signal::STOP);
    stand_still(&fixture.store);
    fixture.workflows.register(&definition(|| ()));
    let scheduler = fixture.workflows.scheduler(options()).unwrap();
    for run in runs.iter().skip(1) {
        let view = fixture.workflows.wait(run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed);
    }
    // A fresh search finds nothing: what the stopped process executes is its own.
    assert!(scheduler.wait_until_idle(LONG));
    let held = fixture.workflows.view(&runs[0]).unwrap();
    assert_eq!(held.status, RunStatus::Running);
    assert_eq!(fixture.workflows.explain(&runs[0]).unwrap().generation, 1);

    other.kill();
    let view = fixture.workflows.wait(&runs[0], LONG).unwrap();
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(fixture.workflows.explain(&runs[0]).unwrap().generation, 2);
    scheduler.stop(LONG);
}
