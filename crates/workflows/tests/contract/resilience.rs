//! What fails for a moment, is too large, or is called by nobody: runs are postponed, never lost, and wait for nothing that can't come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use holdpoint_state::effects::BackOff;
use holdpoint_state::{Database, Digest, testing};
use holdpoint_workflows::commands::{self, Answer, Claimed, Claiming, Control, Move, Plan};
use holdpoint_workflows::definition::{
    Definition, EffectSpec, NodeError, SourceIdentity, Workflow,
};
use holdpoint_workflows::model::{RunStatus, TITLE_LIMIT_CHARS};
use holdpoint_workflows::views::Filter;
use holdpoint_workflows::{
    Execution, Registry, SchedulerOptions, SourceResolver, Unresolved, WorkflowError, Workflows,
};
use serde_json::{Value, json};

use crate::support::{Fixture, LONG, asking, attempt, echo, host};
use crate::views::damage;

/// A search comes once an hour: what happens, happens without it.
const NO_POLL: SchedulerOptions = SchedulerOptions {
    execution: Execution::Threads,
    workers: 1,
    lease_ms: 30_000,
    poll_interval_ms: 3_600_000,
    back_off: BackOff {
        base_ms: 1,
        cap_ms: 1,
    },
};

/// A store of its own in real time.
fn in_real_time(fixture: &Fixture) -> Workflows {
    let path = fixture.store.directory().join("real-time.sqlite");
    Workflows::new(Database::open(path, fixture.store.schema()).unwrap())
}

/// Panics a few times, then knows one definition.
struct Panics {
    left: AtomicUsize,
    definition: Definition,
}

impl SourceResolver for Panics {
    fn resolve(&self, _: &SourceIdentity, _: Digest) -> Result<Definition, Unresolved> {
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        assert!(before.is_err(), "on purpose");
        Ok(self.definition.clone())
    }

    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved> {
        Ok((self.definition.clone(), source.clone()))
    }
}

#[test]
fn case_037_an_error_postpones_a_run_and_costs_neither_run_nor_worker() {
    let fixture = Fixture::new();
    let workflows = in_real_time(&fixture).resolving_with(Arc::new(Panics {
        left: AtomicUsize::new(3),
        definition: echo(),
    }));
    // One worker: if it were lost, nothing would be executed any more.
    let scheduler = workflows
        .scheduler(SchedulerOptions {
            poll_interval_ms: 5,
            ..NO_POLL
        })
        .unwrap();
    let run = workflows.run(&echo(), json!(1)).unwrap();
    let view = workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Completed);
    scheduler.stop(LONG);
}

#[test]
fn what_a_program_makes_eligible_needs_no_search() {
    let fixture = Fixture::new();
    let scheduler = fixture.workflows.scheduler(NO_POLL).unwrap();
    for n in 0..20 {
        let run = fixture.workflows.run(&asking(), json!(n)).unwrap();
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Waiting, "start {n}");
        fixture
            .workflows
            .answer(&Answer::new(&run, json!(n)))
            .unwrap();
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed, "answer {n}");
    }
    scheduler.stop(LONG);
}

#[test]
fn what_a_killed_process_held_is_due_when_its_lease_ends() {
    let fixture = Fixture::new();
    let workflows = in_real_time(&fixture);
    let run = workflows.run(&echo(), json!(1)).unwrap();
    let claimed = commands::claim(
        workflows.database(),
        Claiming {
            run: run.clone(),
            revision: workflows.view(&run).unwrap().run_revision,
            owner: host(),
            lease_ms: 300,
            definition: echo(),
            plan: Plan::First {
                title: None,
                next: Move::Start(attempt("echo", "attempt-1")),
            },
        },
    );
    assert!(matches!(claimed.unwrap().value, Claimed::Owned { .. }));
    // The search at the start finds nothing, and the next one would come after an hour.
    let scheduler = workflows.scheduler(NO_POLL).unwrap();
    let view = workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Completed);
    scheduler.stop(LONG);
}

