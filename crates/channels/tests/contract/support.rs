//! What the tests share: a store whose invariants are checked when the test ends, a workflow that asks, and an adapter that a test plays.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use holdpoint_channels::commands::{self, Session};
use holdpoint_channels::config::{Config, Profile};
use holdpoint_channels::identity::{answer_id, part_id, signal_id};
use holdpoint_channels::model::{RejectReason, Relayed};
use holdpoint_channels::protocol::{
    AnswerOutcome, AnswerReport, ErrorCode, FromAdapter, MessageRef, Order, PresentReport, Report,
    Response, SendState, SettleReport, Token,
};
use holdpoint_channels::{ChannelId, DOMAIN};
use holdpoint_decisions::commands::Answer;
use holdpoint_decisions::model::{
    Choice, Choices, Draft, Judged, OnTimeout, Presentation, Request, TextInput,
};
use holdpoint_decisions::{DecisionError, DecisionId};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Claim, Database, Owner, OwnerKind};
use holdpoint_workflows::definition::{
    Asked, CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Waiting,
    Workflow,
};
use holdpoint_workflows::{RunId, SchedulerOptions, WorkflowError, Workflows};
use serde_json::{Value, json};

/// The longest that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_mins(1);
/// The lease of a host, in milliseconds.
pub(crate) const LEASE_MS: i64 = 30_000;
/// The user that may answer.
pub(crate) const USER: &str = "100";

/// A node that asks one decision.
struct Gate(fn(&Waiting<'_>) -> Draft);

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "test": "gate" })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        let drafting = self.0;
        Ok(NodeStep::Park(
            Park::new(json!({}))
                .decision()
                .asking(move |waiting| {
                    let request = Request::new(drafting(waiting)).map_err(DecisionError::from)?;
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
                    holdpoint_decisions::commands::request_in(change, &request, parked)?;
                    Ok(())
                }),
        ))
    }
}

/// What the tests ask: `go`, or `redo` with a text.
pub(crate) fn draft(waiting: &Waiting<'_>) -> Draft {
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
        subject: json!({ "plan": "secret-subject" }),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: waiting.now,
    }
}

/// The same with an automatic answer after ten minutes.
pub(crate) fn timed(waiting: &Waiting<'_>) -> Draft {
    let on_timeout = OnTimeout {
        after_ms: 600_000.0,
        response: json!({ "choice": "go" }),
    };
    Draft {
        on_timeout: Some(on_timeout),
        ..draft(waiting)
    }
}

pub(crate) fn gated(drafting: fn(&Waiting<'_>) -> Draft) -> Definition {
    Workflow::new("gated")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate(drafting)))
        .compute("end", |ctx| ctx.output::<Value>("gate"))
        .edge("gate", "end")
        .build()
        .unwrap()
}

/// A store with workflows, decisions and channels. When it is dropped, everything that `verify` checks must hold.
pub(crate) struct Fixture {
    pub(crate) workflows: Workflows,
    pub(crate) store: TestStore,
    pub(crate) config: Config,
    places: Mutex<Vec<tempfile::TempDir>>,
}

