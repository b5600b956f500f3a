//! Leases: one owner, a generation that only grows, and evidence that is compared at every write.

use std::sync::{Arc, Barrier};

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    Actor, Claim, ClaimLostReason, Command, LeaseView, Outcome, Owner, OwnerKind, Receipt,
    StateError,
};

use super::gate;

const LENGTH: i64 = 1_000;

fn owner() -> Owner {
    Owner::new(OwnerKind::Host, "same-host-name")
}

fn claim_as(store: &TestStore, owner: &Owner) -> Result<Claim, StateError> {
    store
        .db()
        .claim(gate::resource("a"), Actor::host("h"), owner, LENGTH)
}

fn store() -> TestStore {
    let store = gate::store();
    gate::create(store.db(), "a");
    gate::create(store.db(), "b");
    store
}

fn protected(store: &TestStore, claim: &Claim) -> Result<Receipt<()>, StateError> {
    let command = Command::new(&gate::LOCK, gate::resource("a")).holding(claim);
    store.db().commit(command, |change| {
        gate::note(change, "protected")?;
        Ok(Outcome::Accepted(()))
    })
}

fn lease(store: &TestStore) -> LeaseView {
    let snapshot = store.db().snapshot().unwrap();
    snapshot
        .resource(&gate::resource("a"))
        .unwrap()
        .unwrap()
        .lease
}

#[track_caller]
fn is_lost<T: std::fmt::Debug>(result: Result<T, StateError>, expected: ClaimLostReason) {
    match result {
        Err(StateError::ClaimLost { resource, reason }) => {
            assert_eq!((resource, reason), (gate::resource("a"), expected));
        }
        other => panic!("not lost but {other:?}"),
    }
}

