//! A store, a workflow that asks, and the verbs that children are told to use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_decisions::commands::{self, Answer, Cancel};
use holdpoint_decisions::model::{
    ChannelId, Choice, Choices, Draft, OnTimeout, Presentation, Request, Source, Submission,
    TextInput,
};
use holdpoint_decisions::{DOMAIN, DecisionError, DecisionId, views};
use holdpoint_state::clock::{ManualClock, UnixMillis};
use holdpoint_state::testing::counter;
use holdpoint_state::{
    Actor, Claim, Command, Database, Identity, Options, Outcome, Owner, OwnerKind, Schema,
    StateError,
};
use holdpoint_workflows::commands::{Control, OwnerRight};
use holdpoint_workflows::definition::{
    Asked, CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Waiting,
    Workflow,
};
use holdpoint_workflows::model::{RunStatus, resource};
use holdpoint_workflows::{RunId, SchedulerOptions, WorkflowError, Workflows};
use serde_json::{Value, json};

use crate::said::said;

pub(crate) const LONG: Duration = Duration::from_mins(1);
/// When the clocks of a race begin.
pub(crate) const START: i64 = 1_767_225_600_000;
/// How long after its creation a decision is due.
pub(crate) const AFTER_MS: i64 = 600_000;
/// How long a lease that a process holds by hand lasts, in milliseconds.
pub(crate) const LEASE_MS: i64 = 1_000;

pub(crate) fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [
            holdpoint_state::DOMAIN,
            holdpoint_workflows::DOMAIN,
            DOMAIN,
            counter::DOMAIN,
        ],
    )
    .unwrap()
}

/// Opens the store with a clock that this process turns.
pub(crate) fn open(path: &Path, clock: &ManualClock) -> Database {
    let options = Options {
        busy_timeout_ms: 60_000,
        check_integrity: false,
        clock: Arc::new(clock.clone()),
        ..Options::default()
    };
    Database::open_with(path, &schema(), options).unwrap()
}

/// A store in a temporary directory.
pub(crate) struct Home {
    _directory: tempfile::TempDir,
    pub(crate) store: PathBuf,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("state.sqlite");
        let db = open(&store, &ManualClock::at(START));
        counter::create(&db, "cursor").unwrap();
        db.close();
        Self {
            _directory: directory,
            store,
        }
    }
}

/// Which deadline a workflow's decision has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unlimited,
    Automatic,
    Expiring,
    /// Without a deadline, and `redo` leads back to the question.
    Looping,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::Unlimited,
        Self::Automatic,
        Self::Expiring,
        Self::Looping,
    ];
}

struct Gate(Kind);

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "test": format!("{:?}", self.0) })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        let kind = self.0;
        Ok(NodeStep::Park(
            Park::new(json!({}))
                .decision()
                .asking(move |waiting| {
                    let request =
                        Request::new(draft(kind, waiting)).map_err(DecisionError::from)?;
                    Ok(Asked {
                        request_id: request.decision_id().to_string(),
                        contract: request.document(),
                    })
                })
                .beside(|change, parked| {
                    let request = Request::read(&parked.contract).map_err(|problem| {
                        WorkflowError::Input {
                            what: "request",
                            problem: format!("{problem:?}"),
                        }
                    })?;
                    commands::request_in(change, &request, parked)?;
                    Ok(())
                }),
        ))
    }
}

fn draft(kind: Kind, waiting: &Waiting<'_>) -> Draft {
    Draft {
        run_id: waiting.run_id.to_string(),
        workflow_name: waiting.workflow.to_owned(),
        node_id: waiting.node_id.to_string(),
        attempt_id: waiting.attempt_id.to_string(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: Choices::new([
            ("go", Choice::new("Go")),
            (
                "redo",
                Choice::new("Redo").with_text(TextInput::new("why", "What?")),
            ),
        ])
        .unwrap(),
        subject: json!({ "plan": "a" }),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: (kind == Kind::Automatic).then(|| OnTimeout {
            after_ms: 600_000.0,
            response: json!({ "choice": "go" }),
        }),
        expires_at: (kind == Kind::Expiring).then(|| waiting.now.plus(AFTER_MS)),
        created_at: waiting.now,
    }
}

pub(crate) fn definition(kind: Kind) -> Definition {
    let gated = Workflow::new(format!("gated-{}", format!("{kind:?}").to_lowercase()))
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate(kind)))
        .compute("end", |ctx| ctx.output::<Value>("gate"));
    let routed = if kind == Kind::Looping {
        gated
            .compute("again", |ctx| ctx.output::<Value>("gate"))
            .switch("gate", "$.choice", [("go", "end"), ("redo", "again")])
            .edge("again", "gate")
    } else {
        gated.edge("gate", "end")
    };
    routed.build().unwrap()
}

