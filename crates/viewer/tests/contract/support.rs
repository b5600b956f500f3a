//! What the tests share: a store with the read models, checked when the test ends, and runs of every kind of node.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_decisions::choices;
use holdpoint_decisions::model::{Block, Choice, Presentation};
use holdpoint_decisions::node::{AskPeople as _, HumanDecision};
use holdpoint_state::ActorKind;
use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::testing::TestStore;
use holdpoint_viewer::{documents, views};
use holdpoint_workflows::agents::{
    AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate,
};
use holdpoint_workflows::capture::{SessionEntry, SessionEvent, SessionEventType};
use holdpoint_workflows::commands::{self, Answer, BindSession, Start};
use holdpoint_workflows::definition::{
    CancellationSignal, Definition, EffectSpec, NotificationKind, Workflow,
};
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::shell::ShellCommand;
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{RunId, Scheduler, SchedulerOptions, Workflows};
use serde_json::{Value, json};

/// The longest that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_mins(1);
pub(crate) const RECORDER: &str = "host-1";

pub(crate) struct Fixture {
    pub(crate) workflows: Workflows,
    pub(crate) store: TestStore,
}

struct Echo;

impl AgentExecutor for Echo {
    fn execute(
        &self,
        request: &AgentRequest,
        _: &CancellationSignal,
        update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let data = json!({ "schema": "pi-workflows.progress.v1", "label": "files", "status": "running", "completed": 1, "total": 2, "unit": "files" });
        update("progress", "overall", data).unwrap();
        Ok(AgentReply {
            output: json!({ "said": request.prompt }),
            receipt: json!({}),
        })
    }
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let domains = [
            holdpoint_workflows::DOMAIN,
            holdpoint_decisions::DOMAIN,
            holdpoint_viewer::DOMAIN,
        ];
        let store = TestStore::new(domains).unwrap();
        let workflows = Workflows::new(store.db().clone()).executing_agents_with(Arc::new(Echo));
        Self { workflows, store }
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.store.clock().now()
    }

    pub(crate) fn scheduler(&self) -> Scheduler {
        let options = SchedulerOptions {
            workers: 2,
            poll_interval_ms: 50,
            ..SchedulerOptions::default()
        };
        self.workflows.scheduler(options).unwrap()
    }

    /// Runs a definition to where it stops.
    pub(crate) fn run(&self, definition: &Definition, input: impl Into<Value>) -> RunId {
        let scheduler = self.scheduler();
        let run = self.workflows.run(definition, input).unwrap();
        self.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        run
    }

    pub(crate) fn answer(&self, run: &RunId, answer: Value) -> RunView {
        let scheduler = self.scheduler();
        let answered = self.workflows.answer(&Answer::new(run, answer));
        answered.unwrap_or_else(|error| {
            panic!("{error}: {:?}", self.workflows.view(run).unwrap().error)
        });
        let view = self.workflows.wait(run, LONG).unwrap();
        scheduler.stop(LONG);
        view
    }

    pub(crate) fn in_session(&self, definition: &Definition, session: &str) -> RunId {
        let scheduler = self.scheduler();
        let start = Start::new(definition, json!(null)).in_session(session);
        let run = self.workflows.start(&start).unwrap().value;
        self.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        run
    }

    pub(crate) fn view(&self, run: &RunId) -> documents::RunView {
        let snapshot = self.store.db().snapshot().unwrap();
        views::run_view(&snapshot, run.as_str(), self.now()).unwrap()
    }

    pub(crate) fn view_json(&self, run: &RunId) -> Value {
        serde_json::to_value(self.view(run)).unwrap()
    }

    pub(crate) fn page(&self, run: &RunId, kind: documents::PageKind, cursor: u64) -> Value {
        let snapshot = self.store.db().snapshot().unwrap();
        let page = views::page(&snapshot, run.as_str(), (kind, cursor), self.now()).unwrap();
        serde_json::to_value(page).unwrap()
    }

    pub(crate) fn bind(&self, run: &RunId, key: &str) -> String {
        let bind = BindSession::new(run, key, "session-1", RECORDER);
        let bound = commands::bind_session(self.store.db(), &bind).unwrap();
        bound.value.segment_id
    }

    pub(crate) fn record(&self, segment: &str, first: i64, events: &[SessionEvent]) {
        commands::append_events(self.store.db(), segment, RECORDER, (first, events)).unwrap();
    }

    pub(crate) fn record_entries(&self, segment: &str, entries: &[SessionEntry]) {
        commands::append_entries(self.store.db(), segment, RECORDER, entries).unwrap();
    }

    /// Everything that `verify` finds.
    pub(crate) fn violations(&self) -> Vec<String> {
        let snapshot = self.store.db().snapshot().unwrap();
        let mut found = Vec::new();
        for domain in self.store.schema().domains() {
            for invariant in domain.invariants {
                let sql = snapshot.sql();
                let mut statement = sql.prepare_cached(invariant.violations).unwrap();
                let mut rows = statement.query([]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    let name: Result<String, _> = row.get(0);
                    found.push(format!("{}: {name:?}", invariant.name));
                }
            }
        }
        found
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.violations(), Vec::<String>::new());
        }
    }
}

