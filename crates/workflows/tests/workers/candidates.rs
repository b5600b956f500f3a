//! Candidates for the output of an agent are looked at by worker processes: whatever a validator does, the worst is that its candidate is
//! refused.

use std::time::Duration;

use holdpoint_state::effects::BackOff;
use holdpoint_workflows::commands::{Start, Submission};
use holdpoint_workflows::model::{RunStatus, SubmissionOutcome, VALIDATION_LOST, WorkerStatus};
use holdpoint_workflows::{Execution, RunId, SchedulerOptions};
use serde_json::{Value, json};

use crate::support::{ABORTS, Home, LEAVES, LINGERS, LONG, PANICS, STOPS, options, spoken, until};

/// A run that waits for its session.
fn asked(home: &Home) -> RunId {
    let scheduler = home.scheduler("honest");
    let start = Start::new(&spoken(), home.input()).in_session("session-1");
    let run = home.workflows.start(&start).unwrap().value;
    let view = home.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Waiting, "{view:?}");
    scheduler.stop(LONG);
    run
}

fn submission(run: &RunId, value: impl Into<Value>, key: &str) -> Submission {
    Submission::new(run, value.into()).key(key)
}

/// What became of a candidate, as a repeat of it hears.
fn verdict(
    home: &Home,
    run: &RunId,
    value: impl Into<Value>,
    key: &str,
) -> (SubmissionOutcome, Option<String>) {
    let said = submission(run, value, key);
    let submitted = home.workflows.submit(&said).unwrap().value;
    (submitted.outcome, submitted.message)
}

/// Submits a candidate to workers of a mode and waits for what they say.
fn judged(home: &Home, run: &RunId, value: i64, mode: &str) -> (SubmissionOutcome, Option<String>) {
    let scheduler = home
        .workflows
        .scheduler(SchedulerOptions {
            // Longer than the test: no second worker adds to what the first one did.
            back_off: BackOff {
                base_ms: 600_000,
                cap_ms: 600_000,
            },
            ..options(Execution::Processes(home.launcher(mode)))
        })
        .unwrap();
    let workers = home.workers(run).len();
    home.workflows
        .submit(&submission(run, value, mode))
        .unwrap();
    until(mode, || {
        let all = home.workers(run);
        workers < all.len() && all[0].finished_at.is_some()
    });
    scheduler.stop(LONG);
    verdict(home, run, value, mode)
}

/// The run waits as before, and an honest worker takes a good candidate.
fn goes_on(home: &Home, run: &RunId) {
    let view = home.workflows.view(run).unwrap();
    assert_eq!(view.status, RunStatus::Waiting, "{view:?}");
    assert_eq!(view.error_code, None, "{view:?}");
    assert!(view.request.is_some(), "{view:?}");
    let scheduler = home.scheduler("honest");
    home.workflows.submit(&submission(run, 21, "good")).unwrap();
    let view = home
        .workflows
        .wait_for(run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed, "{view:?}");
    assert_eq!(view.steps[0].result.output, Some(json!(42)));
    assert_eq!(view.steps.len(), 2);
}

#[test]
fn edge_063_a_validator_that_ends_its_worker_refuses_its_candidate_and_nothing_else() {
    for (value, status) in [
        (ABORTS, WorkerStatus::Crashed),
        (LEAVES, WorkerStatus::Exited),
        (STOPS, WorkerStatus::TimedOut),
    ] {
        let home = Home::new();
        let run = asked(&home);
        let before = home.workflows.view(&run).unwrap().request;
        let (outcome, message) = judged(&home, &run, value, "honest");
        assert_eq!(outcome, SubmissionOutcome::Rejected, "{value}");
        assert_eq!(message.as_deref(), Some(VALIDATION_LOST), "{value}");
        let worker = home.workers(&run).remove(0);
        assert_eq!(worker.status, status, "{value}: {worker:?}");
        assert_eq!(home.traces("looks"), [worker.pid.unwrap().to_string()]);
        let mut request = home.workflows.view(&run).unwrap().request;
        let refused = request.as_mut().and_then(|request| request.refused.take());
        assert_eq!(refused.as_deref(), Some(VALIDATION_LOST));
        assert_eq!(request, before);
        goes_on(&home, &run);
    }
}

#[test]
fn a_validator_that_panics_refuses_its_candidate_with_the_reason() {
    let home = Home::new();
    let run = asked(&home);
    let (outcome, message) = judged(&home, &run, PANICS, "honest");
    assert_eq!(outcome, SubmissionOutcome::Rejected);
    assert!(message.unwrap().contains("a number that nobody wants"));
    assert_eq!(home.workers(&run)[0].status, WorkerStatus::Exited);
    goes_on(&home, &run);
}

#[test]
fn a_host_that_stops_leaves_its_candidate_to_the_next_one() {
    let home = Home::new();
    let run = asked(&home);
    let scheduler = home.scheduler("honest");
    home.workflows
        .submit(&submission(&run, LINGERS, "slow"))
        .unwrap();
    until("somebody looks", || home.traces("looks").len() == 1);
    assert_eq!(home.workers(&run)[0].status, WorkerStatus::Ready);
    scheduler.stop(Duration::ZERO);
    let (outcome, _) = verdict(&home, &run, LINGERS, "slow");
    assert_eq!(outcome, SubmissionOutcome::Validating);
    std::fs::write(home.directory.path().join("go"), "").unwrap();
    let scheduler = home.scheduler("honest");
    let view = home
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.steps[0].result.output, Some(json!(2 * LINGERS)));
}

/// Each mode with a word of the diagnostic. None of them may settle the request.
#[test]
fn lies_about_a_candidate_end_the_worker_and_refuse_the_candidate() {
    for (mode, word) in [
        ("accepts-a-failure", "with a value"),
        ("accepts-with-a-receipt", "nothing beside it"),
        ("accepts-for-another-attempt", "is the present one"),
        ("accepts-and-completes", "route"),
        ("begins-over-a-candidate", "says nothing here"),
        ("hands-a-candidate-over", "says nothing here"),
    ] {
        let home = Home::new();
        let run = asked(&home);
        let (outcome, message) = judged(&home, &run, 1, mode);
        let worker = home.workers(&run).remove(0);
        let diagnostic = worker.diagnostic.clone().unwrap_or_default();
        assert_eq!(outcome, SubmissionOutcome::Rejected, "{mode}: {worker:?}");
        assert_eq!(message.as_deref(), Some(VALIDATION_LOST), "{mode}");
        assert_eq!(worker.status, WorkerStatus::Crashed, "{mode}: {worker:?}");
        assert_eq!(worker.accepted_messages, 0, "{mode}");
        assert!(diagnostic.contains(word), "{mode}: {diagnostic}");
        goes_on(&home, &run);
    }
}

/// A worker that was never ready did not see the candidate: another one looks at it.
#[test]
fn a_worker_that_was_never_ready_says_nothing_about_a_candidate() {
    let home = Home::new();
    let run = asked(&home);
    let (outcome, _) = judged(&home, &run, 21, "aborts");
    assert_eq!(outcome, SubmissionOutcome::Validating);
    let scheduler = home.scheduler("honest");
    let view = home
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.steps[0].result.output, Some(json!(42)));
}
