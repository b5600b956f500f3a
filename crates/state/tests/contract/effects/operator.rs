//! A person's word on an ambiguous effect.

use holdpoint_state::effects::{self, Decision, Resolution, Resolved};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{
    Actor, ActorKind, Claim, EffectId, EffectStart, EffectState, NewEffect, Payload, Receipt,
    Settlement, StateError,
};
use serde_json::json;

use super::probe::{
    action, attempts, begin, claim, content, create, events, run, store, touch, view, violations,
    work,
};

/// A run with one ambiguous action.
fn ambiguous(effect: &NewEffect) -> (TestStore, Claim, EffectId) {
    let store = store();
    create(store.db(), &run("run-1"));
    let claim = claim(store.db(), &run("run-1"));
    let EffectStart::Execute(attempt) = begin(store.db(), &claim, effect).unwrap() else {
        panic!("a new effect executes");
    };
    let settled = attempt.clone();
    work(store.db(), &claim, move |change| {
        change.settle_effect(&settled, Settlement::Ambiguous { error: None })
    })
    .unwrap();
    (store, claim, attempt.effect_id)
}

fn resolution(id: &EffectId, decision: Decision) -> Resolution {
    Resolution {
        effect_id: id.clone(),
        attempt_number: 1,
        expected_revision: 2,
        idempotency_key: "command-1".into(),
        actor: Actor::human("ada"),
        decision,
    }
}

fn resolve(store: &TestStore, resolution: &Resolution) -> Result<Receipt<Resolved>, StateError> {
    effects::resolve(store.db(), resolution.clone())
}

fn confirm() -> Decision {
    Decision::Confirm {
        receipt: Some(Payload::json(&json!({ "output": 7 })).unwrap()),
        external_ref: Some("deploy-7".into()),
    }
}

