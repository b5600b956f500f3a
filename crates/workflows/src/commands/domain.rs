//! What the domain of a node's kind does to the run that it parked, inside its own change: it settles the request, it withdraws it, it
//! ends the run. What it does by itself, without anybody's word, it does as the owner of the run ([`act_as_owner`]).
//!
//! Not here: parking (`park`), and what a person or a session answers without a domain (`answer`, `submit`).

use holdpoint_state::{
    Actor, Change, Claim, Command, Database, Outcome, Owner, Payload, Receipt, StateError,
};
use serde_json::{Value, json};

use super::answer::{self, Admitted, Answered, Wish};
use super::control::{self, Control};
use super::park::CONTROL_LEASE_MS;
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, RequestKind, RequestStatus, SubmissionOutcome, resource};
use crate::operations;
use crate::store;

/// The kinds of request that a domain has a say in.
const KINDS: &[RequestKind] = &[RequestKind::Decision, RequestKind::External];

/// The answer that a domain gives to the attempt that it parked.
#[derive(Debug, Clone)]
pub struct Settlement {
    request: String,
    key: String,
    value: Payload,
    receipt: Payload,
}

impl Settlement {
    /// An answer with its idempotency key, and what everybody may see of it.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Input`] for a key of the wrong length, [`WorkflowError::State`] for a value without a canonical form.
    pub fn new(
        request: &str,
        (key, value): (&str, &Value),
        receipt: &Value,
    ) -> Result<Self, WorkflowError> {
        answer::check_key(key)?;
        Ok(Self {
            request: request.to_owned(),
            key: key.to_owned(),
            value: Payload::json(value)?,
            receipt: Payload::json(receipt)?,
        })
    }

    fn apply(
        &self,
        change: &mut Change<'_>,
        despite_pause: bool,
    ) -> Result<Outcome<Answered>, WorkflowError> {
        let run = store::runs::run(change)?;
        let wish = Wish {
            request: Some(&self.request),
            session: None,
            key: &self.key,
            revision: None,
            kinds: KINDS,
            despite_pause,
        };
        let request = match answer::admit(change, &run, &wish, &self.value)? {
            Admitted::Fresh(request) => request,
            Admitted::Repeat(request, earlier)
                if earlier.outcome == SubmissionOutcome::Accepted =>
            {
                return Ok(Outcome::Adopted(Answered {
                    request_id: request.request_id,
                    submission_id: earlier.submission_id,
                    request_revision: earlier.request_revision,
                }));
            }
            Admitted::Repeat(request, earlier) => {
                return Err(answer::used(&request, earlier.outcome));
            }
        };
        let receipt = |_: &Answered| Ok(self.receipt.clone());
        answer::accept(change, &run, &request, &self.key, &self.value, receipt)
            .map(Outcome::Accepted)
    }
}

/// Settles a request as [`settle`](super::settle()) does, and keeps the receipt as what everybody may see of the answer.
///
/// # Errors
///
/// Those of [`settle`](super::settle()).
pub fn settle_with(
    change: &mut Change<'_>,
    run: &RunId,
    settlement: &Settlement,
) -> Result<Receipt<Answered>, WorkflowError> {
    let command = Command::new(&operations::SETTLE, resource(run)).by(change.actor().clone());
    change
        .also(&command, |change| settlement.apply(change, false))
        .map_err(answer::no_run)
}

/// Withdraws a pending request that a domain parked: there will be no answer. Its attempt waits on for what the domain does next, which
/// is to end the run ([`cancel_in`]). What its session was to be shown of it is cancelled.
///
/// # Errors
///
/// [`WorkflowError::NoRequest`], [`WorkflowError::Rejected`] for a request of another kind, [`WorkflowError::Conflict`] when it is not
/// pending.
pub fn withdraw(
    change: &mut Change<'_>,
    run: &RunId,
    request: &str,
) -> Result<Receipt<()>, WorkflowError> {
    let command = Command::new(&operations::WITHDRAW, resource(run)).by(change.actor().clone());
    change
        .also(&command, |change| take_back(change, request))
        .map_err(answer::no_run)
}

