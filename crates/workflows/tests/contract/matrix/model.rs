//! What each command must do to a run, in as few words as possible.
#![expect(clippy::indexing_slicing, reason = "there are two hosts")]

use serde_json::{Value, json};

/// How long a lease lasts.
pub(super) const LEASE_MS: i64 = 30_000;

/// One command. Numbers are hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Op {
    Ordinary,
    Claim(usize),
    Step(usize),
    Fail(usize),
    TimeOut(usize),
    Stray(usize),
    HandOver(usize),
    GiveUp(usize),
    SourceChanged,
    Answer(&'static str),
    Pause { takes_over: bool },
    Resume,
    Cancel { takes_over: bool },
    Confirm,
    Restart,
    Wait(u64),
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// Taken, and parked because an effect is ambiguous.
    Parked,
    /// Taken, and over.
    Ended,
    Adopted,
    /// There was nothing to send.
    Nothing,
    Held,
    Lost,
    Rejected,
    Conflict,
    Transition,
}

impl Outcome {
    /// Nothing may have changed.
    pub(super) fn is_refused(self) -> bool {
        !matches!(self, Self::Done | Self::Parked | Self::Ended)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Request {
    Pending,
    Settled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Applying,
    Ambiguous,
    Applied,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) status: &'static str,
    queue: &'static str,
    paused: bool,
    code: Option<&'static str>,
    /// Which host has it, until when.
    owner: Option<(usize, i64)>,
    /// Whether each host's own claim is the latest of the run.
    is_latest: [Option<bool>; 2],
    /// The node and the status of the attempt that goes on.
    attempt: Option<(&'static str, &'static str)>,
    pub(super) request: Option<Request>,
    pub(super) answer: Option<&'static str>,
    /// The effect of the present visit of `act`.
    effect: Option<Effect>,
    steps: Vec<&'static str>,
    /// The node that was given up and comes again.
    again: Option<&'static str>,
}

/// The node after another one that ended well, without the choice at `ask`.
pub(super) fn after(node: &str) -> Option<&'static str> {
    match node {
        "compute" => Some("act"),
        "act" => Some("ask"),
        _ => None,
    }
}

pub(super) fn node_type(node: &str) -> &'static str {
    match node {
        "act" => "action",
        "ask" => "checkpoint",
        _ => "compute",
    }
}

impl Model {
    pub(super) fn new() -> Self {
        Self {
            status: "queued",
            queue: "queued",
            paused: false,
            code: None,
            owner: None,
            is_latest: [None, None],
            attempt: None,
            request: None,
            answer: None,
            effect: None,
            steps: Vec::new(),
            again: None,
        }
    }

    pub(super) fn seen(&self) -> Value {
        let attempt = self.attempt.map(|(node, status)| json!([node, status]));
        let request = self.request.map(|request| match request {
            Request::Pending => "pending",
            Request::Settled => "settled",
        });
        let effect = match self.effect {
            Some(Effect::Applying) => Some("applying"),
            Some(Effect::Ambiguous) => Some("ambiguous"),
            Some(Effect::Applied) | None => None,
        };
        json!([
            self.status,
            self.queue,
            i32::from(self.paused),
            self.code,
            i32::from(self.is_over()),
            attempt,
            request,
            self.steps.len(),
            effect
        ])
    }

    fn is_over(&self) -> bool {
        !matches!(self.status, "queued" | "running" | "waiting")
    }

    fn live(&self, now: i64) -> Option<usize> {
        self.owner
            .filter(|(_, until)| now < *until)
            .map(|(host, _)| host)
    }

    /// The node that a runner which takes the run begins.
    pub(super) fn next_node(&self) -> String {
        let node = match (self.request, self.answer, self.attempt) {
            (Some(Request::Settled), Some("again"), _) => "compute",
            (Some(Request::Settled), _, _) => "end",
            (_, _, Some((node, _))) => node,
            _ => self.again.unwrap_or_else(|| self.route()),
        };
        node.to_owned()
    }

