//! The presence of owners, in one process: every doubt counts as life.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Claim, Owner, OwnerKind, Refusal, StateError};

fn store() -> (TestStore, Owner, Owner) {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "c").unwrap();
    let owner = |name| Owner::new(OwnerKind::Host, name);
    (store, owner("first"), owner("second"))
}

fn claim(store: &TestStore, owner: &Owner) -> Result<Claim, StateError> {
    let actor = Actor::host("test");
    store
        .db()
        .claim(counter::resource("c"), actor, owner, 30_000)
}

fn folder(store: &TestStore) -> PathBuf {
    store.directory().join("state.sqlite.owners")
}

fn assert_held(store: &TestStore, owner: &Owner) {
    let refused = claim(store, owner);
    assert!(
        matches!(refused, Err(StateError::LeaseHeld { .. })),
        "{refused:?}"
    );
}

#[test]
fn the_claim_of_a_dead_owner_is_taken_over_and_gives_no_right_any_more() {
    let (store, first, second) = store();
    let presence = store.db().announce_owner(&first).unwrap();
    let lost = claim(&store, &first).unwrap();
    assert_held(&store, &second);
    // Also to another handle of the same process.
    let other = store.open().unwrap();
    let actor = Actor::host("test");
    let refused = other.claim(counter::resource("c"), actor, &second, 30_000);
    assert!(matches!(refused, Err(StateError::LeaseHeld { .. })));
    drop(presence);
    assert_eq!(claim(&store, &second).unwrap().generation(), 2);
    let renewed = store.db().renew(&lost);
    assert!(
        matches!(renewed, Err(StateError::ClaimLost { .. })),
        "{renewed:?}"
    );
}

#[test]
fn what_can_not_be_looked_at_counts_as_life() {
    let (store, first, second) = store();
    drop(store.db().announce_owner(&first).unwrap());
    drop(claim(&store, &first).unwrap());
    let file = folder(&store).join(first.id());
    let set_aside = store.directory().join("set-aside");
    fs::rename(&file, &set_aside).unwrap();
    assert_held(&store, &second);
    std::os::unix::fs::symlink(&set_aside, &file).unwrap();
    assert_held(&store, &second);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_held(&store, &second);
    fs::remove_dir(&file).unwrap();
    fs::rename(&set_aside, &file).unwrap();
    assert!(claim(&store, &second).is_ok());
}

#[test]
fn files_have_modes_of_their_own_and_go_when_no_lease_needs_them() {
    let (store, first, second) = store();
    let presence = store.db().announce_owner(&first).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder(&store)), 0o700);
    assert_eq!(mode(folder(&store).join(first.id())), 0o600);
    // Nobody's lease names it, but it lives.
    assert_eq!(store.db().clean_owners().unwrap(), 0);
    let held = claim(&store, &first).unwrap();
    drop(presence);
    assert_eq!(store.db().clean_owners().unwrap(), 0);
    store.db().release(held, Actor::host("test")).unwrap();
    // The next owner that begins cleans up.
    let presence = store.db().announce_owner(&second).unwrap();
    let left: Vec<_> = fs::read_dir(folder(&store))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [second.id()]);
    drop(presence);
}

#[test]
fn a_folder_that_others_could_write_is_refused() {
    let (mut store, first, _) = store();
    drop(store.db().announce_owner(&first).unwrap());
    store.close();
    fs::set_permissions(folder(&store), Permissions::from_mode(0o770)).unwrap();
    let refused = store.open();
    assert!(
        matches!(&refused, Err(StateError::Refused { refusal, .. }) if matches!(**refusal, Refusal::Mode { .. })),
        "{refused:?}"
    );
    fs::remove_dir_all(folder(&store)).unwrap();
    fs::write(folder(&store), "").unwrap();
    let refused = store.open();
    assert!(
        matches!(&refused, Err(StateError::Refused { refusal, .. }) if matches!(**refusal, Refusal::NotAFile { .. })),
        "{refused:?}"
    );
}

#[test]
fn an_id_that_is_no_name_of_a_file_is_refused() {
    let (store, ..) = store();
    for label in ["../up", "a/b", ".hidden", "a b"] {
        let owner = Owner::new(OwnerKind::Host, label);
        let refused = store.db().announce_owner(&owner);
        assert!(
            matches!(refused, Err(StateError::Input { .. })),
            "{label}: {refused:?}"
        );
    }
}
