//! Random lives of a decision against a small model of them: answers by three roads, clocks that jump, pauses, policies, cancellations, the
//! end of the run. After each step the result, every row and every invariant are compared.

use std::collections::BTreeMap;

use holdpoint_decisions::commands::{self, Answer, Cancel};
use holdpoint_decisions::model::{ChannelId, Source, Submission};
use holdpoint_decisions::{DecisionError, DecisionId, digest, views};
use holdpoint_state::StateError;
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{Control, OwnerRight};
use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use serde_json::{Value, json};

use crate::cases::owner;
use crate::said::said;
use crate::support::{AFTER_MS, Fixture, draft, expiring, timed};

/// How many lives a run of the test has; `PROPTEST_CASES` says otherwise.
const CASES: u32 = 48;

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_decision_does_what_its_model_does(sequential 1..30 => Product);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unlimited,
    Automatic,
    Expiring,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Road {
    Session,
    Ops,
    Other,
}

#[derive(Debug, Clone)]
enum Step {
    Answer {
        road: Road,
        key: u8,
        response: u8,
        is_seen: bool,
    },
    /// The clock shows so many milliseconds after the creation.
    Clock(i64),
    Pause,
    Resume,
    Timeout,
    Expire,
    Sweep,
    Cancel,
    CancelRun,
    /// What follows from a resolution is applied.
    Settle,
}

/// What a candidate asked, and what it was told.
type Kept = ((u8, bool), String);

#[derive(Debug, Clone)]
struct Model {
    kind: Kind,
    now: i64,
    is_paused: bool,
    is_over: bool,
    /// The run was resumed after its decision was withdrawn, or it never was paused: what the run does is not of this model.
    winner: Option<&'static str>,
    keys: BTreeMap<(Road, u8), Kept>,
    rules: BTreeMap<&'static str, String>,
    rows: Vec<String>,
    /// What the last step was told.
    told: String,
}

fn responses(index: u8) -> (Value, Option<&'static str>) {
    match index {
        0 => (json!({ "choice": "go" }), None),
        1 => (json!({ "choice": "redo", "input": { "why": " x " } }), None),
        2 => (json!({ "choice": "redo" }), Some("missingInput")),
        _ => (json!({ "choice": "stop" }), Some("unknownChoice")),
    }
}

impl Model {
    fn is_due(&self) -> bool {
        self.kind != Kind::Unlimited && AFTER_MS <= self.now
    }

    fn is_accepted(&self) -> bool {
        matches!(self.winner, Some("human" | "timeout_policy"))
    }

    fn answer(&mut self, road: Road, key: u8, response: u8, is_seen: bool) -> String {
        if let Some((content, told)) = self.keys.get(&(road, key)) {
            if *content != (response, is_seen) {
                return "conflict key".to_owned();
            }
            let provenance = self.winner.unwrap_or_default();
            return match told.as_str() {
                "won" => format!("adopted won {provenance}"),
                "already_resolved" => format!("adopted lost {provenance}"),
                other => format!("adopted {other}"),
            };
        }
        let source = if road == Road::Session {
            "human"
        } else {
            "channel"
        };
        let (kept, told) = if self.is_paused {
            if road == Road::Session {
                return "conflict paused".to_owned();
            }
            ("paused".to_owned(), "conflict paused".to_owned())
        } else if !is_seen {
            ("stale".to_owned(), "stale".to_owned())
        } else if let (_, Some(code)) = responses(response) {
            (code.to_owned(), code.to_owned())
        } else if let Some(winner) = self.winner {
            let word = if self.is_accepted() {
                "conflict"
            } else {
                "rejected"
            };
            ("already_resolved".to_owned(), format!("{word} {winner}"))
        } else if self.is_due() {
            ("expired".to_owned(), "expired".to_owned())
        } else {
            self.winner = Some("human");
            ("won".to_owned(), "won human".to_owned())
        };
        let row = match kept.as_str() {
            "won" | "already_resolved" | "stale" => kept.clone(),
            code => format!("rejected {code}"),
        };
        self.rows.push(format!("{source} {row}"));
        self.keys.insert((road, key), ((response, is_seen), kept));
        told
    }

