//! The promises of the domain, through its public surface.

use std::error::Error;

use holdpoint_decisions::{ANNOUNCE, DOMAIN, DecisionError, Name, commands, views};
use holdpoint_state::effects::{self, EffectState};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Actor, Disposition, StateError};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[test]
fn a_repeat_adopts_and_changes_nothing() -> Result {
    let store = TestStore::new([DOMAIN])?;
    let name = Name::new("first")?;
    let first = commands::create(store.db(), &name, Actor::human("ann"))?;
    assert_eq!(first.disposition, Disposition::Accepted);
    let seen = views::fetch(&store.db().snapshot()?, &name)?;
    let again = commands::create(store.db(), &name, Actor::human("bob"))?;
    assert_eq!(again.disposition, Disposition::Adopted);
    assert_eq!(views::fetch(&store.db().snapshot()?, &name)?, seen);
    assert!(store.db().verify()?.is_clean());
    Ok(())
}

#[test]
fn the_announcement_is_reserved_once() -> Result {
    let store = TestStore::new([DOMAIN])?;
    let name = Name::new("first")?;
    for _ in 0..2 {
        commands::create(store.db(), &name, Actor::system())?;
    }
    let reserved = effects::of_source(&store.db().snapshot()?, &name.resource())?;
    let reserved: Vec<_> = reserved
        .iter()
        .map(|effect| (effect.effect_type.as_str(), effect.state))
        .collect();
    assert_eq!(reserved, [(ANNOUNCE, EffectState::Pending)]);
    Ok(())
}

#[test]
fn who_may_not_leaves_no_trace() -> Result {
    let store = TestStore::new([DOMAIN])?;
    let name = Name::new("first")?;
    let refused = commands::create(store.db(), &name, Actor::host("host"));
    assert!(matches!(
        refused,
        Err(DecisionError::State(StateError::ActorDenied { .. }))
    ));
    assert_eq!(views::fetch(&store.db().snapshot()?, &name)?, None);
    assert!(store.db().verify()?.is_clean());
    Ok(())
}