/// What a process works with.
pub(crate) struct World {
    pub(crate) workflows: Workflows,
    pub(crate) clock: ManualClock,
    /// A lease that this process took and may have lost.
    held: Mutex<Option<Claim>>,
}

impl World {
    pub(crate) fn open(store: &Path) -> Self {
        let clock = ManualClock::at(START);
        let workflows = Workflows::new(open(store, &clock));
        for kind in Kind::ALL {
            workflows.register(&definition(kind));
        }
        Self {
            workflows,
            clock,
            held: Mutex::new(None),
        }
    }

    pub(crate) fn db(&self) -> &Database {
        self.workflows.database()
    }

    pub(crate) fn scheduler(&self) -> holdpoint_workflows::Scheduler {
        self.workflows
            .scheduler(SchedulerOptions {
                workers: 2,
                poll_interval_ms: 20,
                ..SchedulerOptions::default()
            })
            .unwrap()
    }

    /// Starts so many runs and says what each asks.
    pub(crate) fn ask(&self, kind: Kind, count: usize) -> Vec<(RunId, DecisionId)> {
        let definition = definition(kind);
        let scheduler = self.scheduler();
        let runs: Vec<RunId> = (0..count)
            .map(|_| self.workflows.run(&definition, json!({})).unwrap())
            .collect();
        let asked = runs
            .into_iter()
            .map(|run| {
                let view = self.workflows.wait(&run, LONG).unwrap();
                let decision = DecisionId::new(view.request.unwrap().request_id).unwrap();
                (run, decision)
            })
            .collect();
        scheduler.stop(LONG);
        asked
    }

