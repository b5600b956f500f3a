//! The product: the same steps through the public surface, and its rows in the model's words.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdpoint_state::effects;
use holdpoint_state::testing::{TestStore, counter, release_keeping};
use holdpoint_state::{
    Actor, Change, Claim, Command, Database, Disposition, EffectAttempt, EffectStart, EffectState,
    NewEffect, Outcome, Owner, OwnerKind, OwnerScope, Payload, Receipt, Settlement, StateError,
};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};
use serde_json::json;

use super::reference::{Act, Counter, Model, NAMES, OWNERS, Spoil, Step};

pub(crate) struct Kernel {
    store: TestStore,
    db: Option<Database>,
    owners: Vec<Owner>,
    /// Every claim that was granted. A released one is gone from its holder's hands, so that a copy of its evidence is kept.
    claims: Vec<Arc<Claim>>,
    attempts: BTreeMap<(usize, u8), EffectAttempt>,
}

impl Kernel {
    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn step(&mut self, step: &Step) -> String {
        match *step {
            Step::Create { counter } => answer(counter::create(self.db(), NAMES[counter])),
            Step::Add {
                counter,
                amount,
                expecting,
            } => {
                let mut command = add(counter);
                if let Some(revision) = expecting {
                    command = command.expecting(revision);
                }
                answer(
                    self.db()
                        .commit(command, move |change| increase(change, amount)),
                )
            }
            Step::Pair { counter, other } => {
                answer(self.db().commit(add(counter), move |change| {
                    change.also(&add(other), |change| increase(change, 1))?;
                    increase(change, 1)
                }))
            }
            Step::AddOwned { claim, amount } => answer(self.owned(claim, move |change| {
                counter::increase(change, amount).map(drop)
            })),
            Step::Claim {
                counter,
                owner,
                length_ms,
            } => {
                let claimed = self.db().claim(
                    counter::resource(NAMES[counter]),
                    Actor::host("model"),
                    &self.owners[owner],
                    length_ms,
                );
                self.keep(claimed)
            }
            Step::Renew { claim } => match self.db().renew(&self.claims[claim]) {
                Ok(()) => "done".into(),
                Err(error) => refusal(&error),
            },
            Step::Release { claim } => answer(release_keeping(self.db(), &self.claims[claim])),
            Step::HandOver {
                claim,
                to,
                length_ms,
            } => {
                let to = self.owners[to].clone();
                let receipt = self.owned(claim, move |change| {
                    change.release()?;
                    change.claim(&to, length_ms)
                });
                self.keep(receipt.map(|receipt| receipt.value))
            }
            Step::Spoil { counter, how } => answer(
                self.db()
                    .commit(add(counter), move |change| spoil(change, how)),
            ),
            Step::Reserve { counter, key, text } => {
                answer(self.db().commit(add(counter), move |change| {
                    change.reserve_effect(&announcement(key, text))?;
                    Ok::<_, StateError>(Outcome::Accepted(()))
                }))
            }
            Step::Begin { claim, key } => self.begin(claim, key),
            Step::Settle { claim, key } => {
                let attempt = self.attempts[&(self.counter_of(claim), key)].clone();
                answer(self.owned(claim, move |change| {
                    change.settle_effect(
                        &attempt,
                        Settlement::Applied {
                            result: None,
                            external_ref: None,
                        },
                    )
                }))
            }
            Step::Recover { claim } => {
                answer(self.owned(claim, |change| change.recover_effects().map(drop)))
            }
            Step::Advance { by_ms } => {
                self.store.clock().advance(by_ms);
                "done".into()
            }
            // The model has turned its own clock; this one follows in `apply`.
            Step::Jump { .. } => "done".into(),
            Step::Reopen => {
                self.db.take().unwrap().close();
                self.db = Some(self.store.open().unwrap());
                "done".into()
            }
        }
    }

    fn begin(&mut self, claim: usize, key: u8) -> String {
        let counter = self.counter_of(claim);
        match self.owned(claim, move |change| change.begin_effect(&action(key))) {
            Ok(receipt) => {
                let word = match receipt.value {
                    EffectStart::Execute(attempt) => {
                        self.attempts.insert((counter, key), attempt);
                        "execute"
                    }
                    EffectStart::Adopted { .. } => "adopted",
                    EffectStart::Ambiguous { .. } => "ambiguous",
                    other => panic!("{other:?}"),
                };
                format!("accepted {} {word}", receipt.revision)
            }
            Err(error) => refusal(&error),
        }
    }

    fn owned<T: Send + 'static>(
        &self,
        claim: usize,
        mut body: impl FnMut(&mut Change<'_>) -> Result<T, StateError> + Send + 'static,
    ) -> Result<Receipt<T>, StateError> {
        let claim = &self.claims[claim];
        let command = Command::new(&counter::ADD_OWNED, claim.resource().clone()).holding(claim);
        self.db()
            .commit(command, move |change| body(change).map(Outcome::Accepted))
    }

    fn keep(&mut self, claimed: Result<Claim, StateError>) -> String {
        match claimed {
            Ok(claim) => {
                let generation = claim.generation();
                self.claims.push(Arc::new(claim));
                format!("claimed {generation}")
            }
            Err(error) => refusal(&error),
        }
    }

    fn counter_of(&self, claim: usize) -> usize {
        let key = self.claims[claim].resource().key();
        NAMES.iter().position(|name| *name == key).unwrap()
    }

