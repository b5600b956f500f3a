//! A process is killed in the middle of a sweep and of a prune, at every step of every transaction.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use holdpoint_state::clock::{Clock, ManualClock, UnixMillis};
use holdpoint_state::maintenance::retention::{SweepEnd, Taking};
use holdpoint_state::testing::{START, crash};
use holdpoint_state::{Database, Identity, Options, Schema};
use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::retention::KEEP_MS;
use holdpoint_workflows::{DOMAIN, RunId, Workflows};
use serde_json::json;

use crate::support::{Fixture, LONG, asking};

const STORE: &str = "HOLDPOINT_RETENTION_STORE";
const TASK: &str = "HOLDPOINT_RETENTION_TASK";
/// Trees that go.
const TREES: u64 = 3;
/// When everything of them is old enough.
const LATER: i64 = START + KEEP_MS + 60_000;

fn open(path: &Path) -> Database {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(LATER));
    let schema =
        Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN]).unwrap();
    let options = Options {
        clock,
        ..Options::default()
    };
    Database::open_with(path, &schema, options).unwrap()
}

fn backup_of(store: &Path) -> PathBuf {
    store.with_file_name("before-prune.sqlite")
}

/// The process that is killed. It runs only when the other tests start it.
#[test]
#[ignore = "the child of the tests that kill"]
fn child() {
    let Some(store) = std::env::var_os(STORE).map(PathBuf::from) else {
        return;
    };
    let workflows = Workflows::new(open(&store));
    if std::env::var(TASK).unwrap() == "sweep" {
        workflows
            .sweep(BTreeSet::new(), |_| ControlFlow::Continue(()))
            .unwrap();
    } else {
        workflows
            .prune(UnixMillis(LATER - KEEP_MS), backup_of(&store))
            .unwrap();
    }
}

/// Runs the task until it ends or kills itself; whether it came to its end.
fn run(store: &Path, task: &str, point: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "retention::kills::child",
            "--ignored",
            "--nocapture",
        ])
        .env(STORE, store)
        .env(TASK, task)
        .env(crash::VARIABLE, point)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    status.success()
}

/// A store with three old trees, one of them of two runs, and a young run.
fn prepared() -> (Fixture, RunId, [RunId; 2]) {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut newest = None;
    for number in 0..TREES {
        let run = fixture.workflows.run(&asking(), number).unwrap();
        fixture.workflows.wait(&run, LONG).unwrap();
        let answer = Answer::new(&run, json!(number));
        fixture.workflows.answer(&answer).unwrap();
        fixture.workflows.wait(&run, LONG).unwrap();
        newest = Some(run);
    }
    scheduler.stop(LONG);
    let parent = newest.unwrap();
    let restarted = fixture.restarted(&parent);
    fixture.end(&restarted);
    fixture.store.clock().set_wall(LATER);
    let young = fixture.ended(&asking(), "young", json!("young"));
    (fixture, young, [parent, restarted])
}

/// A copy of a store, in a directory of its own.
fn copy(fixture: &Fixture, directory: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::create_dir(directory).unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    let store = directory.join("state.sqlite");
    fixture.store.db().backup(&store).unwrap();
    store
}

fn runs(db: &Database) -> BTreeSet<String> {
    let workflows = Workflows::new(db.clone());
    let page = workflows
        .list(&holdpoint_workflows::views::Filter::default())
        .unwrap();
    page.runs.into_iter().map(|run| run.run_id).collect()
}

/// Kills the task at each time of each point until it comes to its end, and looks at what is left each time.
fn kill_everywhere(task: &str, transactions: usize, look: impl Fn(&Database, &BTreeSet<String>)) {
    let (fixture, young, [parent, child]) = prepared();
    let young_alone: BTreeSet<String> = [young.to_string()].into();
    let directory = tempfile::tempdir().unwrap();
    let mut killed = 0;
    for point in crash::Point::ALL {
        for time in 1.. {
            let place = format!("{}:{time}", point.as_str());
            let store = copy(&fixture, &directory.path().join(format!("{task}-{place}")));
            let ended = run(&store, task, &place);
            let db = open(&store);
            let report = db.verify().unwrap();
            assert!(report.is_clean(), "{place}: {report:?}");
            let left = runs(&db);
            assert!(left.contains(young.as_str()), "{place}");
            // A tree goes whole: one has two runs.
            assert_eq!(
                left.contains(parent.as_str()),
                left.contains(child.as_str()),
                "{place}"
            );
            if ended {
                assert_eq!(left, young_alone, "{place}");
                break;
            }
            killed += 1;
            look(&db, &left);
            // Whoever comes next finishes the work, and the lock of the dead process holds nobody up.
            drop(std::fs::remove_file(backup_of(&store)));
            db.close();
            assert!(run(&store, task, ""), "{place}");
            let db = open(&store);
            assert_eq!(runs(&db), young_alone, "{place}");
            assert!(db.verify().unwrap().is_clean(), "{place}");
        }
    }
    // Once at each point of each transaction.
    assert_eq!(killed, transactions * crash::Point::ALL.len());
}

#[test]
fn a_killed_sweep_leaves_whole_trees_and_is_still_due() {
    kill_everywhere("sweep", 4, |db, left| {
        let due = db.sweep_is_due().unwrap();
        let all_gone = left.len() == 1;
        // Only the transaction that takes shared content makes the sweep complete.
        assert!(due || all_gone);
        if !due {
            let report = db
                .sweep(
                    &Taking::before(UnixMillis(0)),
                    |_| ControlFlow::Continue(()),
                )
                .unwrap();
            assert_eq!(report.end, SweepEnd::NotDue);
        }
    });
}

#[test]
fn a_killed_prune_deletes_everything_or_nothing() {
    kill_everywhere("prune", 1, |db, left| {
        assert!(left.len() == 1 || left.len() == 5, "{left:?}");
        assert!(db.sweep_is_due().unwrap(), "a prune is no sweep");
    });
}
