//! K10: acts on the outside world are never repeated blindly.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Finished, effects};
use holdpoint_controllers::model::{
    EffectKey, EffectOutcome, EffectRequest, EffectStep, Next, StatusPatch,
};
use holdpoint_controllers::views::{self, Blocker};
use holdpoint_state::records::effects::{Decision, Observation, Resolution};
use holdpoint_state::{EffectAttempt, Settlement};
use serde_json::{Value, json};

use crate::support::{Result, World, ann, target};

fn request(key: &str, kind: &str, request: Value) -> EffectRequest {
    EffectRequest {
        key: EffectKey::new(key).unwrap(),
        kind: kind.to_owned(),
        request,
    }
}

fn file() -> EffectRequest {
    request("file-1", "file.write", json!({ "path": "a" }))
}

fn acting(step: EffectStep) -> Result<EffectAttempt> {
    match step {
        EffectStep::Act(attempt, _) => Ok(attempt),
        other => Err(format!("{other:?}").into()),
    }
}

fn applied(reference: &str) -> Settlement {
    Settlement::Applied {
        result: None,
        external_ref: Some(reference.to_owned()),
    }
}

fn seen(reference: &str) -> Observation {
    Observation::Applied {
        result: None,
        external_ref: Some(reference.to_owned()),
    }
}

/// A pass began the act, and its process died.
fn left_open() -> Result<World> {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    acting(effects::begin(world.db(), &claim, &file())?)?;
    world.advance(120_000);
    Ok(world)
}

#[test]
fn an_act_is_known_to_the_next_pass() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let step = effects::begin(world.db(), &claim, &file())?;
    assert_eq!(step.record().state, EffectOutcome::Pending);
    let record = effects::settle(
        world.db(),
        &claim,
        &file().key,
        &acting(step)?,
        applied("inode 7"),
    )?;
    assert_eq!(
        (record.state, record.external_ref.as_deref()),
        (EffectOutcome::Applied, Some("inode 7"))
    );
    assert_eq!(
        world.finish(&claim, Next::Requeue { after_ms: None })?,
        Finished::Requeued { at: world.now() }
    );
    let claim = world.claim()?;
    let version = world.version()?;
    assert_eq!(
        effects::begin(world.db(), &claim, &file())?,
        EffectStep::Known(record.clone())
    );
    assert_eq!(world.version()?, version);
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    assert_eq!(
        views::effects(&world.db().snapshot()?, &world.uid()?)?,
        [record]
    );
    world.check()
}

#[test]
fn controller_08_a_receipt_does_not_hide_a_spec_change() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let attempt = acting(effects::begin(world.db(), &claim, &file())?)?;
    world.apply(json!(2))?;
    // What happened outside is noted in any case.
    let record = effects::settle(world.db(), &claim, &file().key, &attempt, applied("x"))?;
    assert_eq!(record.state, EffectOutcome::Applied);
    let patch = StatusPatch {
        controller_status: Some(json!("old")),
        ..StatusPatch::default()
    };
    assert_eq!(
        world.finish_with(&claim, &patch, Next::Settled)?,
        Finished::Conflict
    );
    assert_eq!(world.resource()?.status.controller_status, json!(null));
    world.check()
}

#[test]
fn controller_24_the_same_key_for_another_request_is_a_conflict() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let attempt = acting(effects::begin(world.db(), &claim, &file())?)?;
    effects::settle(world.db(), &claim, &file().key, &attempt, applied("x"))?;
    let version = world.version()?;
    for (other, differs) in [
        (
            request("file-1", "file.write", json!({ "path": "b" })),
            "request",
        ),
        (
            request("file-1", "file.remove", json!({ "path": "a" })),
            "kind",
        ),
    ] {
        let refused = effects::begin(world.db(), &claim, &other);
        assert!(
            matches!(refused, Err(ControllerError::RequestConflict { difference, .. }) if difference == differs),
            "{refused:?}"
        );
    }
    assert_eq!(world.version()?, version);
    world.check()
}

#[test]
fn controller_25_the_same_key_for_another_generation_is_a_conflict() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let attempt = acting(effects::begin(world.db(), &claim, &file())?)?;
    effects::settle(world.db(), &claim, &file().key, &attempt, applied("x"))?;
    world.finish(&claim, Next::Settled)?;
    world.apply(json!(2))?;
    let claim = world.claim()?;
    let refused = effects::begin(world.db(), &claim, &file());
    assert!(matches!(
        refused,
        Err(ControllerError::RequestConflict {
            difference: "generation",
            ..
        })
    ));
    assert!(
        effects::begin(
            world.db(),
            &claim,
            &request("file-1/2", "file.write", json!({ "path": "a" }))
        )
        .is_ok()
    );
    world.check()
}

