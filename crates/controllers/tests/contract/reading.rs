//! What readers see.

use holdpoint_controllers::commands::{self, Apply, PassEnd};
use holdpoint_controllers::model::{ConditionInput, ControllerName, Next, StatusPatch, Target};
use holdpoint_controllers::views::{self, Filter};
use serde_json::json;

use crate::support::{Result, World, ann, finalizer, target};

#[test]
fn a_list_has_pages_and_says_where_each_stands() -> Result {
    let world = World::new()?;
    for (controller, key) in [("tree", "b"), ("tree", "a"), ("lake", "z"), ("tree", "c")] {
        let target = Target::parse("/srv/app", controller, key)?;
        commands::apply(world.db(), &Apply::new(&target, json!(1)).by(ann()))?;
    }
    let snapshot = || world.db().snapshot();
    let project = target().project;
    let mut seen = Vec::new();
    let mut filter = Filter {
        limit: 3,
        ..Filter::of(&project)
    };
    loop {
        let page = views::list(&snapshot()?, &filter, world.now())?;
        let Some(last) = page.last() else { break };
        filter.after = Some((last.controller.clone(), last.key.clone()));
        seen.extend(
            page.iter()
                .map(|one| format!("{}/{} {}", one.controller, one.key, one.queue.as_str())),
        );
    }
    assert_eq!(
        seen,
        ["lake/z due", "tree/a due", "tree/b due", "tree/c due"]
    );
    let only = Filter {
        controller: Some(ControllerName::new("lake")?),
        ..Filter::of(&project)
    };
    assert_eq!(views::list(&snapshot()?, &only, world.now())?.len(), 1);
    world.check()
}

#[test]
fn a_pass_of_a_dead_host_is_listed_as_it_is_explained() -> Result {
    let world = World::with(json!(1))?;
    let presence = world.db().announce_owner(&world.host)?;
    let _claim = world.claim()?;
    let states = || -> Result<(&str, &str)> {
        let (snapshot, now) = (world.db().snapshot()?, world.now());
        let listed = views::list(&snapshot, &Filter::of(&target().project), now)?;
        let explained = views::explain(&snapshot, &target(), &[], now)?.unwrap();
        Ok((listed[0].queue.as_str(), explained.queue_state.as_str()))
    };
    assert_eq!(states()?, ("reconciling", "reconciling"));
    drop(presence);
    assert_eq!(states()?, ("due", "due"));
    world.check()
}

#[test]
fn an_explanation_says_what_stands_in_the_way() -> Result {
    let world = World::with(json!(1))?;
    let claim = world.claim()?;
    let patch = StatusPatch {
        conditions: vec![ConditionInput::new("Ready", true, "InPlace")],
        ..StatusPatch::default()
    };
    world.finish_with(&claim, &patch, Next::Settled)?;
    let explain = || {
        views::explain(
            &world.db().snapshot().unwrap(),
            &target(),
            &[target().controller],
            world.now(),
        )
        .unwrap()
    };
    let settled = explain().unwrap();
    assert!(settled.is_observed && settled.blockers.is_empty());
    world.apply(json!(2))?;
    commands::add_finalizer(world.db(), &target(), &finalizer("tree/files"), ann())?;
    commands::request_deletion(world.db(), &target(), ann())?;
    let claim = world.claim()?;
    let held = explain().unwrap();
    commands::fail(world.db(), &claim, "the disk is full", PassEnd::default())?;
    let failed = explain().unwrap();
    let lines = |explained: &views::Explanation| {
        explained
            .blockers
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    insta::assert_debug_snapshot!(
        "explained",
        (
            lines(&held),
            held.queue_state.as_str(),
            held.ready,
            held.is_observed,
            lines(&failed),
            failed.queue_state.as_str(),
        )
    );
    let uid = world.uid()?;
    insta::assert_snapshot!(
        "explanation",
        serde_json::to_string_pretty(&failed)?.replace(uid.as_str(), "[uid]")
    );
    assert_eq!(
        views::explain(
            &world.db().snapshot()?,
            &crate::support::named("none"),
            &[],
            world.now()
        )?,
        None
    );
    world.check()
}
