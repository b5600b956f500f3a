//! The worker's side: a run that is executed without the store. Every step is proposed to the host and counts once it says so.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::{Clock, SystemClock, UnixMillis};
use holdpoint_state::effects::EffectAttempt;
use holdpoint_state::{ClaimLostReason, Digest, StateError};
use serde::Serialize;
use serde_json::Value;

use super::frame::{Frame, FrameError, Header};
use super::launch::WorkerLimits;
use super::message::{
    AskDocument, AskSettings, GaveUp, Launch, LoadFailed, Nothing, PROTOCOL, Ready, Rejected,
    Reply, SaidFinish, SaidMove, SaidPlan, SaidStep, SaidUpdate, SaidWait, StopNow, StopReason,
    host, worker,
};
use crate::agents::AgentExecutor;
use crate::commands::{Advanced, Ask, FinishedAttempt, Move, Plan};
use crate::definition::{CancellationSignal, CancellationSource, Definition, NodeError};
use crate::engine::execute_for;
use crate::engine::{AGAIN_FIRST, AGAIN_MAX};
use crate::engine::{Deadlines, Documents, Executor, Host, Opening, Signals, Stepped, Stop};
use crate::error::WorkflowError;
use crate::id::{AttemptId, RunId};
use crate::model::{cut, resource};
use crate::registry::{SourceResolver, Unresolved, compare_mounts};
use crate::routing::NodeResult;
use crate::updates::{Publisher, Update, refused};

/// How long a worker goes on after its host is gone: its node gets its signal, and a command is ended.
const ORPHAN_GRACE: Duration = Duration::from_secs(7);
/// What a worker ends with whose channel was no channel, or whose host is gone.
const NO_HOST: u8 = 70;

/// Executes one run for the host that launched this process, and returns what the process should end with.
///
/// Call it before anything else is done: before threads, before a store is opened. The channel is the process's standard input; it
/// is moved away, so that nothing which the process starts can have it. Definitions come from the resolver, agents of headless runs
/// from the executor, as they would in the host.
pub fn run_child(
    resolver: &dyn SourceResolver,
    agents: Option<&Arc<dyn AgentExecutor>>,
) -> ExitCode {
    let worked = Channel::open().and_then(|channel| work(&channel, resolver, agents));
    match worked {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // The host keeps the last of it as the diagnostic of the worker.
            tracing::error!(problem, "the worker ends");
            drop(std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("worker: {problem}\n").as_bytes(),
            ));
            ExitCode::from(NO_HOST)
        }
    }
}

fn work(
    channel: &Channel,
    resolver: &dyn SourceResolver,
    agents: Option<&Arc<dyn AgentExecutor>>,
) -> Result<(), String> {
    let run = &channel.launch.run;
    channel
        .line
        .propose(worker::READY, &Ready { protocol: PROTOCOL })
        .map_err(|error| error.to_string())?;
    let found = resolver.resolve(&run.source, run.definition_digest);
    let definition = match compare_mounts(found, &run.mounted) {
        Ok(definition) => definition,
        Err(Unresolved::LoadFailed { error }) => {
            return channel
                .line
                .last(worker::LOAD_FAILED, &LoadFailed { error });
        }
        // The host had it a moment ago: it looks again, and parks the run if it is gone for good.
        Err(changed @ Unresolved::Changed { .. }) => {
            return channel
                .line
                .last(worker::GIVE_UP, &GaveUp::passing(&changed));
        }
        Err(unknown @ Unresolved::Unknown { .. }) => {
            return channel
                .line
                .last(worker::GIVE_UP, &GaveUp::for_good(&unknown));
        }
    };
    let deadlines = Deadlines::new(Arc::new(SystemClock)).map_err(|error| error.to_string())?;
    let mut executor = Executor::new("holdpoint-node".to_owned());
    let done = execute_for(
        channel,
        run,
        (&definition, agents),
        &deadlines,
        &mut executor,
    );
    match done {
        Ok(_) => Ok(()),
        // Somebody else has the run; the host said so, and wants nothing more.
        Err(error) if error.is_claim_lost() => Ok(()),
        Err(error) => channel
            .line
            .last(worker::GIVE_UP, &GaveUp::for_good(&error)),
    }
}

impl GaveUp {
    fn for_good(error: &impl ToString) -> Self {
        Self {
            detail: error.to_string(),
            is_passing: false,
        }
    }