choices! {
    /// What a person may say.
    pub(crate) enum Verdict {
        /// On.
        Go = "go" => Choice::new("Go"),
        /// Not on.
        Stop = "stop" => Choice::new("Stop"),
    }
}

/// Every kind of node that goes on by itself, an included workflow, and a checkpoint.
pub(crate) fn kinds() -> Definition {
    let inner = Workflow::new("inner")
        .input::<Value>()
        .start_at("twice")
        .compute("twice", |ctx| Ok(json!([ctx.input(), ctx.input()])))
        .exit("out", "twice")
        .build()
        .unwrap();
    Workflow::new("kinds")
        .title("Every kind")
        .start_at("plan")
        .agent("plan", |_| Ok("Plan the work".to_owned()))
        .status_detail("plans")
        .compute("count", |ctx| Ok(ctx.outputs.len()))
        .action("act", EffectSpec::idempotent("test.act"), |_| {
            Ok(json!({ "done": true }))
        })
        .shell("check", EffectSpec::idempotent("test.sh"), |_| {
            Ok(ShellCommand::new("sh").args(["-c", "echo hello"]))
        })
        .include("part", &inner)
        .checkpoint("ask")
        .summary("May it go on?")
        .compute("end", |ctx| ctx.output::<Value>("ask"))
        .edge("plan", "count")
        .edge("count", "act")
        .edge("act", "check")
        .edge("check", "part")
        .edge("part.out", "ask")
        .edge("ask", "end")
        .build()
        .unwrap()
}

/// What only a run with an origin session does: it tells the session something, and has it say something.
pub(crate) fn telling() -> Definition {
    Workflow::new("telling")
        .start_at("tell")
        .notify("tell", NotificationKind::Progress, |_| {
            Ok("half way".to_owned())
        })
        .agent("work", |_| Ok("Work on it".to_owned()))
        .assistant_message("say", None, |_| Ok("Say what was done".to_owned()))
        .edge("tell", "work")
        .edge("work", "say")
        .build()
        .unwrap()
}

/// Asks a person.
pub(crate) fn decided() -> Definition {
    let review = HumanDecision::of::<Verdict>("Ship it?")
        .to("operator")
        .showing(|_| {
            Ok(Presentation::new(
                "All is well.",
                vec![Block::paragraph("It works.")],
            )?)
        });
    Workflow::new("decided")
        .start_at("draft")
        .compute("draft", |_| Ok("notes"))
        .ask_people("review", review, |verdict| match verdict {
            Verdict::Go => "go",
            Verdict::Stop => "stop",
        })
        .compute("go", |_| Ok(1))
        .compute("stop", |_| Ok(2))
        .edge("draft", "review")
        .build()
        .unwrap()
}

