//! A store with rows in every table, in every state that a run can stand in.

mod channels;
pub(crate) mod controllers;
mod decisions;
mod session;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use holdpoint_state::clock::{ManualClock, UnixMillis};
use holdpoint_state::maintenance::retention::Taking;
use holdpoint_state::{
    Actor, Command, Database, Domain, NewEffect, Outcome, Owner, OwnerKind, OwnerScope, Payload,
    StateError,
};
use holdpoint_workflows::commands::{
    self, Answer, Claiming, Control, Move, NewAttempt, Plan, Start,
};
use holdpoint_workflows::definition::{Definition, EffectSpec, Recovery, TimeBudget, Workflow};
use holdpoint_workflows::model;
use holdpoint_workflows::{
    AttemptId, DOMAIN, Execution, NodeId, RunId, SchedulerOptions, WorkerLauncher, Workflows, file,
};
use serde_json::{Value, json};

/// The longest that anything here may take.
const LONG: Duration = Duration::from_mins(1);

/// How long a lease lasts; the clock jumps over it.
const LEASE_MS: i64 = 30_000;

const ASKS: &str = r#"{
  "name": "asks",
  "title": "Somebody is asked",
  "startAt": "ask",
  "nodes": {
    "ask": { "checkpoint": { "summary": "Go on?" } },
    "end": { "compute": { "jq": "$outputs.ask" } }
  },
  "edges": [{ "from": "ask", "to": "end" }]
}"#;

/// The domains that the product composes above the kernel.
pub(crate) fn product_domains() -> Vec<Domain> {
    let schema = holdpoint_server::schema().unwrap();
    schema
        .domains()
        .iter()
        .filter(|domain| domain.name != holdpoint_state::DOMAIN.name)
        .copied()
        .collect()
}

/// Fills every table of the product. Workflow files are written into `directory`.
pub(crate) fn fill(db: &Database, clock: &ManualClock, directory: &Path) {
    let workflows = Workflows::new(db.clone());
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            workers: 2,
            poll_interval_ms: 50,
            ..SchedulerOptions::default()
        })
        .unwrap();

    let path = directory.join("asks.workflow.json");
    std::fs::write(&path, ASKS).unwrap();
    let asks = file::read(&path).unwrap();
    let answered = workflows.run_file(&asks, json!({ "n": 1 })).unwrap();
    workflows.wait(&answered, LONG).unwrap();
    workflows
        .answer(&Answer::new(&answered, json!("yes")).key("first"))
        .unwrap();
    workflows.wait(&answered, LONG).unwrap();
    // Waits for an answer, in a session.
    let start = Start::from_source(&asks.definition, asks.source.clone(), json!(null))
        .in_session("session-1");
    let waits = workflows.start(&start).unwrap().value;
    workflows.wait(&waits, LONG).unwrap();
    let paused = workflows.run_file(&asks, json!(null)).unwrap();
    workflows.wait(&paused, LONG).unwrap();
    workflows.pause(&Control::of(&paused)).unwrap();
    let cancelled = workflows.run_file(&asks, json!(null)).unwrap();
    workflows.cancel(&Control::of(&cancelled)).unwrap();
    scheduler.stop(LONG);
    // One that a worker process took to its question.
    let program = env!("CARGO_BIN_EXE_holdpoint");
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            execution: Execution::Processes(WorkerLauncher::new(program).argument("worker")),
            ..SchedulerOptions::default()
        })
        .unwrap();
    let apart = workflows.run_file(&asks, json!(null)).unwrap();
    workflows.wait(&apart, LONG).unwrap();
    scheduler.stop(LONG);

    // An action whose runner was lost: nobody knows whether it acted.
    let acting = acting();
    let lost = workflows.run(&acting, json!(null)).unwrap();
    claim(&workflows, &acting, &lost, "attempt-lost");
    clock.advance(u64::try_from(LEASE_MS).unwrap());
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    workflows.wait(&lost, LONG).unwrap();
    scheduler.stop(LONG);
    // Another one that somebody works on, and one that nobody has begun.
    let held = workflows.run(&acting, json!(null)).unwrap();
    claim(&workflows, &acting, &held, "attempt-held");
    workflows.run(&acting, json!({ "later": true })).unwrap();

    session::fill(&workflows);
    decisions::fill(&workflows);
    channels::fill(db, directory);
    controllers::fill(db, directory);
    shared_records(db, &waits, directory);
}

