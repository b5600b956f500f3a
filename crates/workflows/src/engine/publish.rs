//! The way of an update from a node to the store: one command under the run's claim, durable when it returns.
//!
//! Not here: its form (`updates`), whether the attempt may publish (`commands::update`).

use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::Database;

use super::active::ActiveRun;
use crate::commands;
use crate::definition::{CancellationSignal, NodeError};
use crate::id::AttemptId;
use crate::updates::{Publisher, refused};

/// How long an update waits for a store that is busy or full for a moment, first and at most.
pub(crate) const AGAIN_FIRST: Duration = Duration::from_millis(20);
pub(crate) const AGAIN_MAX: Duration = Duration::from_millis(500);

/// The publisher of one attempt. It holds the run's claim as long as the node holds it; an attempt that is over is refused.
pub(super) fn publisher(
    db: &Database,
    active: &Arc<ActiveRun>,
    attempt: &AttemptId,
    signal: CancellationSignal,
) -> Publisher {
    let (db, active, attempt) = (db.clone(), Arc::clone(active), attempt.clone());
    Publisher::new(move |update| {
        let mut wait = AGAIN_FIRST;
        loop {
            match commands::publish(&db, &active.claim, &attempt, &update) {
                Ok(_) => return Ok(()),
                Err(error) if error.is_retryable() => {
                    if let Some(reason) = signal.wait(wait) {
                        return Err(NodeError::stopped(reason));
                    }
                    wait = AGAIN_MAX.min(wait * 2);
                }
                Err(error) => return Err(refused(error.to_string())),
            }
        }
    })
}
