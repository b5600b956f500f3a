//! A process that executes workflows is killed at random moments; whatever it had acknowledged is there, and everything goes on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdpoint_state::effects::{self, EffectState};
use holdpoint_state::{Database, Identity, Schema};
use holdpoint_workflows::commands::{Answer, Start};
use holdpoint_workflows::definition::{CancellationSignal, Definition, EffectSpec, Workflow};
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::views::{DisplayStatus, Filter};
use holdpoint_workflows::{DOMAIN, RunId, Scheduler, SchedulerOptions, Workflows};
use serde_json::{Value, json};

use crate::support::LONG;

const HOME: &str = "HOLDPOINT_CRASH_HOME";
const ROUNDS: &str = "HOLDPOINT_CRASH_ROUNDS";

fn schema() -> Schema {
    Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN]).unwrap()
}

fn append(path: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::File::open(path).map_or_else(
        |_| Vec::new(),
        |file| BufReader::new(file).lines().map(Result::unwrap).collect(),
    )
}

/// Computes, acts in both ways, asks, and acts again.
fn definition(home: &Path) -> Definition {
    let acts = |name: &str| home.join(name);
    let (manual, idempotent) = (acts("manual.log"), acts("idempotent.log"));
    Workflow::new("crash")
        .start_at("double")
        .compute("double", |ctx| Ok(ctx.input().as_i64().unwrap_or(0) * 2))
        .action("manual", EffectSpec::manual("test.manual"), move |ctx| {
            append(&manual, ctx.effect_id.unwrap());
            Ok(ctx.output::<i64>("double")? + 1)
        })
        .checkpoint("ask")
        .action(
            "idempotent",
            EffectSpec::idempotent("test.idempotent"),
            move |ctx| {
                append(&idempotent, ctx.effect_id.unwrap());
                Ok((ctx.output::<i64>("manual")?, ctx.output::<Value>("ask")?))
            },
        )
        .edge("double", "manual")
        .edge("manual", "ask")
        .edge("ask", "idempotent")
        .build()
        .unwrap()
}

/// The same, with the first act and the question in an included workflow.
fn composed(home: &Path) -> Definition {
    let acts = |name: &str| home.join(name);
    let (manual, idempotent) = (acts("manual.log"), acts("idempotent.log"));
    let inside = Workflow::new("inside")
        .start_at("manual")
        .action("manual", EffectSpec::manual("test.manual"), move |ctx| {
            append(&manual, ctx.effect_id.unwrap());
            Ok(ctx.input().as_i64().unwrap_or(0) + 1)
        })
        .checkpoint("ask")
        .compute("both", |ctx| {
            Ok((ctx.output::<i64>("manual")?, ctx.output::<Value>("ask")?))
        })
        .edge("manual", "ask")
        .edge("ask", "both")
        .exit("done", "both")
        .build()
        .unwrap();
    Workflow::new("composed")
        .start_at("double")
        .compute("double", |ctx| Ok(ctx.input().as_i64().unwrap_or(0) * 2))
        .include("inside", &inside)
        .input_map(|ctx| ctx.output::<i64>("double"))
        .action(
            "idempotent",
            EffectSpec::idempotent("test.idempotent"),
            move |ctx| {
                append(&idempotent, ctx.effect_id.unwrap());
                Ok(ctx.output::<Value>("inside")?.get("output").cloned())
            },
        )
        .edge("double", "inside")
        .edge("inside.done", "idempotent")
        .build()
        .unwrap()
}

fn open(home: &Path) -> (Workflows, Scheduler) {
    let workflows = Workflows::new(Database::open(home.join("state.sqlite"), &schema()).unwrap());
    workflows.register(&definition(home));
    workflows.register(&composed(home));
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            workers: 3,
            lease_ms: 400,
            poll_interval_ms: 20,
            ..SchedulerOptions::default()
        })
        .unwrap();
    (workflows, scheduler)
}

fn answer_all(workflows: &Workflows) -> usize {
    let filter = Filter {
        status: Some(RunStatus::Waiting),
        limit: 1_000,
        after: None,
    };
    let mut answered = 0;
    for run in workflows.list(&filter).unwrap().runs {
        if run.display_status == Some(DisplayStatus::Waiting) {
            let id = RunId::new(&run.run_id).unwrap();
            answered += usize::from(
                workflows
                    .answer(&Answer::new(&id, json!(run.run_id)).key("the answer"))
                    .is_ok(),
            );
        }
    }
    answered
}

