//! What the next owner of a source finds, and what its cancellation leaves.

use holdpoint_state::testing::TestStore;
use holdpoint_state::{
    Claim, ClaimLostReason, EffectId, EffectStart, EffectState, NewEffect, OwnerScope, Payload,
    Settlement, StateError,
};
use serde_json::json;

use super::probe::recover;
use super::probe::{
    action, attempts, begin, claim, content, events, run, touch, view, violations, work,
};

use super::source::{applied, executing, owned_run, settle};

#[test]
fn edge_09_a_settlement_with_a_lost_claim_leaves_the_effect_applying() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    store.clock().advance(30_000);
    let expired = settle(&store, &claim, &attempt, applied(None));
    assert!(matches!(
        expired,
        Err(StateError::ClaimLost {
            reason: ClaimLostReason::Expired,
            ..
        })
    ));
    // A new claim of the same run may not settle what it has not begun, either: recovery decides.
    let newer = super::probe::claim(store.db(), &run("run-1"));
    let foreign = settle(&store, &newer, &attempt, applied(None));
    assert!(matches!(
        foreign,
        Err(StateError::ClaimLost {
            reason: ClaimLostReason::GenerationChanged,
            ..
        })
    ));
    // Without any lease nothing begins and nothing settles.
    let (unowned, other) = (attempt.clone(), action("m", "manual"));
    let bare = touch(store.db(), &run("run-1"), move |change| {
        change.settle_effect(&unowned, applied(None))
    });
    assert!(matches!(
        bare,
        Err(StateError::ClaimLost {
            reason: ClaimLostReason::MissingAuthority,
            ..
        })
    ));
    let bare = touch(store.db(), &run("run-1"), move |change| {
        change.begin_effect(&other)
    });
    assert!(matches!(
        bare,
        Err(StateError::ClaimLost {
            reason: ClaimLostReason::MissingAuthority,
            ..
        })
    ));
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Applying
    );
}

