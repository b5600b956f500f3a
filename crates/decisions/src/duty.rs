//! The background work of the domain, which the scheduler of a program does: what a deadline leads to, and what follows from a resolution.
//!
//! Level-based: each call reads what is due and does it, so that several processes may do it at the same time, and a call too many changes
//! nothing. Not here: the rules (`commands`), what channels do (their host).

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{EffectWorker, WorkerOptions};
use holdpoint_state::{Database, Owner, OwnerKind, StateError};
use holdpoint_workflows::{Duty, DutyError, DutyPass};

use crate::commands;
use crate::effects::{CancelParent, SettlePresentations};

/// Applies timeout policies and expiries when they are due, and the local effects of resolutions.
#[derive(Debug)]
pub struct DecisionDuty {
    effects: EffectWorker,
}

impl DecisionDuty {
    /// The duty of a program. `settle` is what its channels hang into the settlement of presentations.
    ///
    /// # Errors
    ///
    /// The schema of the store lacks the domain.
    pub fn new(db: &Database, settle: SettlePresentations) -> Result<Self, StateError> {
        let options = WorkerOptions {
            owner: Owner::new(OwnerKind::Host, "decisions"),
            concurrency: 1,
            ..WorkerOptions::default()
        };
        let effects = EffectWorker::new(db.clone(), options)
            .local(settle)?
            .local(CancelParent)?;
        Ok(Self { effects })
    }
}

impl Duty for DecisionDuty {
    fn name(&self) -> &'static str {
        "decisions"
    }

    fn run(&self, db: &Database, now: UnixMillis) -> Result<DutyPass, DutyError> {
        let swept = commands::sweep(db, now)?;
        let pass = self.effects.run_due_once()?;
        Ok(DutyPass {
            next_due: swept.next_due,
            has_worked: !swept.resolved.is_empty() || 0 < pass.applied,
        })
    }
}
