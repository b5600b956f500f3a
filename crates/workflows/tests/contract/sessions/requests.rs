//! Requests of agents: candidates and their verdicts, visible texts, pauses, and what survives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdpoint_state::Digest;
use holdpoint_workflows::commands::{self, Answer, AssistantText, Control, Validating};
use holdpoint_workflows::definition::{Definition, SourceIdentity};
use holdpoint_workflows::model::{
    MessageStatus, RequestStatus, RunStatus, SubmissionOutcome, TurnEnd,
};
use holdpoint_workflows::{SchedulerOptions, SourceResolver, Unresolved, WorkflowError, Workflows};
use serde_json::json;

use super::{Origin, naming, saying};
use crate::support::{Fixture, LONG, host};

const LOST: &str = "the runner ended before validation finished; submit it again";

fn is_conflict<T: std::fmt::Debug>(result: &Result<T, WorkflowError>) -> bool {
    matches!(result, Err(WorkflowError::Conflict { .. }))
}

#[test]
fn edge_053_a_resume_asks_a_model_again_once() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let first = origin.connection().next_message().unwrap().unwrap();
    assert_eq!(first.content["reason"], "initial");
    let control = Control::of(&run);
    fixture.workflows.pause(&control).unwrap();
    assert_eq!(origin.connection().next_message().unwrap(), None);
    for is_repeat in [false, true] {
        let resumed = fixture.workflows.resume(&control);
        assert_eq!(resumed.is_err(), is_repeat, "{resumed:?}");
        let messages = fixture.workflows.messages(&run).unwrap();
        let told: Vec<_> = messages
            .iter()
            .map(|message| (message.status, message.content["reason"].as_str().unwrap()))
            .collect();
        assert_eq!(
            told,
            [
                (MessageStatus::Cancelled, "initial"),
                (MessageStatus::Pending, "resumed")
            ]
        );
        let request = fixture.workflows.view(&run).unwrap().request.unwrap();
        assert_eq!(
            (request.status, request.revision),
            (RequestStatus::Pending, 2)
        );
    }
    let second = origin.show_and_begin();
    assert_eq!(second.content["requestRevision"], 2);
    // What a model saw before the pause is no longer current.
    let stale = fixture
        .workflows
        .submit(&origin.submission(&run, json!(1), "old").expecting(1));
    assert!(is_conflict(&stale), "{stale:?}");
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        view.status_detail.as_deref(),
        Some("waiting for origin-session input")
    );
    assert_eq!(
        origin.submit(&run, json!(2), "new").outcome,
        SubmissionOutcome::Accepted
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_060_a_repeated_candidate_gets_what_became_of_it() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    origin.submit(&run, json!("x"), "bad");
    origin.submit(&run, json!(3), "good");
    fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    for (value, key, outcome) in [
        (json!("x"), "bad", SubmissionOutcome::Rejected),
        (json!(3), "good", SubmissionOutcome::Accepted),
    ] {
        let before = fixture.rows();
        let again = fixture
            .workflows
            .submit(&origin.submission(&run, value, key))
            .unwrap();
        assert!(!again.is_accepted());
        assert_eq!(again.value.outcome, outcome);
        assert_eq!(
            again.value.message.is_some(),
            outcome == SubmissionOutcome::Rejected
        );
        assert_eq!(fixture.rows(), before);
        let other = fixture
            .workflows
            .submit(&origin.submission(&run, json!("other"), key));
        assert!(is_conflict(&other), "{other:?}");
    }
    scheduler.stop(LONG);
}

#[test]
fn edge_061_one_candidate_is_looked_at_at_a_time() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let first = fixture
        .workflows
        .submit(&origin.submission(&run, json!(1), "a"))
        .unwrap();
    assert_eq!(first.value.outcome, SubmissionOutcome::Validating);
    let second = fixture
        .workflows
        .submit(&origin.submission(&run, json!(2), "b"));
    assert!(is_conflict(&second), "{second:?}");
    assert_eq!(
        fixture.count("SELECT count(*) FROM interactive_submissions"),
        1
    );
}

