//! One worker process that was launched: what it says is judged here, and answered.
//!
//! A frame is judged in this order: its lengths, the form of its header, whose it is (worker, generation, run), its number and
//! revision, its kind, and only then its body. The first that is wrong ends the worker.

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, SystemClock};
use holdpoint_state::{Digest, StateError};
use serde::Serialize;

use super::frame::{Frame, FrameError, Header};
use super::host::{End, Progress, Supervision};
use super::launch::{Launched, Left, WorkerLimits};
use super::message::{
    AskDocument, AskSettings, GaveUp, Launch, LoadFailed, Nothing, PROTOCOL, Ready, Reply,
    SaidBudget, SaidPlan, SaidStep, SaidUpdate, SaidWait, StopNow, StopReason, host, worker,
};
use super::proposal::{Present, Untaken};
use crate::commands::{self, Advanced, Begun, Move, Plan, RefusedMessage, Said};
use crate::engine::{Direct, Stop};
use crate::error::WorkflowError;
use crate::model::MessageOutcome;
use crate::store::workers::Process;
use crate::views::{self, LoadedRun};

/// How often the host looks whether the run was stopped or its worker is silent.
const LOOK: Duration = Duration::from_millis(25);
/// How many frames may wait to be judged: the worker then waits itself.
const WAITING_MAX: usize = 4;
/// How long a worker may take to end by itself after its last word.
const LEAVE_GRACE: Duration = Duration::from_secs(2);
/// How often a worker says that it is alive within the time that it may be silent.
const BEATS: u64 = 5;
/// How many more heartbeats than its time asks for a worker may send.
const BEATS_SPARE: u64 = 16;

/// What arrives from the reading thread.
type Arrived = Result<Frame, FrameError>;

/// A worker that was launched.
pub(super) struct Session<'a> {
    supervision: &'a Supervision<'a>,
    stream: UnixStream,
    limits: WorkerLimits,
    process: Process,
    present: Present<'a>,
    /// The run's revision that the worker was told last.
    revision: u64,
    progress: Progress,
    /// The message that was answered last.
    last: Option<(u64, Digest, Reply)>,
    /// The number that the next message has.
    next: u64,
    /// How many heartbeats arrived.
    beats: u64,
    /// When it was launched, and when a frame arrived last, by the monotonic clock, in milliseconds.
    launched: u64,
    heard: u64,
    /// Since when the worker was told to stop, and why.
    stopping: Option<(u64, Stop)>,
    told_drain: bool,
}

/// What the answer to a message leads to.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each message, and moved; a box would cost more than it saves"
)]
enum Answered {
    /// The worker goes on.
    On(Reply),
    /// It was the worker's last word about this run.
    Last(Reply, End),
}

/// Why a message gets no answer.
enum Refused {
    /// It can't be true, or does not follow from what is committed.
    Lie(String),
    /// The store refused.
    Error(WorkflowError),
}

impl From<Untaken> for Refused {
    fn from(untaken: Untaken) -> Self {
        match untaken {
            Untaken::Lie(problem) => Self::Lie(problem),
            Untaken::Error(error) => Self::Error(error),
        }
    }
}

impl From<FrameError> for Refused {
    fn from(error: FrameError) -> Self {
        Self::Lie(error.to_string())
    }
}

impl From<WorkflowError> for Refused {
    fn from(error: WorkflowError) -> Self {
        let contradicts = matches!(
            &error,
            WorkflowError::Transition { .. }
                | WorkflowError::Conflict { .. }
                | WorkflowError::State(
                    StateError::InvalidTransition { .. } | StateError::Conflict { .. }
                )
        );
        if contradicts {
            Self::Lie(error.to_string())
        } else {
            Self::Error(error)
        }
    }
}