/// Every way to use a claim is refused with the same reason and changes nothing.
#[track_caller]
fn is_dead(store: &TestStore, claim: Claim, expected: ClaimLostReason) {
    let before = gate::dump(store.db());
    is_lost(protected(store, &claim), expected);
    is_lost(store.db().renew(&claim), expected);
    // Evidence that an operation does not need is compared all the same.
    let unneeded = Command::new(&gate::CREATE, gate::resource("a")).holding(&claim);
    let result = store
        .db()
        .commit(unneeded, |_| Ok::<_, StateError>(Outcome::Accepted(())));
    is_lost(result, expected);
    // Nested too.
    let (send, receive) = std::sync::mpsc::channel();
    send.send(claim).unwrap();
    let outer = Command::new(&gate::CREATE, gate::resource("b"));
    let result = store.db().commit(outer, move |change| {
        let claim: Claim = receive.recv().unwrap();
        let nested = Command::new(&gate::LOCK, gate::resource("a")).holding(&claim);
        let result = change.also(&nested, |_| Ok::<_, StateError>(Outcome::Accepted(())));
        assert!(matches!(result, Err(StateError::ClaimLost { .. })));
        Ok::<_, StateError>(Outcome::Refused(claim))
    });
    let claim = result.unwrap().value;
    is_lost(store.db().release(claim, Actor::host("h")), expected);
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn a_claim_is_granted_once_and_recorded() {
    let store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    assert_eq!(claim.generation(), 1);
    assert_eq!(claim.remaining_ms(store.clock()), 1_000);
    // Nobody else, and not the same owner either.
    for other in [owner(), claim.owner().clone()] {
        let before = gate::dump(store.db());
        let error = claim_as(&store, &other).unwrap_err();
        assert!(
            matches!(&error, StateError::LeaseHeld { expires_at, .. } if *expires_at == claim.expires_at()),
            "{error:?}"
        );
        assert!(error.is_retryable());
        assert_eq!(gate::dump(store.db()), before);
    }
    protected(&store, &claim).unwrap();
    store.db().release(claim, Actor::host("h")).unwrap();
    let free = lease(&store);
    assert_eq!((free.generation, free.owner), (1, None));
    assert_eq!(
        gate::history(store.db(), &gate::resource("a")),
        [
            "1 gate.create",
            "2 lease.claimed by 1",
            "3 gate.lock by 1",
            "4 lease.released by 1"
        ]
    );
}

#[test]
fn a_protected_write_renews_its_claim_and_nothing_else_does() {
    let store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    let granted = claim.expires_at();
    store.clock().advance(400);
    // Reading, and a write of somebody else, move nothing.
    assert!(lease(&store).is_live(granted.plus(-1)));
    let by_others = Command::new(&gate::CREATE, gate::resource("a"));
    store
        .db()
        .commit(by_others, |_| Ok::<_, StateError>(Outcome::Accepted(())))
        .unwrap();
    assert_eq!(lease(&store).expires_at, Some(granted));
    assert_eq!(claim.remaining_ms(store.clock()), 600);
    // A refused write neither.
    let command = Command::new(&gate::LOCK, gate::resource("a")).holding(&claim);
    let refused = store.db().commit(command, |change| {
        gate::note(change, "x")?;
        Err::<Outcome<()>, _>(StateError::Closed)
    });
    assert!(refused.is_err());
    assert_eq!(lease(&store).expires_at, Some(granted));
    assert_eq!(claim.expires_at(), granted);

    protected(&store, &claim).unwrap();
    let renewed = granted.plus(400);
    assert_eq!(lease(&store).expires_at, Some(renewed));
    assert_eq!(claim.expires_at(), renewed);
    assert_eq!(claim.remaining_ms(store.clock()), 1_000);

    // A renewal alone: no revision, no event.
    store.clock().advance(100);
    let events = gate::history(store.db(), &gate::resource("a"));
    store.db().renew(&claim).unwrap();
    assert_eq!(lease(&store).expires_at, Some(renewed.plus(100)));
    assert_eq!(claim.expires_at(), renewed.plus(100));
    assert_eq!(gate::history(store.db(), &gate::resource("a")), events);
}

#[test]
fn the_last_millisecond_counts_and_the_next_does_not() {
    let store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    store.clock().advance(999);
    assert_eq!(claim.remaining_ms(store.clock()), 1);
    store.db().renew(&claim).unwrap();
    store.clock().advance(1_000);
    assert!(claim.is_expired(store.clock()));
    // Even the right token, even though nobody else came.
    is_dead(&store, claim, ClaimLostReason::Expired);
    let next = claim_as(&store, &owner()).unwrap();
    assert_eq!(next.generation(), 2);
}

#[test]
fn case_024_a_stale_worker_can_do_nothing() {
    let store = store();
    let stale = claim_as(&store, &owner()).unwrap();
    store.clock().advance(1_000);
    let newer = claim_as(&store, &owner()).unwrap();
    assert_eq!(newer.generation(), 2);
    is_dead(&store, stale, ClaimLostReason::OwnerChanged);
    protected(&store, &newer).unwrap();
    // When the new owner has gone as well, the old claim does not come to life again.
    let stale = newer;
    store.clock().advance(1_000);
    let last = claim_as(&store, &owner()).unwrap();
    store.db().release(last, Actor::host("h")).unwrap();
    is_dead(&store, stale, ClaimLostReason::GenerationChanged);
}

#[test]
fn case_026_a_name_is_no_identity() {
    let (one, other) = (owner(), owner());
    assert_ne!(one.id(), other.id());
    let store = store();
    let dead = claim_as(&store, &one).unwrap();
    // The container comes back under its name: its lease is still held, by its predecessor.
    assert!(matches!(
        claim_as(&store, &other),
        Err(StateError::LeaseHeld { .. })
    ));
    store.clock().advance(1_000);
    drop(claim_as(&store, &other).unwrap());
    is_dead(&store, dead, ClaimLostReason::OwnerChanged);
}

#[test]
fn case_029_the_same_owner_claims_anew_and_its_old_token_is_dead() {
    // No ownership decision looks at a process: the very same owner in the very same process gets no second way in.
    let store = store();
    let owner = owner();
    let old = claim_as(&store, &owner).unwrap();
    store.clock().advance(1_000);
    let new = claim_as(&store, &owner).unwrap();
    is_dead(&store, old, ClaimLostReason::GenerationChanged);
    protected(&store, &new).unwrap();
}

#[test]
fn a_released_claim_and_a_claim_of_another_resource_give_nothing() {
    let store = store();
    let none = Command::new(&gate::LOCK, gate::resource("a"));
    let result = store
        .db()
        .commit(none, |_| Ok::<_, StateError>(Outcome::Accepted(())));
    is_lost(result, ClaimLostReason::MissingAuthority);
    let elsewhere = store
        .db()
        .claim(gate::resource("b"), Actor::host("h"), &owner(), LENGTH)
        .unwrap();
    is_lost(
        protected(&store, &elsewhere),
        ClaimLostReason::MissingAuthority,
    );
    // Released through a command, while the evidence is still in somebody's hands.
    let claim = claim_as(&store, &owner()).unwrap();
    let command = Command::new(&gate::CREATE, gate::resource("a"));
    store
        .db()
        .commit(command, |change| {
            assert!(change.release()?);
            assert!(!change.release()?);
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    is_dead(&store, claim, ClaimLostReason::MissingAuthority);
}

#[test]
fn who_holds_both_shows_the_claim_of_the_one_that_changes() {
    let store = store();
    let both = owner();
    let _on_a = claim_as(&store, &both).unwrap();
    let on_b = store
        .db()
        .claim(gate::resource("b"), Actor::host("h"), &both, LENGTH)
        .unwrap();
    // Not even looked up: the same owner and generation stand in the row.
    is_lost(protected(&store, &on_b), ClaimLostReason::MissingAuthority);
}

#[test]
fn a_token_that_was_tampered_with_is_refused() {
    // Not possible through the public surface: a row that another program wrote.
    let mut store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    store.close();
    let raw = rusqlite::Connection::open(store.path()).unwrap();
    raw.execute("UPDATE leases SET token_hash = zeroblob(32)", [])
        .unwrap();
    drop(raw);
    let db = store.open().unwrap();
    let result = db.renew(&claim);
    is_lost(result, ClaimLostReason::TokenChanged);
}

#[test]
fn no_generation_is_given_twice() {
    let store = store();
    let mut generations = Vec::new();
    for round in 0..6 {
        let claim = claim_as(&store, &owner()).unwrap();
        generations.push(claim.generation());
        if round % 2 == 0 {
            store.db().release(claim, Actor::host("h")).unwrap();
        } else {
            store.clock().advance(1_000);
        }
    }
    assert_eq!(generations, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_lease_changes_hands_in_one_command() {
    let store = store();
    let (first, second) = (owner(), owner());
    let claim = claim_as(&store, &first).unwrap();
    let command = Command::new(&gate::LOCK, gate::resource("a")).holding(&claim);
    let to = second.clone();
    let handed = store
        .db()
        .commit(command, move |change| {
            change.release()?;
            Ok::<_, StateError>(Outcome::Accepted(change.claim(&to, LENGTH)?))
        })
        .unwrap()
        .value;
    assert_eq!(handed.generation(), 2);
    assert_eq!(handed.owner(), &second);
    is_dead(&store, claim, ClaimLostReason::OwnerChanged);
    protected(&store, &handed).unwrap();
}

#[test]
fn one_of_many_concurrent_claims_wins() {
    let store = store();
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (db, barrier) = (store.db().clone(), Arc::clone(&barrier));
            std::thread::spawn(move || {
                barrier.wait();
                db.claim(gate::resource("a"), Actor::host("h"), &owner(), LENGTH)
                    .map(|claim| claim.generation())
            })
        })
        .collect();
    let results: Vec<_> = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .collect();
    let winners: Vec<_> = results
        .iter()
        .filter_map(|result| result.as_ref().ok())
        .collect();
    assert_eq!(winners, [&1]);
    for lost in results.iter().filter_map(|result| result.as_ref().err()) {
        assert!(matches!(lost, StateError::LeaseHeld { .. }), "{lost:?}");
    }
}

#[test]
fn case_030_a_jump_of_the_wall_clock_never_makes_two_writers() {
    let store = store();
    let first = claim_as(&store, &owner()).unwrap();
    let start = holdpoint_state::testing::START;
    // Forward: another may take over early, and the first can then do nothing.
    store.clock().set_wall(start + 3_600_000);
    assert!(first.is_expired(store.clock()));
    let second = claim_as(&store, &owner()).unwrap();
    // Back again: by the wall clock both would be alive.
    store.clock().set_wall(start);
    is_dead(&store, first, ClaimLostReason::OwnerChanged);
    // The second one's lease now ends far in the future by the wall clock, but its guard counts its own time.
    store.clock().advance(1_000);
    assert!(second.is_expired(store.clock()));
    // Its write is still taken: nobody else has come. That is a delay of the takeover, not a second writer.
    protected(&store, &second).unwrap();
    assert!(!second.is_expired(store.clock()));
}

#[test]
fn the_guard_never_outlives_the_row() {
    let store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    let start = holdpoint_state::testing::START;
    // The wall clock is set back an hour, and the claim is renewed: its row now ends earlier than before.
    store.clock().set_wall(start - 3_600_000);
    store.db().renew(&claim).unwrap();
    assert_eq!(Some(claim.expires_at()), lease(&store).expires_at);
    // The wall clock goes forward past that end.
    store.clock().set_wall(start - 3_600_000 + 1_500);
    assert!(!lease(&store).is_live(holdpoint_state::clock::Clock::now(store.clock())));
    assert!(claim.is_expired(store.clock()));
}

#[test]
fn a_lease_counts_from_the_grant() {
    let store = store();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let (started, is_started) = std::sync::mpsc::channel();
    counter::create(store.db(), "c").unwrap();
    let held = store
        .db()
        .submit(
            Command::new(&counter::ADD, counter::resource("c")),
            move |_| {
                let _ = started.send(());
                let _ = wait.recv();
                Ok::<_, StateError>(Outcome::Refused(()))
            },
        )
        .unwrap();
    is_started.recv().unwrap();
    let to = owner();
    let ticket = store
        .db()
        .submit(
            Command::new(&gate::CREATE, gate::resource("a")),
            move |change| Ok::<_, StateError>(Outcome::Accepted(change.claim(&to, LENGTH)?)),
        )
        .unwrap();
    // The caller waits for longer than the lease is.
    store.clock().advance(5_000);
    drop(go);
    held.wait().unwrap();
    let claim = ticket.wait().unwrap().value;
    assert_eq!(claim.remaining_ms(store.clock()), 1_000);
    protected(&store, &claim).unwrap();
}

#[test]
fn nothing_that_is_shown_contains_the_token() {
    let mut store = store();
    let claim = claim_as(&store, &owner()).unwrap();
    let command = Command::new(&gate::LOCK, gate::resource("a")).holding(&claim);
    let shown = format!("{claim:?} {command:?} {:?}", lease(&store));
    store.close();
    let raw = rusqlite::Connection::open(store.path()).unwrap();
    let (hash, digest): (Vec<u8>, holdpoint_state::Digest) = raw
        .query_row("SELECT token_hash, token_hash FROM leases", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    let hex = digest.to_hex();
    assert!(!shown.to_lowercase().contains(&hex));
    assert!(!shown.contains(&format!("{hash:?}")[1..20]));
    // Nor does a refusal or an event.
    assert!(shown.contains("redacted"));
}

#[test]
fn a_length_must_be_positive() {
    let store = store();
    for length in [0, -1, i64::MIN] {
        let result = store
            .db()
            .claim(gate::resource("a"), Actor::host("h"), &owner(), length);
        assert!(
            matches!(result, Err(StateError::Input { .. })),
            "{result:?}"
        );
    }
    let forever = store
        .db()
        .claim(gate::resource("a"), Actor::host("h"), &owner(), i64::MAX)
        .unwrap();
    assert!(!forever.is_expired(store.clock()));
}