    /// Does what the words say, and says what came of it.
    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each verb, most of them one command"
    )]
    pub(crate) fn act(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let (verb, rest) = words.split_first().unwrap();
        let id = |text: &str| DecisionId::new(text).unwrap();
        let owner = Owner::new(OwnerKind::Host, "race");
        let policy = |result: Result<
            holdpoint_state::Receipt<holdpoint_decisions::Judged>,
            DecisionError,
        >| match result {
            Ok(receipt) => said(&receipt.value),
            Err(DecisionError::State(StateError::InvalidTransition { .. })) => {
                "not allowed".to_owned()
            }
            Err(DecisionError::State(StateError::LeaseHeld { .. })) => "held".to_owned(),
            Err(DecisionError::State(StateError::ClaimLost { .. })) => "claim lost".to_owned(),
            Err(error) => panic!("{error}"),
        };
        match (*verb, rest) {
            ("at", [millis]) => {
                self.clock.set_wall(START + millis.parse::<i64>().unwrap());
                "set".to_owned()
            }
            ("answer", [decision, key, choice]) => {
                let answer = Answer::new(&id(decision), response(choice), "ann").key(*key);
                said(&commands::answer(self.db(), &answer).unwrap().value)
            }
            ("submit", [decision, key, choice]) => {
                let submission = self.candidate(&id(decision), key, choice);
                let command = Command::new(&counter::ADD, counter::resource("cursor"))
                    .by(Actor::host("channels"));
                let judged = self.db().commit(command, move |change| {
                    let judged = commands::submit_in(change, &submission)?;
                    counter::increase(change, 1)?;
                    Ok::<_, DecisionError>(Outcome::Accepted(judged.value))
                });
                said(&judged.unwrap().value)
            }
            ("timeout", [decision]) => policy(commands::timeout(
                self.db(),
                &id(decision),
                OwnerRight::Taking(&owner),
            )),
            ("hold", [run]) => {
                let run = resource(&RunId::new(run).unwrap());
                let claimed = self
                    .db()
                    .claim(run, Actor::host("race"), &owner, LEASE_MS)
                    .unwrap();
                let generation = claimed.generation();
                *self.held() = Some(claimed);
                format!("generation {generation}")
            }
            ("timeout-holding", [decision]) => {
                let held = self.held();
                let claim = held.as_ref().unwrap();
                policy(commands::timeout(
                    self.db(),
                    &id(decision),
                    OwnerRight::Holding(claim),
                ))
            }
            ("release", []) => {
                let claim = self.held().take().unwrap();
                self.db().release(claim, Actor::host("race")).unwrap();
                "released".to_owned()
            }
            ("insist", [run, old, key]) => self.insist(&RunId::new(run).unwrap(), &id(old), key),
            ("turn", [run]) => {
                let run = RunId::new(run).unwrap();
                let scheduler = self.scheduler();
                self.workflows.offer(&run);
                let view = self.workflows.wait(&run, LONG).unwrap();
                scheduler.stop(LONG);
                view.request.unwrap().request_id
            }
            ("expire", [decision]) => policy(commands::expire(
                self.db(),
                &id(decision),
                OwnerRight::Taking(&owner),
            )),
            ("sweep", []) => {
                let now = holdpoint_state::clock::Clock::now(&self.clock);
                format!(
                    "swept {}",
                    commands::sweep(self.db(), now).unwrap().resolved.len()
                )
            }
            ("cancel", [decision]) => said(
                &commands::cancel(self.db(), &Cancel::of(&id(decision)))
                    .unwrap()
                    .value,
            ),
            ("cancel-run", [run]) => match self
                .workflows
                .cancel(&Control::of(&RunId::new(run).unwrap()))
            {
                Ok(_) => "run cancelled".to_owned(),
                Err(error) => panic!("{error}"),
            },
            ("live", [kind]) => crate::crashes::live(self, kind),
            ("resume", [run]) => {
                let run = RunId::new(run).unwrap();
                let scheduler = self.scheduler();
                self.workflows.offer(&run);
                let view = self.workflows.wait(&run, LONG).unwrap();
                scheduler.stop(LONG);
                assert_eq!(view.status, RunStatus::Completed);
                view.final_output
                    .unwrap()
                    .get("choice")
                    .unwrap()
                    .as_str()
                    .unwrap()
                    .to_owned()
            }
            _ => panic!("what is {words:?}?"),
        }
    }

    fn held(&self) -> MutexGuard<'_, Option<Claim>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers whatever the run asks now as one who saw what it asked before, again and again, until that is something else. What all
    /// of these answers came to, each word once.
    fn insist(&self, run: &RunId, old: &DecisionId, key: &str) -> String {
        let saw = views::request(&self.db().snapshot().unwrap(), old)
            .unwrap()
            .unwrap()
            .request_digest();
        let mut told = Vec::new();
        for time in 0.. {
            let asked = self.workflows.view(run).unwrap().request;
            let decision = asked.map_or_else(
                || old.clone(),
                |asked| DecisionId::new(asked.request_id).unwrap(),
            );
            let answer = Answer::new(&decision, response("go"), "ann")
                .of_run(run.to_string())
                .seeing(saw)
                .key(format!("{key}-{time}"));
            let word = said(&commands::answer(self.db(), &answer).unwrap().value);
            if told.last() != Some(&word) {
                told.push(word);
            }
            if decision != *old {
                break;
            }
        }
        told.join(", ")
    }

    fn candidate(&self, decision: &DecisionId, key: &str, choice: &str) -> Submission {
        let request = views::request(&self.db().snapshot().unwrap(), decision)
            .unwrap()
            .unwrap();
        Submission {
            decision_id: decision.clone(),
            request_digest: request.request_digest(),
            response: response(choice),
            source: Source::new(ChannelId::new("telegram:ops").unwrap(), "actor-100", key).unwrap(),
            idempotency_key: key.to_owned(),
            person: None,
        }
    }

    /// Applies what follows from resolutions.
    pub(crate) fn settle(&self) {
        let worker = holdpoint_decisions::effects::worker(
            self.db().clone(),
            holdpoint_state::effects::WorkerOptions::default(),
        );
        let worker = worker.unwrap();
        while 0 < worker.run_due_once().unwrap().applied {}
    }

    pub(crate) fn one(&self, sql: &'static str) -> i64 {
        let snapshot = self.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    pub(crate) fn created_at(&self, decision: &DecisionId) -> UnixMillis {
        views::request(&self.db().snapshot().unwrap(), decision)
            .unwrap()
            .unwrap()
            .created_at()
    }

    pub(crate) fn verify(&self) {
        let report = self.db().verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

fn response(choice: &str) -> Value {
    match choice {
        "redo" => json!({ "choice": "redo", "input": { "why": "x" } }),
        other => json!({ "choice": other }),
    }
}
