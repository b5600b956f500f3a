//! Runs are executed to their end by the scheduler of the process.

use std::time::Duration;

use holdpoint_state::Database;
use holdpoint_workflows::commands::{self, Answer, Claimed, Control};
use holdpoint_workflows::definition::Workflow;
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo, host};

#[test]
fn a_run_of_one_step_completes() {
    let fixture = Fixture::new();
    let view = fixture.run(&echo(), json!({ "a": 1 }));
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(view.final_output, Some(json!({ "a": 1 })));
    assert_eq!(
        fixture.events(&view.run_id),
        [
            "run.queued",
            "lease.claimed",
            "run_initialized",
            "node_started",
            "node_finished",
            "run_completed"
        ]
    );
}

#[test]
fn a_checkpoint_parks_the_run_and_its_answer_lets_it_go_on() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.status, RunStatus::Waiting);
    let request = view.request.unwrap();
    assert_eq!(request.contract["request"], json!(1));
    assert_eq!(request.contract["summary"], json!("May it go on?"));

    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")).key("k"))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!([1, "yes"])));
    scheduler.stop(LONG);
    assert_eq!(
        fixture.events(&run),
        [
            "run.queued",
            "lease.claimed",
            "run_initialized",
            "node_started",
            "node_finished",
            "node_started",
            "checkpoint_requested",
            "interaction_submitted",
            "lease.claimed",
            "interaction_accepted",
            "node_finished",
            "node_started",
            "node_finished",
            "run_completed"
        ]
    );
}

#[test]
fn edge_043_a_run_without_progress_is_left_alone_until_it_is_resumed() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let Claimed::Owned { claim, .. } = fixture.claim_first(&echo(), &run, &host()) else {
        panic!("not owned");
    };
    commands::give_up(fixture.store.db(), &claim, "the disk is on fire").unwrap();
    let scheduler = fixture.scheduler();
    let before = fixture.rows();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(before, fixture.rows());
    let explanation = fixture.workflows.explain(&run).unwrap();
    assert_eq!(explanation.blocked_by.as_deref(), Some("runnerNoProgress"));
    assert_eq!(
        explanation.last_error.as_deref(),
        Some("the disk is on fire")
    );
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn case_038_a_sweep_takes_nothing_that_somebody_owns() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    fixture.claim_first(&echo(), &run, &host());
    let scheduler = fixture.scheduler();
    let before = fixture.rows();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(before, fixture.rows());
    fixture.store.clock().advance(30_000);
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
    assert_eq!(fixture.count("SELECT count(*) FROM node_attempts"), 2);
    assert_eq!(fixture.count("SELECT count(*) FROM run_steps"), 1);
}

#[test]
fn case_032_renewals_keep_a_claim_while_its_node_works() {
    let fixture = Fixture::new();
    let path = fixture.store.directory().join("real-time.sqlite");
    let db = Database::open(path, fixture.store.schema()).unwrap();
    let options = SchedulerOptions {
        workers: 1,
        lease_ms: 300,
        poll_interval_ms: 20,
        ..SchedulerOptions::default()
    };
    let definition = Workflow::new("slow")
        .start_at("n")
        .compute("n", |ctx| {
            Ok(ctx
                .cancellation
                .wait(Duration::from_millis(1_200))
                .is_none())
        })
        .build()
        .unwrap();
    let (first, second) = (Workflows::new(db.clone()), Workflows::new(db));
    second.register(&definition);
    let owner = first.scheduler(options.clone()).unwrap();
    let run = first.run(&definition, json!(null)).unwrap();
    first
        .wait_for(&run, LONG, |view| view.current_node.is_some())
        .unwrap();
    let rival = second.scheduler(options).unwrap();
    let view = first.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.status, view.final_output),
        (RunStatus::Completed, Some(json!(true)))
    );
    assert_eq!(second.explain(&run).unwrap().generation, 1);
    rival.stop(LONG);
    owner.stop(LONG);
}

#[test]
fn many_runs_from_many_threads_all_complete() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let definition = Workflow::new("ten")
        .start_at("n")
        .max_steps(20)
        .compute("n", |ctx| {
            Ok(json!({ "way": if ctx.visit < 10 { "on" } else { "end" } }))
        })
        .compute("end", |ctx| Ok(ctx.input().clone()))
        .switch("n", "$.way", [("on", "n"), ("end", "end")])
        .build()
        .unwrap();
    let runs: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (workflows, definition) = (&fixture.workflows, &definition);
                scope.spawn(move || {
                    (0..25)
                        .map(|n| workflows.run(definition, json!([thread, n])).unwrap())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(scheduler.wait_until_idle(LONG));
    scheduler.stop(LONG);
    for run in runs {
        let view = fixture.workflows.view(&run).unwrap();
        assert_eq!((view.status, view.steps.len()), (RunStatus::Completed, 11));
    }
}

#[test]
fn edge_046_a_run_with_a_free_place_is_claimed_with_its_start() {
    let fixture = Fixture::new();
    let (enter, entered) = std::sync::mpsc::channel();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (enter, held) = (std::sync::Mutex::new(enter), std::sync::Mutex::new(held));
    let definition = Workflow::new("held")
        .start_at("n")
        .compute("n", move |_| {
            enter.lock().unwrap().send(()).unwrap();
            // Ends when the test drops its end, too.
            Ok(held.lock().unwrap().recv().is_ok())
        })
        .build()
        .unwrap();
    let generation = |run| fixture.workflows.explain(run).unwrap().generation;
    let scheduler = fixture
        .workflows
        .scheduler(SchedulerOptions {
            workers: 1,
            poll_interval_ms: 50,
            ..SchedulerOptions::default()
        })
        .unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    // No look at the store lies between the start and its claim, and no commit either.
    let first = fixture.workflows.run(&definition, json!(1)).unwrap();
    assert_eq!(generation(&first), 1);
    // The only place is taken, from the start on and not only once the node runs.
    let second = fixture.workflows.run(&definition, json!(2)).unwrap();
    assert_eq!(generation(&second), 0);
    entered.recv().unwrap();
    release.send(()).unwrap();
    release.send(()).unwrap();
    for run in [&first, &second] {
        let view = fixture.workflows.wait(run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed);
        assert_eq!(
            fixture.events(run),
            [
                "run.queued",
                "lease.claimed",
                "run_initialized",
                "node_started",
                "node_finished",
                "run_completed"
            ]
        );
    }
    scheduler.stop(LONG);
}
