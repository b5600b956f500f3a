//! Executes node after node of one run and proposes each step to its host.
//!
//! Knows no store: who owns the facts of the run is behind [`Host`]. Not here: taking a run up (`runner`), running one node
//! (`node`), what comes next (`plan`).

use std::sync::Arc;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{EffectStart, Settlement};
use holdpoint_state::{Digest, Payload};
use serde_json::Value;

use super::Deadlines;
use super::active::Stop;
use super::executor::Executor;
use super::facts::Facts;
use super::host::{Host, Opening, Stepped, conflict_error};
use super::node::{Ended, NodeEnd, NodeRun, execution};
use super::plan::{NextMove, Planner, storable};
use super::runner::Executed;
use super::validation::{Look, Looked};
use crate::agents::AgentExecutor;
use crate::commands::{
    Advanced, Ask, FinishedAttempt, Move, NewAttempt, Notification, Route, Unsettled,
};
use crate::definition::{Definition, Node, NodeError, NodeKind, Recovery, StopReason, TimeBudget};
use crate::error::WorkflowError;
use crate::routing::{NodeOutcome, NodeResult};
use crate::views::LoadedRun;

/// Executes one run for a host.
pub(super) struct Drive<'a, H> {
    pub(super) host: &'a H,
    pub(super) definition: &'a Definition,
    /// Who executes the agents of headless runs.
    pub(super) agents: Option<&'a Arc<dyn AgentExecutor>>,
    pub(super) deadlines: &'a Deadlines,
}

/// Executes a run that was read, for a host that has its claim: looks at its candidate if it has one, plans the first move, has it
/// made, and goes on from there.
pub(crate) fn execute_for<H: Opening>(
    host: &H,
    loaded: &LoadedRun,
    (definition, agents): (&Definition, Option<&Arc<dyn AgentExecutor>>),
    deadlines: &Deadlines,
    executor: &mut Executor,
) -> Result<Executed, WorkflowError> {
    let mut facts = Arc::new(Facts::of(loaded, definition));
    let documents = host.documents();
    let candidate = loaded
        .asked
        .as_ref()
        .and_then(|asked| asked.candidate.as_ref());
    let (next, stepped, failure) = if let Some((_, value)) = candidate {
        let look = Look {
            host,
            loaded,
            definition,
            deadlines,
        };
        let finished = match look.take(value, executor)? {
            Looked::Output(finished, after) => {
                facts = after;
                finished
            }
            Looked::Refused(problem) => {
                host.reject(&problem)?;
                return Ok(Executed::Released);
            }
            Looked::Lost => return Ok(Executed::Lost),
            Looked::CutShort => {
                host.hand_over()?;
                return Ok(Executed::Released);
            }
        };
        let mut planner = Planner {
            definition,
            executor: &mut *executor,
            deadlines,
            documents,
        };
        let NextMove { next, failure } = planner.next(&facts)?;
        let next = match next {
            Move::Start(_) if host.is_draining() => Move::HandOver,
            other => other,
        };
        let stepped = host.accept(&finished, &next)?;
        (next, stepped, failure)
    } else {
        let mut planner = Planner {
            definition,
            executor: &mut *executor,
            deadlines,
            documents,
        };
        let (plan, failure) = planner.first(loaded, &mut facts, host.now())?;
        let stepped = host.begin(&plan)?;
        (plan.next().clone(), stepped, failure)
    };
    let failure = if stepped.is_effectless {
        Some(conflict_error())
    } else {
        failure
    };
    match begun(next, stepped.advanced, failure) {
        Some(current) => Drive {
            host,
            definition,
            agents,
            deadlines,
        }
        .run(facts, current, executor),
        None => Ok(Executed::Released),
    }
}

/// An attempt that was begun.
pub(super) struct Current {
    attempt: NewAttempt,
    started_at: i64,
    effect: Option<EffectStart>,
    failure: Option<NodeError>,
    /// The settings that it began with.
    settings: Option<Digest>,
    /// How often it was asked again because they changed.
    retries: u32,
}

