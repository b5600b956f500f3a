//! K5 to K8: one pass at a time, and what is late writes nothing.

use std::sync::Barrier;

use holdpoint_controllers::commands::{self, Claiming, Finished, PassClaim, PassEnd};
use holdpoint_controllers::model::{ConditionInput, Next, StatusPatch};
use holdpoint_state::{Actor, ClaimLostReason, Owner, OwnerKind};
use serde_json::json;

use crate::support::{Result, World, ann, target};

fn found(text: &str) -> StatusPatch {
    StatusPatch {
        controller_status: Some(json!(text)),
        ..StatusPatch::default()
    }
}

fn fail(world: &World, claim: &PassClaim) -> Result<Option<i64>> {
    let at = commands::fail(world.db(), claim, "it broke", PassEnd::default())?;
    Ok(at.map(|at| at.since(world.now())))
}

#[test]
fn controller_07_a_spec_change_during_a_pass_drops_its_result() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    world.apply(json!(2))?;
    assert_eq!(
        world.finish_with(&claim, &found("old"), Next::Settled)?,
        Finished::Conflict
    );
    let resource = world.resource()?;
    assert_eq!(
        (
            resource.status.observed_generation,
            &resource.status.controller_status
        ),
        (0, &json!(null))
    );
    let claim = world.claim()?;
    assert_eq!(
        (
            claim.generation(),
            &claim.resource().spec,
            claim.consecutive_errors()
        ),
        (2, &json!(2), 0)
    );
    assert_eq!(
        world.finish_with(&claim, &found("new"), Next::Settled)?,
        Finished::Settled
    );
    assert_eq!(world.resource()?.status.observed_generation, 2);
    assert_eq!(
        world.events(&world.uid()?)?,
        [
            "resource.created",
            "lease.claimed",
            "resource.spec_updated",
            "reconcile_conflict",
            "lease.claimed",
            "reconcile_finished"
        ]
    );
    world.check()
}

#[test]
fn controller_09_a_deletion_during_a_pass_is_a_conflict() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    assert!(!claim.is_deleting());
    commands::request_deletion(world.db(), &target(), ann())?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Conflict);
    let claim = world.claim()?;
    assert!(claim.is_deleting());
    assert!(claim.resource().metadata.deletion_timestamp.is_some());
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Deleted);
    world.check()
}

#[test]
fn controller_11_of_two_hosts_one_claims() -> Result {
    let world = World::with(json!(1))?;
    let uid = world.uid()?;
    let barrier = Barrier::new(2);
    let claims: Vec<_> = std::thread::scope(|scope| {
        let hosts: Vec<_> = ["one", "two"]
            .into_iter()
            .map(|host| {
                let (world, uid, barrier) = (&world, &uid, &barrier);
                scope.spawn(move || {
                    let (db, host) = (
                        world.store.open().unwrap(),
                        Owner::new(OwnerKind::Host, host),
                    );
                    barrier.wait();
                    commands::claim(&db, &Claiming::new(uid, &host)).unwrap()
                })
            })
            .collect();
        hosts
            .into_iter()
            .filter_map(|host| host.join().unwrap())
            .collect()
    });
    assert_eq!(claims.len(), 1);
    assert_eq!(claims[0].lease().generation(), 1);
    assert_eq!(world.events(&uid)?, ["resource.created", "lease.claimed"]);
    world.check()
}

