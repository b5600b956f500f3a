//! A host that does what a test says: it orders, hears what the child says, and answers.
#![expect(clippy::unwrap_used, reason = "a harness of tests fails by panicking")]

use std::io::{self, BufReader, PipeReader, PipeWriter, Write};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use holdpoint_channels::dev_server::DevServer;
use holdpoint_channels::protocol::{
    AnswerOutcome, AnswerReport, ChannelRequest, FromAdapter, Launch, MessageRef, OpenRequest,
    Order, PresentReport, Report, Response, SettleOutcome, SettleReport, ToAdapter, Token, Verdict,
    read_line,
};
use holdpoint_channels::telegram::{self, Exit, PARTS_MAX, Patience, Settings};
use holdpoint_decisions::digest::DocumentDigest;
use holdpoint_decisions::model::{Block, Choice, Choices, Draft, Presentation, Request, TextInput};
use holdpoint_state::clock::{ManualClock, UnixMillis};
use zeroize::Zeroizing;

use crate::{CHAT, Result, TOKEN, USER};

pub(crate) const ATTEMPT: &str =
    "channel-e678792ad0567da80291e3edc8eb44dec3ba1e944a65f1a039e2f7e2d3ca1588";

/// What a child writes for people, kept for the test.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<u8>>>);

impl Write for Heard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Heard {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// A child that runs, and its host. The child has said something that is not answered yet.
pub(crate) struct Host {
    to: Option<PipeWriter>,
    from: BufReader<PipeReader>,
    child: JoinHandle<Exit>,
    /// What the child said last.
    pub(crate) pending: FromAdapter,
    /// Everything it said, line by line.
    pub(crate) lines: Vec<String>,
    pub(crate) diagnostics: Heard,
    pub(crate) clock: ManualClock,
    revision: u64,
    /// What became of the answers to come.
    pub(crate) outcome: Option<AnswerOutcome>,
}

pub(crate) fn launch(server: &DevServer) -> Launch {
    Launch {
        adapter_epoch: "epoch-1".to_owned(),
        profile: "ops".to_owned(),
        token: Token::new(Zeroizing::new(TOKEN.to_owned())).unwrap(),
        allowed_user_ids: vec![USER.to_string()],
        allowed_chat_ids: vec![CHAT.to_string()],
        api_base: Some(server.url()),
    }
}

pub(crate) fn settings(clock: &ManualClock) -> Settings {
    Settings {
        idle: Duration::from_millis(1),
        rest: Duration::from_millis(1),
        look: Duration::from_secs(20),
        patience: Patience {
            request: Duration::from_secs(20),
            poll_s: 0,
            ..Patience::default()
        },
        clock: Arc::new(clock.clone()),
        host_gone: || {},
    }
}

/// Starts a child without a word.
pub(crate) fn spawn(
    settings: Settings,
) -> io::Result<(PipeWriter, BufReader<PipeReader>, JoinHandle<Exit>, Heard)> {
    let (input, to) = io::pipe()?;
    let (from, output) = io::pipe()?;
    let diagnostics = Heard::default();
    let heard = diagnostics.clone();
    let child = thread::spawn(move || telegram::run(input, output, heard, &settings));
    Ok((to, BufReader::new(from), child, diagnostics))
}

impl Host {
    pub(crate) fn start(server: &DevServer) -> Result<Self> {
        Self::start_with(&launch(server), |_| {})
    }

    pub(crate) fn start_with(launch: &Launch, change: impl FnOnce(&mut Settings)) -> Result<Self> {
        let clock = ManualClock::at(0);
        let mut settings = settings(&clock);
        change(&mut settings);
        let (mut to, mut from, child, diagnostics) = spawn(settings)?;
        to.write_all(&launch.to_line()?)?;
        let line = read_line(&mut from)?.ok_or("the child ended at once")?;
        let first = FromAdapter::from_line(&line)?;
        assert_eq!((first.sequence, first.expected_revision), (1, 0));
        Ok(Self {
            to: Some(to),
            from,
            child,
            pending: first,
            lines: vec![String::from_utf8(line)?],
            diagnostics,
            clock,
            revision: 7,
            outcome: Some(AnswerOutcome::Received),
        })
    }