    fn passing(error: &impl ToString) -> Self {
        Self {
            detail: error.to_string(),
            is_passing: true,
        }
    }
}

/// The channel to the host, after its launch was read.
struct Channel {
    line: Arc<Line>,
    launch: Launch,
}

/// Questions and answers, one at a time: a node may publish while another one that was left behind still does.
struct Line {
    shared: Arc<Shared>,
    run: RunId,
    talk: Mutex<Talk>,
}

struct Talk {
    replies: Receiver<(u64, Reply)>,
    /// The number of the next message.
    next: u64,
}

struct Shared {
    writer: Mutex<UnixStream>,
    message_bytes_max: usize,
    header: Header,
    /// The run's revision that the host told last.
    revision: AtomicU64,
    signals: Signals,
    draining: AtomicBool,
    /// What is added to this process's wall clock to have the host's.
    skew: AtomicI64,
}

impl Shared {
    fn send<T: Serialize>(&self, kind: &str, id: u64, body: &T) -> Result<(), FrameError> {
        let header = Header {
            expected: self.revision.load(Ordering::SeqCst),
            id,
            kind: kind.to_owned(),
            ..self.header.clone()
        };
        let frame = Frame::new(header, body)?;
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *writer, self.message_bytes_max)
    }

    fn told(&self, now: i64) {
        let skew = now.saturating_sub(SystemClock.now().0);
        self.skew.store(skew, Ordering::SeqCst);
    }
}

impl Channel {
    /// Takes the channel from standard input and reads the launch.
    fn open() -> Result<Self, String> {
        let stream = take_worker_channel().map_err(|error| format!("standard input: {error}"))?;
        let limits = WorkerLimits::default();
        let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
        let (header, launch) = read_launch(&mut reader, limits.message_bytes_max)
            .map_err(|error| format!("no launch: {error}"))?;
        if launch.protocol != PROTOCOL {
            return Err(format!(
                "the host speaks protocol {}, and this worker {PROTOCOL}",
                launch.protocol
            ));
        }
        let shared = Arc::new(Shared {
            writer: Mutex::new(stream),
            message_bytes_max: launch.message_bytes_max,
            revision: AtomicU64::new(header.expected),
            header,
            signals: Signals::default(),
            draining: AtomicBool::new(false),
            skew: AtomicI64::new(0),
        });
        shared.told(launch.now);
        let (sender, replies) = channel();
        let (listening, beating) = (Arc::clone(&shared), Arc::clone(&shared));
        spawn("holdpoint-worker-reader", move || {
            listen(&mut reader, &listening, &sender);
            // Whoever waits for an answer hears that none will come.
            drop(sender);
            CancellationSignal::never().wait(ORPHAN_GRACE);
            std::process::exit(i32::from(NO_HOST));
        })?;
        let interval = Duration::from_millis(launch.heartbeat_ms.max(1));
        spawn("holdpoint-worker-heart", move || {
            let never = CancellationSignal::never();
            loop {
                never.wait(interval);
                if beating.send(worker::HEARTBEAT, 0, &Nothing {}).is_err() {
                    return;
                }
            }
        })?;
        let line = Line {
            shared,
            run: launch.run.run_id.clone(),
            talk: Mutex::new(Talk { replies, next: 1 }),
        };
        Ok(Self {
            line: Arc::new(line),
            launch,
        })
    }
}

impl Line {
    /// Sends a message and waits for what the host says.
    fn send<T: Serialize>(&self, kind: &str, body: &T) -> Result<Reply, WorkflowError> {
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        let id = talk.next;
        match self.shared.send(kind, id, body) {
            Ok(()) => talk.next += 1,
            Err(error @ (FrameError::TooLong { .. } | FrameError::Malformed { .. })) => {
                return Err(WorkflowError::Input {
                    what: "message",
                    problem: error.to_string(),
                });
            }
            Err(FrameError::Closed | FrameError::Io(_)) => return Err(self.lost()),
        }
        loop {
            match talk.replies.recv() {
                Ok((of, reply)) if of == id => return Ok(reply),
                Ok(_) => {}
                Err(_) => return Err(self.lost()),
            }
        }
    }

