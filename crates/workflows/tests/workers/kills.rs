//! Workers, hosts, and both at once are killed at any moment, over workflows with every kind of node.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::model::{RunStatus, WorkerStatus};
use holdpoint_workflows::{Execution, RunId};
use serde_json::json;

use crate::support::{
    Home, LONG, every, kill, launcher, open, open_gate, options, store, until, worker_pids,
    workflows,
};

const HOST: &str = "home=";

/// A wait of some length: where a kill falls is left to chance.
fn a_while(longest_ms: u64) {
    let chance = RandomState::new().build_hasher().finish() % longest_ms;
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(Duration::from_millis(chance));
}

/// Does what people do with a run of [`every`]: answers, opens the gate, resumes. Returns whether it is over.
fn attend(home: &Home, run: &RunId) -> bool {
    let view = home.workflows.view(run).unwrap();
    if view.status.is_terminal() {
        assert_eq!(view.status, RunStatus::Completed, "{view:?}");
        return true;
    }
    match view.error_code.as_deref() {
        Some("runnerNoProgress") => drop(home.workflows.resume(&Control::of(run))),
        Some(other) => panic!("{run} is parked with {other}"),
        None => {}
    }
    if view.status == RunStatus::Waiting
        && view
            .request
            .as_ref()
            .is_some_and(|request| request.status.as_str() == "pending")
    {
        match view
            .waiting_on
            .as_ref()
            .map(std::string::ToString::to_string)
            .as_deref()
        {
            Some("ask") => drop(home.workflows.answer(&Answer::new(run, json!("yes")))),
            Some("gate") => open_gate(home.db(), &view),
            other => panic!("{run} waits at {other:?}"),
        }
    }
    false
}

fn check_whole(home: &Home, run: &RunId) {
    let view = home.workflows.view(run).unwrap();
    let nodes: Vec<&str> = view
        .steps
        .iter()
        .map(|step| step.result.node_id.as_str())
        .collect();
    assert_eq!(nodes, ["count", "act", "sh", "ask", "gate", "agent", "end"]);
    assert_eq!(
        view.final_output,
        Some(
            json!({ "count": 7, "ask": "yes", "gate": { "opened": "by hand" }, "agent": { "said": "say 7" } })
        )
    );
    // Every act had the same name for whoever it acted on.
    let mut acts = home.traces("acts");
    acts.dedup();
    assert!(!acts.is_empty());
    for worker in home.workers(run) {
        assert!(!worker.status.is_live(), "{worker:?}");
    }
}

#[test]
fn workers_are_killed_at_any_moment() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let mut runs = Vec::new();
    for _ in 0..30 {
        runs.push(home.workflows.run(&every(), home.input()).unwrap());
        for _ in 0..2 {
            a_while(60);
            for pid in worker_pids(&home) {
                kill(pid);
            }
            for run in &runs {
                attend(&home, run);
            }
        }
    }
    for run in &runs {
        until("the run is over", || attend(&home, run));
    }
    scheduler.stop(LONG);
    for run in &runs {
        check_whole(&home, run);
    }
    let crashed = home
        .count("SELECT count(*) FROM run_workers WHERE status = 'crashed' AND signal = 'SIGKILL'");
    assert!(0 < crashed);
}

/// No test: the `main` of the hosts that are killed.
#[test]
fn host_main() {
    let Some(home) =
        std::env::args().find_map(|argument| argument.strip_prefix(HOST).map(str::to_owned))
    else {
        return;
    };
    let workflows = workflows(open(&store(Path::new(&home))));
    let scheduler = workflows
        .scheduler(options(Execution::Processes(launcher(
            "honest",
            Path::new(&home),
        ))))
        .unwrap();
    let (_keep, never) = channel::<()>();
    let _ = never.recv_timeout(LONG * 10);
    scheduler.stop(LONG);
}

fn start_host(home: &Home) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["kills::host_main", "--exact", "--nocapture"])
        .arg(format!("{HOST}{}", home.directory.path().display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn hosts_and_their_workers_are_killed_at_any_moment() {
    let home = Home::new();
    let run = home.workflows.run(&every(), home.input()).unwrap();
    for round in 0..4 {
        let mut host = start_host(&home);
        a_while(700);
        // The worker of the round is alive in one half of the cases, and must find out by itself that nobody listens.
        let workers = home.workers(&run);
        host.kill().unwrap();
        host.wait().unwrap();
        if round % 2 == 0 {
            for pid in workers.iter().filter_map(|worker| worker.pid) {
                if workers
                    .first()
                    .is_some_and(|worker| worker.pid == Some(pid) && worker.status.is_live())
                {
                    kill(i32::try_from(pid).unwrap());
                }
            }
        }
        attend(&home, &run);
    }
    let scheduler = home.scheduler("honest");
    until("the run is over", || attend(&home, &run));
    scheduler.stop(LONG);
    check_whole(&home, &run);
}

#[test]
fn a_worker_whose_host_is_killed_ends_and_shows_as_orphaned() {
    let home = Home::new();
    let run = home
        .workflows
        .run(&crate::support::endless(), home.input())
        .unwrap();
    let mut host = start_host(&home);
    until("the command runs", || !home.traces("pids").is_empty());
    let worker = home.workers(&run).remove(0);
    let pid = i32::try_from(worker.pid.unwrap()).unwrap();
    let command: i32 = home.traces("pids")[0].parse().unwrap();
    assert_eq!(worker.status, WorkerStatus::Running);
    host.kill().unwrap();
    host.wait().unwrap();
    until("the worker ends", || !crate::support::is_alive(pid));
    until("its command ends", || !crate::support::is_alive(command));
    until("its claim ends", || {
        home.workers(&run)[0].status == WorkerStatus::Orphaned
    });
    // Whoever takes the run up next writes it down.
    let scheduler = home.scheduler("honest");
    until("another worker", || 1 < home.traces("pids").len());
    home.workflows.cancel(&Control::of(&run)).unwrap();
    scheduler.stop(LONG);
    assert_eq!(home.workers(&run)[1].status, WorkerStatus::Orphaned);
    assert_eq!(
        home.count("SELECT count(*) FROM run_workers WHERE status = 'orphaned'"),
        1
    );
}