    /// A rule of the policy, or control: `wins` with this provenance, if it may at all and is due.
    fn rule(
        &mut self,
        name: &'static str,
        source: &str,
        provenance: &'static str,
        is_due: bool,
    ) -> String {
        if let Some(told) = self.rules.get(name) {
            let winner = self.winner.unwrap_or_default();
            return match told.as_str() {
                "won" => format!("adopted won {winner}"),
                _ => format!("adopted lost {winner}"),
            };
        }
        if let Some(winner) = self.winner {
            self.rules.insert(name, "lost".to_owned());
            self.rows.push(format!("{source} already_resolved"));
            let is_refused = name == "timeout" && !self.is_accepted();
            return format!(
                "{} {winner}",
                if is_refused { "rejected" } else { "conflict" }
            );
        }
        if !is_due {
            return "not due".to_owned();
        }
        self.winner = Some(provenance);
        self.rules.insert(name, "won".to_owned());
        self.rows.push(format!("{source} won"));
        format!("won {provenance}")
    }

    fn timeout(&mut self) -> String {
        if self.kind != Kind::Automatic {
            return "not allowed".to_owned();
        }
        let is_due = self.is_due();
        self.rule("timeout", "policy", "timeout_policy", is_due)
    }

    fn expire(&mut self) -> String {
        if self.kind != Kind::Expiring {
            return "not allowed".to_owned();
        }
        let is_due = self.is_due();
        self.rule("expire", "policy", "expired_no_default", is_due)
    }

    fn apply(&mut self, step: &Step) {
        self.told = match step {
            Step::Answer {
                road,
                key,
                response,
                is_seen,
            } => self.answer(*road, *key, *response, *is_seen),
            Step::Clock(now) => {
                self.now = *now;
                String::new()
            }
            Step::Pause => {
                // Only what waits for an answer is paused here.
                self.is_paused |= self.winner.is_none() && !self.is_over;
                String::new()
            }
            Step::Resume => {
                self.is_paused = false;
                String::new()
            }
            Step::Timeout => self.timeout(),
            Step::Expire => self.expire(),
            Step::Sweep => {
                let is_swept = self.winner.is_none() && self.is_due();
                if is_swept {
                    let told = if self.kind == Kind::Automatic {
                        self.timeout()
                    } else {
                        self.expire()
                    };
                    assert!(told.starts_with("won"));
                }
                format!("swept {}", usize::from(is_swept))
            }
            Step::Cancel => self.rule("cancel", "control", "explicit_cancel", true),
            Step::CancelRun => {
                self.end();
                String::new()
            }
            Step::Settle => {
                if matches!(self.winner, Some("explicit_cancel" | "expired_no_default")) {
                    self.end();
                }
                String::new()
            }
        };
    }

    fn end(&mut self) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        self.is_paused = false;
        if self.winner.is_none() {
            self.rule("cancel", "control", "explicit_cancel", true);
        }
    }
}

struct Machine;

impl ReferenceStateMachine for Machine {
    type State = Model;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Model> {
        prop_oneof![
            Just(Kind::Unlimited),
            Just(Kind::Automatic),
            Just(Kind::Expiring)
        ]
        .prop_map(|kind| Model {
            kind,
            now: 0,
            is_paused: false,
            is_over: false,
            winner: None,
            keys: BTreeMap::new(),
            rules: BTreeMap::new(),
            rows: Vec::new(),
            told: String::new(),
        })
        .boxed()
    }

    fn transitions(_: &Model) -> BoxedStrategy<Step> {
        let road = prop_oneof![Just(Road::Session), Just(Road::Ops), Just(Road::Other)];
        // Most of what can go wrong is at the deadline itself.
        let instants = prop_oneof![
            1 => Just(0),
            2 => Just(AFTER_MS - 1),
            4 => Just(AFTER_MS),
            1 => Just(AFTER_MS + 1),
            1 => Just(AFTER_MS * 9),
        ];
        prop_oneof![
            6 => (road, 0..3_u8, 0..4_u8, prop::bool::weighted(0.7))
                .prop_map(|(road, key, response, is_seen)| Step::Answer { road, key, response, is_seen }),
            6 => instants.prop_map(Step::Clock),
            2 => Just(Step::Pause),
            2 => Just(Step::Resume),
            2 => Just(Step::Timeout),
            2 => Just(Step::Expire),
            1 => Just(Step::Sweep),
            1 => Just(Step::Cancel),
            1 => Just(Step::CancelRun),
            2 => Just(Step::Settle),
        ]
        .boxed()
    }

    fn apply(mut state: Model, step: &Step) -> Model {
        state.apply(step);
        state
    }
}

struct Product {
    fixture: Fixture,
    run: RunId,
    decision: DecisionId,
    created_at: i64,
    told: String,
}

