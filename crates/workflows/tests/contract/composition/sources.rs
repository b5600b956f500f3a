//! Where included workflows come from: each mount has its source, and a run goes on only on the sources that it was started with.

use holdpoint_workflows::commands::{Answer, Control, Restart, Start};
use holdpoint_workflows::definition::{Definition, SourceIdentity, Workflow};
use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::{Registry, SchedulerOptions, WorkflowError, Workflows, file};
use serde_json::json;

use super::{CHILD, increment};
use crate::support::{Fixture, LONG, person};

/// `ask` as a built-in workflow of a registry, at a revision.
fn asks(mark: &'static str) -> Definition {
    Workflow::new("asks")
        .start_at("ask")
        .checkpoint("ask")
        .compute("end", move |_| Ok(mark))
        .edge("ask", "end")
        .exit("done", "end")
        .build()
        .unwrap()
}

/// Includes the built-in workflow `asks` of a registry.
fn parent(registry: &Registry) -> Definition {
    Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include_named("child", "builtin:asks")
        .edge("first", "child")
        .build_with(registry)
        .unwrap()
}

#[test]
fn a_built_in_mount_of_another_revision_parks_its_runs() {
    let fixture = Fixture::new();
    let workflows = &fixture.workflows;
    workflows
        .registry()
        .register_builtin("asks", "1", &asks("one"));
    let scheduler = fixture.scheduler();
    let definition = parent(workflows.registry());
    let run = workflows.run(&definition, json!(null)).unwrap();
    workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);

    // No digest covers a closure: the structure of revision 2 is the same.
    let later = Workflows::new(fixture.store.db().clone());
    later.registry().register_builtin("asks", "2", &asks("two"));
    let changed = parent(later.registry());
    assert_eq!(changed.digest(), definition.digest());
    later.register(&changed);
    let scheduler = later.scheduler(SchedulerOptions::default()).unwrap();
    later.answer(&Answer::new(&run, json!("yes"))).unwrap();
    let view = later
        .wait_for(&run, LONG, |view| view.error_code.is_some())
        .unwrap();
    assert_eq!(view.error_code.as_deref(), Some("workflowSourceChanged"));
    let error = view.error.unwrap();
    assert!(
        error.contains("builtin:asks of revision 1")
            && error.contains("builtin:asks of revision 2"),
        "{error}"
    );
    let refused = later.resume(&Control::of(&run));
    assert!(
        matches!(refused, Err(WorkflowError::SourceChanged { .. })),
        "{refused:?}"
    );

    // A person may look, and accept the new sources though the digest is the same.
    later
        .accept_definition(&run, view.run_revision, person())
        .unwrap();
    let view = later.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": "two" }))
    );
    let sources = fixture.text(
        "SELECT group_concat(mount_path || ' ' || source_ref || ' ' || iif(mount_path = '', '', source_revision), ', ')
         FROM (SELECT * FROM run_sources ORDER BY mount_path)",
    );
    assert_eq!(sources, " inline:parent , child asks 2");
}

#[test]
fn edge_002_another_source_of_a_mount_is_another_start() {
    let fixture = Fixture::new();
    let start = |revision: &str| {
        let registry = Registry::default();
        registry.register_builtin("asks", revision, &asks("one"));
        let start = Start::new(&parent(&registry), json!(null));
        fixture.workflows.start(&start.key("k"))
    };
    assert!(start("1").unwrap().is_accepted());
    assert!(!start("1").unwrap().is_accepted());
    let before = fixture.rows();
    let refused = start("2").unwrap_err();
    assert!(refused.to_string().contains("another sources"), "{refused}");
    assert_eq!(before, fixture.rows());
}

