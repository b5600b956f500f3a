//! The model: what each command must do, in a few fields and without a database.

use std::collections::BTreeMap;

use holdpoint_state::testing::START;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

/// How many counters and owners there are.
pub(crate) const NAMES: [&str; 3] = ["a", "b", "c"];
pub(crate) const OWNERS: usize = 2;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Create {
        counter: usize,
    },
    Add {
        counter: usize,
        amount: i64,
        expecting: Option<u64>,
    },
    /// Adds to one counter inside a command on another, or on itself.
    Pair {
        counter: usize,
        other: usize,
    },
    AddOwned {
        claim: usize,
        amount: i64,
    },
    Claim {
        counter: usize,
        owner: usize,
        length_ms: i64,
    },
    Renew {
        claim: usize,
    },
    Release {
        claim: usize,
    },
    HandOver {
        claim: usize,
        to: usize,
        length_ms: i64,
    },
    /// A body that writes and then spoils its command.
    Spoil {
        counter: usize,
        how: Spoil,
    },
    Reserve {
        counter: usize,
        key: u8,
        text: u8,
    },
    Begin {
        claim: usize,
        key: u8,
    },
    Settle {
        claim: usize,
        key: u8,
    },
    Recover {
        claim: usize,
    },
    /// Both clocks.
    Advance {
        by_ms: u64,
    },
    /// The wall clock alone.
    Jump {
        by_ms: i64,
    },
    /// Closes the store and opens it again.
    Reopen,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Spoil {
    Error,
    Panic,
    Adopt,
    Negative,
}

