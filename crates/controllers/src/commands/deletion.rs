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

/// What stands against a deletion without a pass.
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
    if store::resources::open_effects(change)? != 0 {
        return Ok(Some("an effect of it is not settled; resolve that first"));
    }
    Ok(None)
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
/// [`ControllerError::NotForced`] says what must be done first; [`ControllerError::NotFound`].
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
    on_target(db, target, |uid| {
        let command = Command::new(&operations::FORCE_DELETION, uid.resource()).by(actor.clone());
        let (uid, reason, name) = (uid.clone(), reason.to_owned(), target.to_string());
        db.commit::<_, ControllerError>(command, move |change| {
            if store::resources::head(change)?.is_none() {
                return Ok(Outcome::Refused(None));
            }
            if let Some(problem) = in_the_way(change)? {
                return Err(ControllerError::NotForced {
                    target: name.clone(),
                    problem,
                });
            }
            delete_by_force(change, &reason)?;
            Ok(Outcome::Accepted(Some(uid.clone())))
        })
    })
}