impl Fixture {
    /// With one profile `ops`, whose chats are these.
    pub(crate) fn with_chats(chats: &[&str]) -> Self {
        let store = TestStore::new([
            holdpoint_workflows::DOMAIN,
            holdpoint_decisions::DOMAIN,
            DOMAIN,
        ])
        .unwrap();
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path(), &[("ops", chats)]);
        Self {
            workflows: Workflows::new(store.db().clone()),
            store,
            config,
            places: Mutex::new(vec![place]),
        }
    }

    pub(crate) fn new() -> Self {
        Self::with_chats(&["200"])
    }

    pub(crate) fn db(&self) -> &Database {
        self.store.db()
    }

    /// Starts a run that asks, and says what.
    pub(crate) fn ask(&self, drafting: fn(&Waiting<'_>) -> Draft) -> (RunId, DecisionId) {
        let run = self.workflows.run(&gated(drafting), json!({})).unwrap();
        self.go_on(&run);
        let request = self.workflows.view(&run).unwrap().request.unwrap();
        (run, DecisionId::new(request.request_id).unwrap())
    }

    /// Lets a run go on until it waits or is over.
    pub(crate) fn go_on(&self, run: &RunId) -> Value {
        let options = SchedulerOptions {
            workers: 1,
            poll_interval_ms: 50,
            ..SchedulerOptions::default()
        };
        let scheduler = self.workflows.scheduler(options).unwrap();
        let view = self.workflows.wait(run, LONG).unwrap();
        scheduler.stop(LONG);
        json!({ "status": view.status.as_str(), "output": view.outputs.get("end").cloned() })
    }

    /// A person answers at the session of the run.
    pub(crate) fn answer_locally(&self, decision: &DecisionId, choice: &str) -> Judged {
        let answer = Answer::new(decision, json!({ "choice": choice }), "ann");
        holdpoint_decisions::commands::answer(self.db(), &answer)
            .unwrap()
            .value
    }

    /// A host that takes the profile, and its first adapter.
    pub(crate) fn host(&self) -> Host<'_> {
        self.host_of("ops")
    }

    pub(crate) fn host_of(&self, profile: &str) -> Host<'_> {
        let channel = ChannelId::telegram(profile).unwrap();
        let owner = Owner::new(OwnerKind::Host, "host");
        let claim = commands::start_host(self.db(), &channel, &owner, LEASE_MS).unwrap();
        Host {
            db: self.db(),
            channel,
            profile: self.config.profile(profile).unwrap().clone(),
            claim,
            config: &self.config,
        }
    }

    /// Where the configuration lies.
    pub(crate) fn directory(&self) -> std::path::PathBuf {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)[0]
            .path()
            .join("config")
    }

    /// One number of the database.
    pub(crate) fn count(&self, sql: &'static str) -> i64 {
        let snapshot = self.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    /// How many rows there are in all.
    pub(crate) fn rows(&self) -> i64 {
        self.count(
            "SELECT (SELECT count(*) FROM events) + (SELECT count(*) FROM blobs) + (SELECT count(*) FROM channel_inbox)
                 + (SELECT count(*) FROM channel_messages) + (SELECT count(*) FROM channel_cursors) + (SELECT count(*) FROM resources)",
        )
    }

    /// The states of the effects of channels, in the order of their creation.
    pub(crate) fn effects(&self) -> Vec<String> {
        let snapshot = self.db().snapshot().unwrap();
        let sql = snapshot.sql();
        let mut statement = sql
            .prepare_cached(
                "SELECT effect_type || ' ' || status || ' ' || attempt_count FROM effects WHERE owner_scope = 'channel'
                 ORDER BY resource_key",
            )
            .unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        let snapshot = self.db().snapshot().unwrap();
        let mut found = Vec::new();
        for domain in self.store.schema().domains() {
            for invariant in domain.invariants {
                let sql = snapshot.sql();
                let mut statement = sql.prepare_cached(invariant.violations).unwrap();
                let mut rows = statement.query([]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    let name: Result<String, _> = row.get(0);
                    found.push(format!("{}: {name:?}", invariant.name));
                }
            }
        }
        found
    }

    /// Another configuration, for a host that reads it anew.
    pub(crate) fn config_of(&self, profiles: &[(&str, &[&str])]) -> Config {
        let place = tempfile::tempdir().unwrap();
        let config = config(place.path(), profiles);
        self.places
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(place);
        config
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.violations(), Vec::<String>::new());
        }
    }
}