/// What a proposed step leads to.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each step, and moved; a box would cost more than it saves"
)]
enum After {
    /// The next attempt.
    Next(Current),
    /// Nothing more here.
    Released,
    /// The same attempt goes on, with other settings.
    Again(Option<Digest>),
    /// Nothing was written: the settings of a settings route never stood still.
    Unsettled,
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

impl<H: Host> Drive<'_, H> {
    /// Node after node, one proposal for each.
    pub(super) fn run(
        &self,
        mut facts: Arc<Facts>,
        mut current: Current,
        executor: &mut Executor,
    ) -> Result<Executed, WorkflowError> {
        loop {
            let Some(node) = self.definition.node(&current.attempt.node_id) else {
                return Err(WorkflowError::Transition {
                    run: facts.run_id.to_string(),
                    problem: format!("node {:?} is not known", current.attempt.node_id),
                });
            };
            Facts::bind(
                &mut facts,
                self.host.documents(),
                &node.id,
                current.settings,
            )?;
            let began = self.deadlines.now();
            let source = self.host.begin_node();
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
                    agents: self.agents,
                    publisher: self
                        .host
                        .publisher(&current.attempt.attempt_id, source.signal()),
                }
                .run(executor, self.deadlines)?,
            };
            let (finished, result) =
                match self.judge(node, &current, ended, source.signal().reason()) {
                    Judged::Step(finished, result) => {
                        (finished.prompted(prompt.as_deref()), result)
                    }
                    Judged::Ask(ask) => {
                        self.host.wait(&current.attempt.attempt_id, ask)?;
                        return Ok(Executed::Released);
                    }
                    Judged::Doubt => {
                        if let Some(EffectStart::Execute(effect)) = &current.effect {
                            self.host.doubt(effect)?;
                        }
                        return Ok(Executed::Released);
                    }
                    Judged::GiveBack => {
                        self.host.hand_over()?;
                        return Ok(Executed::Released);
                    }
                    Judged::Lost => return Ok(Executed::Lost),
                };
            let before = is_settings_route(node).then(|| Arc::clone(&facts));
            let finished = finished.routed(Route::Compared {
                retries: current.retries,
            });
            let mut after = self.step(&mut facts, executor, (finished, result))?;
            if matches!(after, After::Unsettled) {
                facts = before.clone().unwrap_or(facts);
                after = self.step(&mut facts, executor, self.unsettled(node, &current))?;
            }
            match after {
                After::Next(next) => current = next,
                After::Again(settings) => {
                    facts = before.unwrap_or(facts);
                    current.settings = settings;
                    current.retries += 1;
                    let spent = self.deadlines.now().since(began);
                    current.attempt.timeout = left(current.attempt.timeout, spent);
                }
                After::Released | After::Unsettled => return Ok(Executed::Released),
            }
        }
    }

    /// Finds what follows a result, and proposes both.
    fn step(
        &self,
        facts: &mut Arc<Facts>,
        executor: &mut Executor,
        (finished, result): (FinishedAttempt, NodeResult),
    ) -> Result<After, WorkflowError> {
        Arc::make_mut(facts).apply(result);
        let NextMove { next, failure } = Planner {
            definition: self.definition,
            executor,
            deadlines: self.deadlines,
            documents: self.host.documents(),
        }
        .next(facts)?;
        let next = match next {
            Move::Start(_) if self.host.is_draining() => Move::HandOver,
            other => other,
        };
        let Stepped {
            advanced,
            is_effectless,
        } = self.host.advance(self.definition, finished, &next)?;
        let failure = if is_effectless {
            Some(conflict_error())
        } else {
            failure
        };
        Ok(match advanced.unsettled {
            Some(Unsettled::Again) => After::Again(advanced.settings.map(|bound| bound.hash)),
            Some(Unsettled::TooOften) => After::Unsettled,
            None => begun(next, advanced, failure).map_or(After::Released, After::Next),
        })
    }

    /// The end of a settings route whose settings changed each time before its end could be committed.
    fn unsettled(&self, node: &Node, current: &Current) -> (FinishedAttempt, NodeResult) {
        let changes = current.retries + 1;
        let error = NodeError::named(
            "SettingsUnsettled",
            format!("the settings changed {changes} times while it was decided where to go"),
        );
        let result = self.result(node, current, NodeOutcome::Failed, (None, Some(&error)));
        let finished = FinishedAttempt::prepared(result.clone(), None, None);
        (finished.routed(Route::GivenUp), result)
    }

    fn result(
        &self,
        node: &Node,
        current: &Current,
        outcome: NodeOutcome,
        (output, error): (Option<Value>, Option<&NodeError>),
    ) -> NodeResult {
        let finished_at = self.host.now().max(current.started_at);
        NodeResult {
            attempt_id: current.attempt.attempt_id.clone(),
            node_id: current.attempt.node_id.clone(),
            node_type: node.kind.node_type().to_owned(),
            outcome,
            started_at: current.started_at,
            finished_at,
            duration_ms: finished_at - current.started_at,
            output,
            error: error.map(ToString::to_string),
            receipt: None,
        }
    }

    /// What the end of a node means. Arms are in order of precedence: a lost claim writes nothing, a spent budget times out
    /// whatever the node says after it, and only then counts what the node gave.
    fn judge(
        &self,
        node: &Node,
        current: &Current,
        ended: Ended,
        raised: Option<StopReason>,
    ) -> Judged {
        let stopped = self.host.stopped();
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
            Ended::Ask(ask) if !timed_out => {
                let checked = ask.check_at(UnixMillis(self.host.now()));
                match checked.and_then(|()| storable(ask.contract())) {
                    Ok(_) => return Judged::Ask(ask),
                    Err(error) => End::rejected(error, None),
                }
            }
            ended => End::of(ended, timed_out, cut_short, acts),
        };
        let result = self.result(node, current, end.outcome, (end.output, end.error.as_ref()));
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
pub(super) fn begun(next: Move, advanced: Advanced, failure: Option<NodeError>) -> Option<Current> {
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
        settings: advanced.settings.map(|bound| bound.hash),
        retries: 0,
    })
}

/// Whether a node decides by the live settings.
fn is_settings_route(node: &Node) -> bool {
    matches!(&node.kind, NodeKind::Compute(compute) if compute.settings_route)
}

/// What is left of a time budget: being asked again is a part of the same attempt.
fn left(budget: Option<TimeBudget>, spent_ms: u64) -> Option<TimeBudget> {
    match budget {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53 milliseconds")]
        Some(TimeBudget::Millis(millis)) => {
            let left = (millis - spent_ms as f64).max(f64::MIN_POSITIVE);
            Some(TimeBudget::Millis(left))
        }
        Some(TimeBudget::Unlimited) | None => budget,
    }
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
