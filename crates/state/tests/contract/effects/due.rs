//! An effect begins when it is due, whoever begins it, and is one effect by what its id is derived from.

use holdpoint_state::{
    EffectIdentity, EffectState, NewEffect, OwnerScope, Payload, Settlement, StateError,
};
use serde_json::json;

use super::probe::{action, begin, later, run, send, touch, view, violations, work};
use super::source::{effects_in, executing, owned_run};

#[track_caller]
fn is_not_due<T: std::fmt::Debug>(
    result: Result<T, StateError>,
    at: holdpoint_state::clock::UnixMillis,
) {
    match result {
        Err(StateError::NotDue { due_at, .. }) => assert_eq!(due_at, at),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_does_not_begin_an_effect_before_it_is_due() {
    let (store, claim) = owned_run();
    let at = later(&store, 10_000);
    let effect = action("k", "manual").due_at(at);
    is_not_due(begin(store.db(), &claim, &effect), at);
    assert_eq!(effects_in(&store), 0);
    let reserved = effect.clone();
    touch(store.db(), &run("run-1"), move |change| {
        change.reserve_effect(&reserved)
    })
    .unwrap();
    is_not_due(begin(store.db(), &claim, &effect), at);
    store.clock().advance(9_999);
    is_not_due(begin(store.db(), &claim, &effect), at);
    store.clock().advance(1);
    executing(begin(store.db(), &claim, &effect).unwrap());
    assert_eq!(violations(store.db()), Vec::<String>::new());
}

#[test]
fn a_providers_retry_after_binds_the_owner_too() {
    let (store, claim) = owned_run();
    let effect = action("k", "idempotent");
    let attempt = executing(begin(store.db(), &claim, &effect).unwrap());
    let at = later(&store, 5_000);
    work(store.db(), &claim, move |change| {
        change.settle_effect_not_before(&attempt, Settlement::Interrupted, Some(at))
    })
    .unwrap();
    is_not_due(begin(store.db(), &claim, &effect), at);
    store.clock().advance(5_000);
    assert_eq!(
        executing(begin(store.db(), &claim, &effect).unwrap()).number,
        2
    );
}

#[test]
fn another_key_does_not_make_another_effect_of_one_identity() {
    let (store, _claim) = owned_run();
    let about =
        EffectIdentity::natural(&json!({ "decisionId": "d", "effectType": "probe.send" })).unwrap();
    let keyed = |key: &str, payload: &str| NewEffect {
        payload: Payload::json(payload).unwrap(),
        ..send(key).identified_by(about.clone())
    };
    let reserve = |effect: NewEffect| {
        touch(store.db(), &run("run-1"), move |change| {
            change.reserve_effect(&effect)
        })
    };
    let first = reserve(keyed("one", "x")).unwrap();
    assert!(!first.adopted);
    let second = reserve(keyed("two", "x")).unwrap();
    assert!(second.adopted);
    assert_eq!(second.effect_id, first.effect_id);
    let other = reserve(keyed("two", "y"));
    assert!(
        matches!(other, Err(StateError::Conflict { .. })),
        "{other:?}"
    );
    assert_eq!(effects_in(&store), 1);
    assert_eq!(
        view(store.db(), &first.effect_id).state,
        EffectState::Pending
    );
    assert_eq!(violations(store.db()), Vec::<String>::new());
}

/// What the outbox applies, nobody else begins: its order and its attempts are the worker's.
#[test]
fn an_owner_does_not_begin_what_the_outbox_applies() {
    let (store, claim) = owned_run();
    let in_line = action("k", "manual").ordered_by("line");
    let declared = NewEffect {
        scope: OwnerScope::Run,
        ..send("k")
    };
    for effect in [in_line, declared] {
        let refused = begin(store.db(), &claim, &effect);
        assert!(
            matches!(refused, Err(StateError::Input { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(effects_in(&store), 0);
}
