//! The worker's side: one pass without the store. Whatever it commits is asked of the host.

use std::collections::BTreeMap;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_workflows::definition::{CancellationSignal, CancellationSource, StopReason};
use holdpoint_workflows::take_worker_channel;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::frame::{self, FrameError};
use super::message::{
    self, LAUNCH, Launch, MESSAGE, Message, Operation, RESPONSE, Response, SaidChild, SaidEffect,
    SaidFailure, SaidOutcome, Verdict,
};
use crate::child::Child;
use crate::controller::{AnyController, Controller, PassError, Typed};
use crate::error::ControllerError;
use crate::external::{Acted, Observed};
use crate::host::{Begun, Host};
use crate::model::{ChildRecord, ControllerName, EffectRecord, EffectRequest, RequestKey, cut};
use crate::runtime::panic_text;

/// How long a worker goes on after its host is gone.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);
/// What a worker ends with whose channel was no channel, or whose host is gone.
const NO_HOST: u8 = 70;

/// The controllers of a worker process, which executes one pass for the host that launched it.
///
/// A program launches itself: `main` begins with this when it is started with the argument that its
/// [`WorkerLauncher`](holdpoint_workflows::WorkerLauncher) gives it.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use holdpoint_controllers::PassWorker;
/// # use holdpoint_controllers::{Action, Controller, Pass, PassError};
/// # struct Rooms;
/// # impl Controller for Rooms {
/// #     type Spec = u32;
/// #     type Status = u32;
/// #     fn name(&self) -> &str { "rooms" }
/// #     fn initial_status(&self, _: &u32) -> u32 { 0 }
/// #     fn reconcile(&self, _: &mut Pass<'_, u32, u32>) -> Result<Action, PassError> { Ok(Action::settled()) }
/// # }
///
/// fn main() -> ExitCode {
///     if std::env::args().nth(1).as_deref() == Some("pass-worker") {
///         return match PassWorker::new().register(Rooms) {
///             Ok(worker) => worker.run(),
///             Err(_) => ExitCode::FAILURE,
///         };
///     }
///     // … the host: `Controllers::isolating(WorkerLauncher::new(std::env::current_exe()?).argument("pass-worker"))`.
///     ExitCode::SUCCESS
/// }
/// ```
#[derive(Default)]
#[must_use = "it executes nothing before it runs"]
pub struct PassWorker {
    known: BTreeMap<ControllerName, Arc<dyn AnyController>>,
}

impl PassWorker {
    /// A worker that knows no controller yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a controller more: the ones that the host registers.
    ///
    /// # Errors
    ///
    /// [`ControllerError::Registered`] when its name is taken; [`ControllerError::Invalid`] for a name that is none.
    pub fn register<C: Controller>(mut self, controller: C) -> Result<Self, ControllerError> {
        let name = ControllerName::new(controller.name())?;
        if self.known.contains_key(&name) {
            return Err(ControllerError::Registered {
                controller: name.to_string(),
            });
        }
        self.known.insert(name, Arc::new(Typed(controller)));
        Ok(self)
    }

    /// Executes the pass, and returns what the process should end with. Call it before threads are started or a store is opened; the
    /// channel is the process's standard input.
    pub fn run(self) -> ExitCode {
        match self.work() {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                // The host keeps the last of it as the diagnostic of the worker.
                drop(std::io::Write::write_all(
                    &mut std::io::stderr(),
                    format!("worker: {problem}\n").as_bytes(),
                ));
                ExitCode::from(NO_HOST)
            }
        }
    }

    fn work(self) -> Result<(), String> {
        let stream = take_worker_channel().map_err(|error| format!("standard input: {error}"))?;
        let reader = stream.try_clone().map_err(|error| error.to_string())?;
        let mut reader = BufReader::new(reader);
        let launch: Launch =
            frame::read(&mut reader).map_err(|error| format!("no launch: {error}"))?;
        if launch.schema != LAUNCH {
            return Err(format!(
                "the host speaks {:?}, and this worker {LAUNCH:?}",
                launch.schema
            ));
        }
        let stop = CancellationSource::new();
        let signal = stop.signal();
        let line = Line::open(stream, reader, &launch, stop.clone())?;
        line.say::<_, Value>(Operation::Ready, &json!({}))
            .map_err(|error| error.to_string())?;
        let limit = Duration::from_millis(launch.timeout_ms);
        spawn("holdpoint-pass-deadline", move || {
            CancellationSignal::never().wait(limit);
            stop.stop(StopReason::TimedOut);
        })?;
        let name = ControllerName::new(launch.controller_name.as_str());
        let controller = name.ok().and_then(|name| self.known.get(&name).cloned());
        let ended = match controller {
            Some(controller) => {
                let pass =
                    AssertUnwindSafe(|| controller.reconcile(&launch.resource, &line, signal));
                match catch_unwind(pass) {
                    Ok(Ok(proposal)) => {
                        message::result(proposal).map_err(|error| error.to_string())
                    }
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(panic) => Err(format!("the pass panicked: {}", panic_text(&*panic))),
                }
            }
            None => Err(format!(
                "the worker has no controller {:?}",
                launch.controller_name
            )),
        };
        let failed = |error: &str| {
            let error = cut(error);
            line.say::<_, Value>(Operation::Failed, &SaidFailure { error })
        };
        let told = match ended {
            Ok(result) => match line.say::<_, Value>(Operation::Finished, &result) {
                // Such as a status that is too large for a frame: without a word the host would not know why.
                Err(error @ Refusal::Unsayable(_)) => failed(&PassError::from(error).to_string()),
                told => told,
            },
            Err(error) => failed(&error),
        };
        // Somebody else has the resource, or the host looks for itself: there is nothing to say to either.
        drop(told);
        Ok(())
    }
}

