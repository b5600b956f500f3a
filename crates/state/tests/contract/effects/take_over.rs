//! What a worker does with an act whose receipt is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use holdpoint_state::effects::Observation;
use holdpoint_state::{EffectId, EffectState};

use super::probe::{self, attempts, content, events, run, send, touch, view, violations};

use super::provider::{
    Provider, crash_after_the_call, done, lost_answer, reserve, reserved, worker,
};

#[test]
fn edge_12_after_a_crash_an_observed_act_is_applied_without_a_second_call() {
    let (store, id) = reserved(&send("a"));
    crash_after_the_call(&store, &id);
    store.clock().advance(30_000);
    let provider = Provider::new(|_| done()).observing(|_| Observation::Applied {
        result: None,
        external_ref: Some("ref-7".into()),
    });
    let pass = worker(store.db(), provider.clone()).run_due_once().unwrap();
    assert_eq!(
        (pass.applied, provider.calls(), provider.observed()),
        (1, 0, 1)
    );
    assert_eq!(
        content(store.db(), &id).external_ref.as_deref(),
        Some("ref-7")
    );
    assert_eq!(attempts(store.db(), &id), [(1, Some("applied".into()))]);
    assert_eq!(
        events(store.db(), &id),
        [
            "effect.reserved",
            "effect.applying",
            "lease.claimed",
            "effect.applied"
        ]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_13_after_a_crash_an_act_that_was_not_done_is_tried_once_more() {
    let (store, id) = reserved(&send("a"));
    crash_after_the_call(&store, &id);
    store.clock().advance(30_000);
    let provider = Provider::new(|_| done()).observing(|_| Observation::NotApplied);
    let worker = worker(store.db(), provider.clone());
    assert_eq!(worker.run_due_once().unwrap().returned, 1);
    assert_eq!(
        (view(store.db(), &id).state, provider.calls()),
        (EffectState::Pending, 0)
    );
    store.clock().advance(1_000);
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(provider.calls(), 1);
    assert_eq!(
        attempts(store.db(), &id),
        [(1, Some("interrupted".into())), (2, Some("applied".into()))]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_14_after_a_crash_what_nobody_can_tell_is_ambiguous_and_never_tried_again() {
    for unsupported in [false, true] {
        let (store, id) = reserved(&send("a"));
        crash_after_the_call(&store, &id);
        store.clock().advance(30_000);
        let provider = Provider::new(|_| done()).observing(move |_| {
            if unsupported {
                Observation::Unsupported
            } else {
                Observation::Indeterminate
            }
        });
        let worker = worker(store.db(), provider.clone());
        assert_eq!(worker.run_due_once().unwrap().ambiguous, 1);
        for _ in 0..5 {
            store.clock().advance(3_600_000);
            worker.run_due_once().unwrap();
        }
        assert_eq!(
            (view(store.db(), &id).state, provider.calls()),
            (EffectState::Ambiguous, 0)
        );
        assert_eq!(violations(store.db()), [""; 0]);
    }
}

#[test]
fn edge_15_a_provider_that_cannot_be_asked_is_asked_again_later() {
    let (store, id) = reserved(&send("a"));
    crash_after_the_call(&store, &id);
    let before = view(store.db(), &id);
    let provider = Provider::new(|_| done()).observing(|_| Observation::Failed {
        error: "network".into(),
    });
    let worker = worker(store.db(), provider.clone());
    // The claim that ran out without a word is the back-off: nobody asks before it is over.
    assert_eq!(worker.run_due_once().unwrap().left, 0);
    store.clock().advance(30_000);
    assert_eq!(worker.run_due_once().unwrap().left, 1);
    assert_eq!(worker.run_due_once().unwrap().left, 0);
    for _ in 0..6 {
        store.clock().advance(60_000);
        assert_eq!(worker.run_due_once().unwrap().left, 1);
    }
    // By now it is asked every minute at most, though a lease is half a minute.
    store.clock().advance(59_999);
    assert_eq!(worker.run_due_once().unwrap().left, 0);
    store.clock().advance(1);
    assert_eq!(worker.run_due_once().unwrap().left, 1);
    assert_eq!(provider.observed(), 8);
    let after = view(store.db(), &id);
    assert_eq!(
        (after.state, after.attempts),
        (before.state, before.attempts)
    );
    assert_eq!(attempts(store.db(), &id), [(1, None)]);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_16_a_provider_with_a_token_sees_one_id_twice_and_acts_once() {
    let (store, id) = reserved(&send("a"));
    let acts: Arc<Mutex<std::collections::BTreeSet<EffectId>>> = Arc::default();
    let (seen, first) = (Arc::clone(&acts), AtomicUsize::new(0));
    let provider = Provider {
        takes_token: true,
        ..Provider::new(move |call| {
            seen.lock().unwrap().insert(call.effect_id.clone());
            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                lost_answer()
            } else {
                done()
            }
        })
    };
    let worker = worker(store.db(), provider.clone());
    assert_eq!(worker.run_due_once().unwrap().returned, 1);
    store.clock().advance(1_000);
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(*provider.calls.lock().unwrap(), [(id.clone(), 1), (id, 2)]);
    assert_eq!(acts.lock().unwrap().len(), 1);
}

#[test]
fn edge_20_a_worker_that_hangs_beyond_its_lease_cannot_settle() {
    let (store, id) = reserved(&send("a"));
    let (db, clock) = (store.db().clone(), store.clock().clone());
    let second = Provider::new(|_| done()).observing(|_| Observation::Applied {
        result: None,
        external_ref: Some("seen".into()),
    });
    let first = Provider::new(move |_| {
        clock.advance(30_000);
        let pass = worker(&db, second.clone()).run_due_once().unwrap();
        assert_eq!((pass.applied, second.calls()), (1, 0));
        done()
    });
    let pass = worker(store.db(), first.clone()).run_due_once().unwrap();
    assert_eq!((pass.lost, pass.applied, first.calls()), (1, 0, 1));
    assert_eq!(
        content(store.db(), &id).external_ref.as_deref(),
        Some("seen")
    );
    assert_eq!(attempts(store.db(), &id), [(1, Some("applied".into()))]);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_22_the_receipt_of_an_effect_whose_source_was_cancelled_is_refused() {
    let (store, id) = reserved(&send("a"));
    let db = store.db().clone();
    let provider = Provider::new(move |_| {
        touch(&db, &run("run-1"), |change| {
            change.cancel_effects("cancelled")
        })
        .unwrap();
        done()
    });
    assert_eq!(worker(store.db(), provider).run_due_once().unwrap().lost, 1);
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);
    assert_eq!(violations(store.db()), [""; 0]);
}

/// Neither a token nor an answer, but a request that says of itself that trying again is safe.
#[test]
fn a_request_that_declares_itself_idempotent_is_tried_again() {
    let payload = serde_json::json!({ "recovery": "idempotent" });
    let effect = holdpoint_state::NewEffect {
        payload: holdpoint_state::Payload::json(&payload).unwrap(),
        ..send("a")
    };
    let (store, id) = reserved(&effect);
    crash_after_the_call(&store, &id);
    store.clock().advance(30_000);
    let provider = Provider::new(|_| done());
    let worker = worker(store.db(), provider.clone());
    assert_eq!(worker.run_due_once().unwrap().returned, 1);
    store.clock().advance(60_000);
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(provider.calls(), 1);
    assert_eq!(
        attempts(store.db(), &id),
        [(1, Some("interrupted".into())), (2, Some("applied".into()))]
    );
}

#[test]
fn recovery_of_the_source_leaves_what_the_outbox_has_in_flight() {
    let (store, id) = reserved(&send("a"));
    crash_after_the_call(&store, &id);
    let claim = probe::claim(store.db(), &run("run-1"));
    let recovered = probe::recover(store.db(), &claim);
    assert!(recovered.is_safe() && recovered.returned.is_empty());
    assert_eq!(view(store.db(), &id).state, EffectState::Applying);
}

#[test]
fn a_worker_leaves_alone_what_the_owner_of_its_source_has_in_flight() {
    let (store, _) = reserved(&send("a"));
    let claim = probe::claim(store.db(), &run("run-1"));
    let begun = probe::begin(store.db(), &claim, &send("b")).unwrap();
    let holdpoint_state::EffectStart::Execute(attempt) = begun else {
        panic!("a new effect executes");
    };
    let provider = Provider::new(|_| done()).observing(|_| Observation::NotApplied);
    store.clock().advance(3_600_000);
    let worker = worker(store.db(), provider.clone());
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!((provider.calls(), provider.observed()), (1, 0));
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Applying
    );
}

#[test]
fn a_handler_that_panics_may_have_acted() {
    let (store, id) = reserved(&send("a"));
    let later = reserve(store.db(), &send("b"));
    let panics = Provider::new(|call| match call.key.as_str() {
        "a" => panic!("on purpose"),
        _ => done(),
    });
    let pass = worker(store.db(), panics).run_due_once().unwrap();
    assert_eq!((pass.ambiguous, pass.applied), (1, 1));
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);
    assert_eq!(view(store.db(), &later).state, EffectState::Applied);
}
