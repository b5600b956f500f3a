//! Looks at a candidate for the output of an agent, and goes on with the run when it is the output.
//!
//! The author's check is called under a claim while the run goes on waiting, so that a runner that is lost in the middle leaves
//! nothing to undo. Not here: what a verdict does to rows (`commands::submit`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::active::{ActiveRun, Stop};
use super::drive::begun;
use super::executor::{Executor, Ran};
use super::facts::Facts;
use super::host::{conflict_error, effectless, has_effect, is_effect_conflict};
use super::plan::{NextMove, storable};
use super::runner::{Executed, Runner, is_race};
use crate::agents::extract;
use crate::commands::{self, Advanced, FinishedAttempt, Move, Validating};
use crate::definition::{
    Definition, ExpectedOutput, NodeError, NodeKind, RESOLVE_LIMIT_MS, StopReason,
};
use crate::error::WorkflowError;
use crate::routing::{NodeOutcome, NodeResult};
use crate::views::{LoadedRun, OpenAttempt};

/// How long a check gets after its time is up.
const GRACE: Duration = Duration::ZERO;

impl Runner {
    /// Looks at the candidate of a run that waits.
    pub(super) fn validate(
        &self,
        loaded: &LoadedRun,
        definition: &Definition,
        (candidate, value): (&str, &Value),
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let run = &loaded.run_id;
        let Some(attempt) = &loaded.attempt else {
            return Ok(Executed::Raced);
        };
        if self.is_draining() {
            return Ok(Executed::Raced);
        }
        self.active.claiming(run, loaded.revision);
        let owner = (&self.owner, self.lease_ms);
        let begun = commands::begin_validation(&self.db, run, loaded.revision, owner);
        let claim = match begun.map(|receipt| receipt.value) {
            Ok(Validating::Owned(claim)) => claim,
            Ok(Validating::Lost) => {
                self.active.remove(run);
                return Ok(Executed::Released);
            }
            Err(error) => {
                self.active.remove(run);
                return if is_race(&error) {
                    Ok(Executed::Raced)
                } else {
                    Err(error)
                };
            }
        };
        let active = Arc::new(ActiveRun::new(claim, loaded.revision));
        self.active.insert(run, &active);
        let look = Look {
            runner: self,
            loaded,
            definition,
            active: &active,
        };
        let executed = look.take(attempt, candidate, value, executor);
        let executed = self.settled(&active, executed);
        self.active.remove(run);
        executed
    }
}

struct Look<'a> {
    runner: &'a Runner,
    loaded: &'a LoadedRun,
    definition: &'a Definition,
    active: &'a Arc<ActiveRun>,
}

