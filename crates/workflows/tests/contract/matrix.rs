//! The run matrix as a state machine: random commands of two hosts and of people, by hand and without a scheduler, against a small
//! model of what each must do. After every step the model and the store say the same, the predicates of `verify` hold, the events
//! of the run have no gap, and a command that was refused has changed no row.
#![expect(
    clippy::indexing_slicing,
    reason = "there are two hosts, and `seen` has its parts"
)]

mod model;

use holdpoint_state::effects::{
    self, Decision, EffectAttempt, EffectStart, EffectState, Resolution, Settlement,
};
use holdpoint_state::sql::named_params;
use holdpoint_state::{
    Claim, Database, Disposition, NewEffect, Owner, OwnerKind, OwnerScope, Payload, Receipt,
    StateError,
};
use holdpoint_workflows::commands::{
    self, Answer, Ask, Claimed, Claiming, Control, FinishedAttempt, ForeignClaim, Move, NewAttempt,
    Plan, Restart, Start,
};
use holdpoint_workflows::definition::{Definition, EffectSpec, Workflow};
use holdpoint_workflows::model::{RequestKind, TerminalStatus, resource};
use holdpoint_workflows::routing::{NodeOutcome, NodeResult};
use holdpoint_workflows::{AttemptId, NodeId, RunId, WorkflowError};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use self::model::{LEASE_MS, Model, Op, Outcome, Request};
use crate::support::{Fixture, attempt, person};

/// `compute`, `act` and `ask` in a circle, until the answer is not "again".
fn definition() -> Definition {
    Workflow::new("circle")
        .start_at("compute")
        .max_steps(1_000)
        .compute("compute", |_| Ok(1))
        .action("act", EffectSpec::manual("test.act"), |_| Ok(2))
        .checkpoint("ask")
        .compute("end", |_| Ok(3))
        .edge("compute", "act")
        .edge("act", "ask")
        .switch(
            "ask",
            "$output.next",
            [("again", "compute"), ("end", "end")],
        )
        .build()
        .unwrap()
}

/// What a host holds of the run; it may be stale.
struct Held {
    claim: Claim,
    attempt: AttemptId,
    node: String,
    started_at: i64,
    visit: u32,
    acting: Option<EffectAttempt>,
}

struct Machine {
    fixture: Fixture,
    definition: Definition,
    run: RunId,
    hosts: [Owner; 2],
    held: [Option<Held>; 2],
    model: Model,
    attempts: u32,
    /// The attempt that waits for an answer, and when it began.
    asked: Option<(AttemptId, i64)>,
    child: Option<RunId>,
}

impl Machine {
    fn new() -> Self {
        let fixture = Fixture::new();
        let definition = definition();
        let start = Start::new(&definition, json!({}));
        let run = commands::start(fixture.store.db(), &start).unwrap().value;
        Self {
            fixture,
            definition,
            run,
            hosts: [
                Owner::new(OwnerKind::Host, "one"),
                Owner::new(OwnerKind::Host, "two"),
            ],
            held: [None, None],
            model: Model::new(),
            attempts: 0,
            asked: None,
            child: None,
        }
    }

    fn new_attempt(&mut self, node: &str, visit: u32) -> NewAttempt {
        self.attempts += 1;
        let mut attempt = attempt(node, &format!("attempt-{}", self.attempts));
        attempt.visit = visit;
        if node == "act" {
            attempt.effect = Some(NewEffect::new(
                "test.act",
                format!("act-{visit}"),
                OwnerScope::Run,
                Payload::json(&json!({ "recovery": "manual", "request": visit })).unwrap(),
            ));
        }
        attempt
    }

    /// The end of an attempt, as its runner would propose it.
    fn finished(
        &self,
        (attempt, node, started_at): (&AttemptId, &str, i64),
        outcome: NodeOutcome,
        output: Value,
    ) -> FinishedAttempt {
        let now = self.fixture.store.db().clock().now().0;
        let result = NodeResult {
            attempt_id: attempt.clone(),
            node_id: NodeId::new(node).unwrap(),
            node_type: model::node_type(node).to_owned(),
            outcome,
            started_at,
            finished_at: now,
            duration_ms: now - started_at,
            output: (outcome == NodeOutcome::Ok).then_some(output),
            error: (outcome != NodeOutcome::Ok).then(|| "Error: no".to_owned()),
            receipt: None,
        };
        FinishedAttempt::new(result, None).unwrap()
    }