impl<'a> Session<'a> {
    pub(super) fn new(
        supervision: &'a Supervision<'a>,
        run: &LoadedRun,
        (launched, stream): (&Launched, UnixStream),
    ) -> Self {
        let now = SystemClock.monotonic().0;
        Self {
            present: Present::of(run, supervision.definition),
            process: launched.identity(),
            limits: *supervision.launcher.limits(),
            stream,
            revision: supervision.revision,
            progress: Progress::None,
            last: None,
            next: 1,
            beats: 0,
            launched: now,
            heard: now,
            stopping: None,
            told_drain: false,
            supervision,
        }
    }

    /// How far the worker came.
    pub(super) fn progress(&self) -> Progress {
        self.progress
    }

    /// Launches the run over the channel and judges frames until there is a reason to end.
    pub(super) fn serve(&mut self, run: &LoadedRun) -> End {
        let (sender, arrived) = sync_channel(WAITING_MAX);
        if let Err(error) = self.listen(&sender) {
            return End::Gone(format!("its channel could not be read: {error}"));
        }
        if let Err(error) = self.launch(run) {
            return match error {
                FrameError::TooLong { .. } | FrameError::Malformed { .. } => End::GaveUp(GaveUp {
                    detail: format!("the run can't be told to a worker: {error}"),
                    is_passing: false,
                }),
                FrameError::Closed | FrameError::Io(_) => End::Gone(error.to_string()),
            };
        }
        loop {
            if let Some(end) = self.look() {
                return end;
            }
            let end = match next(&arrived) {
                None => continue,
                Some(Ok(frame)) => self.judge(&frame),
                Some(Err(FrameError::Closed)) => {
                    Some(End::Gone("it closed its channel".to_owned()))
                }
                Some(Err(FrameError::Io(error))) => {
                    Some(End::Gone(format!("its channel broke: {error}")))
                }
                Some(Err(error @ (FrameError::TooLong { .. } | FrameError::Malformed { .. }))) => {
                    Some(End::Broke(error.to_string(), None))
                }
            };
            if let Some(end) = end {
                return match (end, self.stopping) {
                    // It ended because it was told to.
                    (End::Gone(_), Some((_, stop))) => End::Stopped(stop),
                    (end, _) => end,
                };
            }
        }
    }

    /// Reads frames on a thread of its own, since a read has no bound.
    fn listen(&self, sender: &SyncSender<Arrived>) -> std::io::Result<()> {
        let wait = Duration::from_millis(self.limits.silence_ms.max(1));
        self.stream.set_write_timeout(Some(wait))?;
        let mut reader = self.stream.try_clone()?;
        let (sender, limit) = (sender.clone(), self.limits.message_bytes_max);
        std::thread::Builder::new()
            .name("holdpoint-worker-frames".to_owned())
            .spawn(move || {
                loop {
                    let frame = Frame::read(&mut reader, limit);
                    let is_last = frame.is_err();
                    if sender.send(frame).is_err() || is_last {
                        return;
                    }
                }
            })
            .map(drop)
    }

    fn launch(&mut self, run: &LoadedRun) -> Result<(), FrameError> {
        let launch = Launch {
            protocol: PROTOCOL,
            now: self.now(),
            heartbeat_ms: (self.limits.silence_ms / BEATS).max(1),
            message_bytes_max: self.limits.message_bytes_max,
            run: LoadedRun {
                history: Vec::new(),
                ..run.clone()
            },
        };
        self.send(host::LAUNCH, 0, &launch)?;
        for step in &run.history {
            self.send(host::STEP, 0, step)?;
        }
        self.send(host::GO, 0, &Nothing {})
    }

    fn now(&self) -> i64 {
        self.supervision.db.clock().now().0
    }

    fn send<T: Serialize>(&mut self, kind: &str, id: u64, body: &T) -> Result<(), FrameError> {
        let header = Header {
            epoch: self.supervision.epoch.clone(),
            expected: self.revision,
            generation: self.supervision.active.claim.generation(),
            id,
            kind: kind.to_owned(),
            run: self.run()?,
        };
        Frame::new(header, body)?.write(&mut self.stream, self.limits.message_bytes_max)
    }

