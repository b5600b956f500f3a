//! Takes up one run and executes it until it waits, ends, or belongs to somebody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdpoint_state::effects::{EffectStart, Settlement};
use holdpoint_state::{Database, Owner, Payload, StateError};
use serde_json::Value;

use super::Deadlines;
use super::active::{ActiveRun, ActiveRuns, Stop};
use super::executor::Executor;
use super::facts::Facts;
use super::node::{Ended, NodeEnd, NodeRun, execution};
use super::plan::{NextMove, Planner, storable};
use crate::agents::AgentExecutor;
use crate::commands::{
    self, Advanced, Ask, Claimed, Claiming, FinishedAttempt, Move, NewAttempt, Notification, Plan,
};
use crate::definition::{
    CancellationSignal, Definition, Node, NodeError, NodeKind, Recovery, StopReason,
};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::ExecutionMode;
use crate::registry::{SourceResolver, Unresolved, differences};
use crate::routing::{NodeOutcome, NodeResult};
use crate::views::{self, LoadedRun};

/// How long a receipt waits before it is committed again, first and at most.
const INSIST_FIRST: Duration = Duration::from_millis(50);
const INSIST_MAX: Duration = Duration::from_secs(1);

/// What became of taking up a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Executed {
    /// It was executed, and waits, ended, or was given back.
    Released,
    /// Somebody else was faster, or it needs nothing now.
    Raced,
    /// It was executed and then belonged to somebody else.
    Lost,
    /// This program does not have its workflow.
    Unknown,
}

/// Executes runs for one scheduler.
pub(crate) struct Runner {
    pub(crate) db: Database,
    pub(crate) resolver: Arc<dyn SourceResolver>,
    /// Who executes the agents of headless runs; without it such runs are left to other programs.
    pub(crate) agents: Option<Arc<dyn AgentExecutor>>,
    pub(crate) owner: Owner,
    pub(crate) lease_ms: i64,
    pub(crate) deadlines: Deadlines,
    pub(crate) active: Arc<ActiveRuns>,
    /// Whether runs are to be given back at their next boundary.
    pub(crate) draining: AtomicBool,
}

/// An attempt that was begun.
struct Current {
    attempt: NewAttempt,
    started_at: i64,
    effect: Option<EffectStart>,
    failure: Option<NodeError>,
}

/// What a node's end means for the run.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each step, and moved; a box would cost more than it saves"
)]
enum Judged {
    /// It becomes a step.
    Step(FinishedAttempt, NodeResult),
    /// It waits for an answer.
    Ask(Ask),
    /// It may have acted, and nobody will know.
    Doubt,
    /// The scheduler stops before it came to an end.
    GiveBack,
    /// The claim is lost.
    Lost,
}

impl Runner {
    /// Takes up a run.
    pub(crate) fn execute(
        &self,
        run: &RunId,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        let loaded = {
            let snapshot = self.db.snapshot()?;
            views::load(&snapshot, run)?
        };
        let Some(loaded) = loaded.filter(|loaded| !loaded.status.is_terminal()) else {
            return Ok(Executed::Raced);
        };
        let definition = match self
            .resolver
            .resolve(&loaded.source, loaded.definition_digest)
        {
            Ok(definition) => definition,
            Err(Unresolved::Unknown { .. }) => return Ok(Executed::Unknown),
            Err(unresolved) => return self.put_aside(&loaded, &unresolved),
        };
        if self.lacks_agents(&loaded, &definition) {
            return Ok(Executed::Unknown);
        }
        let mut facts = Arc::new(Facts::of(&loaded));
        let now = self.db.clock().now().0;
        let (plan, failure) = self
            .planner(&definition, executor)
            .first(&loaded, &mut facts, now)?;
        if self.draining.load(Ordering::SeqCst) {
            // The plan may have taken its time. Nothing is begun that would have to be stopped at once.
            return Ok(Executed::Raced);
        }
        self.active.claiming(run, loaded.revision);
        let (next, claimed, failure) = match self.claim(&loaded, &definition, plan, failure) {
            Ok(claimed) => claimed,
            Err(error) => {
                self.active.remove(run);
                return if is_race(&error) {
                    Ok(Executed::Raced)
                } else {
                    Err(error)
                };
            }
        };
        let Claimed::Owned { claim, advanced } = claimed else {
            self.active.remove(run);
            return Ok(Executed::Released);
        };
        let active = Arc::new(ActiveRun::new(claim, loaded.revision));
        self.active.insert(run, &active);
        let driven = match current(next, advanced, failure) {
            Some(current) => self.drive(&active, &definition, facts, current, executor),
            None => Ok(Executed::Released),
        };
        let result = match driven {
            Err(error) if error.is_claim_lost() => Ok(Executed::Lost),
            Err(error) => {
                self.give_up(&active, &error);
                Err(error)
            }
            Ok(executed) => Ok(executed),
        };
        self.active.remove(run);
        result
    }