    /// What goes on in the ordinary way, so that random histories get somewhere: whoever owns the run steps, else somebody takes it,
    /// answers, looks at the effect, or resumes.
    fn ordinary(&self) -> Op {
        let now = self.fixture.store.db().clock().now().0;
        self.model.ordinary(now)
    }

    fn apply(&mut self, op: &Op) {
        if *op == Op::Ordinary {
            return self.apply(&self.ordinary());
        }
        let before = self.fixture.rows();
        let now = self.fixture.store.db().clock().now().0;
        let expected = self.model.expect(op, now, self.child.is_some());
        let outcome = match op {
            Op::Claim(host) => self.claim(*host),
            Op::Step(host) => self.step(*host, NodeOutcome::Ok),
            Op::Fail(host) => self.step(*host, NodeOutcome::Failed),
            Op::TimeOut(host) => self.step(*host, NodeOutcome::TimedOut),
            Op::Stray(host) => self.stray(*host),
            Op::HandOver(host) => self.with_claim(*host, commands::hand_over),
            Op::GiveUp(host) => {
                self.with_claim(*host, |db, claim| commands::give_up(db, claim, "no way"))
            }
            Op::SourceChanged => {
                let revision = self.revision();
                word(commands::park_source_changed(
                    self.fixture.store.db(),
                    &self.run,
                    revision,
                    "edited",
                ))
            }
            Op::Answer(next) => {
                let answer = Answer::new(&self.run, json!({ "next": next })).by(person());
                word(commands::answer(self.fixture.store.db(), &answer))
            }
            Op::Pause { takes_over } => word(commands::pause(
                self.fixture.store.db(),
                &self.control(*takes_over),
            )),
            Op::Resume => word(commands::resume(
                self.fixture.store.db(),
                &self.control(false),
            )),
            Op::Cancel { takes_over } => word(commands::cancel(
                self.fixture.store.db(),
                &self.control(*takes_over),
            )),
            Op::Confirm => self.confirm(),
            Op::Restart => self.restart(),
            Op::Ordinary => unreachable!("it is one of the others"),
            Op::Wait(ms) => {
                self.fixture.store.clock().advance(*ms);
                Outcome::Done
            }
        };
        assert_eq!(outcome, expected, "{op:?} in {:?}", self.model);
        if outcome.is_refused() {
            assert_eq!(
                self.fixture.rows(),
                before,
                "{op:?} was {outcome:?} and changed rows"
            );
        } else {
            self.model.apply(op, now);
        }
        assert_eq!(self.seen(), self.model.seen(), "after {op:?}");
        assert_eq!(
            self.fixture.violations(),
            Vec::<String>::new(),
            "after {op:?}"
        );
        self.fixture.events(&self.run);
    }

    fn control(&self, takes_over: bool) -> Control {
        let control = Control::of(&self.run).by(person());
        if takes_over {
            control.foreign_claim(ForeignClaim::TakeOver)
        } else {
            control
        }
    }

    fn revision(&self) -> u64 {
        self.fixture.workflows.view(&self.run).unwrap().run_revision
    }

    fn claim(&mut self, host: usize) -> Outcome {
        let node = self.model.next_node();
        let visit = self.model.visit(&node);
        let next = Move::Start(self.new_attempt(&node, visit));
        let attempt = match &next {
            Move::Start(attempt) => attempt.attempt_id.clone(),
            _ => unreachable!(),
        };
        let revision = self.revision();
        let plan = match (self.model.status, self.model.request) {
            ("queued", _) => Plan::First { title: None, next },
            ("waiting", Some(Request::Settled)) => {
                let (attempt, started_at) = self.asked.clone().unwrap();
                let answer = json!({ "next": self.model.answer.unwrap() });
                let finished =
                    self.finished((&attempt, "ask", started_at), NodeOutcome::Ok, answer);
                Plan::Answered { finished, next }
            }
            _ => Plan::Again { next },
        };
        let claiming = Claiming {
            run: self.run.clone(),
            revision,
            owner: self.hosts[host].clone(),
            lease_ms: LEASE_MS,
            definition: self.definition.clone(),
            plan,
        };
        match commands::claim(self.fixture.store.db(), claiming) {
            Ok(receipt) => match receipt.value {
                Claimed::Owned { claim, advanced } => {
                    self.held[host] = Some(Held {
                        claim,
                        attempt,
                        node,
                        started_at: advanced.started_at.unwrap().0,
                        visit,
                        acting: acting(advanced.effect),
                    });
                    Outcome::Done
                }
                Claimed::Parked => Outcome::Parked,
                Claimed::Ended => Outcome::Ended,
            },
            Err(error) => refusal(&error),
        }
    }

