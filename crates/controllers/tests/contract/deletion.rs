//! K3, K4 and K9: what holds a resource, and how it goes.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Finished, Forced};
use holdpoint_controllers::model::{ControllerName, FinalizerName, Next, StatusPatch};
use holdpoint_controllers::views::{self, Blocker};
use holdpoint_state::{Actor, Disposition, StateError};
use serde_json::json;

use crate::support::{Result, World, ann, finalizer, target};

fn names(texts: &[&str]) -> Vec<FinalizerName> {
    texts.iter().map(|text| finalizer(text)).collect()
}

fn holding(texts: &[&str]) -> StatusPatch {
    StatusPatch {
        finalizers: Some(names(texts)),
        ..StatusPatch::default()
    }
}

fn add(world: &World, name: &str) -> Result {
    commands::add_finalizer(world.db(), &target(), &finalizer(name), ann())?;
    Ok(())
}

fn delete(world: &World) -> Result {
    commands::request_deletion(world.db(), &target(), ann())?;
    Ok(())
}

#[test]
fn controller_36_the_pass_that_lets_go_deletes_and_the_history_stays() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "a")?;
    let uid = world.uid()?;
    delete(&world)?;
    let claim = world.claim()?;
    assert_eq!(
        world.finish_with(&claim, &holding(&[]), Next::Settled)?,
        Finished::Deleted
    );
    let snapshot = world.db().snapshot()?;
    assert_eq!(views::resource(&snapshot, &target())?, None);
    assert_eq!(views::queue(&snapshot, &uid)?, None);
    assert_eq!(
        world.events(&uid)?,
        [
            "resource.created",
            "resource.finalizers_updated",
            "resource.deletion_requested",
            "lease.claimed",
            "reconcile_finished",
            "resource_deleted"
        ]
    );
    let kept = snapshot.resource(&uid.resource())?.unwrap();
    assert_eq!(
        (kept.revision, kept.lease.generation, kept.lease.owner),
        (6, 1, None)
    );
    world.check()
}

#[test]
fn controller_37_a_pass_that_goes_on_deletes_nothing_yet() -> Result {
    let world = World::with(json!(1))?;
    delete(&world)?;
    let claim = world.claim()?;
    assert_eq!(
        world.finish(&claim, Next::Requeue { after_ms: None })?,
        Finished::Requeued { at: world.now() }
    );
    assert!(world.resource()?.metadata.deletion_timestamp.is_some());
    assert_eq!(world.pass()?, Finished::Deleted);
    world.check()
}

#[test]
fn controller_38_a_second_deletion_is_adopted() -> Result {
    let world = World::with(json!(1))?;
    let first = commands::request_deletion(world.db(), &target(), ann())?;
    world.advance(5_000);
    let second = commands::request_deletion(world.db(), &target(), ann())?;
    assert_eq!(
        (second.disposition, second.revision),
        (Disposition::Adopted, first.revision)
    );
    assert_eq!(second.value, first.value);
    world.check()
}

#[test]
fn controller_39_the_same_key_again_is_another_resource() -> Result {
    let world = World::with(json!(1))?;
    let old = world.uid()?;
    delete(&world)?;
    assert_eq!(world.pass()?, Finished::Deleted);
    let made = world.apply(json!(1))?;
    assert_ne!(made.uid, old);
    assert_ne!(made.uid.resource().id(), old.resource().id());
    assert_eq!(made.generation, 1);
    assert_eq!(world.events(&made.uid)?, ["resource.created"]);
    assert_eq!(
        world.events(&old)?.last().map(String::as_str),
        Some("resource_deleted")
    );
    assert_eq!(world.pass()?, Finished::Settled);
    world.check()
}

#[test]
fn controller_40_finalizers_are_named_once_and_not_while_deleting() -> Result {
    let world = World::with(json!(1))?;
    let set = |texts: &[&str], version| {
        commands::set_finalizers(world.db(), &target(), version, names(texts), ann())
    };
    assert!(matches!(
        set(&["a", "a"], 1),
        Err(ControllerError::Invalid(_))
    ));
    set(&["a", "b"], 1)?;
    assert!(matches!(
        set(&["b"], 1),
        Err(ControllerError::State(StateError::StaleRevision {
            actual: 2,
            ..
        }))
    ));
    delete(&world)?;
    assert!(matches!(
        set(&["a", "b", "c"], 3),
        Err(ControllerError::Invalid(_))
    ));
    set(&["b"], 3)?;
    // A pass may not either: it fails.
    let claim = world.claim()?;
    let finished = world.finish_with(&claim, &holding(&["b", "c"]), Next::Settled)?;
    assert!(matches!(finished, Finished::Failed { .. }), "{finished:?}");
    assert_eq!(world.resource()?.metadata.finalizers, names(&["b"]));
    world.check()
}

