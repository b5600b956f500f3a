//! The outbox worker in one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdpoint_state::clock::Clock as _;
use holdpoint_state::effects::{
    ApplyOutcome, EffectCall, EffectFilter, EffectHandler, EffectWorker, LocalHandler, Stop,
    WorkerOptions,
};
use holdpoint_state::sql::ToSql;
use holdpoint_state::{
    Actor, Change, Command, Database, EffectId, EffectState, NewEffect, Outcome, OwnerScope,
    Payload, Resource, StateError, effects,
};
use serde_json::json;

use super::probe::{
    self, TOUCH, add_tally, attempts, content, create, events, run, send, store, tally, touch,
    view, violations,
};

use super::provider::{Provider, done, lost_answer, not_now, options, reserve, reserved, worker};

#[test]
fn an_effect_is_claimed_applied_and_released() {
    let (store, id) = reserved(&send("a"));
    let provider = Provider::new(|_| done());
    let pass = worker(store.db(), provider.clone()).run_due_once().unwrap();
    assert_eq!((pass.applied, provider.calls()), (1, 1));
    assert_eq!(
        content(store.db(), &id).external_ref.as_deref(),
        Some("ref-1")
    );
    assert_eq!(
        events(store.db(), &id),
        ["effect.reserved", "effect.applying", "effect.applied"]
    );
    let lease = store
        .db()
        .snapshot()
        .unwrap()
        .resource(&Resource::new("effect", id.as_str()))
        .unwrap()
        .unwrap()
        .lease;
    assert_eq!((lease.generation, lease.owner), (1, None));
    assert_eq!(
        worker(store.db(), provider.clone())
            .run_due_once()
            .unwrap()
            .applied,
        0
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_19_two_workers_and_one_due_effect_make_one_attempt() {
    for _ in 0..20 {
        let (store, id) = reserved(&send("a"));
        let provider = Provider::new(|_| done());
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (store, provider, barrier) = (&store, provider.clone(), &barrier);
                scope.spawn(move || {
                    let db = store.open().unwrap();
                    let worker = worker(&db, provider);
                    barrier.wait();
                    worker.run_due_once().unwrap();
                });
            }
        });
        assert_eq!(provider.calls(), 1);
        assert_eq!(attempts(store.db(), &id), [(1, Some("applied".into()))]);
        assert_eq!(
            probe::number(store.db(), "SELECT generation FROM leases"),
            1
        );
        assert_eq!(violations(store.db()), [""; 0]);
    }
}

#[test]
fn edge_37_an_effect_without_handler_stays_pending_and_is_reported() {
    let (store, unknown) = reserved(&NewEffect {
        effect_type: "probe.other".into(),
        ..send("x")
    });
    let known = reserve(store.db(), &send("a"));
    let action = reserve(store.db(), &probe::action("n", "manual"));
    let pass = worker(store.db(), Provider::new(|_| done()))
        .run_due_once()
        .unwrap();
    assert_eq!(pass.unknown.iter().collect::<Vec<_>>(), ["probe.other"]);
    assert_eq!(view(store.db(), &known).state, EffectState::Applied);
    // The action of a run is for its run to begin, and is not reported.
    for id in [unknown, action] {
        assert_eq!(view(store.db(), &id).state, EffectState::Pending);
    }
}

/// Adds one to the tally of the source.
struct Settle {
    panics: Arc<AtomicUsize>,
}

