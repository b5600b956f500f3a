//! A person resolves an ambiguous effect: confirm, retry or reject (effects reference, section 12).
//!
//! The event of a resolution holds the attempt, the decision, the idempotency key and a digest of the whole request. A repeat finds
//! its earlier self there, so that no table of its own is needed and the trail shows every decision.

use rusqlite::named_params;
use serde::{Deserialize, Serialize};

use super::model::{EffectState, OwnerScope, error_payload, resource};
use super::steps::request_member;
use super::store::{self, EffectRow, Settled};
use super::{CONFIRM, RESOLVE_REJECT, RESOLVE_RETRY};
use crate::command::{Actor, Change, Command, Operation, Outcome, Place, Sql};
use crate::error::StateError;
use crate::id::{Digest, EffectId};
use crate::records::blobs::Payload;

/// What a person decides after looking at the outside world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It happened.
    Confirm {
        /// The receipt that the source goes on with. A run's action needs one unless its request says
        /// `"receiptRequired": false`.
        receipt: Option<Payload>,
        /// The provider's name of what was done.
        external_ref: Option<String>,
    },
    /// Do it again, at the risk of a duplicate. What a channel was refused for good may be retried too: nobody went on with the refusal,
    /// as a run does with that of its action.
    Retry,
    /// It did not happen and must not.
    Reject {
        /// Why; the source fails with it.
        reason: String,
    },
}

/// A person's command about one ambiguous effect.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The effect.
    pub effect_id: EffectId,
    /// The attempt that the person saw.
    pub attempt_number: u32,
    /// The effect's revision that the person saw.
    pub expected_revision: u64,
    /// Names this command: a repeat gets the first answer.
    pub idempotency_key: String,
    /// Who decides: a verified person or explicit control, never a model, a worker or a child.
    pub actor: Actor,
    /// What.
    pub decision: Decision,
}

/// What a resolution led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The state that the decision led to.
    pub state: EffectState,
    /// The number of the attempt that comes next, after a retry.
    pub next_attempt: Option<u32>,
    /// What the person should know.
    pub warning: Option<&'static str>,
    /// Whether an earlier, identical command had done it.
    pub adopted: bool,
}

const DUPLICATE_WARNING: &str =
    "the earlier attempt may have happened: the effect can now happen twice";

/// The facts of a resolution's event.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    attempt: u32,
    idempotency_key: String,
    request: Digest,
}

impl Resolution {
    fn operation(&self) -> &'static Operation {
        match self.decision {
            Decision::Confirm { .. } => &CONFIRM,
            Decision::Retry => &RESOLVE_RETRY,
            Decision::Reject { .. } => &RESOLVE_REJECT,
        }
    }

    fn state(&self) -> EffectState {
        match self.decision {
            Decision::Confirm { .. } => EffectState::Applied,
            Decision::Retry => EffectState::Pending,
            Decision::Reject { .. } => EffectState::Rejected,
        }
    }

    /// A digest over everything that the command asks for, so that one key can't stand for two requests.
    fn digest(&self) -> Result<Digest, StateError> {
        let (receipt, external_ref, reason) = match &self.decision {
            Decision::Confirm {
                receipt,
                external_ref,
            } => (
                receipt.as_ref().map(Payload::digest),
                external_ref.as_deref(),
                None,
            ),
            Decision::Retry => (None, None, None),
            Decision::Reject { reason } => (None, None, Some(reason)),
        };
        let request = serde_json::json!({
            "attempt": self.attempt_number,
            "decision": self.operation().name,
            "externalRef": external_ref,
            "reason": reason,
            "receipt": receipt,
        });
        Ok(Payload::json(&request)?.digest())
    }

    fn facts(&self) -> Result<Facts, StateError> {
        Ok(Facts {
            attempt: self.attempt_number,
            idempotency_key: self.idempotency_key.clone(),
            request: self.digest()?,
        })
    }

    fn resolved(&self, adopted: bool) -> Resolved {
        let retries = self.decision == Decision::Retry;
        Resolved {
            state: self.state(),
            next_attempt: retries.then_some(self.attempt_number + 1),
            warning: retries.then_some(DUPLICATE_WARNING),
            adopted,
        }
    }
}

/// The command of a resolution on the effect's own resource.
pub(crate) fn command(resolution: &Resolution) -> Result<Command, StateError> {
    if resolution.idempotency_key.is_empty() {
        return Err(StateError::Input {
            what: "idempotency key",
            problem: "it is empty; give one that names this command".into(),
        });
    }
    Ok(
        Command::of_kernel(resolution.operation(), resource(&resolution.effect_id))
            .by(resolution.actor.clone())
            .recording(Payload::json(&resolution.facts()?)?),
    )
}

