//! Workers that do right: what they come to is what threads come to.

use holdpoint_workflows::commands::{Answer, SettingsChange, Start, Submission};
use holdpoint_workflows::definition::Definition;
use holdpoint_workflows::model::{RunStatus, WorkerStatus};
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{Execution, RunId};
use serde_json::json;

use crate::support::{
    Home, LONG, composed, descriptors, every, open_gate, options, spoken, telling, until,
    worker_pids,
};

/// Executes [`every`] to its end, with its answers.
fn whole(home: &Home, execution: Execution) -> RunView {
    let scheduler = home.workflows.scheduler(options(execution)).unwrap();
    let run = home.workflows.run(&every(), home.input()).unwrap();
    let view = home.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.waiting_on.as_ref().unwrap().as_str(), "ask");
    assert_eq!(view.request.as_ref().unwrap().contract["request"], 7);
    home.workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let view = home.workflows.wait(&run, LONG).unwrap();
    assert_eq!(
        view.waiting_on.as_ref().unwrap().as_str(),
        "gate",
        "{view:?}"
    );
    // The host made the request of the worker's draft.
    let request = view.request.as_ref().unwrap();
    assert!(
        request.request_id.starts_with("gates-attempt-"),
        "{request:?}"
    );
    assert!(request.contract["request"]["at"].is_i64(), "{request:?}");
    open_gate(home.db(), &view);
    home.workflows.offer(&run);
    let view = home.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed, "{view:?}");
    view
}

fn events(home: &Home, run: &RunId) -> Vec<String> {
    let mut follower = home.db().follow_events(0).unwrap();
    let mut events = Vec::new();
    loop {
        let batch = follower.next_batch(0).unwrap();
        if batch.is_empty() {
            return events;
        }
        events.extend(
            batch
                .into_iter()
                .filter(|event| event.resource_key == run.as_str())
                .map(|event| event.event_type),
        );
    }
}

#[test]
fn every_kind_of_node_is_executed_in_workers_as_on_threads() {
    let (apart, within) = (Home::new(), Home::new());
    let by_workers = whole(&apart, Execution::Processes(apart.launcher("honest")));
    let by_threads = whole(&within, Execution::Threads);
    assert_eq!(by_workers.final_output, by_threads.final_output);
    assert_eq!(
        by_workers.final_output,
        Some(
            json!({ "count": 7, "ask": "yes", "gate": { "opened": "by hand" }, "agent": { "said": "say 7" } })
        )
    );
    assert_eq!(by_workers.run_title.as_deref(), Some("every kind"));
    assert_eq!(
        events(&apart, &by_workers.run_id),
        events(&within, &by_threads.run_id)
    );
    for home in [&apart, &within] {
        assert_eq!(home.count("SELECT count(*) FROM workflow_updates"), 1);
        assert_eq!(home.traces("acts").len(), 1);
        assert_eq!(home.traces("lines").len(), 1);
    }
    // Three workers, since the run waited twice; each is another process than this one, and ended by itself.
    let workers = apart.workers(&by_workers.run_id);
    let seen: Vec<_> = workers
        .iter()
        .map(|worker| (worker.status, worker.exit_code))
        .collect();
    assert_eq!(seen, [(WorkerStatus::Exited, Some(0)); 3]);
    let acted = by_workers.steps[1].result.output.clone().unwrap();
    assert_eq!(acted, json!(workers[2].pid.unwrap()));
    assert_ne!(acted, json!(std::process::id()));
    assert!(within.workers(&by_threads.run_id).is_empty());
    // Each accepted message has its answer, with the revision that it made.
    assert_eq!(
        apart.count("SELECT count(*) FROM worker_messages WHERE outcome = 'accepted'"),
        i64::try_from(
            workers
                .iter()
                .map(|worker| worker.accepted_messages)
                .sum::<u64>()
        )
        .unwrap()
    );
    let why = apart.workflows.explain(&by_workers.run_id).unwrap();
    assert_eq!(why.worker.as_ref(), workers.first());
    assert_eq!(worker_pids_of(&apart, &by_workers.run_id), 0);
}

fn worker_pids_of(home: &Home, run: &RunId) -> usize {
    let alive = worker_pids(home);
    home.workers(run)
        .iter()
        .filter_map(|worker| i32::try_from(worker.pid?).ok())
        .filter(|pid| alive.contains(pid))
        .count()
}

