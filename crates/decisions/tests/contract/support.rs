//! What the tests share: a store whose invariants are checked when the test ends, and a workflow that asks one decision.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{
    ChannelId, Choice, Choices, Draft, Judged, OnTimeout, Presentation, Request, Source,
    Submission, TextInput,
};
use holdpoint_decisions::{DOMAIN, DecisionError, DecisionId, views};
use holdpoint_state::clock::{Clock as _, UnixMillis};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Database, Outcome, Receipt, Snapshot};
use holdpoint_workflows::definition::{
    Asked, CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Waiting,
    Workflow,
};
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{RunId, Scheduler, SchedulerOptions, WorkflowError, Workflows};
use serde_json::{Value, json};

/// The longest that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// When the decisions of [`timed`] and [`expiring`] are due, after their creation.
pub(crate) const AFTER_MS: i64 = 600_000;

/// Makes the draft of a decision.
pub(crate) type Drafting = Arc<dyn Fn(&Waiting<'_>) -> Draft + Send + Sync>;

/// A node that asks one decision: as the kind of this crate does, and with any draft.
pub(crate) struct Gate(pub(crate) Drafting);

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "test": "gate" })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        let draft = Arc::clone(&self.0);
        Ok(NodeStep::Park(
            Park::new(json!({}))
                .decision()
                .asking(move |waiting| {
                    let request = Request::new(draft(waiting)).map_err(DecisionError::from)?;
                    Ok(Asked {
                        request_id: request.decision_id().to_string(),
                        contract: request.document(),
                    })
                })
                .beside(|change, parked| {
                    let request = Request::read(&parked.contract).map_err(|problem| {
                        WorkflowError::Input {
                            what: "request",
                            problem: format!("{problem:?}"),
                        }
                    })?;
                    commands::request_in(change, &request, parked)?;
                    Ok(())
                }),
        ))
    }
}

/// The draft that the tests begin with: `go`, or `redo` with a text.
pub(crate) fn draft(waiting: &Waiting<'_>) -> Draft {
    Draft {
        run_id: waiting.run_id.to_string(),
        workflow_name: waiting.workflow.to_owned(),
        node_id: waiting.node_id.to_string(),
        attempt_id: waiting.attempt_id.to_string(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: choices(),
        subject: json!({ "plan": "a" }),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: waiting.now,
    }
}

pub(crate) fn choices() -> Choices {
    Choices::new([
        ("go", Choice::new("Go")),
        (
            "redo",
            Choice::new("Redo").with_text(TextInput::new("why", "What?")),
        ),
    ])
    .unwrap()
}

/// The automatic answer `go`, [`AFTER_MS`] after the creation.
pub(crate) fn timed(waiting: &Waiting<'_>) -> Draft {
    Draft {
        on_timeout: Some(OnTimeout {
            after_ms: 600_000.0,
            response: json!({ "choice": "go" }),
        }),
        ..draft(waiting)
    }
}

/// No automatic answer, and a deadline.
pub(crate) fn expiring(waiting: &Waiting<'_>) -> Draft {
    Draft {
        expires_at: Some(waiting.now.plus(AFTER_MS)),
        ..draft(waiting)
    }
}

/// `gate` asks; what is answered is the output of the run.
pub(crate) fn gated(
    drafting: impl Fn(&Waiting<'_>) -> Draft + Send + Sync + 'static,
) -> Definition {
    Workflow::new("gated")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate(Arc::new(drafting))))
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .edge("gate", "end")
        .build()
        .unwrap()
}

