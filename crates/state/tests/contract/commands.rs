//! One revision and one event for each accepted command, and no trace of a refused one.

use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    Actor, ActorKind, Change, Command, Disposition, Outcome, Owner, OwnerKind, Payload, StateError,
};

use super::gate;

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

/// A command that breaks several rules is refused for the first of them: actor, resource, revision, lease.
#[test]
fn the_order_of_the_checks_is_contract() {
    let store = gate::store();
    gate::create(store.db(), "a");
    let db = store.db();
    let owner = Owner::new(OwnerKind::Host, "host");
    let elsewhere = || {
        gate::create(db, "elsewhere");
        db.claim(gate::resource("elsewhere"), Actor::host("h"), &owner, 1_000)
            .unwrap()
    };
    let claim = elsewhere();
    let before = gate::dump(db);
    let code = |command: Command| {
        let error = db
            .commit(command, |change| {
                gate::note(change, "never")?;
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
            .unwrap_err();
        error.code()
    };
    let wrong_actor = Command::new(&gate::PEOPLE, gate::resource("missing"))
        .expecting(9)
        .holding(&claim);
    assert_eq!(code(wrong_actor), "actorDenied");
    let missing = Command::new(&gate::LOCK, gate::resource("missing"))
        .expecting(9)
        .holding(&claim);
    assert_eq!(code(missing), "notFound");
    let stale = Command::new(&gate::LOCK, gate::resource("a"))
        .expecting(9)
        .holding(&claim);
    assert_eq!(code(stale), "staleRevision");
    let unowned = Command::new(&gate::LOCK, gate::resource("a"))
        .expecting(1)
        .holding(&claim);
    assert_eq!(code(unowned), "claimLost");
    // The policy is asked for its lease in its place of the order.
    let policy = Actor::new(ActorKind::Policy, "rule");
    let not_for_policy = Command::new(&gate::PEOPLE, gate::resource("a")).by(policy.clone());
    assert_eq!(code(not_for_policy), "actorDenied");
    let stale_policy = Command::new(&gate::RULE, gate::resource("a"))
        .by(policy)
        .expecting(9);
    assert_eq!(code(stale_policy), "staleRevision");
    assert_eq!(gate::dump(db), before);
}

/// Each kind of actor, on an operation that is for two of them.
#[test]
fn an_operation_is_for_its_actors_only() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    let owner = Owner::new(OwnerKind::Host, "host");
    let claim = store
        .db()
        .claim(counter::resource("a"), Actor::host("h"), &owner, 1_000)
        .unwrap();
    for kind in ActorKind::ALL {
        let command = Command::new(&counter::ADD_OWNED, counter::resource("a"))
            .by(Actor::new(*kind, "somebody"))
            .holding(&claim);
        let result = store.db().commit(command, |change| {
            Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
        });
        let allowed = matches!(kind, ActorKind::Host | ActorKind::System);
        match result {
            Ok(_) => assert!(allowed, "{kind}"),
            Err(StateError::ActorDenied { operation, actor }) => {
                assert!(!allowed);
                assert_eq!((operation, actor), ("counter.add_owned", *kind));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let event = store.db().snapshot().unwrap().events_after(2, 10).unwrap();
    assert_eq!(event.len(), 2);
    assert_eq!(event[0].actor_id.as_deref(), Some("somebody"));
}

#[test]
fn a_stale_revision_names_both_and_leaves_nothing() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    counter::add(store.db(), "a", 1).unwrap();
    let before = gate::dump(store.db());
    let add = |expected| {
        let command = Command::new(&counter::ADD, counter::resource("a")).expecting(expected);
        store.db().commit(command, |change| {
            Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
        })
    };
    for expected in [0, 1, 3, u64::MAX] {
        match add(expected) {
            Err(StateError::StaleRevision {
                resource,
                expected: named,
                actual,
            }) => {
                assert_eq!(
                    (resource, named, actual),
                    (counter::resource("a"), expected, 2)
                );
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(gate::dump(store.db()), before);
    assert_eq!(add(2).unwrap().revision, 3);
    // A body that looks for its earlier self first asks later; the answer is the same.
    let command = Command::new(&counter::ADD, counter::resource("a"));
    let result = store.db().commit(command, |change| {
        change.expect_revision(2)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    });
    assert!(matches!(
        result,
        Err(StateError::StaleRevision { actual: 3, .. })
    ));
}

#[test]
fn creating_what_exists_adopts_or_conflicts() {
    let store = TestStore::counters().unwrap();
    counter::create(store.db(), "a").unwrap();
    counter::add(store.db(), "a", 4).unwrap();
    let before = gate::dump(store.db());
    let adopted = counter::create(store.db(), "a").unwrap();
    assert_eq!(
        (adopted.disposition, adopted.revision, adopted.event_seq),
        (Disposition::Adopted, 2, None)
    );
    // A body that does not look and accepts is refused, though it wrote.
    let again = Command::new(&counter::CREATE, counter::resource("a")).creating();
    let result = store.db().commit(again, |change| {
        assert!(!change.is_new());
        counter::increase(change, 1)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    });
    assert!(
        matches!(result, Err(StateError::Conflict { .. })),
        "{result:?}"
    );
    assert_eq!(gate::dump(store.db()), before);
    // What does not exist is made by nothing else.
    let missing = Command::new(&counter::ADD, counter::resource("missing"));
    let result = store.db().commit(missing, |change| {
        Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
    });
    assert!(
        matches!(&result, Err(StateError::NotFound { resource }) if resource.key() == "missing"),
        "{result:?}"
    );
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn two_commands_that_follow_from_each_other_are_sent_as_one() {
    let store = TestStore::counters().unwrap();
    let adding = |name: &str, amount| {
        let command = Command::new(&counter::ADD, counter::resource(name));
        (command, move |change: &mut Change<'_>| {
            Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, amount)?))
        })
    };
    counter::create(store.db(), "c").unwrap();
    let (first, second) = store
        .db()
        .submit_both(adding("c", 1), adding("c", 2))
        .unwrap();
    let (first, second) = (first.wait().unwrap(), second.wait().unwrap());
    assert_eq!((first.value, second.value), (1, 3));
    // Nothing is between them.
    assert_eq!(first.event_seq.map(|seq| seq + 1), second.event_seq);
    // Each has its own checks and its own result.
    let (first, second) = store
        .db()
        .submit_both(adding("missing", 1), adding("c", 4))
        .unwrap();
    assert!(matches!(first.wait(), Err(StateError::NotFound { .. })));
    assert_eq!(second.wait().unwrap().value, 7);
}
