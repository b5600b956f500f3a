//! Who does the work of effects: handlers, the outbox worker, and a person's word on what nobody else can know.
//!
//! No exactly-once claim is made about a remote system that can't prove it. Not here: rows (`records::effects`).

pub(crate) mod back_off;
mod handler;
mod options;
mod worker;

use crate::command::Receipt;
use crate::database::{Database, Snapshot};
use crate::error::StateError;
use crate::id::{EffectId, Resource};
use crate::records::effects::{resolution, views};

pub use back_off::BackOff;
pub use handler::{ApplyOutcome, EffectCall, EffectHandler, LocalHandler};
pub use options::{Jitter, Pass, Stop, WorkerOptions};
pub use worker::EffectWorker;

pub use crate::records::effects::{
    Cancelled, Decision, EffectAttempt, EffectContent, EffectCounts, EffectFilter, EffectIdentity,
    EffectStart, EffectState, EffectView, NewEffect, Observation, OwnerScope, Recovered, Reserved,
    Resolution, Resolved, Settlement,
};

/// Resolves an ambiguous effect by a person's word. Repeating the command adopts the first answer.
///
/// A source that must follow in the same transaction calls [`Change::resolve_effect`](crate::Change::resolve_effect) in a command
/// of its own instead.
///
/// # Errors
///
/// [`StateError::ActorDenied`] unless the actor is a person or explicit control, [`StateError::Conflict`] with the present state
/// when the effect is not ambiguous at that attempt, [`StateError::StaleRevision`], and [`StateError::Input`] when a receipt is
/// needed. Nothing was written.
pub fn resolve(db: &Database, resolution: Resolution) -> Result<Receipt<Resolved>, StateError> {
    let command = resolution::command(&resolution)?;
    db.commit(command, move |change| {
        resolution::resolve(change, &resolution)
    })
}

/// One effect.
///
/// # Errors
///
/// Those of the database.
pub fn fetch(snapshot: &Snapshot<'_>, id: &EffectId) -> Result<Option<EffectView>, StateError> {
    views::fetch(&snapshot.sql(), id)
}

/// At most `limit` effects in the order of their creation.
///
/// # Errors
///
/// Those of the database.
pub fn list(
    snapshot: &Snapshot<'_>,
    filter: &EffectFilter,
    limit: u32,
) -> Result<Vec<EffectView>, StateError> {
    views::list(&snapshot.sql(), filter, limit)
}

/// The effects of one source, in the order of their creation.
///
/// # Errors
///
/// Those of the database.
pub fn of_source(
    snapshot: &Snapshot<'_>,
    source: &Resource,
) -> Result<Vec<EffectView>, StateError> {
    views::of_source(&snapshot.sql(), source)
}

/// How many effects are to do, in flight and waiting for a person.
///
/// # Errors
///
/// Those of the database.
pub fn counts(snapshot: &Snapshot<'_>) -> Result<EffectCounts, StateError> {
    views::counts(&snapshot.sql())
}

/// The private content of one effect. Only the domain that owns the effect calls this; no public view shows what it returns.
///
/// # Errors
///
/// Those of the database.
pub fn content(
    snapshot: &Snapshot<'_>,
    id: &EffectId,
) -> Result<Option<EffectContent>, StateError> {
    views::content(&snapshot.sql(), id)
}