    /// Where the last step leads.
    fn route(&self) -> &'static str {
        match self.steps.last() {
            None => "compute",
            Some(&"ask") if self.answer == Some("again") => "compute",
            Some(&"ask") => "end",
            Some(node) => after(node).unwrap_or("end"),
        }
    }

    pub(super) fn visit(&self, node: &str) -> u32 {
        let visits = self.steps.iter().filter(|step| **step == node).count();
        u32::try_from(visits).unwrap() + 1
    }

    /// The command that moves the run on, if one does.
    pub(super) fn ordinary(&self, now: i64) -> Op {
        match self.live(now) {
            Some(host) => Op::Step(host),
            None if self.is_over() => Op::Restart,
            None if self.effect == Some(Effect::Ambiguous) => Op::Confirm,
            None if self.paused || self.code.is_some() => Op::Resume,
            None if self.request == Some(Request::Pending) => Op::Answer("again"),
            None => Op::Claim(self.steps.len() % 2),
        }
    }

    /// What a proposal of a host meets before its content is looked at.
    fn claim_of(&self, host: usize, now: i64) -> Option<Outcome> {
        match self.is_latest[host] {
            None => Some(Outcome::Nothing),
            Some(true) if self.live(now) == Some(host) => None,
            Some(_) => Some(Outcome::Lost),
        }
    }

    pub(super) fn expect(&self, op: &Op, now: i64, has_child: bool) -> Outcome {
        match *op {
            Op::Claim(_) | Op::SourceChanged => {
                let claimable = !self.is_over()
                    && !self.paused
                    && self.code.is_none()
                    && self.request != Some(Request::Pending);
                match (claimable, self.live(now)) {
                    (false, _) => Outcome::Rejected,
                    (true, Some(_)) => Outcome::Held,
                    (true, None) if *op == Op::SourceChanged => Outcome::Done,
                    (true, None)
                        if self.status == "running" && self.effect == Some(Effect::Applying) =>
                    {
                        Outcome::Parked
                    }
                    (true, None) => Outcome::Done,
                }
            }
            Op::Step(host)
            | Op::Fail(host)
            | Op::TimeOut(host)
            | Op::HandOver(host)
            | Op::GiveUp(host) => self.claim_of(host, now).unwrap_or(Outcome::Done),
            Op::Stray(host) => self.claim_of(host, now).unwrap_or(Outcome::Transition),
            Op::Answer(_) => match self.request {
                Some(Request::Pending) if self.paused => Outcome::Conflict,
                Some(Request::Pending) => Outcome::Done,
                _ if self.status == "waiting" => Outcome::Conflict,
                _ => Outcome::Rejected,
            },
            Op::Pause { takes_over } => {
                if self.is_over() {
                    Outcome::Rejected
                } else if self.paused {
                    Outcome::Adopted
                } else if self.live(now).is_some() {
                    if takes_over {
                        Outcome::Done
                    } else {
                        Outcome::Held
                    }
                } else if self.queue == "parked" && self.request == Some(Request::Pending) {
                    Outcome::Done
                } else {
                    Outcome::Rejected
                }
            }
            Op::Resume => {
                let asks = self.request == Some(Request::Pending);
                let eligible = !self.paused
                    && !asks
                    && self.code.is_none()
                    && (self.queue != "parked" || self.status != "waiting");
                if self.is_over() {
                    Outcome::Rejected
                } else if self.paused && asks && self.live(now).is_none() {
                    Outcome::Done
                } else if self.live(now).is_some() || eligible {
                    Outcome::Adopted
                } else if (asks && self.code.is_none())
                    || (self.code == Some("effectAmbiguous")
                        && self.effect == Some(Effect::Ambiguous))
                {
                    Outcome::Rejected
                } else {
                    Outcome::Done
                }
            }
            Op::Cancel { takes_over } => match self.live(now) {
                _ if self.is_over() => Outcome::Rejected,
                Some(_) if !takes_over => Outcome::Held,
                _ => Outcome::Done,
            },
            Op::Confirm if self.effect == Some(Effect::Ambiguous) => Outcome::Done,
            Op::Confirm => Outcome::Nothing,
            Op::Restart if !self.is_over() || self.effect == Some(Effect::Ambiguous) => {
                Outcome::Rejected
            }
            Op::Restart if has_child => Outcome::Adopted,
            Op::Restart | Op::Wait(_) | Op::Ordinary => Outcome::Done,
        }
    }

    pub(super) fn apply(&mut self, op: &Op, now: i64) {
        match *op {
            Op::Claim(host) => self.claim(host, now),
            Op::Step(host) => self.step(host, now),
            Op::Fail(_) => self.fail("failed"),
            Op::TimeOut(_) => self.fail("timed_out"),
            Op::HandOver(_) => self.park(None),
            Op::GiveUp(_) => self.park(Some("runnerNoProgress")),
            Op::SourceChanged => {
                self.is_latest = self.is_latest.map(|held| held.map(|_| false));
                self.park(Some("workflowSourceChanged"));
            }
            Op::Answer(next) => {
                self.request = Some(Request::Settled);
                self.answer = Some(next);
            }
            Op::Pause { .. } => {
                self.paused = true;
                self.queue = "parked";
                self.owner = None;
            }
            Op::Resume => {
                let asks = self.request == Some(Request::Pending);
                self.paused = false;
                self.code = None;
                if !asks {
                    self.queue = "queued";
                    if self.status == "waiting" && self.request.is_none() {
                        self.status = "running";
                    }
                }
            }
            Op::Cancel { .. } => {
                if self.effect == Some(Effect::Applying) {
                    self.effect = Some(Effect::Ambiguous);
                }
                self.end("cancelled", "cancelled", Some("cancelled"));
            }
            Op::Confirm => self.effect = Some(Effect::Applied),
            Op::Restart | Op::Stray(_) | Op::Wait(_) | Op::Ordinary => {}
        }
    }

    fn claim(&mut self, host: usize, now: i64) {
        self.is_latest = self.is_latest.map(|held| held.map(|_| false));
        self.code = None;
        if self.status == "running" && self.effect == Some(Effect::Applying) {
            self.effect = Some(Effect::Ambiguous);
            self.park_ambiguous();
            return;
        }
        let node: &'static str = match self.next_node().as_str() {
            "compute" => "compute",
            "act" => "act",
            "ask" => "ask",
            _ => "end",
        };
        if self.status == "waiting" {
            self.steps.push("ask");
            self.request = None;
        }
        self.status = "running";
        self.queue = "running";
        self.owner = Some((host, now + LEASE_MS));
        self.is_latest[host] = Some(true);
        self.begin(node);
    }

    /// A new attempt at a node; an act that was confirmed is not done again.
    fn begin(&mut self, node: &'static str) {
        self.again = None;
        self.attempt = Some((node, "running"));
        if node == "act" && self.effect.is_none() {
            self.effect = Some(Effect::Applying);
        }
    }

    fn step(&mut self, host: usize, now: i64) {
        let (node, _) = self.attempt.unwrap();
        if node == "ask" {
            self.attempt = Some(("ask", "waiting"));
            self.request = Some(Request::Pending);
            self.status = "waiting";
            self.queue = "parked";
            self.owner = None;
            return;
        }
        self.steps.push(node);
        if node == "act" {
            self.effect = None;
        }
        if let Some(next) = after(node) {
            self.owner = Some((host, now + LEASE_MS));
            self.begin(next);
        } else {
            self.attempt = None;
            self.end("completed", "done", None);
        }
    }

    fn fail(&mut self, status: &'static str) {
        let (node, _) = self.attempt.unwrap();
        self.steps.push(node);
        self.attempt = None;
        self.effect = None;
        self.end(status, "failed", Some(status));
    }

    fn end(&mut self, status: &'static str, queue: &'static str, code: Option<&'static str>) {
        self.status = status;
        self.queue = queue;
        self.code = code;
        self.paused = false;
        self.owner = None;
        self.attempt = None;
        self.request = None;
    }

    fn park(&mut self, code: Option<&'static str>) {
        self.queue = "parked";
        self.code = code;
        self.owner = None;
    }

    fn park_ambiguous(&mut self) {
        self.status = "waiting";
        if let Some((node, _)) = self.attempt {
            self.attempt = Some((node, "waiting"));
        }
        self.park(Some("effectAmbiguous"));
    }
}
