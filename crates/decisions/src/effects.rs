//! What follows from a resolution, in the same store: the local effects that an outbox worker applies.
//!
//! Both are idempotent, and only one run of each is ever committed. Not here: what a channel does to take its controls off; it scans, or
//! hangs itself into [`SettlePresentations::and_then`].

use std::fmt;
use std::sync::Arc;

use holdpoint_state::effects::{EffectCall, EffectWorker, LocalHandler, WorkerOptions};
use holdpoint_state::{Actor, Change, Database, StateError};
use holdpoint_workflows::commands::{self as workflows, Control, ForeignClaim};
use holdpoint_workflows::{RunId, WorkflowError};

use crate::model::{DecisionId, Invalid};
use crate::{CANCEL_PARENT, SETTLE_PRESENTATIONS};

/// What a channel hangs into the settlement of presentations.
type Further = Arc<dyn Fn(&mut Change<'_>, &DecisionId) -> Result<(), StateError> + Send + Sync>;

/// Applies `decision.settle_presentations` (T9). What was pending for the session of the run is cancelled in the transaction that
/// resolves, so that nothing is left but what channels add.
#[derive(Clone, Default)]
pub struct SettlePresentations {
    further: Vec<Further>,
}

impl SettlePresentations {
    /// Only what this domain does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Does more in the same transaction: a channel reserves the settlement of what it delivered. The change is about the effect;
    /// resources of another domain are touched with [`Change::also`].
    #[must_use]
    pub fn and_then(
        mut self,
        further: impl Fn(&mut Change<'_>, &DecisionId) -> Result<(), StateError> + Send + Sync + 'static,
    ) -> Self {
        self.further.push(Arc::new(further));
        self
    }
}

impl fmt::Debug for SettlePresentations {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SettlePresentations")
            .finish_non_exhaustive()
    }
}

impl LocalHandler for SettlePresentations {
    fn effect_type(&self) -> &'static str {
        SETTLE_PRESENTATIONS
    }

    fn apply(&self, change: &mut Change<'_>, call: &EffectCall) -> Result<(), StateError> {
        let decision =
            DecisionId::new(call.source_key.as_str()).map_err(|error| foreign(&error))?;
        for further in &self.further {
            further(change, &decision)?;
        }
        Ok(())
    }
}

/// Applies `decision.cancel_parent` (T10): the run of a decision that was cancelled or expired is cancelled, unless it is over.
#[derive(Debug, Clone, Copy, Default)]
pub struct CancelParent;

impl LocalHandler for CancelParent {
    fn effect_type(&self) -> &'static str {
        CANCEL_PARENT
    }

    fn apply(&self, change: &mut Change<'_>, call: &EffectCall) -> Result<(), StateError> {
        /// The part of the payload that matters.
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Parent {
            run_id: RunId,
        }
        let parent: Parent = call.json()?;
        let control = Control::of(&parent.run_id)
            .by(Actor::system())
            .foreign_claim(ForeignClaim::TakeOver)
            .because("its decision was cancelled");
        match workflows::cancel_in(change, &control) {
            // It is over already, or gone.
            Ok(_) | Err(WorkflowError::Rejected { .. } | WorkflowError::NoRun { .. }) => Ok(()),
            Err(WorkflowError::State(error)) => Err(error),
            Err(other) => Err(StateError::Input {
                what: "run",
                problem: other.to_string(),
            }),
        }
    }
}

/// Applies every `decision.cancel_parent` that is due now, so that a caller who ended a decision need not wait for whoever works on the
/// store. Nothing else is applied: what settles presentations belongs to a program that knows its channels. Returns how many runs followed.
///
/// Several processes may do it at once: each effect is applied in one transaction with what it does, exactly once.
///
/// # Errors
///
/// When the outbox can't be read. An effect that could not be applied, for example because the store is busy, stays due.
pub fn cancel_parents(db: &Database) -> Result<u64, StateError> {
    let options = WorkerOptions {
        concurrency: 1,
        ..WorkerOptions::default()
    };
    let worker = EffectWorker::new(db.clone(), options).local(CancelParent)?;
    Ok(worker.run_due_once()?.applied)
}

/// An outbox worker with both handlers, for a program that needs no other.
///
/// # Errors
///
/// Those of the worker: the schema of the store lacks this domain.
pub fn worker(db: Database, options: WorkerOptions) -> Result<EffectWorker, StateError> {
    EffectWorker::new(db, options)
        .local(SettlePresentations::new())?
        .local(CancelParent)
}

fn foreign(error: &Invalid) -> StateError {
    StateError::Input {
        what: "decision effect",
        problem: error.to_string(),
    }
}
