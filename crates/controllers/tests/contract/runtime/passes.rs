//! How a pass ends, and what comes after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdpoint_controllers::commands::{self, Apply};
use holdpoint_controllers::model::{ConditionInput, ControllerName, Target};
use holdpoint_controllers::{Action, ControllerError, Controllers, PassError, finalizer};
use holdpoint_workflows::Workflows;
use holdpoint_workflows::definition::Workflow;
use serde_json::{Value, json};

use super::support::{Gate, LONG, Scripted, World, options, wait_for};

#[test]
fn a_pass_sees_what_is_wanted_and_says_what_it_found() {
    let world = World::running(Scripted::new(|pass| {
        assert_eq!(pass.status(), &json!({ "seen": 0 }));
        assert_eq!(pass.generation(), 1);
        let spec = pass.spec().clone();
        pass.set_status(json!({ "seen": spec }));
        pass.set_condition(ConditionInput::new("Ready", true, "Seen"));
        Ok(Action::settled())
    }));
    let uid = world.apply(&json!(7));
    world.settle();
    let found = world.found().unwrap();
    assert_eq!(found.status, json!({ "seen": 7 }));
    assert_eq!(found.resource.status.observed_generation, 1);
    assert!(found.resource.current_condition("Ready").is_some());
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_finished"]
    );
    assert_eq!((world.passes(), world.queue()), (1, None));
    world.verify();
}

#[test]
fn an_error_a_panic_and_a_foreign_shape_fail_a_pass_and_rest() {
    let world = World::running(Scripted::new(|pass| match pass.spec().as_str() {
        Some("error") => Err(std::io::Error::other("the disk is full").into()),
        Some("panic") => panic!("a bug"),
        _ => Ok(Action::settled()),
    }));
    for (spec, error) in [
        ("error", "the disk is full"),
        ("panic", "the pass panicked: a bug"),
    ] {
        let uid = world.apply(&json!(spec));
        world.settle();
        let queue = world.queue().unwrap();
        assert_eq!(queue.last_error.as_deref(), Some(error));
        assert_eq!(
            queue
                .available_at
                .since(holdpoint_state::clock::Clock::now(world.clock())),
            1_000 * i64::try_from(queue.consecutive_errors).unwrap()
        );
        assert_eq!(world.events(&uid).last().unwrap(), "reconcile_failed");
    }
    // Its time comes by itself, and a good pass forgets the errors.
    let before = world.passes();
    world.pass_time(1_999);
    world.settle();
    assert_eq!(world.passes(), before);
    world.pass_time(1);
    world.settle();
    assert_eq!(world.passes(), before + 1);
    assert_eq!(world.queue().unwrap().consecutive_errors, 3);
    world.apply(&json!("good"));
    world.settle();
    assert_eq!(world.queue(), None);
    world.verify();
}

#[test]
fn what_fails_together_does_not_come_back_together() {
    for (unit, rest) in [(0.0, 800), (1.0, 1_200)] {
        let mut world = World::new(Scripted::new(|_| Err(PassError::new("no"))));
        let controllers = world.controllers.clone().jittering_with(move || unit);
        world.workflows = controllers.attach(Workflows::new(world.db().clone()));
        let now = world.db().clock().now();
        world.apply(&json!(1));
        world.start(options(1));
        world.settle();
        assert_eq!(world.queue().unwrap().available_at.since(now), rest);
    }
}

#[test]
fn controller_19_a_wait_that_is_none_fails_the_pass() {
    let world = World::running(Scripted::new(|pass| {
        let after_ms = pass.spec().as_str().unwrap().parse()?;
        pass.set_status(json!("written"));
        Ok(Action::requeue_after(Duration::from_millis(after_ms)))
    }));
    for after_ms in [0_u64, 1 << 53, u64::MAX] {
        let uid = world.apply(&json!(after_ms.to_string()));
        world.settle();
        let error = world.last_error();
        assert!(error.contains("give 1 ms to 2^53 ms"), "{error}");
        assert_eq!(world.events(&uid).last().unwrap(), "reconcile_failed");
        assert_eq!(world.found().unwrap().status, json!({ "seen": 0 }));
    }
    world.apply(&json!("5000"));
    world.settle();
    let queue = world.queue().unwrap();
    assert_eq!((queue.consecutive_errors, queue.last_error), (0, None));
    world.verify();
}

