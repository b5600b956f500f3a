//! A lease whose owner was killed is taken over at once; one whose owner only stands still is not.

use holdpoint_state::testing::counter;
use holdpoint_state::{Actor, Database, Owner, OwnerKind, StateError};
use rustix::process::Signal;

use super::child::{Child, Home, listen, open, say, task};

/// An hour: no test waits for the end of such a lease.
const LEASE_MS: i64 = 3_600_000;

fn claim(db: &Database, name: &str, owner: &Owner) -> Result<u64, StateError> {
    let claim = db.claim(
        counter::resource(name),
        Actor::host("test"),
        owner,
        LEASE_MS,
    )?;
    Ok(claim.generation())
}

/// Takes the lease of `r0`, announced when the task says so, and keeps it.
#[test]
fn child_owns() {
    let Some((store, task)) = task() else { return };
    let db = open(&store, 5_000);
    let owner = Owner::new(OwnerKind::Host, "child");
    let presence = (task == "announced").then(|| db.announce_owner(&owner).unwrap());
    assert_eq!(claim(&db, "r0", &owner).unwrap(), 1);
    say(owner.id());
    listen();
    drop(presence);
}

fn assert_held(db: &Database, owner: &Owner) {
    let refused = claim(db, "r0", owner);
    assert!(
        matches!(refused, Err(StateError::LeaseHeld { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_killed_owner_is_dead_and_a_stopped_one_lives() {
    let home = Home::new(&["r0"]);
    let db = open(&home.store, 5_000);
    let mut child = Child::start("owners::child_owns", &home.store, "announced");
    let dead = child.hear();
    let owner = Owner::new(OwnerKind::Host, "parent");
    let dead_owners = || {
        db.snapshot()
            .unwrap()
            .dead_owners(db.clock().now())
            .unwrap()
    };

    assert_held(&db, &owner);
    child.signal(Signal::STOP);
    assert_held(&db, &owner);
    assert!(dead_owners().is_empty());
    child.kill();
    assert_eq!(dead_owners(), std::slice::from_ref(&dead));

    // Its file stays as long as the lease needs it.
    assert_eq!(db.clean_owners().unwrap(), 0);
    assert_eq!(claim(&db, "r0", &owner).unwrap(), 2);
    assert!(dead_owners().is_empty());
    assert_eq!(db.clean_owners().unwrap(), 1);
}

#[test]
fn an_owner_that_never_said_that_it_lives_keeps_its_lease() {
    let home = Home::new(&["r0"]);
    let db = open(&home.store, 5_000);
    let mut child = Child::start("owners::child_owns", &home.store, "silent");
    child.hear();
    child.kill();
    assert_held(&db, &Owner::new(OwnerKind::Host, "parent"));
}