    fn run(&self) -> Result<crate::id::RunId, FrameError> {
        crate::commands::run_of(&self.supervision.active.claim).map_err(|error| {
            FrameError::Malformed {
                what: "header",
                problem: error.to_string(),
            }
        })
    }

    /// Looks at everything that needs no frame: stops, drains, silence.
    fn look(&mut self) -> Option<End> {
        let now = SystemClock.monotonic().0;
        let (active, draining) = (self.supervision.active, self.supervision.draining);
        let grace = self.limits.stop_grace_ms;
        match (active.stopped(), self.stopping) {
            (Some(stop), None) => {
                self.stopping = Some((now, stop));
                self.tell_to_stop(stop);
            }
            // A lost claim overrules a drain, and nothing that the worker says counts any more.
            (Some(Stop::Lost), Some((since, Stop::Drain))) => {
                self.stopping = Some((since, Stop::Lost));
                self.tell_to_stop(Stop::Lost);
            }
            (_, Some((since, stop))) if grace <= now.saturating_sub(since) => {
                return Some(End::Stopped(stop));
            }
            (_, Some(_)) => {}
            (None, None) => {
                if draining.load(Ordering::SeqCst) && !self.told_drain {
                    self.told_drain = true;
                    // A channel that can't be written is a worker that ends; reading finds out.
                    drop(self.send(host::DRAIN, 0, &Nothing {}));
                }
            }
        }
        let (limit, what) = match self.progress {
            Progress::None => (self.limits.ready_ms, "it was not ready in time"),
            Progress::Ready | Progress::Some => {
                (self.limits.silence_ms, "it said nothing any more")
            }
        };
        (limit < now.saturating_sub(self.heard))
            .then(|| End::Silent(format!("{what} ({limit} ms)")))
    }

    fn tell_to_stop(&mut self, stop: Stop) {
        let reason = match stop {
            Stop::Lost => StopReason::Lost,
            Stop::Drain => StopReason::Drain,
        };
        drop(self.send(host::STOP, 0, &StopNow { reason }));
    }

    /// Judges a frame. Its body is looked at last.
    fn judge(&mut self, frame: &Frame) -> Option<End> {
        let header = &frame.header;
        let active = self.supervision.active;
        if header.epoch != self.supervision.epoch
            || header.generation != active.claim.generation()
            || header.run.as_str() != active.claim.resource().key()
        {
            return Some(broke("it speaks for another worker, generation or run"));
        }
        let now = SystemClock.monotonic().0;
        self.heard = now;
        if header.kind == worker::HEARTBEAT {
            // Everything else waits for its answer.
            self.beats += 1;
            let beat_ms = (self.limits.silence_ms / BEATS).max(1);
            let spared = BEATS_SPARE + 2 * (now.saturating_sub(self.launched) / beat_ms);
            if spared < self.beats {
                return Some(broke("it floods its channel"));
            }
            return match (header.id, frame.parse::<Nothing>()) {
                (0, Ok(_)) => None,
                _ => Some(broke("a heartbeat has no number and no body")),
            };
        }
        let fingerprint = fingerprint(frame);
        if header.id != self.next {
            return self.again(header.id, fingerprint);
        }
        if header.expected != self.revision {
            return Some(broke(&format!(
                "it saw revision {} and was told {}",
                header.expected, self.revision
            )));
        }
        let said = Said {
            epoch: header.epoch.clone(),
            id: header.id,
            fingerprint,
            is_effectless: false,
        };
        match self.answer(frame, &said) {
            Ok(answered) => {
                let (reply, end) = match answered {
                    Answered::On(reply) => (reply, None),
                    Answered::Last(reply, end) => (reply, Some(end)),
                };
                self.next += 1;
                self.last = Some((said.id, fingerprint, reply.clone()));
                // What it said is committed, whether it hears so or not.
                let heard = self.send(host::REPLY, said.id, &reply);
                end.or_else(|| {
                    let error = heard.err()?;
                    Some(End::Gone(format!("it took no answer: {error}")))
                })
            }
            Err(refused) => Some(self.refuse(said, refused)),
        }
    }