#[test]
fn edge_10_a_crash_after_begin_of_a_manual_action_is_ambiguous() {
    let (store, first) = owned_run();
    let attempt = executing(begin(store.db(), &first, &action("n", "manual")).unwrap());
    store.clock().advance(30_000);
    let second = claim(store.db(), &run("run-1"));
    let recovered = recover(store.db(), &second);
    assert_eq!(
        recovered.ambiguous,
        std::slice::from_ref(&attempt.effect_id)
    );
    assert!(!recovered.is_safe() && recovered.returned.is_empty());
    assert_eq!(
        attempts(store.db(), &attempt.effect_id),
        [(1, Some("interrupted".into()))]
    );
    assert_eq!(
        begin(store.db(), &second, &action("n", "manual")).unwrap(),
        EffectStart::Ambiguous {
            effect_id: attempt.effect_id.clone()
        }
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_11_a_crash_after_begin_of_an_idempotent_action_executes_once_more() {
    let (store, first) = owned_run();
    let attempt = executing(begin(store.db(), &first, &action("n", "idempotent")).unwrap());
    store.clock().advance(30_000);
    let second = claim(store.db(), &run("run-1"));
    let recovered = recover(store.db(), &second);
    assert_eq!(recovered.returned, std::slice::from_ref(&attempt.effect_id));
    assert!(recovered.is_safe());
    let again = executing(begin(store.db(), &second, &action("n", "idempotent")).unwrap());
    assert_eq!((&again.effect_id, again.number), (&attempt.effect_id, 2));
    settle(&store, &second, &again, applied(None)).unwrap();
    assert_eq!(
        attempts(store.db(), &again.effect_id),
        [(1, Some("interrupted".into())), (2, Some("applied".into()))]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_21_and_22_cancelling_the_source_settles_what_is_open_and_refuses_the_late_receipt() {
    let (store, claim) = owned_run();
    let applying = executing(begin(store.db(), &claim, &action("n", "idempotent")).unwrap());
    let (pending, local) = touch(store.db(), &run("run-1"), |change| {
        let payload = Payload::json(&json!({}))?;
        let local = NewEffect::new("probe.settle_queue", "q", OwnerScope::Run, payload);
        Ok((
            change.reserve_effect(&action("m", "manual"))?,
            change.reserve_effect(&local)?,
        ))
    })
    .unwrap();
    let cancelled = work(store.db(), &claim, |change| {
        change.cancel_effects("the run was cancelled")
    })
    .unwrap();
    assert_eq!(
        cancelled.cancelled,
        std::slice::from_ref(&pending.effect_id)
    );
    assert_eq!(
        cancelled.ambiguous,
        std::slice::from_ref(&applying.effect_id)
    );
    assert_eq!(
        view(store.db(), &pending.effect_id).state,
        EffectState::Cancelled
    );
    assert_eq!(
        view(store.db(), &local.effect_id).state,
        EffectState::Pending
    );
    assert_eq!(
        attempts(store.db(), &applying.effect_id),
        [(1, Some("interrupted".into()))]
    );
    for id in [&pending.effect_id, &applying.effect_id] {
        assert_eq!(
            content(store.db(), id).error.as_deref(),
            Some("the run was cancelled")
        );
    }
    let late = settle(&store, &claim, &applying, applied(None));
    assert!(
        matches!(late, Err(StateError::InvalidTransition { .. })),
        "{late:?}"
    );
    assert_eq!(
        view(store.db(), &applying.effect_id).state,
        EffectState::Ambiguous
    );
    assert_eq!(
        begin(store.db(), &claim, &action("m", "manual")).unwrap(),
        EffectStart::Cancelled {
            effect_id: pending.effect_id
        }
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_23_an_ambiguous_effect_stays_over_restarts() {
    let (mut store, first) = owned_run();
    let attempt = executing(begin(store.db(), &first, &action("n", "manual")).unwrap());
    drop(first);
    for _ in 0..3 {
        store.clock().advance(30_000);
        store.close();
        let db = store.open().unwrap();
        let claim = claim(&db, &run("run-1"));
        let recovered = recover(&db, &claim);
        assert_eq!(
            recovered.ambiguous,
            std::slice::from_ref(&attempt.effect_id)
        );
        assert_eq!(attempts(&db, &attempt.effect_id).len(), 1);
        assert_eq!(violations(&db), [""; 0]);
    }
}

#[test]
fn edge_33_recovery_does_not_take_a_lost_claim_for_a_failure() {
    let (store, first) = owned_run();
    let attempt = executing(begin(store.db(), &first, &action("n", "idempotent")).unwrap());
    store.clock().advance(30_000);
    let second = claim(store.db(), &run("run-1"));
    let late = settle(
        &store,
        &first,
        &attempt,
        Settlement::Rejected { error: "x".into() },
    );
    assert!(
        matches!(late, Err(StateError::ClaimLost { .. })),
        "{late:?}"
    );
    recover(store.db(), &second);
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Pending
    );
}

#[test]
fn what_a_controller_observes_settles_or_returns_an_open_effect() {
    use holdpoint_state::effects::Observation;
    let done = || Observation::Applied {
        result: None,
        external_ref: Some("dns-1".into()),
    };
    let observe = |store: &TestStore, claim: &Claim, id: &EffectId, seen: Observation| {
        let id = id.clone();
        work(store.db(), claim, move |change| {
            change.record_observation(&id, &seen)
        })
        .unwrap()
    };
    let (store, claim) = owned_run();
    let one = executing(begin(store.db(), &claim, &action("one", "manual")).unwrap());
    let failed = Observation::Failed {
        error: "network".into(),
    };
    assert_eq!(
        observe(&store, &claim, &one.effect_id, failed),
        EffectState::Applying
    );
    assert_eq!(
        observe(&store, &claim, &one.effect_id, Observation::Indeterminate),
        EffectState::Ambiguous
    );
    assert_eq!(
        observe(&store, &claim, &one.effect_id, done()),
        EffectState::Applied
    );
    assert_eq!(
        events(store.db(), &one.effect_id),
        ["effect.reserved", "effect.ambiguous", "effect.recovered"]
    );
    assert_eq!(
        content(store.db(), &one.effect_id).external_ref.as_deref(),
        Some("dns-1")
    );

    let two = executing(begin(store.db(), &claim, &action("two", "manual")).unwrap());
    assert_eq!(
        observe(&store, &claim, &two.effect_id, Observation::NotApplied),
        EffectState::Pending
    );
    let again = executing(begin(store.db(), &claim, &action("two", "manual")).unwrap());
    assert_eq!(again.number, 2);
    assert_eq!(
        observe(&store, &claim, &two.effect_id, done()),
        EffectState::Applied
    );
    assert_eq!(
        attempts(store.db(), &two.effect_id),
        [(1, Some("interrupted".into())), (2, Some("applied".into()))]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}
