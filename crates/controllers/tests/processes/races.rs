//! Several hosts on one store: each pass has one of them, and whoever dies is replaced.

use std::collections::BTreeMap;

use holdpoint_controllers::model::Uid;
use holdpoint_state::Database;

use crate::host::{Home, Things, controllers, wait_for};

const RESOURCES: usize = 12;

fn count(db: &Database, uid: &Uid, event_type: &str) -> usize {
    let snapshot = db.snapshot().unwrap();
    let events = snapshot.events_of(&uid.resource(), 0, 10_000).unwrap();
    events
        .iter()
        .filter(|event| event.event_type == event_type)
        .count()
}

#[test]
fn controller_11_hosts_that_share_a_store_never_share_a_pass() {
    let home = Home::new();
    let db = home.open();
    let (things, _) = controllers(home.path(), &db);
    let mut hosts: Vec<_> = (0..2).map(|_| home.start("serve", None)).collect();
    // One is killed on the way, and changes come all the time.
    let mut victim = home.start("serve", None);
    let mut uids = BTreeMap::new();
    for round in 0..6 {
        for number in 0..RESOURCES {
            let key = format!("key-{number}");
            let spec = if round == 5 {
                "quick".to_owned()
            } else {
                format!("quick {round}")
            };
            let spec = if number % 2 == 0 {
                "quick".to_owned()
            } else {
                spec
            };
            let applied = things.apply::<Things>(&key, &spec).unwrap().value;
            uids.insert(key.clone(), applied.uid);
            things.hint::<Things>(&key, None).unwrap();
        }
        if round == 2 {
            victim.kill();
        }
    }
    let is_settled = || {
        let found = things.list::<Things>(100).unwrap();
        let snapshot = db.snapshot().unwrap();
        found.iter().all(|found| {
            let metadata = &found.resource.metadata;
            found.resource.status.observed_generation == metadata.generation
                && holdpoint_controllers::views::queue(&snapshot, &metadata.uid)
                    .unwrap()
                    .is_none()
        })
    };
    wait_for("the end of all passes", is_settled);
    std::fs::write(home.path().join("stop"), "").unwrap();
    for host in &mut hosts {
        assert!(host.wait().success());
    }
    // Each claim was one pass with one end, but for what the dead host had in its hands.
    let passes = std::fs::read_to_string(home.path().join("passes")).unwrap();
    let (mut claims, mut ends) = (0, 0);
    for uid in uids.values() {
        claims += count(&db, uid, "lease.claimed");
        ends += count(&db, uid, "reconcile_finished") + count(&db, uid, "reconcile_conflict");
        assert_eq!(count(&db, uid, "reconcile_failed"), 0);
    }
    assert!(
        ends <= claims && claims <= ends + 2,
        "{ends} ends of {claims} claims"
    );
    assert!(passes.lines().count() <= claims);
    assert!(db.verify().unwrap().is_clean());
    db.close();
}
