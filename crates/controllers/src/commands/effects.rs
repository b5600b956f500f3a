//! K10: acts of a pass on the outside world (effects reference, section 7). Intent before the act, receipt after it; what an earlier pass
//! left open is observed first, and never repeated blindly.
//!
//! Not here: that a pass has one act at most (the pass itself), and acting.

use holdpoint_state::records::effects::Observation;
use holdpoint_state::{
    Change, Database, EffectAttempt, EffectStart, EffectState, Outcome, Payload, Settlement,
};
use serde_json::json;

use super::claim::{PassClaim, Seen};
use super::facts;
use crate::error::ControllerError;
use crate::model::{EffectKey, EffectRecord, EffectRequest, EffectStep};
use crate::views::effects::{StoredEffect, stored_request};
use crate::{operations, store};

/// Begins an act, or says what is known of it. After [`EffectStep::Act`] the caller acts and then calls [`settle`]; after
/// [`EffectStep::Observe`] it asks the provider and calls [`observed`].
///
/// # Errors
///
/// [`ControllerError::RequestConflict`] when the key was used with another kind, request or generation (what an older generation left open
/// is observed all the same);
/// [`ControllerError::DeletedMeanwhile`] when the pass does not know that its resource is to be deleted;
/// [`holdpoint_state::StateError::ClaimLost`]. Nothing was written, and nothing may be done.
pub fn begin(
    db: &Database,
    claim: &PassClaim,
    request: &EffectRequest,
) -> Result<EffectStep, ControllerError> {
    let (seen, request) = (claim.seen().clone(), request.clone());
    let receipt =
        db.commit::<_, ControllerError>(claim.command(&operations::BEGIN_EFFECT), move |change| {
            let known = known(change, &seen, &request)?;
            match known {
                Some(StoredEffect {
                    record,
                    state: EffectState::Applying | EffectState::Ambiguous,
                }) => Ok(Outcome::Adopted(EffectStep::Observe(record))),
                Some(StoredEffect {
                    record,
                    state: EffectState::Applied | EffectState::Rejected | EffectState::Cancelled,
                }) => Ok(Outcome::Adopted(EffectStep::Known(record))),
                None
                | Some(StoredEffect {
                    state: EffectState::Pending,
                    ..
                }) => attempt(change, &seen, &request).map(Outcome::Accepted),
            }
        })?;
    Ok(claim.wrote(receipt))
}

/// What is stored under the key, which must be the same wish.
fn known(
    change: &mut Change<'_>,
    seen: &Seen,
    request: &EffectRequest,
) -> Result<Option<StoredEffect>, ControllerError> {
    let Some(known) = store::resources::effect(change, &request.key)? else {
        return Ok(None);
    };
    let difference = if known.record.kind != request.kind {
        "kind"
    } else if known.record.request_fingerprint != Payload::json(&request.request)?.digest() {
        "request"
    } else if known.record.generation != seen.generation && !is_left_over(&known, seen) {
        "generation"
    } else {
        return Ok(Some(known));
    };
    Err(ControllerError::RequestConflict {
        what: "effect",
        key: request.key.to_string(),
        difference,
    })
}

/// Whether an act of an older generation is open: a pass of it died in the middle, and then somebody changed the spec. Only a pass can find
/// out what became of it, and until one does, the resource can't be deleted. It is observed, and never done again.
fn is_left_over(known: &StoredEffect, seen: &Seen) -> bool {
    let is_open = matches!(known.state, EffectState::Applying | EffectState::Ambiguous);
    is_open && known.record.generation < seen.generation
}

/// Closes an act of an older generation that did not happen.
fn give_up(
    change: &mut Change<'_>,
    request: &EffectRequest,
    generation: u64,
) -> Result<EffectRecord, ControllerError> {
    let wish = stored_request(request, generation)?;
    let EffectStart::Execute(attempt) = change.begin_effect(&wish)? else {
        return Err(missing(change, &request.key));
    };
    let error = "it did not happen, and another generation is wanted by now".to_owned();
    change.settle_effect(&attempt, Settlement::Rejected { error })?;
    Ok(stored(change, &request.key)?.record)
}

fn attempt(
    change: &mut Change<'_>,
    seen: &Seen,
    request: &EffectRequest,
) -> Result<EffectStep, ControllerError> {
    still_wanted(change, seen)?;
    let wish = stored_request(request, seen.generation)?;
    let EffectStart::Execute(attempt) = change.begin_effect(&wish)? else {
        return Err(missing(change, &request.key));
    };
    let record = stored(change, &request.key)?.record;
    change.instead(&operations::BEGIN_EFFECT)?;
    change.record(facts(&json!({
        "reconcileId": seen.reconcile_id, "key": request.key, "kind": request.kind, "attempt": attempt.number,
    }))?);
    Ok(EffectStep::Act(attempt, record))
}

