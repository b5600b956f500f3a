//! K2: something may have happened. A hint carries no command and is no fact.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Actor, Command, Database, Outcome, Receipt, StateError};

use super::on_target;
use crate::error::ControllerError;
use crate::model::{Target, Uid};
use crate::{operations, store};

/// What a hint left in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hinted {
    /// When the next pass is.
    pub available_at: UnixMillis,
    /// How many wake-ups the queue row has seen.
    pub queue_version: u64,
}

/// Asks for a pass of a resource at `at`, or now. An earlier time that is asked for already stays.
///
/// # Errors
///
/// [`ControllerError::NotFound`].
pub fn enqueue(
    db: &Database,
    target: &Target,
    at: Option<UnixMillis>,
) -> Result<Hinted, ControllerError> {
    Ok(on_target(db, target, |uid| hint(db, uid, at))?.value)
}

/// As [`enqueue`], for a resource that is known by its uid. None: it does not exist any more.
///
/// # Errors
///
/// Those of the database.
pub fn enqueue_uid(
    db: &Database,
    uid: &Uid,
    at: Option<UnixMillis>,
) -> Result<Option<Hinted>, ControllerError> {
    match hint(db, uid, at) {
        Err(ControllerError::State(StateError::NotFound { .. })) => Ok(None),
        other => Ok(other?.value),
    }
}

fn hint(
    db: &Database,
    uid: &Uid,
    at: Option<UnixMillis>,
) -> Result<Receipt<Option<Hinted>>, ControllerError> {
    let command = Command::new(&operations::ENQUEUE, uid.resource()).by(Actor::system());
    db.commit::<_, ControllerError>(command, move |change| {
        if store::resources::head(change)?.is_none() {
            return Ok(Outcome::Refused(None));
        }
        store::queue::enqueue(change, at.unwrap_or(change.now()))?;
        // The row stays, and nothing else changes: a hint is no fact.
        let waiting = store::queue::waiting(change)?;
        Ok(Outcome::Refused(waiting.map(|waiting| Hinted {
            available_at: waiting.available_at,
            queue_version: waiting.queue_version,
        })))
    })
}