#[test]
fn controller_45_the_same_condition_twice_fails_the_pass() {
    let world = World::running(Scripted::new(|pass| {
        pass.set_condition(ConditionInput::new("Ready", true, "Yes"));
        pass.set_condition(ConditionInput::new("Ready", false, "No"));
        Ok(Action::settled())
    }));
    let uid = world.apply(&json!(1));
    world.settle();
    let error = world.last_error();
    assert!(error.contains("\"Ready\" is given twice"), "{error}");
    assert_eq!(world.events(&uid), ["resource.created", "reconcile_failed"]);
    assert!(world.resource().status.conditions.is_empty());
    world.verify();
}

#[test]
fn case_083_a_late_pass_writes_nothing() {
    let (gate, late) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (place, said) = (gate.clone(), Arc::clone(&late));
    let is_first = AtomicBool::new(true);
    let mut world = World::new(
        Scripted::new(move |pass| {
            if !is_first.swap(false, Ordering::SeqCst) {
                pass.set_status(json!("second"));
                return Ok(Action::settled());
            }
            place.pass();
            // It does not listen to its signal, which has told it.
            let told = pass.cancellation().reason();
            pass.set_status(json!("late"));
            let effect = pass.ensure(&super::effects::Recorded::new("late"));
            let child = holdpoint_controllers::Child::new("late", "nothing", 1)?;
            let child = pass.ensure_workflow(&child);
            let is_lost = |error: Option<PassError>| {
                let error = error.unwrap();
                error
                    .downcast_ref::<ControllerError>()
                    .unwrap()
                    .claim_lost()
                    .is_some()
            };
            let lost = (is_lost(effect.err()), is_lost(child.err()));
            said.lock().unwrap().push((told, lost));
            Ok(Action::settled())
        })
        .limited(Duration::from_secs(5)),
    );
    world.start(options(2));
    let uid = world.apply(&json!(1));
    gate.wait_for(1);
    world.pass_time(5_000);
    wait_for("the failure", || world.events(&uid).len() == 2);
    assert_eq!(world.last_error(), "the pass took longer than its 5000 ms");
    // The key is free: a second pass runs while the first one still does.
    world.pass_time(1_000);
    wait_for("the second pass", || world.passes() == 2);
    world.settle();
    let after = world.resource();
    assert_eq!(after.status.controller_status, json!("second"));

    gate.open(1);
    wait_for("the end of the late pass", || {
        !late.lock().unwrap().is_empty()
    });
    let told = late.lock().unwrap()[0];
    assert_eq!(
        told.0,
        Some(holdpoint_workflows::definition::StopReason::TimedOut)
    );
    assert_eq!(told.1, (true, true));
    world.settle();
    assert_eq!(world.resource(), after);
    assert!(world.effects().is_empty());
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_failed", "reconcile_finished"]
    );
    world.verify();
}

#[test]
fn a_scheduler_that_stops_hands_its_passes_over_and_counts_no_error() {
    let gate = Gate::default();
    let place = gate.clone();
    let mut world = World::new(Scripted::new(move |pass| {
        if pass.spec() == &json!("quick") {
            return Ok(Action::settled());
        }
        place.pass();
        pass.cancellation().wait(LONG);
        Err(PassError::new("it was told to stop"))
    }));
    world.start(options(1));
    let uid = world.apply(&json!("slow"));
    gate.open(1);
    gate.wait_for(1);
    world.scheduler.take().unwrap().stop(Duration::ZERO);
    let queue = world.queue().unwrap();
    assert_eq!((queue.consecutive_errors, queue.last_error), (0, None));
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_handed_back"]
    );
    // Who comes next takes it at once.
    world.apply(&json!("quick"));
    world.start(options(1));
    world.settle();
    assert_eq!(world.queue(), None);
    world.verify();
}