/// The body of that command. Repeats come before every other check.
pub(crate) fn resolve(
    change: &mut Change<'_>,
    resolution: &Resolution,
) -> Result<Outcome<Resolved>, StateError> {
    let row = change.own_effect_row()?;
    if let Some(earlier) = earlier(&change.kernel_sql(), &row, &resolution.idempotency_key)? {
        if earlier.request == resolution.digest()? {
            return Ok(Outcome::Adopted(resolution.resolved(true)));
        }
        return Err(StateError::Conflict {
            resource: resource(&row.effect_id),
            winner: "another request under the same idempotency key".into(),
        });
    }
    let same_attempt = row.attempts == resolution.attempt_number;
    let is_refused_for_good = row.state == EffectState::Rejected
        && row.scope == OwnerScope::Channel
        && row.next_attempt_at.is_none();
    let may_be_resolved = row.state == EffectState::Ambiguous
        || (is_refused_for_good && resolution.decision == Decision::Retry);
    if !may_be_resolved || !same_attempt {
        return Err(StateError::Conflict {
            resource: resource(&row.effect_id),
            winner: format!(
                "it is {} at attempt {} and revision {}",
                row.state,
                row.attempts,
                change.revision()
            ),
        });
    }
    change.expect_revision(resolution.expected_revision)?;
    let mut settled = Settled::plain(row.state, resolution.state());
    match &resolution.decision {
        Decision::Confirm {
            receipt,
            external_ref,
        } => {
            if receipt.is_none() && needs_receipt(change, &row)? {
                return Err(StateError::Input {
                    what: "receipt",
                    problem: "the run goes on with the action's output; confirm with a receipt"
                        .into(),
                });
            }
            settled.result = receipt.as_ref();
            settled.external_ref = external_ref.as_deref();
        }
        Decision::Retry => {}
        Decision::Reject { reason } => settled.error = Some(error_payload(reason)?),
    }
    change.transition(row.state.as_str(), settled.to.as_str())?;
    // The attempt row stays as it is: the attempt *was* ambiguous or refused, and the effect is resolved on other evidence.
    store::settle(&change.kernel_sql(), &row, &settled, "", change.now())?;
    Ok(Outcome::Accepted(resolution.resolved(false)))
}

impl Change<'_> {
    /// Resolves an ambiguous effect inside this change, so that the source can follow in the same transaction: a run becomes
    /// eligible again together with the decision. The resolution's own actor is checked.
    ///
    /// # Errors
    ///
    /// Those of [`crate::effects::resolve`].
    pub fn resolve_effect(&mut self, resolution: &Resolution) -> Result<Resolved, StateError> {
        let mut command = command(resolution)?;
        // The effects of the source are found by an index, all others by a scan.
        if let Some(row) = store::find(
            &self.kernel_sql(),
            self.existing_key(),
            &resolution.effect_id,
        )? {
            command = command.at(Place::At(row.key));
        }
        let receipt = self.also(&command, |change| resolve(change, resolution))?;
        Ok(receipt.value)
    }
}

/// A run's action hands its output on, so that a bare "it happened" would leave the run without what it needs.
fn needs_receipt(change: &Change<'_>, row: &EffectRow) -> Result<bool, StateError> {
    if row.scope != OwnerScope::Run || change.schema().effect_type(&row.effect_type).is_some() {
        return Ok(false);
    }
    let request = store::payload(&change.kernel_sql(), row.key)?;
    Ok(request_member(&request, "receiptRequired") != Some(serde_json::Value::Bool(false)))
}

/// The earlier resolution of this effect under the same key.
fn earlier(sql: &Sql<'_>, row: &EffectRow, key: &str) -> Result<Option<Facts>, StateError> {
    let mut statement = sql.prepare_cached(
        "SELECT coalesce(v.payload, b.content) FROM events v LEFT JOIN blobs b ON b.blob_hash = v.payload_blob
         WHERE v.resource_key = :key
           AND v.event_type IN ('effect.recovered_confirmed', 'effect.recovered_rejected', 'effect.retry_ready')",
    )?;
    let mut rows = statement.query(named_params! { ":key": row.key })?;
    while let Some(event) = rows.next()? {
        let payload: Option<Vec<u8>> = event.get(0)?;
        // Events of the same type that no operator caused have no key.
        let facts = payload.and_then(|bytes| serde_json::from_slice::<Facts>(&bytes).ok());
        if let Some(facts) = facts.filter(|facts| facts.idempotency_key == key) {
            return Ok(Some(facts));
        }
    }
    Ok(None)
}
