//! What an older generation left open can be closed by looking, and by nothing else: otherwise its resource could never be deleted.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Finished, effects};
use holdpoint_controllers::model::{EffectKey, EffectOutcome, EffectRequest, EffectStep, Next};
use holdpoint_state::records::effects::Observation;
use serde_json::json;

use crate::support::{Result, World, ann, target};

fn file() -> Result<EffectRequest> {
    Ok(EffectRequest {
        key: EffectKey::new("one")?,
        kind: "file.write".to_owned(),
        request: json!({ "path": "a" }),
    })
}

/// A pass began the act, its process died, and then somebody changed the spec.
fn left_over() -> Result<World> {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    assert!(matches!(
        effects::begin(world.db(), &claim, &file()?)?,
        EffectStep::Act(..)
    ));
    world.advance(120_000);
    world.apply(json!(2))?;
    Ok(world)
}

#[test]
fn an_act_of_an_older_generation_is_looked_at_and_not_done_again() -> Result {
    let applied = Observation::Applied {
        result: None,
        external_ref: Some("inode 7".to_owned()),
    };
    for (seen, then) in [
        (applied, EffectOutcome::Applied),
        (Observation::NotApplied, EffectOutcome::Rejected),
        (Observation::Indeterminate, EffectOutcome::Indeterminate),
    ] {
        let world = left_over()?;
        let claim = world.claim()?;
        let step = effects::begin(world.db(), &claim, &file()?)?;
        assert!(matches!(step, EffectStep::Observe(_)), "{step:?}");
        let step = effects::observed(world.db(), &claim, &file()?, &seen)?;
        let EffectStep::Known(record) = step else {
            return Err(format!("{seen:?}: {step:?}").into());
        };
        assert_eq!((record.state, record.generation), (then, 1));
        assert_eq!(
            world.finish(&claim, Next::Requeue { after_ms: None })?,
            Finished::Requeued { at: world.now() }
        );
        // What is over is over: the key belongs to its generation.
        let claim = world.claim()?;
        let again = effects::begin(world.db(), &claim, &file()?);
        if then == EffectOutcome::Indeterminate {
            assert!(matches!(again, Ok(EffectStep::Observe(_))), "{again:?}");
        } else {
            assert!(matches!(
                again,
                Err(ControllerError::RequestConflict {
                    difference: "generation",
                    ..
                })
            ));
        }
        world.check()?;
    }
    Ok(())
}

#[test]
fn a_resource_with_such_an_act_can_be_deleted_once_it_was_looked_at() -> Result {
    let world = left_over()?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let claim = world.claim()?;
    effects::begin(world.db(), &claim, &file()?)?;
    effects::observed(world.db(), &claim, &file()?, &Observation::NotApplied)?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Deleted);
    world.check()
}