impl Product {
    fn policy(
        result: Result<holdpoint_state::Receipt<holdpoint_decisions::Judged>, DecisionError>,
    ) -> String {
        match result {
            Ok(receipt) => said(&receipt.value),
            Err(DecisionError::State(StateError::InvalidTransition { .. })) => {
                "not allowed".to_owned()
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn answer(&self, road: Road, key: u8, response: u8, is_seen: bool) -> String {
        let (response, _) = responses(response);
        let request = views::request(&self.fixture.snapshot(), &self.decision)
            .unwrap()
            .unwrap();
        let seen = if is_seen {
            request.request_digest()
        } else {
            digest::DocumentDigest::of(&json!("another")).unwrap()
        };
        // Keys are of their channel, in the whole store.
        let key = format!("{}-{key}", self.decision);
        let channel = match road {
            Road::Session => {
                let answer = Answer::new(&self.decision, response, "ann")
                    .key(key)
                    .seeing(seen);
                return said(&commands::answer(self.fixture.db(), &answer).unwrap().value);
            }
            Road::Ops => "telegram:ops",
            Road::Other => "telegram:other",
        };
        let submission = Submission {
            decision_id: self.decision.clone(),
            request_digest: seen,
            response,
            source: Source::new(ChannelId::new(channel).unwrap(), "actor-100", key.as_str())
                .unwrap(),
            person: None,
            idempotency_key: key,
        };
        said(&self.fixture.submit(&submission).unwrap())
    }
}

impl StateMachineTest for Product {
    type SystemUnderTest = Self;
    type Reference = Machine;

    fn init_test(model: &Model) -> Self {
        let fixture = Fixture::new();
        let (run, decision) = match model.kind {
            Kind::Unlimited => fixture.ask(draft),
            Kind::Automatic => fixture.ask(timed),
            Kind::Expiring => fixture.ask(expiring),
        };
        let created_at = views::request(&fixture.snapshot(), &decision)
            .unwrap()
            .unwrap()
            .created_at()
            .0;
        Self {
            fixture,
            run,
            decision,
            created_at,
            told: String::new(),
        }
    }

    fn apply(mut product: Self, _: &Model, step: Step) -> Self {
        let (fixture, decision) = (&product.fixture, &product.decision);
        let by = owner();
        let right = OwnerRight::Taking(&by);
        product.told = match step {
            Step::Answer {
                road,
                key,
                response,
                is_seen,
            } => product.answer(road, key, response, is_seen),
            Step::Clock(now) => {
                fixture.store.clock().set_wall(product.created_at + now);
                String::new()
            }
            // Whether a run can be paused or resumed is the business of workflows.
            Step::Pause => {
                drop(fixture.workflows.pause(&Control::of(&product.run)));
                String::new()
            }
            Step::Resume => {
                drop(fixture.workflows.resume(&Control::of(&product.run)));
                String::new()
            }
            Step::Timeout => Self::policy(commands::timeout(fixture.db(), decision, right)),
            Step::Expire => Self::policy(commands::expire(fixture.db(), decision, right)),
            Step::Sweep => {
                let swept = commands::sweep(fixture.db(), fixture.now()).unwrap();
                assert!(swept.skipped.is_empty());
                format!("swept {}", swept.resolved.len())
            }
            Step::Cancel => said(
                &commands::cancel(fixture.db(), &Cancel::of(decision).leaving_the_run())
                    .unwrap()
                    .value,
            ),
            Step::CancelRun => {
                drop(fixture.workflows.cancel(&Control::of(&product.run)));
                String::new()
            }
            Step::Settle => {
                fixture.settle_effects();
                String::new()
            }
        };
        product
    }

    fn check_invariants(product: &Self, model: &Model) {
        assert_eq!(product.told, model.told);
        let fixture = &product.fixture;
        assert_eq!(fixture.rows(&product.decision), model.rows);
        let view = views::fetch(&fixture.snapshot(), &product.decision, fixture.now())
            .unwrap()
            .unwrap();
        assert_eq!(
            view.resolution
                .as_ref()
                .map(|resolution| resolution.provenance().as_str()),
            model.winner
        );
        let status = match model.winner {
            Some("explicit_cancel" | "expired_no_default") => "cancelled",
            Some(_) if model.is_over => "accepted",
            // Whether a runner takes it up is not of this model.
            Some(_) => view.status.as_str(),
            None if model.is_due() => "overdue",
            None => "open",
        };
        assert_eq!(view.status.as_str(), status);
        let run = fixture.workflows.view(&product.run).unwrap();
        assert_eq!(run.finished_at.is_some(), model.is_over);
        assert_eq!(fixture.violations(), Vec::<String>::new());
    }
}