/// One counter as the model knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counter {
    pub(crate) value: i64,
    /// Event type and lease generation of each revision.
    pub(crate) events: Vec<(&'static str, Option<u64>)>,
    pub(crate) generation: u64,
    /// Which claim holds the lease, live or expired, and until when.
    pub(crate) holder: Option<(usize, i64)>,
    /// Reserved follow-ups, with their text.
    pub(crate) reserved: BTreeMap<u8, u8>,
    /// Actions: their state, and the generation under which they were begun.
    pub(crate) acts: BTreeMap<u8, (Act, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Applying,
    Applied,
    Ambiguous,
}

/// A claim that was granted once. It stays in its holder's hands, whatever happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) counter: usize,
    pub(crate) owner: usize,
    pub(crate) generation: u64,
    pub(crate) length_ms: i64,
    /// The guard: expiry by the wall clock and grant by the monotonic one.
    pub(crate) expires_at: i64,
    pub(crate) since: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Model {
    pub(crate) wall: i64,
    pub(crate) monotonic: u64,
    pub(crate) counters: [Option<Counter>; 3],
    pub(crate) claims: Vec<Granted>,
    /// What the last step must have answered.
    pub(crate) expected: String,
}

impl Model {
    fn revision(&self, counter: usize) -> u64 {
        self.counters[counter]
            .as_ref()
            .map_or(0, |counter| u64::try_from(counter.events.len()).unwrap())
    }

    /// Why the claim gives no right now.
    fn lost(&self, index: usize) -> Option<&'static str> {
        let claim = &self.claims[index];
        let counter = self.counters[claim.counter].as_ref().unwrap();
        let same = counter.generation == claim.generation;
        let Some((holder, expires_at)) = counter.holder else {
            return Some(if same {
                "missingAuthority"
            } else {
                "generationChanged"
            });
        };
        if self.claims[holder].owner != claim.owner {
            return Some("ownerChanged");
        }
        if !same {
            return Some("generationChanged");
        }
        (expires_at <= self.wall).then_some("expired")
    }

    fn touch(&mut self, counter: usize, event: &'static str, generation: Option<u64>) -> u64 {
        let counter = self.counters[counter].as_mut().unwrap();
        counter.events.push((event, generation));
        u64::try_from(counter.events.len()).unwrap()
    }

    fn renew(&mut self, index: usize) {
        let claim = &mut self.claims[index];
        claim.expires_at = self.wall + claim.length_ms;
        claim.since = self.monotonic;
        let counter = self.counters[claim.counter].as_mut().unwrap();
        counter.holder = Some((index, claim.expires_at));
    }

    fn grant(&mut self, counter: usize, owner: usize, length_ms: i64) -> u64 {
        let expires_at = self.wall + length_ms;
        let index = self.claims.len();
        let found = self.counters[counter].as_mut().unwrap();
        found.generation += 1;
        found.holder = Some((index, expires_at));
        let generation = found.generation;
        self.claims.push(Granted {
            counter,
            owner,
            generation,
            length_ms,
            expires_at,
            since: self.monotonic,
        });
        generation
    }

    /// A write that needs the claim: `change` says what it does to the counter. Returns the answer.
    fn protected(
        &mut self,
        index: usize,
        change: impl FnOnce(&mut Counter, u64) -> Result<(), String>,
    ) -> String {
        if let Some(reason) = self.lost(index) {
            return format!("claimLost {reason}");
        }
        let (counter, generation) = (self.claims[index].counter, self.claims[index].generation);
        if let Err(answer) = change(self.counters[counter].as_mut().unwrap(), generation) {
            return answer;
        }
        let revision = self.touch(counter, "counter.added", Some(generation));
        self.renew(index);
        format!("accepted {revision}")
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn answer(&mut self, step: &Step) -> String {
        match *step {
            Step::Create { counter } => {
                if self.counters[counter].is_some() {
                    return format!("adopted {}", self.revision(counter));
                }
                self.counters[counter] = Some(Counter::default());
                self.touch(counter, "counter.created", None);
                "accepted 1".into()
            }
            Step::Add {
                counter,
                amount,
                expecting,
            } => {
                let actual = self.revision(counter);
                let Some(found) = self.counters[counter].as_mut() else {
                    return "notFound".into();
                };
                if expecting.is_some_and(|expected| expected != actual) {
                    return format!("staleRevision {actual}");
                }
                if found.value + amount < 0 {
                    return "sqlite".into();
                }
                found.value += amount;
                format!("accepted {}", self.touch(counter, "counter.added", None))
            }
            Step::Pair { counter, other } => {
                if self.counters[counter].is_none() {
                    return "notFound".into();
                }
                if counter == other {
                    return "misuse".into();
                }
                if self.counters[other].is_none() {
                    return "notFound".into();
                }
                for index in [other, counter] {
                    self.counters[index].as_mut().unwrap().value += 1;
                    self.touch(index, "counter.added", None);
                }
                format!("accepted {}", self.revision(counter))
            }
            Step::AddOwned { claim, amount } => self.protected(claim, |counter, _| {
                counter.value += amount;
                Ok(())
            }),
            Step::Claim {
                counter,
                owner,
                length_ms,
            } => {
                let Some(found) = &self.counters[counter] else {
                    return "notFound".into();
                };
                if found
                    .holder
                    .is_some_and(|(_, expires_at)| self.wall < expires_at)
                {
                    return "leaseHeld".into();
                }
                let generation = self.grant(counter, owner, length_ms);
                self.touch(counter, "lease.claimed", Some(generation));
                format!("claimed {generation}")
            }
            Step::Renew { claim } => {
                if let Some(reason) = self.lost(claim) {
                    return format!("claimLost {reason}");
                }
                self.renew(claim);
                "done".into()
            }
            Step::Release { claim } => {
                if let Some(reason) = self.lost(claim) {
                    return format!("claimLost {reason}");
                }
                let (counter, generation) =
                    (self.claims[claim].counter, self.claims[claim].generation);
                self.counters[counter].as_mut().unwrap().holder = None;
                self.touch(counter, "lease.released", Some(generation));
                format!("accepted {}", self.revision(counter))
            }
            Step::HandOver {
                claim,
                to,
                length_ms,
            } => {
                if let Some(reason) = self.lost(claim) {
                    return format!("claimLost {reason}");
                }
                let counter = self.claims[claim].counter;
                let generation = self.grant(counter, to, length_ms);
                self.touch(counter, "counter.added", Some(generation));
                format!("claimed {generation}")
            }
            Step::Spoil { counter, how } => {
                if self.counters[counter].is_none() {
                    return "notFound".into();
                }
                match how {
                    Spoil::Error => "closed",
                    Spoil::Panic => "panicked",
                    Spoil::Adopt => "misuse",
                    Spoil::Negative => "sqlite",
                }
                .into()
            }
            Step::Reserve { counter, key, text } => {
                let Some(found) = self.counters[counter].as_mut() else {
                    return "notFound".into();
                };
                if *found.reserved.entry(key).or_insert(text) != text {
                    return "conflict".into();
                }
                format!("accepted {}", self.touch(counter, "counter.added", None))
            }
            Step::Begin { claim, key } => {
                let mut started = "execute";
                let answer = self.protected(claim, |counter, generation| {
                    started = match counter.acts.get(&key) {
                        None => "execute",
                        Some((Act::Applied, _)) => "adopted",
                        Some((Act::Applying | Act::Ambiguous, _)) => "ambiguous",
                    };
                    counter
                        .acts
                        .entry(key)
                        .or_insert((Act::Applying, generation));
                    Ok(())
                });
                if answer.starts_with("accepted") {
                    format!("{answer} {started}")
                } else {
                    answer
                }
            }
            Step::Settle { claim, key } => self.protected(claim, |counter, generation| {
                let (state, begun) = counter.acts.get_mut(&key).unwrap();
                if *state != Act::Applying {
                    return Err("invalidTransition".into());
                }
                if *begun != generation {
                    return Err("claimLost generationChanged".into());
                }
                *state = Act::Applied;
                Ok(())
            }),
            Step::Recover { claim } => self.protected(claim, |counter, _| {
                for (state, _) in counter.acts.values_mut() {
                    if *state == Act::Applying {
                        *state = Act::Ambiguous;
                    }
                }
                Ok(())
            }),
            Step::Advance { by_ms } => {
                self.wall += i64::try_from(by_ms).unwrap();
                self.monotonic += by_ms;
                "done".into()
            }
            Step::Jump { by_ms } => {
                self.wall += by_ms;
                "done".into()
            }
            Step::Reopen => "done".into(),
        }
    }

    /// What must hold in the model itself.
    fn check(&self) {
        for (index, counter) in self.counters.iter().enumerate() {
            let Some(counter) = counter else { continue };
            assert!(0 <= counter.value, "model: a negative counter");
            let granted: Vec<u64> = self
                .claims
                .iter()
                .filter(|claim| claim.counter == index)
                .map(|claim| claim.generation)
                .collect();
            assert!(
                granted.iter().copied().eq(1..=counter.generation),
                "model: generations {granted:?}"
            );
            let alive = (0..self.claims.len())
                .filter(|claim| self.claims[*claim].counter == index && self.lost(*claim).is_none())
                .count();
            assert!(alive <= 1, "model: two owners");
        }
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            wall: START,
            monotonic: 0,
            counters: [const { None }; 3],
            claims: Vec::new(),
            expected: String::new(),
        })
        .boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        let counter = 0..NAMES.len();
        let revisions: Vec<Option<u64>> = state
            .counters
            .iter()
            .enumerate()
            .flat_map(|(index, _)| [None, Some(state.revision(index))])
            .collect();
        let length = prop_oneof![Just(50_i64), Just(100), 1..200_i64];
        let free = prop_oneof![
            3 => counter.clone().prop_map(|counter| Step::Create { counter }),
            6 => (counter.clone(), -4..9_i64, prop::sample::select(revisions))
                .prop_map(|(counter, amount, expecting)| Step::Add { counter, amount, expecting }),
            2 => (counter.clone(), counter.clone())
                .prop_map(|(counter, other)| Step::Pair { counter, other }),
            6 => (counter.clone(), 0..OWNERS, length.clone())
                .prop_map(|(counter, owner, length_ms)| Step::Claim { counter, owner, length_ms }),
            2 => (counter.clone(), prop_oneof![
                Just(Spoil::Error), Just(Spoil::Panic), Just(Spoil::Adopt), Just(Spoil::Negative)
            ]).prop_map(|(counter, how)| Step::Spoil { counter, how }),
            3 => (counter, 0..3_u8, 0..2_u8)
                .prop_map(|(counter, key, text)| Step::Reserve { counter, key, text }),
            // Whole lengths make the last millisecond of a lease likely.
            4 => prop_oneof![Just(49_u64), Just(50), Just(1), 1..200_u64]
                .prop_map(|by_ms| Step::Advance { by_ms }),
            1 => (-300..300_i64).prop_map(|by_ms| Step::Jump { by_ms }),
            1 => Just(Step::Reopen),
        ]
        .boxed();
        if state.claims.is_empty() {
            return free;
        }
        // Mostly the last claims; the older ones are stale.
        let count = state.claims.len();
        let claim = prop_oneof![2 => count.saturating_sub(2)..count, 1 => 0..count];
        let owned = prop_oneof![
            3 => (claim.clone(), 0..5_i64).prop_map(|(claim, amount)| Step::AddOwned { claim, amount }),
            2 => claim.clone().prop_map(|claim| Step::Renew { claim }),
            2 => claim.clone().prop_map(|claim| Step::Release { claim }),
            1 => (claim.clone(), 0..OWNERS, length)
                .prop_map(|(claim, to, length_ms)| Step::HandOver { claim, to, length_ms }),
            3 => (claim.clone(), 0..3_u8).prop_map(|(claim, key)| Step::Begin { claim, key }),
            3 => (claim.clone(), 0..3_u8).prop_map(|(claim, key)| Step::Settle { claim, key }),
            1 => claim.prop_map(|claim| Step::Recover { claim }),
        ];
        prop_oneof![1 => free, 1 => owned].boxed()
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        match step {
            // Only what was begun can be settled: nobody can make an attempt of their own.
            Step::Settle { claim, key } => state.claims.get(*claim).is_some_and(|granted| {
                state.counters[granted.counter]
                    .as_ref()
                    .is_some_and(|counter| counter.acts.contains_key(key))
            }),
            Step::AddOwned { claim, .. }
            | Step::Renew { claim }
            | Step::Release { claim }
            | Step::HandOver { claim, .. }
            | Step::Begin { claim, .. }
            | Step::Recover { claim } => *claim < state.claims.len(),
            _ => true,
        }
    }

    fn apply(mut state: Self, step: &Step) -> Self {
        state.expected = state.answer(step);
        state.check();
        state
    }
}