/// Counts to its input in a loop of two nodes, then ends.
pub(crate) fn looping() -> Definition {
    Workflow::new("looping")
        .start_at("begin")
        .max_steps(1_000_000)
        .compute("begin", |_| Ok(0))
        .compute("count", |ctx| {
            let before = ctx
                .output::<Value>("count")
                .map_or(0, |said| said["n"].as_i64().unwrap_or(0));
            let most = ctx.input().as_i64().unwrap_or(1);
            let way = if before + 1 < most { "more" } else { "end" };
            Ok(json!({ "n": before + 1, "way": way }))
        })
        .compute("again", |_| Ok("x".repeat(20)))
        .compute("end", |_| Ok("done"))
        .edge("begin", "count")
        .switch("count", "$.way", [("more", "again"), ("end", "end")])
        .edge("again", "count")
        .build()
        .unwrap()
}

/// Has settings, and asks again and again until it is told to end: with a large output each time.
pub(crate) fn asking() -> Definition {
    let settings = Settings::new(json!({ "batch": 1 })).path(
        PathRule::new("")
            .may_read(ActorKind::ALL)
            .may_add(ActorKind::ALL)
            .may_remove(ActorKind::ALL)
            .may_replace(ActorKind::ALL),
    );
    Workflow::new("asking")
        .settings(settings)
        .max_steps(10_000)
        .start_at("start")
        .compute("start", |_| Ok(1))
        .checkpoint("ask")
        .compute("judge", |ctx| {
            let answer: Value = ctx.output("ask")?;
            let bytes = usize::try_from(answer["bytes"].as_u64().unwrap_or(0)).unwrap_or(0);
            Ok(json!({ "way": answer["way"], "text": "y".repeat(bytes) }))
        })
        .compute("end", |_| Ok("ended"))
        .edge("start", "ask")
        .edge("ask", "judge")
        .switch("judge", "$.way", [("again", "ask"), ("end", "end")])
        .build()
        .unwrap()
}

/// A turn in which an assistant says a text: seven events.
pub(crate) fn turn(n: usize, text: &str, settles_as: Option<&str>) -> Vec<SessionEvent> {
    let (turn, message) = (format!("turn-{n}"), format!("message-{n}"));
    let event = |kind, payload| {
        let mut event = SessionEvent::new(kind, payload);
        event.turn_id = Some(turn.clone());
        event
    };
    let said = |kind, payload| {
        let mut event = event(kind, payload);
        event.message_id = Some(message.clone());
        event
    };
    let tool = |kind, payload| {
        let mut event = said(kind, payload);
        event.tool_call_id = Some(format!("call-{n}"));
        event
    };
    let settled = match settles_as {
        Some(entry) => json!({ "role": "assistant", "settled": true, "entryId": entry }),
        None => json!({ "role": "assistant", "settled": false }),
    };
    vec![
        event(SessionEventType::TurnStarted, json!({ "turnIndex": n })),
        said(
            SessionEventType::MessageStarted,
            json!({ "role": "assistant" }),
        ),
        said(
            SessionEventType::AssistantEvent,
            json!({ "type": "text_delta", "contentIndex": 0, "delta": text }),
        ),
        tool(
            SessionEventType::ToolExecutionStarted,
            json!({ "toolName": "read", "args": { "n": n } }),
        ),
        tool(
            SessionEventType::ToolExecutionFinished,
            json!({ "toolName": "read", "isError": false }),
        ),
        said(SessionEventType::MessageFinished, settled),
        event(SessionEventType::TurnFinished, json!({ "turnIndex": n })),
    ]
}

pub(crate) fn entry(id: &str, text: &str) -> SessionEntry {
    SessionEntry {
        entry_id: id.to_owned(),
        content: json!({
            "id": id, "parentId": null, "type": "message",
            "message": { "role": "assistant", "content": [{ "type": "text", "text": text }] },
        }),
    }
}