fn acting() -> Definition {
    Workflow::new("acting")
        .start_at("act")
        .action("act", EffectSpec::manual("test.act"), |_| Ok(1))
        .build()
        .unwrap()
}

/// Begins the action as a runner does.
fn claim(workflows: &Workflows, definition: &Definition, run: &RunId, attempt: &str) {
    let node = NodeId::new("act").unwrap();
    let payload =
        json!({ "recovery": Recovery::Manual, "request": { "input": null, "outputs": {} } });
    let effect = NewEffect::new(
        "test.act",
        model::effect_key(run, "test.act", &node, 1),
        OwnerScope::Run,
        Payload::json(&payload).unwrap(),
    );
    let first = NewAttempt {
        attempt_id: AttemptId::new(attempt).unwrap(),
        node_id: node,
        visit: 1,
        timeout: Some(TimeBudget::Unlimited),
        effect: Some(effect),
    };
    let plan = Plan::First {
        title: None,
        next: Move::Start(first),
    };
    let revision = workflows.view(run).unwrap().run_revision;
    let claiming = Claiming {
        run: run.clone(),
        revision,
        owner: Owner::new(OwnerKind::Host, "test"),
        lease_ms: LEASE_MS,
        definition: definition.clone(),
        plan,
    };
    commands::claim(workflows.database(), claiming).unwrap();
}

/// What no verb of a workflow writes yet: a project, content that is longer than one part, and that a sweep came to its end.
fn shared_records(db: &Database, run: &RunId, directory: &Path) {
    let nothing = Taking::before(UnixMillis(0));
    db.sweep(&nothing, |_| ControlFlow::Continue(())).unwrap();
    let project = directory.to_str().unwrap().to_owned();
    let text = Payload::text("x".repeat(3_000_000)).unwrap();
    let command = Command::new(
        DOMAIN.operation("run.accept_definition").unwrap(),
        model::resource(run),
    )
    .by(Actor::human("test"));
    db.commit(command, move |change| {
        change.project(&project)?;
        change.put_blob(&text)?;
        Ok::<_, StateError>(Outcome::Refused(()))
    })
    .unwrap();
}

/// A text that lives as long as the process: what `prepare_cached` asks for, made by a test at run time.
pub(crate) fn leak(sql: String) -> &'static str {
    Box::leak(sql.into_boxed_str())
}

/// Every row of every table, as lines, so that a test can say "nothing changed" and mean it.
pub(crate) fn dump(db: &Database) -> Vec<String> {
    let snapshot = db.snapshot().unwrap();
    let mut lines = Vec::new();
    for (table, _) in db.schema().tables() {
        let sql = leak(format!("SELECT * FROM {table}"));
        let mut statement = snapshot.sql().prepare_cached(sql).unwrap();
        let columns = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<holdpoint_state::sql::Value> =
                (0..columns).map(|at| row.get(at).unwrap()).collect();
            lines.push(format!("{table} {cells:?}"));
        }
    }
    lines
}

/// Tables without a row: the test would say nothing of them.
pub(crate) fn empty_tables(db: &Database) -> Vec<String> {
    let lines = dump(db);
    db.schema()
        .tables()
        .map(|(table, _)| table.to_owned())
        .filter(|table| {
            !lines
                .iter()
                .any(|line| line.starts_with(&format!("{table} ")))
        })
        .collect()
}

/// The runs of the store.
pub(crate) fn runs(workflows: &Workflows) -> Vec<RunId> {
    let page = workflows
        .list(&holdpoint_workflows::views::Filter::default())
        .unwrap();
    page.runs
        .into_iter()
        .map(|run| RunId::new(&run.run_id).unwrap())
        .collect()
}

/// Reads a member of a JSON document as text.
pub(crate) fn is_json(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok()
}
