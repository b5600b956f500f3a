//! Parking: at a checkpoint, by hand-over, and for the reasons that need a person.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{EffectAttempt, Settlement};
use holdpoint_state::{
    Actor, Change, Claim, Command, Database, Outcome, Owner, OwnerKind, Payload, Receipt,
    StateError,
};
use serde_json::{Value, json};

use super::worker::Said;
use super::{Touches, claim, messages};
use crate::definition::{
    Asking, Beside, Checking, NodeError, OWN_NODE_TYPES, Park, Parked, Waiting,
};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{
    AttemptStatus, ExecutionMode, LOAD_FAILED, ParkCode, REQUEST_ID_LIMIT_BYTES, RequestKind,
    RunStatus, VALIDATION_LOST, WAITING_FOR_CHECKPOINT, WAITING_FOR_DECISION, WAITING_FOR_DOMAIN,
    WAITING_FOR_REVIEW, WAITING_FOR_SESSION, cut, is_request_id, request_id, resource,
};
use crate::operations;
use crate::store;

/// How long the system's own control claim would last; it is released in the transaction that takes it.
pub(super) const CONTROL_LEASE_MS: i64 = 30_000;

/// What an attempt waits for.
#[derive(Clone)]
pub struct Ask {
    pub(crate) kind: RequestKind,
    pub(crate) contract: serde_json::Value,
    pub(crate) detail: Option<String>,
    pub(crate) prompt: Option<String>,
    pub(crate) asking: Option<Asking>,
    pub(crate) checking: Option<Checking>,
    pub(crate) beside: Option<Beside>,
}

impl Ask {
    /// A request of a kind, with the contract that a client needs to answer it.
    pub fn new(kind: RequestKind, contract: serde_json::Value) -> Self {
        Self {
            kind,
            contract,
            detail: None,
            prompt: None,
            asking: None,
            checking: None,
            beside: None,
        }
    }

    /// The wait of a node of another crate.
    pub(crate) fn parked(park: Park, contract: serde_json::Value) -> Self {
        Self {
            kind: if park.is_decision {
                RequestKind::Decision
            } else {
                RequestKind::External
            },
            contract,
            detail: park.detail,
            prompt: None,
            asking: park.asking,
            checking: park.checking,
            beside: park.beside,
        }
    }

    /// Keeps the prompt of an agent with its attempt.
    #[must_use]
    pub(crate) fn prompting(mut self, prompt: String) -> Self {
        self.prompt = Some(prompt);
        self
    }

    /// The contract.
    pub(crate) fn contract(&self) -> &serde_json::Value {
        &self.contract
    }

    /// What the present instant shows to be wrong with it.
    pub(crate) fn check_at(&self, now: UnixMillis) -> Result<(), NodeError> {
        self.checking.as_ref().map_or(Ok(()), |check| check(now))
    }

    /// Whether code of another domain belongs to it, which can't travel from a worker process to its host.
    pub(crate) fn has_code(&self) -> bool {
        self.asking.is_some() || self.beside.is_some()
    }

    /// The request as it is stored: its id and its contract. A domain that names its own makes it of its draft here.
    fn made(
        &self,
        row: &store::runs::RunRow,
        attempt: (&NodeId, &AttemptId),
        now: UnixMillis,
    ) -> Result<(String, Value), WorkflowError> {
        let (node_id, attempt_id) = attempt;
        let Some(asking) = &self.asking else {
            return Ok((request_id(&row.run_id, attempt_id), self.contract.clone()));
        };
        let asked = asking(&Waiting {
            run_id: &row.run_id,
            workflow: &row.workflow_name,
            session: &row.session,
            node_id,
            attempt_id,
            now,
        })?;
        if !is_request_id(&asked.request_id) {
            return Err(WorkflowError::Input {
                what: "request id",
                problem: format!(
                    "{:?} of node {node_id:?} is not 1 to {REQUEST_ID_LIMIT_BYTES} letters, digits, `.`, `_` and `-` after a letter or digit",
                    asked.request_id
                ),
            });
        }
        let mut contract = self.contract.clone();
        if let Some(contract) = contract.as_object_mut() {
            contract.insert("request".to_owned(), asked.contract);
        }
        Ok((asked.request_id, contract))
    }

    fn shown(&self) -> &str {
        self.detail.as_deref().unwrap_or(waiting_for(self.kind))
    }

    /// Whether a node of this type may ask in this way.
    fn suits(&self, node_type: &str) -> bool {
        match self.kind {
            RequestKind::Agent | RequestKind::Assistant => node_type == "agent",
            RequestKind::Checkpoint | RequestKind::Decision => node_type == "checkpoint",
            RequestKind::External => !OWN_NODE_TYPES.contains(&node_type),
        }
    }
}