fn take_back(change: &mut Change<'_>, request: &str) -> Result<Outcome<()>, WorkflowError> {
    let run = store::runs::run(change)?;
    let row = store::requests::named(change, request)?.ok_or_else(|| WorkflowError::NoRequest {
        run: run.run_id.to_string(),
    })?;
    if !KINDS.contains(&row.kind) {
        return Err(run.rejected(format!(
            "request {request} is of kind {} and not of a domain",
            row.kind
        )));
    }
    if row.status != RequestStatus::Pending {
        return Err(WorkflowError::Conflict {
            what: format!("the withdrawal of {request}"),
            problem: format!("it is {} already", row.status),
        });
    }
    store::requests::withdraw(change, row.key)?;
    if run.mode == ExecutionMode::Interactive {
        store::messages::cancel_of_source(change, request)?;
        store::intervals::close_of_run(change)?;
    }
    change.transition(run.status.as_str(), run.status.as_str())?;
    change.record(Payload::json(
        &json!({ "requestId": request, "kind": row.kind }),
    )?);
    Ok(Outcome::Accepted(()))
}

/// By which right something acts as the owner of a run.
#[derive(Debug, Clone, Copy)]
pub enum OwnerRight<'a> {
    /// The present owner shows its claim.
    Holding(&'a Claim),
    /// Nobody owns the run: it is claimed for this owner, one generation on, and given back in the same transaction.
    Taking(&'a Owner),
}

/// What the owner of a run does for the domain that parked its attempt.
#[derive(Debug, Clone)]
pub enum OwnerAct {
    /// It settles the request. A pause does not stop it: the answer is kept, and the run stays paused.
    Settle(Settlement),
    /// It withdraws the request.
    Withdraw(String),
}

/// Lets a domain act by itself on a run that it parked, as the owner of the run: a policy may do nothing else. `body` makes the domain's
/// own change with [`Change::also`], where actors of the kind `Policy` are allowed, and says what is done to the run. All of it is one
/// transaction.
///
/// # Errors
///
/// Those of `body`; [`StateError::ClaimLost`] when the claim that is shown is not the present one, [`StateError::LeaseHeld`] when a run
/// that is to be claimed has a live owner. Nothing was written.
pub fn act_as_owner<T, E>(
    db: &Database,
    run: &RunId,
    right: OwnerRight<'_>,
    mut body: impl FnMut(&mut Change<'_>) -> Result<(OwnerAct, T), E> + Send + 'static,
) -> Result<Receipt<T>, E>
where
    T: Send + 'static,
    E: From<StateError> + From<WorkflowError> + Send + 'static,
{
    let command = Command::new(&operations::SETTLE, resource(run));
    let (command, takes) = match right {
        OwnerRight::Holding(claim) => (
            command.by(Actor::host(claim.owner().id())).holding(claim),
            None,
        ),
        OwnerRight::Taking(owner) => (command.by(Actor::host(owner.id())), Some(owner.clone())),
    };
    db.commit(command, move |change| {
        if let Some(owner) = &takes {
            change.claim(owner, CONTROL_LEASE_MS)?;
        }
        let (act, value) = body(change)?;
        match act {
            OwnerAct::Settle(settlement) => {
                settlement.apply(change, true)?;
            }
            OwnerAct::Withdraw(request) => {
                change.instead(&operations::WITHDRAW)?;
                take_back(change, &request)?;
            }
        }
        if takes.is_some() {
            change.release()?;
        }
        Ok(Outcome::Accepted(value))
    })
}

/// Ends a run as [`cancel`](super::cancel()) does, inside a change of another resource.
///
/// # Errors
///
/// Those of [`cancel`](super::cancel()).
pub fn cancel_in(change: &mut Change<'_>, control: &Control) -> Result<Receipt<()>, WorkflowError> {
    change
        .also(&control.command(&operations::CANCEL), |change| {
            control::end(change, control)
        })
        .map_err(answer::no_run)
}
