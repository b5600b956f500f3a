//! Retention: the history of a deleted resource goes after its time, and the run of a child stays while its resource names it.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use holdpoint_controllers::commands::{self, Finished, effects};
use holdpoint_controllers::model::{EffectKey, EffectRequest, EffectStep, Next};
use holdpoint_controllers::views;
use holdpoint_state::Settlement;
use holdpoint_state::maintenance::retention::Taking;
use holdpoint_workflows::model::RunStatus;
use serde_json::json;

use crate::children::{Runs, job, job_definition};
use crate::support::{Result, World, ann, target};

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// Sweeps everything that ended before now. Returns how many members went.
fn sweep(world: &World) -> Result<u64> {
    // Once a day.
    world.advance(DAY_MS);
    let taking = Taking {
        cutoff: world.now(),
        held: BTreeSet::new(),
    };
    Ok(world
        .db()
        .sweep(&taking, |_| ControlFlow::Continue(()))?
        .deleted
        .members)
}

fn held(world: &World) -> Result<Vec<(String, Vec<String>)>> {
    let plan = world.db().retention_plan(world.now())?;
    let held = |tree: &holdpoint_state::maintenance::retention::Tree| {
        (
            tree.root.clone(),
            tree.blockers
                .iter()
                .map(|held| held.name.to_string())
                .collect(),
        )
    };
    Ok(plan.trees.iter().map(held).collect())
}

#[test]
fn the_history_of_a_deleted_resource_goes_and_that_of_a_live_one_stays() -> Result {
    let world = World::with(json!({ "large": "x".repeat(10_000) }))?;
    let old = world.uid()?;
    let claim = world.claim()?;
    let act = EffectRequest {
        key: EffectKey::new("act")?,
        kind: "file.write".to_owned(),
        request: json!(1),
    };
    let EffectStep::Act(attempt, _) = effects::begin(world.db(), &claim, &act)? else {
        return Err("it was done before".into());
    };
    effects::settle(
        world.db(),
        &claim,
        &act.key,
        &attempt,
        Settlement::Applied {
            result: None,
            external_ref: None,
        },
    )?;
    world.finish(&claim, Next::Settled)?;
    world.advance(1);
    assert_eq!((held(&world)?, sweep(&world)?), (vec![], 0));
    commands::request_deletion(world.db(), &target(), ann())?;
    assert_eq!(world.pass()?, Finished::Deleted);
    let made = world.apply(json!(2))?;
    assert_eq!(views::effects(&world.db().snapshot()?, &old)?.len(), 1);
    world.advance(1);
    assert_eq!(held(&world)?, [(old.to_string(), vec![])]);
    assert_eq!(sweep(&world)?, 1);
    let snapshot = world.db().snapshot()?;
    assert_eq!(snapshot.resource(&old.resource())?, None);
    assert!(
        views::events(&snapshot, &old, 10)?.is_empty()
            && views::effects(&snapshot, &old)?.is_empty()
    );
    // The key's new resource is untouched, and goes on.
    assert_eq!(world.resource()?.metadata.uid, made.uid);
    assert_eq!(world.pass()?, Finished::Settled);
    assert_eq!(sweep(&world)?, 0);
    world.check()
}

#[test]
fn the_run_of_a_child_stays_while_its_resource_exists() -> Result {
    let runs = Runs::new()?;
    let (claim, run) = runs.launched(&job_definition(), &job())?;
    runs.world.finish(&claim, Next::Settled)?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    runs.world.advance(1);
    assert_eq!(
        held(&runs.world)?,
        [(run.to_string(), vec!["childOfResource".to_owned()])]
    );
    assert_eq!(sweep(&runs.world)?, 0);
    assert_eq!(runs.workflows.view(&run)?.status, RunStatus::Completed);
    runs.world.check()?;
    // With its resource it is nobody's, and both go, each for itself.
    commands::request_deletion(runs.world.db(), &target(), ann())?;
    assert_eq!(runs.world.pass()?, Finished::Deleted);
    assert_eq!(sweep(&runs.world)?, 2);
    assert!(runs.workflows.view(&run).is_err());
    runs.world.check()
}

#[test]
fn a_plan_that_was_made_before_a_child_is_linked_does_not_take_its_run() -> Result {
    let runs = Runs::new()?;
    let claim = runs.world.claim()?;
    let child = commands::children::reserve(runs.world.db(), &claim, &job())?;
    let run = runs.start(&job_definition(), &child)?;
    assert_eq!(runs.go_on(&run)?, RunStatus::Completed);
    // Its end linked it, though no pass did.
    assert_eq!(runs.child()?.run_id, Some(run.clone()));
    assert_eq!(sweep(&runs.world)?, 0);
    assert_eq!(runs.workflows.view(&run)?.status, RunStatus::Completed);
    runs.world.check()
}
