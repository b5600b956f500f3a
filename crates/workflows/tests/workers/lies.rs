//! Workers that do wrong. Each is ended for it, what it said changed nothing, and an honest worker goes on afterwards.

use holdpoint_state::effects::BackOff;
use holdpoint_workflows::definition::Definition;
use holdpoint_workflows::model::{RunStatus, WorkerStatus};
use holdpoint_workflows::views::WorkerView;
use holdpoint_workflows::{Execution, RunId};

use crate::support::{Home, LIMITS, LONG, composed, every, is_alive, options, until};

/// Lets one worker of a mode do its wrong. Gives it, and the run.
fn wrong(home: &Home, mode: &str) -> (RunId, WorkerView) {
    wrong_with(home, &every(), mode)
}

fn wrong_with(home: &Home, definition: &Definition, mode: &str) -> (RunId, WorkerView) {
    let launcher = match mode {
        "mute" => home
            .launcher(mode)
            .limited(holdpoint_workflows::WorkerLimits {
                ready_ms: 300,
                ..LIMITS
            }),
        _ => home.launcher(mode),
    };
    let scheduler = home
        .workflows
        .scheduler(holdpoint_workflows::SchedulerOptions {
            // Longer than the test: no second worker adds to what the first one did.
            back_off: BackOff {
                base_ms: 600_000,
                cap_ms: 600_000,
            },
            ..options(Execution::Processes(launcher))
        })
        .unwrap();
    let run = home.workflows.run(definition, home.input()).unwrap();
    until(mode, || {
        home.workers(&run)
            .last()
            .is_some_and(|worker| worker.finished_at.is_some())
    });
    scheduler.stop(LONG);
    (run.clone(), home.workers(&run).pop().unwrap())
}

/// An honest worker takes the run to its question.
fn goes_on(home: &Home, run: &RunId, mode: &str) {
    let view = home.workflows.view(run).unwrap();
    if view.error_code.is_some() {
        home.workflows
            .resume(&holdpoint_workflows::commands::Control::of(run))
            .unwrap();
    }
    let scheduler = home.scheduler("honest");
    let view = home.workflows.wait(run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting, "{mode}: {view:?}");
    assert_eq!(view.steps.len(), 3, "{mode}");
}

/// Each mode with a word of the diagnostic.
fn check(modes: &[(&str, &str)]) {
    for (mode, word) in modes {
        let home = Home::new();
        let (run, worker) = wrong(&home, mode);
        let diagnostic = worker.diagnostic.clone().unwrap_or_default();
        assert_eq!(worker.status, WorkerStatus::Crashed, "{mode}: {worker:?}");
        assert_eq!(
            worker.signal.as_deref(),
            Some("SIGKILL"),
            "{mode}: {worker:?}"
        );
        assert!(diagnostic.contains(word), "{mode}: {diagnostic}");
        goes_on(&home, &run, mode);
        assert_eq!(home.traces("acts").len(), 1, "{mode}");
    }
}

#[test]
fn frames_that_are_none_end_the_worker() {
    check(&[
        ("garbage", "are allowed"),
        ("text", "are allowed"),
        ("oversized", "are allowed"),
        ("not-canonical", "no canonical JSON"),
        ("unknown-member", "not known"),
        ("flood", "floods"),
    ]);
}

#[test]
fn words_of_another_worker_generation_run_or_revision_end_the_worker() {
    check(&[
        ("another-run", "another worker, generation or run"),
        ("another-epoch", "another worker, generation or run"),
        ("future-revision", "it saw revision"),
        ("old-revision", "it saw revision"),
        ("number-twice", "used a number twice"),
        ("number-skipped", "not numbered"),
    ]);
}

#[test]
fn edge_038_an_old_generation_is_refused_before_its_body_is_parsed() {
    check(&[("old-generation", "another worker, generation or run")]);
}

#[test]
fn words_out_of_order_end_the_worker() {
    check(&[
        ("unready", "ready once"),
        ("unknown-kind", "says nothing here"),
        ("twice", "says nothing here"),
        ("early-answer", "can't wait"),
        ("protected", "does not wait for a request of kind decision"),
        ("doubts", "no effect may be acting"),
    ]);
}

