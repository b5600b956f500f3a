//! A process that changes settings under a run which decides by them is killed: every change is there once, in its place.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use holdpoint_state::{ActorKind, Database, Identity, Schema};
use holdpoint_workflows::commands::{SettingsChange, Start};
use holdpoint_workflows::definition::{CancellationSignal, Definition, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::{DOMAIN, RunId, Scheduler, SchedulerOptions, Workflows};
use serde_json::{Value, json};

use crate::support::LONG;

const HOME: &str = "HOLDPOINT_SETTINGS_HOME";
/// The change that ends the run.
const LAST: u64 = 60;

/// Goes round until the settings say that it is enough.
fn definition() -> Definition {
    Workflow::new("rounds")
        .settings(Settings::new(0_u64).path(PathRule::new("").may_replace(&[ActorKind::Control])))
        .max_steps(1_000_000)
        .start_at("route")
        .settings_route("route", |ctx| {
            let to = if ctx.settings::<u64>()? < LAST {
                "round"
            } else {
                "end"
            };
            Ok(json!({ "to": to }))
        })
        .compute("round", |ctx| {
            ctx.cancellation.wait(Duration::from_millis(1));
            ctx.settings::<u64>()
        })
        .compute("end", |ctx| ctx.settings::<u64>())
        .switch("route", "$.to", [("round", "round"), ("end", "end")])
        .edge("round", "route")
        .build()
        .unwrap()
}

fn open(home: &Path) -> (Workflows, Scheduler, RunId) {
    let schema =
        Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN]).unwrap();
    let workflows = Workflows::new(Database::open(home.join("state.sqlite"), &schema).unwrap());
    let options = SchedulerOptions {
        lease_ms: 300,
        poll_interval_ms: 20,
        ..SchedulerOptions::default()
    };
    let scheduler = workflows.scheduler(options).unwrap();
    let start = Start::new(&definition(), Value::Null).key("the only one");
    let run = workflows.start(&start).unwrap().value;
    (workflows, scheduler, run)
}

fn log(home: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(home.join("changes.log")).unwrap_or_default();
    // What a kill cut off was not acknowledged.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| line.parse().unwrap()).collect()
}

/// Makes the changes that are not acknowledged yet, each by a request of its own, and writes down the number that each got.
fn go_on(home: &Path, workflows: &Workflows, run: &RunId) {
    workflows
        .wait_for(run, LONG, |view| !view.settings.is_empty())
        .unwrap();
    let acknowledged = u64::try_from(log(home).len()).unwrap();
    for number in acknowledged + 1..=LAST {
        let patch = json!([{ "op": "replace", "path": "", "value": number }]);
        let wish = SettingsChange::new(run, patch).request(format!("r-{number}"));
        let made = workflows.change_settings(&wish).unwrap().value;
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.join("changes.log"))
            .unwrap();
        file.write_all(format!("{}\n", made.change_number).as_bytes())
            .unwrap();
        // A route whose settings change more than sixteen times while it decides fails: it may decide in between.
        if number % 8 == 0 {
            workflows
                .wait_for(run, LONG, |view| {
                    let read = view
                        .steps
                        .iter()
                        .rev()
                        .find_map(|step| step.settings.as_ref());
                    view.status.is_terminal()
                        || read.is_some_and(|read| made.change_number <= read.change_number)
                })
                .unwrap();
        }
    }
}

/// The process that is killed. It runs only when the other test starts it.
#[test]
#[ignore = "the child of the test that kills"]
fn child() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else {
        return;
    };
    let (workflows, _scheduler, run) = open(&home);
    go_on(&home, &workflows, &run);
}

#[test]
fn a_killed_process_loses_no_change_and_makes_none_twice() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().to_owned();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    for target in [1, 9, 10, 24, 41] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "settings::kills::child",
                "--ignored",
                "--nocapture",
            ])
            .env(HOME, &home)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..6_000 {
            if target <= log(&home).len() {
                break;
            }
            CancellationSignal::never().wait(Duration::from_millis(5));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(target <= log(&home).len());
    }
    let (workflows, scheduler, run) = open(&home);
    go_on(&home, &workflows, &run);
    let view = workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed, "{:?}", view.error);
    assert_eq!(view.final_output, Some(json!(LAST)));
    let expected: Vec<u64> = (1..=LAST).collect();
    assert_eq!(log(&home), expected);
    let history = workflows.settings_history(&run, None, (0, 1_000)).unwrap();
    let changes: Vec<(u64, Value)> = history
        .changes
        .into_iter()
        .map(|change| (change.change_number, change.value))
        .collect();
    let expected: Vec<(u64, Value)> = expected
        .into_iter()
        .map(|number| (number, json!(number)))
        .collect();
    assert_eq!(changes, expected);
    // No step read settings of an earlier change than the step before it.
    let read: Vec<u64> = view
        .steps
        .iter()
        .filter_map(|step| step.settings.as_ref().map(|read| read.change_number))
        .collect();
    assert_eq!(read.len(), view.steps.len());
    assert!(read.is_sorted(), "{read:?}");
    let report = workflows.database().verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
}