#[test]
fn edge_006_a_mount_without_a_valid_identity_is_refused_before_anything() {
    let fixture = Fixture::new();
    let registry = Registry::default();
    registry.register_builtin("asks", " ", &asks("one"));
    let refused = fixture.workflows.run(&parent(&registry), json!(null));
    assert!(
        matches!(refused, Err(WorkflowError::Source(_))),
        "{refused:?}"
    );
    assert_eq!(fixture.count("SELECT count(*) FROM resources"), 0);
}

#[test]
fn a_restart_has_the_sources_of_its_parent() {
    let fixture = Fixture::new();
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("plus", &increment())
        .edge("first", "plus")
        .build()
        .unwrap();
    let view = fixture.run(&definition, json!({ "n": 1 }));
    let scheduler = fixture.scheduler();
    let child = fixture
        .workflows
        .restart(&Restart::new(&view.run_id, view.run_revision))
        .unwrap()
        .value;
    let view = fixture.workflows.wait(&child, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(view.status, RunStatus::Completed);
    assert_eq!(
        fixture.count("SELECT count(*) FROM run_sources WHERE mount_path = 'plus'"),
        2
    );
}

#[test]
fn a_registry_finds_files_before_what_was_registered() {
    let fixture = Fixture::new();
    let directory = fixture.store.directory();
    let (project, home) = (directory.join("project"), directory.join("home"));
    for place in [&project, &home] {
        std::fs::create_dir_all(place).unwrap();
    }
    let registry = Registry::default();
    registry.search(vec![project.clone(), home.clone()]);
    let found = || {
        let definition = Workflow::new("parent")
            .start_at("first")
            .compute("first", |_| Ok(()))
            .include_named("it", "child")
            .edge("first", "it")
            .build_with(&registry)
            .map_err(|error| error.to_string())?;
        let mount = definition.mounts().get("it").unwrap();
        Ok::<_, String>(mount.source.reference())
    };
    assert_eq!(
        found().unwrap_err(),
        "include \"it\": unknown workflow \"child\"; there is none"
    );
    registry.register_builtin("child", "1", &increment());
    assert_eq!(found().unwrap(), "child");
    for (place, expected) in [(&home, "home"), (&project, "project")] {
        std::fs::write(place.join("child.workflow.json"), CHILD).unwrap();
        let path = directory.join(expected).join("child.workflow.json");
        assert_eq!(
            found().unwrap(),
            path.canonicalize().unwrap().to_string_lossy()
        );
    }
    // A name is no path, and a path leads nowhere for a workflow without a place.
    let relative = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include_named("it", "./child.workflow.json")
        .edge("first", "it")
        .build_with(&registry)
        .unwrap_err();
    assert_eq!(relative.code(), "G15");
    assert_eq!(registry.file_named("../project/child"), None);
}

#[test]
fn a_definition_in_memory_goes_on_as_it_was_though_its_file_changed() {
    let fixture = Fixture::new();
    let path = fixture.store.directory().join("child.workflow.json");
    std::fs::write(&path, CHILD).unwrap();
    let child = file::read(&path).unwrap().definition;
    let definition = Workflow::new("parent")
        .start_at("first")
        .compute("first", |_| Ok(()))
        .include("child", &child)
        .edge("first", "child")
        .build()
        .unwrap();
    let scheduler = fixture.scheduler();
    let run = fixture.workflows.run(&definition, json!(7)).unwrap();
    fixture.workflows.wait(&run, LONG).unwrap();
    std::fs::write(&path, "{").unwrap();
    fixture
        .workflows
        .answer(&Answer::new(&run, json!("yes")))
        .unwrap();
    let view = fixture.workflows.wait(&run, LONG).unwrap();
    scheduler.stop(LONG);
    assert_eq!(
        view.final_output,
        Some(json!({ "exit": "done", "output": [7, "yes"] }))
    );
    let reference = SourceIdentity::File {
        path: path.to_string_lossy().into_owned(),
        sha256: "0".repeat(64),
    }
    .reference();
    assert_eq!(
        view.mounted_sources.first().unwrap().source.reference,
        reference
    );
}