#[test]
fn edge_24_confirming_with_a_receipt_is_adopted_by_the_run_without_acting() {
    let (store, claim, id) = ambiguous(&action("n", "manual"));
    let receipt = resolve(&store, &resolution(&id, confirm())).unwrap();
    assert_eq!(receipt.value.state, EffectState::Applied);
    assert_eq!(
        begin(store.db(), &claim, &action("n", "manual")).unwrap(),
        EffectStart::Adopted {
            effect_id: id.clone(),
            result: Some(br#"{"output":7}"#.to_vec()),
            external_ref: Some("deploy-7".into()),
        }
    );
    // The attempt row stays: it was ambiguous, and the effect is applied on other evidence.
    assert_eq!(attempts(store.db(), &id), [(1, Some("ambiguous".into()))]);
    assert_eq!(
        events(store.db(), &id).last().unwrap(),
        "effect.recovered_confirmed"
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_25_an_action_with_output_is_not_confirmed_without_a_receipt() {
    let bare = Decision::Confirm {
        receipt: None,
        external_ref: None,
    };
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    let result = resolve(&store, &resolution(&id, bare.clone()));
    assert!(
        matches!(
            result,
            Err(StateError::Input {
                what: "receipt",
                ..
            })
        ),
        "{result:?}"
    );
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);

    let payload = json!({ "recovery": "manual", "receiptRequired": false, "request": {} });
    let effect = NewEffect {
        payload: Payload::json(&payload).unwrap(),
        ..action("n", "manual")
    };
    let (store, _claim, id) = ambiguous(&effect);
    resolve(&store, &resolution(&id, bare)).unwrap();
    assert_eq!(view(store.db(), &id).state, EffectState::Applied);
}

#[test]
fn edge_26_a_retry_warns_of_a_duplicate_and_begins_the_next_attempt() {
    let (store, claim, id) = ambiguous(&action("n", "manual"));
    let resolved = resolve(&store, &resolution(&id, Decision::Retry))
        .unwrap()
        .value;
    assert_eq!(resolved.next_attempt, Some(2));
    assert!(resolved.warning.is_some());
    let EffectStart::Execute(attempt) = begin(store.db(), &claim, &action("n", "manual")).unwrap()
    else {
        panic!("an operator asked for another attempt");
    };
    assert_eq!(attempt.number, 2);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_27_a_rejection_is_given_to_the_run_as_its_error() {
    let (store, claim, id) = ambiguous(&action("n", "manual"));
    let decision = Decision::Reject {
        reason: "the mail was never sent".into(),
    };
    resolve(&store, &resolution(&id, decision)).unwrap();
    assert_eq!(
        begin(store.db(), &claim, &action("n", "manual")).unwrap(),
        EffectStart::Rejected {
            effect_id: id.clone(),
            error: "the mail was never sent".into()
        }
    );
    assert_eq!(view(store.db(), &id).next_attempt_at, None);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_28_of_two_resolutions_at_once_one_wins() {
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    let confirm = resolution(&id, confirm());
    let retry = Resolution {
        idempotency_key: "command-2".into(),
        ..resolution(&id, Decision::Retry)
    };
    let barrier = std::sync::Barrier::new(2);
    let results = std::thread::scope(|scope| {
        let threads = [&confirm, &retry].map(|command| {
            let (store, barrier) = (&store, &barrier);
            scope.spawn(move || {
                let db = store.open().unwrap();
                barrier.wait();
                effects::resolve(&db, command.clone())
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        1,
        "{results:?}"
    );
    let state = view(store.db(), &id).state;
    for result in &results {
        if let Err(error) = result {
            let StateError::Conflict { winner, .. } = error else {
                panic!("{error:?}")
            };
            assert!(winner.contains(state.as_str()), "{winner}");
        }
    }
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_29_a_stale_attempt_or_revision_is_refused() {
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    let stale = Resolution {
        attempt_number: 2,
        ..resolution(&id, Decision::Retry)
    };
    let result = resolve(&store, &stale);
    assert!(
        matches!(result, Err(StateError::Conflict { .. })),
        "{result:?}"
    );
    let stale = Resolution {
        expected_revision: 1,
        ..resolution(&id, Decision::Retry)
    };
    let result = resolve(&store, &stale);
    assert!(
        matches!(result, Err(StateError::StaleRevision { actual: 2, .. })),
        "{result:?}"
    );
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);
}

#[test]
fn edge_30_only_a_person_or_control_resolves() {
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    for kind in ActorKind::ALL {
        let may = matches!(kind, ActorKind::Human | ActorKind::Control);
        if may {
            continue;
        }
        let command = Resolution {
            actor: Actor::new(*kind, "x"),
            ..resolution(&id, Decision::Retry)
        };
        assert!(resolve(&store, &command).is_err());
        // Not inside a change of the source either, whoever makes that change.
        let nested = touch(store.db(), &run("run-1"), move |change| {
            change.resolve_effect(&command)
        });
        assert!(
            matches!(nested, Err(StateError::ActorDenied { .. })),
            "{kind}: {nested:?}"
        );
    }
    assert_eq!(view(store.db(), &id).revision, 2);
}

#[test]
fn a_repeated_resolution_is_adopted_even_after_the_effect_went_on() {
    let (store, claim, id) = ambiguous(&action("n", "manual"));
    let command = resolution(&id, Decision::Retry);
    let first = resolve(&store, &command).unwrap();
    begin(store.db(), &claim, &action("n", "manual")).unwrap();
    let second = resolve(&store, &command).unwrap();
    assert!(!first.value.adopted && second.value.adopted);
    assert_eq!(second.value.next_attempt, Some(2));
    let other = Resolution {
        decision: confirm(),
        ..command
    };
    let result = resolve(&store, &other);
    assert!(
        matches!(result, Err(StateError::Conflict { .. })),
        "{result:?}"
    );
}

#[test]
fn a_source_follows_in_the_transaction_of_the_resolution() {
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    let command = resolution(&id, confirm());
    let undone = command.clone();
    let failed = touch(store.db(), &run("run-1"), move |change| {
        change.resolve_effect(&undone)?;
        Err::<(), _>(StateError::Input {
            what: "test",
            problem: "the run does not follow".into(),
        })
    });
    assert!(failed.is_err());
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);
    let resolved = touch(store.db(), &run("run-1"), move |change| {
        change.resolve_effect(&command)
    })
    .unwrap();
    assert_eq!(resolved.state, EffectState::Applied);
    assert_eq!(
        content(store.db(), &id).external_ref.as_deref(),
        Some("deploy-7")
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn a_resolution_names_itself() {
    let (store, _claim, id) = ambiguous(&action("n", "manual"));
    let nameless = Resolution {
        idempotency_key: String::new(),
        ..resolution(&id, confirm())
    };
    let refused = resolve(&store, &nameless);
    assert!(
        matches!(refused, Err(StateError::Input { .. })),
        "{refused:?}"
    );
    assert_eq!(view(store.db(), &id).state, EffectState::Ambiguous);
}
