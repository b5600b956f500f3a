//! Reserving runs: adopt on repeat, conflict on difference, nothing on failure; and the restart lineage.

use std::sync::Barrier;

use holdpoint_state::Disposition;
use holdpoint_state::records::blobs::INLINE_LIMIT_BYTES;
use holdpoint_workflows::commands::{self, Control, Restart, Start};
use holdpoint_workflows::definition::{SourceIdentity, Workflow};
use holdpoint_workflows::model::{self, RunStatus};
use holdpoint_workflows::{RunId, WorkflowError, views};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo};

fn id(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

#[test]
fn edge_001_the_same_start_twice_adopts_and_changes_no_row() {
    let fixture = Fixture::new();
    let start = Start::new(&echo(), json!({ "b": 1.0, "a": [] })).run_id(id("run-1"));
    let first = fixture.workflows.start(&start).unwrap();
    let before = fixture.rows();
    fixture.store.clock().advance(5);
    let again = Start::new(&echo(), json!({ "a": [], "b": 1 })).run_id(id("run-1"));
    let second = fixture.workflows.start(&again).unwrap();
    assert_eq!(
        (first.disposition, second.disposition),
        (Disposition::Accepted, Disposition::Adopted)
    );
    assert_eq!((first.revision, second.revision), (1, 1));
    assert_eq!(before, fixture.rows());
}

#[test]
fn edge_002_the_same_id_with_any_other_fact_is_a_conflict() {
    let fixture = Fixture::new();
    let definition = echo();
    let base = || Start::new(&definition, json!(1)).run_id(id("run-1"));
    fixture.workflows.start(&base()).unwrap();
    let before = fixture.rows();
    let other = Workflow::new("echo")
        .start_at("other")
        .compute("other", |ctx| Ok(ctx.input().clone()))
        .build()
        .unwrap();
    let source = SourceIdentity::File {
        path: "/workflows/echo.workflow.yaml".to_owned(),
        sha256: "0".repeat(64),
    };
    let differing = [
        (
            "input",
            Start::new(&definition, json!(2)).run_id(id("run-1")),
        ),
        ("reference", base().workflow_ref("./echo")),
        (
            "definition",
            Start::new(&other, json!(1)).run_id(id("run-1")),
        ),
        (
            "sources",
            Start::from_source(&definition, source, json!(1)).run_id(id("run-1")),
        ),
        ("launch options", base().options(json!({ "a": 1 }))),
        ("session", base().in_session("s")),
    ];
    for (what, start) in differing {
        match commands::start(fixture.store.db(), &start) {
            Err(WorkflowError::Conflict { problem, .. }) => {
                assert!(problem.contains(what), "{what}: {problem}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(before, fixture.rows(), "{what}");
    }
}

#[test]
fn edge_003_a_session_has_one_interactive_run_and_any_number_of_headless_ones() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let start = |name: &str| {
        Start::new(&asking(), json!(null))
            .run_id(id(name))
            .in_session("s")
    };
    fixture.workflows.run(&asking(), json!(null)).unwrap();
    let first = fixture.workflows.start(&start("first")).unwrap().value;
    fixture.workflows.wait(&first, LONG).unwrap();
    fixture.workflows.pause(&Control::of(&first)).unwrap();
    let before = fixture.rows();
    let refused = fixture.workflows.start(&start("second"));
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(before, fixture.rows());
    fixture.workflows.cancel(&Control::of(&first)).unwrap();
    fixture.workflows.start(&start("second")).unwrap();
    scheduler.stop(LONG);
}

#[test]
fn edge_004_two_starts_of_one_session_make_one_reservation() {
    let fixture = Fixture::new();
    let barrier = Barrier::new(2);
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = ["one", "two"]
            .into_iter()
            .map(|name| {
                let (db, barrier) = (fixture.store.open().unwrap(), &barrier);
                scope.spawn(move || {
                    let start = Start::new(&echo(), json!(1))
                        .run_id(id(name))
                        .in_session("s");
                    barrier.wait();
                    commands::start(&db, &start)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let refused = results.into_iter().find_map(Result::err).unwrap();
    assert!(
        matches!(refused, WorkflowError::Conflict { .. }),
        "{refused:?}"
    );
    assert_eq!(fixture.count("SELECT count(*) FROM runs"), 1);
}

#[test]
fn edge_005_a_failing_normaliser_leaves_no_trace() {
    let fixture = Fixture::new();
    let typed = Workflow::new("typed")
        .input::<u8>()
        .start_at("n")
        .compute("n", |ctx| Ok(*ctx.input()))
        .build()
        .unwrap();
    let panics = Workflow::new("panics")
        .input_with(|_| -> Result<u8, _> { panic!("on purpose") })
        .start_at("n")
        .compute("n", |ctx| Ok(*ctx.input()))
        .build()
        .unwrap();
    for definition in [typed, panics] {
        let refused = fixture.workflows.run(&definition, json!("text"));
        assert!(
            matches!(refused, Err(WorkflowError::Input { .. })),
            "{refused:?}"
        );
    }
    for table in [
        "SELECT count(*) FROM resources",
        "SELECT count(*) FROM blobs",
        "SELECT count(*) FROM workflow_definitions",
    ] {
        assert_eq!(fixture.count(table), 0, "{table}");
    }
}

#[test]
fn edge_006_a_source_without_a_valid_form_is_refused_before_anything() {
    let fixture = Fixture::new();
    let source = SourceIdentity::File {
        path: "/a.workflow.yaml".to_owned(),
        sha256: "not hex".to_owned(),
    };
    let refused = fixture
        .workflows
        .start(&Start::from_source(&echo(), source, json!(1)));
    assert!(
        matches!(refused, Err(WorkflowError::Source(_))),
        "{refused:?}"
    );
    assert_eq!(fixture.count("SELECT count(*) FROM resources"), 0);
}

#[test]
fn edge_007_the_form_of_run_ids() {
    assert!(RunId::new("r".repeat(200)).is_ok());
    assert!(RunId::new("r".repeat(201)).is_err());
    assert!(RunId::new(".run").is_err());
}

#[test]
fn case_040_an_acknowledged_start_is_whole() {
    let fixture = Fixture::new();
    let run = fixture
        .workflows
        .start(&Start::new(&echo(), json!(1)).key("k"))
        .unwrap()
        .value;
    let again = fixture
        .workflows
        .start(&Start::new(&echo(), json!(1)).key("k"))
        .unwrap();
    assert_eq!(
        (again.value, again.disposition),
        (run.clone(), Disposition::Adopted)
    );
    assert_eq!(fixture.events(&run), ["run.queued"]);
    assert_eq!(
        fixture.count("SELECT count(*) FROM run_queue WHERE status = 'queued'"),
        1
    );
    assert_eq!(fixture.count("SELECT count(*) FROM run_sources"), 1);
    assert_eq!(
        fixture.count("SELECT count(*) FROM run_bindings WHERE execution_mode = 'headless'"),
        1
    );
}

#[test]
fn edge_008_a_run_that_is_not_over_is_not_restarted() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let refused = fixture.workflows.restart(&Restart::new(&run, 1));
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    fixture.workflows.cancel(&Control::of(&run)).unwrap();
    let revision = fixture.workflows.view(&run).unwrap().run_revision;
    fixture
        .workflows
        .restart(&Restart::new(&run, revision))
        .unwrap();
}

#[test]
fn edge_009_a_restart_at_another_revision_is_a_conflict() {
    let fixture = Fixture::new();
    let view = fixture.run(&echo(), json!(1));
    let refused = fixture
        .workflows
        .restart(&Restart::new(&view.run_id, view.run_revision - 1));
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_run_that_bears_the_name_of_a_restart_is_not_adopted_as_one() {
    let fixture = Fixture::new();
    let view = fixture.run(&echo(), json!(1));
    let name = model::restart_run_id(&view.run_id, view.run_revision);
    let start = Start::new(&echo(), json!(2)).run_id(RunId::new(&name).unwrap());
    fixture.workflows.start(&start).unwrap();
    let refused = fixture
        .workflows
        .restart(&Restart::new(&view.run_id, view.run_revision));
    assert!(
        matches!(refused, Err(WorkflowError::Conflict { .. })),
        "{refused:?}"
    );
}

#[test]
fn edge_010_a_run_has_one_restart_child() {
    let fixture = Fixture::new();
    let view = fixture.run(&echo(), json!(1));
    let restart = Restart::new(&view.run_id, view.run_revision);
    let first = fixture.workflows.restart(&restart).unwrap();
    let second = fixture.workflows.restart(&restart).unwrap();
    assert_eq!(
        (&first.value, second.disposition),
        (&second.value, Disposition::Adopted)
    );
    let newer = fixture
        .workflows
        .restart(&Restart::new(&view.run_id, view.run_revision + 1));
    assert!(
        matches!(newer, Err(WorkflowError::Conflict { .. })),
        "{newer:?}"
    );
    assert_eq!(
        fixture.count("SELECT count(*) FROM runs WHERE lineage_kind = 'restart'"),
        1
    );
}

#[test]
fn edge_011_a_restart_of_a_restart_has_the_first_run_as_its_root() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let mut run = fixture.workflows.run(&echo(), json!({ "n": 1 })).unwrap();
    let root = run.clone();
    for number in 1..=2 {
        let view = fixture.workflows.wait(&run, LONG).unwrap();
        assert_eq!(view.status, RunStatus::Completed);
        let child = fixture
            .workflows
            .restart(&Restart::new(&run, view.run_revision))
            .unwrap()
            .value;
        let view = fixture.workflows.wait(&child, LONG).unwrap();
        assert_eq!((view.restart_number, &view.root_run_id), (number, &root));
        assert_eq!(
            (view.parent_run_id.as_ref(), view.steps.len()),
            (Some(&run), 1)
        );
        assert_eq!(view.final_output, Some(json!({ "n": 1 })));
        run = child;
    }
    scheduler.stop(LONG);
}

#[test]
fn an_interactive_run_is_restarted_by_its_own_session_only() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let start = Start::new(&echo(), json!(1)).in_session("s");
    let run = fixture.workflows.start(&start).unwrap().value;
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    let restart = Restart::new(&run, view.run_revision);
    let refused = fixture.workflows.restart(&restart);
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
    fixture.workflows.restart(&restart.in_session("s")).unwrap();
    scheduler.stop(LONG);
}

/// The text whose JSON has this many bytes.
fn text_of(size_bytes: usize) -> serde_json::Value {
    json!("x".repeat(size_bytes - 2))
}

#[test]
fn content_lies_in_its_row_up_to_the_limit_and_is_a_blob_above() {
    for (size_bytes, blobs) in [(INLINE_LIMIT_BYTES, 0), (INLINE_LIMIT_BYTES + 1, 1)] {
        let fixture = Fixture::new();
        let content = text_of(size_bytes);
        let start = Start::new(&echo(), content.clone())
            .run_id(id("run-1"))
            .options(content.clone());
        let scheduler = fixture.scheduler();
        fixture.workflows.start(&start).unwrap();
        let run = fixture.workflows.wait(&id("run-1"), LONG).unwrap();
        let restart = Restart::new(&run.run_id, run.run_revision);
        let child = fixture.workflows.restart(&restart).unwrap().value;
        let child = fixture.workflows.wait(&child, LONG).unwrap();
        scheduler.stop(LONG);
        for view in [&run, &child] {
            assert_eq!(view.status, RunStatus::Completed);
            assert_eq!(view.input, content);
            assert_eq!(view.final_output.as_ref(), Some(&content));
            assert_eq!(view.steps[0].result.output.as_ref(), Some(&content));
            let snapshot = fixture.store.db().snapshot().unwrap();
            let options = views::launch_options(&snapshot, &view.run_id).unwrap();
            assert_eq!(options.as_ref(), Some(&content));
        }
        // The snapshot of the definition is one always.
        assert_eq!(fixture.count("SELECT count(*) FROM blobs"), 1 + blobs);
        // The same start is compared by its content, wherever that lies.
        let again = fixture.workflows.start(&start).unwrap();
        assert_eq!(again.disposition, Disposition::Adopted);
        let other = Start::new(&echo(), text_of(size_bytes - 1))
            .run_id(id("run-1"))
            .options(content);
        let refused = fixture.workflows.start(&other);
        assert!(matches!(refused, Err(WorkflowError::Conflict { .. })));
    }
}