#[test]
fn a_pass_that_ends_well_when_it_is_told_to_stop_counts() {
    let gate = Gate::default();
    let place = gate.clone();
    let mut world = World::new(Scripted::new(move |pass| {
        place.pass();
        pass.cancellation().wait(LONG);
        pass.set_status(json!("done"));
        Ok(Action::settled())
    }));
    world.start(options(1));
    let uid = world.apply(&json!(1));
    gate.open(1);
    gate.wait_for(1);
    world.scheduler.take().unwrap().stop(Duration::ZERO);
    assert_eq!(
        world.events(&uid),
        ["resource.created", "reconcile_finished"]
    );
    assert_eq!(world.found().unwrap().status, json!("done"));
    world.verify();
}

#[test]
fn controller_48_a_resource_without_its_controller_here_waits_and_nothing_turns() {
    let world = World::running(Scripted::new(|_| Ok(Action::settled())));
    let project = world.controllers.project().clone();
    let name = ControllerName::new("elsewhere").unwrap();
    let target = Target::new(project, name.clone(), "one".parse().unwrap());
    let wish = Apply::new(&target, json!(1));
    let uid = world.controllers.send(&wish).unwrap().value.uid;
    world.apply(&json!(1));
    world.settle();
    assert_eq!(world.events(&uid), ["resource.created"]);
    assert_eq!(world.passes(), 1);
    assert!(matches!(
        world.controllers.initial_status(&name, &json!(1)),
        Err(ControllerError::NotRegistered { .. })
    ));
    // Who has the controller finds it.
    drop(world.scheduler);
    let workflows = Workflows::new(world.store.db().clone());
    let others = Controllers::new(&workflows, "/srv/app").unwrap();
    let others = others.register(Elsewhere).unwrap();
    let workflows = others.attach(workflows);
    let scheduler = workflows.scheduler(options(1)).unwrap();
    assert!(scheduler.wait_until_idle(LONG));
    let found = others.get::<Elsewhere>("one").unwrap().unwrap();
    assert_eq!(found.resource.status.observed_generation, 1);
}

struct Elsewhere;

impl holdpoint_controllers::Controller for Elsewhere {
    type Spec = Value;
    type Status = Value;

    fn name(&self) -> &'static str {
        "elsewhere"
    }

    fn initial_status(&self, _: &Value) -> Value {
        Value::Null
    }

    fn reconcile(
        &self,
        _: &mut holdpoint_controllers::Pass<'_, Value, Value>,
    ) -> Result<Action, PassError> {
        Ok(Action::settled())
    }
}

#[test]
fn controller_49_at_capacity_1_runs_and_passes_alternate() {
    let log: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let passes = Arc::clone(&log);
    let mut world = World::new(Scripted::new(move |_| {
        passes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push("pass");
        Ok(Action::settled())
    }));
    let runs = Arc::clone(&log);
    let noting = Workflow::new("noting")
        .start_at("n")
        .compute("n", move |_| {
            runs.lock().unwrap().push("run");
            Ok(true)
        })
        .build()
        .unwrap();
    for item in 0..5 {
        world.workflows.run(&noting, "").unwrap();
        let key = format!("key-{item}");
        world
            .controllers
            .apply::<Scripted>(key, &json!(item))
            .unwrap();
    }
    // All of them wait before the one worker begins.
    world.start(options(1));
    world.settle();
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 10);
    // What is found first may run before the other search has ended; from then on they take turns.
    let from = log.iter().position(|word| *word != log[0]).unwrap();
    assert!(from <= 2, "{log:?}");
    let turns = &log[from..];
    let others = turns.iter().filter(|word| **word == log[0]).count();
    for pair in turns.chunks_exact(2).take(others.min(turns.len() - others)) {
        assert_ne!(pair[0], pair[1], "{log:?}");
    }
}