/// A pass that does not know of the deletion begins nothing new: what it would begin, nobody would clean up.
pub(super) fn still_wanted(change: &mut Change<'_>, seen: &Seen) -> Result<(), ControllerError> {
    let head = store::resources::head(change)?.ok_or_else(|| ControllerError::Corrupt {
        what: format!("resource {}", change.resource().key()),
        problem: "it is claimed for a pass, and its row is gone".to_owned(),
    })?;
    if head.deletion_requested_at == seen.deletion_requested_at {
        return Ok(());
    }
    Err(ControllerError::DeletedMeanwhile {
        uid: change.resource().key().to_owned(),
    })
}

fn stored(change: &mut Change<'_>, key: &EffectKey) -> Result<StoredEffect, ControllerError> {
    store::resources::effect(change, key)?.ok_or_else(|| missing(change, key))
}

fn missing(change: &Change<'_>, key: &EffectKey) -> ControllerError {
    ControllerError::Corrupt {
        what: format!(
            "effect {:?} of resource {}",
            key.as_str(),
            change.resource().key()
        ),
        problem: "it is not in the state that this transaction has just read".to_owned(),
    }
}

/// Says what the provider knows of an act that an earlier pass left open.
///
/// Applied: it is settled with its external reference. Not applied: the old attempt is closed and the next one begins; an act that an older
/// generation asked for is closed as rejected instead. It can't tell: the act is indeterminate, and waits for a person. Asking failed:
/// nothing changes, and the pass should fail.
///
/// # Errors
///
/// As [`begin`].
pub fn observed(
    db: &Database,
    claim: &PassClaim,
    request: &EffectRequest,
    observation: &Observation,
) -> Result<EffectStep, ControllerError> {
    let (seen, request, observation) = (claim.seen().clone(), request.clone(), observation.clone());
    let receipt = db.commit::<_, ControllerError>(claim.command(&operations::RECOVER_EFFECT), move |change| {
        let Some(before) = known(change, &seen, &request)? else {
            return Err(missing(change, &request.key));
        };
        if let Observation::Failed { .. } = observation {
            return Ok(Outcome::Adopted(EffectStep::Observe(before.record)));
        }
        let after = change.record_observation(&before.record.effect_id, &observation)?;
        if after == EffectState::Pending && before.record.generation != seen.generation {
            let record = give_up(change, &request, before.record.generation)?;
            change.record(facts(&json!({ "reconcileId": seen.reconcile_id, "key": request.key, "state": record.state }))?);
            return Ok(Outcome::Accepted(EffectStep::Known(record)));
        }
        if after == EffectState::Pending {
            return attempt(change, &seen, &request).map(Outcome::Accepted);
        }
        let record = stored(change, &request.key)?.record;
        if after == before.state {
            return Ok(Outcome::Adopted(EffectStep::Known(record)));
        }
        if after == EffectState::Ambiguous {
            change.instead(&operations::DOUBT_EFFECT)?;
        }
        change.record(facts(&json!({ "reconcileId": seen.reconcile_id, "key": request.key, "state": record.state }))?);
        Ok(Outcome::Accepted(EffectStep::Known(record)))
    })?;
    Ok(claim.wrote(receipt))
}

/// Settles the attempt that this pass began, with its receipt.
///
/// # Errors
///
/// [`holdpoint_state::StateError::ClaimLost`]: the next pass observes what happened.
pub fn settle(
    db: &Database,
    claim: &PassClaim,
    key: &EffectKey,
    attempt: &EffectAttempt,
    settlement: Settlement,
) -> Result<EffectRecord, ControllerError> {
    let (seen, key, attempt) = (claim.seen().clone(), key.clone(), attempt.clone());
    let receipt = db.commit::<_, ControllerError>(
        claim.command(&operations::SETTLE_EFFECT),
        move |change| {
            change.settle_effect(&attempt, settlement.clone())?;
            let record = stored(change, &key)?.record;
            change.record(facts(
                &json!({ "reconcileId": seen.reconcile_id, "key": key, "state": record.state }),
            )?);
            Ok(Outcome::Accepted(record))
        },
    )?;
    Ok(claim.wrote(receipt))
}
