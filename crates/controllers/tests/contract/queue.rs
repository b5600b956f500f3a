//! K2 and the queue row: a hint is never lost, and never a fact.

use holdpoint_controllers::ControllerError;
use holdpoint_controllers::commands::{self, Apply, Claiming, Finished};
use holdpoint_controllers::model::{ControllerName, Next, ProjectPath, Target};
use holdpoint_controllers::views::{self, Due, DueQuery};
use holdpoint_state::{Owner, OwnerKind};
use serde_json::json;

use crate::support::{Result, World, ann, named, target};

fn due(world: &World, project: &str, controllers: &[&str]) -> Result<Due> {
    let controllers: Vec<_> = controllers
        .iter()
        .map(|name| ControllerName::new(*name).unwrap())
        .collect();
    let project = ProjectPath::new(project)?;
    let query = DueQuery {
        project: &project,
        controllers: &controllers,
        now: world.now(),
        limit: 10,
    };
    Ok(views::due(&world.db().snapshot()?, &query)?)
}

#[test]
fn controller_03_ten_hints_are_one_row_and_one_pass() -> Result {
    let world = World::with(json!(1))?;
    let version = world.version()?;
    for _ in 0..10 {
        commands::enqueue(world.db(), &target(), None)?;
    }
    assert_eq!(world.queue()?.unwrap().queue_version, 11);
    assert_eq!(world.version()?, version);
    assert_eq!(due(&world, "/srv/app", &["tree"])?.uids, [world.uid()?]);
    assert_eq!(world.pass()?, Finished::Settled);
    assert_eq!(
        (world.queue()?, world.try_claim()?.is_some()),
        (None, false)
    );
    assert_eq!(
        world.events(&world.uid()?)?,
        ["resource.created", "lease.claimed", "reconcile_finished"]
    );
    world.check()
}

#[test]
fn controller_04_the_earlier_time_stays() -> Result {
    let world = World::with(json!(1))?;
    world.pass()?;
    let (soon, late) = (world.now().plus(1_000), world.now().plus(9_000));
    for (at, expected) in [(late, late), (soon, soon), (late, soon)] {
        assert_eq!(
            commands::enqueue(world.db(), &target(), Some(at))?.available_at,
            expected
        );
    }
    assert!(world.try_claim()?.is_none());
    assert_eq!(
        due(&world, "/srv/app", &["tree"])?,
        Due {
            uids: vec![],
            next_at: Some(soon)
        }
    );
    world.advance(1_000);
    assert_eq!(world.pass()?, Finished::Settled);
    world.check()
}

#[test]
fn controller_05_a_hint_during_a_pass_is_another_pass() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    commands::enqueue(world.db(), &target(), None)?;
    let finished = world.finish(&claim, Next::Settled)?;
    assert!(
        matches!(finished, Finished::SettledAgain { at } if at <= world.now()),
        "{finished:?}"
    );
    assert_eq!(world.pass()?, Finished::Settled);
    assert_eq!(world.queue()?, None);
    world.check()
}

#[test]
fn controller_06_a_hint_during_a_pass_that_wants_to_rest_comes_first() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    world.advance(10);
    commands::enqueue(world.db(), &target(), None)?;
    let finished = world.finish(&claim, Next::requeue_after(30_000)?)?;
    assert!(
        matches!(finished, Finished::Requeued { at } if at <= world.now()),
        "{finished:?}"
    );
    // Without a hint it rests.
    let claim = world.claim()?;
    let rested = world.finish(&claim, Next::requeue_after(30_000)?)?;
    assert_eq!(
        rested,
        Finished::Requeued {
            at: world.now().plus(30_000)
        }
    );
    assert!(world.try_claim()?.is_none());
    world.advance(30_000);
    assert!(world.try_claim()?.is_some());
    world.check()
}