#[test]
fn case_075_finalizers_change_on_what_is_and_can_be_repeated() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "a")?;
    add(&world, "b")?;
    // Whoever removes one does not have to know of the other, nor of what came between.
    world.apply(json!(2))?;
    let removed = commands::remove_finalizer(world.db(), &target(), &finalizer("a"), ann())?;
    assert_eq!(
        (removed.disposition, removed.value),
        (Disposition::Accepted, names(&["b"]))
    );
    let again = commands::remove_finalizer(world.db(), &target(), &finalizer("a"), ann())?;
    assert_eq!(
        (again.disposition, again.value),
        (Disposition::Adopted, names(&["b"]))
    );
    let again = commands::add_finalizer(world.db(), &target(), &finalizer("b"), ann())?;
    assert_eq!(again.disposition, Disposition::Adopted);
    // A pass that meets the change goes round again, at once, and then ends.
    delete(&world)?;
    let claim = world.claim()?;
    commands::remove_finalizer(world.db(), &target(), &finalizer("b"), ann())?;
    assert_eq!(
        world.finish_with(&claim, &holding(&[]), Next::Settled)?,
        Finished::Conflict
    );
    assert_eq!(world.pass()?, Finished::Deleted);
    world.check()
}

#[test]
fn case_076_a_finalizer_without_a_controller_is_named_and_can_be_forced() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "tree/files")?;
    let uid = world.uid()?;
    delete(&world)?;
    delete(&world)?;
    let explained = |known: &[ControllerName]| {
        let explanation = views::explain(&world.db().snapshot()?, &target(), known, world.now())?;
        Ok::<_, ControllerError>(
            explanation
                .map(|explanation| explanation.blockers)
                .unwrap_or_default(),
        )
    };
    let holds = |has_controller| Blocker::Finalizer {
        finalizer: finalizer("tree/files"),
        has_controller,
    };
    let controller = target().controller;
    assert_eq!(
        explained(&[])?,
        [
            Blocker::NoController {
                controller: controller.clone()
            },
            holds(false)
        ]
    );
    assert_eq!(explained(&[controller])?, [holds(true)]);
    // Only a person or control, and with a reason that is kept.
    let force = |actor| {
        commands::force_finalizer(
            world.db(),
            &target(),
            &finalizer("tree/files"),
            "gone since May",
            actor,
        )
    };
    assert!(matches!(
        force(Actor::new(holdpoint_state::ActorKind::Session, "s")),
        Err(ControllerError::State(StateError::ActorDenied { .. }))
    ));
    let forced = force(ann())?;
    assert_eq!(
        forced.value,
        Forced {
            finalizers: vec![],
            is_deleted: true
        }
    );
    let events = views::events(&world.db().snapshot()?, &uid, 2)?;
    assert_eq!(events[1].event_type, "resource.finalizer_forced");
    assert_eq!(
        events[1].facts,
        json!({ "finalizer": "tree/files", "reason": "gone since May" })
    );
    assert_eq!(
        (events[0].event_type.as_str(), events[0].actor.as_str()),
        ("resource_deleted", "human")
    );
    assert!(matches!(
        force(ann()),
        Err(ControllerError::NotFound { .. })
    ));
    world.check()
}

#[test]
fn a_forced_finalizer_takes_nothing_out_of_the_hands_of_a_pass() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "a")?;
    add(&world, "b")?;
    let force =
        |name| commands::force_finalizer(world.db(), &target(), &finalizer(name), "why", ann());
    assert_eq!(
        force("a")?.value,
        Forced {
            finalizers: names(&["b"]),
            is_deleted: false
        }
    );
    assert_eq!(force("a")?.disposition, Disposition::Adopted);
    delete(&world)?;
    let claim = world.claim()?;
    assert_eq!(
        force("b")?.value,
        Forced {
            finalizers: vec![],
            is_deleted: false
        }
    );
    let by_force = || commands::force_deletion(world.db(), &target(), "why", ann());
    assert!(matches!(by_force(), Err(ControllerError::NotForced { .. })));
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Conflict);
    by_force()?;
    assert_eq!(views::resource(&world.db().snapshot()?, &target())?, None);
    world.check()
}

#[test]
fn force_deletes_only_what_is_to_be_deleted_and_held_by_nothing() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "a")?;
    let by_force = || commands::force_deletion(world.db(), &target(), "why", ann());
    assert!(matches!(by_force(), Err(ControllerError::NotForced { .. })));
    delete(&world)?;
    assert!(matches!(by_force(), Err(ControllerError::NotForced { .. })));
    commands::remove_finalizer(world.db(), &target(), &finalizer("a"), ann())?;
    let gone = by_force()?;
    assert_eq!(
        world.events(&gone.value)?.last().map(String::as_str),
        Some("resource_deleted")
    );
    world.check()
}

#[test]
fn case_080_a_resource_in_deletion_takes_nothing_new() -> Result {
    let world = World::with(json!(1))?;
    add(&world, "a")?;
    delete(&world)?;
    assert!(add(&world, "b").is_err());
    let other = commands::apply(
        world.db(),
        &commands::Apply::new(&target(), json!(2)).by(ann()),
    );
    assert!(matches!(other, Err(ControllerError::Deleting { .. })));
    // The same spec again is no change, and brings nothing back.
    assert_eq!(
        world.apply(json!(1))?.change,
        commands::SpecChange::Unchanged
    );
    let claim = world.claim()?;
    assert_eq!(
        world.finish_with(&claim, &holding(&[]), Next::Settled)?,
        Finished::Deleted
    );
    // The pass is over: nothing that it still says is written.
    let late = commands::finish(
        world.db(),
        &claim,
        &holding(&["a"]),
        Next::Settled,
        commands::PassEnd::default(),
    );
    assert!(late.unwrap_err().claim_lost().is_some());
    world.check()
}
