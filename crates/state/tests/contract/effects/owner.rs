//! What the owner of a source may do with its effects, and when.

use holdpoint_state::command::Sql;
use holdpoint_state::effects::{ApplyOutcome, EffectCall, EffectHandler, Observation};
use holdpoint_state::{
    EffectIdentity, EffectStart, EffectState, NewEffect, OwnerScope, Payload, Resource, Settlement,
    StateError,
};
use serde_json::json;

use super::probe::{
    self, action, begin, content, create, later, run, send, store, touch, view, violations, work,
};
use super::provider::{crash_after_the_call, reserved, worker};
use super::source::{applied, effects_in, executing, owned_run, settle};

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
        change.settle_effect_not_before(&attempt, Settlement::Interrupted, Some(at), 0)
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

#[test]
fn an_attempt_of_another_source_is_not_settled() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("k", "manual")).unwrap());
    create(store.db(), &run("run-2"));
    let other = probe::claim(store.db(), &run("run-2"));
    let refused = settle(&store, &other, &attempt, applied(None));
    assert!(
        matches!(refused, Err(StateError::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Applying
    );
}

#[test]
fn what_the_outbox_has_in_flight_is_not_observed_by_the_owner() {
    let (store, id) = reserved(&send("a"));
    crash_after_the_call(&store, &id);
    let claim = probe::claim(store.db(), &run("run-1"));
    let observed = id.clone();
    let refused = work(store.db(), &claim, move |change| {
        change.record_observation(&observed, &Observation::NotApplied)
    });
    assert!(
        matches!(refused, Err(StateError::Conflict { .. })),
        "{refused:?}"
    );
    assert_eq!(view(store.db(), &id).state, EffectState::Applying);
}

/// A rejected delivery that would be tried again is not, once its source is cancelled; its error stays.
#[test]
fn cancelling_a_source_takes_the_next_attempt_of_a_rejected_effect_away() {
    let store = store();
    let source = Resource::new("channel", "mail");
    create(store.db(), &source);
    let claim = probe::claim(store.db(), &source);
    let payload = Payload::json(&json!({})).unwrap();
    let delivery = NewEffect::new("channel.delivery", "d", OwnerScope::Channel, payload);
    let attempt = executing(begin(store.db(), &claim, &delivery).unwrap());
    let rejected = Settlement::Rejected {
        error: "full".into(),
    };
    settle(&store, &claim, &attempt, rejected).unwrap();
    let at = later(&store, 1_000);
    let id = attempt.effect_id;
    assert_eq!(view(store.db(), &id).next_attempt_at, Some(at));
    // Not before its time, and not after the cancellation.
    let early = begin(store.db(), &claim, &delivery).unwrap();
    assert!(matches!(early, EffectStart::Rejected { .. }), "{early:?}");
    work(store.db(), &claim, |change| {
        change.cancel_effects("cancelled")
    })
    .unwrap();
    let shown = view(store.db(), &id);
    assert_eq!(
        (shown.state, shown.next_attempt_at),
        (EffectState::Rejected, None)
    );
    assert_eq!(content(store.db(), &id).error.as_deref(), Some("full"));
    store.clock().advance(60_000);
    let claim = probe::claim(store.db(), &source);
    let late = begin(store.db(), &claim, &delivery).unwrap();
    assert!(matches!(late, EffectStart::Rejected { .. }), "{late:?}");
    assert_eq!(violations(store.db()), Vec::<String>::new());
}

#[test]
fn another_scope_under_the_same_key_is_a_conflict() {
    let (store, _claim) = owned_run();
    let reserve = |scope| {
        let effect = NewEffect { scope, ..send("k") };
        touch(store.db(), &run("run-1"), move |change| {
            change.reserve_effect(&effect)
        })
    };
    assert!(!reserve(OwnerScope::System).unwrap().adopted);
    assert!(reserve(OwnerScope::System).unwrap().adopted);
    let other = reserve(OwnerScope::Run);
    assert!(
        matches!(other, Err(StateError::Conflict { .. })),
        "{other:?}"
    );
}

/// The worker drops what is not wanted any more. A rejected effect stays rejected then: it was not done, and is not tried again.
#[test]
fn a_rejected_effect_that_is_not_wanted_any_more_keeps_its_error() {
    struct Unwanted;
    impl EffectHandler for Unwanted {
        fn effect_type(&self) -> &'static str {
            "channel.delivery"
        }
        fn apply(&self, _: &EffectCall) -> ApplyOutcome {
            panic!("it is not wanted")
        }
        fn still_wanted(&self, _: &Sql<'_>, _: &EffectCall) -> Result<bool, StateError> {
            Ok(false)
        }
    }
    let store = store();
    let source = Resource::new("channel", "mail");
    create(store.db(), &source);
    let claim = probe::claim(store.db(), &source);
    let payload = Payload::json(&json!({})).unwrap();
    let delivery = NewEffect::new("channel.delivery", "d", OwnerScope::Channel, payload);
    let attempt = executing(begin(store.db(), &claim, &delivery).unwrap());
    let rejected = Settlement::Rejected {
        error: "full".into(),
    };
    settle(&store, &claim, &attempt, rejected).unwrap();
    store.clock().advance(1_000);
    let pass = worker(store.db(), Unwanted).run_due_once().unwrap();
    assert_eq!((pass.cancelled, pass.errors), (1, 0));
    let shown = view(store.db(), &attempt.effect_id);
    assert_eq!(
        (shown.state, shown.attempts, shown.next_attempt_at),
        (EffectState::Rejected, 1, None)
    );
    assert_eq!(
        content(store.db(), &attempt.effect_id).error.as_deref(),
        Some("full")
    );
    assert_eq!(violations(store.db()), Vec::<String>::new());
}
