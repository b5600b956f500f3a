//! What the presentation costs the runs that it follows.
//!
//! `cargo bench -p holdpoint-viewer` prints how many steps a second runs of ten steps make at 1, 16 and 64 submitters, in a store without the
//! viewer's tables and in one with them, in the same run. Each submitter starts a run and waits for its end.
//!
//! Environment: `HOLDPOINT_BENCH_SECONDS` (time for each figure, default 3).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark measures real time, prints it and fails by panicking"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdpoint_state::{Database, Domain, Identity, Options, Schema};
use holdpoint_workflows::definition::{Definition, Workflow};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::json;

/// How many submitters there are.
const SUBMITTERS: [usize; 3] = [1, 16, 64];
/// The steps of a run.
const STEPS: u32 = 10;
/// The longest that a run may take.
const LIMIT: Duration = Duration::from_mins(1);

fn main() {
    let seconds = std::env::var("HOLDPOINT_BENCH_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    let duration = Duration::from_secs(seconds);
    println!("submitters   steps/s without   with the viewer   ratio");
    for submitters in SUBMITTERS {
        let without = steps_per_second(&[], submitters, duration);
        let with = steps_per_second(&[holdpoint_viewer::DOMAIN], submitters, duration);
        println!(
            "{submitters:>10}   {without:>15.0}   {with:>15.0}   {:>5.2}",
            with / without
        );
    }
}

fn definition() -> Definition {
    let mut workflow = Workflow::new("ten").start_at("step-1");
    for step in 1..=STEPS {
        let node = format!("step-{step}");
        workflow = workflow.compute(&node, move |_| Ok(json!({ "step": step })));
        if 1 < step {
            workflow = workflow.edge(format!("step-{}", step - 1), &node);
        }
    }
    workflow.build().unwrap()
}

fn steps_per_second(further: &[Domain], submitters: usize, duration: Duration) -> f64 {
    let home = tempfile::tempdir().unwrap();
    let domains = [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN];
    let domains = domains.into_iter().chain(further.iter().copied());
    let schema = Schema::compose(Identity::PI_WORKFLOWS, domains).unwrap();
    let options = Options {
        check_integrity: false,
        ..Options::default()
    };
    let db = Database::open_with(home.path().join("state.sqlite"), &schema, options).unwrap();
    let workflows = Workflows::new(db);
    let definition = definition();
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            workers: submitters,
            ..SchedulerOptions::default()
        })
        .unwrap();
    let runs = AtomicU64::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..submitters {
            scope.spawn(|| {
                while begun.elapsed() < duration {
                    let input = json!({ "run": runs.load(Ordering::Relaxed) });
                    let run = workflows.run(&definition, input).unwrap();
                    assert!(workflows.wait_for_end(&run, LIMIT).unwrap().is_some());
                    runs.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let elapsed = begun.elapsed().as_secs_f64();
    scheduler.stop(LIMIT);
    runs.load(Ordering::Relaxed) as f64 * f64::from(STEPS) / elapsed
}
