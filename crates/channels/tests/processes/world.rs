//! A store with channels, and the verbs that children are told to use.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdpoint_channels::commands::start_host;
use holdpoint_channels::config::Config;
use holdpoint_channels::model::Relayed;
use holdpoint_channels::protocol::{AnswerOutcome, Order, SendState};
use holdpoint_channels::{ChannelId, DOMAIN, views};
use holdpoint_decisions::DecisionId;
use holdpoint_decisions::commands::{self, Answer, Cancel};
use holdpoint_decisions::model::{Conflict, Draft, Judged, Provenance, Rejection};
use holdpoint_decisions::views as decisions;
use holdpoint_state::clock::ManualClock;
use holdpoint_state::{Database, Identity, Options, Owner, OwnerKind, Schema};
use holdpoint_workflows::commands::{Control, OwnerRight};
use holdpoint_workflows::definition::Waiting;
use holdpoint_workflows::{RunId, SchedulerOptions, Workflows};
use serde_json::json;

use crate::support::{Adapter, Host, LONG, Showing, config, gated, go, message};

/// When the clocks begin.
pub(crate) const START: i64 = 1_767_225_600_000;
/// How long after its creation a decision with an automatic answer is due.
pub(crate) const AFTER_MS: i64 = 600_000;
/// The lease of a host: longer than any clock of these tests is turned while it lives.
pub(crate) const LEASE_MS: i64 = 86_400_000;
/// Where the update with the answer of a life stands, and what names it.
pub(crate) const CURSOR: u64 = 5;
const EVENT: &str = "cb-1";

fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [
            holdpoint_state::DOMAIN,
            holdpoint_workflows::DOMAIN,
            holdpoint_decisions::DOMAIN,
            DOMAIN,
        ],
    )
    .unwrap()
}