    /// Whether the run has steps that this program can't execute: it is left to one that can.
    fn lacks_agents(&self, loaded: &LoadedRun, definition: &Definition) -> bool {
        self.agents.is_none()
            && loaded.mode == ExecutionMode::Headless
            && definition
                .nodes()
                .values()
                .any(|node| matches!(node.kind, NodeKind::Agent(_)))
    }

    fn planner<'a>(
        &'a self,
        definition: &'a Definition,
        executor: &'a mut Executor,
    ) -> Planner<'a> {
        Planner {
            definition,
            executor,
            deadlines: &self.deadlines,
        }
    }

    /// Claims the run with the first move of the plan. An effect that conflicts is left out: its attempt can only fail.
    fn claim(
        &self,
        loaded: &LoadedRun,
        definition: &Definition,
        plan: Plan,
        failure: Option<NodeError>,
    ) -> Result<(Move, Claimed, Option<NodeError>), WorkflowError> {
        let claiming = |plan: Plan| Claiming {
            run: loaded.run_id.clone(),
            revision: loaded.revision,
            owner: self.owner.clone(),
            lease_ms: self.lease_ms,
            definition: definition.clone(),
            plan,
        };
        let next = next_of(&plan).clone();
        match commands::claim(&self.db, claiming(plan.clone())) {
            Ok(receipt) => Ok((next, receipt.value, failure)),
            Err(error) if failure.is_none() && has_effect(&next) && is_effect_conflict(&error) => {
                let plan = without_effect(plan);
                let next = next_of(&plan).clone();
                let receipt = commands::claim(&self.db, claiming(plan))?;
                Ok((next, receipt.value, Some(conflict_error())))
            }
            Err(error) => Err(error),
        }
    }

    /// The source is gone or changed, or gives no definition any more.
    fn put_aside(
        &self,
        loaded: &LoadedRun,
        unresolved: &Unresolved,
    ) -> Result<Executed, WorkflowError> {
        let (run, revision) = (&loaded.run_id, loaded.revision);
        let put = match unresolved {
            Unresolved::LoadFailed { error } => {
                commands::fail_unclaimed(&self.db, run, revision, error)
            }
            Unresolved::Changed { detail, .. } => {
                let changes = self.differences(loaded)?;
                let detail = format!(
                    "{detail}{}{}",
                    if changes.is_empty() { "" } else { ": " },
                    changes.join("; ")
                );
                commands::park_source_changed(&self.db, run, revision, &detail)
            }
            Unresolved::Unknown { .. } => return Ok(Executed::Unknown),
        };
        match put {
            Ok(_) => Ok(Executed::Released),
            Err(error) if is_race(&error) => Ok(Executed::Raced),
            Err(error) => Err(error),
        }
    }

    fn differences(&self, loaded: &LoadedRun) -> Result<Vec<String>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        let saved = views::definition_snapshot(&snapshot, loaded.definition_digest)?;
        let present = self.resolver.present(&loaded.source).ok();
        Ok(match (saved, present) {
            (Some(saved), Some((present, _))) => differences(&saved, present.snapshot()),
            _ => Vec::new(),
        })
    }

    /// Node after node, one command for each.
    fn drive(
        &self,
        active: &ActiveRun,
        definition: &Definition,
        mut facts: Arc<Facts>,
        mut current: Current,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        loop {
            let Some(node) = definition.node(&current.attempt.node_id) else {
                return Err(WorkflowError::Transition {
                    run: facts.run_id.to_string(),
                    problem: format!("node {:?} is not known", current.attempt.node_id),
                });
            };
            let source = active.begin_node();
            let NodeEnd { ended, prompt } = match current.failure.take() {
                Some(error) => NodeEnd::from(Ended::Error {
                    error,
                    receipt: None,
                }),
                None => NodeRun {
                    node,
                    attempt: &current.attempt,
                    effect: current.effect.as_ref(),
                    facts: &facts,
                    source: &source,
                    agents: self.agents.as_ref(),
                }
                .run(executor, &self.deadlines)?,
            };
            let (finished, result) =
                match self.judge(active, node, &current, ended, source.signal().reason()) {
                    Judged::Step(finished, result) => {
                        (finished.prompted(prompt.as_deref()), result)
                    }
                    Judged::Ask(ask) => {
                        commands::wait(&self.db, &active.claim, &current.attempt.attempt_id, ask)?;
                        return Ok(Executed::Released);
                    }
                    Judged::Doubt => {
                        if let Some(EffectStart::Execute(effect)) = &current.effect {
                            commands::doubt(&self.db, &active.claim, effect)?;
                        }
                        return Ok(Executed::Released);
                    }
                    Judged::GiveBack => {
                        commands::hand_over(&self.db, &active.claim)?;
                        return Ok(Executed::Released);
                    }
                    Judged::Lost => return Ok(Executed::Lost),
                };
            Arc::make_mut(&mut facts).apply(result);
            let NextMove { next, failure } = self.planner(definition, executor).next(&facts)?;
            let next = match next {
                Move::Start(_) if self.draining.load(Ordering::SeqCst) => Move::HandOver,
                other => other,
            };
            match self.advance(active, definition, finished, next, failure)? {
                Some(next) => current = next,
                None => return Ok(Executed::Released),
            }
        }
    }

    /// Commits a step with the move after it.
    fn advance(
        &self,
        active: &ActiveRun,
        definition: &Definition,
        finished: FinishedAttempt,
        next: Move,
        failure: Option<NodeError>,
    ) -> Result<Option<Current>, WorkflowError> {
        let (db, claim) = (&self.db, &active.claim);
        // Only an attempt with an effect is ever proposed a second time.
        let again = (failure.is_none() && has_effect(&next)).then(|| finished.clone());
        let first = if finished.has_acted() {
            self.insist(active, || {
                commands::advance(db, claim, definition, Some(finished.clone()), next.clone())
            })
        } else {
            commands::advance(db, claim, definition, Some(finished), next.clone())
        };
        match (first, again) {
            (Ok(receipt), _) => Ok(current(next, receipt.value, failure)),
            (Err(error), Some(finished)) if is_effect_conflict(&error) => {
                let next = effectless(next);
                let receipt =
                    commands::advance(db, claim, definition, Some(finished), next.clone())?;
                Ok(current(next, receipt.value, Some(conflict_error())))
            }
            (Err(error), _) => Err(error),
        }
    }

    /// Sends a proposal again to a store that is busy or full for a moment: it has the receipt of an act, which nobody could make
    /// again. Ends when the claim does, at the latest.
    fn insist<T>(
        &self,
        active: &ActiveRun,
        propose: impl Fn() -> Result<T, WorkflowError>,
    ) -> Result<T, WorkflowError> {
        let never = CancellationSignal::never();
        let mut wait = INSIST_FIRST;
        loop {
            match propose() {
                Err(error)
                    if error.is_retryable()
                        && active.stopped() != Some(Stop::Lost)
                        && !active.claim.is_expired(&**self.db.clock()) =>
                {
                    tracing::warn!(run = %active.claim.resource(), error = %error, "the receipt of an act is committed again");
                    never.wait(wait);
                    wait = INSIST_MAX.min(wait * 2);
                }
                other => return other,
            }
        }
    }

    /// What the end of a node means. Arms are in order of precedence: a lost claim writes nothing, a spent budget times out
    /// whatever the node says after it, and only then counts what the node gave.
    fn judge(
        &self,
        active: &ActiveRun,
        node: &Node,
        current: &Current,
        ended: Ended,
        raised: Option<StopReason>,
    ) -> Judged {
        let stopped = active.stopped();
        if stopped == Some(Stop::Lost) {
            return Judged::Lost;
        }
        let timed_out = raised == Some(StopReason::TimedOut);
        let acts = matches!(current.effect, Some(EffectStart::Execute(_)));
        let cut_short = match &ended {
            Ended::Unknown => true,
            Ended::Error { error, .. } => {
                error.outcome() != NodeOutcome::Failed && raised.is_some()
            }
            Ended::Value { .. } | Ended::Ask(_) | Ended::Notify { .. } => false,
        };
        if stopped == Some(Stop::Drain) && cut_short {
            return Judged::GiveBack;
        }
        if acts && cut_short && recovery(node) == Some(Recovery::Manual) {
            return Judged::Doubt;
        }
        let end = match ended {
            Ended::Ask(ask) if !timed_out => match storable(ask.contract()) {
                Ok(_) => return Judged::Ask(ask),
                Err(error) => End::rejected(error, None),
            },
            ended => End::of(ended, timed_out, cut_short, acts),
        };
        let finished_at = self.db.clock().now().0.max(current.started_at);
        let result = NodeResult {
            attempt_id: current.attempt.attempt_id.clone(),
            node_id: current.attempt.node_id.clone(),
            node_type: node.kind.node_type().to_owned(),
            outcome: end.outcome,
            started_at: current.started_at,
            finished_at,
            duration_ms: finished_at - current.started_at,
            output: end.output,
            error: end.error.map(|error| error.to_string()),
        };
        let mut finished = FinishedAttempt::prepared(result.clone(), end.stored, end.receipt);
        if let Some(notification) = end.notification {
            finished = finished.notifying(notification);
        }
        if let (Some(EffectStart::Execute(effect)), Some(settlement)) =
            (&current.effect, end.settlement)
        {
            finished = finished.settling(effect.clone(), settlement);
        }
        Judged::Step(finished, result)
    }

    /// The runner itself failed: the run is parked with the reason, so that it is not taken up again at once.
    fn give_up(&self, active: &ActiveRun, error: &WorkflowError) {
        let given = if error.is_retryable() {
            commands::hand_over(&self.db, &active.claim)
        } else {
            commands::give_up(&self.db, &active.claim, &error.to_string())
        };
        if let Err(second) = given {
            // The lease ends by itself, and the run is then taken up again.
            tracing::warn!(run = %active.claim.resource(), error = %second, "a run could not be given back");
        }
    }
}