#[test]
fn a_route_in_a_worker_is_decided_by_the_settings_that_hold_when_it_commits() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let run = home.workflows.run(&composed(), home.input()).unwrap();
    until("the route reads", || !home.traces("routes").is_empty());
    let patch = json!([{ "op": "replace", "path": "/batch", "value": 41 }]);
    home.workflows
        .change_settings(&SettingsChange::new(&run, patch))
        .unwrap();
    std::fs::write(home.directory.path().join("go"), "").unwrap();
    let view = home.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(home.traces("routes"), ["10", "41"]);
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": 42 })),
        "{view:?}"
    );
    let nodes: Vec<&str> = view
        .steps
        .iter()
        .map(|step| step.result.node_id.as_str())
        .collect();
    assert_eq!(
        nodes,
        ["route", "plus", "plus/add", "plus/__piw_exit_done", "last"]
    );
}

#[test]
fn a_worker_shows_the_session_a_text() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let start = Start::new(&telling(), home.input()).in_session("session-1");
    let run = home.workflows.start(&start).unwrap().value;
    let view = home.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed, "{view:?}");
    assert_eq!(
        home.count("SELECT count(*) FROM workflow_messages WHERE kind = 'notification'"),
        1
    );
}

#[test]
fn what_follows_the_output_of_a_session_is_executed_in_a_worker() {
    let home = Home::new();
    let scheduler = home.scheduler("honest");
    let start = Start::new(&spoken(), home.input()).in_session("session-1");
    let run = home.workflows.start(&start).unwrap().value;
    let view = home.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.request.unwrap().contract["prompt"], "say a number");
    let submit = |value, key: &str| {
        home.workflows
            .submit(&Submission::new(&run, value).key(key))
            .unwrap();
    };
    // A candidate that is none leaves the run waiting; a worker says so and ends.
    submit(json!("no number"), "first");
    until("the candidate is refused", || {
        home.count("SELECT count(*) FROM interactive_submissions WHERE outcome = 'rejected'") == 1
    });
    submit(json!(21), "second");
    let view = home
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.steps[0].result.output, Some(json!(42)), "{view:?}");
    let workers = home.workers(&run);
    assert_eq!(workers.len(), 3);
    // The one that looked at the good candidate went on with the run; the number of the other one was none to be looked at.
    assert_eq!(home.traces("looks"), [workers[0].pid.unwrap().to_string()]);
    assert_eq!(
        (workers[1].status, workers[1].accepted_messages),
        (WorkerStatus::Exited, 1)
    );
    // The newest is first.
    assert_eq!(view.final_output, Some(json!(workers[0].pid.unwrap())));
    assert_ne!(workers[0].pid, Some(std::process::id()));
}

#[test]
fn a_worker_has_no_descriptor_but_its_own_and_an_allowed_environment() {
    let home = Home::new();
    let view = run_once(&home, &descriptors());
    let output = &view.steps[0].result.output.clone().unwrap();
    let open: Vec<&str> = output["open"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap())
        .collect();
    let home_path = home.directory.path().to_str().unwrap();
    for path in &open {
        let is_known = *path == "/dev/null"
            || path.starts_with("pipe:")
            || path.starts_with("socket:")
            || path.starts_with("/proc/");
        assert!(is_known && !path.contains(home_path), "{open:?}");
    }
    // The channel, once for reading and once for writing.
    let sockets = open.iter().filter(|path| path.starts_with("socket:"));
    assert_eq!(sockets.count(), 2, "{open:?}");
    let names = output["names"].to_string();
    assert!(
        !names.contains("CARGO") && names.contains("PATH"),
        "{names}"
    );
    // What a worker starts has none of it.
    let listed = view.steps[1].result.output.clone().unwrap().to_string();
    assert!(
        listed.contains("->") && !listed.contains("socket:"),
        "{listed}"
    );
}

fn run_once(home: &Home, definition: &Definition) -> RunView {
    let view = home.run(definition, home.input(), "honest");
    assert_eq!(view.status, RunStatus::Completed, "{view:?}");
    view
}

#[test]
fn what_authors_print_reaches_no_channel_and_is_bounded() {
    let home = Home::new();
    let view = home.run(&descriptors(), home.input(), "loud");
    assert_eq!(view.status, RunStatus::Completed, "{view:?}");
    let worker = home.workers(&view.run_id).remove(0);
    let diagnostic = worker.diagnostic.unwrap();
    assert!(diagnostic.contains("a loud worker"), "{diagnostic}");
    assert!(diagnostic.len() <= 4_096, "{}", diagnostic.len());
}
