//! One revision and one event for each accepted command, and no trace of a refused one.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{Actor, Command, Disposition, Outcome, Payload, StateError};

#[test]
fn an_accepted_command_moves_the_revision_by_one() {
    let store = TestStore::counters().unwrap();
    assert_eq!(
        counter::create(store.db(), "a").unwrap().disposition,
        Disposition::Accepted
    );
    assert_eq!(
        counter::create(store.db(), "a").unwrap().disposition,
        Disposition::Adopted
    );
    let receipt = counter::add(store.db(), "a", 5).unwrap();
    assert_eq!((receipt.revision, receipt.value), (2, 5));
    assert_eq!(
        counter::value(&store.db().snapshot().unwrap(), "a").unwrap(),
        Some(5)
    );
}

#[test]
fn a_command_that_fails_after_writing_takes_nobody_with_it() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let tickets: Vec<_> = (0..20_i64)
        .map(|index| {
            let command = Command::new(&counter::ADD, counter::resource("a")).by(Actor::system());
            store
                .db()
                .submit(command, move |change| {
                    let value = counter::increase(change, 1)?;
                    assert!(index % 7 != 3, "panics on purpose");
                    if index % 7 == 5 {
                        return Err(StateError::Input {
                            what: "index",
                            problem: "refused".into(),
                        });
                    }
                    Ok(Outcome::Accepted(value))
                })
                .unwrap()
        })
        .collect();
    let mut accepted = 0;
    for (index, ticket) in tickets.into_iter().enumerate() {
        match (index % 7, ticket.wait()) {
            (3, Err(StateError::Panicked { .. })) | (5, Err(StateError::Input { .. })) => {}
            (3 | 5, other) => panic!("{index}: {other:?}"),
            (_, result) => {
                result.unwrap();
                accepted += 1;
            }
        }
    }
    assert_eq!(
        counter::value(&store.db().snapshot().unwrap(), "a").unwrap(),
        Some(accepted)
    );
}

#[test]
fn a_command_may_make_several_touches_of_its_resource() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let payload = Payload::json(&serde_json::json!({ "part": 1 })).unwrap();
    let command = Command::new(&counter::ADD, counter::resource("a")).by(Actor::system());
    let receipt = store
        .db()
        .commit(command, move |change| {
            counter::increase(change, 1)?;
            change.advance(&counter::ADD, None, Some(payload.clone()))?;
            assert_eq!((change.revision(), change.next_revision()), (2, 3));
            counter::increase(change, 1)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    assert_eq!(receipt.revision, 3);

    // Somebody who may not make the further touch can't make it this way either, and no part of the command stays.
    let command = Command::new(&counter::ADD, counter::resource("a")).by(Actor::system());
    let error = store
        .db()
        .commit(command, |change| {
            change.advance(&counter::ADD, None, None)?;
            change.advance(&counter::ADD_OWNED, None, None)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap_err();
    assert!(matches!(error, StateError::ClaimLost { .. }), "{error}");
    let receipt = counter::add(store.db(), "a", 1).unwrap();
    assert_eq!((receipt.revision, receipt.value), (4, 3));
}
