//! What can change during a pass (controllers reference, section 8), from the side of the runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdpoint_controllers::{Action, Child, Controllers, finalizer};
use holdpoint_workflows::Workflows;
use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::definition::Workflow;
use serde_json::{Value, json};

use super::support::{Gate, LONG, Scripted, World, options};

/// A pass that waits at a gate, and then shows the spec that it saw.
fn gated(gate: &Gate) -> Scripted {
    let gate = gate.clone();
    Scripted::new(move |pass| {
        gate.pass();
        let spec = pass.spec().clone();
        pass.set_status(json!({ "saw": spec }));
        Ok(Action::settled())
    })
}

#[test]
fn controller_07_a_change_of_the_spec_during_a_pass_drops_what_it_found() {
    let gate = Gate::default();
    let world = World::running(gated(&gate));
    let uid = world.apply(&json!(1));
    gate.wait_for(1);
    world.apply(&json!(2));
    gate.open(1);
    gate.wait_for(2);
    // The status of the first pass was dropped.
    assert_eq!(world.found().unwrap().status, json!({ "seen": 0 }));
    gate.open(2);
    world.settle();
    let found = world.found().unwrap();
    assert_eq!(found.status, json!({ "saw": 2 }));
    assert_eq!(found.resource.status.observed_generation, 2);
    let events = world.events(&uid);
    assert_eq!(
        events,
        [
            "resource.created",
            "resource.spec_updated",
            "reconcile_conflict",
            "reconcile_finished"
        ]
    );
    assert_eq!((world.passes(), world.queue()), (2, None));
    world.verify();
}

#[test]
fn controller_05_a_hint_during_a_pass_is_no_conflict_and_another_pass_follows() {
    let gate = Gate::default();
    let world = World::running(gated(&gate));
    let uid = world.apply(&json!(1));
    gate.wait_for(1);
    for _ in 0..10 {
        world.controllers.hint::<Scripted>("one", None).unwrap();
    }
    gate.open(10);
    world.settle();
    assert_eq!(
        world.events(&uid),
        [
            "resource.created",
            "reconcile_finished",
            "reconcile_finished"
        ]
    );
    assert_eq!((world.passes(), world.queue()), (2, None));
    world.verify();
}

#[test]
fn controller_09_a_deletion_during_a_pass_is_a_conflict_and_the_next_pass_sees_it() {
    let gate = Gate::default();
    let place = gate.clone();
    let world = World::running(Scripted::new(move |pass| {
        finalizer::with(pass, "example.com/thing", |_, event| {
            if event == finalizer::Event::Apply {
                place.pass();
            }
            Ok(Action::settled())
        })
    }));
    let uid = world.apply(&json!(1));
    gate.wait_for(1);
    world.controllers.delete::<Scripted>("one").unwrap();
    gate.open(1);
    assert!(
        world
            .controllers
            .wait_until_gone::<Scripted>("one", LONG)
            .unwrap()
    );
    world.settle();
    let events = world.events(&uid);
    let expected = [
        "resource.created",
        "reconcile_finished",
        "resource.deletion_requested",
        "reconcile_conflict",
        "reconcile_finished",
        "resource_deleted",
    ];
    assert_eq!(events, expected);
    world.verify();
}

#[test]
fn controller_10_a_child_that_ends_during_a_pass_is_a_conflict_and_counts_no_error() {
    let definition = Workflow::new("asking")
        .input::<Value>()
        .start_at("ask")
        .checkpoint("ask")
        .request(|_| Ok("May I?".to_owned()))
        .build()
        .unwrap();
    let gate = Gate::default();
    let place = gate.clone();
    let world = World::running(Scripted::new(move |pass| {
        let record = pass.ensure_workflow(&Child::of("ask", &definition, 1)?)?;
        pass.set_workflow_run(record.run_id);
        if pass.status()["hold"] == json!(true) {
            place.pass();
        }
        let is_asked = record.state == holdpoint_controllers::model::ChildState::Waiting;
        pass.set_status(json!({ "state": record.state, "hold": is_asked }));
        Ok(Action::settled())
    }));
    let uid = world.apply(&json!(1));
    world.settle();
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "waiting", "hold": true })
    );
    let run = world.resource().status.workflow_run.unwrap();
    world.controllers.hint::<Scripted>("one", None).unwrap();
    gate.wait_for(1);
    world
        .workflows
        .answer(&Answer::new(&run, "yes".into()))
        .unwrap();
    assert!(world.workflows.wait_for_end(&run, LONG).unwrap().is_some());
    let conflicts = || {
        let events = world.events(&uid).into_iter();
        events.filter(|event| event == "reconcile_conflict").count()
    };
    // The run may have begun to wait during the pass that started it.
    let before = (world.passes(), conflicts());
    gate.open(10);
    world.settle();
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "succeeded", "hold": false })
    );
    assert_eq!((world.passes(), conflicts()), (before.0 + 1, before.1 + 1));
    assert!(!world.events(&uid).contains(&"reconcile_failed".to_owned()));
    world.verify();
}

#[test]
fn controller_11_two_hosts_find_a_resource_at_once_and_one_has_it() {
    let count = Arc::new(AtomicU64::new(0));
    let active = Arc::new(AtomicU64::new(0));
    let scripted = || {
        let (count, active) = (Arc::clone(&count), Arc::clone(&active));
        Scripted::new(move |_| {
            assert_eq!(
                active.fetch_add(1, Ordering::SeqCst),
                0,
                "two passes of one key at once"
            );
            count.fetch_add(1, Ordering::SeqCst);
            std::thread::yield_now();
            active.fetch_sub(1, Ordering::SeqCst);
            Ok(Action::settled())
        })
    };
    let mut world = World::new(scripted());
    world.start(options(2));
    let other = world.store.open().unwrap();
    let workflows = Workflows::new(other.clone());
    let others = Controllers::new(&workflows, "/srv/app")
        .unwrap()
        .register(scripted())
        .unwrap();
    let workflows = others.attach(workflows);
    let scheduler = workflows.scheduler(options(2)).unwrap();
    let uid = world.apply(&json!(0));
    for round in 1..=20 {
        world.controllers.hint::<Scripted>("one", None).unwrap();
        workflows.wake_work();
        if round % 4 == 0 {
            world.settle();
        }
    }
    world.settle();
    assert!(scheduler.wait_until_idle(LONG));
    world.settle();
    let claims = world
        .history(&uid)
        .iter()
        .filter(|event| event.event_type == "lease.claimed")
        .count();
    assert_eq!(u64::try_from(claims).unwrap(), count.load(Ordering::SeqCst));
    assert!(
        world
            .events(&uid)
            .iter()
            .all(|event| event != "reconcile_failed")
    );
    scheduler.stop(LONG);
    world.verify();
    other.close();
}