#[test]
fn case_034_a_lost_claim_is_found_by_its_own_expiry() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    fixture.claim_first(&echo(), &run, &host());
    // The owner is named in no other row: nothing has to be joined, and nothing can be cleaned away.
    assert_eq!(
        fixture.count(
            "SELECT count(*) FROM leases WHERE owner_id IS NOT NULL AND expires_at IS NOT NULL"
        ),
        1
    );
    fixture.store.clock().advance(30_000);
    let stranger = Workflows::new(fixture.store.open().unwrap());
    stranger.register(&echo());
    let scheduler = stranger.scheduler(SchedulerOptions::default()).unwrap();
    assert_eq!(
        stranger.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn a_run_that_was_parked_before_it_began_is_due() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    // No command leaves a run so today; the reference allows it.
    // lint:allow(sql-in-test): the test makes a row of another program; no command can.
    let sql = "UPDATE run_queue SET status = 'parked'";
    damage(&fixture, &run, sql);
    let scheduler = fixture.scheduler();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

/// More than a value may have.
fn oversized() -> String {
    "x".repeat(64 * 1024 * 1024 + 1)
}

#[test]
fn case_023_an_oversized_output_fails_its_attempt_and_nothing_else() {
    let fixture = Fixture::new();
    let compute = Workflow::new("compute")
        .start_at("n")
        .compute("n", |_| Ok(oversized()))
        .build()
        .unwrap();
    let action = Workflow::new("action")
        .start_at("n")
        .action("n", EffectSpec::manual("test.act"), |_| Ok(oversized()))
        .build()
        .unwrap();
    let asks = Workflow::new("asks")
        .start_at("n")
        .checkpoint("n")
        .request(|_| Ok(oversized()))
        .build()
        .unwrap();
    for definition in [compute, action, asks] {
        let view = fixture.run(&definition, json!(null));
        let name = &view.workflow_name;
        assert_eq!(view.status, RunStatus::Failed, "{name}");
        let error = view.steps[0].result.error.clone().unwrap();
        assert!(error.starts_with("InvalidOutput: "), "{name}: {error}");
    }
    // Caught by a switch, the run goes on; and it is cancelled like any other.
    let goes_on = Workflow::new("goes-on")
        .start_at("n")
        .compute("n", |_| Ok(oversized()))
        .checkpoint("ask")
        .switch("n", "$result.outcome", [("failed", "ask"), ("ok", "ask")])
        .build()
        .unwrap();
    let view = fixture.run(&goes_on, json!(null));
    assert_eq!(view.status, RunStatus::Waiting);
    let listed = fixture.workflows.list(&Filter::default()).unwrap().runs;
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|run| run.problem.is_none()));
    fixture
        .workflows
        .cancel(&Control::of(&view.run_id))
        .unwrap();
    // An oversized input leaves no run at all.
    let refused = fixture.workflows.run(&echo(), json!(oversized()));
    assert!(
        matches!(&refused, Err(error) if error.code() == "tooLarge"),
        "{:?}",
        refused.map_err(|error| error.code())
    );
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 4);
}

#[test]
fn a_title_is_cut_like_every_text_for_people() {
    let fixture = Fixture::new();
    let definition = Workflow::new("titled")
        .title_with(|_: &Value| Ok(oversized()))
        .start_at("n")
        .compute("n", |_| Ok(1))
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!(null));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(
        view.run_title.unwrap().chars().count(),
        TITLE_LIMIT_CHARS + 1
    );
}

#[test]
fn the_receipt_of_an_act_outlives_a_disk_that_is_full_for_a_moment() {
    let fixture = Fixture::new();
    let db = fixture.store.db().clone();
    let (acted, act) = channel();
    let definition = Workflow::new("acts")
        .start_at("n")
        .action("n", EffectSpec::manual("test.act"), move |_| {
            let pages = testing::faults::page_count(&db)
                .map_err(|error| NodeError::new(error.to_string()))?;
            testing::faults::limit_pages(&db, pages)
                .map_err(|error| NodeError::new(error.to_string()))?;
            acted.send(()).ok();
            Ok("y".repeat(500_000))
        })
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(null)).unwrap();
    act.recv_timeout(LONG).unwrap();
    // Long enough for a first refusal. The test would also pass without one, but not fail with any number of them.
    assert!(act.recv_timeout(Duration::from_millis(200)).is_err());
    testing::faults::limit_pages(fixture.store.db(), u32::MAX - 1).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!((view.status, view.steps.len()), (RunStatus::Completed, 1));
    scheduler.stop(LONG);
}

/// Knows that its source is unchanged and gives nothing.
struct Broken;

impl SourceResolver for Broken {
    fn resolve(&self, _: &SourceIdentity, _: Digest) -> Result<Definition, Unresolved> {
        Err(Unresolved::LoadFailed {
            error: "it is gone".to_owned(),
        })
    }

    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved> {
        Registry::default().present(source)
    }
}

