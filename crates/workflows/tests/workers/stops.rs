//! Runs that are taken away from their workers: nothing of them goes on, and nothing that they say counts.

use std::time::Duration;

use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::model::{RunStatus, WorkerStatus};

use serde_json::json;

use crate::support::{Home, LONG, deaf, endless, every, is_alive, kill, manual, until};

fn pid(home: &Home, run: &RunId) -> i32 {
    let worker = home.workers(run).remove(0);
    i32::try_from(worker.pid.unwrap()).unwrap()
}

fn shell_pid(home: &Home) -> i32 {
    home.traces("pids")[0].parse().unwrap()
}

#[test]
fn edge_059_a_cancelled_run_stays_cancelled_and_its_worker_is_ended() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let run = home.workflows.run(&deaf(), home.input()).unwrap();
    until("the node hangs", || !home.traces("hangs").is_empty());
    let pid = pid(&home, &run);
    home.workflows.cancel(&Control::of(&run)).unwrap();
    until("its worker is ended", || {
        home.workers(&run)[0].finished_at.is_some()
    });
    scheduler.stop(LONG);
    assert!(!is_alive(pid));
    let view = home.workflows.view(&run).unwrap();
    assert_eq!(view.status, RunStatus::Cancelled);
    assert_eq!(view.steps.len(), 1);
    assert_eq!(home.workers(&run)[0].status, WorkerStatus::ClaimLost);
}

#[test]
fn edge_041_a_paused_run_is_executed_by_nobody_and_goes_on_where_it_was() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let run = home.workflows.run(&endless(), home.input()).unwrap();
    until("the command runs", || !home.traces("pids").is_empty());
    let (worker, command) = (pid(&home, &run), shell_pid(&home));
    home.workflows.pause(&Control::of(&run)).unwrap();
    until("its worker is ended", || {
        home.workers(&run)[0].finished_at.is_some()
    });
    assert!(!is_alive(worker));
    until("its command is ended", || !is_alive(command));
    let view = home.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.paused, view.steps.len()),
        (RunStatus::Running, true, 0)
    );
    home.workflows.resume(&Control::of(&run)).unwrap();
    until("another worker repeats the node", || {
        1 < home.traces("pids").len()
    });
    home.workflows.cancel(&Control::of(&run)).unwrap();
    scheduler.stop(LONG);
    assert_eq!(home.workers(&run).len(), 2);
}

/// The answer is accepted, a worker is about to use it, and somebody pauses the run.
#[test]
fn edge_049_an_accepted_answer_of_a_paused_run_waits_for_its_resume() {
    const UNUSED: &str = "SELECT count(*) FROM interactive_requests WHERE status = 'settled' AND consumed_at IS NULL";
    let home = Home::new();
    let run = home.run(&every(), home.input(), "honest").run_id;
    home.workflows.answer(&Answer::new(&run, json!(1))).unwrap();
    let scheduler = home.scheduler("silent");
    until("a worker is about to use it", || {
        home.workers(&run)[0].status == WorkerStatus::Ready
    });
    home.workflows.pause(&Control::of(&run)).unwrap();
    scheduler.stop(LONG);
    let paused = home.workflows.view(&run).unwrap();
    assert_eq!((paused.status, paused.paused), (RunStatus::Waiting, true));
    let scheduler = home.scheduler("honest");
    assert!(scheduler.wait_until_idle(LONG));
    let view = home.workflows.view(&run).unwrap();
    assert_eq!(
        (view.paused, view.run_revision),
        (true, paused.run_revision)
    );
    assert_eq!(home.count(UNUSED), 1);
    home.workflows.resume(&Control::of(&run)).unwrap();
    let view = home
        .workflows
        .wait_for(&run, LONG, |view| view.steps.len() == 4)
        .unwrap();
    assert_eq!(view.steps[3].result.output, Some(json!(1)));
    assert_eq!(home.count(UNUSED), 0);
    scheduler.stop(LONG);
}

#[test]
fn commands_of_a_killed_worker_are_ended_with_it() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let run = home.workflows.run(&endless(), home.input()).unwrap();
    until("the command runs", || !home.traces("pids").is_empty());
    let command = shell_pid(&home);
    kill(pid(&home, &run));
    until("its command is ended", || !is_alive(command));
    until("another worker repeats the node", || {
        1 < home.traces("pids").len()
    });
    home.workflows.cancel(&Control::of(&run)).unwrap();
    scheduler.stop(LONG);
    let workers = home.workers(&run);
    assert_eq!(workers[1].status, WorkerStatus::Crashed);
    assert_eq!(workers[1].signal.as_deref(), Some("SIGKILL"));
}

#[test]
fn a_manual_action_of_a_killed_worker_is_nobodys_guess() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let run = home.workflows.run(&manual(), home.input()).unwrap();
    until("it acts", || !home.traces("acts").is_empty());
    kill(pid(&home, &run));
    let view = home.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    assert_eq!(view.error_code.as_deref(), Some("effectAmbiguous"));
    assert_eq!(home.traces("acts").len(), 1);
}

#[test]
fn a_host_that_stops_gives_its_runs_back_and_ends_its_workers() {
    for definition in [deaf(), endless()] {
        let home = Home::new();
        let scheduler = home.scheduler("honest");
        let run = home.workflows.run(&definition, home.input()).unwrap();
        until("its node runs", || {
            !home.traces("hangs").is_empty() || !home.traces("pids").is_empty()
        });
        let pid = pid(&home, &run);
        scheduler.stop(Duration::ZERO);
        assert!(!is_alive(pid));
        let view = home.workflows.view(&run).unwrap();
        assert_eq!(view.status, RunStatus::Running);
        assert_eq!(view.error_code, None);
        let why = home.workflows.explain(&run).unwrap();
        assert_eq!(why.holder, None, "{why:?}");
        assert!(home.workers(&run)[0].finished_at.is_some());
    }
}
