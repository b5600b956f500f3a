//! The status of a resource: limits, and what a patch makes of it.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Apply, Finished};
use holdpoint_controllers::model::{
    ConditionInput, ConditionStatus, DOCUMENT_BYTES_MAX, Invalid, Next, StatusPatch,
};
use serde_json::json;

use crate::support::{Result, World, ann, finalizer, named, target};

fn ready(status: impl Into<ConditionStatus>, reason: &str) -> StatusPatch {
    StatusPatch {
        conditions: vec![ConditionInput::new("Ready", status, reason)],
        ..StatusPatch::default()
    }
}

/// A text whose JSON has exactly that many bytes, in characters of three bytes.
fn text(bytes: usize) -> String {
    let inner = bytes - 2;
    format!("{}{}", "a".repeat(inner % 3), "€".repeat(inner / 3))
}

#[test]
fn controller_42_a_spec_has_a_mebibyte_at_most() -> Result {
    let world = World::new()?;
    let large = commands::apply(
        world.db(),
        &Apply::new(&target(), json!(text(DOCUMENT_BYTES_MAX + 1))).by(ann()),
    );
    assert!(matches!(
        large,
        Err(ControllerError::Invalid(Invalid::TooLarge {
            what: "spec",
            bytes: 1_048_577,
            ..
        }))
    ));
    let spec = json!(text(DOCUMENT_BYTES_MAX));
    commands::apply(world.db(), &Apply::new(&target(), spec.clone()).by(ann()))?;
    assert_eq!(world.resource()?.spec, spec);
    // A status too: the whole of it counts, and a pass that finds more has failed.
    let claim = world.claim()?;
    let patch = StatusPatch {
        controller_status: Some(spec),
        ..StatusPatch::default()
    };
    let finished = world.finish_with(&claim, &patch, Next::Settled)?;
    assert!(matches!(finished, Finished::Failed { .. }), "{finished:?}");
    assert_eq!(world.resource()?.status.observed_generation, 0);
    world.check()
}

#[test]
fn a_status_that_is_nested_too_deep_fails_the_pass() -> Result {
    let world = World::new()?;
    commands::apply(world.db(), &Apply::new(&target(), json!(1)).by(ann()))?;
    let claim = world.claim()?;
    let patch = StatusPatch {
        controller_status: Some((0..200).fold(json!(1), |inner, _| json!([inner]))),
        ..StatusPatch::default()
    };
    // The claim is given back with the failure: nobody has to wait until it runs out.
    let finished = world.finish_with(&claim, &patch, Next::Settled)?;
    assert!(
        matches!(&finished, Finished::Failed { error, .. } if error.contains("the status can't be stored")),
        "{finished:?}"
    );
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let spec = commands::apply(world.db(), &Apply::new(&target(), deep).by(ann()));
    assert!(matches!(
        spec,
        Err(ControllerError::Invalid(Invalid::NotStorable {
            what: "spec",
            ..
        }))
    ));
    world.check()
}

#[test]
fn controller_43_an_event_has_64_kibibytes_at_most() -> Result {
    let world = World::with(json!(1))?;
    // 150 names of 512 characters would be in the event of one change.
    let many: Vec<_> = (0..150)
        .map(|index| finalizer(&format!("{index:0>512}")))
        .collect();
    let before = (world.resource()?, world.queue()?);
    let refused = commands::set_finalizers(world.db(), &target(), 1, many, ann());
    assert!(matches!(
        refused,
        Err(ControllerError::Invalid(Invalid::TooLarge {
            what: "event payload",
            ..
        }))
    ));
    assert_eq!((world.resource()?, world.queue()?), before);
    assert_eq!(world.events(&world.uid()?)?.len(), 1);
    world.check()
}

