//! What types can't hold, a typed error does: an operation or a store function of another domain.

use holdpoint_state::schema::Domain;
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    ActorKind, Change, Command, LeaseRule, Operation, Outcome, Resource, StateError,
};

/// A domain that has no table and one operation.
const NEIGHBOUR: Domain = Domain {
    resource_types: &["neighbour"],
    operations: &[&MOVE_IN],
    ..Domain::named("neighbours")
};

const MOVE_IN: Operation = Operation {
    name: "neighbour.move_in",
    event: "neighbour.moved_in",
    resource: "neighbour",
    summary: "Moves in.",
    actors: ActorKind::ALL,
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Has the name of a declared operation, and allows what that one does not.
const COUNTERFEIT: Operation = Operation {
    name: "counter.add",
    event: "counter.added",
    resource: "counter",
    summary: "Adds to a counter, whoever asks.",
    actors: ActorKind::ALL,
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Is of no composed domain.
const STRANGER: Operation = Operation {
    name: "counter.empty",
    ..COUNTERFEIT
};

fn orders() -> Resource {
    counter::resource("orders")
}

/// Runs a body on a store with one counter, whose value and revision must not change.
#[track_caller]
fn refused(
    command: Command,
    body: impl Fn(&mut Change<'_>) -> Result<(), StateError> + Send + 'static,
) -> StateError {
    let store = TestStore::new([counter::DOMAIN, NEIGHBOUR]).unwrap();
    counter::create(store.db(), "orders").unwrap();
    let seen = || {
        let snapshot = store.db().snapshot().unwrap();
        let events = snapshot.events_after(0, 9).unwrap().len();
        (counter::value(&snapshot, "orders").unwrap(), events)
    };
    let before = seen();
    let error = store
        .db()
        .commit(command, move |change| {
            body(change)?;
            Ok(Outcome::Accepted(()))
        })
        .unwrap_err();
    assert_eq!(seen(), before, "{error}");
    assert!(store.db().verify().unwrap().is_clean());
    error
}

#[track_caller]
fn is_misuse(error: &StateError, of: &str) {
    assert!(
        matches!(error, StateError::Misuse { operation, .. } if *operation == of),
        "{error:?}"
    );
}

#[test]
fn an_operation_changes_resources_of_its_own_domain_only() {
    let add = |change: &mut Change<'_>| counter::increase(change, 1).map(drop);
    let of_the_neighbour = Command::new(&MOVE_IN, orders());
    is_misuse(&refused(of_the_neighbour, add), MOVE_IN.name);
    let of_nobody = Command::new(&STRANGER, orders());
    is_misuse(&refused(of_nobody, add), STRANGER.name);
    let counterfeit = Command::new(&COUNTERFEIT, orders());
    is_misuse(&refused(counterfeit, add), COUNTERFEIT.name);
}

#[test]
fn a_command_does_not_become_one_of_another_domain() {
    let add = || Command::new(&counter::ADD, orders());
    let instead = refused(add(), |change| change.instead(&MOVE_IN));
    is_misuse(&instead, counter::ADD.name);
    let advance = refused(add(), |change| change.advance(&MOVE_IN, None, None));
    is_misuse(&advance, counter::ADD.name);
    let nested = refused(add(), |change| {
        let command = Command::new(&MOVE_IN, counter::resource("other"));
        change
            .also(&command, |_| Ok::<_, StateError>(Outcome::Accepted(())))
            .map(drop)
    });
    is_misuse(&nested, MOVE_IN.name);
}

#[test]
fn a_store_function_of_another_domain_is_denied() {
    let neighbour = Resource::new("neighbour", "next door");
    let denied = refused(
        Command::new(&MOVE_IN, neighbour).creating(),
        counter::insert,
    );
    assert!(
        matches!(&denied, StateError::StatementDenied { domain, .. } if domain == "neighbours"),
        "{denied:?}"
    );
}
