//! What a session shows: order and eligibility of messages, the branch as the only proof, and the ends of runs.

use std::sync::Arc;

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Outcome};
use holdpoint_workflows::commands::{
    self, Control, FinishedAttempt, Move, Restart, Start, TurnReport,
};
use holdpoint_workflows::definition::{
    CustomNode, NodeContext, NodeError, NodeKind, NodeStep, NotificationKind, Park, Workflow,
};
use holdpoint_workflows::model::{MessageKind, MessageStatus, RunStatus, TurnEnd};
use holdpoint_workflows::routing::{NodeOutcome, NodeResult};
use holdpoint_workflows::views::DisplayStatus;
use holdpoint_workflows::{DOMAIN, WorkflowError, Workflows};
use serde_json::{Value, json};

use super::{Origin, naming};
use crate::support::{Fixture, LONG, echo, host};
use crate::views::damage;

/// Parks as a decision that the counter's domain makes.
struct Deciding;

impl CustomNode for Deciding {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }
    fn snapshot(&self) -> Value {
        json!("deciding")
    }
    fn execute(&self, _: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(
            Park::new(json!({ "choices": ["yes", "no"] })).decision(),
        ))
    }
}

#[test]
fn edge_081_a_message_that_may_not_be_shown_holds_back_none_behind_it() {
    let store = TestStore::new([counter::DOMAIN, DOMAIN]).unwrap();
    counter::create(store.db(), "c").unwrap();
    let fixture = Fixture {
        workflows: Workflows::new(store.db().clone()),
        store,
        expects_damage: false,
    };
    let definition = Workflow::new("deciding")
        .start_at("decide")
        .node("decide", NodeKind::Custom(Arc::new(Deciding)))
        .notify("tell", NotificationKind::Progress, |_| {
            Ok("decided".to_owned())
        })
        .checkpoint("ask")
        .edge("decide", "tell")
        .edge("tell", "ask")
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let view = origin.start(&definition, json!(null));
    let decision = origin.connection().next_message().unwrap().unwrap();
    assert_eq!(
        (decision.kind, decision.order_number),
        (MessageKind::Decision, 1)
    );
    let (run, request) = (view.run_id.clone(), view.request.unwrap().request_id);
    assert_eq!(decision.source_id, request);
    let settled = run.clone();
    fixture
        .store
        .db()
        .commit(
            Command::new(&counter::ADD, counter::resource("c")).by(Actor::host("c")),
            move |change| {
                counter::increase(change, 1)?;
                commands::settle(change, &settled, &request, ("k", &json!("yes")))?;
                Ok::<_, WorkflowError>(Outcome::Accepted(()))
            },
        )
        .unwrap();
    fixture
        .workflows
        .wait_for(&run, LONG, |view| {
            view.steps.len() == 2 && view.status == RunStatus::Waiting
        })
        .unwrap();
    let told = origin.show().unwrap();
    assert_eq!(
        (told.kind, told.order_number),
        (MessageKind::Notification, 2)
    );
    assert_eq!(told.content["text"], "decided");
    let asked = origin.show().unwrap();
    assert_eq!((asked.kind, asked.order_number), (MessageKind::Step, 3));
    // None of them begins a turn but the one that asks.
    let turn = holdpoint_workflows::commands::TurnStart {
        turn: "t".to_owned(),
        message: told.message_id,
        run: run.clone(),
    };
    let refused = origin.connection().start_turn(&turn);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    assert_eq!(origin.begin(&asked), TurnReport::Noted);
    let orders: Vec<_> = fixture
        .workflows
        .messages(&run)
        .unwrap()
        .iter()
        .map(|message| (message.order_number, message.status))
        .collect();
    assert_eq!(
        orders,
        [
            (1, MessageStatus::Cancelled),
            (2, MessageStatus::Sent),
            (3, MessageStatus::Sent)
        ]
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_082_a_cancelled_message_on_the_branch_is_sent_and_no_prompt() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    let old = origin.add_next().unwrap();
    fixture.workflows.pause(&Control::of(&run)).unwrap();
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(origin.report(false).sent, 1);
    let told = &fixture.workflows.messages(&run).unwrap()[0];
    assert_eq!(
        (told.status, told.entry_id.as_deref()),
        (MessageStatus::Sent, Some("s-entry-1"))
    );
    assert_eq!(origin.begin(&old), TurnReport::Absent);
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_turns"), 0);
    let new = origin.show_and_begin();
    assert_eq!(new.content["reason"], "resumed");
    scheduler.stop(LONG);
}

#[test]
fn edge_083_a_message_that_left_the_branch_is_shown_again_once() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    origin.show_and_begin();
    origin.end(TurnEnd::Completed);
    let kept = origin.branch.clone();
    origin.branch.clear();
    assert_eq!(origin.report(true).replaced, 1);
    assert_eq!(origin.report(true).replaced, 0);
    let view = fixture.workflows.view(&run).unwrap();
    assert_eq!(view.request.unwrap().revision, 1);
    // Back on the old branch, the replacement is only one more message to show.
    origin.branch = kept;
    assert_eq!(origin.report(true).replaced, 0);
    let second = origin.show().unwrap();
    assert_eq!(second.content["reason"], "resumed");
    // Both are lost: that is another loss, and another message.
    origin.branch.clear();
    assert_eq!(origin.report(true).replaced, 1);
    assert_eq!(origin.report(true).replaced, 0);
    assert_eq!(fixture.workflows.messages(&run).unwrap().len(), 3);
    scheduler.stop(LONG);
}