#[test]
fn a_run_that_waits_or_is_paused_does_not_fail_for_its_source() {
    let fixture = Fixture::new();
    let waits = fixture.run(&asking(), json!(1)).run_id;
    let paused = fixture.run(&asking(), json!(2)).run_id;
    fixture.workflows.pause(&Control::of(&paused)).unwrap();
    for run in [&waits, &paused] {
        let revision = fixture.workflows.view(run).unwrap().run_revision;
        let before = fixture.rows();
        let db = fixture.store.db();
        for refused in [
            commands::fail_unclaimed(db, run, revision, "it is gone"),
            commands::park_source_changed(db, run, revision, "it is another"),
        ] {
            assert!(
                matches!(refused, Err(WorkflowError::Rejected { .. })),
                "{refused:?}"
            );
        }
        assert_eq!(before, fixture.rows());
    }
    // Neither does a scheduler that is told to look at it: the repeated start of the run offers it.
    let broken = fixture.workflows.clone().resolving_with(Arc::new(Broken));
    let scheduler = broken.scheduler(NO_POLL).unwrap();
    let start = commands::Start::new(&asking(), json!(1)).run_id(waits.clone());
    broken.start(&start).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    assert_eq!(
        fixture.workflows.view(&waits).unwrap().status,
        RunStatus::Waiting
    );
    // A run that could go on does.
    let queued = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let revision = fixture.workflows.view(&queued).unwrap().run_revision;
    commands::fail_unclaimed(fixture.store.db(), &queued, revision, "it is gone").unwrap();
}

#[test]
fn case_051_an_answer_is_kept_until_somebody_waits_for_it() {
    let fixture = Fixture::new();
    // Before the request exists there is nothing to address: a typed refusal, and no trace.
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let before = fixture.rows();
    let early = fixture.workflows.answer(&Answer::new(&run, json!("early")));
    assert!(
        matches!(early, Err(WorkflowError::Rejected { .. })),
        "{early:?}"
    );
    assert_eq!(before, fixture.rows());

    let scheduler = fixture.scheduler();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    // Nobody executes the run and nobody waits for it. The answer is stored with its request, by another handle.
    let elsewhere = Workflows::new(fixture.store.open().unwrap());
    elsewhere
        .answer(&Answer::new(&run, json!("stored")))
        .unwrap();
    let scheduler = fixture.scheduler();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!([1, "stored"])));
    scheduler.stop(LONG);
    // A wait that begins after the end sees it at once.
    let view = fixture.workflows.wait(&run, Duration::ZERO).unwrap();
    assert_eq!(view.status, RunStatus::Completed);
}

#[test]
fn case_053_what_loses_a_race_keeps_nothing_open() {
    let open = "SELECT
         (SELECT count(*) FROM node_attempts WHERE finished_at IS NULL)
         + (SELECT count(*) FROM interactive_requests WHERE status = 'pending')
         + (SELECT count(*) FROM interactive_requests WHERE status = 'settled' AND consumed_at IS NULL)
         + (SELECT count(*) FROM run_queue WHERE finished_at IS NULL)
         + (SELECT count(*) FROM leases WHERE owner_id IS NOT NULL)
         + (SELECT count(*) FROM effects WHERE status IN ('pending', 'applying'))";
    let fixture = Fixture::new();
    // A question that is still open when the run is cancelled, with and without an answer that nobody used.
    for answered in [false, true] {
        let run = fixture.run(&asking(), json!(null)).run_id;
        if answered {
            fixture
                .workflows
                .answer(&Answer::new(&run, json!("unused")))
                .unwrap();
        }
        assert!(0 < fixture.count(open));
        fixture.workflows.cancel(&Control::of(&run)).unwrap();
        assert_eq!(fixture.count(open), 0);
    }
    // An act whose time limit fired first: it loses to the limit, and its effect is not left to do.
    let late = Workflow::new("late")
        .start_at("act")
        .action("act", EffectSpec::idempotent("test.act"), |ctx| {
            ctx.cancellation.wait(LONG);
            ctx.cancellation.check()?;
            Ok(1)
        })
        .timeout(holdpoint_workflows::definition::Timeout::Fixed(1.0))
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&late, json!(null)).unwrap();
    let view = loop {
        fixture.store.clock().advance(1);
        let view = fixture
            .workflows
            .wait(&run, Duration::from_millis(50))
            .unwrap();
        if view.status.is_terminal() {
            break view;
        }
    };
    assert_eq!(view.status, RunStatus::TimedOut);
    scheduler.stop(LONG);
    assert_eq!(fixture.count(open), 0);
}