    /// The host proposes the end of its attempt, with what follows.
    fn step(&mut self, host: usize, outcome: NodeOutcome) -> Outcome {
        let Some(held) = self.held[host].take() else {
            return Outcome::Nothing;
        };
        let db = self.fixture.store.db().clone();
        if held.node == "ask" && outcome == NodeOutcome::Ok {
            let ask = Ask::new(RequestKind::Checkpoint, json!({ "visit": held.visit }));
            let waited = commands::wait(&db, &held.claim, &held.attempt, ask);
            if waited.is_ok() {
                self.asked = Some((held.attempt.clone(), held.started_at));
            }
            self.held[host] = Some(held);
            return word(waited);
        }
        let node = model::after(&held.node);
        let next = match (outcome, node) {
            (NodeOutcome::Ok, Some(node)) => {
                // What the host knows may be stale, and so may be the number of the visit.
                let visit = self.model.visit(node);
                Move::Start(self.new_attempt(node, visit))
            }
            (NodeOutcome::Ok, None) => Move::Complete,
            (NodeOutcome::TimedOut, _) => Move::End(TerminalStatus::TimedOut, "late".to_owned()),
            _ => Move::End(TerminalStatus::Failed, "no".to_owned()),
        };
        let mut finished = self.finished(
            (&held.attempt, &held.node, held.started_at),
            outcome,
            json!(held.visit),
        );
        if let Some(acting) = &held.acting {
            let settlement = match outcome {
                NodeOutcome::Ok => Settlement::Applied {
                    result: None,
                    external_ref: None,
                },
                _ => Settlement::Rejected {
                    error: "no".to_owned(),
                },
            };
            finished = finished.settling(acting.clone(), settlement);
        }
        let advanced = commands::advance(
            &db,
            &held.claim,
            &self.definition,
            Some(finished),
            next.clone(),
        );
        match advanced {
            Ok(receipt) => {
                if let (Move::Start(begun), Some(started_at)) = (next, receipt.value.started_at) {
                    self.held[host] = Some(Held {
                        claim: held.claim,
                        attempt: begun.attempt_id,
                        node: begun.node_id.to_string(),
                        started_at: started_at.0,
                        visit: begun.visit,
                        acting: acting(receipt.value.effect),
                    });
                } else {
                    self.held[host] = Some(held);
                }
                Outcome::Done
            }
            Err(error) => {
                self.held[host] = Some(held);
                refusal(&error)
            }
        }
    }

    /// The host proposes what does not follow: another node than the route leads to.
    fn stray(&mut self, host: usize) -> Outcome {
        let Some(held) = &self.held[host] else {
            return Outcome::Nothing;
        };
        let finished = self.finished(
            (&held.attempt, &held.node, held.started_at),
            NodeOutcome::Ok,
            json!("a lie"),
        );
        let wrong = Move::Start(attempt(&held.node, "attempt-stray"));
        let claim = &held.claim;
        let db = self.fixture.store.db();
        word(commands::advance(
            db,
            claim,
            &self.definition,
            Some(finished),
            wrong,
        ))
    }

    fn with_claim(
        &self,
        host: usize,
        act: impl FnOnce(&Database, &Claim) -> Result<Receipt<()>, WorkflowError>,
    ) -> Outcome {
        match &self.held[host] {
            None => Outcome::Nothing,
            Some(held) => word(act(self.fixture.store.db(), &held.claim)),
        }
    }

    /// A person says that the ambiguous act was done.
    fn confirm(&self) -> Outcome {
        let ambiguous = {
            let snapshot = self.fixture.store.db().snapshot().unwrap();
            effects::of_source(&snapshot, &resource(&self.run))
                .unwrap()
                .into_iter()
                .find(|effect| effect.state == EffectState::Ambiguous)
        };
        let Some(effect) = ambiguous else {
            return Outcome::Nothing;
        };
        let receipt = Payload::json(&json!({ "output": 0, "receipt": null })).unwrap();
        let resolution = Resolution {
            effect_id: effect.effect_id,
            attempt_number: effect.attempts,
            expected_revision: effect.revision,
            idempotency_key: format!("confirm-{}", self.attempts),
            actor: person(),
            decision: Decision::Confirm {
                receipt: Some(receipt),
                external_ref: None,
            },
        };
        effects::resolve(self.fixture.store.db(), resolution).unwrap();
        Outcome::Done
    }

