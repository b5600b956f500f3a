//! K11 to K13 from the side of a pass: finite runs, one for each key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdpoint_controllers::commands::{self, Claiming};
use holdpoint_controllers::model::ChildRequest;
use holdpoint_controllers::{Action, Child, ControllerError, PassError, views};
use holdpoint_state::{Owner, OwnerKind};
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{Answer, Start};
use holdpoint_workflows::definition::{Definition, NodeError, Workflow};
use serde_json::{Value, json};

use super::support::{Gate, Scripted, World, options, wait_for};

fn counting(name: &str, count: &Arc<AtomicU64>) -> Definition {
    let count = Arc::clone(count);
    Workflow::new(name)
        .input::<Value>()
        .start_at("n")
        .compute("n", move |ctx| {
            count.fetch_add(1, Ordering::SeqCst);
            match ctx.input() {
                Value::Null => Err(NodeError::new("it can't be done")),
                input => Ok(input.clone()),
            }
        })
        .build()
        .unwrap()
}

/// A pass that has one child and shows its state.
fn showing(child: impl Fn(&Value) -> Result<Child, PassError> + Send + Sync + 'static) -> Scripted {
    Scripted::new(move |pass| {
        let record = pass.ensure_workflow(&child(pass.spec())?)?;
        pass.set_workflow_run(record.run_id.clone());
        pass.set_status(json!({ "state": record.state, "error": record.error }));
        Ok(Action::settled())
    })
}

fn run_of(world: &World) -> RunId {
    world.resource().status.workflow_run.unwrap()
}

#[test]
fn a_child_runs_once_and_its_end_wakes_the_resource() {
    let count = Arc::new(AtomicU64::new(0));
    let definition = counting("rendering", &count);
    let world = World::running(showing(move |spec| Child::of("render", &definition, spec)));
    let uid = world.apply(&json!({ "page": 1 }));
    world.settle();
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "succeeded", "error": null })
    );
    let view = world.workflows.view(&run_of(&world)).unwrap();
    assert_eq!(view.final_output, Some(json!({ "page": 1 })));
    // Another pass finds the same run.
    world.controllers.hint::<Scripted>("one", None).unwrap();
    world.settle();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    let events = world.events(&uid);
    assert_eq!(
        events
            .iter()
            .filter(|event| *event == "workflow_requested")
            .count(),
        1
    );
    let children = views::children(&world.db().snapshot().unwrap(), &uid).unwrap();
    assert_eq!((children.len(), children[0].attempt), (1, 1));
    assert_eq!(children[0].run_id, children[0].reserved_run_id);
    world.verify();
}

#[test]
fn a_child_is_found_by_its_reference_and_its_failure_is_final() {
    let count = Arc::new(AtomicU64::new(0));
    let world = World::running(showing(|spec| Child::new("render", "rendering", spec)));
    // Nobody knows the workflow yet.
    world.apply(&json!(null));
    world.settle();
    let error = world.last_error();
    assert!(error.contains("rendering"), "{error}");
    world.workflows.register(&counting("rendering", &count));
    world.pass_time(1_000);
    world.settle();
    let status = world.found().unwrap().status;
    assert_eq!(status["state"], "failed", "{status}");
    let run = run_of(&world);
    world.controllers.hint::<Scripted>("one", None).unwrap();
    world.settle();
    assert_eq!((run_of(&world), count.load(Ordering::SeqCst)), (run, 1));
    world.verify();
}

#[test]
fn controller_29_the_same_key_with_another_wish_is_a_conflict() {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    let world = World::running(Scripted::new(move |pass| {
        let definition = counting("rendering", &counted);
        pass.ensure_workflow(&Child::of("render", &definition, 1)?)?;
        let input = pass.ensure_workflow(&Child::of("render", &definition, 2)?);
        let workflow = pass.ensure_workflow(&Child::of("render", &counting("other", &counted), 1)?);
        for (refused, expected) in [(input, "input"), (workflow, "workflow")] {
            let error = refused.err().unwrap();
            let Some(ControllerError::RequestConflict { difference, .. }) = error.downcast_ref()
            else {
                return Err(error);
            };
            assert_eq!(*difference, expected);
        }
        Ok(Action::settled())
    }));
    world.apply(&json!(1));
    world.settle();
    assert_eq!(world.queue(), None);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    world.verify();
}

#[test]
fn a_child_may_be_a_workflow_file_by_path_and_by_name() {
    let world = World::running(showing(|spec| {
        let reference = spec["workflow"].as_str().unwrap();
        Child::new(reference, reference, &spec["input"])
    }));
    let directory = world.store.directory().to_owned();
    let path = directory.join("twice.workflow.yaml");
    let text = "name: twice\nstartAt: n\nnodes: { n: { compute: { jq: $input.n * 2 } } }\n";
    std::fs::write(&path, text).unwrap();
    world.workflows.registry().search(vec![directory]);
    for reference in [path.to_str().unwrap(), "twice"] {
        world.apply(&json!({ "workflow": reference, "input": { "n": 21 } }));
        world.settle();
        assert_eq!(
            world.found().unwrap().status["state"],
            "succeeded",
            "{:?}",
            world.queue()
        );
        let view = world.workflows.view(&run_of(&world)).unwrap();
        assert_eq!(view.final_output, Some(json!(42)));
    }
    world.verify();
}