#[test]
fn edge_084_a_session_that_is_not_idle_proves_nothing_by_absence() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    origin.start(&naming(), json!("Ada"));
    origin.show_and_begin();
    origin.branch.clear();
    for (is_idle, has_pending) in [(false, false), (false, true), (true, true)] {
        let reported = origin.try_report(is_idle, has_pending).unwrap();
        assert_eq!((reported.replaced, reported.lost_turns), (0, 0));
    }
    let reported = origin.try_report(true, false).unwrap();
    assert_eq!((reported.replaced, reported.lost_turns), (1, 1));
    scheduler.stop(LONG);
}

#[test]
fn a_branch_report_is_checked_before_anything_is_noted() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let mut other = Origin::new(&fixture.workflows, "other");
    origin.start(&naming(), json!("Ada"));
    other.start(&naming(), json!("Eve"));
    let ours = origin.add_next().unwrap();
    let theirs = other.connection().next_message().unwrap().unwrap();
    for wrong in [theirs.message_id.as_str(), "workflow-message-0"] {
        origin.put(wrong);
        let refused = origin.try_report(false, false);
        assert!(
            matches!(refused, Err(WorkflowError::NoMessage { .. })),
            "{refused:?}"
        );
        origin.branch.pop();
    }
    assert_eq!(
        fixture.count("SELECT count(*) FROM workflow_messages WHERE status = 'sent'"),
        0
    );
    assert_eq!(origin.report(false).sent, 1);
    // The same message has one entry, for ever.
    origin.branch = vec![(ours.message_id, "elsewhere".to_owned())];
    let refused = origin.try_report(false, false);
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
    assert!(other.show().is_some());
    scheduler.stop(LONG);
}

#[test]
fn an_end_is_shown_until_a_minute_after_its_message() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&echo(), json!({ "n": 1 })).run_id;
    let view = |origin: &Origin| {
        // The scheduler tells an end right after it is committed, and so does this; whoever is first.
        origin.workflows.look_after_sessions();
        let session = origin.workflows.session("s");
        session
            .terminal_view()
            .unwrap()
            .map(|view| (view.run_id, view.until.is_some()))
    };
    fixture.store.clock().advance(86_400_000);
    assert_eq!(view(&origin), Some((run.clone(), false)));
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    let message = origin.show().unwrap();
    assert_eq!(message.content["schema"], "pi-workflows.terminal-result.v1");
    assert_eq!(message.content["output"], json!({ "n": 1 }));
    assert_eq!(message.content["status"], "completed");
    assert_eq!(message.source_id, format!("terminal:{run}"));
    // Showing it changes the run no more.
    assert_eq!(fixture.workflows.view(&run).unwrap().run_revision, revision);
    fixture.store.clock().advance(59_999);
    assert_eq!(view(&origin), Some((run.clone(), true)));
    fixture.store.clock().advance(1);
    assert_eq!(view(&origin), None);

    let second = origin.start(&echo(), json!(2)).run_id;
    assert_eq!(view(&origin), Some((second.clone(), false)));
    let session = fixture.workflows.session("s");
    let foreign = fixture
        .workflows
        .session("other")
        .clear_terminal_view(&second, Actor::human("test"));
    assert!(
        matches!(foreign, Err(WorkflowError::NoRun { .. })),
        "{foreign:?}"
    );
    session
        .clear_terminal_view(&second, Actor::human("test"))
        .unwrap();
    assert_eq!(view(&origin), None);
    let open = origin.start(&naming(), json!("Ada")).run_id;
    let early = session.clear_terminal_view(&open, Actor::human("test"));
    assert!(
        matches!(early, Err(WorkflowError::Rejected { .. })),
        "{early:?}"
    );
    scheduler.stop(LONG);
}

