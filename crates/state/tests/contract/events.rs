//! Events are gap-free for each resource, and a follower sees each of them once, in order, whoever wrote it.

use std::collections::BTreeMap;

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Database, Outcome, Owner, OwnerKind, Payload, StateError};

use crate::children::{self, Child};

const WRITERS: u64 = 4;
const CHANGES: u64 = 40;

#[test]
fn events_of_a_resource_have_its_revisions_and_payloads() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    counter::create(store.db(), "b").unwrap();
    counter::add(store.db(), "a", 5).unwrap();
    let large = Payload::json(&"x".repeat(5_000)).unwrap();
    let command = Command::new(&counter::ADD, counter::resource("a"))
        .by(Actor::host("h"))
        .recording(large.clone());
    let receipt = store
        .db()
        .commit(command, |change| {
            assert_eq!(change.events_of(&counter::resource("a"), 0, 10)?.len(), 2);
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();

    let snapshot = store.db().snapshot().unwrap();
    let events = snapshot.events_of(&counter::resource("a"), 0, 10).unwrap();
    let revisions: Vec<_> = events.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, [1, 2, 3]);
    assert_eq!(events[1].payload.as_deref(), Some(&br#"{"amount":5}"#[..]));
    assert_eq!(events[2].payload.as_deref(), Some(large.as_bytes()));
    assert_eq!(events[2].payload_digest, Some(large.digest()));
    assert_eq!(Some(events[2].seq), receipt.event_seq);
    assert_eq!(
        snapshot.events_of(&counter::resource("a"), 2, 10).unwrap(),
        events[2..]
    );
    assert_eq!(
        snapshot
            .events_of(&counter::resource("none"), 0, 10)
            .unwrap(),
        []
    );

    let all = snapshot.events_after(0, 3).unwrap();
    assert_eq!(all.len(), 3);
    assert_eq!(snapshot.events_after(all[2].seq, 10).unwrap(), events[2..]);
}

#[test]
fn a_resource_view_shows_revision_and_lease() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let owner = Owner::new(OwnerKind::Host, "worker");
    let claim = store
        .db()
        .claim(counter::resource("a"), Actor::host("worker"), &owner, 1_000)
        .unwrap();
    let view = store
        .db()
        .snapshot()
        .unwrap()
        .resource(&counter::resource("a"))
        .unwrap()
        .unwrap();
    assert_eq!(view.revision, 2);
    assert_eq!(view.lease.generation, claim.generation());
    assert!(view.lease.is_live(view.updated_at));
    assert_eq!(
        store
            .db()
            .snapshot()
            .unwrap()
            .resource(&counter::resource("b"))
            .unwrap(),
        None
    );
}

#[test]
fn a_follower_wakes_for_a_commit_of_its_own_process() {
    let store = TestStore::counters().unwrap();
    let mut follower = store.db().follow_events(0).unwrap();
    assert!(follower.next_batch(1).unwrap().is_empty());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| follower.next_batch(30_000).unwrap());
        counter::create(store.db(), "a").unwrap();
        assert_eq!(waiting.join().unwrap().len(), 1);
    });
}

#[test]
fn a_follower_goes_on_where_another_ended() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let mut first = store.db().follow_events(0).unwrap();
    assert_eq!(first.next_batch(0).unwrap().len(), 1);
    counter::add(store.db(), "a", 1).unwrap();
    let mut second = store.db().follow_events(first.after_seq()).unwrap();
    let batch = second.next_batch(0).unwrap();
    assert_eq!(batch.len(), 1);
    assert_eq!(batch[0].revision, 2);
}

/// Four processes write to shared and own counters while this one follows.
#[test]
fn a_follower_sees_each_event_of_four_processes_once() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "shared").unwrap();
    let mut follower = store.db().follow_events(0).unwrap();
    let children: Vec<_> = (0..WRITERS)
        .map(|index| Child::start("events::child_writes", &store.path(), &index.to_string()))
        .collect();
    let expected = 1 + WRITERS * (1 + 2 * CHANGES);
    let mut revisions: BTreeMap<String, u64> = BTreeMap::new();
    let mut last_seq = 0;
    let mut seen = 0;
    while seen < expected {
        let batch = follower.next_batch(30_000).unwrap();
        assert!(!batch.is_empty(), "only {seen} of {expected} events came");
        for event in batch {
            assert!(last_seq < event.seq, "{} after {last_seq}", event.seq);
            last_seq = event.seq;
            let before = revisions.entry(event.resource_key.clone()).or_default();
            assert_eq!(event.revision, *before + 1, "{}", event.resource_key);
            *before = event.revision;
            seen += 1;
        }
    }
    for child in children {
        child.finish();
    }
    assert_eq!(seen, expected);
    assert!(follower.next_batch(0).unwrap().is_empty());
    assert_eq!(revisions["shared"], 1 + WRITERS * CHANGES);
}

#[test]
fn child_writes() {
    let Some((path, index)) = children::task() else {
        return;
    };
    let db = Database::open(path, &children::counters_schema()).unwrap();
    let own = format!("own-{index}");
    counter::create(&db, &own).unwrap();
    for _ in 0..CHANGES {
        counter::add(&db, "shared", 1).unwrap();
        counter::add(&db, &own, 1).unwrap();
    }
}

/// A batch of large payloads ends early, so that a reader's memory is bounded, and nothing is missed by it.
#[test]
fn a_batch_ends_when_its_payloads_are_large() {
    const SIZE: usize = 6 * 1024 * 1024;
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    for letter in ["a", "b", "c", "d"] {
        let command = Command::new(&counter::ADD, counter::resource("a"))
            .recording(Payload::text(letter.repeat(SIZE)).unwrap());
        store
            .db()
            .commit(command, |_| Ok::<_, StateError>(Outcome::Accepted(())))
            .unwrap();
    }
    let snapshot = store.db().snapshot().unwrap();
    let first = snapshot.events_after(0, 100).unwrap();
    // The first one has no payload; the third large one passes the bound.
    assert_eq!(first.len(), 4);
    let rest = snapshot.events_after(first[3].seq, 100).unwrap();
    assert_eq!(rest.len(), 1);
    assert_eq!(
        snapshot
            .events_of(&counter::resource("a"), 1, 100)
            .unwrap()
            .len(),
        3
    );
    let mut follower = store.db().follow_events(0).unwrap();
    assert_eq!(follower.next_batch(0).unwrap().len(), 4);
    assert_eq!(follower.next_batch(0).unwrap().len(), 1);
}