    fn propose<T: Serialize>(&self, kind: &str, body: &T) -> Result<Stepped, WorkflowError> {
        match self.send(kind, body)? {
            Reply::Accepted {
                now,
                started_at,
                effect,
                is_effectless,
                settings,
                unsettled,
            } => {
                self.shared.told(now);
                Ok(Stepped {
                    advanced: Advanced {
                        started_at: started_at.map(UnixMillis),
                        effect: effect.map(super::message::SaidStart::start),
                        settings,
                        unsettled,
                    },
                    is_effectless,
                })
            }
            other => Err(self.unexpected(other)),
        }
    }

    fn ask<T: Serialize>(&self, kind: &str, body: &T) -> Result<Option<Value>, WorkflowError> {
        match self.send(kind, body)? {
            Reply::Found { value } => Ok(value),
            other => Err(self.unexpected(other)),
        }
    }

    fn unexpected(&self, reply: Reply) -> WorkflowError {
        let problem = match reply {
            Reply::Refused { code, .. } if code == "claimLost" => return self.lost(),
            Reply::Refused { problem, .. } => problem,
            Reply::Accepted { .. } | Reply::Found { .. } => {
                "the host answered another question".to_owned()
            }
        };
        WorkflowError::Transition {
            run: self.run.to_string(),
            problem,
        }
    }

    /// Publishes an update; waits for a store that is busy or full for a moment, as a thread does.
    fn publish(
        &self,
        attempt: &AttemptId,
        update: &Update,
        signal: &CancellationSignal,
    ) -> Result<(), NodeError> {
        let said = SaidUpdate::of(attempt, update).map_err(|error| refused(error.to_string()))?;
        let mut wait = AGAIN_FIRST;
        loop {
            match self.send(worker::PUBLISH, &said) {
                Ok(Reply::Accepted { now, .. }) => {
                    self.shared.told(now);
                    return Ok(());
                }
                Ok(Reply::Refused {
                    is_passing: true, ..
                }) => {
                    if let Some(reason) = signal.wait(wait) {
                        return Err(NodeError::stopped(reason));
                    }
                    wait = AGAIN_MAX.min(wait * 2);
                }
                Ok(other) => return Err(refused(self.unexpected(other).to_string())),
                Err(error) => return Err(refused(error.to_string())),
            }
        }
    }