#[test]
fn edge_089_an_end_that_can_not_be_told_stays_the_end() {
    let fixture = Fixture::new();
    let start = Start::new(&echo(), json!(1)).in_session("s");
    let run = fixture.workflows.start(&start).unwrap().value;
    let claimed = fixture.claim_first(&echo(), &run, &host());
    let commands::Claimed::Owned { claim, advanced } = claimed else {
        panic!("it is owned");
    };
    let at = advanced.started_at.unwrap().0;
    let ended = NodeResult {
        attempt_id: "attempt-1".parse().unwrap(),
        node_id: "echo".parse().unwrap(),
        node_type: "compute".to_owned(),
        outcome: NodeOutcome::Ok,
        started_at: at,
        finished_at: at,
        duration_ms: 0,
        output: Some(json!(1)),
        error: None,
        receipt: None,
    };
    let finished = FinishedAttempt::new(ended, None).unwrap();
    commands::advance(
        fixture.store.db(),
        &claim,
        &echo(),
        Some(finished),
        Move::Complete,
    )
    .unwrap();
    // A text, which no output is.
    let reason = Control::of(&fixture.workflows.run(&echo(), json!(2)).unwrap()).because("a text");
    fixture.workflows.cancel(&reason).unwrap();
    // lint:allow(sql-in-test): the test makes the damage that the message meets; no command can.
    let damaged = "UPDATE runs SET final_output_digest = NULL, final_output = NULL,
             final_output_hash = (SELECT blob_hash FROM blobs WHERE media_type = 'text/plain' LIMIT 1)
         WHERE status = 'completed'";
    damage(&fixture, &run, damaged);
    assert!(commands::tell_end(fixture.store.db(), &run).is_err());
    fixture.workflows.look_after_sessions();
    let mut origin = Origin::new(&fixture.workflows, "s");
    assert_eq!(origin.connection().next_message().unwrap(), None);
    assert_eq!(
        fixture.workflows.view(&run).unwrap().status,
        RunStatus::Completed
    );
    // lint:allow(sql-in-test): the repair of the damage above.
    damage(
        &fixture,
        &run,
        "UPDATE runs SET final_output_digest = input_digest, final_output = input, final_output_hash = NULL
         WHERE status = 'completed'",
    );
    fixture.workflows.look_after_sessions();
    assert_eq!(origin.show().unwrap().content["output"], 1);
    assert!(!commands::tell_end(fixture.store.db(), &run).unwrap());
    fixture.workflows.look_after_sessions();
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_messages"), 1);
}

#[test]
fn edge_090_the_end_of_a_headless_run_is_told_to_nobody() {
    let fixture = Fixture::new();
    fixture.run(&echo(), json!(1));
    fixture.workflows.look_after_sessions();
    assert_eq!(fixture.count("SELECT count(*) FROM workflow_messages"), 0);
    assert_eq!(
        fixture.count("SELECT count(*) FROM run_bindings WHERE owes_terminal_message = 1"),
        0
    );
}

#[test]
fn every_end_leaves_nothing_to_show_but_what_was_told() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let run = origin.start(&naming(), json!("Ada")).run_id;
    fixture
        .workflows
        .cancel(&Control::of(&run).because("enough"))
        .unwrap();
    let end = origin.show().unwrap();
    assert_eq!(
        (end.kind, end.content["error"].as_str()),
        (MessageKind::Terminal, Some("enough"))
    );
    assert_eq!(origin.connection().next_message().unwrap(), None);
    // The session is free again.
    let next = origin.start(&naming(), json!("Eve"));
    assert_eq!(next.display_status, DisplayStatus::Waiting);
    scheduler.stop(LONG);
}

#[test]
fn the_end_of_a_restart_tells_the_ends_before_it() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "s");
    let first = origin.start(&naming(), json!("Ada")).run_id;
    fixture.workflows.cancel(&Control::of(&first)).unwrap();
    origin.show().unwrap();
    // What a session shows moves no revision, so that what a person saw is still the run's.
    let revision = fixture.workflows.view(&first).unwrap().run_revision;
    let restart = Restart::new(&first, revision).in_session("s");
    let second = fixture.workflows.restart(&restart).unwrap().value;
    fixture.workflows.wait(&second, LONG).unwrap();
    fixture.workflows.cancel(&Control::of(&second)).unwrap();
    let end = origin.show().unwrap();
    assert_eq!(end.run_id, second);
    assert_eq!(end.content["restartNumber"], 1);
    assert_eq!(
        end.content["earlier"],
        json!([{ "runId": first, "status": "cancelled" }])
    );
    assert_eq!(end.content["fingerprint"].as_str().map(str::len), Some(64));
    scheduler.stop(LONG);
}
