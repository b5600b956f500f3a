//! K3: somebody asks for the deletion of a resource; and how a person ends one whose controller does not come.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Actor, Change, Command, Database, Outcome, Payload, Receipt};
use serde_json::json;

use super::{facts, on_target};
use crate::error::ControllerError;
use crate::model::{Target, Uid, cut};
use crate::{operations, store};

/// The receipt of a requested deletion.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionRequested {
    /// The resource.
    pub uid: Uid,
    /// When the deletion was asked for first.
    pub deletion_timestamp: UnixMillis,
}

/// Asks for the deletion of a resource. Its controller ends it, when nothing holds it. A repeat is adopted.
///
/// # Errors
///
/// [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn request_deletion(
    db: &Database,
    target: &Target,
    actor: Actor,
) -> Result<Receipt<DeletionRequested>, ControllerError> {
    on_target(db, target, |uid| {
        let command = Command::new(&operations::REQUEST_DELETION, uid.resource()).by(actor.clone());
        let uid = uid.clone();
        db.commit::<_, ControllerError>(command, move |change| {
            let Some(head) = store::resources::head(change)? else {
                return Ok(Outcome::Refused(None));
            };
            let requested = |at| {
                Some(DeletionRequested {
                    uid: uid.clone(),
                    deletion_timestamp: at,
                })
            };
            if let Some(at) = head.deletion_requested_at {
                return Ok(Outcome::Adopted(requested(at)));
            }
            store::resources::set_deletion(change)?;
            store::queue::enqueue(change, change.now())?;
            Ok(Outcome::Accepted(requested(change.now())))
        })
    })
}

/// What stands against a deletion without a pass, but for effects.
pub(super) fn in_the_way(change: &mut Change<'_>) -> Result<Option<&'static str>, ControllerError> {
    let Some(head) = store::resources::head(change)? else {
        return Ok(Some("it is gone"));
    };
    if head.deletion_requested_at.is_none() {
        return Ok(Some("its deletion was not asked for; ask for it first"));
    }
    let now = change.now();
    if change.lease()?.is_live(now) {
        return Ok(Some("a pass works on it; wait until that ends"));
    }
    if !store::resources::finalizers(change)?.is_empty() {
        return Ok(Some("finalizers hold it; force each of them"));
    }
    Ok(None)
}

/// Whether an act of a resource without a controller may have happened. What was not begun is given up; what may be going on can't be looked
/// at by anybody any more, so that a person has to say what became of it.
pub(super) fn acts_in_the_way(
    change: &mut Change<'_>,
    reason: &str,
) -> Result<bool, ControllerError> {
    change.cancel_effects(&cut(reason))?;
    Ok(store::resources::open_effects(change)? != 0)
}

/// Takes the rows of this change's resource away, outside of a pass. The caller found nothing in the way.
pub(super) fn delete_by_force(
    change: &mut Change<'_>,
    reason: &str,
) -> Result<(), ControllerError> {
    let payload: Payload = facts(&json!({ "reason": cut(reason), "forced": true }))?;
    store::resources::delete(change)?;
    change.release()?;
    change.instead(&operations::FORCE_DELETION)?;
    change.record(payload);
    Ok(())
}

/// Takes a resource away whose deletion was asked for, that nothing holds and that no pass works on: for one whose controller is not
/// installed any more. A person does it, and the reason is kept.
///
/// # Errors
///
/// [`ControllerError::NotForced`] says what must be done first. When that is an effect, then one that may have been going on is known as
/// indeterminate from now on: a person can resolve it. [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn force_deletion(
    db: &Database,
    target: &Target,
    reason: &str,
    actor: Actor,
) -> Result<Receipt<Uid>, ControllerError> {
    let forced = on_target(db, target, |uid| {
        let command = Command::new(&operations::FORCE_DELETION, uid.resource()).by(actor.clone());
        let (uid, reason) = (uid.clone(), reason.to_owned());
        db.commit::<_, ControllerError>(command, move |change| {
            if store::resources::head(change)?.is_none() {
                return Ok(Outcome::Refused(None));
            }
            if let Some(problem) = in_the_way(change)? {
                return Ok(Outcome::Refused(Some(Err(problem))));
            }
            if acts_in_the_way(change, &reason)? {
                let problem = "an effect of it may have happened; resolve that first";
                return Ok(Outcome::Refused(Some(Err(problem))));
            }
            delete_by_force(change, &reason)?;
            Ok(Outcome::Accepted(Some(Ok(uid.clone()))))
        })
    })?;
    let Receipt {
        disposition,
        revision,
        event_seq,
        value,
    } = forced;
    match value {
        Ok(value) => Ok(Receipt {
            disposition,
            revision,
            event_seq,
            value,
        }),
        Err(problem) => Err(ControllerError::NotForced {
            target: target.to_string(),
            problem,
        }),
    }
}
