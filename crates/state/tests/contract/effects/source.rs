//! Effects under the lease of their source: reserve, begin, settle, recover, cancel.

use holdpoint_state::testing::TestStore;
use holdpoint_state::{
    Claim, EffectAttempt, EffectIdentity, EffectStart, EffectState, NewEffect, OwnerScope, Payload,
    Resource, Settlement, StateError,
};
use serde_json::json;

use super::probe::{
    action, attempts, begin, claim, content, create, events, number, run, send, store, touch, view,
    violations, work,
};

/// A run that its owner holds.
pub(crate) fn owned_run() -> (TestStore, Claim) {
    let store = store();
    create(store.db(), &run("run-1"));
    let claim = claim(store.db(), &run("run-1"));
    (store, claim)
}

pub(crate) fn executing(start: EffectStart) -> EffectAttempt {
    match start {
        EffectStart::Execute(attempt) => attempt,
        other => panic!("not begun: {other:?}"),
    }
}

pub(crate) fn settle(
    store: &TestStore,
    claim: &Claim,
    attempt: &EffectAttempt,
    settlement: Settlement,
) -> Result<(), StateError> {
    let attempt = attempt.clone();
    work(store.db(), claim, move |change| {
        change.settle_effect(&attempt, settlement.clone())
    })
}

pub(crate) fn applied(result: Option<&str>) -> Settlement {
    Settlement::Applied {
        result: result.map(|text| Payload::json(text).unwrap()),
        external_ref: Some("deploy-7".into()),
    }
}

pub(crate) fn effects_in(store: &TestStore) -> i64 {
    number(store.db(), "SELECT count(*) FROM effects")
}

