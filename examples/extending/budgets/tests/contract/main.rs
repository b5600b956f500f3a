//! The promises of the domain, through its public surface.

mod line;

use std::error::Error;
use std::sync::mpsc;

use budgets::{Answer, BudgetError, Call, DOMAIN, Limit, Name, WARN, commands, views};
use holdpoint_state::effects::{
    self, ApplyOutcome, EffectCall, EffectHandler, EffectState, EffectWorker, WorkerOptions,
};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Actor, Disposition, StateError};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const MINUTE_MS: i64 = 60_000;

/// A store with the budget `tokens`: 10 units a minute.
fn store() -> Result<(TestStore, Name)> {
    let store = TestStore::new([DOMAIN])?;
    let name = Name::new("tokens")?;
    let limit = Limit::new(10, MINUTE_MS)?;
    commands::open(store.db(), &name, limit, Actor::human("ann"))?;
    Ok((store, name))
}

fn spend(store: &TestStore, name: &Name, id: &str, units: i64) -> Result<(Disposition, Answer)> {
    let call = Call::new(id, units)?;
    let receipt = commands::spend(store.db(), name, &call, Actor::host("worker"))?;
    Ok((receipt.disposition, receipt.value))
}

/// What is left, and the revision; every rule holds.
#[track_caller]
fn seen(store: &TestStore, name: &Name) -> Result<(i64, u64)> {
    let report = store.db().verify()?;
    assert!(report.is_clean(), "{report:?}");
    let now = store.db().clock().now();
    let budget = views::fetch(&store.db().snapshot()?, name, now)?.ok_or("no such budget")?;
    Ok((budget.remaining_units, budget.revision))
}

#[test]
fn a_budget_is_never_overdrawn_and_a_refusal_is_a_fact() -> Result {
    let (store, name) = store()?;
    assert_eq!(
        spend(&store, &name, "a", 6)?,
        (Disposition::Accepted, Answer::Granted)
    );
    let (disposition, answer) = spend(&store, &name, "b", 5)?;
    assert_eq!(disposition, Disposition::Refused);
    assert!(matches!(answer, Answer::Refused { .. }));
    assert_eq!(seen(&store, &name)?, (4, 2), "a refusal moves no revision");

    // A new window; what was refused stays refused, a new call is granted.
    store.clock().advance(MINUTE_MS.unsigned_abs());
    assert_eq!(seen(&store, &name)?, (10, 2));
    assert_eq!(
        spend(&store, &name, "b", 5)?,
        (Disposition::Adopted, answer)
    );
    assert_eq!(
        spend(&store, &name, "c", 5)?,
        (Disposition::Accepted, Answer::Granted)
    );
    assert_eq!(seen(&store, &name)?, (5, 3));
    Ok(())
}

#[test]
fn a_call_is_paid_for_once() -> Result {
    let (store, name) = store()?;
    spend(&store, &name, "a", 6)?;
    assert_eq!(
        spend(&store, &name, "a", 6)?,
        (Disposition::Adopted, Answer::Granted)
    );
    assert_eq!(seen(&store, &name)?, (4, 2));
    let other = Call::new("a", 7)?;
    let refused = commands::spend(store.db(), &name, &other, Actor::host("worker"));
    assert!(matches!(refused, Err(BudgetError::OtherCall { .. })));
    assert_eq!(seen(&store, &name)?, (4, 2));
    Ok(())
}

#[test]
fn opening_twice_adopts_or_is_refused() -> Result {
    let (store, name) = store()?;
    let open = |units| {
        let limit = Limit::new(units, MINUTE_MS)?;
        commands::open(store.db(), &name, limit, Actor::human("bob"))
    };
    assert_eq!(open(10)?.disposition, Disposition::Adopted);
    assert!(matches!(open(11), Err(BudgetError::OtherLimit { .. })));
    assert_eq!(seen(&store, &name)?, (10, 1));
    Ok(())
}

#[test]
fn who_resizes_has_read_the_budget() -> Result {
    let (store, name) = store()?;
    spend(&store, &name, "a", 6)?;
    let resize =
        |units, revision| commands::resize(store.db(), &name, units, revision, Actor::human("ann"));
    assert!(matches!(
        resize(20, 1),
        Err(BudgetError::State(StateError::StaleRevision {
            expected: 1,
            actual: 2,
            ..
        }))
    ));
    resize(20, 2)?;
    assert_eq!(seen(&store, &name)?, (14, 3));
    resize(1, 3)?;
    assert_eq!(seen(&store, &name)?, (0, 4), "what is spent stays spent");
    // A worker may spend, not resize.
    let worker = commands::resize(store.db(), &name, 99, 4, Actor::host("worker"));
    assert!(matches!(
        worker,
        Err(BudgetError::State(StateError::ActorDenied { .. }))
    ));
    Ok(())
}

#[test]
fn many_threads_share_what_there_is() -> Result {
    let (store, name) = store()?;
    let granted: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let (store, name) = (&store, &name);
                scope.spawn(move || {
                    let answers = (0..5).map(|call| {
                        let call = Call::new(format!("{worker}/{call}"), 1).ok()?;
                        commands::spend(store.db(), name, &call, Actor::host("worker")).ok()
                    });
                    answers
                        .flatten()
                        .filter(|receipt| receipt.value == Answer::Granted)
                        .count()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(0))
            .sum()
    });
    assert_eq!(granted, 10);
    assert_eq!(seen(&store, &name)?, (0, 11));
    Ok(())
}

/// What a program brings: the talk with the outside world.
struct Warn(mpsc::Sender<String>);

impl EffectHandler for Warn {
    fn effect_type(&self) -> &'static str {
        WARN
    }

    fn apply(&self, call: &EffectCall) -> ApplyOutcome {
        let text = format!(
            "{} is nearly spent: {}",
            call.source_key,
            String::from_utf8_lossy(&call.payload)
        );
        match self.0.send(text) {
            Ok(()) => ApplyOutcome::Applied {
                result: None,
                external_ref: None,
            },
            Err(_) => ApplyOutcome::NotApplied {
                retry_after_ms: None,
            },
        }
    }
}

#[test]
fn people_are_warned_once_in_each_window() -> Result {
    let (store, name) = store()?;
    let (sender, warnings) = mpsc::channel();
    let worker =
        EffectWorker::new(store.open()?, WorkerOptions::default()).handler(Warn(sender))?;
    for (id, units) in [("a", 7), ("b", 1), ("c", 2)] {
        spend(&store, &name, id, units)?;
        worker.run_due_once()?;
    }
    let warned: Vec<String> = warnings.try_iter().collect();
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned
            .iter()
            .all(|text| text.starts_with("tokens is nearly spent: {\"limitUnits\":10,")),
        "{warned:?}"
    );
    store.clock().advance(MINUTE_MS.unsigned_abs());
    spend(&store, &name, "d", 9)?;
    worker.run_due_once()?;
    assert_eq!(warnings.try_iter().count(), 1);
    let effects = effects::of_source(&store.db().snapshot()?, &name.resource())?;
    assert!(
        effects
            .iter()
            .all(|effect| effect.state == EffectState::Applied)
    );
    assert!(store.db().verify()?.is_clean());
    Ok(())
}