#[test]
fn controller_26_what_was_done_before_a_crash_is_found_and_not_done_again() -> Result {
    let world = left_open()?;
    let claim = world.claim()?;
    let step = effects::begin(world.db(), &claim, &file())?;
    assert!(matches!(step, EffectStep::Observe(_)), "{step:?}");
    let known = effects::observed(world.db(), &claim, &file(), &seen("inode 7"))?;
    let EffectStep::Known(record) = known else {
        return Err(format!("{known:?}").into());
    };
    assert_eq!(
        (record.state, record.external_ref.as_deref()),
        (EffectOutcome::Applied, Some("inode 7"))
    );
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    let events = world.events(&world.uid()?)?;
    assert!(
        events.iter().any(|event| event == "effect_recovered"),
        "{events:?}"
    );
    world.check()
}

#[test]
fn what_was_not_done_is_done_under_another_attempt() -> Result {
    let world = left_open()?;
    let claim = world.claim()?;
    let attempt = acting(effects::observed(
        world.db(),
        &claim,
        &file(),
        &Observation::NotApplied,
    )?)?;
    assert_eq!(attempt.number, 2);
    effects::settle(world.db(), &claim, &file().key, &attempt, applied("y"))?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn controller_27_an_act_that_nobody_can_know_waits_and_the_pass_goes_on() -> Result {
    let world = left_open()?;
    let claim = world.claim()?;
    let step = effects::observed(world.db(), &claim, &file(), &Observation::Indeterminate)?;
    assert_eq!(step.record().state, EffectOutcome::Indeterminate);
    let patch = StatusPatch {
        controller_status: Some(json!("unsure")),
        ..StatusPatch::default()
    };
    assert_eq!(
        world.finish_with(&claim, &patch, Next::Settled)?,
        Finished::Settled
    );
    assert_eq!(world.resource()?.status.controller_status, json!("unsure"));
    // The next pass asks again, and nobody acts.
    commands::enqueue(world.db(), &target(), None)?;
    let claim = world.claim()?;
    let version = world.version()?;
    assert!(matches!(
        effects::begin(world.db(), &claim, &file())?,
        EffectStep::Observe(_)
    ));
    let again = effects::observed(world.db(), &claim, &file(), &Observation::Indeterminate)?;
    assert_eq!(again.record().state, EffectOutcome::Indeterminate);
    assert_eq!(world.version()?, version);
    let found = effects::observed(world.db(), &claim, &file(), &seen("late"))?;
    assert_eq!(found.record().state, EffectOutcome::Applied);
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn an_observation_that_fails_changes_nothing() -> Result {
    let world = left_open()?;
    let claim = world.claim()?;
    let before = views::effects(&world.db().snapshot()?, &world.uid()?)?;
    let failed = Observation::Failed {
        error: "no network".to_owned(),
    };
    assert!(matches!(
        effects::observed(world.db(), &claim, &file(), &failed)?,
        EffectStep::Observe(_)
    ));
    assert_eq!(
        views::effects(&world.db().snapshot()?, &world.uid()?)?,
        before
    );
    assert!(
        commands::fail(
            world.db(),
            &claim,
            "no network",
            commands::PassEnd::default()
        )?
        .is_some()
    );
    world.check()
}

#[test]
fn controller_41_an_act_that_may_have_happened_keeps_its_resource() -> Result {
    let world = left_open()?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let claim = world.claim()?;
    effects::observed(world.db(), &claim, &file(), &Observation::Indeterminate)?;
    let at = world.now().plus(60_000);
    assert_eq!(
        world.finish(&claim, Next::Settled)?,
        Finished::Blocked { effects: 1, at }
    );
    let explained = views::explain(
        &world.db().snapshot()?,
        &target(),
        &[target().controller],
        world.now(),
    )?
    .unwrap();
    let blocker = Blocker::IndeterminateEffect {
        key: file().key,
        effect_kind: "file.write".to_owned(),
    };
    assert_eq!(explained.blockers, [blocker]);
    assert!(matches!(
        commands::force_deletion(world.db(), &target(), "why", ann()),
        Err(ControllerError::NotForced { .. })
    ));
    world.check()?;
    // A person says what happened: the resource is looked at at once, and goes.
    let effect =
        holdpoint_state::effects::of_source(&world.db().snapshot()?, &world.uid()?.resource())?
            .remove(0);
    let resolution = Resolution {
        effect_id: effect.effect_id,
        attempt_number: effect.attempts,
        expected_revision: effect.revision,
        idempotency_key: "resolve-1".to_owned(),
        actor: ann(),
        decision: Decision::Reject {
            reason: "the file is not there".to_owned(),
        },
    };
    holdpoint_state::effects::resolve(world.db(), resolution)?;
    assert_eq!(world.pass()?, Finished::Deleted);
    world.check()
}

#[test]
fn case_080_a_pass_that_does_not_know_of_the_deletion_begins_nothing() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let refused = effects::begin(world.db(), &claim, &file());
    assert!(
        matches!(refused, Err(ControllerError::DeletedMeanwhile { .. })),
        "{refused:?}"
    );
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Conflict);
    // The one that knows cleans up.
    let claim = world.claim()?;
    let cleanup = request("remove-1", "file.remove", json!({ "path": "a" }));
    let attempt = acting(effects::begin(world.db(), &claim, &cleanup)?)?;
    effects::settle(world.db(), &claim, &cleanup.key, &attempt, applied("gone"))?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Deleted);
    world.check()
}

