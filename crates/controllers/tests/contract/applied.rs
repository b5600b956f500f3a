//! K1: what is wanted is said, and adopted when it is said again.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Apply, Finished, SpecChange};
use holdpoint_controllers::model::{Next, Uid};
use holdpoint_state::{Disposition, StateError};
use serde_json::json;

use crate::support::{Result, World, ann, target};

#[test]
fn controller_01_an_equal_spec_is_adopted() -> Result {
    let world = World::with(json!({ "a": 1, "b": [true] }))?;
    let before = world.resource()?;
    let queue = world.queue()?;
    let again = Apply::new(&target(), serde_json::from_str(r#"{"b":[true],"a":1.0}"#)?)
        .initial_status(json!("ignored"));
    let receipt = commands::apply(world.db(), &again)?;
    assert_eq!(receipt.disposition, Disposition::Adopted);
    assert_eq!(receipt.value.change, SpecChange::Unchanged);
    assert_eq!((world.resource()?, world.queue()?), (before, queue));
    assert_eq!(world.events(&world.uid()?)?, ["resource.created"]);
    world.check()
}

#[test]
fn controller_02_another_spec_is_another_generation_and_the_status_stays() -> Result {
    let world = World::with(json!({ "a": 1 }))?;
    assert_eq!(world.resource()?.status.observed_generation, 0);
    assert_eq!(world.pass()?, Finished::Settled);
    let before = world.resource()?;
    let applied = world.apply(json!({ "a": 2 }))?;
    assert_eq!(
        (applied.generation, applied.change),
        (2, SpecChange::Updated)
    );
    let after = world.resource()?;
    assert_eq!(after.metadata.generation, 2);
    assert_eq!(
        after.metadata.resource_version,
        before.metadata.resource_version + 1
    );
    assert_eq!(after.status, before.status);
    assert_eq!(after.status.observed_generation, 1);
    assert!(world.queue()?.is_some());
    world.check()
}

#[test]
fn case_082_a_change_names_the_version_that_was_read() -> Result {
    let world = World::with(json!(1))?;
    let wish = |spec, version| Apply::new(&target(), spec).by(ann()).expecting(version);
    let stale = commands::apply(world.db(), &wish(json!(2), 7));
    assert!(matches!(
        stale,
        Err(ControllerError::State(StateError::StaleRevision {
            expected: 7,
            actual: 1,
            ..
        }))
    ));
    commands::apply(world.db(), &wish(json!(2), 1))?;
    // Who read the older version does not undo it.
    assert!(commands::apply(world.db(), &wish(json!(3), 1)).is_err());
    assert_eq!(world.resource()?.spec, json!(2));
    let claim = world.claim()?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn a_wish_may_name_the_spec_that_it_was_made_from() -> Result {
    let world = World::with(json!(1))?;
    let uid = world.uid()?;
    // A pass moves the version and not the spec.
    assert_eq!(world.pass()?, Finished::Settled);
    let wish = |spec, read| {
        let apply = Apply::new(&target(), spec).expecting_spec(read);
        commands::apply(world.db(), &apply)
    };
    let changed = wish(json!(2), Some((uid.clone(), 1)))?.value;
    assert_eq!(
        (changed.generation, changed.change),
        (2, SpecChange::Updated)
    );
    for read in [
        None,
        Some((uid.clone(), 1)),
        Some((Uid::new("0198c0de-0000-7000-8000-000000000000")?, 2)),
    ] {
        let refused = wish(json!(3), read.clone());
        assert!(
            matches!(refused, Err(ControllerError::SpecChanged { .. })),
            "{refused:?}"
        );
        // What is wanted is so already.
        assert_eq!(wish(json!(2), read)?.value.change, SpecChange::Unchanged);
    }
    world.check()
}
