//! One worker process that was launched: what it says is judged here, and answered.
//!
//! A frame is judged in this order: its lengths, the form of its header, whose it is (worker, generation, run), its number and
//! revision, its kind, and only then its body. The first that is wrong ends the worker.

mod propose;

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
use super::message::{GaveUp, Launch, Nothing, PROTOCOL, Reply, StopNow, StopReason, host, worker};
use super::proposal::{Present, Untaken};
use crate::commands::{RefusedMessage, Said};
use crate::engine::Stop;
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
    /// The candidate that the worker is launched for, until it said what becomes of it.
    candidate: Option<String>,
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
            candidate: run
                .asked
                .as_ref()
                .and_then(|asked| Some(asked.candidate.as_ref()?.0.clone())),
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
