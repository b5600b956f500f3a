//! What executing a run needs of whoever owns its facts: the seam between the stepper and the store.
//!
//! Threads of the host propose to the database directly ([`Direct`]); a worker process proposes over its channel. Either way every
//! proposal is checked against committed facts by the same commands. Not here: deciding what is proposed (`drive`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdpoint_state::effects::EffectAttempt;
use holdpoint_state::{Database, StateError};

use super::active::{ActiveRun, Stop};
use super::facts::Documents;
use super::publish::publisher;
use crate::commands::{self, Advanced, Ask, FinishedAttempt, Move, NewAttempt, Plan, Said};
use crate::definition::{CancellationSignal, CancellationSource, Definition, NodeError};
use crate::error::WorkflowError;
use crate::id::AttemptId;
use crate::updates::Publisher;

/// How long a receipt waits before it is committed again, first and at most.
const INSIST_FIRST: Duration = Duration::from_millis(50);
const INSIST_MAX: Duration = Duration::from_secs(1);

/// What became of a step.
pub(crate) struct Stepped {
    pub(crate) advanced: Advanced,
    /// The key of the next attempt's effect is taken by another request: it began without its effect, and can only fail.
    pub(crate) is_effectless: bool,
}

/// Whoever owns the facts of one run.
pub(crate) trait Host {
    /// The wall clock, in epoch milliseconds.
    fn now(&self) -> i64;

    /// The signal of the node that begins now.
    fn begin_node(&self) -> CancellationSource;

    /// Where the updates of an attempt go. It may be used, and refuses, after the attempt is over.
    fn publisher(&self, attempt: &AttemptId, signal: CancellationSignal) -> Publisher;

    /// Why the run is stopped, if it is.
    fn stopped(&self) -> Option<Stop>;

    /// Where the documents of live settings are read from.
    fn documents(&self) -> &dyn Documents;

    /// Whether the run is to be given back at its next boundary.
    fn is_draining(&self) -> bool;

    /// Commits a step with the move after it.
    fn advance(
        &self,
        definition: &Definition,
        finished: FinishedAttempt,
        next: &Move,
    ) -> Result<Stepped, WorkflowError>;

    /// Parks the run: its attempt waits for an answer.
    fn wait(&self, attempt: &AttemptId, ask: Ask) -> Result<(), WorkflowError>;

    /// Parks the run: nobody will know what its effect did.
    fn doubt(&self, effect: &EffectAttempt) -> Result<(), WorkflowError>;

    /// Gives the run back as it is.
    fn hand_over(&self) -> Result<(), WorkflowError>;
}

/// What only a worker process proposes: the first move with a run that was launched for it.
pub(crate) trait Opening: Host {
    /// The run goes on.
    fn begin(&self, plan: &Plan) -> Result<Stepped, WorkflowError>;

    /// The candidate that the run was launched for is the output: its attempt ends, with the move after it.
    fn accept(&self, finished: &FinishedAttempt, next: &Move) -> Result<Stepped, WorkflowError>;

    /// The candidate is refused; its run waits for another one.
    fn reject(&self, problem: &str) -> Result<(), WorkflowError>;
}

/// The host of runs that are executed on its own threads.
pub(crate) struct Direct<'a> {
    pub(crate) db: &'a Database,
    pub(crate) active: &'a Arc<ActiveRun>,
    pub(crate) draining: &'a AtomicBool,
}

impl Host for Direct<'_> {
    fn now(&self) -> i64 {
        self.db.clock().now().0
    }

    fn begin_node(&self) -> CancellationSource {
        self.active.begin_node()
    }

    fn publisher(&self, attempt: &AttemptId, signal: CancellationSignal) -> Publisher {
        publisher(self.db, self.active, attempt, signal)
    }

    fn stopped(&self) -> Option<Stop> {
        self.active.stopped()
    }

    fn documents(&self) -> &dyn Documents {
        self.db
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    fn advance(
        &self,
        definition: &Definition,
        finished: FinishedAttempt,
        next: &Move,
    ) -> Result<Stepped, WorkflowError> {
        let (stepped, _) = self.advance_said(definition, finished, next, None)?;
        Ok(stepped)
    }

    fn wait(&self, attempt: &AttemptId, ask: Ask) -> Result<(), WorkflowError> {
        commands::wait(self.db, &self.active.claim, attempt, ask)?;
        Ok(())
    }

    fn doubt(&self, effect: &EffectAttempt) -> Result<(), WorkflowError> {
        commands::doubt(self.db, &self.active.claim, effect)?;
        Ok(())
    }

    fn hand_over(&self) -> Result<(), WorkflowError> {
        commands::hand_over(self.db, &self.active.claim)?;
        Ok(())
    }
}

