//! What the tests share: a store whose invariants are checked when the test ends, and definitions to run.

use std::time::Duration;

use holdpoint_state::sql::named_params;
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Actor, Owner, OwnerKind};
use holdpoint_workflows::commands::{self, Claimed, Claiming, Move, NewAttempt, Plan};
use holdpoint_workflows::definition::{Definition, TimeBudget, Workflow};
use holdpoint_workflows::views::RunView;
use holdpoint_workflows::{
    AttemptId, DOMAIN, NodeId, RunId, Scheduler, SchedulerOptions, Workflows,
};
use serde_json::Value;

/// The longest that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// A store with the workflows domain. When it is dropped, everything that `verify` checks must hold.
pub(crate) struct Fixture {
    pub(crate) workflows: Workflows,
    pub(crate) store: TestStore,
    /// The test damaged rows on purpose.
    pub(crate) expects_damage: bool,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let store = TestStore::new([DOMAIN]).unwrap();
        let workflows = Workflows::new(store.db().clone());
        Self {
            workflows,
            store,
            expects_damage: false,
        }
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

    /// Runs a definition to where it stops.
    pub(crate) fn run(&self, definition: &Definition, input: impl Into<Value>) -> RunView {
        let scheduler = self.scheduler();
        let run = self.workflows.run(definition, input).unwrap();
        let view = self.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        view
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

    /// One number of the database.
    pub(crate) fn count(&self, sql: &'static str) -> i64 {
        let snapshot = self.store.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    /// One text of the database.
    pub(crate) fn text(&self, sql: &'static str) -> String {
        let snapshot = self.store.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    /// Every row of the domain and of the shared records, as text: equal before and after a command that changes nothing.
    pub(crate) fn rows(&self) -> String {
        [
            "SELECT json_group_array(json_array(resource_key, revision, updated_at)) FROM resources",
            "SELECT json_group_array(json_array(resource_key, generation, owner_id, expires_at)) FROM leases",
            "SELECT json_group_array(json_array(event_seq, event_type)) FROM events",
            "SELECT json_group_array(json_array(run_id, status, paused, status_detail, title, finished_at)) FROM runs",
            "SELECT json_group_array(json_array(run_key, status, available_at, error_code, started_at, finished_at)) FROM run_queue",
            "SELECT json_group_array(json_array(attempt_id, status, timeout_ms, finished_at)) FROM node_attempts",
            "SELECT json_group_array(json_array(run_key, step_index, attempt_key)) FROM run_steps",
            "SELECT json_group_array(json_array(request_id, status, revision, consumed_at)) FROM interactive_requests",
            "SELECT json_group_array(json_array(submission_id, outcome)) FROM interactive_submissions",
            "SELECT json_group_array(json_array(resource_key, status, attempt_count)) FROM effects",
            "SELECT json_group_array(json_array(scope_id, change_number, hex(current_hash))) FROM workflow_settings",
            "SELECT json_group_array(json_array(change_number, request_id)) FROM workflow_setting_changes",
        ]
        .map(|sql| {
            let snapshot = self.store.db().snapshot().unwrap();
            snapshot
                .sql()
                .prepare_cached(sql)
                .unwrap()
                .query_row([], |row| row.get::<_, String>(0))
                .unwrap()
        })
        .join("\n")
    }

    /// The events of a run, by name.
    pub(crate) fn events(&self, run: &RunId) -> Vec<String> {
        let snapshot = self.store.db().snapshot().unwrap();
        let sql = snapshot.sql();
        let mut statement = sql
            .prepare_cached(
                "SELECT e.event_type, e.resource_revision FROM events e JOIN runs r ON r.resource_key = e.resource_key
                 WHERE r.run_id = :run ORDER BY e.event_seq",
            )
            .unwrap();
        let rows: Vec<(String, i64)> = statement
            .query_map(named_params! { ":run": run }, |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        for (index, (_, revision)) in rows.iter().enumerate() {
            assert_eq!(
                usize::try_from(*revision).unwrap(),
                index + 1,
                "a gap in the events of {run}"
            );
        }
        rows.into_iter().map(|(name, _)| name).collect()
    }

    /// The sequence number of the last event of a run.
    pub(crate) fn last_event_seq(&self, run: &RunId) -> i64 {
        let snapshot = self.store.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(
                "SELECT max(e.event_seq) FROM events e JOIN runs r ON r.resource_key = e.resource_key WHERE r.run_id = :run",
            )
            .unwrap()
            .query_row(named_params! { ":run": run }, |row| row.get(0))
            .unwrap()
    }

    /// Claims a queued run by hand and begins its first node.
    pub(crate) fn claim_first(
        &self,
        definition: &Definition,
        run: &RunId,
        owner: &Owner,
    ) -> Claimed {
        let plan = Plan::First {
            title: None,
            next: Move::Start(attempt(definition.start_at().as_str(), "attempt-1")),
        };
        self.claim(definition, run, owner, plan).unwrap()
    }

    pub(crate) fn claim(
        &self,
        definition: &Definition,
        run: &RunId,
        owner: &Owner,
        plan: Plan,
    ) -> Result<Claimed, holdpoint_workflows::WorkflowError> {
        let revision = self.workflows.view(run).unwrap().run_revision;
        commands::claim(
            self.store.db(),
            Claiming {
                run: run.clone(),
                revision,
                owner: owner.clone(),
                lease_ms: 30_000,
                definition: definition.clone(),
                plan,
            },
        )
        .map(|receipt| receipt.value)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.expects_damage {
            assert_eq!(self.violations(), Vec::<String>::new());
        }
    }
}

/// Looks again and again, for what another thread does in its own time.
#[expect(
    clippy::disallowed_methods,
    reason = "what other threads do takes real time, which bounds this wait"
)]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !condition() {
        assert!(began.elapsed() < LONG, "in vain: {what}");
        std::thread::yield_now();
    }
}

pub(crate) fn host() -> Owner {
    Owner::new(OwnerKind::Host, "test")
}

pub(crate) fn person() -> Actor {
    Actor::human("test")
}

pub(crate) fn attempt(node: &str, id: &str) -> NewAttempt {
    NewAttempt {
        attempt_id: AttemptId::new(id).unwrap(),
        node_id: NodeId::new(node).unwrap(),
        visit: 1,
        timeout: Some(TimeBudget::Unlimited),
        effect: None,
    }
}

/// `start` makes a number, `ask` waits, `end` gives both.
pub(crate) fn asking() -> Definition {
    Workflow::new("asking")
        .start_at("start")
        .compute("start", |_| Ok(1))
        .checkpoint("ask")
        .summary("May it go on?")
        .request(|ctx| ctx.output::<i64>("start"))
        .compute("end", |ctx| {
            Ok((ctx.output::<i64>("start")?, ctx.output::<Value>("ask")?))
        })
        .edge("start", "ask")
        .edge("ask", "end")
        .build()
        .unwrap()
}

/// One node that gives its input.
pub(crate) fn echo() -> Definition {
    Workflow::new("echo")
        .start_at("echo")
        .compute("echo", |ctx| Ok(ctx.input().clone()))
        .build()
        .unwrap()
}