#[test]
fn edge_062_a_refused_candidate_can_be_corrected() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let before = fixture.workflows.view(&run).unwrap();
    let verdict = origin.submit(&run, json!("twelve"), "a");
    assert_eq!(verdict.outcome, SubmissionOutcome::Rejected);
    assert_eq!(verdict.message.as_deref(), Some("Error: that is no number"));
    let view = fixture.workflows.view(&run).unwrap();
    let mut request = view.request.clone().unwrap();
    // Whoever asks sees why, also without the key of the candidate.
    assert_eq!(
        request.refused.take().as_deref(),
        Some("Error: that is no number")
    );
    assert_eq!(Some(request), before.request);
    assert_eq!(
        fixture
            .workflows
            .explain(&run)
            .unwrap()
            .last_error
            .as_deref(),
        Some("the latest candidate was refused: Error: that is no number")
    );
    assert_eq!(
        view.status_detail.as_deref(),
        Some("Error: that is no number")
    );
    assert_eq!(fixture.workflows.messages(&run).unwrap().len(), 1);
    // JSON is found in what a model wrote around it.
    let verdict = origin.submit(&run, json!("Here you are:\n```json\n12\n```"), "b");
    assert_eq!(verdict.outcome, SubmissionOutcome::Accepted);
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    assert_eq!(view.final_output, Some(json!({ "number": 12 })));
    // It is the attempt that waited.
    assert_eq!(
        Some(&view.steps[0].result.attempt_id),
        before.current_attempt_id.as_ref()
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_063_a_candidate_of_a_lost_runner_is_refused() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let submitted = fixture
        .workflows
        .submit(&origin.submission(&run, json!(1), "a"))
        .unwrap();
    let claimed = commands::begin_validation(
        fixture.store.db(),
        &run,
        submitted.revision,
        (&host(), 30_000),
    );
    assert!(matches!(claimed.unwrap().value, Validating::Owned(_)));
    // The runner is killed; its lease ends.
    fixture.store.clock().advance(30_000);
    let scheduler = fixture.scheduler();
    let verdict = fixture
        .workflows
        .wait_for_verdict(&run, &submitted.value.submission_id, LONG)
        .unwrap();
    assert_eq!(
        (verdict.outcome, verdict.message.as_deref()),
        (SubmissionOutcome::Rejected, Some(LOST))
    );
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(
        (view.status, view.queue_status.as_str()),
        (RunStatus::Waiting, "parked")
    );
    assert_eq!(view.request.unwrap().revision, 1);
    assert_eq!(
        origin.submit(&run, json!(1), "b").outcome,
        SubmissionOutcome::Accepted
    );
    scheduler.stop(LONG);
}

#[test]
fn a_pause_keeps_a_candidate_until_the_resume() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let submitted = fixture
        .workflows
        .submit(&origin.submission(&run, json!(1), "a"))
        .unwrap();
    let claimed = commands::begin_validation(
        fixture.store.db(),
        &run,
        submitted.revision,
        (&host(), 30_000),
    );
    let Validating::Owned(claim) = claimed.unwrap().value else {
        panic!("somebody looked before");
    };
    let control = Control::of(&run).foreign_claim(commands::ForeignClaim::TakeOver);
    fixture.workflows.pause(&control).unwrap();
    // The runner that looked finds out that it is too late.
    let late = commands::reject_candidate(fixture.store.db(), &claim, "too late");
    assert!(late.unwrap_err().is_claim_lost());
    // While it is paused a new candidate is a conflict, and a repeat is not.
    let new = fixture
        .workflows
        .submit(&origin.submission(&run, json!(2), "b"));
    assert!(is_conflict(&new), "{new:?}");
    let again = fixture
        .workflows
        .submit(&origin.submission(&run, json!(1), "a"))
        .unwrap();
    assert_eq!(again.value.outcome, SubmissionOutcome::Validating);

    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    assert_eq!(view.final_output, Some(json!({ "number": 1 })));
    fixture.workflows.look_after_sessions();
    // The question that the resume asked again is not shown any more.
    let shown = origin.connection().next_message().unwrap().unwrap();
    assert_eq!(shown.kind.as_str(), "terminal");
    scheduler.stop(LONG);
}

/// Knows one definition, until its source changes.
struct Changing {
    definition: Definition,
    changed: AtomicBool,
}

impl SourceResolver for Changing {
    fn resolve(&self, _: &SourceIdentity, _: Digest) -> Result<Definition, Unresolved> {
        if self.changed.load(Ordering::SeqCst) {
            return Err(Unresolved::Changed {
                detail: "it was edited".to_owned(),
                digest: None,
            });
        }
        Ok(self.definition.clone())
    }

    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved> {
        Ok((self.definition.clone(), source.clone()))
    }
}

