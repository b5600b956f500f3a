//! A host is killed wherever it stands in the life of a resource; the next one goes on at once.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use holdpoint_controllers::model::{ChildState, EffectOutcome, Uid};
use holdpoint_controllers::views;
use holdpoint_state::Database;
use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_workflows::views::Filter;

use crate::host::{Home, Things, controllers, wait_for};

/// The places of section 9 at which a host may have died, as they are seen in the store.
fn places(home: &Home, db: &Database) -> BTreeSet<&'static str> {
    let mut places = BTreeSet::new();
    let mut met = |place: &'static str| {
        places.insert(place);
    };
    let (controllers, workflows) = controllers(home.path(), db);
    let Some(found) = controllers.get::<Things>("one").unwrap() else {
        return places;
    };
    let uid = found.resource.metadata.uid;
    let snapshot = db.snapshot().unwrap();
    let events = snapshot.events_of(&uid.resource(), 0, 1_000).unwrap();
    match events.last().unwrap().event_type.as_str() {
        "resource.created" => met("before the claim"),
        "lease.claimed" => met("after the claim"),
        _ => {}
    }
    let effects = views::effects(&snapshot, &uid).unwrap();
    let open = effects
        .iter()
        .filter(|effect| effect.state == EffectOutcome::Pending);
    for effect in open {
        let is_called = home.calls().contains(&effect.key.to_string());
        met(if is_called {
            "after the call, before the receipt"
        } else {
            "after the reservation, before the call"
        });
    }
    for child in views::children(&snapshot, &uid).unwrap() {
        let run = child.reserved_run_id.unwrap();
        match (child.state, workflows.view(&run).is_ok()) {
            (ChildState::Pending, false) => met("after the child's id, before its run"),
            (ChildState::Pending, true) => met("after the run, before it is linked"),
            _ => {}
        }
    }
    if found.resource.metadata.deletion_timestamp.is_some() {
        met("during the deletion");
    }
    places
}

/// Everything happened once, and nothing is left.
fn check(home: &Home, db: &Database, at: &str) {
    assert_eq!(home.calls(), ["make one", "remove one"], "{at}");
    let (controllers, workflows) = controllers(home.path(), db);
    assert!(controllers.get::<Things>("one").unwrap().is_none(), "{at}");
    let runs = workflows.list(&Filter::default()).unwrap().runs;
    assert_eq!(runs.len(), 1, "{at}");
    let report = db.verify().unwrap();
    assert!(report.is_clean(), "{at}: {report:?}");
}

/// Kills a host at each passage of a point of the writer, and lets another one finish its work.
fn sweep(point: &str, stride: usize) -> BTreeSet<&'static str> {
    let mut places_met = BTreeSet::new();
    for number in (1..500).step_by(stride) {
        let (home, at) = (Home::new(), format!("{point}:{number}"));
        let died = home.start("life", Some(&at)).wait();
        let db = home.open();
        if died.signal() != Some(9) {
            assert!(died.success(), "{at}");
            check(&home, &db, &at);
            db.close();
            return places_met;
        }
        places_met.extend(places(&home, &db));
        let begun = SystemClock.monotonic();
        let status = home.start("life", None).wait();
        assert!(status.success(), "{at}");
        // Nobody waited for a lease to run out.
        let took = SystemClock.monotonic().since(begun);
        assert!(took < 20_000, "{at}: {took} ms");
        check(&home, &db, &at);
        db.close();
    }
    panic!("it has no end");
}

/// How many passages are left out between two deaths; 1 for all.
fn stride() -> usize {
    let given = std::env::var("HOLDPOINT_CRASH_STRIDE").ok();
    given.and_then(|given| given.parse().ok()).unwrap_or(1)
}

#[test]
fn controller_30_whoever_is_killed_after_a_commit_repeats_nothing() {
    let met = sweep("afterCommit", stride());
    for place in [
        "before the claim",
        "after the claim",
        "after the reservation, before the call",
        "after the child's id, before its run",
        "after the run, before it is linked",
        "during the deletion",
    ] {
        assert!(met.contains(place) || stride() != 1, "{place}: {met:?}");
    }
}

#[test]
fn whoever_is_killed_before_a_commit_repeats_nothing() {
    let met = sweep("beforeBegin", stride());
    let place = "after the call, before the receipt";
    assert!(met.contains(place) || stride() != 1, "{met:?}");
}

fn claims(db: &Database, uid: &Uid) -> (usize, u64) {
    let snapshot = db.snapshot().unwrap();
    let events = snapshot.events_of(&uid.resource(), 0, 1_000).unwrap();
    let claims = events
        .iter()
        .filter(|event| event.event_type == "lease.claimed");
    let generations: Vec<u64> = claims
        .clone()
        .filter_map(|event| event.lease_generation)
        .collect();
    (claims.count(), generations.last().copied().unwrap_or(0))
}

#[test]
fn controller_50_the_pass_of_a_host_that_was_killed_is_taken_over_at_once() {
    let home = Home::new();
    let db = home.open();
    let (things, _) = controllers(home.path(), &db);
    let uid = things
        .apply::<Things>("one", &"hold".to_owned())
        .unwrap()
        .value
        .uid;
    let held = home.path().join("held");
    let held = || {
        std::fs::read_to_string(&held)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let mut first = home.start("idle", None);
    wait_for("the first pass", || held() == 1);
    let before = claims(&db, &uid);
    first.kill();
    let begun = SystemClock.monotonic();
    let mut second = home.start("idle", None);
    wait_for("the second pass", || held() == 2);
    // The lease of the dead host would have lasted for half a minute.
    let took = Duration::from_millis(SystemClock.monotonic().since(begun));
    assert!(took < Duration::from_secs(15), "{took:?}");
    let after = claims(&db, &uid);
    assert_eq!(after.0, before.0 + 1);
    let queue = views::queue(&db.snapshot().unwrap(), &uid)
        .unwrap()
        .unwrap();
    assert_eq!((queue.consecutive_errors, queue.last_error), (0, None));
    second.kill();
    assert!(db.verify().unwrap().is_clean());
    db.close();
}