/// What a run shows that waits for a request.
pub(super) const fn waiting_for(kind: RequestKind) -> &'static str {
    match kind {
        RequestKind::Checkpoint => WAITING_FOR_CHECKPOINT,
        RequestKind::Decision => WAITING_FOR_DECISION,
        RequestKind::Agent | RequestKind::Assistant => WAITING_FOR_SESSION,
        RequestKind::External => WAITING_FOR_DOMAIN,
    }
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Ask")
            .field("kind", &self.kind)
            .field("contract", &self.contract)
            .finish_non_exhaustive()
    }
}

/// Parks the run because its attempt waits: request, attempt, run, queue and lease in one transaction, with the rows of the domain
/// that brought the node's kind. Returns the request's id.
///
/// The same attempt with the same contract meets its request.
///
/// # Errors
///
/// [`WorkflowError::Transition`] unless the attempt is the present one, at a node that may ask in this way, and the run is running.
pub fn wait(
    db: &Database,
    claim: &Claim,
    attempt: &AttemptId,
    ask: Ask,
) -> Result<Receipt<String>, WorkflowError> {
    wait_said(db, claim, attempt, ask, None)
}

/// [`wait`] with the message of a worker process that proposes it.
pub(crate) fn wait_said(
    db: &Database,
    claim: &Claim,
    attempt: &AttemptId,
    ask: Ask,
    said: Option<&Said>,
) -> Result<Receipt<String>, WorkflowError> {
    super::advance::run_of(claim)?;
    let prompt = ask.prompt.as_deref().map(Payload::text).transpose()?;
    let command = Command::new(&operations::WAIT, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (attempt, said) = (attempt.clone(), said.cloned());
    db.commit(command, move |change| {
        let row = store::runs::run(change)?;
        let active = store::attempts::active(change)?.filter(|active| active.attempt_id == attempt);
        let Some(active) = active.filter(|active| active.status == AttemptStatus::Running) else {
            return Err(row.transition(format!("attempt {attempt} is not the one that goes on")));
        };
        if !ask.suits(&active.node_type) {
            return Err(row.transition(format!(
                "node {:?} is of type {} and can't wait for a request of kind {}",
                active.node_id, active.node_type, ask.kind
            )));
        }
        change.transition(row.status.as_str(), "waiting")?;
        let (request, value) = ask.made(&row, (&active.node_id, &attempt), change.now())?;
        let contract = Payload::json(&value)?;
        if let Some(stored) = store::requests::named(change, &request)? {
            // A request never changes: a different contract is a different attempt.
            return Err(WorkflowError::Conflict {
                what: format!("request {request}"),
                problem: if stored.contract == contract.digest() {
                    format!("it is {} already", stored.status)
                } else {
                    "it exists with another contract".to_owned()
                },
            });
        }
        if ask.asking.is_some()
            && let Some(other) = store::requests::run_of(change, &request)?
        {
            return Err(WorkflowError::Conflict {
                what: format!("request {request}"),
                problem: format!("run {other} has it"),
            });
        }
        change.record(Payload::json(&json!({
            "attemptId": attempt,
            "requestId": request,
            "kind": ask.kind,
            "queue": "parked",
        }))?);
        let contract = change.put_blob(&contract)?;
        store::requests::insert(
            change,
            &request,
            active.key,
            &row.session,
            ask.kind,
            contract,
        )?;
        store::attempts::set_status(
            change,
            active.key,
            AttemptStatus::Running,
            AttemptStatus::Waiting,
        )?;
        store::runs::set_status(
            change,
            RunStatus::Running,
            RunStatus::Waiting,
            Some(ask.shown()),
        )?;
        if let Some(prompt) = &prompt {
            let prompt = change.put_blob(prompt)?;
            store::attempts::set_prompt(change, active.key, prompt)?;
        }
        store::queue::park(change, None, None)?;
        change.release()?;
        if row.mode == ExecutionMode::Interactive {
            let made = store::requests::named(change, &request)?
                .ok_or_else(|| row.transition("the request is gone"))?;
            let why = (messages::Reason::Initial, "1:initial");
            messages::ask(change, &row, &made, why, &value)?;
        }
        if let Some(beside) = &ask.beside {
            let parked = Parked {
                run_id: row.run_id.clone(),
                node_id: active.node_id.clone(),
                attempt_id: active.attempt_id.clone(),
                request_id: request.clone(),
                contract: value.get("request").cloned().unwrap_or_default(),
            };
            beside(change, &parked)?;
        }
        if let Some(said) = &said {
            said.save(change, None)?;
        }
        Ok(Outcome::Accepted(request))
    })
}

/// Gives a run back at a durable boundary, so that whoever comes next goes on at once.
///
/// # Errors
///
/// [`WorkflowError::State`] with `ClaimLost` when it is not owned any more.
pub fn hand_over(db: &Database, claim: &Claim) -> Result<Receipt<()>, WorkflowError> {
    hand_over_said(db, claim, None)
}

/// [`hand_over`] with the message of a worker process that proposes it.
pub(crate) fn hand_over_said(
    db: &Database,
    claim: &Claim,
    said: Option<&Said>,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::HAND_OVER, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let said = said.cloned();
    db.commit(command, move |change| {
        let (status, _) = store::runs::status(change)?;
        let mut touches = Touches::default();
        if let Some(said) = &said {
            said.save(change, None)?;
        }
        give_back(change, &mut touches, status)?;
        touches.finish(change)?;
        Ok(Outcome::Accepted(()))
    })
}

pub(super) fn give_back(
    change: &mut Change<'_>,
    touches: &mut Touches,
    status: RunStatus,
) -> Result<(), StateError> {
    let transition = Some((status.as_str(), status.as_str()));
    touches.add(change, &operations::HAND_OVER, transition, None)?;
    store::queue::park(change, None, None)?;
    change.release()?;
    Ok(())
}

/// Parks the run because the outcome of one of its effects can't be known: attempt and run wait, the claim is given back.
pub(super) fn park_ambiguous(
    change: &mut Change<'_>,
    touches: &mut Touches,
    status: RunStatus,
    effect: &str,
) -> Result<(), StateError> {
    let code = ParkCode::EffectAmbiguous;
    let payload =
        Payload::json(&json!({ "effectId": effect, "queue": "parked", "errorCode": code }))?;
    touches.add(
        change,
        &operations::PARK_AMBIGUOUS,
        Some((status.as_str(), "waiting")),
        Some(payload),
    )?;
    if let Some(active) = store::attempts::active(change)?
        && active.status != AttemptStatus::Waiting
    {
        store::attempts::set_status(change, active.key, active.status, AttemptStatus::Waiting)?;
    }
    store::runs::set_status(change, status, RunStatus::Waiting, Some(WAITING_FOR_REVIEW))?;
    let detail = change.put_blob(&Payload::text(WAITING_FOR_REVIEW)?)?;
    store::queue::park(change, Some(code.as_str()), Some(detail))?;
    change.release()?;
    Ok(())
}

/// Parks the run of a claim because nobody knows whether its action acted: its time limit fired in the middle.
///
/// # Errors
///
/// [`WorkflowError::State`] with `ClaimLost` when the run is not owned any more.
pub fn doubt(
    db: &Database,
    claim: &Claim,
    effect: &EffectAttempt,
) -> Result<Receipt<()>, WorkflowError> {
    doubt_said(db, claim, effect, None)
}

/// [`doubt`] with the message of a worker process that proposes it.
pub(crate) fn doubt_said(
    db: &Database,
    claim: &Claim,
    effect: &EffectAttempt,
    said: Option<&Said>,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::PARK_AMBIGUOUS, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (effect, said) = (effect.clone(), said.cloned());
    db.commit(command, move |change| {
        let (status, _) = store::runs::status(change)?;
        let mut touches = Touches::default();
        if let Some(said) = &said {
            said.save(change, None)?;
        }
        let settlement = Settlement::Ambiguous {
            error: Some("the time limit fired while the action may have been acting".to_owned()),
        };
        change.settle_effect(&effect, settlement)?;
        park_ambiguous(change, &mut touches, status, effect.effect_id.as_str())?;
        touches.finish(change)?;
        Ok(Outcome::Accepted(()))
    })
}

/// Parks the run of a claim whose runner could not advance it, with the reason. Nobody takes it up until it is resumed.
///
/// # Errors
///
/// [`WorkflowError::State`] with `ClaimLost` when the run is not owned any more.
pub fn give_up(db: &Database, claim: &Claim, detail: &str) -> Result<Receipt<()>, WorkflowError> {
    let code = ParkCode::NoProgress;
    let detail = Payload::text(cut(detail))?;
    let command = Command::new(&operations::PARK_NO_PROGRESS, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim)
        .recording(Payload::json(
            &json!({ "queue": "parked", "errorCode": code }),
        )?);
    db.commit(command, move |change| {
        let (status, _) = store::runs::status(change)?;
        change.transition(status.as_str(), status.as_str())?;
        let receipt = change.put_blob(&Payload::text(VALIDATION_LOST)?)?;
        store::requests::reject_validating(change, Some(receipt))?;
        let detail = change.put_blob(&detail)?;
        store::queue::park(change, Some(code.as_str()), Some(detail))?;
        change.release()?;
        Ok(Outcome::Accepted(()))
    })
}

/// Parks a run that nobody owns, read at `revision`, because its source is no longer the one that it was started with. Run,
/// attempts and requests stay as they are; the scheduler leaves it alone until somebody resumes it.
///
/// # Errors
///
/// [`WorkflowError::State`] when somebody owns it or it moved on, [`WorkflowError::Rejected`] when no runner could take it.
pub fn park_source_changed(
    db: &Database,
    run: &RunId,
    revision: u64,
    detail: &str,
) -> Result<Receipt<()>, WorkflowError> {
    let code = ParkCode::SourceChanged;
    let detail = Payload::text(cut(detail))?;
    let command = Command::new(&operations::PARK_SOURCE_CHANGED, resource(run))
        .recording(Payload::json(
            &json!({ "queue": "parked", "errorCode": code }),
        )?)
        .expecting(revision);
    db.commit(command, move |change| {
        let row = takeable(change)?;
        put_aside(change, &row, code, &detail)?;
        Ok(Outcome::Accepted(()))
    })
}

/// Parks a run that nobody owns, read at `revision`, because the history of its settings does not add up: each runner would refuse it
/// again, and only a person can say what became of it. Nothing else of the run changes.
///
/// # Errors
///
/// [`WorkflowError::State`] when somebody owns it or it moved on, [`WorkflowError::Rejected`] when no runner could take it or its
/// settings are as they should be.
pub fn park_settings_broken(
    db: &Database,
    run: &RunId,
    revision: u64,
) -> Result<Receipt<()>, WorkflowError> {
    let code = ParkCode::SettingsBroken;
    let command = Command::new(&operations::PARK_SETTINGS_BROKEN, resource(run))
        .recording(Payload::json(
            &json!({ "queue": "parked", "errorCode": code }),
        )?)
        .expecting(revision);
    db.commit(command, move |change| {
        let row = takeable(change)?;
        let Err(error) = super::settings::check_history(change) else {
            return Err(row.rejected("the history of its settings adds up"));
        };
        let detail = Payload::text(cut(&error.to_string()))?;
        put_aside(change, &row, code, &detail)?;
        Ok(Outcome::Accepted(()))
    })
}

/// Parks a run that a runner could take, until somebody resumes it.
fn put_aside(
    change: &mut Change<'_>,
    row: &store::runs::RunRow,
    code: ParkCode,
    detail: &Payload,
) -> Result<(), StateError> {
    // A candidate must not wait for a runner that can't come.
    let receipt = change.put_blob(&Payload::text(VALIDATION_LOST)?)?;
    store::requests::reject_validating(change, Some(receipt))?;
    // A claim of its own, so that a runner that is still alive somewhere can't go on; given back in the same transaction.
    change.claim(&Owner::new(OwnerKind::System, "park"), CONTROL_LEASE_MS)?;
    let detail = change.put_blob(detail)?;
    change.transition(row.status.as_str(), row.status.as_str())?;
    store::queue::park(change, Some(code.as_str()), Some(detail))?;
    change.release()?;
    Ok(())
}

/// Fails a run that nobody owns, read at `revision`, because its workflow can't be loaded although its source is unchanged.
///
/// # Errors
///
/// [`WorkflowError::State`] when somebody owns it or it moved on, [`WorkflowError::Rejected`] when no runner could take it.
pub fn fail_unclaimed(
    db: &Database,
    run: &RunId,
    revision: u64,
    error: &str,
) -> Result<Receipt<()>, WorkflowError> {
    // It begins as a claim, which turns into the failure once it is taken: failing a run needs its lease.
    let command = Command::new(&operations::CLAIM, resource(run)).expecting(revision);
    let error = cut(error);
    db.commit(command, move |change| {
        let row = takeable(change)?;
        change.claim(&Owner::new(OwnerKind::System, "load"), CONTROL_LEASE_MS)?;
        claim::fail_queued(change, &row, (LOAD_FAILED, &error))?;
        Ok(Outcome::Accepted(()))
    })
}

/// The run, if a runner could take it now. One that somebody paused, or that waits for an answer, is left as it is: whether its
/// source is right is of interest when it goes on.
fn takeable(change: &mut Change<'_>) -> Result<store::runs::RunRow, WorkflowError> {
    let row = store::runs::run(change)?;
    let candidate = match store::requests::pending(change)? {
        Some(request) => store::requests::validating(change, request.key)?,
        None => None,
    };
    match candidate {
        // A runner would take it to look at the candidate.
        Some(_) => claim::check_open(&row)?,
        None => claim::check_claimable(change, &row)?,
    }
    Ok(row)
}
