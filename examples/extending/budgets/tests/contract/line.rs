//! Workflow runs that wait in line for units.

use std::time::Duration;

use budgets::{Limit, Name, Spend, commands};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Actor, Disposition};
use holdpoint_workflows::commands::Control;
use holdpoint_workflows::definition::{Definition, NodeKind, Workflow};
use holdpoint_workflows::model::{RunStatus, WorkerStatus};
use holdpoint_workflows::{
    Execution, Registry, RunId, Scheduler, SchedulerOptions, WorkerLauncher, Workflows, run_child,
};
use serde_json::json;

use crate::{MINUTE_MS, Result, seen};

/// A host puts an attempt of a worker process in line from the contract that comes from there, and from no other one.
#[test]
fn the_wait_is_made_again_from_its_own_contract() -> Result {
    let spend = Spend::new(&Name::new("tokens")?, 3);
    let NodeKind::Custom(kind) = NodeKind::custom(spend) else {
        return Err("not a kind of this crate".into());
    };
    assert!(kind.park_again(&kind.snapshot()).is_some());
    let greedy = json!({ "budget": "tokens", "units": 1 });
    assert!(kind.park_again(&greedy).is_none());
    Ok(())
}

const LONG: Duration = Duration::from_secs(30);

fn paying(name: &Name, units: i64) -> Result<Definition> {
    Ok(Workflow::new("paying")
        .start_at("pay")
        .node("pay", NodeKind::custom(Spend::new(name, units)))
        .build()?)
}

struct Line {
    store: TestStore,
    name: Name,
    workflows: Workflows,
    scheduler: Scheduler,
}

impl Line {
    /// A budget of 10 units a minute, and a program that executes runs.
    fn new() -> Result<Self> {
        Self::executing(Execution::Threads)
    }

    fn executing(execution: Execution) -> Result<Self> {
        let store = TestStore::new([holdpoint_workflows::DOMAIN, budgets::DOMAIN])?;
        let name = Name::new("tokens")?;
        let limit = Limit::new(10, MINUTE_MS)?;
        commands::open(store.db(), &name, limit, Actor::human("ann"))?;
        let workflows = Workflows::new(store.db().clone());
        let scheduler = workflows.scheduler(SchedulerOptions {
            execution,
            ..SchedulerOptions::default()
        })?;
        Ok(Self {
            store,
            name,
            workflows,
            scheduler,
        })
    }

    /// A run that is in line for units.
    fn queued(&self, units: i64) -> Result<RunId> {
        let run = self.workflows.run(&paying(&self.name, units)?, json!({}))?;
        let view = self.workflows.wait(&run, LONG)?;
        assert_eq!(view.status, RunStatus::Waiting);
        let detail = format!("in line for {units} units of tokens");
        assert_eq!(view.status_detail, Some(detail));
        Ok(run)
    }

    /// Serves the line; the runs that went on, all of them to their end.
    fn admit(&self) -> Result<Vec<RunId>> {
        let admitted = commands::admit(self.store.db(), &self.name, Actor::host("budgets"))?.value;
        for run in &admitted.runs {
            self.workflows.offer(run);
            assert_eq!(self.workflows.wait(run, LONG)?.status, RunStatus::Completed);
        }
        Ok(admitted.runs)
    }

    /// What is left; every rule holds.
    fn left(&self) -> Result<i64> {
        Ok(seen(&self.store, &self.name)?.0)
    }
}

#[test]
fn runs_are_served_in_their_order_as_far_as_the_window_goes() -> Result {
    let line = Line::new()?;
    let runs = [line.queued(6)?, line.queued(6)?, line.queued(1)?];
    assert_eq!(line.left()?, 10, "in line is not spent");
    assert_eq!(line.admit()?, [runs[0].clone()]);
    assert_eq!(line.left()?, 4);
    // The third would fit, and does not overtake.
    assert!(line.admit()?.is_empty());
    line.store.clock().advance(MINUTE_MS.unsigned_abs());
    assert_eq!(line.admit()?, runs[1..]);
    assert_eq!(line.left()?, 3);
    Ok(())
}