    pub(crate) fn response(&self, command: Option<Order>) -> ToAdapter {
        ToAdapter {
            sequence: self.pending.sequence,
            outcome: Verdict::Accepted,
            revision: self.revision,
            command,
            answer: None,
            error: None,
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        // The child may be gone, which is what some tests are about.
        drop(self.to.as_mut().unwrap().write_all(bytes));
    }

    /// Answers what is pending.
    pub(crate) fn respond(&mut self, response: &ToAdapter) {
        let line = response.to_line().unwrap();
        self.write(&line);
    }

    /// Hears the next message.
    pub(crate) fn hear(&mut self) -> Result {
        let line = read_line(&mut self.from)?.ok_or("the child ended")?;
        let said = FromAdapter::from_line(&line)?;
        assert_eq!(said.sequence, self.pending.sequence + 1);
        assert_eq!(said.expected_revision, self.revision);
        assert_eq!(
            (said.adapter_epoch.as_str(), said.profile.as_str()),
            ("epoch-1", "ops")
        );
        self.lines.push(String::from_utf8(line)?);
        self.pending = said;
        Ok(())
    }

    /// Gives an order, takes every part and answer, and leaves the report that ends it pending.
    pub(crate) fn order(&mut self, order: Order) -> Result<Vec<Report>> {
        self.revision += 1;
        let mut response = self.response(Some(order));
        let mut heard = Vec::new();
        loop {
            self.respond(&response);
            self.hear()?;
            response = self.response(None);
            match &self.pending.report {
                Report::Part { .. } => {}
                Report::Answer(_) => response.answer = self.outcome,
                Report::Ready { .. }
                | Report::Present(_)
                | Report::Settle(_)
                | Report::Exiting { .. } => {
                    heard.push(self.pending.report.clone());
                    return Ok(heard);
                }
            }
            heard.push(self.pending.report.clone());
        }
    }

    pub(crate) fn present(
        &mut self,
        request: &ChannelRequest,
        messages: &[MessageRef],
    ) -> Result<PresentReport> {
        let order = Order::Present {
            stable_message_id: ATTEMPT.to_owned(),
            attempt_id: ATTEMPT.to_owned(),
            request: Box::new(request.clone()),
            messages: messages.to_vec(),
        };
        match self.order(order)?.pop() {
            Some(Report::Present(report)) => Ok(report),
            other => Err(format!("{other:?}").into()),
        }
    }

    pub(crate) fn settle(
        &mut self,
        request: &ChannelRequest,
        messages: &[MessageRef],
    ) -> Result<SettleReport> {
        let order = Order::Settle {
            stable_message_id: ATTEMPT.to_owned(),
            attempt_id: ATTEMPT.to_owned(),
            request: Box::new(request.clone()),
            outcome: SettleOutcome::Accepted,
            response: Some(Response {
                choice: "go".to_owned(),
                input: None,
            }),
            messages: messages.to_vec(),
        };
        match self.order(order)?.pop() {
            Some(Report::Settle(report)) => Ok(report),
            other => Err(format!("{other:?}").into()),
        }
    }

    /// Polls once. Gives the answers, and up to where it has read.
    pub(crate) fn poll(
        &mut self,
        cursor: u64,
        requests: &[OpenRequest],
    ) -> Result<(Vec<AnswerReport>, u64)> {
        let mut answers = Vec::new();
        let mut read = None;
        let order = Order::Poll {
            cursor,
            requests: requests.to_vec(),
            quiet_ms: 0,
        };
        for report in self.order(order)? {
            match report {
                Report::Answer(answer) => answers.push(answer),
                Report::Ready {
                    cursor,
                    error_code: None,
                    bot_id: None,
                    retry_after: None,
                } => read = Some(cursor),
                other => return Err(format!("{other:?}").into()),
            }
        }
        Ok((answers, read.ok_or("no end of the poll")?))
    }

    /// Polls, and gives the list once more: what names nothing that is open is looked up in a list that came after it.
    pub(crate) fn poll_twice(
        &mut self,
        cursor: u64,
        requests: &[OpenRequest],
    ) -> Result<(Vec<AnswerReport>, u64)> {
        let (mut answers, cursor) = self.poll(cursor, requests)?;
        let (more, cursor) = self.poll(cursor, requests)?;
        answers.extend(more);
        Ok((answers, cursor))
    }

    /// The stream to the child ends.
    pub(crate) fn leave(&mut self) {
        self.to = None;
    }

    /// Hears nothing more, and gives how the child ended.
    pub(crate) fn end(mut self) -> Result<(Exit, String)> {
        assert_eq!(
            read_line(&mut self.from)?,
            None,
            "the child said something more"
        );
        drop(self.to.take());
        let exit = self.child.join().or(Err("the child panicked"))?;
        Ok((exit, self.diagnostics.text()))
    }

    pub(crate) fn stop(mut self) -> Result<Exit> {
        let reports = self.order(Order::Stop)?;
        assert!(matches!(
            reports.as_slice(),
            [Report::Exiting {
                error_code: None,
                ..
            }]
        ));
        let response = self.response(None);
        self.respond(&response);
        Ok(self.end()?.0)
    }
}

/// A request with two choices, one of which asks for a text, and these paragraphs.
pub(crate) fn request(paragraphs: &[&str]) -> ChannelRequest {
    request_of(draft(paragraphs))
}

pub(crate) fn request_of(draft: Draft) -> ChannelRequest {
    Request::new(draft).unwrap().for_channels()
}

pub(crate) fn draft(paragraphs: &[&str]) -> Draft {
    let why = TextInput::new("why", "What?");
    let blocks = paragraphs.iter().map(|text| Block::paragraph(*text));
    Draft {
        run_id: "run-1".to_owned(),
        workflow_name: "wf".to_owned(),
        node_id: "gate".to_owned(),
        attempt_id: "att-1".to_owned(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: Choices::new([
            ("go", Choice::new("Go")),
            ("redo", Choice::new("Redo").with_text(why)),
        ])
        .unwrap(),
        subject: serde_json::json!({ "plan": "a" }),
        presentation: Presentation::new("Ship it?", blocks.collect()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: UnixMillis(0),
    }
}

/// A request that takes so many parts.
pub(crate) fn request_of_parts(parts: usize) -> ChannelRequest {
    // Two of these do not fit into one part, and the short texts around them fit beside any.
    let long = "x".repeat(2_100);
    let long = vec![long.as_str(); parts];
    if parts <= PARTS_MAX {
        return request(&long);
    }
    // None that anybody could ask: a host would have to make it up.
    let blocks = long.iter().map(|text| Block::paragraph(*text)).collect();
    let presentation = Presentation::new("Ship it?", blocks).unwrap();
    ChannelRequest {
        presentation_digest: DocumentDigest::of(&presentation).unwrap(),
        presentation,
        ..request(&[])
    }
}