#[test]
fn a_finalizer_is_there_before_anything_is_made_and_goes_after_all_is_gone() {
    let log: Arc<Mutex<Vec<String>>> = Arc::default();
    let said = Arc::clone(&log);
    let world = World::running(Scripted::new(move |pass| {
        let said = Arc::clone(&said);
        finalizer::with(pass, "example.com/thing", |pass, event| {
            let finalizers = pass.metadata().finalizers.len();
            said.lock().unwrap().push(format!("{event:?} {finalizers}"));
            let steps = pass.status()["seen"].as_u64().unwrap_or(0);
            match event {
                // A cleanup in two steps.
                finalizer::Event::Cleanup if steps == 0 => {
                    pass.set_status(json!({ "seen": 1 }));
                    Ok(Action::requeue())
                }
                finalizer::Event::Apply | finalizer::Event::Cleanup => Ok(Action::settled()),
            }
        })
    }));
    let uid = world.apply(&json!(1));
    world.settle();
    assert_eq!(*log.lock().unwrap(), ["Apply 1"]);
    world.controllers.delete::<Scripted>("one").unwrap();
    assert!(
        world
            .controllers
            .wait_until_gone::<Scripted>("one", LONG)
            .unwrap()
    );
    world.settle();
    assert_eq!(*log.lock().unwrap(), ["Apply 1", "Cleanup 1", "Cleanup 1"]);
    assert_eq!(world.events(&uid).last().unwrap(), "resource_deleted");
    // The key is free for another resource.
    assert_ne!(world.apply(&json!(1)), uid);
    world.settle();
    world.verify();
}

#[test]
fn case_080_a_pass_that_let_go_may_only_end() {
    let refused: Arc<Mutex<Vec<String>>> = Arc::default();
    let said = Arc::clone(&refused);
    let world = World::running(Scripted::new(move |pass| {
        let name = "example.com/thing".parse()?;
        if !pass.is_deleting() {
            pass.add_finalizer(&name)?;
            return Ok(Action::settled());
        }
        pass.remove_finalizer(&name);
        let mut said = said.lock().unwrap();
        said.push(
            pass.add_finalizer(&"example.com/other".parse()?)
                .unwrap_err()
                .to_string(),
        );
        said.push(
            pass.ensure(&super::effects::Recorded::new("late"))
                .unwrap_err()
                .to_string(),
        );
        let child = holdpoint_controllers::Child::new("late", "nothing", 1)?;
        said.push(pass.ensure_workflow(&child).unwrap_err().to_string());
        Ok(Action::settled())
    }));
    world.apply(&json!(1));
    world.settle();
    world.controllers.delete::<Scripted>("one").unwrap();
    assert!(
        world
            .controllers
            .wait_until_gone::<Scripted>("one", LONG)
            .unwrap()
    );
    let refused = refused.lock().unwrap();
    assert!(refused[0].contains("takes no new finalizer"), "{refused:?}");
    assert!(refused[1].contains("it may only end"), "{refused:?}");
    assert_eq!(refused[1], refused[2]);
    world.verify();
}

#[test]
fn a_name_and_a_type_are_registered_once() {
    let world = World::new(Scripted::new(|_| Ok(Action::settled())));
    let again = world
        .controllers
        .clone()
        .register(Scripted::new(|_| Ok(Action::settled())));
    assert!(matches!(again, Err(ControllerError::Registered { .. })));
    assert!(matches!(
        world.controllers.get::<Elsewhere>("one"),
        Err(ControllerError::NotRegistered { .. })
    ));
    let names: Vec<String> = world
        .controllers
        .names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["scripted"]);
    let target = world.controllers.target::<Scripted>("none").unwrap();
    assert!(matches!(
        commands::enqueue(world.db(), &target, None),
        Err(ControllerError::NotFound { .. })
    ));
}