    /// A number that was used before: the same words get the same answer.
    fn again(&mut self, id: u64, fingerprint: Digest) -> Option<End> {
        let saved = match &self.last {
            Some((last, said, reply)) if *last == id => Some((*said, reply.clone())),
            _ => {
                let epoch = &self.supervision.epoch;
                let snapshot = self.supervision.db.snapshot();
                match snapshot.and_then(|snapshot| views::saved_answer(&snapshot, epoch, id)) {
                    Ok(saved) => saved.and_then(|(said, reply)| {
                        Some((said, serde_json::from_slice::<Reply>(&reply).ok()?))
                    }),
                    Err(error) => return Some(End::Failed(error.into(), None)),
                }
            }
        };
        match saved {
            Some((said, reply)) if said == fingerprint => {
                drop(self.send(host::REPLY, id, &reply));
                None
            }
            Some(_) => Some(broke("it used a number twice for different messages")),
            None => Some(broke("its messages are not numbered one after the other")),
        }
    }

    fn refuse(&mut self, said: Said, refused: Refused) -> End {
        let (code, problem, outcome) = match &refused {
            Refused::Lie(problem) => ("rejected", problem.clone(), MessageOutcome::Rejected),
            Refused::Error(error) if error.is_claim_lost() => {
                ("claimLost", error.to_string(), MessageOutcome::ClaimLost)
            }
            Refused::Error(error) => (error.code(), error.to_string(), MessageOutcome::Rejected),
        };
        let reply = Reply::Refused {
            code: code.to_owned(),
            problem: problem.clone(),
            is_passing: false,
        };
        drop(self.send(host::REPLY, said.id, &reply));
        let message = RefusedMessage {
            said,
            outcome,
            problem,
        };
        match refused {
            Refused::Lie(problem) => End::Broke(problem, Some(message)),
            Refused::Error(error) if error.is_claim_lost() => End::Lost(Some(message)),
            Refused::Error(error) => End::Failed(error, Some(message)),
        }
    }

    /// Does what a message proposes.
    fn answer(&mut self, frame: &Frame, said: &Said) -> Result<Answered, Refused> {
        let kind = frame.header.kind.as_str();
        if (kind == worker::READY) != (self.progress == Progress::None) {
            return Err(Refused::Lie(
                "a worker is ready once, and before it says anything else".to_owned(),
            ));
        }
        let begins = self.progress == Progress::Ready;
        match kind {
            worker::READY => {
                let Ready { protocol } = frame.parse()?;
                if protocol != PROTOCOL {
                    return Err(Refused::Lie(format!("it speaks protocol {protocol}")));
                }
                self.progress = Progress::Ready;
                Ok(Answered::On(self.noted()))
            }
            worker::LOAD_FAILED if begins => {
                let LoadFailed { error } = frame.parse()?;
                Ok(Answered::Last(self.noted(), End::LoadFailed(error)))
            }
            worker::GIVE_UP => {
                let gave_up: GaveUp = frame.parse()?;
                Ok(Answered::Last(self.noted(), End::GaveUp(gave_up)))
            }
            worker::DOCUMENT => {
                let AskDocument { hash } = frame.parse()?;
                if !self.present.may_read(hash) {
                    return Err(Refused::Lie(format!("it was not told of document {hash}")));
                }
                let snapshot = self
                    .supervision
                    .db
                    .snapshot()
                    .map_err(WorkflowError::State)?;
                let value = Some(views::document(&snapshot, hash)?);
                Ok(Answered::On(Reply::Found { value }))
            }
            worker::SETTINGS => {
                let AskSettings { mount_path } = frame.parse()?;
                if !self.present.has_mount(&mount_path) {
                    return Err(Refused::Lie(format!("there is no mount {mount_path:?}")));
                }
                let run = commands::run_of(&self.supervision.active.claim)?;
                let snapshot = self
                    .supervision
                    .db
                    .snapshot()
                    .map_err(WorkflowError::State)?;
                let value = views::present_settings(&snapshot, &run, &mount_path)?;
                Ok(Answered::On(Reply::Found { value }))
            }
            other => self.propose(frame, (other, said), begins),
        }
    }

