//! T4 and T7: what happens by itself at a deadline, under the lease of the run. Finding an overdue decision grants nothing.

use std::cell::RefCell;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{
    Actor, ActorKind, Command, Database, Operation, Outcome, Owner, OwnerKind, Receipt, StateError,
};
use holdpoint_workflows::commands::{self as workflows, OwnerRight};
use holdpoint_workflows::{RunId, WorkflowError};

use super::answer::or_not_found;
use super::resolve::{Bid, RunSide, resolve, would_win};
use crate::error::DecisionError;
use crate::model::{Candidate, DecisionId, Judged};
use crate::store::decisions;
use crate::{operations, views};

/// Gives the declared automatic answer, from the deadline on. A pause of the run does not stop it: the answer is stored, and the run
/// stays paused. Repeating it adopts the first.
///
/// # Errors
///
/// [`StateError::ClaimLost`] when the claim that is shown is not the present one, [`StateError::LeaseHeld`] when a run that is to be
/// claimed has a live owner, [`StateError::InvalidTransition`] for a decision without an automatic answer. Nothing was written.
pub fn timeout(
    db: &Database,
    decision: &DecisionId,
    by: OwnerRight<'_>,
) -> Result<Receipt<Judged>, DecisionError> {
    apply(db, decision, by, TIMEOUT)
}

/// Ends a decision without an automatic answer, from its deadline on. Its run is cancelled as by [`cancel`](super::cancel()). Repeating
/// it adopts the first.
///
/// # Errors
///
/// Those of [`timeout`]; [`StateError::InvalidTransition`] for a decision that has an automatic answer, always, and for one without a
/// deadline.
pub fn expire(
    db: &Database,
    decision: &DecisionId,
    by: OwnerRight<'_>,
) -> Result<Receipt<Judged>, DecisionError> {
    apply(db, decision, by, EXPIRY)
}

/// The two rules.
#[derive(Debug, Clone, Copy)]
struct Rule {
    operation: &'static Operation,
    candidate: Candidate<'static>,
    /// The beginning of its idempotency key.
    key: &'static str,
}

const TIMEOUT: Rule = Rule {
    operation: &operations::TIMEOUT,
    candidate: Candidate::Timeout,
    key: "timeout",
};

const EXPIRY: Rule = Rule {
    operation: &operations::EXPIRE,
    candidate: Candidate::Expiry,
    key: "expire",
};

/// What the transaction of the owner finds when somebody was faster.
#[derive(Debug)]
enum Stopped {
    /// It would not win any more: nothing is written under the run's lease.
    Late,
    Failed(DecisionError),
}