#[test]
fn controller_46_projects_do_not_see_each_other() -> Result {
    let world = World::with(json!(1))?;
    let other = Target::parse("/srv/other", "tree", "one")?;
    let made = commands::apply(world.db(), &Apply::new(&other, json!(2)).by(ann()))?.value;
    assert_ne!(made.uid, world.uid()?);
    assert_eq!(due(&world, "/srv/app", &["tree"])?.uids, [world.uid()?]);
    let theirs = due(&world, "/srv/other", &["tree"])?.uids;
    assert_eq!(theirs.first(), Some(&made.uid));
    assert_eq!(due(&world, "/srv/nowhere", &["tree"])?, Due::default());
    let claim = world.claim()?;
    let (host, theirs) = (
        Owner::new(OwnerKind::Host, "their"),
        Claiming::new(&made.uid, &world.host),
    );
    let their = commands::claim(
        world.db(),
        &Claiming {
            owner: host,
            ..theirs
        },
    )?
    .unwrap();
    assert_eq!(world.finish(&claim, Next::Settled)?, Finished::Settled);
    assert_eq!(world.finish(&their, Next::Settled)?, Finished::Settled);
    let listed = views::list(
        &world.db().snapshot()?,
        &views::Filter::of(&other.project),
        world.now(),
    )?;
    assert_eq!(
        listed.into_iter().map(|one| one.uid).collect::<Vec<_>>(),
        [made.uid]
    );
    world.check()
}

#[test]
fn nobody_looks_for_what_has_no_controller_here() -> Result {
    let world = World::with(json!(1))?;
    assert_eq!(due(&world, "/srv/app", &["lake", "sea"])?, Due::default());
    assert_eq!(due(&world, "/srv/app", &["lake", "tree"])?.uids.len(), 1);
    world.check()
}

#[test]
fn what_is_due_comes_by_its_time_and_what_is_taken_says_until_when() -> Result {
    let world = World::new()?;
    for key in ["b", "a", "c"] {
        commands::apply(world.db(), &Apply::new(&named(key), json!(1)).by(ann()))?;
        world.advance(1);
    }
    let uid = |key| {
        views::uid(&world.db().snapshot().unwrap(), &named(key))
            .unwrap()
            .unwrap()
    };
    assert_eq!(
        due(&world, "/srv/app", &["tree"])?.uids,
        [uid("b"), uid("a"), uid("c")]
    );
    let claim = commands::claim(world.db(), &Claiming::new(&uid("a"), &world.host))?.unwrap();
    let expires_at = claim.lease().expires_at();
    assert_eq!(
        due(&world, "/srv/app", &["tree"])?,
        Due {
            uids: vec![uid("b"), uid("c")],
            next_at: Some(expires_at)
        }
    );
    world.advance(120_000);
    assert_eq!(due(&world, "/srv/app", &["tree"])?.uids.len(), 3);
    world.check()
}

#[test]
fn an_unknown_key_takes_no_hint() -> Result {
    let world = World::new()?;
    assert!(matches!(
        commands::enqueue(world.db(), &target(), None),
        Err(ControllerError::NotFound { .. })
    ));
    world.check()
}

#[test]
fn case_057_passes_that_were_missed_are_one_pass() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    world.finish(&claim, Next::requeue_after(60_000)?)?;
    // The machine was off for a day, in which every minute had one, and somebody hinted for times in between.
    for hours in [1, 2, 3] {
        let at = world.now().plus(hours * 3_600_000);
        commands::enqueue(world.db(), &target(), Some(at))?;
    }
    world.advance(24 * 3_600_000);
    assert_eq!(due(&world, "/srv/app", &["tree"])?.uids.len(), 1);
    let claim = world.claim()?;
    let next = world.finish(&claim, Next::requeue_after(60_000)?)?;
    // The rest counts from the end of the pass that was made, not from those that were not.
    assert_eq!(
        next,
        Finished::Requeued {
            at: world.now().plus(60_000)
        }
    );
    assert!(world.try_claim()?.is_none());
    world.check()
}