    /// Sends a message after which there is nothing to say.
    fn last<T: Serialize>(&self, kind: &str, body: &T) -> Result<(), String> {
        match self.propose(kind, body) {
            Ok(_) => Ok(()),
            Err(error) if error.is_claim_lost() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whoever can't speak to the host has no claim.
    fn lost(&self) -> WorkflowError {
        WorkflowError::State(StateError::ClaimLost {
            resource: resource(&self.run),
            reason: ClaimLostReason::MissingAuthority,
        })
    }
}

/// Takes the channel of a worker process from its standard input, where whatever the process starts can't have it, and leads a session,
/// so that all of that can be ended with it. For the workers of domains above this one: [`run_child`] does it itself.
///
/// # Errors
///
/// Those of the operating system, as when standard input is closed.
pub fn take_worker_channel() -> std::io::Result<UnixStream> {
    let stream = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(&File::open("/dev/null")?)?;
    lead_session();
    Ok(stream)
}

/// Leads a session of its own: what this process starts can be ended with it, and no terminal reaches it.
///
/// The host launched it as the leader of a group, which can't begin a session: it is in the group of its host for that moment. Where it
/// can't begin one (its program started others before), it leads its group as before.
fn lead_session() {
    use rustix::process::{getpgid, getppid, setpgid, setsid};
    let hosts = getppid().and_then(|host| getpgid(Some(host)).ok());
    let _left = setpgid(None, hosts);
    if setsid().is_err() {
        let _back = setpgid(None, None);
    }
}

fn read_launch(
    reader: &mut UnixStream,
    message_bytes_max: usize,
) -> Result<(Header, Launch), String> {
    let mut read = || Frame::read(reader, message_bytes_max).map_err(|error| error.to_string());
    let first = read()?;
    if first.header.kind != host::LAUNCH {
        return Err(format!("it begins with {:?}", first.header.kind));
    }
    let mut launch: Launch = first.parse().map_err(|error| error.to_string())?;
    loop {
        let frame = read()?;
        match frame.header.kind.as_str() {
            host::STEP => {
                let step: NodeResult = frame.parse().map_err(|error| error.to_string())?;
                launch.run.history.push(step);
            }
            host::GO => return Ok((first.header, launch)),
            other => return Err(format!("{other:?} is no part of it")),
        }
    }
}

/// Takes in what the host says until it is gone.
fn listen(reader: &mut UnixStream, shared: &Shared, replies: &Sender<(u64, Reply)>) {
    while let Ok(frame) = Frame::read(reader, shared.message_bytes_max) {
        let is_mine = frame.header.epoch == shared.header.epoch
            && frame.header.generation == shared.header.generation;
        if !is_mine {
            break;
        }
        match frame.header.kind.as_str() {
            host::REPLY => {
                let Ok(reply) = frame.parse::<Reply>() else {
                    break;
                };
                shared
                    .revision
                    .store(frame.header.expected, Ordering::SeqCst);
                if replies.send((frame.header.id, reply)).is_err() {
                    break;
                }
            }
            host::DRAIN => shared.draining.store(true, Ordering::SeqCst),
            host::STOP => match frame.parse::<StopNow>() {
                Ok(StopNow {
                    reason: StopReason::Drain,
                }) => {
                    shared.draining.store(true, Ordering::SeqCst);
                    shared.signals.stop(Stop::Drain);
                }
                Ok(StopNow {
                    reason: StopReason::Lost,
                }) => shared.signals.stop(Stop::Lost),
                Err(_) => break,
            },
            _ => break,
        }
    }
    // Without a host nothing can count any more. The node gets its signal; a process that does not end by it is ended here.
    shared.signals.stop(Stop::Lost);
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map(drop)
        .map_err(|error| format!("could not start a thread: {error}"))
}

impl Documents for Channel {
    fn document(&self, hash: Digest) -> Result<Value, WorkflowError> {
        let found = self.line.ask(worker::DOCUMENT, &AskDocument { hash })?;
        Ok(found.unwrap_or_default())
    }

    fn present(&self, _run: &RunId, mount_path: &str) -> Result<Option<Value>, WorkflowError> {
        let mount_path = mount_path.to_owned();
        self.line.ask(worker::SETTINGS, &AskSettings { mount_path })
    }
}

impl Opening for Channel {
    fn begin(&self, plan: &Plan) -> Result<Stepped, WorkflowError> {
        self.line.propose(worker::BEGIN, &SaidPlan::of(plan)?)
    }

    fn accept(&self, finished: &FinishedAttempt, next: &Move) -> Result<Stepped, WorkflowError> {
        let step = SaidStep {
            finished: SaidFinish::of(finished)?,
            next: SaidMove::of(next)?,
        };
        self.line.propose(worker::ACCEPT, &step)
    }

    fn reject(&self, problem: &str) -> Result<(), WorkflowError> {
        let message = cut(problem);
        self.line.propose(worker::REJECT, &Rejected { message })?;
        Ok(())
    }
}

impl Host for Channel {
    fn now(&self) -> i64 {
        let skew = self.line.shared.skew.load(Ordering::SeqCst);
        SystemClock.now().0.saturating_add(skew)
    }

    fn begin_node(&self) -> CancellationSource {
        self.line.shared.signals.begin_node()
    }

    fn publisher(&self, attempt: &AttemptId, signal: CancellationSignal) -> Publisher {
        let (line, attempt) = (Arc::clone(&self.line), attempt.clone());
        Publisher::new(move |update| line.publish(&attempt, &update, &signal))
    }

    fn stopped(&self) -> Option<Stop> {
        self.line.shared.signals.stopped()
    }

    fn documents(&self) -> &dyn Documents {
        self
    }

    fn is_draining(&self) -> bool {
        self.line.shared.draining.load(Ordering::SeqCst)
    }

    fn advance(
        &self,
        _definition: &Definition,
        finished: FinishedAttempt,
        next: &Move,
    ) -> Result<Stepped, WorkflowError> {
        let step = SaidStep {
            finished: SaidFinish::of(&finished)?,
            next: SaidMove::of(next)?,
        };
        self.line.propose(worker::ADVANCE, &step)
    }

    fn wait(&self, attempt: &AttemptId, ask: Ask) -> Result<(), WorkflowError> {
        self.line
            .propose(worker::WAIT, &SaidWait::of(attempt, &ask))?;
        Ok(())
    }

    fn doubt(&self, _effect: &EffectAttempt) -> Result<(), WorkflowError> {
        self.line.propose(worker::DOUBT, &Nothing {})?;
        Ok(())
    }

    fn hand_over(&self) -> Result<(), WorkflowError> {
        self.line.propose(worker::HAND_OVER, &Nothing {})?;
        Ok(())
    }
}