/// A real configuration, read from real files.
pub(crate) fn config(home: &std::path::Path, profiles: &[(&str, &[&str])]) -> Config {
    use holdpoint_channels::config::Setup;
    use std::os::unix::fs::PermissionsExt as _;
    let directory = home.join("config");
    for (profile, chats) in profiles {
        let token_file = home.join(format!("token-{profile}"));
        std::fs::write(&token_file, format!("1:secret-{profile}")).unwrap();
        std::fs::set_permissions(&token_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        Setup {
            profile: (*profile).to_owned(),
            credential: (*profile).to_owned(),
            token_file,
            allowed_user_ids: vec![USER.to_owned()],
            allowed_chat_ids: chats.iter().map(|chat| (*chat).to_owned()).collect(),
            audience: "operator".to_owned(),
            replace: false,
        }
        .write(&directory)
        .unwrap();
    }
    Config::load(&directory).unwrap()
}

/// A host that has the profile.
pub(crate) struct Host<'a> {
    pub(crate) db: &'a Database,
    pub(crate) channel: ChannelId,
    pub(crate) profile: Profile,
    pub(crate) claim: Claim,
    pub(crate) config: &'a Config,
}

impl Host<'_> {
    /// A new adapter process.
    pub(crate) fn adapter(&self, epoch: &str) -> Adapter<'_> {
        Adapter {
            host: self,
            epoch: epoch.to_owned(),
            sequence: 0,
            revision: 0,
            readies: 0,
            cursor: 0,
        }
    }

    /// The host finds that its adapter has ended.
    pub(crate) fn adapter_ended(&self) -> usize {
        commands::doubt(
            self.db,
            &self.channel,
            &self.claim,
            ErrorCode::AdapterExited,
        )
        .unwrap()
    }
}

/// An adapter as a test plays it: it keeps what a process would keep.
pub(crate) struct Adapter<'a> {
    pub(crate) host: &'a Host<'a>,
    pub(crate) epoch: String,
    pub(crate) sequence: u64,
    pub(crate) revision: u64,
    readies: u64,
    pub(crate) cursor: u64,
}