    /// A counter's rows in the words of the model.
    fn read(&self, index: usize, model: &Model) -> Option<Counter> {
        let snapshot = self.db().snapshot().unwrap();
        let resource = counter::resource(NAMES[index]);
        let view = snapshot.resource(&resource).unwrap()?;
        let events = snapshot.events_of(&resource, 0, 10_000).unwrap();
        assert_eq!(view.revision, u64::try_from(events.len()).unwrap());
        for (event, expected) in events.iter().zip(1..) {
            assert_eq!(event.revision, expected);
        }
        let holder = view.lease.owner.as_ref().map(|(_, owner_id)| {
            let held = model
                .claims
                .iter()
                .zip(&self.claims)
                .position(|(granted, claim)| {
                    granted.counter == index
                        && claim.generation() == view.lease.generation
                        && claim.owner().id() == owner_id
                });
            (held.unwrap(), view.lease.expires_at.unwrap().0)
        });
        let mut found = Counter {
            value: counter::value(&snapshot, NAMES[index]).unwrap().unwrap(),
            events: events
                .into_iter()
                .map(|event| (known(&event.event_type), event.lease_generation))
                .collect(),
            generation: view.lease.generation,
            holder,
            ..Counter::default()
        };
        for effect in effects::of_source(&snapshot, &resource).unwrap() {
            let content = effects::content(&snapshot, &effect.effect_id)
                .unwrap()
                .unwrap();
            let payload: serde_json::Value = serde_json::from_slice(&content.payload).unwrap();
            let number = |name: &str| u8::try_from(payload[name].as_u64().unwrap()).unwrap();
            let act = match effect.state {
                EffectState::Pending => {
                    found.reserved.insert(number("key"), number("text"));
                    continue;
                }
                EffectState::Applying => Act::Applying,
                EffectState::Applied => Act::Applied,
                EffectState::Ambiguous => Act::Ambiguous,
                other => panic!("{other}"),
            };
            assert_eq!(effect.attempts, 1);
            // The attempt's own generation is private; the model's stands for it, and settling compares it.
            let model = model.counters[index].as_ref().unwrap();
            let key = number("key");
            found.acts.insert(key, (act, model.acts[&key].1));
        }
        Some(found)
    }
}

fn add(counter: usize) -> Command {
    Command::new(&counter::ADD, counter::resource(NAMES[counter]))
}

fn increase(change: &mut Change<'_>, amount: i64) -> Result<Outcome<i64>, StateError> {
    counter::increase(change, amount).map(Outcome::Accepted)
}

fn spoil(change: &mut Change<'_>, how: Spoil) -> Result<Outcome<i64>, StateError> {
    counter::increase(change, 1)?;
    match how {
        Spoil::Error => Err(StateError::Closed),
        // Without the hook that prints it.
        Spoil::Panic => std::panic::resume_unwind(Box::new("on purpose")),
        Spoil::Adopt => Ok(Outcome::Adopted(1)),
        Spoil::Negative => increase(change, -1_000_000),
    }
}

fn announcement(key: u8, text: u8) -> NewEffect {
    let payload = Payload::json(&json!({ "key": key, "text": text })).unwrap();
    let name = format!("announce-{key}");
    NewEffect::new("counter.announce", name, OwnerScope::System, payload)
}

fn action(key: u8) -> NewEffect {
    let payload = Payload::json(&json!({ "recovery": "manual", "key": key })).unwrap();
    NewEffect::new("model.act", format!("act-{key}"), OwnerScope::Run, payload)
}

fn known(event_type: &str) -> &'static str {
    [
        "counter.created",
        "counter.added",
        "lease.claimed",
        "lease.released",
    ]
    .into_iter()
    .find(|known| *known == event_type)
    .unwrap()
}

fn answer<T>(result: Result<Receipt<T>, StateError>) -> String {
    match result {
        Ok(receipt) => {
            let word = match receipt.disposition {
                Disposition::Accepted => "accepted",
                Disposition::Adopted => "adopted",
                Disposition::Refused => "refused",
            };
            format!("{word} {}", receipt.revision)
        }
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &StateError) -> String {
    match error {
        StateError::ClaimLost { reason, .. } => format!("claimLost {reason}"),
        StateError::StaleRevision { actual, .. } => format!("staleRevision {actual}"),
        other => other.code().to_owned(),
    }
}

impl StateMachineTest for Kernel {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let mut store = TestStore::counters().unwrap();
        store.close();
        Self {
            db: Some(store.open().unwrap()),
            store,
            owners: (0..OWNERS)
                .map(|_| Owner::new(OwnerKind::Host, "model"))
                .collect(),
            claims: Vec::new(),
            attempts: BTreeMap::new(),
        }
    }

    fn apply(
        mut state: Self,
        model: &Model,
        step: <Model as ReferenceStateMachine>::Transition,
    ) -> Self {
        if matches!(step, Step::Jump { .. }) {
            state.store.clock().set_wall(model.wall);
        }
        assert_eq!(state.step(&step), model.expected, "{step:?}");
        state
    }

    fn check_invariants(state: &Self, model: &Model) {
        for (index, name) in NAMES.iter().enumerate() {
            assert_eq!(state.read(index, model), model.counters[index], "{name}");
        }
        let clock = state.store.clock();
        for (claim, granted) in state.claims.iter().zip(&model.claims) {
            assert_eq!(claim.expires_at().0, granted.expires_at);
            let by_monotonic =
                granted.length_ms - i64::try_from(model.monotonic - granted.since).unwrap();
            let left = by_monotonic.min(granted.expires_at - model.wall).max(0);
            assert_eq!(claim.remaining_ms(clock), u64::try_from(left).unwrap());
        }
    }

    fn teardown(mut state: Self, _: Model) {
        let db = state.db.take().unwrap();
        let report = db.verify().unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
    }
}
