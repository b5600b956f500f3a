//! Follow-ups: prompts for the origin session that live as long as the run may complete.

use holdpoint_state::{Actor, Disposition};
use holdpoint_workflows::commands::{
    self, Answer, Control, PROMPT_LIMIT_BYTES, QueueFollowUp, RemoveFollowUp, Restart, Start,
};
use holdpoint_workflows::definition::{Definition, NodeError, Workflow};
use holdpoint_workflows::model::{MessageKind, RunStatus, TurnEnd};
use holdpoint_workflows::views::FollowUpDisplay;
use holdpoint_workflows::{RunId, WorkflowError};
use serde_json::json;

use crate::sessions::Origin;
use crate::support::{Fixture, LONG, person};

fn agent(name: &str) -> Actor {
    Actor::new(holdpoint_state::ActorKind::Session, name)
}

/// `ask` waits; `end` fails with the answer "fail".
fn asking() -> Definition {
    Workflow::new("asking")
        .start_at("ask")
        .checkpoint("ask")
        .compute("end", |ctx| match ctx.output::<String>("ask")?.as_str() {
            "fail" => Err(NodeError::new("as was wished")),
            answer => Ok(answer.to_owned()),
        })
        .edge("ask", "end")
        .build()
        .unwrap()
}

/// An interactive run that waits at a checkpoint.
fn waiting(fixture: &Fixture, session: &str) -> RunId {
    let scheduler = fixture.scheduler();
    let start = Start::new(&asking(), json!(null)).in_session(session);
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Waiting);
    run
}

fn complete(fixture: &Fixture, run: &RunId) {
    let scheduler = fixture.scheduler();
    fixture
        .workflows
        .answer(&Answer::new(run, json!("yes")))
        .unwrap();
    let view = fixture.workflows.wait(run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed);
}

fn statuses(fixture: &Fixture, run: &RunId) -> Vec<(String, FollowUpDisplay)> {
    let shown = fixture.workflows.follow_ups(run).unwrap();
    shown
        .into_iter()
        .map(|follow_up| (follow_up.prompt, follow_up.status))
        .collect()
}

const PENDING: &str =
    "SELECT count(*) FROM workflow_messages WHERE kind = 'followUp' AND status = 'pending'";

#[test]
fn edge_102_follow_ups_of_a_run_that_does_not_complete_are_cancelled() {
    let fixture = Fixture::new();
    for (nth, ends) in ["cancelled", "failed"].into_iter().enumerate() {
        let run = waiting(&fixture, &format!("session-{nth}"));
        for prompt in ["first", "second"] {
            fixture
                .workflows
                .queue_follow_up(&QueueFollowUp::new(&run, prompt))
                .unwrap();
        }
        assert_eq!(fixture.count(PENDING), 2);
        if ends == "cancelled" {
            fixture.workflows.cancel(&Control::of(&run)).unwrap();
        } else {
            let scheduler = fixture.scheduler();
            fixture
                .workflows
                .answer(&Answer::new(&run, json!("fail")))
                .unwrap();
            fixture.workflows.wait(&run, LONG).unwrap();
            scheduler.stop(LONG);
        }
        let shown = fixture.workflows.follow_ups(&run).unwrap();
        assert_eq!(shown.len(), 2);
        for follow_up in shown {
            assert_eq!(follow_up.status, FollowUpDisplay::Cancelled);
            assert_eq!(follow_up.reason, Some(format!("the run ended {ends}")));
        }
        assert_eq!(fixture.count(PENDING), 0);
        // Each has its own two events, and the run none of them.
        let events = "SELECT count(*) FROM events WHERE event_type = 'follow-up.cancelled'";
        assert_eq!(fixture.count(events), i64::try_from(nth).unwrap() * 2 + 2);
        let late = fixture
            .workflows
            .queue_follow_up(&QueueFollowUp::new(&run, "late"));
        assert!(
            matches!(late, Err(WorkflowError::Rejected { .. })),
            "{late:?}"
        );
    }
}

