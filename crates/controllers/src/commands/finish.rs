//! K7 to K9: how a pass ends. Status, finalizers, queue and lease change in one transaction, or none of them does.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Change, Database, Outcome, Payload};
use serde_json::json;

use super::claim::{PassClaim, Seen};
use super::facts;
use crate::error::ControllerError;
use crate::model::{FinalizerName, Next, StatusPatch, back_off_ms, cut};
use crate::store::queue::Again;
use crate::{operations, store};

/// How often a resource that only an unsettled effect keeps from being deleted is looked at, in milliseconds. Who resolves the effect
/// wakes it at once.
const BLOCKED_MS: i64 = 60_000;

/// What the end of a pass needs to know beside its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PassEnd {
    /// How long the pass took.
    pub duration_ms: u64,
    /// A random number from 0 to 1, which moves the back-off of a failed pass by a fifth at most; 0.5 does not move it.
    pub jitter: f64,
}

impl Default for PassEnd {
    fn default() -> Self {
        Self {
            duration_ms: 0,
            jitter: 0.5,
        }
    }
}

/// What became of a resource when its pass ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finished {
    /// Nothing is to do until something changes.
    Settled,
    /// It is settled, and something came during the pass: the next one is then.
    SettledAgain {
        /// When.
        at: UnixMillis,
    },
    /// The pass asked for another one.
    Requeued {
        /// When.
        at: UnixMillis,
    },
    /// The resource is deleted.
    Deleted,
    /// Everything is cleaned up, but an effect of it may have happened or may be happening: it stays until that is resolved.
    Blocked {
        /// How many effects.
        effects: u64,
        /// When it is looked at again, at the latest.
        at: UnixMillis,
    },
    /// Somebody else changed the resource during the pass: the result is dropped, and the next pass comes at once.
    Conflict,
    /// The result can't be taken, so that the pass failed.
    Failed {
        /// Why.
        error: String,
        /// When it is tried again.
        retry_at: UnixMillis,
    },
}

/// Ends a pass with its result.
///
/// Checks, in this order: the claim, unexpired; generation, deletion and version are those that the pass saw, but for its own changes, or it
/// is a conflict; patch and result can be taken, or the pass failed.
///
/// # Errors
///
/// [`holdpoint_state::StateError::ClaimLost`]: nothing was written, and the pass has no end. See [`ControllerError::claim_lost`].
pub fn finish(
    db: &Database,
    claim: &PassClaim,
    patch: &StatusPatch,
    next: Next,
    end: PassEnd,
) -> Result<Finished, ControllerError> {
    let (seen, version, patch) = (claim.seen().clone(), claim.version(), patch.clone());
    let receipt =
        db.commit::<_, ControllerError>(claim.command(&operations::FINISH), move |change| {
            let head = store::resources::head(change)?.ok_or_else(|| gone(change))?;
            let is_as_seen = head.generation == seen.generation
                && head.deletion_requested_at == seen.deletion_requested_at
                && change.revision() == version;
            if !is_as_seen {
                store::queue::make_due(change)?;
                change.instead(&operations::CONFLICT)?;
                change.record(facts(&json!({ "reconcileId": seen.reconcile_id }))?);
                change.release()?;
                return Ok(Outcome::Accepted(Finished::Conflict));
            }
            let result = match judge(change, &seen, &patch, next) {
                Err(ControllerError::Invalid(error)) => {
                    let error = error.to_string();
                    let retry_at = fail_in(change, &seen, &error, end)?;
                    return Ok(Outcome::Accepted(Finished::Failed { error, retry_at }));
                }
                other => other?,
            };
            if result.status.digest() != head.status {
                store::resources::set_status(change, seen.generation, &result.status)?;
            }
            if let Some(finalizers) = &result.finalizers {
                store::resources::set_finalizers(change, finalizers)?;
            }
            conclude(change, &seen, next, end).map(Outcome::Accepted)
        })?;
    Ok(receipt.value)
}

/// What a pass found, checked.
struct Judged {
    status: Payload,
    finalizers: Option<Vec<FinalizerName>>,
}

fn judge(
    change: &mut Change<'_>,
    seen: &Seen,
    patch: &StatusPatch,
    next: Next,
) -> Result<Judged, ControllerError> {
    next.check()?;
    let before = store::resources::status(change)?.ok_or_else(|| gone(change))?;
    let status = patch.apply(&before, seen.generation, change.now())?;
    let finalizers = match patch.finalizers {
        Some(_) => {
            let before = store::resources::finalizers(change)?;
            patch.finalizers_of(&before, seen.deletion_requested_at.is_some())?
        }
        None => None,
    };
    Ok(Judged {
        status: status.payload()?,
        finalizers,
    })
}

