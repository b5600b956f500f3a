//! Rows of an interactive run: its session, its settings, what it published and what was recorded of it.

use holdpoint_state::{Actor, ActorKind};
use holdpoint_workflows::capture::{SessionEntry, SessionEvent, SessionEventType};
use holdpoint_workflows::commands::{
    self, BindSession, BranchReport, QueueFollowUp, SettingsChange, Start, TurnStart,
};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::model::EntryRole;
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::json;

use super::LONG;

/// A run whose agent is in the middle of a turn.
pub(super) fn fill(workflows: &Workflows) {
    let db = workflows.database();
    let writing = Workflow::new("writing")
        .settings(settings())
        .start_at("write")
        .agent("write", |ctx| {
            ctx.publish("progress-note", "first", &json!({ "words": 0 }))?;
            Ok("Write a word.".to_owned())
        })
        .build()
        .unwrap();
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let start = Start::new(&writing, json!(null)).in_session("writer");
    let run = workflows.start(&start).unwrap().value;
    let view = workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let attempt = view.current_attempt_id.unwrap();

    let session = workflows.session("writer").attach().unwrap();
    let message = session.next_message().unwrap().unwrap().message_id;
    let report = BranchReport {
        entries: vec![(message.clone(), "entry-1".to_owned())],
        ..BranchReport::default()
    };
    session.report_branch(&report).unwrap();
    let turn = TurnStart {
        turn: "turn-1".to_owned(),
        message,
        run: run.clone(),
    };
    session.start_turn(&turn).unwrap();

    let patch = json!([{ "op": "replace", "path": "/words", "value": 2 }]);
    workflows
        .change_settings(&SettingsChange::new(&run, patch).by(Actor::human("test")))
        .unwrap();
    let follow_up = QueueFollowUp::new(&run, "And then?").in_session("writer");
    workflows.queue_follow_up(&follow_up).unwrap();

    let binding = BindSession::new(&run, "main", "writer", "recorder").of_attempt(&attempt);
    let segment = commands::bind_session(db, &binding)
        .unwrap()
        .value
        .segment_id;
    let entry = SessionEntry {
        entry_id: "entry-1".to_owned(),
        // Too long for a document, so that one refers to it.
        content: json!({ "type": "message", "message": { "role": "user", "content": "Write a word. ".repeat(2_000) } }),
    };
    commands::append_entries(db, &segment, "recorder", &[entry]).unwrap();
    let link = (&attempt, EntryRole::First, "entry-1");
    commands::link_entry(db, &segment, "recorder", link).unwrap();
    // So many that the read model keeps a checkpoint.
    let events = vec![SessionEvent::new(SessionEventType::TurnStarted, json!({})); 256];
    commands::append_events(db, &segment, "recorder", (1, &events)).unwrap();

    // Another run of the session's past: its end was looked at and cleared.
    let telling = Workflow::new("telling")
        .start_at("tell")
        .compute("tell", |_| Ok("told"))
        .build()
        .unwrap();
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let start = Start::new(&telling, json!(null)).in_session("reader");
    let over = workflows.start(&start).unwrap().value;
    workflows.wait(&over, LONG).unwrap();
    scheduler.stop(LONG);
    let reader = workflows.session("reader");
    reader
        .clear_terminal_view(&over, Actor::human("test"))
        .unwrap();
}

fn settings() -> Settings<serde_json::Value> {
    let rule = PathRule::new("/words").may_replace(&[ActorKind::Human]);
    Settings::new(json!({ "words": 1 })).path(rule)
}
