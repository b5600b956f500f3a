//! The transitions of a run that a worker process executes: its launch, its first move, and its end. What it proposes in between are
//! the same commands as those of a thread, with its message saved beside what it did.

use holdpoint_state::{
    Actor, Change, Claim, Command, Database, Digest, Outcome, Owner, Payload, Receipt,
};
use serde_json::json;

use super::advance::Advanced;
use super::claim::{self, Begun};
use super::park::{give_back, park_ambiguous};
use super::submit::{self, Looking};
use super::{Plan, Touches, terminal};
use crate::definition::Definition;
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{
    LOAD_FAILED, MessageOutcome, ParkCode, RunStatus, TerminalStatus, VALIDATION_LOST,
    WorkerStatus, cut, resource,
};
use crate::operations;
use crate::store;
use crate::store::workers::{self, Process};
use crate::views::Asked;
use crate::worker::Reply;

/// A message of a worker process, to be saved with what it did.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// The worker.
    pub(crate) epoch: String,
    /// The number of the message.
    pub(crate) id: u64,
    /// The digest of what it says.
    pub(crate) fingerprint: Digest,
    /// Whether the next attempt begins without its effect, whose key is taken.
    pub(crate) is_effectless: bool,
}

impl Said {
    fn message(&self) -> workers::Message<'_> {
        workers::Message {
            epoch: &self.epoch,
            id: self.id,
            fingerprint: self.fingerprint,
        }
    }

    /// Saves the message, which is the first proposal of its worker, as accepted by this change.
    pub(super) fn open(
        &self,
        change: &mut Change<'_>,
        advanced: Option<&Advanced>,
    ) -> Result<(), WorkflowError> {
        workers::begin(change, &self.epoch)?;
        self.save(change, advanced)
    }

    /// Saves the message as accepted by this change, with the answer that its worker gets.
    pub(super) fn save(
        &self,
        change: &mut Change<'_>,
        advanced: Option<&Advanced>,
    ) -> Result<(), WorkflowError> {
        let reply = Reply::accepted(change.now().0, advanced, self.is_effectless);
        let reply = change.put_blob(&Payload::json(&reply)?)?;
        workers::insert_message(
            change,
            &self.message(),
            MessageOutcome::Accepted,
            (Some(reply), None),
        )?;
        Ok(())
    }
}

/// A wish to take a run for a worker process.
#[derive(Debug)]
pub(crate) struct Launching<'a> {
    pub(crate) run: RunId,
    /// The revision at which it was read.
    pub(crate) revision: u64,
    pub(crate) owner: Owner,
    pub(crate) lease_ms: i64,
    pub(crate) definition: &'a Definition,
    /// What it waits for: a candidate that the worker is to look at, or a request whose time a model spent.
    pub(crate) asked: Option<&'a Asked>,
    /// The worker: one process for one generation.
    pub(crate) epoch: String,
}

/// Takes a run for a worker process that is not launched yet. `None` when there is nothing to launch one for: the outcome of an effect
/// of a lost runner can't be known, and the run is parked; or whoever looked at its candidate was lost, and it is refused.
pub(crate) fn launch(
    db: &Database,
    launching: Launching<'_>,
) -> Result<Receipt<Option<Claim>>, WorkflowError> {
    let command = Command::new(&operations::CLAIM, resource(&launching.run))
        .by(Actor::host(launching.owner.id()))
        .expecting(launching.revision);
    let (owner, lease_ms, epoch) = (launching.owner, launching.lease_ms, launching.epoch);
    let digest = Digest(launching.definition.digest());
    let has_settings = launching.definition.has_settings();
    let looks = launching
        .asked
        .is_some_and(|asked| asked.candidate.is_some());
    let is_expired = launching.asked.is_some_and(|asked| asked.is_expired);
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        if looks || is_expired {
            claim::check_open(&run)?;
        } else {
            claim::check_claimable(change, &run)?;
        }
        if run.definition_digest != digest {
            return Err(run.transition("the runner brings another definition"));
        }
        if has_settings {
            super::settings::check_history(change)?;
        }
        let look = looks.then(|| submit::look(change, &run)).transpose()?;
        let claim = change.claim(&owner, lease_ms)?;
        let mut touches = Touches::default();
        touches.add(
            change,
            &operations::CLAIM,
            None,
            Some(Payload::json(&json!({
                "generation": claim.generation(),
                "worker": epoch,
            }))?),
        )?;
        workers::orphan(change)?;
        if let Some(look) = &look
            && look.begin(change, &mut touches, &run)? == Looking::Lost
        {
            touches.finish(change)?;
            return Ok(Outcome::Accepted(None));
        }
        if run.status == RunStatus::Running {
            let recovered = change.recover_effects()?;
            if let Some(effect) = recovered.ambiguous.first() {
                park_ambiguous(change, &mut touches, run.status, effect.as_str())?;
                touches.finish(change)?;
                return Ok(Outcome::Accepted(None));
            }
        }
        if look.is_none() {
            store::queue::launch(change)?;
        }
        let envelope = Payload::json(&json!({
            "runId": run.run_id,
            "generation": claim.generation(),
            "workerEpoch": epoch,
            "definitionDigest": digest,
            "revision": change.next_revision(),
        }))?;
        let envelope = change.put_blob(&envelope)?;
        workers::insert(change, &epoch, (owner.id(), claim.generation()), envelope)?;
        touches.finish(change)?;
        Ok(Outcome::Accepted(Some(claim)))
    })
}