#[test]
fn edge_102_and_edge_104_follow_ups_of_a_completed_run_stay_with_it_in_order() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, "session-1");
    for prompt in ["first", "second"] {
        fixture
            .workflows
            .queue_follow_up(&QueueFollowUp::new(&run, prompt))
            .unwrap();
    }
    complete(&fixture, &run);
    let both = [
        ("first".to_owned(), FollowUpDisplay::Queued),
        ("second".to_owned(), FollowUpDisplay::Queued),
    ];
    assert_eq!(statuses(&fixture, &run), both);
    assert_eq!(fixture.count(PENDING), 2);

    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    let child = fixture
        .workflows
        .restart(&Restart::new(&run, revision).in_session("session-1"))
        .unwrap()
        .value;
    assert_eq!(statuses(&fixture, &child), []);
    fixture.workflows.cancel(&Control::of(&child)).unwrap();
    assert_eq!(statuses(&fixture, &run), both);
}

#[test]
fn edge_103_who_may_remove_a_follow_up_and_until_when() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, "session-1");
    let queue = |prompt: &str| {
        let queue = QueueFollowUp::new(&run, prompt).by(agent("ada"), "tool");
        fixture
            .workflows
            .queue_follow_up(&queue)
            .unwrap()
            .value
            .follow_up_id
    };
    let remove = |id: &str, actor: Actor, source: &str| {
        fixture.workflows.remove_follow_up(
            &RemoveFollowUp::of(id)
                .by(actor, source)
                .because("not needed"),
        )
    };
    let (own, by_person, sent) = (queue("own"), queue("by a person"), queue("sent"));
    let before = fixture.rows();
    for (actor, source) in [
        (agent("bob"), "tool"),
        (agent("ada"), "elsewhere"),
        (Actor::control("ada"), "tool"),
    ] {
        let refused = remove(&own, actor, source);
        assert!(
            matches!(refused, Err(WorkflowError::Denied { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.rows(), before);
    assert_eq!(
        remove(&own, agent("ada"), "tool").unwrap().disposition,
        Disposition::Accepted
    );
    assert_eq!(
        remove(&own, agent("ada"), "tool").unwrap().disposition,
        Disposition::Adopted
    );
    assert_eq!(
        remove(&by_person, person(), "terminal")
            .unwrap()
            .disposition,
        Disposition::Accepted
    );
    assert_eq!(
        remove(&by_person, person(), "terminal")
            .unwrap()
            .disposition,
        Disposition::Adopted
    );
    let shown = fixture.workflows.follow_ups(&run).unwrap();
    assert_eq!(shown[0].reason.as_deref(), Some("not needed"));
    assert_eq!(fixture.count(PENDING), 1);

    // A removal is no fact of the run.
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    assert_eq!(
        fixture.events(&run).len(),
        usize::try_from(revision).unwrap()
    );
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let over = remove(&sent, person(), "terminal");
    assert!(
        matches!(over, Err(WorkflowError::Conflict { .. })),
        "{over:?}"
    );
    let nobody = remove("follow-up-x", person(), "terminal");
    assert!(
        matches!(nobody, Err(WorkflowError::NoFollowUp { .. })),
        "{nobody:?}"
    );
}

#[test]
fn the_same_request_is_the_same_follow_up_and_other_facts_are_a_conflict() {
    let fixture = Fixture::new();
    let run = waiting(&fixture, "session-1");
    let first = QueueFollowUp::new(&run, "then test it")
        .key("call-1")
        .by(agent("ada"), "tool");
    let receipt = fixture.workflows.queue_follow_up(&first).unwrap();
    assert_eq!(receipt.value.order_number, 1);
    assert_eq!(
        receipt.value.follow_up_id,
        holdpoint_state::id::derived_id("follow-up", &[run.as_str(), "call-1"])
    );
    let before = fixture.rows();
    let again = fixture
        .workflows
        .queue_follow_up(&first.clone().in_session("session-1"))
        .unwrap();
    assert_eq!(
        (again.disposition, &again.value),
        (Disposition::Adopted, &receipt.value)
    );
    for other in [
        QueueFollowUp::new(&run, "then ship it")
            .key("call-1")
            .by(agent("ada"), "tool"),
        first.clone().by(agent("bob"), "tool"),
        first.clone().by(agent("ada"), "elsewhere"),
        first.clone().in_session("session-2"),
    ] {
        let conflict = fixture.workflows.queue_follow_up(&other);
        assert!(
            matches!(conflict, Err(WorkflowError::Conflict { .. })),
            "{conflict:?}"
        );
    }
    let stranger = fixture
        .workflows
        .queue_follow_up(&QueueFollowUp::new(&run, "x").in_session("session-2"));
    assert!(
        matches!(stranger, Err(WorkflowError::Rejected { .. })),
        "{stranger:?}"
    );
    for bad in [" \n", &"ä".repeat(PROMPT_LIMIT_BYTES / 2 + 1)] {
        let refused = fixture
            .workflows
            .queue_follow_up(&QueueFollowUp::new(&run, bad));
        assert!(
            matches!(refused, Err(WorkflowError::Input { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(fixture.rows(), before);
    let longest = QueueFollowUp::new(&run, "ä".repeat(PROMPT_LIMIT_BYTES / 2));
    assert_eq!(
        fixture
            .workflows
            .queue_follow_up(&longest)
            .unwrap()
            .value
            .order_number,
        2
    );
    // Also a repeat that comes when the run is over is told its receipt.
    complete(&fixture, &run);
    assert_eq!(
        fixture.workflows.queue_follow_up(&first).unwrap().value,
        receipt.value
    );
}

#[test]
fn a_run_that_does_not_go_on_or_has_no_session_takes_no_follow_up() {
    let fixture = Fixture::new();
    let headless = fixture.run(&asking(), json!(null)).run_id;
    let queued = fixture
        .workflows
        .start(&Start::new(&asking(), json!(null)).in_session("session-1"))
        .unwrap()
        .value;
    for run in [headless, queued] {
        let refused = fixture
            .workflows
            .queue_follow_up(&QueueFollowUp::new(&run, "x"));
        assert!(
            matches!(refused, Err(WorkflowError::Rejected { .. })),
            "{refused:?}"
        );
    }
    let nobody = fixture
        .workflows
        .queue_follow_up(&QueueFollowUp::new(&RunId::new("nobody").unwrap(), "x"));
    assert!(
        matches!(nobody, Err(WorkflowError::NoRun { .. })),
        "{nobody:?}"
    );
}

#[test]
fn edge_102_follow_ups_are_shown_behind_the_end_of_their_run_one_after_the_other() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut origin = Origin::new(&fixture.workflows, "session-1");
    let run = origin.start(&asking(), json!(null)).run_id;
    for prompt in ["first", "second", "third"] {
        fixture
            .workflows
            .queue_follow_up(&QueueFollowUp::new(&run, prompt))
            .unwrap();
    }
    assert_eq!(origin.show().unwrap().kind, MessageKind::Step);
    // The run goes on, so that none of them may be shown.
    assert_eq!(origin.show(), None);
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    // The runner tells the end as well, a moment after it; whoever is first does it.
    commands::tell_end(fixture.store.db(), &run).unwrap();
    assert_eq!(origin.show().unwrap().kind, MessageKind::Terminal);

    let first = origin.show_and_begin();
    assert_eq!(
        (first.kind, &first.content["prompt"]),
        (MessageKind::FollowUp, &json!("first"))
    );
    // One turn after the other, and what is shown can't be taken back, also not by a person.
    assert_eq!(origin.show(), None);
    let remove = |id: &str| {
        fixture
            .workflows
            .remove_follow_up(&RemoveFollowUp::of(id).by(person(), "terminal"))
    };
    let sent = remove(&first.source_id);
    assert!(
        matches!(sent, Err(WorkflowError::Conflict { .. })),
        "edge 103: {sent:?}"
    );
    let second = &fixture.workflows.follow_ups(&run).unwrap()[1];
    remove(&second.follow_up_id).unwrap();
    origin.end(TurnEnd::Completed);
    assert_eq!(origin.show_and_begin().content["prompt"], "third");
    origin.end(TurnEnd::Completed);
    assert_eq!(origin.show(), None);
    let seen: Vec<FollowUpDisplay> = statuses(&fixture, &run)
        .into_iter()
        .map(|(_, status)| status)
        .collect();
    assert_eq!(
        seen,
        [
            FollowUpDisplay::Sent,
            FollowUpDisplay::Removed,
            FollowUpDisplay::Sent
        ]
    );
    scheduler.stop(LONG);
}