/// Queue, lease and event of a pass whose result is taken.
fn conclude(
    change: &mut Change<'_>,
    seen: &Seen,
    next: Next,
    end: PassEnd,
) -> Result<Finished, ControllerError> {
    let now = change.now();
    let waiting = store::queue::waiting(change)?.ok_or_else(|| gone(change))?;
    let came = waiting.queue_version != seen.queue_version;
    let again = |at, is_new| Again {
        at,
        is_new,
        errors: 0,
        error: None,
    };
    let (finished, result, after_ms) = match next {
        Next::Settled
            if seen.deletion_requested_at.is_some()
                && store::resources::finalizers(change)?.is_empty() =>
        {
            match store::resources::open_effects(change)? {
                0 => (Finished::Deleted, "settled", None),
                effects => {
                    // An act that an earlier pass left open and that no pass asked for any more is for a person to say.
                    change.recover_effects_with(Some(
                        "nobody asked what became of it before the deletion",
                    ))?;
                    let at = now.plus(BLOCKED_MS);
                    let at = if came {
                        at.min(waiting.available_at)
                    } else {
                        at
                    };
                    store::queue::set(change, &again(at, true))?;
                    (
                        Finished::Blocked { effects, at },
                        "blocked",
                        Some(at.since(now).unsigned_abs()),
                    )
                }
            }
        }
        Next::Settled if came => {
            let at = waiting.available_at;
            store::queue::set(change, &again(at, false))?;
            (Finished::SettledAgain { at }, "settled", None)
        }
        Next::Settled => {
            store::queue::remove(change, seen.queue_version)?;
            (Finished::Settled, "settled", None)
        }
        Next::Requeue { after_ms } => {
            let at = now.plus(store::integer(after_ms.unwrap_or(0)));
            // What came during the pass is not put off.
            let at = if came {
                at.min(waiting.available_at)
            } else {
                at
            };
            store::queue::set(change, &again(at, true))?;
            (
                Finished::Requeued { at },
                "requeue",
                Some(after_ms.unwrap_or(0)),
            )
        }
    };
    let mut payload = json!({
        "reconcileId": seen.reconcile_id, "result": result, "generation": seen.generation, "durationMs": end.duration_ms,
    });
    if let (Some(after), Some(members)) = (after_ms, payload.as_object_mut()) {
        members.insert("requeueAfterMs".to_owned(), after.into());
    }
    let payload = facts(&payload)?;
    if finished == Finished::Deleted {
        change.advance(&operations::FINISH, None, Some(payload))?;
        // What was never begun will not be.
        change.cancel_effects("the resource is deleted")?;
        store::resources::delete(change)?;
        change.instead(&operations::DELETE)?;
        change.record(facts(&json!({ "reconcileId": seen.reconcile_id }))?);
    } else {
        change.record(payload);
    }
    change.release()?;
    Ok(finished)
}

/// A pass has its resource: nobody else deletes it.
fn gone(change: &Change<'_>) -> ControllerError {
    ControllerError::Corrupt {
        what: format!("resource {}", change.resource().key()),
        problem: "it is claimed for a pass, and its row or its queue row is gone".to_owned(),
    }
}

/// Ends a pass that failed: an error of its code, its time limit, a result that can't be taken, a worker that is gone. Returns when the
/// resource is tried again; none when the claim is lost, and then nothing was written.
///
/// # Errors
///
/// Those of the database.
pub fn fail(
    db: &Database,
    claim: &PassClaim,
    error: &str,
    end: PassEnd,
) -> Result<Option<UnixMillis>, ControllerError> {
    let (seen, error) = (claim.seen().clone(), error.to_owned());
    let failed = db.commit::<_, ControllerError>(claim.command(&operations::FAIL), move |change| {
        fail_in(change, &seen, &error, end).map(Outcome::Accepted)
    });
    or_lost(failed.map(|receipt| receipt.value))
}

fn fail_in(
    change: &mut Change<'_>,
    seen: &Seen,
    error: &str,
    end: PassEnd,
) -> Result<UnixMillis, ControllerError> {
    let waiting = store::queue::waiting(change)?.ok_or_else(|| gone(change))?;
    let error = cut(error);
    let rest = back_off_ms(waiting.consecutive_errors, end.jitter);
    let at = change.now().plus(store::integer(rest));
    // A change that came during the pass may be what helps: it is not put off.
    let came = waiting.queue_version != seen.queue_version;
    let at = if came {
        at.min(waiting.available_at)
    } else {
        at
    };
    let errors = waiting.consecutive_errors.saturating_add(1);
    store::queue::set(
        change,
        &Again {
            at,
            is_new: true,
            errors,
            error: Some(&error),
        },
    )?;
    change.instead(&operations::FAIL)?;
    change.record(facts(&json!({
        "reconcileId": seen.reconcile_id, "error": error, "durationMs": end.duration_ms,
        "requeueAfterMs": at.since(change.now()).max(0),
    }))?);
    change.release()?;
    Ok(at)
}

/// Gives a claimed resource back, because its host stops: the next pass is at once, and nothing failed. Returns whether the claim was not
/// lost.
///
/// # Errors
///
/// Those of the database.
pub fn hand_back(db: &Database, claim: &PassClaim) -> Result<bool, ControllerError> {
    let seen = claim.seen().clone();
    let handed =
        db.commit::<_, ControllerError>(claim.command(&operations::HAND_BACK), move |change| {
            store::queue::make_due(change)?;
            change.record(facts(&json!({ "reconcileId": seen.reconcile_id }))?);
            change.release()?;
            Ok(Outcome::Accepted(()))
        });
    Ok(or_lost(handed.map(|receipt| receipt.value))?.is_some())
}

/// A lost claim is no error where nothing is to be written any more.
fn or_lost<T>(result: Result<T, ControllerError>) -> Result<Option<T>, ControllerError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.claim_lost().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