/// What a node's end makes of its attempt and its effect.
struct End {
    outcome: NodeOutcome,
    output: Option<Value>,
    /// The output as it is stored.
    stored: Option<Payload>,
    error: Option<NodeError>,
    receipt: Option<Payload>,
    settlement: Option<Settlement>,
    notification: Option<Notification>,
}

impl End {
    fn of(ended: Ended, timed_out: bool, cut_short: bool, acts: bool) -> Self {
        match ended {
            Ended::Value { output, receipt } => match prepare(&output, receipt.as_ref(), acts) {
                Err(error) => Self::rejected(error, receipt),
                // It did act, in time or not.
                Ok((_, settlement)) if timed_out => Self {
                    receipt: kept(receipt),
                    ..Self::late(settlement)
                },
                Ok((stored, settlement)) => Self {
                    outcome: NodeOutcome::Ok,
                    output: Some(output),
                    stored: Some(stored),
                    error: None,
                    receipt: kept(receipt),
                    settlement,
                    notification: None,
                },
            },
            Ended::Error { error, receipt } if cut_short => Self {
                outcome: error.outcome(),
                settlement: Some(Settlement::Interrupted),
                ..Self::rejected(error, receipt)
            },
            Ended::Error { error, receipt } => {
                let rejected = Self::rejected(error, receipt);
                if timed_out {
                    Self {
                        receipt: rejected.receipt,
                        ..Self::late(rejected.settlement)
                    }
                } else {
                    rejected
                }
            }
            Ended::Unknown => Self::late(Some(Settlement::Interrupted)),
            Ended::Ask(_) => Self::late(None),
            Ended::Notify { .. } if timed_out => Self::late(None),
            Ended::Notify { kind, text } => {
                let notification = match Notification::new(kind, &text) {
                    Ok(notification) => notification,
                    Err(error) => return Self::rejected(NodeError::from(error), None),
                };
                Self {
                    notification: Some(notification),
                    ..Self::of(
                        Ended::Value {
                            output: Value::Null,
                            receipt: None,
                        },
                        false,
                        cut_short,
                        acts,
                    )
                }
            }
        }
    }

