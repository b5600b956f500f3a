//! What may stand beside and inside a command: several touches, foreign failures, panics, errors of SQLite itself.

use holdpoint_state::testing::{counter, faults};
use holdpoint_state::{
    Actor, ActorKind, Change, Command, Disposition, LeaseRule, Operation, Outcome, Owner,
    OwnerKind, StateError,
};

use super::gate;

fn at(operation: &'static Operation, name: &str) -> Command {
    Command::new(operation, gate::resource(name))
}

/// Runs a body as `gate.create` on the existing gate `a`, whose shape it may spoil, and says how it ended. Nothing may be left.
fn refused_without_trace(
    body: impl FnMut(&mut Change<'_>) -> Result<Outcome<()>, StateError> + Send + 'static,
) -> StateError {
    let store = gate::store();
    gate::create(store.db(), "a");
    counter::create(store.db(), "c").unwrap();
    let before = gate::dump(store.db());
    let error = store.db().commit(at(&gate::CREATE, "a"), body).unwrap_err();
    assert_eq!(gate::dump(store.db()), before);
    // The next command finds everything in order.
    counter::add(store.db(), "c", 1).unwrap();
    error
}

#[track_caller]
fn is_misuse(error: &StateError) {
    assert!(matches!(error, StateError::Misuse { .. }), "{error:?}");
}

#[test]
fn a_body_that_wrote_can_not_adopt() {
    is_misuse(&refused_without_trace(|change| {
        gate::note(change, "written")?;
        Ok(Outcome::Adopted(()))
    }));
    is_misuse(&refused_without_trace(|change| {
        let other = Command::new(&counter::ADD, counter::resource("c"));
        change.also(&other, |change| {
            counter::increase(change, 1)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
        Ok(Outcome::Adopted(()))
    }));
}

#[test]
fn a_new_resource_must_be_accepted() {
    for refuse in [true, false] {
        let store = gate::store();
        let before = gate::dump(store.db());
        let error = store
            .db()
            .commit(at(&gate::CREATE, "new").creating(), move |change| {
                gate::insert(change)?;
                Ok::<_, StateError>(if refuse {
                    Outcome::Refused(())
                } else {
                    Outcome::Adopted(())
                })
            })
            .unwrap_err();
        is_misuse(&error);
        assert_eq!(gate::dump(store.db()), before);
    }
}

#[test]
fn a_lease_can_not_change_hands_without_an_event() {
    let store = gate::store();
    gate::create(store.db(), "a");
    let owner = Owner::new(OwnerKind::Host, "host");
    let before = gate::dump(store.db());
    let by = owner.clone();
    let error = store.db().commit(at(&gate::CREATE, "a"), move |change| {
        drop(change.claim(&by, 1_000)?);
        Ok::<_, StateError>(Outcome::Refused(()))
    });
    is_misuse(&error.unwrap_err());
    assert_eq!(gate::dump(store.db()), before);

    let claim = store
        .db()
        .claim(gate::resource("a"), Actor::host("h"), &owner, 1_000)
        .unwrap();
    let before = gate::dump(store.db());
    let error = store
        .db()
        .commit(at(&gate::CREATE, "a").holding(&claim), |change| {
            change.release()?;
            Ok::<_, StateError>(Outcome::Refused(()))
        });
    is_misuse(&error.unwrap_err());
    assert_eq!(gate::dump(store.db()), before);
}

#[test]
fn accepting_needs_the_transition_of_the_operation_that_it_became() {
    // Not named at all.
    is_misuse(&refused_without_trace(|change| {
        change.instead(&gate::OPEN)?;
        Ok(Outcome::Accepted(()))
    }));
    // Named for another operation.
    is_misuse(&refused_without_trace(|change| {
        change.instead(&gate::OPEN)?;
        change.transition("closed", "open")?;
        change.instead(&gate::SHUT)?;
        Ok(Outcome::Accepted(()))
    }));
    // Not declared.
    let error = refused_without_trace(|change| {
        change.instead(&gate::OPEN)?;
        change.transition("open", "closed")?;
        Ok(Outcome::Accepted(()))
    });
    assert!(
        matches!(&error, StateError::InvalidTransition { operation: "gate.open", from, to } if from == "open" && to == "closed"),
        "{error:?}"
    );
}

#[test]
fn an_operation_with_the_name_of_a_declared_one_is_not_that_one() {
    static FORGED: Operation = Operation {
        actors: ActorKind::ALL,
        lease: LeaseRule::NotRequired,
        ..counter::ADD_OWNED
    };
    static UNKNOWN: Operation = Operation {
        name: "gate.unknown",
        ..gate::CREATE
    };
    let store = gate::store();
    counter::create(store.db(), "c").unwrap();
    gate::create(store.db(), "a");
    let command = Command::new(&FORGED, counter::resource("c")).by(Actor::human("eve"));
    let error = store.db().commit(command, |change| {
        Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
    });
    is_misuse(&error.unwrap_err());
    let error = store.db().commit(at(&UNKNOWN, "a"), |_| {
        Ok::<_, StateError>(Outcome::Accepted(()))
    });
    is_misuse(&error.unwrap_err());
    // The right operation on a resource of another type.
    let error = store
        .db()
        .commit(Command::new(&gate::CREATE, counter::resource("c")), |_| {
            Ok::<_, StateError>(Outcome::Accepted(()))
        });
    is_misuse(&error.unwrap_err());
    // And a body that turns into what its domain does not own.
    is_misuse(&refused_without_trace(|change| {
        change.instead(&counter::ADD)?;
        Ok(Outcome::Accepted(()))
    }));
}

#[test]
fn a_nested_failure_that_the_body_swallows_undoes_the_whole_command() {
    let nested = || Command::new(&counter::ADD, counter::resource("c"));
    // It returns an error after it wrote.
    is_misuse(&refused_without_trace(move |change| {
        drop(change.also(&nested(), |change| {
            counter::increase(change, 1)?;
            Err::<Outcome<()>, _>(StateError::Closed)
        }));
        Ok(Outcome::Accepted(()))
    }));
    // It panics after it wrote, and the body catches that.
    is_misuse(&refused_without_trace(move |change| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            change.also(&nested(), |change| {
                counter::increase(change, 1)?;
                if change.revision() == 1 {
                    std::panic::resume_unwind(Box::new("half-way"));
                }
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
        }));
        assert!(caught.is_err());
        Ok(Outcome::Accepted(()))
    }));
    // It fails before it wrote: that is an answer, and the body may go on.
    let store = gate::store();
    gate::create(store.db(), "a");
    let receipt = store
        .db()
        .commit(at(&gate::CREATE, "a"), |change| {
            let missing = Command::new(&counter::ADD, counter::resource("missing"));
            let result = change.also(&missing, |_| Ok::<_, StateError>(Outcome::Accepted(())));
            assert!(matches!(result, Err(StateError::NotFound { .. })));
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    assert_eq!(receipt.revision, 2);
}

#[test]
fn a_failed_advance_leaves_the_command_what_it_was() {
    let store = gate::store();
    gate::create(store.db(), "a");
    store
        .db()
        .commit(at(&gate::CREATE, "a"), |change| {
            // `open` does not lead from open: refused before anything was written, so that the body may go on as `create`.
            let refused = change.advance(&gate::OPEN, Some(("open", "open")), None);
            assert!(matches!(refused, Err(StateError::InvalidTransition { .. })));
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    assert_eq!(
        gate::history(store.db(), &gate::resource("a")),
        ["1 gate.create", "2 gate.create"]
    );
}

#[test]
fn one_command_touches_several_resources_each_with_its_own_event() {
    let store = gate::store();
    gate::create(store.db(), "a");
    let receipt = store
        .db()
        .commit(at(&gate::OPEN, "a").expecting(1), |change| {
            let made = Command::new(&counter::CREATE, counter::resource("c")).creating();
            let receipt = change.also(&made, |change| {
                counter::insert(change)?;
                Ok::<_, StateError>(Outcome::Accepted(change.now()))
            })?;
            assert_eq!((receipt.revision, receipt.value), (1, change.now()));
            change.transition("closed", "open")?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    assert_eq!(receipt.revision, 2);
    assert_eq!(
        gate::history(store.db(), &counter::resource("c")),
        ["1 counter.created"]
    );
    assert_eq!(
        gate::history(store.db(), &gate::resource("a")),
        ["1 gate.create", "2 gate.open"]
    );
}

#[test]
fn the_same_resource_is_not_nested_in_itself() {
    is_misuse(&refused_without_trace(|change| {
        change.also(&at(&gate::CREATE, "a"), |_| {
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
        Ok(Outcome::Accepted(()))
    }));
    // Nor by a detour.
    is_misuse(&refused_without_trace(|change| {
        let other = Command::new(&counter::ADD, counter::resource("c"));
        change.also(&other, |change| {
            change.also(&at(&gate::CREATE, "a"), |_| {
                Ok::<_, StateError>(Outcome::Accepted(()))
            })?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })?;
        Ok(Outcome::Accepted(()))
    }));
}

#[test]
fn the_policy_acts_only_for_the_owner() {
    let store = gate::store();
    gate::create(store.db(), "a");
    gate::create(store.db(), "b");
    let policy = || Actor::new(ActorKind::Policy, "rule");
    let accept = |_: &mut Change<'_>| Ok::<_, StateError>(Outcome::Accepted(()));
    let is_missing = |error: StateError| {
        assert_eq!(error.code(), "claimLost", "{error:?}");
    };
    is_missing(
        store
            .db()
            .commit(at(&gate::RULE, "a").by(policy()), accept)
            .unwrap_err(),
    );
    // Not from inside a command that owns nothing, either.
    is_missing(
        store
            .db()
            .commit(at(&gate::CREATE, "a"), move |change| {
                change.also(&at(&gate::RULE, "b").by(policy()), accept)?;
                Ok(Outcome::Accepted(()))
            })
            .unwrap_err(),
    );
    let owner = Owner::new(OwnerKind::Host, "host");
    let claim = store
        .db()
        .claim(gate::resource("a"), Actor::host("h"), &owner, 1_000)
        .unwrap();
    store
        .db()
        .commit(at(&gate::RULE, "a").by(policy()).holding(&claim), accept)
        .unwrap();
    store
        .db()
        .commit(at(&gate::LOCK, "a").holding(&claim), move |change| {
            change.also(&at(&gate::RULE, "b").by(policy()), accept)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
}

/// Queues a command that holds the writer until the sender is dropped or used, so that what follows shares one transaction.
fn hold(
    db: &holdpoint_state::Database,
) -> (
    std::sync::mpsc::Sender<()>,
    holdpoint_state::Ticket<(), StateError>,
) {
    let (go, wait) = std::sync::mpsc::channel();
    let (started, is_started) = std::sync::mpsc::channel();
    let ticket = db
        .submit(
            Command::new(&counter::ADD, counter::resource("c")),
            move |_| {
                let _ = started.send(());
                let _ = wait.recv();
                Ok(Outcome::Refused(()))
            },
        )
        .unwrap();
    is_started.recv().unwrap();
    (go, ticket)
}

#[test]
fn whatever_one_command_does_its_neighbours_in_the_transaction_are_done_once() {
    type Body = fn(&mut Change<'_>) -> Result<Outcome<i64>, StateError>;
    let bad: [(&str, Body); 4] = [
        ("panicked", |change| {
            counter::increase(change, 1_000)?;
            std::panic::resume_unwind(Box::new("on purpose"))
        }),
        ("closed", |change| {
            counter::increase(change, 1_000)?;
            Err(StateError::Closed)
        }),
        ("sqlite", |change| {
            // A constraint that SQLite checks at the end of the transaction only.
            let gate = at(&gate::CREATE, "a");
            change.also(&gate, |change| {
                gate::break_at_commit(change)?;
                Ok::<_, StateError>(Outcome::Accepted(()))
            })?;
            Ok(Outcome::Accepted(counter::increase(change, 1_000)?))
        }),
        ("sqlite", |change| {
            // A constraint that fails at once.
            Ok(Outcome::Accepted(counter::increase(change, -1_000_000)?))
        }),
    ];
    for (code, body) in bad {
        let store = gate::store();
        counter::create(store.db(), "c").unwrap();
        gate::create(store.db(), "a");
        let (go, held) = hold(store.db());
        let add = || Command::new(&counter::ADD, counter::resource("c"));
        let good = |_| {
            store
                .db()
                .submit(add(), |change| {
                    Ok::<_, StateError>(Outcome::Accepted(counter::increase(change, 1)?))
                })
                .unwrap()
        };
        let before: Vec<_> = (0..5).map(good).collect();
        let bad = store.db().submit(add(), body).unwrap();
        let after: Vec<_> = (5..10).map(good).collect();
        drop(go);
        held.wait().unwrap();
        assert_eq!(bad.wait().unwrap_err().code(), code);
        let values: Vec<i64> = before
            .into_iter()
            .chain(after)
            .map(|ticket| ticket.wait().unwrap().value)
            .collect();
        assert_eq!(values, (1..=10).collect::<Vec<_>>(), "{code}");
        assert_eq!(gate::history(store.db(), &counter::resource("c")).len(), 11);
        assert_eq!(gate::history(store.db(), &gate::resource("a")).len(), 1);
    }
}

/// Foreign code that panics where nobody expects it.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
}

#[derive(Debug)]
struct Brittle;

impl From<StateError> for Brittle {
    fn from(error: StateError) -> Self {
        std::panic::resume_unwind(Box::new(error.code()));
    }
}

#[test]
fn foreign_code_that_panics_does_not_end_the_writer() {
    let store = gate::store();
    counter::create(store.db(), "c").unwrap();
    let add = || Command::new(&counter::ADD, counter::resource("c"));

    // The value of a command whose caller has gone is dropped by the writer.
    let (go, held) = hold(store.db());
    drop(
        store
            .db()
            .submit(add(), |_| Ok::<_, StateError>(Outcome::Refused(Bomb)))
            .unwrap(),
    );
    drop(go);
    held.wait().unwrap();
    counter::add(store.db(), "c", 1).unwrap();

    // What is thrown panics when it is dropped.
    let ticket = store
        .db()
        .submit(add(), |_| -> Result<Outcome<()>, StateError> {
            std::panic::resume_unwind(Box::new(Bomb))
        })
        .unwrap();
    assert_eq!(ticket.wait().unwrap_err().code(), "panicked");
    counter::add(store.db(), "c", 1).unwrap();

    // The caller's own error type panics: the caller's thread gets that panic, nobody else.
    let missing = Command::new(&counter::ADD, counter::resource("missing"));
    let ticket = store
        .db()
        .submit(missing, |_| {
            Ok::<Outcome<()>, Brittle>(Outcome::Refused(()))
        })
        .unwrap();
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ticket.wait().map(drop)));
    assert!(caught.is_err());
    counter::add(store.db(), "c", 1).unwrap();
    assert_eq!(
        counter::value(&store.db().snapshot().unwrap(), "c").unwrap(),
        Some(3)
    );
}

#[test]
fn a_statement_whose_plan_depends_on_a_bound_value_runs() {
    // SQLite would make such a statement anew when it runs; the authorizer would then not know for whom.
    let store = gate::store();
    gate::create(store.db(), "a");
    for pattern in ["a*", "b*", "*"] {
        store
            .db()
            .commit(at(&gate::CREATE, "a"), move |change| {
                glob(change, pattern)?;
                Ok::<_, StateError>(Outcome::Accepted(()))
            })
            .unwrap();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "stands for the store room of a domain"
)]
fn glob(change: &Change<'_>, pattern: &str) -> Result<(), StateError> {
    change
        .sql()
        .prepare_cached("UPDATE gates SET state = 'closed' WHERE note GLOB ?1")?
        .execute([pattern])?;
    Ok(())
}

#[test]
fn case_005_a_full_disk_is_typed_and_the_store_goes_on() {
    let store = gate::store();
    gate::create(store.db(), "a");
    counter::create(store.db(), "c").unwrap();
    let pages = faults::page_count(store.db()).unwrap();
    faults::limit_pages(store.db(), pages + 2).unwrap();
    let before = gate::dump(store.db());
    // Neighbours in the same transaction that need no room are done all the same.
    let (go, held) = hold(store.db());
    let big = store
        .db()
        .submit(at(&gate::CREATE, "a"), |change| {
            gate::note(change, &"x".repeat(100_000))?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
    drop(go);
    held.wait().unwrap();
    let error = big.wait().unwrap_err();
    assert!(matches!(error, StateError::DiskFull { .. }), "{error:?}");
    assert!(error.is_retryable());
    assert_eq!(gate::dump(store.db()), before);
    counter::add(store.db(), "c", 1).unwrap();

    // There is room again.
    faults::limit_pages(store.db(), 1_000_000).unwrap();
    store
        .db()
        .commit(at(&gate::CREATE, "a"), |change| {
            gate::note(change, &"x".repeat(100_000))?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })
        .unwrap();
}

#[test]
fn case_005_a_body_that_goes_on_after_a_full_disk_commits_nothing() {
    let store = gate::store();
    gate::create(store.db(), "a");
    counter::create(store.db(), "c").unwrap();
    let pages = faults::page_count(store.db()).unwrap();
    faults::limit_pages(store.db(), pages + 2).unwrap();
    let before = gate::dump(store.db());
    for outcome in [Outcome::Accepted(()), Outcome::Refused(())] {
        let result = store.db().commit(at(&gate::CREATE, "a"), move |change| {
            let full = gate::note(change, &"x".repeat(100_000));
            assert!(matches!(full, Err(StateError::DiskFull { .. })));
            // SQLite has ended the transaction: this statement would be committed alone.
            drop(gate::note(change, "small"));
            Ok::<_, StateError>(outcome.clone())
        });
        let error = result.unwrap_err();
        // It is the body's fault that the cause is hidden; nothing says that the file is broken.
        is_misuse(&error);
        assert_eq!(gate::dump(store.db()), before);
    }
    counter::add(store.db(), "c", 1).unwrap();
}

#[test]
fn case_006_the_first_cause_is_the_one_that_is_reported() {
    let store = gate::store();
    gate::create(store.db(), "a");
    let pages = faults::page_count(store.db()).unwrap();
    faults::limit_pages(store.db(), pages + 2).unwrap();
    for _ in 0..3 {
        let error = store.db().commit(at(&gate::CREATE, "a"), |change| {
            gate::note(change, &"x".repeat(100_000))?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        });
        match error {
            Err(StateError::DiskFull { source }) => {
                assert_eq!(
                    source.sqlite_error_code(),
                    Some(rusqlite::ErrorCode::DiskFull)
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_refusal_is_a_fact_without_an_event() {
    let store = gate::store();
    gate::create(store.db(), "a");
    let receipt = store
        .db()
        .commit(at(&gate::CREATE, "a"), |change| {
            gate::note(change, "came too late")?;
            Ok::<_, StateError>(Outcome::Refused(()))
        })
        .unwrap();
    assert_eq!(
        (receipt.disposition, receipt.revision, receipt.event_seq),
        (Disposition::Refused, 1, None)
    );
    assert!(
        gate::dump(store.db())
            .iter()
            .any(|row| row.contains("came too late"))
    );
    assert_eq!(gate::history(store.db(), &gate::resource("a")).len(), 1);
}

#[test]
fn one_now_serves_the_whole_command() {
    let store = gate::store();
    gate::create(store.db(), "a");
    counter::create(store.db(), "c").unwrap();
    let clock = store.clock().clone();
    let receipt = store
        .db()
        .commit(at(&gate::CREATE, "a"), move |change| {
            let first = change.now();
            clock.advance(5_000);
            let other = Command::new(&counter::ADD, counter::resource("c"));
            let nested = change.also(&other, |change| {
                counter::increase(change, 1)?;
                Ok::<_, StateError>(Outcome::Accepted(change.now()))
            })?;
            Ok::<_, StateError>(Outcome::Accepted((first, nested.value)))
        })
        .unwrap();
    assert_eq!(receipt.value.0, receipt.value.1);
    let events = store.db().snapshot().unwrap().events_after(0, 10).unwrap();
    assert_eq!(events[2].recorded_at, receipt.value.0);
    assert_eq!(events[3].recorded_at, receipt.value.0);
}