#[test]
fn controller_44_a_condition_that_stays_so_keeps_its_time() -> Result {
    let world = World::with(json!(1))?;
    let begun = world.now();
    let claim = world.claim()?;
    world.finish_with(&claim, &ready(false, "Missing"), Next::Settled)?;
    world.apply(json!(2))?;
    world.advance(1_000);
    assert_eq!(world.resource()?.current_condition("Ready"), None);
    let claim = world.claim()?;
    world.finish_with(&claim, &ready(false, "Broken"), Next::Settled)?;
    let resource = world.resource()?;
    let condition = resource.current_condition("Ready").unwrap();
    assert_eq!(
        (
            condition.reason.as_str(),
            condition.observed_generation,
            condition.last_transition_time
        ),
        ("Broken", 2, begun)
    );
    // Another answer has another time; what a patch does not name stays with its generation.
    commands::enqueue(world.db(), &target(), None)?;
    world.advance(1_000);
    let claim = world.claim()?;
    world.finish_with(
        &claim,
        &ready(ConditionStatus::Unknown, "Lost"),
        Next::Settled,
    )?;
    assert_eq!(
        world.resource()?.status.conditions[0].last_transition_time,
        begun.plus(2_000)
    );
    world.apply(json!(3))?;
    assert_eq!(world.pass()?, Finished::Settled);
    let resource = world.resource()?;
    assert_eq!(
        (
            resource.status.observed_generation,
            resource.status.conditions[0].observed_generation
        ),
        (3, 2)
    );
    assert_eq!(resource.current_condition("Ready"), None);
    world.check()
}

#[test]
fn controller_45_a_condition_type_twice_fails_the_pass() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let mut patch = ready(true, "Once");
    patch
        .conditions
        .push(ConditionInput::new("Ready", false, "Twice"));
    let finished = world.finish_with(&claim, &patch, Next::Settled)?;
    let Finished::Failed { error, retry_at } = finished else {
        return Err(format!("{finished:?}").into());
    };
    assert!(error.contains("Ready"), "{error}");
    assert_eq!(retry_at, world.now().plus(1_000));
    assert_eq!(world.resource()?.status.conditions, []);
    for (condition_type, reason) in [(" ", "Why"), ("Ready", "")] {
        world.advance(60_000);
        let claim = world.claim()?;
        let patch = StatusPatch {
            conditions: vec![ConditionInput::new(condition_type, true, reason)],
            ..StatusPatch::default()
        };
        assert!(matches!(
            world.finish_with(&claim, &patch, Next::Settled)?,
            Finished::Failed { .. }
        ));
    }
    world.check()
}

#[test]
fn a_patch_changes_what_it_names_and_a_status_write_wakes_nobody() -> Result {
    let world = World::with(json!(1))?;
    let run = holdpoint_workflows::RunId::new("run-1")?;
    let claim = world.claim()?;
    let patch = StatusPatch {
        controller_status: Some(json!({ "n": 1 })),
        workflow_run: Some(Some(run.clone())),
        ..ready(true, "Ok")
    };
    assert_eq!(
        world.finish_with(&claim, &patch, Next::Settled)?,
        Finished::Settled
    );
    assert_eq!(world.queue()?, None);
    let first = world.resource()?;
    assert_eq!(
        (&first.status.controller_status, &first.status.workflow_run),
        (&json!({ "n": 1 }), &Some(run))
    );
    commands::enqueue(world.db(), &target(), None)?;
    let claim = world.claim()?;
    let patch = StatusPatch {
        controller_status: Some(json!(null)),
        workflow_run: Some(None),
        ..StatusPatch::default()
    };
    world.finish_with(&claim, &patch, Next::Settled)?;
    let second = world.resource()?;
    assert_eq!(
        (
            &second.status.controller_status,
            &second.status.workflow_run
        ),
        (&json!(null), &None)
    );
    assert_eq!(second.status.conditions, first.status.conditions);
    world.check()
}

#[test]
fn a_resource_serialises_in_the_public_shape() -> Result {
    let world = World::new()?;
    commands::apply(
        world.db(),
        &Apply::new(&named("docs"), json!({ "files": 2 }))
            .initial_status(json!({ "done": 0 }))
            .by(ann()),
    )?;
    commands::add_finalizer(world.db(), &named("docs"), &finalizer("tree/files"), ann())?;
    let uid = holdpoint_controllers::views::uid(&world.db().snapshot()?, &named("docs"))?.unwrap();
    let claim = commands::claim(world.db(), &commands::Claiming::new(&uid, &world.host))?.unwrap();
    world.finish_with(&claim, &ready(true, "InPlace"), Next::Settled)?;
    commands::request_deletion(world.db(), &named("docs"), ann())?;
    let resource =
        holdpoint_controllers::views::resource(&world.db().snapshot()?, &named("docs"))?.unwrap();
    insta::assert_snapshot!(
        "resource",
        serde_json::to_string_pretty(&resource)?.replace(uid.as_str(), "[uid]")
    );
    let read: holdpoint_controllers::ManagedResource =
        serde_json::from_value(serde_json::to_value(&resource)?)?;
    assert_eq!(read, resource);
    world.check()
}
