//! Looks at a candidate for the output of an agent, and goes on with the run when it is the output.
//!
//! The author's check is called under a claim while the run goes on waiting, so that a runner that is lost in the middle leaves
//! nothing to undo. A thread of the host looks ([`Runner::validate`]), or a worker process does, by the same [`Look`]. Not here: what
//! a verdict does to rows (`commands::submit`).

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Deadlines;
use super::active::{ActiveRun, Stop};
use super::drive::begun;
use super::executor::{Executor, Ran};
use super::facts::Facts;
use super::host::{Direct, Host, conflict_error, effectless, has_effect, is_effect_conflict};
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
        let taking = Taking {
            runner: self,
            loaded,
            definition,
            active: &active,
        };
        let executed = taking.take(candidate, value, executor);
        let executed = self.settled(&active, executed);
        self.active.remove(run);
        executed
    }
}

/// A look by a thread of the host, and what follows it.
struct Taking<'a> {
    runner: &'a Runner,
    loaded: &'a LoadedRun,
    definition: &'a Definition,
    active: &'a Arc<ActiveRun>,
}

impl Taking<'_> {
    fn take(
        &self,
        candidate: &str,
        value: &Value,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let (runner, claim) = (self.runner, &self.active.claim);
        let host = Direct {
            db: &runner.db,
            active: self.active,
            draining: &runner.draining,
        };
        let look = Look {
            host: &host,
            loaded: self.loaded,
            definition: self.definition,
            deadlines: &runner.deadlines,
        };
        let (finished, facts) = match look.take(value, executor)? {
            Looked::Output(finished, facts) => (finished, facts),
            Looked::Refused(problem) => {
                commands::reject_candidate(&runner.db, claim, &problem)?;
                return Ok(Executed::Released);
            }
            Looked::Lost => return Ok(Executed::Lost),
            Looked::CutShort => {
                host.hand_over()?;
                return Ok(Executed::Released);
            }
        };
        let NextMove { next, failure } = runner.planner(self.definition, executor).next(&facts)?;
        let next = match next {
            Move::Start(_) if runner.is_draining() => Move::HandOver,
            other => other,
        };
        let (next, advanced, failure) = self.accept(candidate, finished, next, failure)?;
        let current = begun(next, advanced, failure);
        runner.go_on(self.active, self.definition, facts, current, executor)
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

/// What a look at a candidate came to.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each look, and taken apart at once"
)]
pub(super) enum Looked {
    /// It is the output: the attempt ends with it. With the facts that hold then.
    Output(FinishedAttempt, Arc<Facts>),
    /// It is none, and why.
    Refused(String),
    /// The claim is lost.
    Lost,
    /// Cut short by a stop, not by the author: the candidate is looked at again by whoever comes next.
    CutShort,
}

/// A look at the candidate of a run that was read.
pub(super) struct Look<'a, H> {
    pub(super) host: &'a H,
    pub(super) loaded: &'a LoadedRun,
    pub(super) definition: &'a Definition,
    pub(super) deadlines: &'a Deadlines,
}

impl<H: Host> Look<'_, H> {
    pub(super) fn take(
        &self,
        value: &Value,
        executor: &mut Executor,
    ) -> Result<Looked, WorkflowError> {
        let Some(attempt) = &self.loaded.attempt else {
            return Ok(Looked::Refused("no attempt waits for it".to_owned()));
        };
        let mut facts = Arc::new(Facts::of(self.loaded, self.definition));
        let (documents, node) = (self.host.documents(), &attempt.node_id);
        Facts::bind(&mut facts, documents, node, attempt.settings)?;
        let judged = self.check(&facts, attempt, value, executor)?;
        let judged = match (self.host.stopped(), judged) {
            (Some(Stop::Lost), _) => return Ok(Looked::Lost),
            (Some(Stop::Drain), None) => return Ok(Looked::CutShort),
            (Some(Stop::Drain) | None, judged) => judged,
        };
        let stored = judged
            .unwrap_or_else(|| Err(too_long()))
            .and_then(|output| Ok((storable(&output)?, output)));
        let (stored, output) = match stored {
            Ok(stored) => stored,
            Err(error) => return Ok(Looked::Refused(error.to_string())),
        };
        let started_at = attempt.started_at.0;
        let finished_at = self.host.now().max(started_at);
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
            receipt: None,
        };
        let finished = FinishedAttempt::prepared(result.clone(), Some(stored), None);
        Arc::make_mut(&mut facts).apply(result);
        Ok(Looked::Output(finished, facts))
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
        let source = self.host.begin_node();
        #[expect(clippy::cast_precision_loss, reason = "thirty thousand")]
        let _armed = self.deadlines.arm(RESOLVE_LIMIT_MS as f64, &source);
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
            Ran::Abandoned if source.signal().reason() == Some(StopReason::TimedOut) => {
                Some(Err(too_long()))
            }
            Ran::Abandoned => None,
        })
    }
}

fn too_long() -> NodeError {
    NodeError::new(format!("the check took longer than {RESOLVE_LIMIT_MS} ms"))
}