impl Direct<'_> {
    /// Commits a step with the move after it, and with the message of the worker process that proposed it. Gives the revision too.
    pub(crate) fn advance_said(
        &self,
        definition: &Definition,
        finished: FinishedAttempt,
        next: &Move,
        said: Option<&Said>,
    ) -> Result<(Stepped, u64), WorkflowError> {
        let propose = |finished: FinishedAttempt, next: Move, said: Option<&Said>| {
            let step = (Some(finished), next);
            commands::advance_said(self.db, &self.active.claim, definition, step, said)
        };
        // Only an attempt with an effect is ever proposed a second time.
        let again = has_effect(next).then(|| finished.clone());
        let first = if finished.has_acted() {
            self.insist(|| propose(finished.clone(), next.clone(), said))
        } else {
            propose(finished, next.clone(), said)
        };
        let (receipt, is_effectless) = match (first, again) {
            (Err(error), Some(finished)) if is_effect_conflict(&error) => {
                let said = said.map(|said| Said {
                    is_effectless: true,
                    ..said.clone()
                });
                let receipt = propose(finished, effectless(next.clone()), said.as_ref())?;
                (receipt, true)
            }
            (first, _) => (first?, false),
        };
        let stepped = Stepped {
            advanced: receipt.value,
            is_effectless,
        };
        Ok((stepped, receipt.revision))
    }

    /// Sends a proposal again to a store that is busy or full for a moment: it has the receipt of an act, which nobody could make
    /// again. Ends when the claim does, at the latest.
    fn insist<T>(
        &self,
        propose: impl Fn() -> Result<T, WorkflowError>,
    ) -> Result<T, WorkflowError> {
        let never = CancellationSignal::never();
        let mut wait = INSIST_FIRST;
        loop {
            match propose() {
                Err(error)
                    if error.is_retryable()
                        && self.active.stopped() != Some(Stop::Lost)
                        && !self.active.claim.is_expired(&**self.db.clock()) =>
                {
                    tracing::warn!(run = %self.active.claim.resource(), error = %error, "the receipt of an act is committed again");
                    never.wait(wait);
                    wait = INSIST_MAX.min(wait * 2);
                }
                other => return other,
            }
        }
    }
}

pub(crate) fn without_effect(plan: Plan) -> Plan {
    match plan {
        Plan::First { title, next } => Plan::First {
            title,
            next: effectless(next),
        },
        Plan::Answered { finished, next } => Plan::Answered {
            finished,
            next: effectless(next),
        },
        Plan::Expired { finished, next } => Plan::Expired {
            finished,
            next: effectless(next),
        },
        Plan::Again { next } => Plan::Again {
            next: effectless(next),
        },
    }
}

pub(crate) fn effectless(next: Move) -> Move {
    match next {
        Move::Start(attempt) => Move::Start(NewAttempt {
            effect: None,
            ..attempt
        }),
        other => other,
    }
}

pub(crate) fn has_effect(next: &Move) -> bool {
    matches!(next, Move::Start(attempt) if attempt.effect.is_some())
}

/// The key of the effect is taken by another request: the node fails, and nothing else does.
pub(crate) fn is_effect_conflict(error: &WorkflowError) -> bool {
    matches!(error, WorkflowError::State(StateError::Conflict { resource, .. }) if resource.kind() == "effect")
}

pub(crate) fn conflict_error() -> NodeError {
    NodeError::named(
        "EffectConflict",
        "the effect of this visit was reserved before with another request",
    )
}