#[test]
fn serving_an_empty_line_changes_nothing() -> Result {
    let line = Line::new()?;
    let admitted = commands::admit(line.store.db(), &line.name, Actor::host("budgets"))?;
    assert_eq!(admitted.disposition, Disposition::Adopted);
    assert_eq!(seen(&line.store, &line.name)?, (10, 1));
    Ok(())
}

#[test]
fn a_run_that_was_cancelled_keeps_nobody_waiting_and_spends_nothing() -> Result {
    let line = Line::new()?;
    let runs = [line.queued(6)?, line.queued(6)?];
    line.workflows.cancel(&Control::of(&runs[0]))?;
    assert_eq!(line.admit()?, [runs[1].clone()]);
    assert_eq!(line.left()?, 4);
    Ok(())
}

#[test]
fn a_paused_run_pays_and_goes_on_when_it_is_resumed() -> Result {
    let line = Line::new()?;
    let run = line.queued(6)?;
    line.workflows.pause(&Control::of(&run))?;
    let admitted = commands::admit(line.store.db(), &line.name, Actor::host("budgets"))?;
    assert_eq!(admitted.value.runs, std::slice::from_ref(&run));
    assert!(line.scheduler.wait_until_idle(LONG));
    assert!(line.workflows.view(&run)?.paused);
    line.workflows.resume(&Control::of(&run))?;
    assert_eq!(
        line.workflows.wait(&run, LONG)?.status,
        RunStatus::Completed
    );
    assert_eq!(line.left()?, 4);
    Ok(())
}

#[test]
fn more_than_a_window_has_is_said_at_once() -> Result {
    let line = Line::new()?;
    let run = line.workflows.run(&paying(&line.name, 11)?, json!({}))?;
    line.workflows.wait(&run, LONG)?;
    let why = format!("{:?}", line.workflows.explain(&run)?);
    assert!(why.contains("11 can never be granted"), "{why}");
    // A larger budget, and the run asks again.
    let revision = seen(&line.store, &line.name)?.1;
    commands::resize(
        line.store.db(),
        &line.name,
        20,
        revision,
        Actor::human("ann"),
    )?;
    line.workflows.resume(&Control::of(&run))?;
    assert_eq!(line.workflows.wait(&run, LONG)?.status, RunStatus::Waiting);
    assert_eq!(line.admit()?, [run]);
    Ok(())
}

/// What tells a process of this binary that it is a worker.
const WORKER: &str = "as-a-worker";

/// No test: the `main` of the worker processes. Without the word it does nothing.
#[test]
fn worker_main() -> Result {
    if !std::env::args().any(|argument| argument == WORKER) {
        return Ok(());
    }
    let registry = Registry::default();
    registry.register(&paying(&Name::new("tokens")?, 6)?);
    run_child(&registry, None);
    Ok(())
}

/// The node is executed in processes that never open the store; its place in line is written by the host.
#[test]
fn a_run_in_worker_processes_waits_in_line_and_pays() -> Result {
    let launcher = WorkerLauncher::new(std::env::current_exe()?)
        .argument("line::worker_main")
        .argument("--exact")
        .argument("--nocapture")
        .argument(WORKER);
    let line = Line::executing(Execution::Processes(launcher))?;
    let runs = [line.queued(6)?, line.queued(6)?];
    assert_eq!(line.left()?, 10, "in line is not spent");
    assert_eq!(line.admit()?, [runs[0].clone()]);
    assert_eq!(line.left()?, 4);
    let why = line.workflows.explain(&runs[0])?;
    let worker = why.worker.ok_or("it was executed on a thread")?;
    assert_eq!(worker.status, WorkerStatus::Exited, "{worker:?}");
    assert_ne!(worker.pid, Some(std::process::id()));
    assert_eq!(
        line.workflows.view(&runs[1])?.status,
        RunStatus::Waiting,
        "the second one is still in line"
    );
    Ok(())
}