impl LocalHandler for Settle {
    fn effect_type(&self) -> &'static str {
        "probe.settle_queue"
    }

    fn apply(&self, change: &mut Change<'_>, call: &EffectCall) -> Result<(), StateError> {
        let source = run(&call.source_key);
        let command = Command::new(&TOUCH, source).by(Actor::system());
        change.also(&command, |change| {
            add_tally(change)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
        let left = self.panics.load(Ordering::SeqCst);
        if 0 < left {
            self.panics.store(left - 1, Ordering::SeqCst);
            panic!("on purpose, after writing");
        }
        Ok(())
    }
}

fn local(key: &str) -> NewEffect {
    let payload = Payload::json(&json!({})).unwrap();
    NewEffect::new("probe.settle_queue", key, OwnerScope::Run, payload)
}

#[test]
fn edge_38_a_local_effect_whose_handler_panics_is_rolled_back_and_the_worker_lives() {
    let (store, id) = reserved(&local("q"));
    let other = reserve(store.db(), &send("a"));
    // A command that panics may be run once more by the writer, so that several panics are needed to fail it.
    let panics = Arc::new(AtomicUsize::new(usize::MAX));
    let worker = worker(store.db(), Provider::new(|_| done()))
        .local(Settle {
            panics: Arc::clone(&panics),
        })
        .unwrap();
    let pass = worker.run_due_once().unwrap();
    assert_eq!((pass.errors, pass.applied), (1, 1));
    assert_eq!(view(store.db(), &other).state, EffectState::Applied);
    assert_eq!(tally(store.db(), &run("run-1")), 0);
    assert_eq!(view(store.db(), &id).state, EffectState::Pending);
    assert_eq!(events(store.db(), &id), ["effect.reserved"]);

    panics.store(0, Ordering::SeqCst);
    assert_eq!(
        worker.run_due_once().unwrap().applied,
        0,
        "it rests for a second"
    );
    store.clock().advance(1_000);
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(worker.run_due_once().unwrap().applied, 0);
    assert_eq!(tally(store.db(), &run("run-1")), 1);
    // Nobody ever saw it applying.
    assert_eq!(
        events(store.db(), &id),
        ["effect.reserved", "effect.applied"]
    );
    assert_eq!(attempts(store.db(), &id), [(1, Some("applied".into()))]);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_40_two_workers_apply_a_local_effect_once() {
    let (store, _id) = reserved(&local("q"));
    for key in 0..9 {
        reserve(store.db(), &local(&key.to_string()));
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let db = store.open().unwrap();
                let worker = EffectWorker::new(db, options());
                let worker = worker
                    .local(Settle {
                        panics: Arc::default(),
                    })
                    .unwrap();
                worker.run_due_once().unwrap();
            });
        }
    });
    assert_eq!(tally(store.db(), &run("run-1")), 10);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_42_the_back_off_doubles_up_to_a_minute_and_respects_the_provider() {
    let (store, id) = reserved(&send("a"));
    let worker = worker(store.db(), Provider::new(|_| not_now()));
    let mut waits = Vec::new();
    for _ in 0..8 {
        worker.run_due_once().unwrap();
        let wait = view(store.db(), &id)
            .next_attempt_at
            .unwrap()
            .since(store.clock().now());
        waits.push(wait / 1_000);
        store.clock().advance(wait.unsigned_abs() - 1);
        assert_eq!(worker.run_due_once().unwrap().returned, 0);
        store.clock().advance(1);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);

    let (store, id) = reserved(&send("a"));
    let slow = Provider::new(|_| ApplyOutcome::NotApplied {
        retry_after_ms: Some(90_000),
    });
    super::provider::worker(store.db(), slow)
        .run_due_once()
        .unwrap();
    assert_eq!(
        view(store.db(), &id)
            .next_attempt_at
            .unwrap()
            .since(store.clock().now()),
        90_000
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_43_a_rejected_channel_effect_gets_three_attempts_and_others_get_one() {
    let store = store();
    let source = Resource::new("channel", "mail");
    create(store.db(), &source);
    let payload = Payload::json(&json!({})).unwrap();
    let delivery = NewEffect::new("channel.delivery", "d", OwnerScope::Channel, payload);
    let id = touch(store.db(), &source, move |change| {
        change.reserve_effect(&delivery)
    })
    .unwrap()
    .effect_id;
    let rejects = |effect_type| Provider {
        effect_type,
        ..Provider::new(|_| ApplyOutcome::Rejected {
            error: "full".into(),
            retry_after_ms: None,
        })
    };
    let worker = EffectWorker::new(store.db().clone(), options())
        .handler(rejects("channel.delivery"))
        .unwrap()
        .handler(rejects("probe.send"))
        .unwrap();
    for _ in 0..10 {
        worker.run_due_once().unwrap();
        store.clock().advance(60_000);
    }
    let shown = view(store.db(), &id);
    assert_eq!((shown.state, shown.attempts), (EffectState::Rejected, 3));
    assert_eq!(
        (shown.next_attempt_at, shown.error_code),
        (None, Some("effectRejected"))
    );
    create(store.db(), &run("run-1"));
    let once = reserve(store.db(), &send("a"));
    worker.run_due_once().unwrap();
    store.clock().advance(3_600_000);
    worker.run_due_once().unwrap();
    assert_eq!(view(store.db(), &once).attempts, 1);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_44_a_clock_that_jumps_makes_no_storm() {
    let (store, id) = reserved(&send("a"));
    let provider = Provider::new(|_| not_now());
    let worker = worker(store.db(), provider.clone());
    worker.run_due_once().unwrap();
    let wall = store.clock().now().0;
    store.clock().set_wall(wall - 3_600_000);
    for _ in 0..5 {
        worker.run_due_once().unwrap();
    }
    assert_eq!(provider.calls(), 1);
    store.clock().set_wall(wall + 3_600_000);
    for _ in 0..5 {
        worker.run_due_once().unwrap();
    }
    assert_eq!(provider.calls(), 2);
    assert_eq!(view(store.db(), &id).attempts, 2);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn edge_49_and_50_one_source_is_served_in_its_order_and_a_failing_effect_blocks_nobody() {
    let store = store();
    create(store.db(), &run("run-1"));
    let ids: Vec<_> = ["c", "a", "b"]
        .map(|key| reserve(store.db(), &send(key)))
        .into();
    let failing = ids[0].clone();
    let provider = Provider::new(move |call| {
        if call.effect_id == failing {
            not_now()
        } else {
            done()
        }
    });
    let alone = WorkerOptions {
        concurrency: 1,
        ..options()
    };
    let worker = EffectWorker::new(store.db().clone(), alone)
        .handler(provider.clone())
        .unwrap();
    let pass = worker.run_due_once().unwrap();
    assert_eq!((pass.applied, pass.returned), (2, 1));
    let order: Vec<_> = provider
        .calls
        .lock()
        .unwrap()
        .iter()
        .map(|(id, _)| id.clone())
        .collect();
    assert_eq!(order, ids);
}

#[test]
fn an_effect_that_is_not_wanted_any_more_is_cancelled_without_an_attempt() {
    struct Picky(Provider);
    impl EffectHandler for Picky {
        fn effect_type(&self) -> &'static str {
            "probe.send"
        }
        fn apply(&self, call: &EffectCall) -> ApplyOutcome {
            self.0.apply(call)
        }
        fn still_wanted(
            &self,
            sql: &holdpoint_state::command::Sql<'_>,
            call: &EffectCall,
        ) -> Result<bool, StateError> {
            // Reading is allowed, writing is not.
            assert!(sql.prepare_cached("DELETE FROM effects").is_err());
            sql.prepare_cached("SELECT ?1 <> 'moot'")?
                .query_row([&call.key as &dyn ToSql], |row| row.get(0))
                .map_err(StateError::from)
        }
    }
    let (store, moot) = reserved(&send("moot"));
    let wanted = reserve(store.db(), &send("wanted"));
    let provider = Provider::new(|_| done());
    let pass = worker(store.db(), Picky(provider.clone()))
        .run_due_once()
        .unwrap();
    assert_eq!(
        (pass.cancelled, pass.applied, pass.errors, provider.calls()),
        (1, 1, 0, 1)
    );
    assert_eq!(view(store.db(), &wanted).state, EffectState::Applied);
    let shown = view(store.db(), &moot);
    assert_eq!((shown.state, shown.attempts), (EffectState::Cancelled, 0));
    assert_eq!(
        events(store.db(), &moot),
        ["effect.reserved", "effect.cancelled"]
    );
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn an_effect_is_not_begun_before_it_is_due() {
    let store = store();
    create(store.db(), &run("run-1"));
    let id = reserve(store.db(), &send("a").due_at(probe::later(&store, 5_000)));
    let worker = worker(store.db(), Provider::new(|_| done()));
    store.clock().advance(4_999);
    assert_eq!(worker.run_due_once().unwrap().applied, 0);
    store.clock().advance(1);
    assert_eq!(worker.run_due_once().unwrap().applied, 1);
    assert_eq!(view(store.db(), &id).state, EffectState::Applied);
}

#[test]
fn case_061_a_line_waits_for_its_oldest_and_goes_on_after_a_rejection_but_not_past_a_doubt() {
    let store = store();
    create(store.db(), &run("run-1"));
    let ids: Vec<_> = ["1", "2", "3", "4"]
        .map(|key| reserve(store.db(), &send(key).ordered_by("line")))
        .into();
    let other = reserve(store.db(), &send("other").ordered_by("other line"));
    let provider = Provider::new(|call| match (call.key.as_str(), call.attempt) {
        ("1", 1) => not_now(),
        ("2", _) => ApplyOutcome::Rejected {
            error: "no".into(),
            retry_after_ms: None,
        },
        ("3", _) => lost_answer(),
        _ => done(),
    });
    let worker = worker(store.db(), provider.clone());
    worker.run_due_once().unwrap();
    let states = |ids: &[EffectId]| {
        ids.iter()
            .map(|id| view(store.db(), id).state)
            .collect::<Vec<_>>()
    };
    let pending = EffectState::Pending;
    assert_eq!(
        states(&ids),
        [pending; 4],
        "the first waits for its next attempt, and all with it"
    );
    assert_eq!(view(store.db(), &other).state, EffectState::Applied);
    store.clock().advance(1_000);
    worker.run_due_once().unwrap();
    let ambiguous = EffectState::Ambiguous;
    assert_eq!(
        states(&ids),
        [
            EffectState::Applied,
            EffectState::Rejected,
            ambiguous,
            pending
        ]
    );
    effects::resolve(
        store.db(),
        effects::Resolution {
            effect_id: ids[2].clone(),
            attempt_number: 1,
            expected_revision: view(store.db(), &ids[2]).revision,
            idempotency_key: "k".into(),
            actor: Actor::human("ada"),
            decision: effects::Decision::Reject {
                reason: "it did not arrive".into(),
            },
        },
    )
    .unwrap();
    worker.run_due_once().unwrap();
    assert_eq!(view(store.db(), &ids[3]).state, EffectState::Applied);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn a_type_has_a_limit_on_what_is_in_flight_and_other_types_go_on() {
    let store = store();
    create(store.db(), &run("run-1"));
    for key in 0..12 {
        reserve(store.db(), &send(&key.to_string()));
        reserve(
            store.db(),
            &NewEffect {
                effect_type: "probe.other".into(),
                ..send(&key.to_string())
            },
        );
    }
    let gauge = |most: &Arc<AtomicUsize>, effect_type, claims_max| {
        let (most, now) = (Arc::clone(most), AtomicUsize::new(0));
        Provider {
            effect_type,
            claims_max,
            ..Provider::new(move |_| {
                let in_flight = now.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(in_flight, Ordering::SeqCst);
                std::thread::park_timeout(Duration::from_millis(2));
                now.fetch_sub(1, Ordering::SeqCst);
                done()
            })
        }
    };
    let (one, many) = (Arc::default(), Arc::default());
    let worker = EffectWorker::new(store.db().clone(), options())
        .handler(gauge(&one, "probe.send", 1))
        .unwrap()
        .handler(gauge(&many, "probe.other", usize::MAX))
        .unwrap();
    let mut applied = 0;
    // A lane ends its pass when all that is left is at its limit.
    while applied < 24 {
        let pass = worker.run_due_once().unwrap();
        assert!(0 < pass.applied);
        applied += pass.applied;
    }
    assert_eq!(one.load(Ordering::SeqCst), 1);
    assert!(1 < many.load(Ordering::SeqCst));
}

#[test]
fn the_domain_follows_a_receipt_in_the_same_transaction() {
    struct Following(AtomicUsize);
    impl EffectHandler for Following {
        fn effect_type(&self) -> &'static str {
            "probe.send"
        }
        fn apply(&self, _: &EffectCall) -> ApplyOutcome {
            done()
        }
        fn settled(
            &self,
            change: &mut Change<'_>,
            call: &EffectCall,
            state: EffectState,
        ) -> Result<(), StateError> {
            assert_eq!(state, EffectState::Applied);
            let command = Command::new(&TOUCH, run(&call.source_key));
            change.also(&command, |change| {
                add_tally(change)?;
                Ok::<_, StateError>(Outcome::Accepted(()))
            })?;
            if self.0.fetch_add(1, Ordering::SeqCst) < 2 {
                return Err(StateError::Busy { waited_ms: 0 });
            }
            Ok(())
        }
    }
    let (store, id) = reserved(&send("a"));
    let pass = worker(store.db(), Following(AtomicUsize::new(0)))
        .run_due_once()
        .unwrap();
    assert_eq!(pass.applied, 1);
    assert_eq!(tally(store.db(), &run("run-1")), 1);
    assert_eq!(attempts(store.db(), &id).len(), 1);
    assert_eq!(violations(store.db()), [""; 0]);
}

#[test]
fn a_slow_handler_keeps_its_claim_and_a_running_worker_ends_on_its_signal() {
    let (store, id) = reserved(&send("a"));
    // Real time: the claim is renewed by a timer.
    let db = Database::open(store.path(), store.schema()).unwrap();
    let (reader, effect) = (db.clone(), Resource::new("effect", id.as_str()));
    let provider = Provider::new(move |_| {
        let expires_at = || {
            let snapshot = reader.snapshot().unwrap();
            snapshot
                .resource(&effect)
                .unwrap()
                .unwrap()
                .lease
                .expires_at
                .unwrap()
        };
        let granted = expires_at();
        for _ in 0..1_000 {
            // Twice the lease has passed and the claim still lives.
            if 600 < expires_at().since(granted) {
                return done();
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        panic!("the claim was never renewed");
    });
    let options = WorkerOptions {
        lease_ms: 300,
        poll_ms: 10,
        ..WorkerOptions::default()
    };
    let worker = EffectWorker::new(db.clone(), options)
        .handler(provider.clone())
        .unwrap();
    let stop = Stop::new();
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run_until(&stop));
        for _ in 0..1_000 {
            if view(&db, &id).state == EffectState::Applied {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        stop.stop();
    });
    assert_eq!(
        (worker.pass().applied, worker.pass().lost, provider.calls()),
        (1, 0, 1)
    );
    let listed = effects::list(
        &db.snapshot().unwrap(),
        &EffectFilter {
            state: Some(EffectState::Applied),
            effect_type: None,
        },
        10,
    );
    assert_eq!(listed.unwrap().len(), 1);
}

#[test]
fn a_handler_is_for_a_declared_type_of_its_reach() {
    let store = store();
    let of = |effect_type| Provider {
        effect_type,
        ..Provider::new(|_| done())
    };
    for effect_type in ["nobody.declares_this", "probe.settle_queue"] {
        let worker = EffectWorker::new(store.db().clone(), options());
        assert!(matches!(
            worker.handler(of(effect_type)),
            Err(StateError::Input { .. })
        ));
    }
    let twice = worker(store.db(), of("probe.send")).handler(of("probe.send"));
    assert!(matches!(twice, Err(StateError::Input { .. })));
}