impl Adapter<'_> {
    pub(crate) fn message(&self, stable_message_id: &str, report: Report) -> FromAdapter {
        FromAdapter {
            adapter_epoch: self.epoch.clone(),
            profile: self.host.channel.profile().unwrap().to_owned(),
            sequence: self.sequence + 1,
            expected_revision: self.revision,
            stable_message_id: stable_message_id.to_owned(),
            report,
        }
    }

    /// Sends a message as it is.
    pub(crate) fn send(&mut self, message: &FromAdapter) -> Relayed {
        // Over the wire, so that only what the protocol allows is ever relayed.
        let line = message.to_line().unwrap();
        let message = FromAdapter::from_line(line.trim_ascii_end()).unwrap();
        let mut session = Session {
            db: self.host.db,
            claim: &self.host.claim,
            channel: &self.host.channel,
            profile: &self.host.profile,
            adapter_epoch: &self.epoch,
            sequence: self.sequence,
        };
        let (relayed, revision) = commands::relay(&mut session, &message).unwrap();
        if !matches!(relayed, Relayed::Rejected { .. }) {
            self.sequence = message.sequence;
            self.revision = revision;
        }
        relayed
    }

    pub(crate) fn report(&mut self, stable_message_id: &str, report: Report) -> Relayed {
        self.send(&self.message(stable_message_id, report))
    }

    /// Says that it is ready, and gets the next order.
    pub(crate) fn ready(&mut self) -> Order {
        self.readies += 1;
        let id = signal_id(&self.epoch, "ready", self.readies, self.cursor);
        let relayed = self.report(
            &id,
            Report::Ready {
                cursor: self.cursor,
                error_code: None,
                bot_id: None,
                retry_after: None,
            },
        );
        assert!(!matches!(relayed, Relayed::Rejected { .. }), "{relayed:?}");
        let session = Session {
            db: self.host.db,
            claim: &self.host.claim,
            channel: &self.host.channel,
            profile: &self.host.profile,
            adapter_epoch: &self.epoch,
            sequence: self.sequence,
        };
        let next = commands::next(&session, self.host.config).unwrap();
        self.revision = next.revision;
        if let Order::Poll { cursor, .. } = &next.order {
            self.cursor = self.cursor.max(*cursor);
        }
        next.order
    }

    /// Is told to show something, and says what of it.
    pub(crate) fn told_to_present(&mut self) -> Showing {
        match self.ready() {
            Order::Present {
                attempt_id,
                request,
                messages,
                ..
            } => Showing {
                attempt_id,
                decision_id: request.decision_id.to_string(),
                request_digest: request.request_digest.to_string(),
                messages,
            },
            other => panic!("not told to present: {other:?}"),
        }
    }

    pub(crate) fn told_to_settle(&mut self) -> (Showing, Order) {
        match self.ready() {
            order @ Order::Settle { .. } => {
                let Order::Settle {
                    attempt_id,
                    request,
                    messages,
                    ..
                } = &order
                else {
                    unreachable!()
                };
                let showing = Showing {
                    attempt_id: attempt_id.clone(),
                    decision_id: request.decision_id.to_string(),
                    request_digest: request.request_digest.to_string(),
                    messages: messages.clone(),
                };
                (showing, order)
            }
            other => panic!("not told to settle: {other:?}"),
        }
    }

    /// Is told to read updates, and says which decisions may be answered.
    pub(crate) fn told_to_poll(&mut self) -> Vec<String> {
        match self.ready() {
            Order::Poll { requests, .. } => requests
                .into_iter()
                .map(|request| request.decision_id)
                .collect(),
            other => panic!("not told to poll: {other:?}"),
        }
    }

    /// One part is confirmed.
    pub(crate) fn part(&mut self, showing: &mut Showing, message: MessageRef) -> Relayed {
        let id = part_id(
            &showing.attempt_id,
            message.recipient_index,
            message.part_index,
        );
        let report = Report::Part {
            decision_id: showing.decision_id.clone(),
            request_digest: showing.request_digest.clone(),
            attempt_id: showing.attempt_id.clone(),
            message: message.clone(),
        };
        let relayed = self.report(&id, report);
        showing.messages.push(message);
        relayed
    }

    /// The delivery ends.
    pub(crate) fn presented(
        &mut self,
        showing: &Showing,
        state: SendState,
        error_code: Option<ErrorCode>,
    ) -> Relayed {
        self.report(
            &showing.attempt_id,
            showing.presented(state, error_code, None),
        )
    }

    /// Shows what it is told to show, in one part for each chat.
    pub(crate) fn show(&mut self) -> Showing {
        let mut showing = self.told_to_present();
        for (index, chat) in self
            .host
            .profile
            .allowed_chat_ids
            .clone()
            .iter()
            .enumerate()
        {
            self.part(
                &mut showing,
                message(chat, u32::try_from(index).unwrap(), 0),
            );
        }
        let relayed = self.presented(&showing, SendState::Confirmed, None);
        assert_eq!(relayed, Relayed::Taken { answer: None });
        showing
    }

    /// The settlement ends.
    pub(crate) fn settled(
        &mut self,
        showing: &Showing,
        state: SendState,
        error_code: Option<ErrorCode>,
    ) -> Relayed {
        let report = SettleReport {
            decision_id: showing.decision_id.clone(),
            request_digest: showing.request_digest.clone(),
            attempt_id: showing.attempt_id.clone(),
            state,
            error_code,
            retry_after: None,
        };
        self.report(&showing.attempt_id, Report::Settle(report))
    }

    /// A person presses a button.
    pub(crate) fn press(&mut self, showing: &Showing, press: &Press<'_>) -> Relayed {
        let message = self.pressed(showing, press);
        self.send(&message)
    }

    pub(crate) fn pressed(&self, showing: &Showing, press: &Press<'_>) -> FromAdapter {
        let profile = self.host.channel.profile().unwrap();
        let id = answer_id(profile, &showing.decision_id, press.event);
        let report = AnswerReport {
            decision_id: showing.decision_id.clone(),
            request_digest: showing.request_digest.clone(),
            response: press.response.clone(),
            actor_id: press.user.to_owned(),
            chat_id: press.chat.to_owned(),
            event_id: press.event.to_owned(),
            idempotency_key: format!("telegram:{profile}:callback:{}", press.event),
            cursor: press.cursor,
        };
        self.message(&id, Report::Answer(report))
    }
}