    /// The time budget was spent.
    fn late(settlement: Option<Settlement>) -> Self {
        Self {
            outcome: NodeOutcome::TimedOut,
            output: None,
            stored: None,
            error: Some(NodeError::stopped(StopReason::TimedOut)),
            receipt: None,
            settlement,
            notification: None,
        }
    }

    fn rejected(error: NodeError, receipt: Option<Value>) -> Self {
        Self {
            outcome: error.outcome(),
            output: None,
            stored: None,
            settlement: Some(Settlement::Rejected {
                error: error.to_string(),
            }),
            error: Some(error),
            receipt: kept(receipt),
            notification: None,
        }
    }
}

/// The receipt as it is stored. One that is too large is left out: it must not keep its attempt from ending.
fn kept(receipt: Option<Value>) -> Option<Payload> {
    receipt.and_then(|receipt| storable(&receipt).ok())
}

/// The output as it is stored and, for an action, its whole execution as its effect keeps it.
fn prepare(
    output: &Value,
    receipt: Option<&Value>,
    acts: bool,
) -> Result<(Payload, Option<Settlement>), NodeError> {
    let stored = storable(output)?;
    if !acts {
        return Ok((stored, None));
    }
    let settlement = Settlement::Applied {
        result: Some(storable(&execution(output, receipt))?),
        external_ref: None,
    };
    Ok((stored, Some(settlement)))
}

