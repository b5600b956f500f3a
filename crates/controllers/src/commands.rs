//! The public verbs. Each checks its input, builds a command and calls the store: one transaction, no other I/O, safe to send twice.
//!
//! Those of people and programs are [`apply()`], [`enqueue()`], [`request_deletion()`], [`set_finalizers()`] with
//! [`add_finalizer()`] and [`remove_finalizer()`], and, where a controller is gone, [`force_finalizer()`] and [`force_deletion()`].
//! Those of the owner of a claim take a [`PassClaim`], which [`claim()`] gives: [`finish()`], [`fail()`], [`hand_back()`], [`effects`]
//! and [`children`]. A program that hosts its controllers on the scheduler never calls them.
//!
//! Not here: executing controllers, reading for people (`views`).

mod apply;
pub mod children;
mod claim;
mod deletion;
pub mod effects;
mod enqueue;
mod finalizers;
mod finish;

use holdpoint_state::{Database, Payload, Receipt, StateError};
use serde_json::Value;

pub use apply::{Applied, Apply, SpecChange, apply};
pub use children::child_completed;
pub(crate) use children::tell;
pub use claim::{Claiming, LEASE_MS, PassClaim, RENEW_MS, claim, renew};
pub use deletion::{DeletionRequested, force_deletion, request_deletion};
pub use enqueue::{Hinted, enqueue, enqueue_uid};
pub use finalizers::{Forced, add_finalizer, force_finalizer, remove_finalizer, set_finalizers};
pub use finish::{Finished, PassEnd, fail, finish, hand_back};

use crate::error::ControllerError;
use crate::model::{EVENT_BYTES_MAX, Target, Uid, limited};
use crate::views::stored;

/// How often a command looks for its resource again when that was deleted and made anew meanwhile.
const LOOKS_MAX: usize = 16;

/// Runs a command on the resource that a target names now. The command answers none when that resource is gone by then.
fn on_target<T>(
    db: &Database,
    target: &Target,
    mut command: impl FnMut(&Uid) -> Result<Receipt<Option<T>>, ControllerError>,
) -> Result<Receipt<T>, ControllerError> {
    for _ in 0..LOOKS_MAX {
        let uid = stored::find(&db.snapshot()?.sql(), target)?;
        let uid = uid.ok_or_else(|| ControllerError::not_found(target))?;
        let receipt = match command(&uid) {
            // Retention took even the history.
            Err(ControllerError::State(StateError::NotFound { .. })) => continue,
            other => other?,
        };
        let Receipt {
            disposition,
            revision,
            event_seq,
            value,
        } = receipt;
        if let Some(value) = value {
            return Ok(Receipt {
                disposition,
                revision,
                event_seq,
                value,
            });
        }
    }
    Err(ControllerError::Unsteady {
        target: target.to_string(),
    })
}

/// The payload of an event, within its limit.
fn facts(facts: &Value) -> Result<Payload, ControllerError> {
    limited("event payload", facts, EVENT_BYTES_MAX)
}
