//! The host's side: launches the worker of one pass, does what it asks under the claim, and ends it.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use holdpoint_state::clock::{Clock, SystemClock};
use holdpoint_state::id::random_id;
use holdpoint_workflows::definition::CancellationSignal;
use holdpoint_workflows::{WorkerEnd, WorkerLauncher, WorkerProcess};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::frame::{self, FrameError};
use super::message::{
    self, LAUNCH, Launch, MESSAGE, Message, Operation, RESPONSE, Response, SaidChild, SaidEffect,
    SaidFailure, SaidFollowUp, SaidOutcome, SaidRemoval, SaidSettings, Verdict,
};
use crate::child::Child;
use crate::controller::PassError;
use crate::error::ControllerError;
use crate::host::{Begun, ClaimHost, Host};
use crate::model::{EffectKey, EffectRequest, ManagedResource, ProjectPath, REQUEUE_MS_MAX};
use crate::runtime::Ended;

/// How long a worker may take until it is ready, by the clock of the machine, unless its launcher says less.
const READY_MS: u64 = 15_000;
/// How long a worker may go on that said its last word, and one that got SIGTERM.
const LEAVE_GRACE: Duration = Duration::from_secs(2);
const TERM_GRACE: Duration = Duration::from_secs(2);
/// How often the clock of the store is looked at while a pass runs.
const LOOK: Duration = Duration::from_millis(100);

/// What whoever waits for a worker is told.
enum Told {
    Said(Result<Message, FrameError>),
    Stop,
}

/// How the talk with a worker ended.
enum Last {
    /// It said its last word.
    Word(Ended),
    /// It is gone without one.
    Gone(String),
    /// It is to be ended at once.
    Kill(Ended),
    /// It is to be told to stop, and ended after a while.
    Stop,
}

/// One pass in a worker process.
pub(crate) struct Isolated<'a> {
    pub(crate) launcher: &'a WorkerLauncher,
    pub(crate) project: &'a ProjectPath,
    pub(crate) resource: &'a ManagedResource,
    pub(crate) generation: u64,
    pub(crate) limit: Duration,
    pub(crate) host: &'a ClaimHost,
}

/// Runs a pass in a worker process and waits for it, at most until its time is over. Nothing of the process is left when this returns.
pub(crate) fn in_process(
    isolated: &Isolated<'_>,
    clock: &dyn Clock,
    stop: &CancellationSignal,
) -> Ended {
    let (process, stream) = match isolated.launcher.start() {
        Ok(started) => started,
        Err(error) => return Ended::Failed(format!("the worker could not be started: {error}")),
    };
    let talk = Talk::open(isolated, stream, stop).and_then(|mut talk| {
        let last = talk.serve(isolated, clock)?;
        Ok((talk, last))
    });
    let last = match talk {
        Ok((talk, last)) => {
            // A closed channel tells a worker to stop.
            drop(talk);
            last
        }
        Err(error) => Last::Gone(error.to_string()),
    };
    match last {
        Last::Word(ended) => {
            process.end(LEAVE_GRACE, TERM_GRACE);
            ended
        }
        Last::Kill(ended) => {
            process.end(Duration::ZERO, TERM_GRACE);
            ended
        }
        Last::Stop => {
            process.end(LEAVE_GRACE, TERM_GRACE);
            Ended::Stopped
        }
        Last::Gone(problem) => Ended::Failed(described(&problem, process)),
    }
}

/// What is known of a worker that ended without its last word.
fn described(problem: &str, process: WorkerProcess) -> String {
    let WorkerEnd {
        status,
        signal,
        diagnostic,
        ..
    } = process.end(LEAVE_GRACE, TERM_GRACE);
    let how = match (signal, status.and_then(|status| status.code())) {
        (Some(signal), _) => format!("it was ended by {signal}"),
        (None, Some(code)) => format!("it ended with {code}"),
        (None, None) => "its end was not seen".to_owned(),
    };
    let said = if diagnostic.is_empty() {
        String::new()
    } else {
        format!("; it wrote: {diagnostic}")
    };
    format!("the worker of the pass gave no result: {problem}; {how}{said}")
}

/// The channel to one worker.
struct Talk {
    writer: UnixStream,
    told: Receiver<Told>,
    runner_epoch: String,
    /// The effect that the pass asked for last.
    effect: Option<EffectRequest>,
    /// What it may look at beside that.
    left_over: Vec<EffectKey>,
    _watch: holdpoint_workflows::definition::WatchGuard,
}