#[test]
fn edge_01_a_change_that_is_rolled_back_leaves_no_effect() {
    let (store, _claim) = owned_run();
    let large = "x".repeat(5_000);
    let result = touch(store.db(), &run("run-1"), move |change| {
        let payload = Payload::json(&json!({ "text": large }))?;
        change.reserve_effect(&NewEffect::new(
            "probe.send",
            "k",
            OwnerScope::System,
            payload,
        ))?;
        Err::<(), _>(StateError::Input {
            what: "test",
            problem: "rolled back".into(),
        })
    });
    assert!(matches!(result, Err(StateError::Input { .. })));
    assert_eq!(effects_in(&store), 0);
    assert_eq!(number(store.db(), "SELECT count(*) FROM blobs"), 0);
    assert_eq!(
        number(
            store.db(),
            "SELECT count(*) FROM resources WHERE resource_type = 'effect'"
        ),
        0
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_02_the_same_key_and_payload_twice_is_one_effect() {
    let (store, _claim) = owned_run();
    let reserve = || {
        touch(store.db(), &run("run-1"), |change| {
            change.reserve_effect(&send("a"))
        })
        .unwrap()
    };
    let (first, second) = (reserve(), reserve());
    assert_eq!((first.adopted, second.adopted), (false, true));
    assert_eq!(first.effect_id, second.effect_id);
    assert_eq!(effects_in(&store), 1);
    assert_eq!(events(store.db(), &first.effect_id), ["effect.reserved"]);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_03_a_payload_with_reordered_keys_is_the_same() {
    let (store, _claim) = owned_run();
    let reserve = |text: &str| {
        let payload = Payload::bytes("application/json", text.as_bytes().to_vec()).unwrap();
        let effect = NewEffect::new("probe.send", "k", OwnerScope::System, payload);
        touch(store.db(), &run("run-1"), move |change| {
            change.reserve_effect(&effect)
        })
        .unwrap()
    };
    assert!(!reserve(r#"{"a": 1, "b": 2}"#).adopted);
    assert!(reserve(r#"{"b":2,"a":1}"#).adopted);
}

#[test]
fn edge_04_another_payload_under_the_same_key_rolls_the_source_change_back() {
    let (store, _claim) = owned_run();
    touch(store.db(), &run("run-1"), |change| {
        change.reserve_effect(&send("a"))
    })
    .unwrap();
    let before = number(store.db(), "SELECT count(*) FROM events");
    for size in [1, 5_000] {
        let other = NewEffect {
            payload: Payload::json(&"y".repeat(size)).unwrap(),
            ..send("a")
        };
        let result = touch(store.db(), &run("run-1"), move |change| {
            change.reserve_effect(&send("b"))?;
            change.reserve_effect(&other)
        });
        assert!(
            matches!(result, Err(StateError::Conflict { .. })),
            "{result:?}"
        );
    }
    assert_eq!(effects_in(&store), 1);
    assert_eq!(number(store.db(), "SELECT count(*) FROM events"), before);
}

#[test]
fn edge_05_reserving_what_a_live_owner_applies_is_ambiguous_and_writes_nothing() {
    let (store, claim) = owned_run();
    let first = executing(begin(store.db(), &claim, &action("n", "idempotent")).unwrap());
    let again = begin(store.db(), &claim, &action("n", "idempotent")).unwrap();
    assert_eq!(
        again,
        EffectStart::Ambiguous {
            effect_id: first.effect_id.clone()
        }
    );
    assert_eq!(events(store.db(), &first.effect_id), ["effect.reserved"]);
    assert_eq!(attempts(store.db(), &first.effect_id), [(1, None)]);
    assert_eq!(
        view(store.db(), &first.effect_id).state,
        EffectState::Applying
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_06_an_applied_effect_without_result_is_adopted_without_result() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    settle(
        &store,
        &claim,
        &attempt,
        Settlement::Applied {
            result: None,
            external_ref: None,
        },
    )
    .unwrap();
    assert_eq!(
        begin(store.db(), &claim, &action("n", "manual")).unwrap(),
        EffectStart::Adopted {
            effect_id: attempt.effect_id,
            result: None,
            external_ref: None
        }
    );
}

#[test]
fn edge_07_a_second_settlement_is_refused_and_changes_nothing() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    settle(&store, &claim, &attempt, applied(Some("first"))).unwrap();
    let before = view(store.db(), &attempt.effect_id);
    for settlement in [
        applied(Some("second")),
        Settlement::Rejected { error: "no".into() },
    ] {
        let result = settle(&store, &claim, &attempt, settlement);
        assert!(
            matches!(result, Err(StateError::InvalidTransition { .. })),
            "{result:?}"
        );
    }
    assert_eq!(view(store.db(), &attempt.effect_id), before);
    let stored = content(store.db(), &attempt.effect_id);
    assert_eq!(stored.result.as_deref(), Some(&b"\"first\""[..]));
    assert_eq!(stored.external_ref.as_deref(), Some("deploy-7"));
    assert_eq!(
        events(store.db(), &attempt.effect_id),
        ["effect.reserved", "effect.applied"]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_08_a_settlement_of_an_older_attempt_is_refused() {
    let (store, claim) = owned_run();
    let first = executing(begin(store.db(), &claim, &action("n", "idempotent")).unwrap());
    settle(&store, &claim, &first, Settlement::Interrupted).unwrap();
    let second = executing(begin(store.db(), &claim, &action("n", "idempotent")).unwrap());
    assert_eq!(second.number, 2);
    let late = settle(&store, &claim, &first, applied(None));
    assert!(matches!(late, Err(StateError::Conflict { .. })), "{late:?}");
    settle(&store, &claim, &second, applied(None)).unwrap();
    assert_eq!(
        events(store.db(), &first.effect_id),
        [
            "effect.reserved",
            "effect.retry_ready",
            "effect.retry_started",
            "effect.applied"
        ]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_31_an_ordinary_error_is_stored_and_given_again() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    let error = "é".repeat(9_000);
    settle(&store, &claim, &attempt, Settlement::Rejected { error }).unwrap();
    let EffectStart::Rejected { effect_id, error } =
        begin(store.db(), &claim, &action("n", "manual")).unwrap()
    else {
        panic!("a rejected effect is answered as rejected");
    };
    assert_eq!(effect_id, attempt.effect_id);
    assert_eq!(error, format!("{}…", "é".repeat(8_192)));
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_34_and_35_other_keys_are_other_effects() {
    let (store, claim) = owned_run();
    let one = executing(begin(store.db(), &claim, &action("visit-1", "manual")).unwrap());
    settle(&store, &claim, &one, applied(Some("one"))).unwrap();
    let two = executing(begin(store.db(), &claim, &action("visit-2", "manual")).unwrap());
    assert_ne!(one.effect_id, two.effect_id);
    settle(&store, &claim, &two, applied(Some("two"))).unwrap();
    let adopted = begin(store.db(), &claim, &action("visit-2", "manual")).unwrap();
    assert!(
        matches!(adopted, EffectStart::Adopted { result: Some(bytes), .. } if bytes == b"\"two\"")
    );
}

#[test]
fn edge_36_names_are_checked_before_any_row() {
    let (store, claim) = owned_run();
    let payload = || Payload::json(&json!({})).unwrap();
    let long = "x".repeat(257);
    let bad = [
        NewEffect::new(long.as_str(), "k", OwnerScope::Run, payload()),
        NewEffect::new("", "k", OwnerScope::Run, payload()),
        NewEffect::new("t", "", OwnerScope::Run, payload()),
        NewEffect::new("t", long.as_str(), OwnerScope::Run, payload()),
        NewEffect::new("t", "x".repeat(513), OwnerScope::Controller, payload()),
        NewEffect::new("nobody.declares_this", "k", OwnerScope::System, payload()),
    ];
    for effect in bad {
        let reserved = effect.clone();
        let result = work(store.db(), &claim, move |change| {
            change.reserve_effect(&reserved)
        });
        assert!(
            matches!(result, Err(StateError::Input { .. })),
            "{result:?}"
        );
        let result = begin(store.db(), &claim, &effect);
        assert!(
            matches!(result, Err(StateError::Input { .. })),
            "{result:?}"
        );
    }
    assert_eq!(effects_in(&store), 0);
    let longest = NewEffect::new("t", long.as_str(), OwnerScope::Controller, payload());
    let longest = longest.identified_by(EffectIdentity::SourceKey);
    assert!(begin(store.db(), &claim, &longest).is_ok());
}

#[test]
fn edge_40_a_transition_that_does_the_work_marks_the_local_effect_applied_once() {
    let (store, claim) = owned_run();
    let reserved = touch(store.db(), &run("run-1"), |change| {
        let payload = Payload::json(&json!({}))?;
        change.reserve_effect(&NewEffect::new(
            "probe.settle_queue",
            "q",
            OwnerScope::Run,
            payload,
        ))
    })
    .unwrap();
    let apply = || {
        work(store.db(), &claim, |change| {
            change.apply_local_effects("probe.settle_queue")
        })
        .unwrap()
    };
    assert_eq!((apply(), apply()), (1, 0));
    let id = reserved.effect_id.clone();
    assert!(
        !touch(store.db(), &run("run-1"), move |change| change
            .apply_local_effect(&id))
        .unwrap()
    );
    assert_eq!(
        attempts(store.db(), &reserved.effect_id),
        [(1, Some("applied".into()))]
    );
    assert_eq!(
        events(store.db(), &reserved.effect_id),
        ["effect.reserved", "effect.applied"]
    );
    let external = touch(store.db(), &run("run-1"), |change| {
        change.reserve_effect(&send("a"))
    })
    .unwrap();
    let result = touch(store.db(), &run("run-1"), move |change| {
        change.apply_local_effect(&external.effect_id)
    });
    assert!(
        matches!(result, Err(StateError::Input { .. })),
        "{result:?}"
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_46_a_large_payload_is_a_blob_and_never_in_an_event() {
    let (store, claim) = owned_run();
    let request = json!({ "recovery": "manual", "request": "p".repeat(1 << 20) });
    let effect = NewEffect::new("t", "k", OwnerScope::Run, Payload::json(&request).unwrap());
    let attempt = executing(begin(store.db(), &claim, &effect).unwrap());
    assert_eq!(
        content(store.db(), &attempt.effect_id).payload,
        effect.payload.as_bytes()
    );
    assert_eq!(
        number(
            store.db(),
            "SELECT count(*) FROM effects WHERE payload IS NULL"
        ),
        1
    );
    assert_eq!(
        number(
            store.db(),
            "SELECT coalesce(max(length(payload)), 0) < 100 FROM events"
        ),
        1
    );
    assert!(matches!(
        begin(store.db(), &claim, &effect).unwrap(),
        EffectStart::Ambiguous { .. }
    ));
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_48_a_view_of_an_ambiguous_effect_shows_nothing_private_and_no_success() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    settle(
        &store,
        &claim,
        &attempt,
        Settlement::Ambiguous {
            error: Some("secret".into()),
        },
    )
    .unwrap();
    let shown = view(store.db(), &attempt.effect_id);
    let text = serde_json::to_string(&shown).unwrap();
    assert!(
        !text.contains("secret") && !text.contains("staging") && !text.contains("applied"),
        "{text}"
    );
    assert_eq!(shown.error_code, Some("effectAmbiguous"));
    let counts = holdpoint_state::effects::counts(&store.db().snapshot().unwrap()).unwrap();
    assert_eq!(
        (counts.pending, counts.applying, counts.ambiguous),
        (0, 0, 1)
    );
    assert!(!format!("{:?}", content(store.db(), &attempt.effect_id)).contains("secret"));
}

#[test]
fn edge_49_effects_of_one_revision_are_independent() {
    let (store, claim) = owned_run();
    let (one, two) = work(store.db(), &claim, |change| {
        Ok((
            change.begin_effect(&action("a", "manual"))?,
            change.begin_effect(&action("b", "manual"))?,
        ))
    })
    .unwrap();
    let (one, two) = (executing(one), executing(two));
    settle(
        &store,
        &claim,
        &one,
        Settlement::Rejected { error: "no".into() },
    )
    .unwrap();
    settle(&store, &claim, &two, applied(None)).unwrap();
    let views = holdpoint_state::effects::of_source(&store.db().snapshot().unwrap(), &run("run-1"))
        .unwrap();
    let states: Vec<_> = views
        .iter()
        .map(|view| (view.source_revision, view.state))
        .collect();
    assert_eq!(
        states,
        [(3, EffectState::Rejected), (3, EffectState::Applied)]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn an_interrupted_manual_action_may_not_go_back() {
    let (store, claim) = owned_run();
    let attempt = executing(begin(store.db(), &claim, &action("n", "manual")).unwrap());
    let result = settle(&store, &claim, &attempt, Settlement::Interrupted);
    assert!(
        matches!(result, Err(StateError::InvalidTransition { .. })),
        "{result:?}"
    );
    assert_eq!(
        view(store.db(), &attempt.effect_id).state,
        EffectState::Applying
    );
}

#[test]
fn a_controller_key_stands_for_one_intent_of_one_kind() {
    let store = store();
    let source = Resource::new("controller", "web");
    create(store.db(), &source);
    let claim = claim(store.db(), &source);
    let effect = |kind: &str| {
        NewEffect::new(
            kind,
            "k",
            OwnerScope::Controller,
            Payload::json(&json!({})).unwrap(),
        )
        .identified_by(EffectIdentity::SourceKey)
    };
    executing(begin(store.db(), &claim, &effect("dns.create")).unwrap());
    let other = begin(store.db(), &claim, &effect("dns.delete"));
    assert!(
        matches!(other, Err(StateError::Conflict { .. })),
        "{other:?}"
    );
}

#[test]
fn ids_follow_the_reference() {
    let payload = || Payload::json(&json!({})).unwrap();
    let effect = NewEffect::new(
        "preview.deploy",
        "node-2acb586bb4bdb96c94001dfb398fc50e2bc34e0a",
        OwnerScope::Run,
        payload(),
    );
    assert_eq!(
        effect.id(&run("run-1")).as_str(),
        "effect-0888134611ece2d2f7c744d542691757348b0ab6"
    );
    let identity = json!({ "purpose": "ask", "channelId": "c" });
    let delivery = NewEffect::keyed_by_identity(
        "channel.delivery",
        &identity,
        OwnerScope::Channel,
        payload(),
    )
    .unwrap();
    assert_eq!(delivery.key, delivery.id(&run("any")).to_string());
    assert_eq!(
        delivery.id(&run("a")),
        holdpoint_state::id::derived_id("effect", &[r#"{"channelId":"c","purpose":"ask"}"#]).into()
    );
}
