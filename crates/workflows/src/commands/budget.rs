//! `run.set_timeout`: the time budget of an attempt that began without one.

use holdpoint_state::{Actor, Claim, Command, Database, Outcome, Payload, Receipt};
use serde_json::json;

use super::advance::{budget_column, refuse};
use super::worker::Said;
use crate::definition::TimeBudget;
use crate::error::WorkflowError;
use crate::id::AttemptId;
use crate::operations;
use crate::store;

/// Sets the time budget of the present attempt, once.
///
/// # Errors
///
/// [`WorkflowError::Transition`] when the attempt is not the present one or has a budget already.
pub fn set_timeout(
    db: &Database,
    claim: &Claim,
    attempt: &AttemptId,
    budget: TimeBudget,
) -> Result<Receipt<()>, WorkflowError> {
    set_timeout_said(db, claim, (attempt, budget), None)
}

/// [`set_timeout`] with the message of a worker process that proposes it.
pub(crate) fn set_timeout_said(
    db: &Database,
    claim: &Claim,
    (attempt, budget): (&AttemptId, TimeBudget),
    said: Option<&Said>,
) -> Result<Receipt<()>, WorkflowError> {
    let payload =
        Payload::json(&json!({ "attemptId": attempt, "timeoutMs": budget_column(budget) }))?;
    let command = Command::new(&operations::SET_TIMEOUT, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim)
        .recording(payload);
    let (attempt, said) = (attempt.clone(), said.cloned());
    db.commit(command, move |change| {
        let (status, _) = store::runs::status(change)?;
        let active = store::attempts::active(change)?.filter(|active| active.attempt_id == attempt);
        let Some(active) = active else {
            return Err(refuse(
                change,
                format!("attempt {attempt} is not the present one"),
            ));
        };
        if active.timeout_ms.is_some()
            || !store::attempts::set_timeout(change, active.key, budget_column(budget))?
        {
            return Err(refuse(
                change,
                format!("attempt {attempt} has its time budget already"),
            ));
        }
        change.transition(status.as_str(), status.as_str())?;
        if let Some(said) = &said {
            said.save(change, None)?;
        }
        Ok(Outcome::Accepted(()))
    })
}
