//! What a sweep costs: numbers to read, not to hold.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_workflows::SchedulerOptions;
use holdpoint_workflows::retention::KEEP_MS;
use serde_json::json;

use crate::support::{Fixture, echo};

/// Runs are made, completed and swept; how many is `HOLDPOINT_RETENTION_RUNS`, 10,000 unless it says otherwise.
#[test]
#[ignore = "a measurement: run it by name, with --nocapture"]
fn measure_a_sweep_of_many_finished_runs() {
    let count: u64 = std::env::var("HOLDPOINT_RETENTION_RUNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(10_000);
    let fixture = Fixture::new();
    let options = SchedulerOptions {
        workers: 16,
        ..SchedulerOptions::default()
    };
    let scheduler = fixture.workflows.scheduler(options).unwrap();
    let echo = echo();
    std::thread::scope(|scope| {
        for part in 0..16 {
            let (workflows, echo) = (&fixture.workflows, &echo);
            scope.spawn(move || {
                for number in (part..count).step_by(16) {
                    workflows.run(echo, json!(number)).unwrap();
                }
            });
        }
    });
    assert!(scheduler.wait_until_idle(Duration::from_mins(30)));
    scheduler.stop(Duration::from_secs(30));
    let size = |fixture: &Fixture| std::fs::metadata(fixture.store.path()).unwrap().len();
    fixture.store.clock().advance(KEEP_MS.unsigned_abs() + 1);
    let took = |since: u64| SystemClock.monotonic().0 - since;
    let since = SystemClock.monotonic().0;
    let plan = fixture.plan(fixture.now().plus(-KEEP_MS));
    let cpu_ms = || {
        let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        spent.tv_sec * 1_000 + spent.tv_nsec / 1_000_000
    };
    println!("plan of {} runs: {} ms", plan.selected_members, took(since));
    let before = size(&fixture);
    let cpu_before = cpu_ms();
    let since = SystemClock.monotonic().0;
    // From one question to the next is the time of one tree; the first one comes after the plan.
    let (mut last, mut longest) = (None, 0);
    let report = fixture
        .workflows
        .sweep(BTreeSet::new(), |_| {
            let now = SystemClock.monotonic().0;
            longest = longest.max(last.map_or(0, |last| now - last));
            last = Some(now);
            ControlFlow::Continue(())
        })
        .unwrap();
    println!(
        "sweep of {} runs: {} ms, {} of them on a processor, at most {longest} ms for one tree; {before} bytes before, {} after; {:?}",
        report.deleted.members,
        took(since),
        cpu_ms() - cpu_before,
        size(&fixture),
        report
    );
}