/// What is shown.
#[derive(Debug, Clone)]
pub(crate) struct Showing {
    pub(crate) attempt_id: String,
    pub(crate) decision_id: String,
    pub(crate) request_digest: String,
    pub(crate) messages: Vec<MessageRef>,
}

impl Showing {
    pub(crate) fn presented(
        &self,
        state: SendState,
        error_code: Option<ErrorCode>,
        retry_after: Option<u64>,
    ) -> Report {
        Report::Present(PresentReport {
            decision_id: self.decision_id.clone(),
            request_digest: self.request_digest.clone(),
            attempt_id: self.attempt_id.clone(),
            state,
            messages: self.messages.clone(),
            error_code,
            retry_after,
        })
    }
}

/// A press of a button.
pub(crate) struct Press<'a> {
    pub(crate) user: &'a str,
    pub(crate) chat: &'a str,
    pub(crate) event: &'a str,
    pub(crate) response: Response,
    pub(crate) cursor: u64,
}

pub(crate) fn go(event: &str, cursor: u64) -> Press<'_> {
    Press {
        user: USER,
        chat: "200",
        event,
        response: Response {
            choice: "go".into(),
            input: None,
        },
        cursor,
    }
}

pub(crate) fn redo<'a>(event: &'a str, text: &str, cursor: u64) -> Press<'a> {
    let input = Some([("why".to_owned(), text.to_owned())].into());
    Press {
        response: Response {
            choice: "redo".into(),
            input,
        },
        ..go(event, cursor)
    }
}

/// A part as a provider confirms it.
pub(crate) fn message(chat: &str, recipient_index: u32, part_index: u32) -> MessageRef {
    MessageRef {
        chat_id: chat.to_owned(),
        message_id: 1_000 + u64::from(part_index),
        recipient_index,
        part_index,
        content_digest: format!("sha256:{}", "c".repeat(64)),
    }
}

pub(crate) fn taken(answer: AnswerOutcome) -> Relayed {
    Relayed::Taken {
        answer: Some(answer),
    }
}

pub(crate) fn rejected(reason: RejectReason) -> Relayed {
    Relayed::Rejected { reason }
}

/// A token of a test, to be looked for where none may be.
pub(crate) fn token() -> Token {
    Token::new(zeroize::Zeroizing::new("1:secret-ops".to_owned())).unwrap()
}

impl Adapter<'_> {
    /// Settles whatever is to be settled first, then shows the next request.
    pub(crate) fn told_to_settle_and_show(&mut self) -> Showing {
        loop {
            match self.ready() {
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
                    self.part(&mut showing, message("200", 0, 0));
                    self.presented(&showing, SendState::Confirmed, None);
                    self.settle_everything();
                    return showing;
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
                    self.settled(&settling, SendState::Confirmed, None);
                }
                other => panic!("nothing to show: {other:?}"),
            }
        }
    }

    fn settle_everything(&mut self) {
        while let Order::Settle {
            attempt_id,
            request,
            messages,
            ..
        } = self.ready()
        {
            let settling = Showing {
                attempt_id,
                decision_id: request.decision_id.to_string(),
                request_digest: request.request_digest.to_string(),
                messages,
            };
            self.settled(&settling, SendState::Confirmed, None);
        }
    }
}