#[test]
fn moves_that_do_not_follow_end_the_worker() {
    check(&[
        ("unknown-node", "not known"),
        ("not-the-start", "start node"),
        ("another-plan", "not running"),
        ("wrong-route", "the route is"),
        ("wrong-visit", "this is visit 1"),
        ("completes", "the route is"),
        ("wrong-budget", "time budget"),
        ("forged-effect", "has no effect"),
    ]);
}

#[test]
fn ends_of_attempts_that_can_not_be_end_the_worker() {
    check(&[
        ("wrong-attempt", "is the present one"),
        ("wrong-type", "is the present one"),
        ("wrong-start", "is the present one"),
        ("wrong-duration", "times"),
        ("late", "times"),
        ("no-output", "exactly when it is ok"),
        ("forged-settlement", "no effect may be settled"),
        ("forged-prompt", "only an agent"),
    ]);
}

#[test]
fn results_of_effects_that_can_not_be_end_the_worker() {
    check(&[
        ("forged-result", "not settled as its attempt ended"),
        ("unsettled", "not settled as its attempt ended"),
        ("acts-without", "not settled as its attempt ended"),
    ]);
}

#[test]
fn edge_034_a_repeat_of_a_message_gets_its_answer_and_changes_nothing() {
    let home = Home::new();
    // The mode itself compares the answers.
    let (run, worker) = wrong(&home, "repeat");
    assert_eq!(worker.status, WorkerStatus::Exited, "{worker:?}");
    assert_eq!(worker.exit_code, Some(0), "{worker:?}");
    assert_eq!(worker.accepted_messages, 2);
    goes_on(&home, &run, "repeat");
}

#[test]
fn edge_034_a_second_end_of_an_attempt_is_refused() {
    let home = Home::new();
    let (run, worker) = wrong(&home, "finished-twice");
    assert_eq!(worker.status, WorkerStatus::Crashed, "{worker:?}");
    assert_eq!(
        home.count(
            "SELECT count(*) FROM worker_messages m JOIN run_workers w ON w.worker_key = m.worker_key
             WHERE m.outcome = 'rejected' AND w.generation = 1"
        ),
        1
    );
    let view = home.workflows.view(&run).unwrap();
    assert_eq!(view.steps.len(), 2);
    let scheduler = home.scheduler("honest");
    let view = home.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    // The worker that was ended had said that it acted.
    assert_eq!(home.traces("acts").len(), 0);
}

#[test]
fn edge_043_a_worker_that_advances_nothing_parks_its_run() {
    for mode in ["empty-handed", "half"] {
        let home = Home::new();
        let (run, worker) = wrong(&home, mode);
        assert_eq!(worker.exit_code, Some(0), "{mode}: {worker:?}");
        let view = home.workflows.view(&run).unwrap();
        assert_eq!(
            view.error_code.as_deref(),
            Some("runnerNoProgress"),
            "{mode}"
        );
        // Nobody takes it up, until somebody resumes it.
        let scheduler = home.scheduler("honest");
        assert!(scheduler.wait_until_idle(LONG));
        scheduler.stop(LONG);
        assert_eq!(home.workers(&run).len(), 1, "{mode}");
        goes_on(&home, &run, mode);
    }
}

#[test]
fn a_worker_that_was_never_ready_says_nothing_about_its_run() {
    for (mode, status) in [
        ("gone", WorkerStatus::Exited),
        ("aborts", WorkerStatus::Crashed),
        ("mute", WorkerStatus::TimedOut),
        ("deaf-to-signals", WorkerStatus::TimedOut),
    ] {
        let home = Home::new();
        let limits = holdpoint_workflows::WorkerLimits {
            ready_ms: 300,
            ..LIMITS
        };
        let scheduler = home
            .workflows
            .scheduler(options(Execution::Processes(
                home.launcher(mode).limited(limits),
            )))
            .unwrap();
        let run = home.workflows.run(&every(), home.input()).unwrap();
        // It is launched again, after a while.
        until(mode, || 1 < home.workers(&run).len());
        scheduler.stop(LONG);
        let worker = home.workers(&run).pop().unwrap();
        assert_eq!(worker.status, status, "{mode}: {worker:?}");
        assert_eq!(worker.pid, None, "{mode}");
        if mode == "deaf-to-signals" {
            // What it started before it was ready is ended with it.
            let said = worker.diagnostic.unwrap();
            let (_, child) = said.split_once("child ").unwrap();
            let child: i32 = child.lines().next().unwrap().parse().unwrap();
            until("its child is ended", || !is_alive(child));
        }
        goes_on(&home, &run, mode);
    }
}