impl std::fmt::Debug for PassWorker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PassWorker")
            .field("names", &self.known.keys())
            .finish()
    }
}

/// Questions to the host and its answers, one at a time.
struct Line {
    talk: Mutex<Talk>,
    runner_epoch: String,
    generation: u64,
    left_over: Vec<SaidEffect>,
}

struct Talk {
    writer: UnixStream,
    answers: Receiver<Response>,
    said: u64,
}

/// Why the host did not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Rejected(String),
    #[error("the claim of the pass is lost: it must end")]
    ClaimLost,
    #[error("the host is gone")]
    Gone,
    #[error("the host answered something else: {0}")]
    Foreign(String),
    #[error("it can't be said to the host: {0}")]
    Unsayable(#[source] FrameError),
}

impl Line {
    fn open(
        writer: UnixStream,
        mut reader: BufReader<UnixStream>,
        launch: &Launch,
        stop: CancellationSource,
    ) -> Result<Self, String> {
        let (sender, answers) = channel();
        spawn("holdpoint-pass-answers", move || {
            listen(&mut reader, &sender);
            drop(sender);
            // Whoever works for a host that is gone, or has told it to stop by closing the channel, works for nobody.
            stop.stop(StopReason::Cancelled);
            CancellationSignal::never().wait(ORPHAN_GRACE);
            std::process::exit(i32::from(NO_HOST));
        })?;
        Ok(Self {
            talk: Mutex::new(Talk {
                writer,
                answers,
                said: 0,
            }),
            runner_epoch: launch.runner_epoch.clone(),
            generation: launch.generation,
            left_over: launch.left_over.clone(),
        })
    }

    fn say<T: Serialize, R: DeserializeOwned>(
        &self,
        operation: Operation,
        payload: &T,
    ) -> Result<R, Refusal> {
        let foreign = |error: serde_json::Error| Refusal::Foreign(error.to_string());
        let mut talk = self.talk.lock().unwrap_or_else(PoisonError::into_inner);
        talk.said += 1;
        let message = Message {
            schema: MESSAGE.to_owned(),
            launch_schema: LAUNCH.to_owned(),
            message_id: talk.said.to_string(),
            runner_epoch: self.runner_epoch.clone(),
            generation: self.generation,
            operation,
            payload: serde_json::to_value(payload).map_err(foreign)?,
        };
        match frame::write(&mut talk.writer, &message) {
            Ok(()) => {}
            Err(FrameError::Closed | FrameError::Io(_)) => return Err(Refusal::Gone),
            Err(error) => return Err(Refusal::Unsayable(error)),
        }
        let answer = talk.answers.recv().map_err(|_gone| Refusal::Gone)?;
        drop(talk);
        if answer.schema != RESPONSE || answer.message_id != message.message_id {
            return Err(Refusal::Foreign(
                "it is the answer to another message".to_owned(),
            ));
        }
        match answer.outcome {
            Verdict::Accepted => {
                serde_json::from_value(answer.result.unwrap_or(Value::Null)).map_err(foreign)
            }
            Verdict::Rejected => Err(Refusal::Rejected(answer.error.unwrap_or_default())),
            Verdict::ClaimLost => Err(Refusal::ClaimLost),
        }
    }
}

impl Host for Line {
    fn left_over(&self) -> Result<Vec<EffectRequest>, PassError> {
        let said = self.left_over.iter().cloned();
        let requests = said.map(SaidEffect::request);
        Ok(requests.collect::<Result<_, _>>()?)
    }

    fn begin(&self, request: &EffectRequest) -> Result<Begun, PassError> {
        Ok(self.say(Operation::Reserve, &SaidEffect::of(request))?)
    }

    fn observed(&self, _: &EffectRequest, observed: Observed) -> Result<Begun, PassError> {
        Ok(self.say(Operation::Settle, &SaidOutcome::Observed(observed))?)
    }

    fn settle(&self, _: &EffectRequest, acted: Acted) -> Result<EffectRecord, PassError> {
        let begun: Begun = self.say(Operation::Settle, &SaidOutcome::Acted(acted))?;
        match begun {
            Begun::Known(record) | Begun::Act(record) | Begun::Observe(record) => Ok(record),
        }
    }

    fn ensure_workflow(&self, child: &Child) -> Result<ChildRecord, PassError> {
        let request = child.request();
        let said = SaidChild {
            request_key: request.request_key.to_string(),
            workflow: request.workflow,
            input: request.input,
        };
        Ok(self.say(Operation::EnsureWorkflow, &said)?)
    }

    fn change_settings(
        &self,
        child: &RequestKey,
        patch: Value,
        key: &str,
    ) -> Result<(), PassError> {
        let said = json!({ "requestKey": child, "patch": patch, "key": key });
        Ok(self.say(Operation::ChangeSettings, &said)?)
    }

    fn queue_follow_up(
        &self,
        child: &RequestKey,
        prompt: &str,
        key: &str,
    ) -> Result<String, PassError> {
        let said = json!({ "requestKey": child, "prompt": prompt, "key": key });
        Ok(self.say(Operation::QueueFollowUp, &said)?)
    }

    fn remove_follow_up(&self, child: &RequestKey, follow_up: &str) -> Result<(), PassError> {
        let said = json!({ "requestKey": child, "followUp": follow_up });
        Ok(self.say(Operation::RemoveFollowUp, &said)?)
    }
}

/// Passes answers on until the host is gone.
fn listen(reader: &mut BufReader<UnixStream>, sender: &Sender<Response>) {
    while let Ok(answer) = frame::read(reader) {
        if sender.send(answer).is_err() {
            return;
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), String> {
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body);
    thread
        .map(drop)
        .map_err(|error| format!("a thread could not be started: {error}"))
}
