//! One server for each store.

use holdpoint_state::{Owner, OwnerKind, StateError};
use holdpoint_workflows::commands::{start_host, stop_host};

use crate::support::Fixture;

#[test]
fn one_server_has_a_store_and_each_start_is_a_new_epoch() {
    let fixture = Fixture::new();
    let db = fixture.store.db();
    let (first, second) = (
        Owner::new(OwnerKind::Host, "first"),
        Owner::new(OwnerKind::Host, "second"),
    );
    let claim = start_host(db, &first, 30_000).unwrap();
    assert_eq!(claim.generation(), 1);
    let held = start_host(db, &second, 30_000);
    assert!(matches!(held, Err(StateError::LeaseHeld { .. })));
    stop_host(db, &claim).unwrap();
    assert!(matches!(
        stop_host(db, &claim),
        Err(StateError::ClaimLost { .. })
    ));
    // One that said that it lives, and died, is followed at once.
    let presence = db.announce_owner(&second).unwrap();
    let claim = start_host(db, &second, 30_000).unwrap();
    assert_eq!(claim.generation(), 2);
    let held = start_host(db, &first, 30_000);
    assert!(matches!(held, Err(StateError::LeaseHeld { .. })));
    drop(presence);
    assert_eq!(start_host(db, &first, 30_000).unwrap().generation(), 3);
    assert!(matches!(
        stop_host(db, &claim),
        Err(StateError::ClaimLost { .. })
    ));
}