#[test]
fn a_source_that_changed_refuses_the_candidate_and_keeps_the_request() {
    let fixture = Fixture::new();
    let resolver = Arc::new(Changing {
        definition: naming(),
        changed: AtomicBool::new(false),
    });
    let workflows = Workflows::new(fixture.store.db().clone())
        .resolving_with(Arc::clone(&resolver) as Arc<dyn SourceResolver>);
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let origin = Origin::new(&workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    resolver.changed.store(true, Ordering::SeqCst);
    let verdict = origin.submit(&run, json!(1), "a");
    assert_eq!(
        (verdict.outcome, verdict.message.as_deref()),
        (SubmissionOutcome::Rejected, Some(LOST))
    );
    let view = workflows.view(&run).unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    assert_eq!(view.request.unwrap().status, RequestStatus::Pending);
    // Nobody would look at another one now.
    let refused = workflows.submit(&origin.submission(&run, json!(1), "b"));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    resolver.changed.store(false, Ordering::SeqCst);
    workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(
        origin.submit(&run, json!(1), "c").outcome,
        SubmissionOutcome::Accepted
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_065_an_answer_settles_no_request_of_an_agent() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let before = fixture.rows();
    let refused = fixture.workflows.answer(&Answer::new(&run, json!("Ada")));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(fixture.rows(), before);
}

#[test]
fn edge_032_a_text_must_not_be_blank_or_too_long() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&saying(), json!(null)).run_id;
    let before = fixture.workflows.view(&run).unwrap();
    origin.show_and_begin();
    let say = |text: &str| {
        fixture.workflows.assistant(&AssistantText::new(
            &run,
            "s",
            text,
            format!("entry-of-{text}"),
        ))
    };
    for text in ["", " \n\t", "eleven char"] {
        let refused = say(text);
        assert!(
            matches!(refused, Err(WorkflowError::Rejected { .. })),
            "{text:?}: {refused:?}"
        );
        assert_eq!(
            fixture.workflows.view(&run).unwrap().request,
            before.request
        );
    }
    // No tool completes it.
    let tool = fixture
        .workflows
        .submit(&origin.submission(&run, json!("by tool"), "t"));
    assert!(
        matches!(tool, Err(WorkflowError::Rejected { .. })),
        "{tool:?}"
    );
    let answer = fixture
        .workflows
        .answer(&Answer::new(&run, json!("by tool")));
    assert!(
        matches!(answer, Err(WorkflowError::Rejected { .. })),
        "{answer:?}"
    );
    let foreign = fixture
        .workflows
        .assistant(&AssistantText::new(&run, "other", "hello", "e"));
    assert!(
        matches!(foreign, Err(WorkflowError::NoRequest { .. })),
        "{foreign:?}"
    );

    say("ten chars!").unwrap();
    assert!(!say("ten chars!").unwrap().is_accepted());
    origin.end(TurnEnd::Completed);
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.status.is_terminal())
        .unwrap();
    assert_eq!(view.final_output, Some(json!("ten chars!")));
    let receipt = view.steps[0].receipt.clone().unwrap();
    assert_eq!(receipt["entryId"], "entry-of-ten chars!");
    assert_eq!(receipt["maxChars"], 10);
    assert_eq!(receipt["foundByRecovery"], false);
    assert_eq!(receipt["textDigest"], Digest::of(b"ten chars!").to_hex());
    scheduler.stop(LONG);
}

#[test]
fn edge_070_restarts_of_the_host_ask_a_model_nothing_again() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    scheduler.stop(LONG);
    let attempt = fixture.workflows.view(&run).unwrap().current_attempt_id;
    origin.show_and_begin();
    for _ in 0..5 {
        let workflows = Workflows::new(fixture.store.open().unwrap());
        workflows.register(&naming());
        origin.move_to(&workflows);
        origin.report(false);
        let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
        assert!(scheduler.wait_until_idle(LONG));
        scheduler.stop(LONG);
        assert_eq!(origin.connection().next_message().unwrap(), None);
        assert_eq!(workflows.view(&run).unwrap().current_attempt_id, attempt);
    }
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_turns"), 1);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_messages"), 1);
    // The session is idle after the last restart: only that ends the turn.
    assert_eq!(origin.report(true).lost_turns, 1);
    let submitted = origin
        .workflows
        .submit(&origin.submission(&run, json!(1), "a"));
    assert!(submitted.unwrap().is_accepted());
}
