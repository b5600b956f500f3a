//! A run goes on only on the definition that it is pinned to.

use std::sync::Arc;

use holdpoint_state::Digest;
use holdpoint_workflows::commands::{Answer, Control};
use holdpoint_workflows::definition::{Definition, SourceIdentity, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{
    SchedulerOptions, SourceResolver, Unresolved, WorkflowError, Workflows, file,
};
use serde_json::json;

use crate::support::{Fixture, LONG, asking, echo, person};

const FILE: &str = r#"{
  "name": "asks",
  "startAt": "ask",
  "nodes": {
    "ask": { "checkpoint": { "summary": "Go on?" } },
    "end": { "compute": { "jq": "$outputs.ask" } }
  },
  "edges": [{ "from": "ask", "to": "end" }]
}"#;

fn write(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
}

/// What stands in the place of the file is not waited for: opening a pipe would hold up whoever looks for work.
#[test]
fn a_pipe_in_the_place_of_a_file_parks_its_runs() {
    let fixture = Fixture::new();
    let path = fixture.store.directory().join("asks.workflow.json");
    write(&path, FILE);
    let read = file::read(&path).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run_file(&read, json!(null)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();

    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status();
    assert!(made.unwrap().success());
    let answer = Answer::new(&run, json!("yes"));
    fixture.workflows.answer(&answer).unwrap();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    assert!(view.error.unwrap().contains("no ordinary file"));
    assert!(scheduler.wait_until_idle(LONG));
}

#[test]
fn edge_044_an_edited_file_parks_its_runs_and_the_old_file_lets_them_go_on() {
    let fixture = Fixture::new();
    let path = fixture.store.directory().join("asks.workflow.json");
    write(&path, FILE);
    let read = file::read(&path).unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run_file(&read, json!(null)).unwrap();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Waiting
    );

    write(&path, &FILE.replace("$outputs.ask", "[$outputs.ask]"));
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let view = fixture
        .workflows
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    assert_eq!(
        (view.status, view.queue_status.as_str()),
        (RunStatus::Waiting, "parked")
    );
    assert!(view.error.unwrap().contains("/nodes/end"));
    // It is left alone, and a resume is refused with the difference before any row is changed.
    assert!(scheduler.wait_until_idle(LONG));
    let before = fixture.rows();
    match fixture.workflows.resume(&Control::of(&run)) {
        Err(WorkflowError::SourceChanged { differences, .. }) => {
            assert!(
                differences
                    .iter()
                    .any(|line| line.starts_with("/nodes/end")),
                "{differences:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(before, fixture.rows());

    write(&path, FILE);
    fixture.workflows.resume(&Control::of(&run)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!("yes")));
    scheduler.stop(LONG);
}

#[test]
fn case_056_an_edit_of_what_is_only_displayed_harms_no_run() {
    let fixture = Fixture::new();
    let path = fixture.store.directory().join("asks.workflow.json");
    write(&path, FILE);
    let scheduler = fixture.scheduler();
    let run = fixture
        .workflows
        .run_file(&file::read(&path).unwrap(), json!(null))
        .unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    write(&path, &FILE.replace("Go on?", "Shall it go on?"));
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    assert_eq!(
        fixture.workflows.wait(&run, LONG).unwrap().status,
        RunStatus::Completed
    );
    scheduler.stop(LONG);
}

#[test]
fn case_055_a_changed_definition_is_accepted_explicitly_or_not_at_all() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);

    // Another process knows another version of the workflow only.
    let later = Workflows::new(fixture.store.db().clone());
    let version = |end: &'static str| {
        Workflow::new("asking")
            .start_at("start")
            .compute("start", |_| Ok(1))
            .checkpoint("ask")
            .compute(end, move |_| Ok(end))
            .edge("start", "ask")
            .edge("ask", end)
            .build()
            .unwrap()
    };
    later.register(&version("finish"));
    let scheduler = later.scheduler(SchedulerOptions::default()).unwrap();
    later.answer(&Answer::new(&run, json!("yes"))).unwrap();
    let view = later
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    let stale = later.accept_definition(&run, view.run_revision - 1, person());
    assert!(stale.is_err());
    later
        .accept_definition(&run, view.run_revision, person())
        .unwrap();
    let view = later.wait(&run, LONG).unwrap();
    assert_eq!(view.final_output, Some(json!("finish")));
    assert!(
        fixture
            .events(&run)
            .contains(&"run.definition_accepted".to_owned())
    );
    scheduler.stop(LONG);
}

#[test]
fn case_055_a_definition_without_a_visited_node_is_not_accepted() {
    let fixture = Fixture::new();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&asking(), json!(null)).unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    let later = Workflows::new(fixture.store.db().clone());
    let other = Workflow::new("asking")
        .start_at("ask")
        .checkpoint("ask")
        .build()
        .unwrap();
    later.register(&other);
    let refused = later.accept_definition(&run, view.run_revision, person());
    assert!(
        matches!(refused, Err(WorkflowError::Rejected { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_workflow_that_this_program_does_not_know_is_left_to_others() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let other = Workflows::new(fixture.store.db().clone());
    let scheduler = other.scheduler(SchedulerOptions::default()).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    assert_eq!(fixture.events(&run), ["run.queued"]);
    assert_eq!(
        other.explain(&run).unwrap().blocked_by.as_deref(),
        Some("noRunner")
    );
    other.register(&echo());
    assert_eq!(other.wait(&run, LONG).unwrap().status, RunStatus::Completed);
    scheduler.stop(LONG);
}

/// Finds nothing that it can load.
struct Broken;

impl SourceResolver for Broken {
    fn resolve(&self, _: &SourceIdentity, _: Digest) -> Result<Definition, Unresolved> {
        Err(Unresolved::LoadFailed {
            error: "it does not load".to_owned(),
        })
    }

    fn present(&self, source: &SourceIdentity) -> Result<(Definition, SourceIdentity), Unresolved> {
        Err(Unresolved::Unknown {
            reference: source.reference(),
        })
    }
}

#[test]
fn a_workflow_that_does_not_load_fails_its_run() {
    let fixture = Fixture::new();
    let run = fixture.workflows.run(&echo(), json!(1)).unwrap();
    let broken = fixture.workflows.clone().resolving_with(Arc::new(Broken));
    let scheduler = broken.scheduler(SchedulerOptions::default()).unwrap();
    let view = broken.wait(&run, LONG).unwrap();
    assert_eq!(
        (view.status, view.error_code.as_deref()),
        (RunStatus::Failed, Some("workflowLoadFailed"))
    );
    assert_eq!(view.error.as_deref(), Some("it does not load"));
    scheduler.stop(LONG);
}