/// A store with workflows, decisions, and the counter as a stand-in for channels. When it is dropped, everything that `verify` checks
/// must hold.
pub(crate) struct Fixture {
    pub(crate) workflows: Workflows,
    pub(crate) store: TestStore,
    pub(crate) expects_damage: bool,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let store = TestStore::new([holdpoint_workflows::DOMAIN, DOMAIN, counter::DOMAIN]).unwrap();
        counter::create(store.db(), "cursor").unwrap();
        Self {
            workflows: Workflows::new(store.db().clone()),
            store,
            expects_damage: false,
        }
    }

    pub(crate) fn db(&self) -> &Database {
        self.store.db()
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.store.clock().now()
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        self.db().snapshot().unwrap()
    }

    pub(crate) fn scheduler(&self) -> Scheduler {
        self.workflows
            .scheduler(SchedulerOptions {
                workers: 2,
                poll_interval_ms: 50,
                ..SchedulerOptions::default()
            })
            .unwrap()
    }

    /// Starts a run, and lets it go on until it waits or is over.
    pub(crate) fn run(&self, definition: &Definition) -> RunId {
        let scheduler = self.scheduler();
        let run = self.workflows.run(definition, json!({})).unwrap();
        self.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        run
    }

    /// Starts a run and says what it asks.
    pub(crate) fn ask(
        &self,
        drafting: impl Fn(&Waiting<'_>) -> Draft + Send + Sync + 'static,
    ) -> (RunId, DecisionId) {
        let run = self.run(&gated(drafting));
        let decision = self.asked(&run);
        (run, decision)
    }

    /// What a run asks now.
    pub(crate) fn asked(&self, run: &RunId) -> DecisionId {
        let request = self.workflows.view(run).unwrap().request.unwrap();
        DecisionId::new(request.request_id).unwrap()
    }

    /// Lets a run go on until it waits or is over.
    pub(crate) fn go_on(&self, run: &RunId) -> RunView {
        let scheduler = self.scheduler();
        let view = self.workflows.wait(run, LONG).unwrap();
        scheduler.stop(LONG);
        view
    }

    /// Answers at the session of the run.
    pub(crate) fn answer(&self, decision: &DecisionId, response: Value, key: &str) -> Judged {
        let answer = Answer::new(decision, response, "ann").key(key);
        commands::answer(self.db(), &answer).unwrap().value
    }

    /// Submits as a channel does: the cursor moves on in the same transaction.
    pub(crate) fn submit(&self, submission: &Submission) -> Result<Judged, DecisionError> {
        self.submit_said(submission).map(|receipt| receipt.value)
    }

    pub(crate) fn submit_said(
        &self,
        submission: &Submission,
    ) -> Result<Receipt<Judged>, DecisionError> {
        let submission = submission.clone();
        let command =
            Command::new(&counter::ADD, counter::resource("cursor")).by(Actor::host("channels"));
        self.db().commit(command, move |change| {
            let judged = commands::submit_in(change, &submission)?;
            counter::increase(change, 1)?;
            Ok::<_, DecisionError>(Outcome::Accepted(judged.value))
        })
    }

    /// A candidate of a channel for what a decision asks.
    pub(crate) fn candidate(
        &self,
        decision: &DecisionId,
        response: Value,
        key: &str,
    ) -> Submission {
        let request = views::request(&self.snapshot(), decision).unwrap().unwrap();
        Submission {
            decision_id: decision.clone(),
            request_digest: request.request_digest(),
            response,
            source: Source::new(ChannelId::new("telegram:ops").unwrap(), "actor-100", key).unwrap(),
            person: None,
            idempotency_key: key.to_owned(),
        }
    }

    /// The candidates of a decision: road, result, code.
    pub(crate) fn rows(&self, decision: &DecisionId) -> Vec<String> {
        views::submissions(&self.snapshot(), decision)
            .unwrap()
            .iter()
            .map(|row| {
                let code = row
                    .reject_code
                    .map(|code| format!(" {code}"))
                    .unwrap_or_default();
                format!("{} {}{code}", row.source, row.result)
            })
            .collect()
    }

    /// One number of the database.
    pub(crate) fn count(&self, sql: &'static str) -> i64 {
        let snapshot = self.snapshot();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    /// Where a decision stands, in the words for people.
    pub(crate) fn status(&self, decision: &DecisionId) -> &'static str {
        let view = views::fetch(&self.snapshot(), decision, self.now())
            .unwrap()
            .unwrap();
        view.status.as_str()
    }

    /// Applies what follows from resolutions.
    pub(crate) fn settle_effects(&self) {
        use holdpoint_state::effects::WorkerOptions;
        let worker =
            holdpoint_decisions::effects::worker(self.db().clone(), WorkerOptions::default())
                .unwrap();
        worker.run_due_once().unwrap();
    }

    /// Everything that `verify` finds.
    pub(crate) fn violations(&self) -> Vec<String> {
        let snapshot = self.snapshot();
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
        if !std::thread::panicking() && !self.expects_damage {
            assert_eq!(self.violations(), Vec::<String>::new());
        }
    }
}
