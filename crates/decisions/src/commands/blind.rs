//! The end of a decision whose request can't be read, with its run.
//!
//! Only that: nobody can answer what nobody can read, and a policy must not guess, but a run has to be able to end. It is made of the row of
//! the decision alone. Nothing of what is damaged is touched.

use holdpoint_state::{Change, NewEffect, Outcome, OwnerScope, Payload, StateError};
use serde_json::json;

use crate::error::DecisionError;
use crate::model::{
    CancelReason, CancellationRecord, DecisionId, Judged, Provenance, Resolution, SubmissionResult,
    SubmissionSource, record,
};
use crate::store::decisions;
use crate::store::resolutions::{self, NewResolution};
use crate::store::submissions::{self, NewSubmission};
use crate::{SETTLE_PRESENTATIONS, digest};

/// Ends the decision of this change, whose run ends around it.
pub(super) fn end(
    change: &mut Change<'_>,
    decision: &DecisionId,
    damage: &DecisionError,
) -> Result<Outcome<Judged>, DecisionError> {
    tracing::warn!(%decision, error = %damage, "a decision that can't be read ends with its run");
    let row = decisions::row(change)?;
    let now = change.now();
    let record = CancellationRecord::new(
        decision.clone(),
        row.request_digest,
        CancelReason::Cancelled,
        now,
    );
    let digest = record::cancelled_digest(&record).map_err(|source| StateError::Json {
        what: "cancellation record",
        source,
    })?;
    change.transition("open", "cancelled")?;
    change.record(Payload::json(&record)?);
    let actor = change.actor().id().map(str::to_owned);
    resolutions::insert(
        change,
        &NewResolution {
            provenance: Provenance::ExplicitCancel,
            response: None,
            reason: Some(&format!(
                "the run ended, and what was asked can't be read: {damage}"
            )),
            human: None,
            actor: actor.as_deref(),
            digest,
        },
    )?;
    submissions::insert(
        change,
        &NewSubmission {
            decision,
            source: SubmissionSource::Control,
            request_digest: row.request_digest,
            from: None,
            actor: actor.as_deref(),
            key: &format!("cancel-{decision}"),
            response: None,
            result: SubmissionResult::Won,
            reject_code: None,
            winner: None,
        },
    )?;
    decisions::forget_deadline_of_row(change)?;
    let payload = Payload::json(&json!({
        "decisionId": decision,
        "runId": row.run,
        "outcome": Provenance::ExplicitCancel.outcome(),
    }))?;
    let effect = NewEffect::new(
        SETTLE_PRESENTATIONS,
        decision.as_str(),
        OwnerScope::Run,
        payload,
    )
    .identified_by(digest::effect_identity(decision, SETTLE_PRESENTATIONS)?);
    change.reserve_effect(&effect)?;
    Ok(Outcome::Accepted(Judged::Accepted {
        resolution: Resolution::Cancelled {
            cancellation: record,
        },
    }))
}