#[test]
fn case_081_cleaning_up_what_is_gone_already_is_done() -> Result {
    let world = World::with(json!(1))?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let cleanup = request("remove-1", "file.remove", json!({ "path": "a" }));
    let claim = world.claim()?;
    acting(effects::begin(world.db(), &claim, &cleanup)?)?;
    world.advance(120_000);
    // A second pass cleans up the same: the provider knows nothing of it any more, which is what was wanted.
    let claim = world.claim()?;
    assert!(matches!(
        effects::begin(world.db(), &claim, &cleanup)?,
        EffectStep::Observe(_)
    ));
    let known = effects::observed(world.db(), &claim, &cleanup, &seen("not found"))?;
    assert_eq!(known.record().state, EffectOutcome::Applied);
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Deleted);
    world.check()
}

#[test]
fn a_lost_claim_settles_nothing() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let attempt = acting(effects::begin(world.db(), &claim, &file())?)?;
    world.advance(120_000);
    let late =
        effects::settle(world.db(), &claim, &file().key, &attempt, applied("x")).unwrap_err();
    assert!(late.claim_lost().is_some());
    let second = world.claim()?;
    let late =
        effects::settle(world.db(), &claim, &file().key, &attempt, applied("x")).unwrap_err();
    assert!(late.claim_lost().is_some());
    let refused =
        effects::begin(world.db(), &claim, &request("new", "file.write", json!(1))).unwrap_err();
    assert!(refused.claim_lost().is_some());
    assert!(matches!(
        effects::begin(world.db(), &second, &file())?,
        EffectStep::Observe(_)
    ));
    world.check()
}

#[test]
fn an_act_that_no_pass_asks_for_any_more_is_for_a_person_to_say() -> Result {
    let world = left_open()?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let claim = world.claim()?;
    let finished = world.finish(&claim, Next::Settled)?;
    assert!(
        matches!(finished, Finished::Blocked { effects: 1, .. }),
        "{finished:?}"
    );
    let effects = views::effects(&world.db().snapshot()?, &world.uid()?)?;
    assert_eq!(effects[0].state, EffectOutcome::Indeterminate);
    world.check()
}

#[test]
fn an_act_of_a_resource_whose_controller_is_gone_is_for_a_person_to_say() -> Result {
    let world = left_open()?;
    let uid = world.uid()?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let force = || commands::force_deletion(world.db(), &target(), "uninstalled", ann());
    assert!(matches!(force(), Err(ControllerError::NotForced { .. })));
    let effect =
        holdpoint_state::effects::of_source(&world.db().snapshot()?, &uid.resource())?.remove(0);
    assert_eq!(
        EffectOutcome::from(effect.state),
        EffectOutcome::Indeterminate
    );
    world.check()?;
    let resolution = Resolution {
        effect_id: effect.effect_id,
        attempt_number: effect.attempts,
        expected_revision: effect.revision,
        idempotency_key: "resolve-1".to_owned(),
        actor: ann(),
        decision: Decision::Retry,
    };
    holdpoint_state::effects::resolve(world.db(), resolution)?;
    // What nobody will do any more is given up with the resource, so that its history can go.
    force()?;
    let effects = views::effects(&world.db().snapshot()?, &uid)?;
    assert_eq!(effects[0].state, EffectOutcome::Cancelled);
    world.check()
}

#[test]
fn edge_45_the_effect_of_a_deleted_resource_stays_readable() -> Result {
    let world = World::with(json!(1))?;
    let uid = world.uid()?;
    let claim = world.claim()?;
    let attempt = acting(effects::begin(world.db(), &claim, &file())?)?;
    let record = effects::settle(
        world.db(),
        &claim,
        &file().key,
        &attempt,
        applied("inode 7"),
    )?;
    world.finish(&claim, Next::Settled)?;
    commands::request_deletion(world.db(), &target(), ann())?;
    assert_eq!(world.pass()?, Finished::Deleted);
    let snapshot = world.db().snapshot()?;
    assert_eq!(views::resource_of(&snapshot, &uid)?, None);
    assert_eq!(views::effects(&snapshot, &uid)?, [record]);
    let kept = holdpoint_state::effects::of_source(&snapshot, &uid.resource())?;
    assert_eq!(kept.len(), 1);
    assert!(
        views::events(&snapshot, &uid, 100)?
            .iter()
            .any(|event| event.event_type == "effect_settled")
    );
    world.check()
}