    fn restart(&mut self) -> Outcome {
        let restart = Restart::new(&self.run, self.revision());
        match commands::restart(self.fixture.store.db(), &restart) {
            Ok(receipt) if self.child.is_some() => {
                assert_eq!(self.child.as_ref(), Some(&receipt.value), "a second child");
                assert_eq!(receipt.disposition, Disposition::Adopted);
                Outcome::Adopted
            }
            Ok(receipt) => {
                self.child = Some(receipt.value);
                Outcome::Done
            }
            Err(error) => refusal(&error),
        }
    }

    /// What the store says, in the words of the model.
    fn seen(&self) -> Value {
        let snapshot = self.fixture.store.db().snapshot().unwrap();
        let text: String = snapshot
            .sql()
            .prepare_cached(
                "SELECT json_array(r.status, q.status, r.paused, q.error_code, r.finished_at IS NOT NULL,
                     (SELECT json_array(node_id, status) FROM node_attempts a WHERE a.run_key = r.resource_key
                         AND (status = 'pending' OR status = 'running' OR status = 'waiting')),
                     (SELECT status FROM interactive_requests i WHERE i.run_key = r.resource_key AND consumed_at IS NULL
                         AND status <> 'cancelled'),
                     (SELECT count(*) FROM run_steps s WHERE s.run_key = r.resource_key),
                     (SELECT status FROM effects e WHERE e.source_key = r.resource_key
                         AND (status = 'applying' OR status = 'ambiguous' OR status = 'pending')))
                 FROM runs r JOIN run_queue q ON q.run_key = r.resource_key WHERE r.run_id = :run",
            )
            .unwrap()
            .query_row(named_params! { ":run": self.run }, |row| row.get(0))
            .unwrap();
        let mut seen: Value = serde_json::from_str(&text).unwrap();
        // SQLite gives the inner array as text.
        if let Some(attempt) = seen[5].as_str() {
            seen[5] = serde_json::from_str(attempt).unwrap();
        }
        seen
    }
}

fn acting(effect: Option<EffectStart>) -> Option<EffectAttempt> {
    match effect {
        Some(EffectStart::Execute(attempt)) => Some(attempt),
        _ => None,
    }
}

fn word<T>(result: Result<Receipt<T>, WorkflowError>) -> Outcome {
    match result {
        Ok(receipt) if receipt.disposition == Disposition::Adopted => Outcome::Adopted,
        Ok(_) => Outcome::Done,
        Err(error) => refusal(&error),
    }
}

fn refusal(error: &WorkflowError) -> Outcome {
    match error {
        WorkflowError::State(StateError::LeaseHeld { .. }) => Outcome::Held,
        WorkflowError::State(StateError::ClaimLost { .. }) => Outcome::Lost,
        WorkflowError::Rejected { .. } => Outcome::Rejected,
        WorkflowError::Conflict { .. } => Outcome::Conflict,
        WorkflowError::Transition { .. } => Outcome::Transition,
        other => panic!("{other}"),
    }
}

fn op() -> impl Strategy<Value = Op> {
    let host = 0..2_usize;
    prop_oneof![
        30 => Just(Op::Ordinary),
        4 => host.clone().prop_map(Op::Claim),
        2 => host.clone().prop_map(Op::Step),
        1 => host.clone().prop_map(Op::Fail),
        1 => host.clone().prop_map(Op::TimeOut),
        1 => host.clone().prop_map(Op::Stray),
        1 => host.clone().prop_map(Op::HandOver),
        1 => host.prop_map(Op::GiveUp),
        1 => Just(Op::SourceChanged),
        2 => prop_oneof![3 => Just("again"), 1 => Just("end")].prop_map(Op::Answer),
        2 => any::<bool>().prop_map(|takes_over| Op::Pause { takes_over }),
        2 => Just(Op::Resume),
        1 => any::<bool>().prop_map(|takes_over| Op::Cancel { takes_over }),
        2 => Just(Op::Confirm),
        1 => Just(Op::Restart),
        2 => prop_oneof![Just(1), Just(LEASE_MS.unsigned_abs() - 1), Just(LEASE_MS.unsigned_abs())].prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn random_commands_keep_the_run_matrix(ops in vec(op(), 1..100)) {
        let mut machine = Machine::new();
        for op in &ops {
            machine.apply(op);
        }
    }
}

/// How many random histories; a nightly run asks for more.
fn cases() -> u32 {
    std::env::var("HOLDPOINT_MATRIX_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(24)
}