/// A store and a configuration of the profiles `dev` and `ops` in a temporary directory.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self::with(&["dev", "ops"])
    }

    pub(crate) fn with(profiles: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let profiles: Vec<(&str, &[&str])> = profiles
            .iter()
            .map(|profile| (*profile, ["200"].as_slice()))
            .collect();
        config(directory.path(), &profiles);
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// What a process works with.
pub(crate) struct World {
    pub(crate) workflows: Workflows,
    pub(crate) clock: ManualClock,
    config: Config,
    home: PathBuf,
}

impl World {
    pub(crate) fn open(home: &Path) -> Self {
        let clock = ManualClock::at(START);
        let options = Options {
            busy_timeout_ms: 60_000,
            check_integrity: false,
            clock: Arc::new(clock.clone()),
            ..Options::default()
        };
        let db = Database::open_with(home.join("state.sqlite"), &schema(), options).unwrap();
        Self {
            workflows: Workflows::new(db),
            clock,
            config: Config::load(&home.join("config")).unwrap(),
            home: home.to_owned(),
        }
    }

    pub(crate) fn db(&self) -> &Database {
        self.workflows.database()
    }

    /// Starts so many runs and says what each asks.
    pub(crate) fn ask(
        &self,
        drafting: fn(&Waiting<'_>) -> Draft,
        count: usize,
    ) -> Vec<(RunId, DecisionId)> {
        let definition = gated(drafting);
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

    /// Lets a run go on to its end, which is this status.
    pub(crate) fn finish(&self, run: &RunId) -> &'static str {
        let scheduler = self.scheduler();
        self.workflows.offer(run);
        let view = self.workflows.wait(run, LONG).unwrap();
        scheduler.stop(LONG);
        view.status.as_str()
    }

    fn scheduler(&self) -> holdpoint_workflows::Scheduler {
        self.workflows
            .scheduler(SchedulerOptions {
                workers: 2,
                poll_interval_ms: 20,
                ..SchedulerOptions::default()
            })
            .unwrap()
    }

    /// Takes a profile.
    pub(crate) fn host(&self, profile: &str) -> Host<'_> {
        let channel = ChannelId::telegram(profile).unwrap();
        let owner = Owner::new(OwnerKind::Host, &format!("host-{}", std::process::id()));
        Host {
            db: self.db(),
            claim: start_host(self.db(), &channel, &owner, LEASE_MS).unwrap(),
            channel,
            profile: self.config.profile(profile).unwrap().clone(),
            config: &self.config,
        }
    }

    /// Does what the words say, and says what came of it.
    pub(crate) fn act(&self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        let id = |text: &str| DecisionId::new(text).unwrap();
        let owner = Owner::new(OwnerKind::Host, "race");
        match words.as_slice() {
            ["at", millis] => {
                self.clock.set_wall(START + millis.parse::<i64>().unwrap());
                "set".to_owned()
            }
            ["answer", decision, key, choice] => {
                let response = match *choice {
                    "redo" => json!({ "choice": "redo", "input": { "why": "x" } }),
                    plain => json!({ "choice": plain }),
                };
                let answer = Answer::new(&id(decision), response, "ann").key(*key);
                said(&commands::answer(self.db(), &answer).unwrap().value)
            }
            ["timeout", decision] => said(
                &commands::timeout(self.db(), &id(decision), OwnerRight::Taking(&owner))
                    .unwrap()
                    .value,
            ),
            ["cancel", decision] => said(
                &commands::cancel(self.db(), &Cancel::of(&id(decision)))
                    .unwrap()
                    .value,
            ),
            ["cancel-run", run] => {
                let control = Control::of(&RunId::new(run).unwrap());
                self.workflows.cancel(&control).unwrap();
                "run cancelled".to_owned()
            }
            _ => panic!("what is {words:?}?"),
        }
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

    /// The status of the newest effect of this type, or none.
    pub(crate) fn effect(&self, effect_type: &str) -> Option<String> {
        let snapshot = self.db().snapshot().unwrap();
        let sql = snapshot.sql();
        let mut statement = sql
            .prepare_cached("SELECT status FROM effects WHERE effect_type = ?1")
            .unwrap();
        let mut rows = statement.query([effect_type]).unwrap();
        rows.next().unwrap().map(|row| row.get(0).unwrap())
    }

    pub(crate) fn cursor(&self, profile: &str) -> u64 {
        let channel = ChannelId::telegram(profile).unwrap();
        views::cursor(&self.db().snapshot().unwrap(), &channel)
            .unwrap()
            .unwrap_or(0)
    }

    /// Whose answer, if it is resolved: the provenance and the choice.
    pub(crate) fn winner(&self, decision: &DecisionId) -> Option<(Provenance, Option<String>)> {
        let resolved = decisions::resolved(&self.db().snapshot().unwrap(), decision).unwrap()?;
        let response = resolved.resolution.response();
        let choice = response.map(|response| response.choice().as_str().to_owned());
        Some((resolved.resolution.provenance(), choice))
    }

    /// What the provider did, line by line: it outlives every process.
    pub(crate) fn provided(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.home.join("provider")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn provide(&self, words: &str) {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.home.join("provider"))
            .unwrap();
        writeln!(file, "{words}").unwrap();
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

    pub(crate) fn verify(&self) {
        let report = self.db().verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// What a resolving command came to, in a few words.
fn said(judged: &Judged) -> String {
    match judged {
        Judged::Accepted { resolution } => format!("won {}", resolution.provenance()),
        Judged::Conflict {
            conflict: Conflict::Winner { resolution },
        }
        | Judged::Rejected {
            reason: Rejection::Cancelled { resolution },
        } => format!("lost to {}", resolution.provenance()),
        other => format!("{other:?}"),
    }
}

/// What an adapter is told of a press, in a few words.
pub(crate) fn told(relayed: Relayed) -> String {
    let of = |answer: Option<AnswerOutcome>| match answer {
        Some(AnswerOutcome::Received) => "received",
        Some(AnswerOutcome::AlreadyDecided) => "already decided",
        Some(AnswerOutcome::Expired) => "expired",
        Some(AnswerOutcome::Paused) => "paused",
        Some(AnswerOutcome::Requester | AnswerOutcome::UnknownPerson) => "another person",
        Some(AnswerOutcome::NotAccepted) => "not accepted",
        None => "nothing",
    };
    match relayed {
        Relayed::Taken { answer } => of(answer).to_owned(),
        Relayed::Repeated { answer } => format!("repeated, {}", of(answer)),
        Relayed::Rejected { reason } => reason.as_str().to_owned(),
    }
}

/// A host and the adapter that it plays.
pub(crate) struct Hosting<'a> {
    world: &'a World,
    pub(crate) adapter: Adapter<'a>,
    shown: BTreeMap<String, Showing>,
}

impl<'a> Hosting<'a> {
    pub(crate) fn new(world: &'a World, host: &'a Host<'a>) -> Self {
        Self {
            world,
            adapter: host.adapter(&format!("epoch-{}", std::process::id())),
            shown: BTreeMap::new(),
        }
    }

    pub(crate) fn act(&mut self, words: &str) -> String {
        let split: Vec<&str> = words.split(' ').collect();
        match split.as_slice() {
            ["work"] => {
                self.work();
                "done".to_owned()
            }
            ["press", decision, event, cursor] => {
                let showing = self.shown.get(*decision).unwrap();
                told(
                    self.adapter
                        .press(showing, &go(event, cursor.parse().unwrap())),
                )
            }
            ["live"] => self.live(),
            _ => self.world.act(words),
        }
    }

    /// Does what is to be done until nothing is but to read updates.
    pub(crate) fn work(&mut self) {
        loop {
            match self.adapter.ready() {
                Order::Present {
                    attempt_id,
                    request,
                    messages,
                    ..
                } => {
                    let mut showing = Showing {
                        attempt_id,
                        decision_id: request.decision_id.to_string(),
                        request_digest: request.request_digest.to_string(),
                        messages,
                    };
                    // What is confirmed is not sent again.
                    if showing.messages.is_empty() {
                        self.world.provide(&format!(
                            "sent {} {} {}",
                            showing.attempt_id, showing.decision_id, showing.request_digest
                        ));
                        self.adapter.part(&mut showing, message("200", 0, 0));
                    }
                    self.adapter.presented(&showing, SendState::Confirmed, None);
                    self.shown.insert(showing.decision_id.clone(), showing);
                }
                Order::Settle {
                    attempt_id,
                    request,
                    messages,
                    ..
                } => {
                    let settling = Showing {
                        attempt_id,
                        decision_id: request.decision_id.to_string(),
                        request_digest: request.request_digest.to_string(),
                        messages,
                    };
                    self.world
                        .provide(&format!("edited {}", settling.decision_id));
                    self.adapter.settled(&settling, SendState::Confirmed, None);
                }
                Order::Poll { .. } => return,
                Order::Identify => panic!("that is asked where processes are supervised"),
                Order::Stop => panic!("nobody stops it"),
            }
        }
    }

    /// The life of a channel: it shows what is asked, takes the answer, and settles what it showed.
    fn live(&mut self) -> String {
        self.work();
        let heard = self.press();
        self.work();
        heard
    }

    /// The person presses a button of the first message that the provider has.
    pub(crate) fn press(&mut self) -> String {
        let showing = self.sent();
        self.world.provide("pressed");
        told(self.adapter.press(&showing, &go(EVENT, CURSOR)))
    }

    /// The first message that the provider has, as the process that sent it knew it.
    pub(crate) fn sent(&self) -> Showing {
        let provided = self.world.provided();
        let words: Vec<&str> = provided[0].split(' ').collect();
        Showing {
            attempt_id: words[1].to_owned(),
            decision_id: words[2].to_owned(),
            request_digest: words[3].to_owned(),
            messages: vec![message("200", 0, 0)],
        }
    }
}