/// A worker said that it is ready: its process is known from here on. Nothing of the run changes.
pub(crate) fn worker_ready(
    db: &Database,
    claim: &Claim,
    epoch: &str,
    process: Process,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::WORKER_READY, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let epoch = epoch.to_owned();
    db.commit(command, move |change| {
        workers::ready(change, &epoch, &process)?;
        Ok(Outcome::Refused(()))
    })
}

/// The first proposal of a worker: the run goes on, and the worker is known to.
pub(crate) fn begin(
    db: &Database,
    claim: &Claim,
    definition: &Definition,
    plan: Plan,
    said: Said,
) -> Result<Receipt<Begun>, WorkflowError> {
    let operation = match &plan {
        Plan::First { .. } => &operations::INITIALIZE,
        Plan::Answered { .. } => &operations::ACCEPT_INTERACTION,
        Plan::Expired { .. } => &operations::EXPIRE,
        Plan::Again { .. } => &operations::PREPARE_RESUME,
    };
    let command = Command::new(operation, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let definition = definition.clone();
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        let mut touches = Touches::default();
        workers::begin(change, &said.epoch)?;
        store::queue::execute(change)?;
        let begun = claim::begin(change, &mut touches, (&run, &definition), &plan)?;
        match &begun {
            Begun::Moved(advanced) => said.save(change, Some(advanced))?,
            Begun::Parked => said.save(change, None)?,
        }
        touches.finish(change)?;
        Ok(Outcome::Accepted(begun))
    })
}

/// A message that was refused, and why.
#[derive(Debug, Clone)]
pub(crate) struct RefusedMessage {
    pub(crate) said: Said,
    pub(crate) outcome: MessageOutcome,
    pub(crate) problem: String,
}

/// How the process of a worker ended.
#[derive(Debug, Clone)]
pub(crate) struct WorkerExit {
    pub(crate) epoch: String,
    pub(crate) status: WorkerStatus,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    /// What it wrote to its standard streams last, and what its host has to say.
    pub(crate) diagnostic: String,
    pub(crate) refused: Option<RefusedMessage>,
}

/// What is to become of the run of a worker that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aftermath {
    /// It is given back, and taken up again.
    Again,
    /// It is parked until somebody resumes it: its worker did not advance it, for this reason.
    NoProgress(String),
    /// It fails: its workflow can't be loaded although its source is unchanged.
    LoadFailed(String),
}

fn record(change: &mut Change<'_>, exit: &WorkerExit) -> Result<(), WorkflowError> {
    let diagnostic = match exit.diagnostic.as_str() {
        "" => None,
        text => Some(change.put_blob(&Payload::text(cut(text))?)?),
    };
    let ending = workers::Ending {
        status: exit.status,
        exit_code: exit.exit_code,
        signal: exit.signal.clone(),
        diagnostic,
    };
    workers::finish(change, &exit.epoch, &ending)?;
    if let Some(refused) = &exit.refused {
        let problem = change.put_blob(&Payload::text(cut(&refused.problem))?)?;
        let message = refused.said.message();
        workers::insert_message(change, &message, refused.outcome, (None, Some(problem)))?;
    }
    Ok(())
}

/// A worker ended while its claim stands. Steps in order of precedence (workflows reference, section 3.10): effects that were being
/// applied, a candidate that it should have looked at, a failed load, no progress, and only then another worker.
pub(crate) fn worker_exited(
    db: &Database,
    claim: &Claim,
    exit: &WorkerExit,
    aftermath: &Aftermath,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::HAND_OVER, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (exit, aftermath) = (exit.clone(), aftermath.clone());
    db.commit(command, move |change| {
        let run = store::runs::run(change)?;
        let status = run.status;
        let mut touches = Touches::default();
        record(change, &exit)?;
        let recovered = change.recover_effects()?;
        match (recovered.ambiguous.first(), &aftermath) {
            (Some(effect), _) => {
                park_ambiguous(change, &mut touches, status, effect.as_str())?;
            }
            // What kills one worker might kill each: whoever submitted it is told. One that was not ready did not see it.
            (None, Aftermath::NoProgress(_) | Aftermath::LoadFailed(_))
                if submit::has_candidate(change)? =>
            {
                submit::refuse(change, &mut touches, &run, VALIDATION_LOST)?;
            }
            (None, Aftermath::LoadFailed(error)) => {
                let ending = terminal::Ending {
                    code: Some(LOAD_FAILED),
                    ..terminal::Ending::without_output(TerminalStatus::Failed, error)
                };
                terminal::end(change, &mut touches, status, &ending)?;
            }
            (None, Aftermath::NoProgress(detail)) => {
                let code = ParkCode::NoProgress;
                touches.add(
                    change,
                    &operations::PARK_NO_PROGRESS,
                    Some((status.as_str(), status.as_str())),
                    Some(Payload::json(
                        &json!({ "queue": "parked", "errorCode": code }),
                    )?),
                )?;
                let detail = change.put_blob(&Payload::text(cut(detail))?)?;
                store::queue::park(change, Some(code.as_str()), Some(detail))?;
                change.release()?;
            }
            (None, Aftermath::Again) => give_back(change, &mut touches, status)?,
        }
        touches.finish(change)?;
        Ok(Outcome::Accepted(()))
    })
}

/// A worker ended that has no say in its run any more: only what is known of the worker is written.
pub(crate) fn worker_gone(
    db: &Database,
    run: &RunId,
    exit: &WorkerExit,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::WORKER_GONE, resource(run));
    let exit = exit.clone();
    db.commit(command, move |change| {
        record(change, &exit)?;
        Ok(Outcome::Refused(()))
    })
}