#[test]
fn a_worker_that_wants_too_much_memory_ends_alone() {
    let home = Home::new();
    let limits = holdpoint_workflows::WorkerLimits {
        memory_bytes_max: Some(2 << 30),
        ..LIMITS
    };
    let scheduler = home
        .workflows
        .scheduler(options(Execution::Processes(
            home.launcher("hungry").limited(limits),
        )))
        .unwrap();
    let run = home.workflows.run(&every(), home.input()).unwrap();
    until("it is ended", || {
        home.workers(&run)
            .last()
            .is_some_and(|worker| worker.finished_at.is_some())
    });
    scheduler.stop(LONG);
    let worker = home.workers(&run).pop().unwrap();
    assert_eq!(worker.status, WorkerStatus::Crashed, "{worker:?}");
    assert_eq!(worker.signal.as_deref(), Some("SIGABRT"), "{worker:?}");
    goes_on(&home, &run, "hungry");
}

#[test]
fn a_worker_that_says_nothing_any_more_is_killed() {
    let home = Home::new();
    let (run, worker) = wrong(&home, "silent");
    assert_eq!(worker.status, WorkerStatus::TimedOut, "{worker:?}");
    assert_eq!(
        home.workflows.view(&run).unwrap().error_code.as_deref(),
        Some("runnerNoProgress")
    );
    goes_on(&home, &run, "silent");
}

#[test]
fn a_worker_that_leaves_after_it_began_is_followed_by_another() {
    let home = Home::new();
    let (run, worker) = wrong(&home, "leaves");
    assert_eq!(worker.status, WorkerStatus::Exited, "{worker:?}");
    let view = home.workflows.view(&run).unwrap();
    assert_eq!(view.error_code, None, "{worker:?}");
    goes_on(&home, &run, "leaves");
}

#[test]
fn a_program_that_can_not_be_launched_postpones_its_runs() {
    let home = Home::new();
    let nowhere = holdpoint_workflows::WorkerLauncher::new("/nowhere/at/all");
    let scheduler = home
        .workflows
        .scheduler(options(Execution::Processes(nowhere)))
        .unwrap();
    let run = home.workflows.run(&every(), home.input()).unwrap();
    until("two tries", || 1 < home.workers(&run).len());
    scheduler.stop(LONG);
    let worker = home.workers(&run).pop().unwrap();
    assert_eq!(worker.status, WorkerStatus::Crashed);
    assert!(worker.diagnostic.unwrap().contains("could not be launched"));
    goes_on(&home, &run, "nowhere");
}

#[test]
fn edge_036_a_worker_sets_a_time_budget_once_and_only_one_that_its_node_may_have() {
    check(&[
        ("budget-twice", "has its time budget already"),
        ("budget-of-another", "is not the present one"),
        ("fixed-budget", "not the one that the node declares"),
    ]);
}

/// Events belong to the steps that they are about: a worker records none beside them.
#[test]
fn edge_036_a_worker_records_no_event_of_its_own() {
    check(&[("records", "says nothing here")]);
}

#[test]
fn verdicts_about_no_candidate_end_the_worker() {
    check(&[
        ("accepts-nothing", "there is no candidate"),
        ("rejects-nothing", "there is no candidate"),
    ]);
}

#[test]
fn lies_about_settings_end_the_worker() {
    for (mode, word) in [
        ("foreign-document", "was not told of document"),
        ("foreign-mount", "there is no mount"),
        ("unsettled-by-itself", "did not change so often"),
        ("another-route", "route"),
    ] {
        let home = Home::new();
        let (run, worker) = wrong_with(&home, &composed(), mode);
        let diagnostic = worker.diagnostic.clone().unwrap_or_default();
        assert_eq!(worker.status, WorkerStatus::Crashed, "{mode}: {worker:?}");
        assert!(diagnostic.contains(word), "{mode}: {diagnostic}");
        std::fs::write(home.directory.path().join("go"), "").unwrap();
        let scheduler = home.scheduler("honest");
        let view = home.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        assert_eq!(view.status, RunStatus::Completed, "{mode}: {view:?}");
    }
}