/// The attempt that a move began.
fn current(next: Move, advanced: Advanced, failure: Option<NodeError>) -> Option<Current> {
    let (Move::Start(attempt), Some(started_at)) = (next, advanced.started_at) else {
        return None;
    };
    if matches!(advanced.effect, Some(EffectStart::Ambiguous { .. })) {
        return None;
    }
    Some(Current {
        failure,
        attempt,
        started_at: started_at.0,
        effect: advanced.effect,
    })
}

fn conflict_error() -> NodeError {
    NodeError::named(
        "EffectConflict",
        "the effect of this visit was reserved before with another request",
    )
}

fn recovery(node: &Node) -> Option<Recovery> {
    match &node.kind {
        NodeKind::Action(action) => Some(action.effect.recovery),
        NodeKind::Compute(_)
        | NodeKind::Checkpoint(_)
        | NodeKind::Agent(_)
        | NodeKind::Notify(_)
        | NodeKind::Custom(_) => None,
    }
}

fn next_of(plan: &Plan) -> &Move {
    match plan {
        Plan::First { next, .. } | Plan::Answered { next, .. } | Plan::Again { next } => next,
    }
}

fn without_effect(plan: Plan) -> Plan {
    match plan {
        Plan::First { title, next } => Plan::First {
            title,
            next: effectless(next),
        },
        Plan::Answered { finished, next } => Plan::Answered {
            finished,
            next: effectless(next),
        },
        Plan::Again { next } => Plan::Again {
            next: effectless(next),
        },
    }
}

fn effectless(next: Move) -> Move {
    match next {
        Move::Start(attempt) => Move::Start(NewAttempt {
            effect: None,
            ..attempt
        }),
        other => other,
    }
}

fn has_effect(next: &Move) -> bool {
    matches!(next, Move::Start(attempt) if attempt.effect.is_some())
}

/// The key of the effect is taken by another request: the node fails, and nothing else does.
fn is_effect_conflict(error: &WorkflowError) -> bool {
    matches!(error, WorkflowError::State(StateError::Conflict { resource, .. }) if resource.kind() == "effect")
}

/// Somebody else took the run, or changed it, between reading and claiming.
fn is_race(error: &WorkflowError) -> bool {
    matches!(
        error,
        WorkflowError::State(StateError::StaleRevision { .. } | StateError::LeaseHeld { .. })
            | WorkflowError::Rejected { .. }
    )
}
