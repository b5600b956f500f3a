//! K4: finalizers from outside. Each verb works on the present list, so that it can be repeated; [`set_finalizers`] names the version that
//! its caller read.

use holdpoint_state::{Actor, Change, Command, Database, Outcome, Receipt};
use serde_json::json;

use super::deletion::{acts_in_the_way, delete_by_force, in_the_way};
use super::{facts, on_target};
use crate::error::ControllerError;
use crate::model::{FinalizerName, Target, check_finalizers, cut};
use crate::{operations, store};

/// Changes the finalizers of a resource. The list that it then has comes back.
fn change_list(
    db: &Database,
    target: &Target,
    actor: &Actor,
    expected: Option<u64>,
    wanted: impl Fn(&[FinalizerName]) -> Vec<FinalizerName> + Clone + Send + 'static,
) -> Result<Receipt<Vec<FinalizerName>>, ControllerError> {
    on_target(db, target, |uid| {
        let command = Command::new(&operations::SET_FINALIZERS, uid.resource()).by(actor.clone());
        let wanted = wanted.clone();
        db.commit::<_, ControllerError>(command, move |change| {
            let Some(head) = store::resources::head(change)? else {
                return Ok(Outcome::Refused(None));
            };
            let before = store::resources::finalizers(change)?;
            let after = wanted(&before);
            check_finalizers(&before, &after, head.deletion_requested_at.is_some())?;
            if after == before {
                return Ok(Outcome::Adopted(Some(after)));
            }
            if let Some(expected) = expected {
                change.expect_revision(expected)?;
            }
            write(change, &after)?;
            change.record(facts(&json!({ "finalizers": after }))?);
            Ok(Outcome::Accepted(Some(after)))
        })
    })
}

fn write(change: &mut Change<'_>, after: &[FinalizerName]) -> Result<(), ControllerError> {
    store::resources::set_finalizers(change, after)?;
    store::queue::enqueue(change, change.now())?;
    Ok(())
}

/// Replaces the finalizers of a resource whose version the caller read. A resource that has this very list is adopted at any version.
///
/// # Errors
///
/// [`holdpoint_state::StateError::StaleRevision`] with the present version; [`crate::model::Invalid`] for a name twice, and for a new one
/// while the resource is being deleted; [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn set_finalizers(
    db: &Database,
    target: &Target,
    expected: u64,
    finalizers: Vec<FinalizerName>,
    actor: Actor,
) -> Result<Receipt<Vec<FinalizerName>>, ControllerError> {
    change_list(db, target, &actor, Some(expected), move |_| {
        finalizers.clone()
    })
}

/// Adds a finalizer at the end of the present list, unless it is there.
///
/// # Errors
///
/// [`crate::model::Invalid::FinalizerWhileDeleting`], [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn add_finalizer(
    db: &Database,
    target: &Target,
    finalizer: &FinalizerName,
    actor: Actor,
) -> Result<Receipt<Vec<FinalizerName>>, ControllerError> {
    let finalizer = finalizer.clone();
    change_list(db, target, &actor, None, move |before| {
        let mut after = before.to_vec();
        if !after.contains(&finalizer) {
            after.push(finalizer.clone());
        }
        after
    })
}

/// Takes a finalizer off the present list, if it is there.
///
/// # Errors
///
/// [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn remove_finalizer(
    db: &Database,
    target: &Target,
    finalizer: &FinalizerName,
    actor: Actor,
) -> Result<Receipt<Vec<FinalizerName>>, ControllerError> {
    let finalizer = finalizer.clone();
    change_list(db, target, &actor, None, move |before| {
        before
            .iter()
            .filter(|known| **known != finalizer)
            .cloned()
            .collect()
    })
}

/// What became of a finalizer that was taken away by force.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forced {
    /// What holds the resource still.
    pub finalizers: Vec<FinalizerName>,
    /// Whether the resource is gone with it: it was the last thing that held it.
    pub is_deleted: bool,
}

/// Takes a finalizer away whose controller does not: what it stands for is not cleaned up. A person does it, and the reason is kept.
///
/// When it was the last one of a resource that is being deleted, and nothing else stands against that, the resource goes in the same
/// transaction: its controller may never come. One that is not there is adopted.
///
/// # Errors
///
/// [`holdpoint_state::StateError::ActorDenied`] unless a person or control asks; [`ControllerError::NotFound`].
#[expect(
    clippy::needless_pass_by_value,
    reason = "an actor is named for one command, as everywhere"
)]
pub fn force_finalizer(
    db: &Database,
    target: &Target,
    finalizer: &FinalizerName,
    reason: &str,
    actor: Actor,
) -> Result<Receipt<Forced>, ControllerError> {
    on_target(db, target, |uid| {
        let command = Command::new(&operations::FORCE_FINALIZER, uid.resource()).by(actor.clone());
        let (finalizer, reason) = (finalizer.clone(), reason.to_owned());
        db.commit::<_, ControllerError>(command, move |change| {
            if store::resources::head(change)?.is_none() {
                return Ok(Outcome::Refused(None));
            }
            let before = store::resources::finalizers(change)?;
            let after: Vec<_> = before
                .iter()
                .filter(|known| **known != finalizer)
                .cloned()
                .collect();
            if after == before {
                return Ok(Outcome::Adopted(Some(Forced {
                    finalizers: after,
                    is_deleted: false,
                })));
            }
            write(change, &after)?;
            let payload = facts(&json!({ "finalizer": finalizer, "reason": cut(&reason) }))?;
            let is_deleted = in_the_way(change)?.is_none() && !acts_in_the_way(change, &reason)?;
            if is_deleted {
                change.advance(&operations::FORCE_FINALIZER, None, Some(payload))?;
                delete_by_force(change, &reason)?;
            } else {
                change.record(payload);
            }
            Ok(Outcome::Accepted(Some(Forced {
                finalizers: after,
                is_deleted,
            })))
        })
    })
}