/// The process that is killed. It runs only when the other test starts it.
#[test]
#[ignore = "the child of the crash test"]
fn child() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else {
        return;
    };
    let (workflows, _scheduler) = open(&home);
    append(&home.join("ready.log"), "ready");
    let round = std::process::id();
    for n in 0.. {
        let definition = if n % 2 == 0 {
            definition(&home)
        } else {
            composed(&home)
        };
        let start = Start::new(&definition, json!(n)).key(format!("{round}-{n}"));
        let run = workflows.start(&start).unwrap().value;
        append(&home.join("started.log"), run.as_str());
        if n % 3 == 0 {
            answer_all(&workflows);
        }
        drop(workflows.wait(&run, Duration::from_millis(5)));
    }
}

fn spawn(home: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child", "--ignored", "--nocapture"])
        .env(HOME, home)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_processes_lose_nothing_and_repeat_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let home = directory.path().to_owned();
    std::fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let rounds: u64 = std::env::var(ROUNDS)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(100);
    for round in 0..rounds {
        let ready = lines(&home.join("ready.log")).len();
        // Every third round has two processes on one store.
        let mut children: Vec<_> = (0..=usize::from(round % 3 == 0))
            .map(|_| spawn(&home))
            .collect();
        for _ in 0..1_000 {
            if ready + children.len() <= lines(&home.join("ready.log")).len() {
                break;
            }
            pause(Duration::from_millis(5));
        }
        // A spread of moments that no two rounds share: the multiplier is coprime to the modulus.
        pause(Duration::from_micros(500 + round * 7_919 % 40_000));
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    let (workflows, scheduler) = open(&home);
    loop {
        assert!(scheduler.wait_until_idle(LONG));
        // Leases of the last dead process end by themselves.
        pause(Duration::from_millis(450));
        if answer_all(&workflows) == 0
            && scheduler.wait_until_idle(LONG)
            && answer_all(&workflows) == 0
        {
            break;
        }
    }
    scheduler.stop(LONG);
    let (completed, ambiguous) = check(&workflows, &home);
    println!("{completed} runs completed, {ambiguous} wait for a review");
}

/// Waits, as nothing that could be waited for is meant: a moment to be killed at, a lease that ends by itself.
fn pause(duration: Duration) {
    CancellationSignal::never().wait(duration);
}

/// Looks at everything that is left; gives how many runs completed and how many wait for a review.
fn check(workflows: &Workflows, home: &Path) -> (usize, usize) {
    let mut acts: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines(&home.join("manual.log")) {
        *acts.entry(line).or_default() += 1;
    }
    let started: BTreeSet<String> = lines(&home.join("started.log")).into_iter().collect();
    assert!(!started.is_empty());
    let snapshot = workflows.database().snapshot().unwrap();
    let mut seen = BTreeSet::new();
    let mut after = None;
    let (mut completed, mut ambiguous) = (0, 0);
    loop {
        let page = workflows
            .list(&Filter {
                status: None,
                limit: 1_000,
                after,
            })
            .unwrap();
        for summary in page.runs {
            let id = RunId::new(&summary.run_id).unwrap();
            let view = workflows.view(&id).unwrap();
            match view.display_status {
                DisplayStatus::Completed => {
                    let number = view.input.as_i64().unwrap() * 2 + 1;
                    assert_eq!(view.final_output, Some(json!([number, summary.run_id])));
                    completed += 1;
                }
                DisplayStatus::Ambiguous => ambiguous += 1,
                other => panic!("{id} is {other:?}: {:?}", workflows.explain(&id)),
            }
            for effect in effects::of_source(&snapshot, &model::resource(&id)).unwrap() {
                if effect.effect_type != "test.manual" {
                    continue;
                }
                let count = acts.get(effect.effect_id.as_str()).copied().unwrap_or(0);
                match effect.state {
                    EffectState::Applied => assert_eq!(count, 1, "{effect:?}"),
                    EffectState::Ambiguous => assert!(count <= 1, "{effect:?}"),
                    other => panic!("{other:?}: {effect:?}"),
                }
            }
            seen.insert(summary.run_id);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(started.is_subset(&seen), "{:?}", started.difference(&seen));
    assert!(0 < completed);
    let gaps: i64 = snapshot
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM resources r
             WHERE r.revision <> (SELECT count(*) FROM events e WHERE e.resource_key = r.resource_key)",
        )
        .unwrap()
        .query_row([], |row| row.get(0))
        .unwrap();
    assert_eq!(gaps, 0);
    drop(snapshot);
    let report = workflows.database().verify().unwrap();
    assert!(report.is_clean(), "{report:?}");
    (completed, ambiguous)
}