    /// Commits what a message proposes.
    fn propose(
        &mut self,
        frame: &Frame,
        (kind, said): (&str, &Said),
        begins: bool,
    ) -> Result<Answered, Refused> {
        match kind {
            worker::BEGIN if begins => {
                let plan = self.present.plan(frame.parse::<SaidPlan>()?, self.now())?;
                self.begin(plan, said)
            }
            worker::ADVANCE if !begins => {
                let SaidStep { finished, next } = frame.parse()?;
                let node = finished.result.node_id.clone();
                let finished = self.present.finished(finished, self.now())?;
                let next = self.present.next(next, Some(&node))?;
                let direct = self.direct();
                let (stepped, revision) = direct.advance_said(
                    self.supervision.definition,
                    finished,
                    &next,
                    Some(said),
                )?;
                self.revision = revision;
                self.present.moved(Some(&node), &next, &stepped.advanced);
                Ok(self.moved(&next, &stepped.advanced, stepped.is_effectless))
            }
            worker::SET_TIMEOUT if !begins => {
                let SaidBudget {
                    attempt_id,
                    timeout,
                } = frame.parse()?;
                let claim = &self.supervision.active.claim;
                let receipt = commands::set_timeout_said(
                    self.supervision.db,
                    claim,
                    (&attempt_id, timeout),
                    Some(said),
                )?;
                self.revision = receipt.revision;
                Ok(Answered::On(self.noted()))
            }
            worker::PUBLISH if !begins => self.publish(&frame.parse()?, said),
            worker::WAIT if !begins => {
                let (attempt, ask) = self.present.ask(frame.parse::<SaidWait>()?)?;
                let claim = &self.supervision.active.claim;
                let receipt =
                    commands::wait_said(self.supervision.db, claim, &attempt, ask, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            worker::DOUBT if !begins => {
                let Nothing {} = frame.parse()?;
                let Some(acting) = self.present.acting() else {
                    return Err(Refused::Lie("no effect may be acting".to_owned()));
                };
                let claim = &self.supervision.active.claim;
                let receipt = commands::doubt_said(self.supervision.db, claim, acting, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            worker::HAND_OVER if !begins => {
                let Nothing {} = frame.parse()?;
                let claim = &self.supervision.active.claim;
                let receipt = commands::hand_over_said(self.supervision.db, claim, Some(said))?;
                self.revision = receipt.revision;
                Ok(Answered::Last(self.noted(), End::Done))
            }
            other => Err(Refused::Lie(format!("{other:?} says nothing here"))),
        }
    }

    /// Publishes an update. One that is refused is the author's business, as on a thread: the worker goes on.
    fn publish(&mut self, update: &SaidUpdate, said: &Said) -> Result<Answered, Refused> {
        let db = self.supervision.db;
        let claim = &self.supervision.active.claim;
        let published = update
            .update()
            .map_err(|error| WorkflowError::Input {
                what: "update",
                problem: error.to_string(),
            })
            .and_then(|parsed| {
                commands::publish_said(db, claim, (&update.attempt_id, &parsed), Some(said))
            });
        match published {
            Ok(receipt) => {
                self.revision = receipt.revision;
                Ok(Answered::On(self.noted()))
            }
            Err(error) if error.is_claim_lost() => Err(error.into()),
            Err(error) => Ok(Answered::On(Reply::Refused {
                code: error.code().to_owned(),
                problem: error.to_string(),
                is_passing: error.is_retryable(),
            })),
        }
    }

    fn begin(&mut self, plan: Plan, said: &Said) -> Result<Answered, Refused> {
        let db = self.supervision.db;
        let (claim, definition) = (&self.supervision.active.claim, self.supervision.definition);
        let propose = |plan: Plan, said: Said| {
            commands::begin(db, claim, definition, plan, (self.process.clone(), said))
        };
        let (plan, begun, is_effectless) = match propose(plan.clone(), said.clone()) {
            Err(error) if crate::engine::is_effect_conflict(&error) => {
                let plan = crate::engine::without_effect(plan);
                let said = Said {
                    is_effectless: true,
                    ..said.clone()
                };
                let begun = propose(plan.clone(), said)?;
                (plan, begun, true)
            }
            begun => (plan, begun?, false),
        };
        self.progress = Progress::Some;
        self.revision = begun.revision;
        let Begun::Moved(advanced) = begun.value else {
            return Ok(Answered::Last(self.noted(), End::Done));
        };
        let finished = match &plan {
            Plan::Answered { finished, .. } | Plan::Expired { finished, .. } => {
                Some(finished.result().node_id.clone())
            }
            Plan::First { .. } | Plan::Again { .. } => None,
        };
        let next = plan.next();
        self.present.moved(finished.as_ref(), next, &advanced);
        Ok(self.moved(next, &advanced, is_effectless))
    }

    fn moved(&self, next: &Move, advanced: &Advanced, is_effectless: bool) -> Answered {
        let reply = Reply::accepted(self.now(), Some(advanced), is_effectless);
        let is_parked = matches!(
            advanced.effect,
            Some(holdpoint_state::effects::EffectStart::Ambiguous { .. })
        );
        match next {
            // A settings route that has to look again ended nothing.
            _ if advanced.unsettled.is_some() => Answered::On(reply),
            Move::Start(_) if !is_parked => Answered::On(reply),
            Move::Start(_) | Move::Complete | Move::End(..) | Move::HandOver => {
                Answered::Last(reply, End::Done)
            }
        }
    }

    fn noted(&self) -> Reply {
        Reply::accepted(self.now(), None, false)
    }

    fn direct(&self) -> Direct<'_> {
        Direct {
            db: self.supervision.db,
            active: self.supervision.active,
            draining: self.supervision.draining,
        }
    }

    /// Ends the process as its end asks for.
    pub(super) fn dismiss(mut self, launched: Launched, end: &End) -> Left {
        let left = match end {
            End::Done | End::GaveUp(_) | End::LoadFailed(_) | End::Gone(_) => {
                launched.end(LEAVE_GRACE, false)
            }
            End::Lost(_) | End::Failed(..) => {
                self.tell_to_stop(Stop::Lost);
                launched.end(Duration::from_millis(self.limits.stop_grace_ms), false)
            }
            End::Stopped(_) | End::Silent(_) => launched.end(Duration::ZERO, false),
            End::Broke(..) => launched.end(Duration::ZERO, true),
        };
        // The reading thread ends by it, whoever else may still hold the other end.
        drop(self.stream.shutdown(std::net::Shutdown::Both));
        left
    }
}

fn broke(problem: &str) -> End {
    End::Broke(problem.to_owned(), None)
}

/// What a message says: its kind, what it saw, and its body.
fn fingerprint(frame: &Frame) -> Digest {
    let mut bytes = frame.header.expected.to_be_bytes().to_vec();
    bytes.extend_from_slice(frame.header.kind.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(&frame.body);
    Digest::of(&bytes)
}

/// The next frame, if one comes within a look. A reading thread that is gone has sent its error before.
fn next(arrived: &Receiver<Arrived>) -> Option<Arrived> {
    match arrived.recv_timeout(LOOK) {
        Ok(arrived) => Some(arrived),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Err(FrameError::Closed)),
    }
}