impl Look<'_> {
    fn take(
        &self,
        attempt: &OpenAttempt,
        candidate: &str,
        value: &Value,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let (db, claim) = (&self.runner.db, &self.active.claim);
        let mut facts = Arc::new(Facts::of(self.loaded, self.definition));
        let judged = self.check(&facts, attempt, value, executor)?;
        match self.active.stopped() {
            Some(Stop::Lost) => return Ok(Executed::Lost),
            Some(Stop::Drain) if judged.is_none() => {
                // Cut short by the stop, not by the author: the candidate is looked at again by whoever comes next.
                commands::hand_over(db, claim)?;
                return Ok(Executed::Released);
            }
            Some(Stop::Drain) | None => {}
        }
        let stored = judged
            .unwrap_or_else(|| {
                Err(NodeError::new(format!(
                    "the check took longer than {RESOLVE_LIMIT_MS} ms"
                )))
            })
            .and_then(|output| Ok((storable(&output)?, output)));
        let (stored, output) = match stored {
            Ok(stored) => stored,
            Err(error) => {
                commands::reject_candidate(db, claim, &error.to_string())?;
                return Ok(Executed::Released);
            }
        };
        let started_at = attempt.started_at.0;
        let finished_at = db.clock().now().0.max(started_at);
        let result = NodeResult {
            attempt_id: attempt.attempt_id.clone(),
            node_id: attempt.node_id.clone(),
            node_type: attempt.node_type.clone(),
            outcome: NodeOutcome::Ok,
            started_at,
            finished_at,
            duration_ms: finished_at - started_at,
            output: Some(output),
            error: None,
        };
        let finished = FinishedAttempt::prepared(result.clone(), Some(stored), None);
        Arc::make_mut(&mut facts).apply(result);
        // Where runs are executed in processes of their own, what follows is executed there too.
        let is_apart = self.runner.launcher.is_some();
        let NextMove { next, failure } = if is_apart {
            NextMove {
                next: Move::HandOver,
                failure: None,
            }
        } else {
            self.runner
                .planner(self.definition, executor)
                .next(&facts)?
        };
        let next = match next {
            Move::Start(_) if self.runner.is_draining() => Move::HandOver,
            other => other,
        };
        let (next, advanced, failure) = self.accept(candidate, finished, next, failure)?;
        if is_apart {
            return Ok(Executed::Again);
        }
        let current = begun(next, advanced, failure);
        self.runner
            .go_on(self.active, self.definition, facts, current, executor)
    }

    /// What the author's check makes of the candidate. None when it was cut short.
    fn check(
        &self,
        facts: &Arc<Facts>,
        attempt: &OpenAttempt,
        value: &Value,
        executor: &mut Executor,
    ) -> Result<Option<Result<Value, NodeError>>, WorkflowError> {
        let value = match value {
            Value::String(text) => extract(text),
            other => other.clone(),
        };
        let node = self.definition.node(&attempt.node_id);
        let validate = match node.map(|node| &node.kind) {
            Some(NodeKind::Agent(agent)) => match &agent.expected {
                ExpectedOutput::Submitted { validate, .. } => validate.clone(),
                ExpectedOutput::AssistantMessage { .. } => None,
            },
            _ => None,
        };
        let Some(validate) = validate else {
            return Ok(Some(Ok(value)));
        };
        let source = self.active.begin_node();
        #[expect(clippy::cast_precision_loss, reason = "thirty thousand")]
        let _armed = self.runner.deadlines.arm(RESOLVE_LIMIT_MS as f64, &source);
        let (facts, node, id) = (
            Arc::clone(facts),
            attempt.node_id.clone(),
            attempt.attempt_id.clone(),
        );
        let visit = facts.visit(&node);
        let signal = source.signal();
        let ran = executor.run(&source.signal(), GRACE, move || {
            let context = facts.context((&node, &id), visit, signal, None);
            validate(&context, value)
        })?;
        Ok(match ran {
            Ran::Done(Err(error)) if error.outcome() != NodeOutcome::Failed => None,
            Ran::Done(judged) => Some(judged),
            Ran::Panicked(text) => Some(Err(NodeError::named("Panic", text))),
            Ran::Abandoned if source.signal().reason() == Some(StopReason::TimedOut) => Some(Err(
                NodeError::new(format!("the check took longer than {RESOLVE_LIMIT_MS} ms")),
            )),
            Ran::Abandoned => None,
        })
    }

    /// Commits the acceptance with the move after it. An effect that conflicts is left out: its attempt can only fail.
    fn accept(
        &self,
        candidate: &str,
        finished: FinishedAttempt,
        next: Move,
        failure: Option<NodeError>,
    ) -> Result<(Move, Advanced, Option<NodeError>), WorkflowError> {
        let (db, claim) = (&self.runner.db, &self.active.claim);
        let commit = |finished, next| {
            commands::accept_candidate(db, claim, self.definition, candidate, finished, next)
        };
        let again = (failure.is_none() && has_effect(&next)).then(|| finished.clone());
        match (commit(finished, next.clone()), again) {
            (Ok(receipt), _) => Ok((next, receipt.value, failure)),
            (Err(error), Some(finished)) if is_effect_conflict(&error) => {
                let next = effectless(next);
                let receipt = commit(finished, next.clone())?;
                Ok((next, receipt.value, Some(conflict_error())))
            }
            (Err(error), _) => Err(error),
        }
    }
}
