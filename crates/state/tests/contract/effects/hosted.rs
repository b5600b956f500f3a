//! Effects of a thing that has no lease of its own, under that of its host.

use holdpoint_state::effects::EffectState;
use holdpoint_state::{
    Actor, Change, Claim, ClaimLostReason, Command, Database, EffectAttempt, NewEffect, Operation,
    Outcome, Owner, OwnerKind, OwnerScope, Payload, Resource, Settlement, StateError,
};
use serde_json::json;

use super::probe::{TOUCH, WORK, claim, content, create, store, touch, view, violations};
use super::source::executing;

fn channel() -> Resource {
    Resource::new("channel", "ops")
}

fn host() -> Resource {
    Resource::new("counter", "host")
}

fn delivery() -> NewEffect {
    let payload = Payload::json(&json!({ "text": "hello" })).unwrap();
    NewEffect::keyed_by_identity(
        "channel.delivery",
        "request-1",
        OwnerScope::Channel,
        payload,
    )
    .unwrap()
}

fn hosted<T: Send + 'static>(
    db: &Database,
    operation: &'static Operation,
    host: &Claim,
    mut body: impl FnMut(&mut Change<'_>) -> Result<T, StateError> + Send + 'static,
) -> Result<T, StateError> {
    let command = Command::new(operation, channel())
        .by(Actor::host("host"))
        .under(host);
    db.commit(command, move |change| Ok(Outcome::Accepted(body(change)?)))
        .map(|receipt| receipt.value)
}

fn lost<T: std::fmt::Debug>(result: Result<T, StateError>, of: &Resource, why: ClaimLostReason) {
    match result {
        Err(StateError::ClaimLost { resource, reason }) => {
            assert_eq!((&resource, reason), (of, why));
        }
        other => panic!("not lost: {other:?}"),
    }
}

#[test]
fn a_host_begins_and_settles_what_it_hosts() {
    let store = store();
    create(store.db(), &channel());
    create(store.db(), &host());
    let claim = claim(store.db(), &host());
    let begun = hosted(store.db(), &TOUCH, &claim, |change| {
        change.begin_effect(&delivery())
    })
    .unwrap();
    let attempt = executing(begun);
    let found = hosted(store.db(), &TOUCH, &claim, {
        let id = attempt.effect_id.clone();
        move |change| change.attempt_in_flight(&id)
    });
    assert_eq!(found.unwrap(), Some(attempt.clone()));
    let settled = settle(store.db(), &claim, &attempt);
    settled.unwrap();
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Applied
    );
    assert!(violations(store.db()).is_empty());
}

fn settle(db: &Database, claim: &Claim, attempt: &EffectAttempt) -> Result<(), StateError> {
    let attempt = attempt.clone();
    hosted(db, &TOUCH, claim, move |change| {
        change.settle_effect(
            &attempt,
            Settlement::Applied {
                result: None,
                external_ref: None,
            },
        )
    })
}

#[test]
fn what_a_dead_host_began_is_ambiguous_and_its_report_comes_too_late() {
    let store = store();
    create(store.db(), &channel());
    create(store.db(), &host());
    let dead = claim(store.db(), &host());
    let attempt = executing(
        hosted(store.db(), &TOUCH, &dead, |change| {
            change.begin_effect(&delivery())
        })
        .unwrap(),
    );
    store.clock().advance(30_000);
    let next = Owner::new(OwnerKind::Host, "next");
    let next = store
        .db()
        .claim(host(), Actor::host("next"), &next, 30_000)
        .unwrap();
    lost(
        settle(store.db(), &dead, &attempt),
        &host(),
        ClaimLostReason::OwnerChanged,
    );
    let recovered = hosted(store.db(), &TOUCH, &next, |change| {
        change.recover_effects_with(Some("host_restarted"))
    })
    .unwrap();
    assert_eq!(
        recovered.ambiguous,
        std::slice::from_ref(&attempt.effect_id)
    );
    assert_eq!(
        content(store.db(), &attempt.effect_id).error.as_deref(),
        Some("host_restarted")
    );
    assert!(matches!(
        settle(store.db(), &next, &attempt),
        Err(StateError::InvalidTransition { .. })
    ));
    assert!(violations(store.db()).is_empty());
}

#[test]
fn a_hosts_lease_gives_no_more_than_that() {
    let store = store();
    create(store.db(), &channel());
    create(store.db(), &host());
    let claim = claim(store.db(), &host());
    let own = hosted(store.db(), &WORK, &claim, |_| Ok(()));
    lost(own, &channel(), ClaimLostReason::MissingAuthority);
    let without = touch(store.db(), &channel(), |change| {
        change.begin_effect(&delivery())
    });
    lost(without, &channel(), ClaimLostReason::MissingAuthority);
    assert!(violations(store.db()).is_empty());
}