impl From<StateError> for Stopped {
    fn from(error: StateError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<WorkflowError> for Stopped {
    fn from(error: WorkflowError) -> Self {
        Self::Failed(match error {
            WorkflowError::State(error) => error.into(),
            other => other.into(),
        })
    }
}

impl From<DecisionError> for Stopped {
    fn from(error: DecisionError) -> Self {
        Self::Failed(error)
    }
}

fn apply(
    db: &Database,
    decision: &DecisionId,
    by: OwnerRight<'_>,
    rule: Rule,
) -> Result<Receipt<Judged>, DecisionError> {
    // Which run it is never changes, so that it may be read before.
    let Some(run) = views::run_of(&db.snapshot()?, decision)? else {
        return or_not_found(Err(StateError::NotFound {
            resource: decision.resource(),
        }
        .into()));
    };
    loop {
        // Whether it is due, and whether it lost, needs no lease; and to have lost is a fact that is recorded.
        if let Some(noted) = note(db, decision, rule)? {
            return Ok(noted);
        }
        match win(db, decision, &run, by, rule) {
            Ok(receipt) => return Ok(receipt),
            // Somebody resolved it in between: next time the note says so. That happens once, because resolutions are final.
            Err(Stopped::Late) => {}
            Err(Stopped::Failed(error)) => return Err(error),
        }
    }
}

/// Records what a policy comes to that does not win; none when it would win.
fn note(
    db: &Database,
    decision: &DecisionId,
    rule: Rule,
) -> Result<Option<Receipt<Judged>>, DecisionError> {
    let command = Command::new(&operations::NOTE_POLICY, decision.resource()).by(Actor::system());
    let key = format!("{}-{decision}", rule.key);
    let noted = db.commit(command, move |change| {
        let Some(stored) = decisions::load(change)? else {
            return Ok::<_, DecisionError>(Outcome::Refused(Some(Judged::NotFound)));
        };
        let bid = Bid::of_policy(&stored, rule.candidate, &key, RunSide::Ending);
        if would_win(change, &stored, &bid)? {
            return Ok(Outcome::Refused(None));
        }
        Ok(match resolve(change, &stored, &bid)? {
            Outcome::Accepted(judged) => Outcome::Accepted(Some(judged)),
            Outcome::Adopted(judged) => Outcome::Adopted(Some(judged)),
            Outcome::Refused(judged) => Outcome::Refused(Some(judged)),
        })
    })?;
    let (disposition, revision, event_seq) = (noted.disposition, noted.revision, noted.event_seq);
    Ok(noted.value.map(|value| Receipt {
        disposition,
        revision,
        event_seq,
        value,
    }))
}

/// Resolves the decision as the owner of its run: lease, resolution and run in one transaction.
fn win(
    db: &Database,
    decision: &DecisionId,
    run: &RunId,
    by: OwnerRight<'_>,
    rule: Rule,
) -> Result<Receipt<Judged>, Stopped> {
    let owner = match by {
        OwnerRight::Holding(claim) => claim.owner().id(),
        OwnerRight::Taking(owner) => owner.id(),
    };
    let owner = owner.to_owned();
    let decision = decision.clone();
    workflows::act_as_owner(db, run, by, move |change| {
        let act = RefCell::new(None);
        let key = format!("{}-{decision}", rule.key);
        let command = Command::new(rule.operation, decision.resource())
            .by(Actor::new(ActorKind::Policy, owner.as_str()));
        let receipt = change.also(&command, |change| {
            let stored = decisions::load(change)?.ok_or(Stopped::Late)?;
            let bid = Bid::of_policy(&stored, rule.candidate, &key, RunSide::Around(&act));
            if !would_win(change, &stored, &bid)? {
                return Err(Stopped::Late);
            }
            Ok(resolve(change, &stored, &bid)?)
        })?;
        let act = act.into_inner().ok_or(Stopped::Late)?;
        Ok((act, receipt.value))
    })
}

/// What a sweep did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Swept {
    /// Decisions that it resolved, in its order.
    pub resolved: Vec<(DecisionId, RunId)>,
    /// Decisions whose run has a live owner: the next sweep tries again.
    pub skipped: Vec<DecisionId>,
    /// Decisions that can't be used. The next sweep tries them too, and whoever sweeps tells of them once.
    pub unusable: Vec<Unusable>,
    /// The earliest deadline that has not come.
    pub next_due: Option<UnixMillis>,
}

/// A due decision that can't be resolved: it is damaged, or was stored by another version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// The decision.
    pub decision: DecisionId,
    /// What is wrong with it.
    pub problem: String,
}

/// How many decisions a sweep reads at once.
const SWEEP_PAGE: u32 = 500;

/// Applies what is due: timeout policies and expiries, in the order of deadline and id, each in a transaction of its own. A run with a
/// live owner is skipped, and so is a decision that is damaged or was stored by another version: one of these holds back no other.
///
/// # Errors
///
/// Those of the database. What was resolved before stays resolved.
pub fn sweep(db: &Database, now: UnixMillis) -> Result<Swept, DecisionError> {
    let mut swept = Swept {
        next_due: views::next_deadline(&db.snapshot()?, now)?,
        ..Swept::default()
    };
    let owner = Owner::new(OwnerKind::System, "decision-policy");
    let mut after = None;
    loop {
        let due = views::due(&db.snapshot()?, now, after.as_ref(), SWEEP_PAGE)?;
        let is_last = due.len() < SWEEP_PAGE as usize;
        for due in due {
            after = Some((due.deadline_at, due.decision.clone()));
            let by = OwnerRight::Taking(&owner);
            let result = if due.has_default {
                timeout(db, &due.decision, by)
            } else {
                expire(db, &due.decision, by)
            };
            match result {
                Ok(receipt) if receipt.value.has_won() => {
                    swept.resolved.push((due.decision, due.run));
                }
                // Somebody was faster, or the clock was set back.
                Ok(_) => {}
                Err(DecisionError::State(StateError::LeaseHeld { .. })) => {
                    swept.skipped.push(due.decision);
                }
                Err(
                    error @ (DecisionError::Corrupt { .. }
                    | DecisionError::Incompatible { .. }
                    | DecisionError::Workflow(_)),
                ) => {
                    swept.unusable.push(Unusable {
                        decision: due.decision,
                        problem: error.to_string(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        if is_last {
            break;
        }
    }
    Ok(swept)
}