impl Talk {
    /// Sends the launch and begins to listen.
    fn open(
        isolated: &Isolated<'_>,
        mut writer: UnixStream,
        stop: &CancellationSignal,
    ) -> Result<Self, FrameError> {
        let reader = writer.try_clone().map_err(FrameError::Io)?;
        // A launch can be larger than what the channel holds, and a worker that starts slowly reads it when it has started.
        let start_ms = READY_MS.min(isolated.launcher.limits().ready_ms).max(1);
        writer
            .set_write_timeout(Some(Duration::from_millis(start_ms)))
            .map_err(FrameError::Io)?;
        let (sender, told) = channel();
        let stopping = sender.clone();
        std::thread::Builder::new()
            .name("holdpoint-pass-frames".to_owned())
            .spawn(move || listen(reader, &sender))
            .map_err(FrameError::Io)?;
        let runner_epoch = random_id("runner");
        let left_over = isolated
            .host
            .left_over()
            .map_err(|error| FrameError::Io(std::io::Error::other(error.to_string())))?;
        let launch = Launch {
            schema: LAUNCH.to_owned(),
            runner_epoch: runner_epoch.clone(),
            server_epoch: format!("process-{}", std::process::id()),
            generation: isolated.generation,
            project_path: isolated.project.clone(),
            definition_path: isolated.launcher.program().to_string_lossy().into_owned(),
            controller_name: isolated.resource.metadata.controller.to_string(),
            resource: isolated.resource.clone(),
            left_over: left_over.iter().map(SaidEffect::of).collect(),
            // What JSON can say exactly; the host's own limit is the one that counts.
            timeout_ms: u64::try_from(isolated.limit.as_millis())
                .unwrap_or(u64::MAX)
                .clamp(1, REQUEUE_MS_MAX),
        };
        frame::write(&mut writer, &launch)?;
        writer
            .set_write_timeout(Some(TERM_GRACE))
            .map_err(FrameError::Io)?;
        Ok(Self {
            writer,
            told,
            runner_epoch,
            effect: None,
            left_over: left_over.into_iter().map(|left| left.key).collect(),
            _watch: stop.watch(move |_| drop(stopping.send(Told::Stop))),
        })
    }