/// A host died between the start of the run and its link; the next one has another version of the workflow by now.
#[test]
fn a_run_that_was_started_before_a_crash_is_adopted_whatever_the_workflow_is_now() {
    let gate = Gate::default();
    let place = gate.clone();
    let first = Workflow::new("rendering")
        .input::<Value>()
        .start_at("n")
        .compute("n", move |ctx| {
            place.pass();
            Ok(ctx.input().clone())
        })
        .build()
        .unwrap();
    let second = Workflow::new("rendering")
        .input::<Value>()
        .start_at("other")
        .compute("other", |_| Ok("the second version"))
        .build()
        .unwrap();
    let mut world = World::new(showing(move |spec| Child::of("render", &second, spec)));
    let uid = world.apply(&json!("the first version"));
    let dead = Owner::new(OwnerKind::Host, "dead");
    let claim = commands::claim(world.db(), &Claiming::new(&uid, &dead))
        .unwrap()
        .unwrap();
    let wish = ChildRequest {
        request_key: "render".parse().unwrap(),
        workflow: "rendering".to_owned(),
        input: json!("the first version"),
    };
    let reserved = commands::children::reserve(world.db(), &claim, &wish).unwrap();
    let run = reserved.reserved_run_id.unwrap();
    let start = Start::new(&first, wish.input).run_id(run.clone());
    world.workflows.start(&start).unwrap();
    assert!(commands::hand_back(world.db(), &claim).unwrap());

    world.start(options(2));
    wait_for("the link", || {
        world.found().unwrap().status["state"] == "running"
    });
    gate.open(1);
    wait_for("the end", || {
        world.found().unwrap().status["state"] == "succeeded"
    });
    world.settle();
    assert_eq!(run_of(&world), run);
    let output = world.workflows.view(&run).unwrap().final_output;
    assert_eq!(output, Some(json!("the first version")));
    let events = world.events(&uid);
    assert!(
        !events.contains(&"reconcile_failed".to_owned()),
        "{events:?}"
    );
    world.verify();
}

#[test]
fn controller_35_a_child_that_waits_is_shown_and_its_end_wakes_the_resource() {
    let definition = Workflow::new("asking")
        .input::<Value>()
        .start_at("ask")
        .checkpoint("ask")
        .request(|_| Ok("May I?".to_owned()))
        .build()
        .unwrap();
    let world = World::running(showing(move |spec| Child::of("ask", &definition, spec)));
    world.apply(&json!(1));
    world.settle();
    assert_eq!(world.found().unwrap().status["state"], "waiting");
    world
        .workflows
        .answer(&Answer::new(&run_of(&world), "yes".into()))
        .unwrap();
    wait_for("the end", || {
        world.found().unwrap().status["state"] == "succeeded"
    });
    world.settle();
    world.verify();
}

#[test]
fn a_repeated_wish_for_other_settings_of_a_child_changes_them_once() {
    use holdpoint_state::ActorKind;
    use holdpoint_workflows::settings::{PathRule, Settings};
    let definition = Workflow::new("set")
        .input::<Value>()
        .settings(
            Settings::new(json!({ "speed": 1 }))
                .path(PathRule::new("/speed").may_replace(ActorKind::ALL)),
        )
        .start_at("ask")
        .checkpoint("ask")
        .request(|_| Ok("May I?".to_owned()))
        .build()
        .unwrap();
    let world = World::running(Scripted::new(move |pass| {
        let record = pass.ensure_workflow(&Child::of("set", &definition, 1)?)?;
        pass.set_workflow_run(record.run_id);
        let patch = json!([{ "op": "replace", "path": "/speed", "value": pass.spec() }]);
        let key = format!("speed-{}", pass.generation());
        pass.change_child_settings("set", patch, &key)?;
        let missing = pass
            .change_child_settings("other", json!([]), "key")
            .err()
            .unwrap();
        assert!(matches!(
            missing.downcast_ref(),
            Some(ControllerError::NoChild(_))
        ));
        Ok(Action::settled())
    }));
    for (spec, number) in [(2, 1), (3, 2)] {
        world.apply(&json!(spec));
        world.settle();
        world.controllers.hint::<Scripted>("one", None).unwrap();
        world.settle();
        assert_eq!(world.queue(), None);
        let settings = world.workflows.settings(&run_of(&world)).unwrap();
        assert_eq!(
            (&settings[0].value["speed"], settings[0].change_number),
            (&json!(spec), number)
        );
    }
    world.verify();
}
