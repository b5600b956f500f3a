//! The background work of the domain, which the scheduler of a program does: what a deadline leads to, and what follows from a resolution.
//!
//! Level-based: each call reads what is due and does it, so that several processes may do it at the same time, and a call too many changes
//! nothing. Not here: the rules (`commands`), what channels do (their host).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{EffectWorker, WorkerOptions};
use holdpoint_state::{Database, Owner, OwnerKind, StateError};
use holdpoint_workflows::{Duty, DutyError, DutyPass};

use crate::commands::{self, Unusable};
use crate::effects::{CancelParent, SettlePresentations};
use crate::model::DecisionId;

/// Applies timeout policies and expiries when they are due, and the local effects of resolutions.
#[derive(Debug)]
pub struct DecisionDuty {
    effects: EffectWorker,
    told: Mutex<Told>,
}

/// Of which unusable decisions the log tells already. A sweep finds them each time.
#[derive(Debug, Default)]
struct Told(BTreeSet<DecisionId>);

impl Told {
    /// Those that are new. One that is usable in between is new again.
    fn news<'a>(&mut self, unusable: &'a [Unusable]) -> Vec<&'a Unusable> {
        let before = std::mem::take(&mut self.0);
        self.0
            .extend(unusable.iter().map(|one| one.decision.clone()));
        let is_new = |one: &&Unusable| !before.contains(&one.decision);
        unusable.iter().filter(is_new).collect()
    }
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
        Ok(Self {
            effects,
            told: Mutex::default(),
        })
    }
}

impl Duty for DecisionDuty {
    fn name(&self) -> &'static str {
        "decisions"
    }

    fn run(&self, db: &Database, now: UnixMillis) -> Result<DutyPass, DutyError> {
        let swept = commands::sweep(db, now)?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for unusable in told.news(&swept.unusable) {
            tracing::warn!(decision = %unusable.decision, problem = unusable.problem, "a due decision can't be resolved");
        }
        drop(told);
        let pass = self.effects.run_due_once()?;
        Ok(DutyPass {
            next_due: swept.next_due,
            has_worked: !swept.resolved.is_empty() || 0 < pass.applied,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(names: &[&str]) -> Vec<Unusable> {
        let one = |name: &&str| Unusable {
            decision: DecisionId::new(*name).unwrap(),
            problem: "damaged".to_owned(),
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn a_damaged_decision_is_told_once_until_it_is_mended() {
        let mut told = Told::default();
        let mut news = |names: &[&str]| -> Vec<String> {
            let unusable = damaged(names);
            let news = told.news(&unusable);
            news.iter().map(|one| one.decision.to_string()).collect()
        };
        assert_eq!(news(&["a"]), ["a"]);
        assert_eq!(news(&["a"]), [""; 0]);
        assert_eq!(news(&["a", "b"]), ["b"]);
        assert_eq!(news(&["b"]), [""; 0]);
        assert_eq!(news(&["a", "b"]), ["a"]);
    }
}