#[test]
fn controller_12_an_expired_pass_writes_nothing() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    world.advance(120_000);
    let before = (
        world.resource()?,
        world.queue()?,
        world.events(&world.uid()?)?,
    );
    let late = commands::finish(
        world.db(),
        &claim,
        &found("late"),
        Next::Settled,
        PassEnd::default(),
    )
    .unwrap_err();
    assert_eq!(late.claim_lost(), Some(ClaimLostReason::Expired));
    assert_eq!(
        (
            world.resource()?,
            world.queue()?,
            world.events(&world.uid()?)?
        ),
        before
    );
    // The next one does it again.
    let again = world.claim()?;
    assert_eq!(again.lease().generation(), 2);
    assert_eq!(world.finish(&again, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn controller_13_a_late_failure_leaves_the_next_pass_alone() -> Result {
    let world = World::with(json!(1))?;
    let first = world.claim()?;
    world.advance(120_000);
    let second = world
        .claim_for(&Owner::new(OwnerKind::Host, "other"))?
        .unwrap();
    let before = (world.queue()?, world.events(&world.uid()?)?);
    assert_eq!(fail(&world, &first)?, None);
    assert!(!commands::hand_back(world.db(), &first)?);
    assert_eq!((world.queue()?, world.events(&world.uid()?)?), before);
    assert_eq!(world.finish(&second, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn controller_14_a_claim_renews_until_its_last_millisecond() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let version = world.version()?;
    world.advance(119_999);
    commands::renew(world.db(), &claim)?;
    world.advance(119_999);
    commands::renew(world.db(), &claim)?;
    world.advance(120_001);
    let late = commands::renew(world.db(), &claim).unwrap_err();
    assert_eq!(late.claim_lost(), Some(ClaimLostReason::Expired));
    assert_eq!(world.version()?, version);
    world.check()
}

#[test]
fn controller_15_a_settlement_of_an_older_generation_is_refused() -> Result {
    let world = World::with(json!(1))?;
    let old = world.claim()?;
    world.advance(120_000);
    // The same host again: owner alike, generation and token not.
    let present = world.claim()?;
    let late = commands::finish(
        world.db(),
        &old,
        &found("late"),
        Next::Settled,
        PassEnd::default(),
    )
    .unwrap_err();
    assert_eq!(late.claim_lost(), Some(ClaimLostReason::GenerationChanged));
    assert!(world.queue()?.is_some());
    assert_eq!(world.finish(&present, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn controller_16_failures_rest_longer_until_one_pass_is_good() -> Result {
    let world = World::with(json!(1))?;
    let mut rests = Vec::new();
    for _ in 0..5 {
        let claim = world.claim()?;
        let rest = fail(&world, &claim)?.unwrap();
        rests.push(rest);
        assert!(world.try_claim()?.is_none());
        world.advance(rest.unsigned_abs());
    }
    assert_eq!(rests, [1_000, 2_000, 4_000, 8_000, 16_000]);
    let queue = world.queue()?.unwrap();
    assert_eq!(
        (queue.consecutive_errors, queue.last_error.as_deref()),
        (5, Some("it broke"))
    );
    assert_eq!(world.pass()?, Finished::Settled);
    commands::enqueue(world.db(), &target(), None)?;
    let claim = world.claim()?;
    assert_eq!(claim.consecutive_errors(), 0);
    assert_eq!(fail(&world, &claim)?, Some(1_000));
    world.check()
}

#[test]
fn controller_17_a_rest_is_a_minute_at_most() -> Result {
    let world = World::with(json!(1))?;
    let mut rest = 0;
    for _ in 0..20 {
        let claim = world.claim()?;
        rest = fail(&world, &claim)?.unwrap();
        world.advance(rest.unsigned_abs());
    }
    assert_eq!(
        (rest, world.queue()?.unwrap().consecutive_errors),
        (60_000, 20)
    );
    world.check()
}

#[test]
fn controller_18_a_good_pass_that_polls_forgets_the_failures() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    assert_eq!(fail(&world, &claim)?, Some(1_000));
    world.advance(1_000);
    let claim = world.claim()?;
    assert_eq!(claim.consecutive_errors(), 1);
    world.finish(&claim, Next::requeue_after(2_000)?)?;
    let queue = world.queue()?.unwrap();
    assert_eq!(
        (
            queue.consecutive_errors,
            queue.last_error,
            queue.available_at
        ),
        (0, None, world.now().plus(2_000))
    );
    world.check()
}

#[test]
fn a_change_that_comes_during_a_pass_is_not_put_off_by_its_failure() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    world.apply(json!(2))?;
    assert_eq!(fail(&world, &claim)?, Some(0));
    let claim = world.claim()?;
    assert_eq!((claim.generation(), claim.consecutive_errors()), (2, 1));
    // Without a change the back-off goes on.
    assert_eq!(fail(&world, &claim)?, Some(2_000));
    world.check()
}

#[test]
fn a_host_that_stops_gives_back_and_counts_no_failure() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    assert_eq!(fail(&world, &claim)?, Some(1_000));
    world.advance(1_000);
    let claim = world.claim()?;
    assert!(commands::hand_back(world.db(), &claim)?);
    let again = world.claim()?;
    assert_eq!(
        (again.consecutive_errors(), again.lease().generation()),
        (1, 3)
    );
    world.check()
}

#[test]
fn controller_50_the_pass_of_a_dead_host_is_repeated_at_once() -> Result {
    let world = World::with(json!(1))?;
    let presence = world.db().announce_owner(&world.host)?;
    let first = world.claim()?;
    let other = Owner::new(OwnerKind::Host, "other");
    assert!(world.claim_for(&other)?.is_none());
    drop(presence);
    let second = world.claim_for(&other)?.unwrap();
    assert_eq!(second.lease().generation(), 2);
    assert_eq!(fail(&world, &first)?, None);
    assert_eq!(world.finish(&second, Next::Settled)?, Finished::Settled);
    world.check()
}

#[test]
fn what_nobody_else_changed_is_no_conflict_whatever_the_pass_itself_wrote() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    assert_eq!(claim.resource(), &world.resource()?);
    commands::enqueue(world.db(), &target(), None)?;
    commands::renew(world.db(), &claim)?;
    let patch = StatusPatch {
        conditions: vec![ConditionInput::new("Ready", true, "Done")],
        ..found("there")
    };
    assert!(matches!(
        world.finish_with(&claim, &patch, Next::Settled)?,
        Finished::SettledAgain { .. }
    ));
    // A change of finalizers by somebody else is one.
    let claim = world.claim()?;
    commands::add_finalizer(
        world.db(),
        &target(),
        &crate::support::finalizer("keep"),
        ann(),
    )?;
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Conflict);
    world.check()
}

#[test]
fn an_invalid_end_of_a_pass_is_a_failure() -> Result {
    let world = World::with(json!(1))?;
    for after_ms in [Some(0), Some(1 << 53)] {
        let claim = world.claim()?;
        let finished = world.finish_with(&claim, &found("never"), Next::Requeue { after_ms })?;
        let Finished::Failed { retry_at, .. } = finished else {
            return Err(format!("{finished:?}").into());
        };
        assert_eq!(world.resource()?.status.controller_status, json!(null));
        world.advance(retry_at.since(world.now()).unsigned_abs());
    }
    assert_eq!(world.queue()?.unwrap().consecutive_errors, 2);
    world.check()
}

#[test]
fn only_who_may_acts() -> Result {
    let world = World::with(json!(1))?;
    for actor in [
        Actor::host("host"),
        Actor::new(holdpoint_state::ActorKind::Controller, "c"),
    ] {
        assert!(commands::request_deletion(world.db(), &target(), actor.clone()).is_err());
        assert!(
            commands::add_finalizer(
                world.db(),
                &target(),
                &crate::support::finalizer("a"),
                actor
            )
            .is_err()
        );
    }
    assert_eq!(world.version()?, 1);
    world.check()
}
