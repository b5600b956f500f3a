//! The background work of the domain, which the scheduler of a program does: children whose run is over though their resource was not told.
//!
//! The end of a run tells its resource in its own transaction (`hooks`), so that there is nothing to find unless another program wrote the
//! rows. Level-based and bounded: several processes may do it, and a call too many changes nothing.

use std::sync::atomic::{AtomicI64, Ordering};

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Database, StateError};
use holdpoint_workflows::{Duty, DutyError, DutyPass};

use crate::commands;
use crate::error::ControllerError;
use crate::model::{ChildState, Completion};
use crate::{store, views};

/// How often is looked, in milliseconds.
const EVERY_MS: i64 = 60_000;
/// How many are told in one call.
const BATCH: u32 = 100;

/// Tells resources of children whose run is over.
#[derive(Debug)]
pub struct ControllerDuty {
    next: AtomicI64,
}

impl ControllerDuty {
    /// The duty of a program; it looks at once, and then every minute.
    pub fn new() -> Self {
        Self {
            next: AtomicI64::new(i64::MIN),
        }
    }
}

impl Default for ControllerDuty {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells the resources of children whose run is over though they were not told. Returns how many were told, and whether there may be more.
/// One that is damaged keeps no other from being told.
///
/// # Errors
///
/// Those of the database, and the first damage that was met, after the others were told.
pub fn tell_of_ended_children(db: &Database) -> Result<(usize, bool), ControllerError> {
    let untold = views::untold(&db.snapshot()?, BATCH)?;
    let is_full = usize::try_from(BATCH).is_ok_and(|batch| batch <= untold.len());
    let mut told = 0;
    let mut damage = None;
    for (request_id, run_id, status) in untold {
        let state = if status == "completed" {
            ChildState::Succeeded
        } else {
            ChildState::Failed
        };
        let error = (state == ChildState::Failed).then(|| store::children::ended(&status));
        let completion = Completion {
            request_id,
            run_id,
            state,
            error,
        };
        match commands::child_completed(db, &completion) {
            Ok(_) => told += 1,
            // It got another run meanwhile, or somebody else told it something final.
            Err(ControllerError::Completion { .. }) => {}
            Err(
                error @ (ControllerError::Corrupt { .. }
                | ControllerError::State(
                    StateError::Corrupt { .. } | StateError::Sqlite { .. },
                )),
            ) => drop(damage.get_or_insert(error)),
            Err(error) => return Err(error),
        }
    }
    if let Some(damage) = damage.filter(|_| !(is_full && 0 < told)) {
        return Err(damage);
    }
    Ok((told, is_full && 0 < told))
}

impl Duty for ControllerDuty {
    fn name(&self) -> &'static str {
        "controllers"
    }

    fn run(&self, db: &Database, now: UnixMillis) -> Result<DutyPass, DutyError> {
        let next = self.next.load(Ordering::Acquire);
        // A clock that was set back does not put the look off for longer than its own distance.
        if now.0 < next && next <= now.0.saturating_add(EVERY_MS) {
            return Ok(DutyPass {
                next_due: Some(UnixMillis(next)),
                has_worked: false,
            });
        }
        let (told, has_more) = tell_of_ended_children(db)?;
        let next = if has_more { now } else { now.plus(EVERY_MS) };
        self.next.store(next.0, Ordering::Release);
        Ok(DutyPass {
            next_due: Some(next),
            has_worked: told != 0,
        })
    }
}
