//! Projects: one row for each canonical path, whose id is derived from it.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Command, Outcome, StateError};

use super::gate;

fn project(store: &TestStore, path: &'static str) -> Result<String, StateError> {
    store
        .db()
        .commit(
            Command::new(&counter::ADD, counter::resource("a")),
            move |change| Ok(Outcome::Refused(change.project(path)?)),
        )
        .map(|receipt| receipt.value)
}

#[test]
fn a_path_has_one_project_whose_id_is_derived() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let home = project(&store, "/home/ada/work").unwrap();
    let before = gate::dump(store.db());
    assert_eq!(project(&store, "/home/ada/work").unwrap(), home);
    assert_eq!(gate::dump(store.db()), before);
    let other = project(&store, "/home/ada").unwrap();
    assert_ne!(other, home);
    insta::assert_snapshot!(home, @"project-5010972d9df3a46298780007b673e98da9391171");
    assert!(store.db().verify().unwrap().is_clean());
}

#[test]
fn a_path_that_is_not_absolute_is_refused() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let before = gate::dump(store.db());
    for path in ["", "work", "./work", "~/work"] {
        let refused = project(&store, path);
        assert!(
            matches!(refused, Err(StateError::Input { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(gate::dump(store.db()), before);
}
