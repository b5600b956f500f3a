//! The rows of leases and effects, and the events that tell of them, change together or not at all: by the functions of the shared
//! records, and by nothing else that a program can say.

use std::sync::{Arc, Mutex};

use holdpoint_state::effects::{EffectCall, EffectWorker, LocalHandler, WorkerOptions};
use holdpoint_state::testing::{TestStore, counter};
use holdpoint_state::{
    Actor, Change, Command, NewEffect, Operation, Outcome, OwnerScope, Payload, Receipt, Resource,
    StateError,
};

use super::gate;

const KERNEL: &[&Operation] = holdpoint_state::DOMAIN.operations;

fn store() -> TestStore {
    let store = gate::store();
    counter::create(store.db(), "c").unwrap();
    gate::create(store.db(), "a");
    store
}

/// A counter with a pending effect; returns the effect's resource.
fn announced(store: &TestStore) -> Resource {
    counter::submit_announced(store.db(), "c", 1, "note")
        .unwrap()
        .wait()
        .unwrap();
    let snapshot = store.db().snapshot().unwrap();
    let mut events = snapshot.events_after(0, 100).unwrap().into_iter();
    let effect = events.find(|event| event.resource_type == "effect");
    Resource::new("effect", effect.unwrap().resource_key)
}

/// Claims everything that the operation could ask for.
#[expect(clippy::unnecessary_wraps, reason = "the form of a body")]
fn accept(change: &mut Change<'_>) -> Result<Outcome<()>, StateError> {
    for (from, to) in [
        ("pending", "applied"),
        ("applying", "applied"),
        ("ambiguous", "applied"),
    ] {
        drop(change.transition(from, to));
    }
    Ok(Outcome::Accepted(()))
}

#[track_caller]
fn is_misuse<T: std::fmt::Debug>(result: &Result<T, StateError>, name: &str) {
    assert!(
        matches!(result, Err(StateError::Misuse { .. })),
        "{name}: {result:?}"
    );
}

#[test]
fn an_operation_of_the_shared_records_is_no_command_of_a_program() {
    let store = store();
    let effect = announced(&store);
    let before = gate::dump(store.db());
    for operation in KERNEL {
        for resource in [counter::resource("c"), effect.clone()] {
            let command = {
                let resource = resource.clone();
                move || Command::new(operation, resource.clone()).by(Actor::human("h"))
            };
            is_misuse(&store.db().commit(command(), accept), operation.name);
            let nested = Command::new(&gate::CREATE, gate::resource("a"));
            let result = store.db().commit(nested, move |change| {
                change.also(&command(), accept)?;
                Ok::<_, StateError>(Outcome::Refused(()))
            });
            is_misuse(&result, operation.name);
        }
        // Nor does a command of a domain become one.
        let command = Command::new(&gate::CREATE, gate::resource("a"));
        let result = store.db().commit(command, |change| {
            change.instead(operation)?;
            accept(change)
        });
        is_misuse(&result, operation.name);
    }
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn what_a_command_becomes_is_checked_like_a_command() {
    let store = store();
    let before = gate::dump(store.db());
    let as_host = || Command::new(&gate::CREATE, gate::resource("a")).by(Actor::host("h"));
    // For people only, and for the owner only.
    let people: Result<Receipt<()>, _> = store.db().commit(as_host(), |change| {
        change.instead(&gate::PEOPLE)?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    });
    assert!(
        matches!(people, Err(StateError::ActorDenied { .. })),
        "{people:?}"
    );
    for operation in [&gate::PEOPLE, &gate::LOCK] {
        let touched: Result<Receipt<()>, _> = store.db().commit(as_host(), move |change| {
            change.advance(operation, None, None)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        });
        assert!(
            matches!(
                touched,
                Err(StateError::ActorDenied { .. } | StateError::ClaimLost { .. })
            ),
            "{touched:?}"
        );
    }
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn what_has_advanced_must_be_accepted() {
    let store = store();
    let before = gate::dump(store.db());
    let command = Command::new(&gate::CREATE, gate::resource("a"));
    let refused: Result<Receipt<()>, _> = store.db().commit(command, |change| {
        change.advance(&gate::CREATE, None, None)?;
        Ok::<_, StateError>(Outcome::Refused(()))
    });
    is_misuse(&refused, "gate.create");
    assert_eq!(gate::dump(store.db()), before);
}

/// Tries to write a table of the kernel, and one of its own domain.
struct Reaching(Arc<Mutex<Vec<&'static str>>>);

impl LocalHandler for Reaching {
    fn effect_type(&self) -> &'static str {
        "counter.tally"
    }

    fn apply(&self, change: &mut Change<'_>, _: &EffectCall) -> Result<(), StateError> {
        // lint:allow(sql-in-test): what must be denied.
        for sql in [
            "UPDATE effects SET external_ref = 'x'",
            "DELETE FROM events",
        ] {
            if matches!(
                gate::run(change, sql),
                Err(StateError::StatementDenied { .. })
            ) {
                self.0.lock().unwrap().push(sql);
            }
        }
        // lint:allow(sql-in-test): stands for the store room of the handler's domain.
        gate::run(change, "UPDATE counters SET value = value + 1")?;
        Ok(())
    }
}

#[test]
fn a_handler_has_the_statements_of_its_domain_and_not_the_kernels() {
    let store = store();
    let command = Command::new(&counter::ADD, counter::resource("c"));
    let payload = Payload::json(&1).unwrap();
    let effect = NewEffect::new("counter.tally", "k", OwnerScope::System, payload);
    store
        .db()
        .commit(command, move |change| {
            change.reserve_effect(&effect)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    let denied = Arc::new(Mutex::new(Vec::new()));
    let worker = EffectWorker::new(store.db().clone(), WorkerOptions::default())
        .local(Reaching(Arc::clone(&denied)))
        .unwrap();
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(denied.lock().unwrap().len(), 2);
    assert_eq!(
        counter::value(&store.db().snapshot().unwrap(), "c").unwrap(),
        Some(1)
    );
}