    /// Answers until there is a reason to end.
    fn serve(&mut self, isolated: &Isolated<'_>, clock: &dyn Clock) -> Result<Last, FrameError> {
        let limit_ms = u64::try_from(isolated.limit.as_millis())
            .unwrap_or(u64::MAX)
            .max(1);
        let ready_ms = READY_MS.min(isolated.launcher.limits().ready_ms);
        let launched = SystemClock.monotonic();
        let mut begun = None;
        loop {
            let left = match begun {
                Some(begun) => limit_ms.saturating_sub(clock.monotonic().since(begun)),
                None => ready_ms.saturating_sub(SystemClock.monotonic().since(launched)),
            };
            if left == 0 {
                let problem = match begun {
                    Some(_) => format!("the pass took longer than its {limit_ms} ms"),
                    None => format!("the worker was not ready within {ready_ms} ms"),
                };
                return Ok(Last::Kill(Ended::Failed(problem)));
            }
            let message = match self
                .told
                .recv_timeout(LOOK.min(Duration::from_millis(left)))
            {
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) | Ok(Told::Said(Err(FrameError::Closed))) => {
                    return Ok(Last::Gone("it closed its channel".to_owned()));
                }
                Ok(Told::Stop) => return Ok(Last::Stop),
                Ok(Told::Said(Err(FrameError::Io(error)))) => return Err(FrameError::Io(error)),
                Ok(Told::Said(Err(error))) => {
                    let problem = format!("the worker broke the protocol: {error}");
                    return Ok(Last::Kill(Ended::Failed(problem)));
                }
                Ok(Told::Said(Ok(message))) => message,
            };
            if let Some(problem) = self.foreign(&message, isolated.generation, begun.is_some()) {
                let problem = format!("the worker broke the protocol: {problem}");
                return Ok(Last::Kill(Ended::Failed(problem)));
            }
            match message.operation {
                Operation::Ready => begun = Some(clock.monotonic()),
                Operation::Finished => {
                    self.answer(&message, Verdict::Accepted, None, None)?;
                    let ended = match message::proposal(&message.payload) {
                        Ok(proposal) => Ended::Proposed(proposal),
                        Err(error) => Ended::Failed(error.to_string()),
                    };
                    return Ok(Last::Word(ended));
                }
                Operation::Failed => {
                    self.answer(&message, Verdict::Accepted, None, None)?;
                    let said = serde_json::from_value::<SaidFailure>(message.payload);
                    let problem = said.map_or_else(|error| error.to_string(), |said| said.error);
                    return Ok(Last::Word(Ended::Failed(problem)));
                }
                Operation::Reserve
                | Operation::Settle
                | Operation::EnsureWorkflow
                | Operation::ChangeSettings
                | Operation::QueueFollowUp
                | Operation::RemoveFollowUp => {}
            }
            match self.act(isolated.host, &message) {
                Ok(result) => self.answer(&message, Verdict::Accepted, Some(result), None)?,
                Err(error) if is_claim_lost(&error) => {
                    self.answer(&message, Verdict::ClaimLost, None, None)?;
                    return Ok(Last::Stop);
                }
                Err(error) => {
                    let problem = Some(error.to_string());
                    self.answer(&message, Verdict::Rejected, None, problem)?;
                }
            }
        }
    }

    /// Why a message is not one of this worker, if it is not.
    fn foreign(&self, message: &Message, generation: u64, is_ready: bool) -> Option<&'static str> {
        if message.schema != MESSAGE || message.launch_schema != LAUNCH {
            return Some("a message has another schema");
        }
        if message.runner_epoch != self.runner_epoch || message.generation != generation {
            return Some("a message speaks for another worker or generation");
        }
        match (message.operation, is_ready) {
            (Operation::Ready, true) => Some("it was ready twice"),
            (Operation::Ready, false) | (_, true) => None,
            (_, false) => Some("it spoke before it was ready"),
        }
    }

    /// Does what a worker asks, under the claim.
    fn act(&mut self, host: &ClaimHost, message: &Message) -> Result<Value, PassError> {
        host.renew()?;
        match message.operation {
            Operation::Reserve => {
                let said: SaidEffect = read(&message.payload)?;
                let request = said.request()?;
                let before = self.effect.as_ref().map(|before| &before.key);
                if before.is_some_and(|before| !self.left_over.contains(before)) {
                    return Err(PassError::new("a pass has one effect"));
                }
                let begun = host.begin(&request)?;
                self.effect = Some(request);
                Ok(serde_json::to_value(begun)?)
            }
            Operation::Settle => {
                let said: SaidOutcome = read(&message.payload)?;
                let request = self.effect.as_ref();
                let request = request.ok_or_else(|| PassError::new("no effect was reserved"))?;
                let begun = match said {
                    SaidOutcome::Observed(observed) => host.observed(request, observed)?,
                    SaidOutcome::Acted(acted) => Begun::Known(host.settle(request, acted)?),
                };
                Ok(serde_json::to_value(begun)?)
            }
            Operation::EnsureWorkflow => {
                let said: SaidChild = read(&message.payload)?;
                let child = Child::new(said.request_key, said.workflow, said.input)?;
                Ok(serde_json::to_value(host.ensure_workflow(&child)?)?)
            }
            Operation::Ready | Operation::Finished | Operation::Failed => Ok(Value::Null),
            Operation::ChangeSettings => {
                let said: SaidSettings = read(&message.payload)?;
                host.change_settings(&said.request_key, said.patch, &said.key)?;
                Ok(Value::Null)
            }
            Operation::QueueFollowUp => {
                let said: SaidFollowUp = read(&message.payload)?;
                let queued = host.queue_follow_up(&said.request_key, &said.prompt, &said.key)?;
                Ok(queued.into())
            }
            Operation::RemoveFollowUp => {
                let said: SaidRemoval = read(&message.payload)?;
                host.remove_follow_up(&said.request_key, &said.follow_up)?;
                Ok(Value::Null)
            }
        }
    }

    fn answer(
        &mut self,
        message: &Message,
        outcome: Verdict,
        result: Option<Value>,
        error: Option<String>,
    ) -> Result<(), FrameError> {
        let response = Response {
            schema: RESPONSE.to_owned(),
            message_id: message.message_id.clone(),
            outcome,
            result,
            error,
        };
        frame::write(&mut self.writer, &response)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // The listening thread has the other handle.
        drop(self.writer.shutdown(std::net::Shutdown::Both));
    }
}

fn read<T: DeserializeOwned>(payload: &Value) -> Result<T, PassError> {
    Ok(serde_json::from_value(payload.clone())?)
}

fn is_claim_lost(error: &PassError) -> bool {
    let lost = error.downcast_ref::<ControllerError>();
    lost.is_some_and(|error| error.claim_lost().is_some())
}

/// Passes messages on until the worker is gone.
fn listen(reader: UnixStream, sender: &Sender<Told>) {
    let mut reader = BufReader::new(reader);
    loop {
        let said = frame::read(&mut reader);
        let is_last = said.is_err();
        if sender.send(Told::Said(said)).is_err() || is_last {
            return;
        }
    }
}
