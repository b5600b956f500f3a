//! From what a worker says to what its host proposes: everything that the host can know by itself is compared or made here.
//!
//! The commands check a proposal against committed facts, as they do for threads. A thread of the host is trusted with the rest,
//! and a worker is not: this room refuses results of effects that were not begun, another visit, another budget, times that can't be.

use std::collections::{BTreeMap, BTreeSet};

use holdpoint_state::effects::{EffectAttempt, EffectStart, NewEffect, OwnerScope};
use holdpoint_state::{Digest, EffectId, Payload};
use serde_json::{Value, json};

use super::message::{SaidFinish, SaidMove, SaidPlan, SaidSettlement, SaidWait};
use crate::commands::{Advanced, Ask, FinishedAttempt, Move, NewAttempt, Plan, Route, Unsettled};
use crate::definition::{Definition, Node, NodeKind, TimeBudget, Timeout, is_budget};
use crate::engine::adopted_value;
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{RequestKind, effect_key};
use crate::routing::NodeOutcome;
use crate::views::LoadedRun;

/// How far the clock of a worker may be ahead of its host's: it is told the time with each answer.
const AHEAD_MS: i64 = 60_000;

/// Why a worker's word can't be taken.
#[derive(Debug)]
pub(super) enum Untaken {
    /// It can't be true.
    Lie(String),
    /// It can't be stored.
    Error(WorkflowError),
}

impl From<WorkflowError> for Untaken {
    fn from(error: WorkflowError) -> Self {
        Self::Error(error)
    }
}

fn lie<T>(problem: impl Into<String>) -> Result<T, Untaken> {
    Err(Untaken::Lie(problem.into()))
}

/// What the host knows of the run that its worker executes.
pub(super) struct Present<'a> {
    run: RunId,
    definition: &'a Definition,
    /// How often each node was visited.
    visits: BTreeMap<NodeId, u32>,
    /// The documents of settings that the worker may read.
    documents: BTreeSet<Digest>,
    current: Option<Current>,
}

/// The attempt that goes on.
struct Current {
    attempt_id: AttemptId,
    node_id: NodeId,
    effect: Option<EffectStart>,
    /// How often it was asked again because the settings changed, and whether that was too often.
    route: Route,
}

impl<'a> Present<'a> {
    pub(super) fn of(run: &LoadedRun, definition: &'a Definition) -> Self {
        let mut visits = BTreeMap::new();
        for result in &run.history {
            *visits.entry(result.node_id.clone()).or_default() += 1;
        }
        Self {
            run: run.run_id.clone(),
            definition,
            visits,
            documents: run
                .attempt
                .iter()
                .filter_map(|attempt| attempt.settings)
                .collect(),
            // An attempt that waits for its answer ends by the first move.
            current: run
                .attempt
                .as_ref()
                .filter(|_| run.answer.is_some() || run.asked.is_some())
                .map(|attempt| Current {
                    attempt_id: attempt.attempt_id.clone(),
                    node_id: attempt.node_id.clone(),
                    effect: None,
                    route: Route::Compared { retries: 0 },
                }),
        }
    }

    /// Whether the worker was told of this document.
    pub(super) fn may_read(&self, document: Digest) -> bool {
        self.documents.contains(&document)
    }

    /// Whether the definition includes a workflow at this mount; the root has the empty path.
    pub(super) fn has_mount(&self, path: &str) -> bool {
        path.is_empty()
            || self
                .definition
                .mounts()
                .keys()
                .any(|mount| mount.as_str() == path)
    }

    /// Takes in what was committed: the end of the present attempt, if there was one, and the move after it.
    pub(super) fn moved(&mut self, finished: Option<&NodeId>, next: &Move, advanced: &Advanced) {
        self.documents
            .extend(advanced.settings.as_ref().map(|bound| bound.hash));
        match (advanced.unsettled, &mut self.current) {
            (Some(Unsettled::Again), Some(current)) => {
                current.route = match current.route {
                    Route::Compared { retries } => Route::Compared {
                        retries: retries + 1,
                    },
                    Route::GivenUp => Route::GivenUp,
                };
                return;
            }
            (Some(Unsettled::TooOften), Some(current)) => {
                current.route = Route::GivenUp;
                return;
            }
            (_, _) => {}
        }
        if let Some(node) = finished {
            *self.visits.entry(node.clone()).or_default() += 1;
        }
        self.current = match next {
            Move::Start(attempt) => Some(Current {
                attempt_id: attempt.attempt_id.clone(),
                node_id: attempt.node_id.clone(),
                effect: advanced.effect.clone(),
                route: Route::Compared { retries: 0 },
            }),
            Move::Complete | Move::End(..) | Move::HandOver => None,
        };
    }

    /// The try that may act now.
    pub(super) fn acting(&self) -> Option<&EffectAttempt> {
        match self.current.as_ref()?.effect.as_ref()? {
            EffectStart::Execute(attempt) => Some(attempt),
            EffectStart::Adopted { .. }
            | EffectStart::Ambiguous { .. }
            | EffectStart::Rejected { .. }
            | EffectStart::Cancelled { .. } => None,
        }
    }

    pub(super) fn plan(&self, said: SaidPlan, now: i64) -> Result<Plan, Untaken> {
        Ok(match said {
            SaidPlan::First { title, next } => Plan::First {
                title,
                next: self.next(next, None)?,
            },
            SaidPlan::Answered { finished, next } => {
                let node = finished.result.node_id.clone();
                Plan::Answered {
                    finished: self.finished(finished, now)?,
                    next: self.next(next, Some(&node))?,
                }
            }
            SaidPlan::Expired { finished, next } => {
                let node = finished.result.node_id.clone();
                Plan::Expired {
                    finished: self.finished(finished, now)?,
                    next: self.next(next, Some(&node))?,
                }
            }
            SaidPlan::Again { next } => Plan::Again {
                next: self.next(next, None)?,
            },
        })
    }

    /// The end of the present attempt.
    pub(super) fn finished(&self, said: SaidFinish, now: i64) -> Result<FinishedAttempt, Untaken> {
        let result = &said.result;
        let Some(current) = &self.current else {
            return lie("no attempt is going on");
        };
        if current.attempt_id != result.attempt_id || current.node_id != result.node_id {
            return lie(format!(
                "attempt {} of {} is the present one",
                current.attempt_id, current.node_id
            ));
        }
        let is_ok = result.outcome == NodeOutcome::Ok;
        if is_ok != result.output.is_some() || is_ok == result.error.is_some() {
            return lie("an attempt has an output exactly when it is ok, and an error otherwise");
        }
        let (started_at, finished_at) = (result.started_at, result.finished_at);
        if finished_at < started_at
            || now.saturating_add(AHEAD_MS) < finished_at
            || result.duration_ms != finished_at - started_at
        {
            return lie("the times of the attempt can't be");
        }
        let Some(node) = self.definition.node(&current.node_id) else {
            return lie(format!("node {:?} is not known", current.node_id));
        };
        check_kind(node, &said)?;
        check_effect(node, current.effect.as_ref(), &said)?;
        if said.unsettled != (current.route == Route::GivenUp) || (said.unsettled && is_ok) {
            return lie("the settings did not change so often");
        }
        Ok(said.finished(self.acting(), current.route)?)
    }

    /// The next move. `after` is the node of the attempt that ends in the same proposal.
    pub(super) fn next(&self, said: SaidMove, after: Option<&NodeId>) -> Result<Move, Untaken> {
        let said = match said {
            SaidMove::Complete => return Ok(Move::Complete),
            SaidMove::End { status, error } => return Ok(Move::End(status, error)),
            SaidMove::HandOver => return Ok(Move::HandOver),
            SaidMove::Start(said) => said,
        };
        let Some(node) = self.definition.node(&said.node_id) else {
            return lie(format!("node {:?} is not known", said.node_id));
        };
        let before = self.visits.get(&said.node_id).copied().unwrap_or(0);
        let visit = before + u32::from(after == Some(&said.node_id)) + 1;
        if said.visit != visit {
            return lie(format!("this is visit {visit} of {:?}", said.node_id));
        }
        if let Some(budget) = said.timeout {
            check_budget(&node.timeout, budget)?;
        }
        let effect = match (&node.kind, said.request) {
            (NodeKind::Action(action), Some(request)) => {
                let kind = action.effect.effect_type.trim();
                let key = effect_key(&self.run, kind, &said.node_id, visit);
                let payload = json!({ "recovery": action.effect.recovery, "request": request });
                let payload = Payload::json(&payload).map_err(WorkflowError::State)?;
                Some(NewEffect::new(kind, key, OwnerScope::Run, payload))
            }
            (_, None) => None,
            (_, Some(_)) => return lie(format!("node {:?} has no effect", said.node_id)),
        };
        Ok(Move::Start(NewAttempt {
            attempt_id: said.attempt_id,
            node_id: said.node_id,
            visit,
            timeout: said.timeout,
            effect,
        }))
    }

    /// Whether the present attempt may have this time budget.
    pub(super) fn budget(&self, budget: TimeBudget) -> Result<(), Untaken> {
        let current = self.current.as_ref();
        match current.and_then(|current| self.definition.node(&current.node_id)) {
            Some(node) => check_budget(&node.timeout, budget),
            None => lie("no attempt is going on"),
        }
    }

    /// What the present attempt waits for. What another domain makes of it is made again here: its code can't travel.
    pub(super) fn ask(&self, said: SaidWait) -> Result<(AttemptId, Ask), Untaken> {
        let Some(current) = self
            .current
            .as_ref()
            .filter(|current| current.attempt_id == said.attempt_id)
        else {
            return lie(format!(
                "attempt {} is not the present one",
                said.attempt_id
            ));
        };
        let custom = match self
            .definition
            .node(&current.node_id)
            .map(|node| &node.kind)
        {
            Some(NodeKind::Custom(custom)) => Some(custom),
            _ => None,
        };
        let mut ask = Ask::new(said.kind, said.contract);
        ask.detail = said.detail;
        ask.prompt = said.prompt;
        let is_of_domain = matches!(said.kind, RequestKind::Decision | RequestKind::External);
        if is_of_domain != custom.is_some() {
            return lie(format!(
                "node {:?} does not wait for a request of kind {}",
                current.node_id, said.kind
            ));
        }
        if let Some(custom) = custom {
            let request = ask.contract.get("request").unwrap_or(&Value::Null);
            // Asked also of a worker that speaks of no rows: it must not leave out what its kind writes.
            match custom.park_again(request) {
                Some(park) => {
                    // As JSON, where 300 and 300.0 are the same number.
                    let made = Payload::json(&park.contract).map_err(WorkflowError::State)?;
                    let said_digest = Payload::json(request)
                        .map_err(WorkflowError::State)?
                        .digest();
                    let is_decision = said.kind == RequestKind::Decision;
                    if made.digest() != said_digest || park.is_decision != is_decision {
                        return lie("the request is not the one that its kind makes");
                    }
                    ask.asking = park.asking;
                    ask.beside = park.beside;
                }
                None if said.has_rows => {
                    return Err(Untaken::Error(WorkflowError::Input {
                        what: "node kind",
                        problem: format!(
                            "{} parks with rows of its own and can't make them for a worker process; execute its runs on threads",
                            custom.node_type()
                        ),
                    }));
                }
                None => {}
            }
        }
        Ok((said.attempt_id, ask))
    }
}

fn check_budget(declared: &Timeout, budget: TimeBudget) -> Result<(), Untaken> {
    let fits = match (declared, budget) {
        (Timeout::Fixed(declared), TimeBudget::Millis(millis)) => {
            declared.to_bits() == millis.to_bits()
        }
        (Timeout::Unlimited, budget) => budget == TimeBudget::Unlimited,
        (Timeout::Default | Timeout::Function(_), TimeBudget::Millis(millis)) => is_budget(millis),
        (Timeout::Fixed(_) | Timeout::Default, TimeBudget::Unlimited) => false,
        (Timeout::Function(_), TimeBudget::Unlimited) => true,
    };
    if fits {
        Ok(())
    } else {
        lie("the time budget is not the one that the node declares")
    }
}

/// What only some kinds of nodes may say.
fn check_kind(node: &Node, said: &SaidFinish) -> Result<(), Untaken> {
    let (is_agent, is_notify) = (
        matches!(node.kind, NodeKind::Agent(_)),
        matches!(node.kind, NodeKind::Notify(_)),
    );
    if said.notification.is_some() && !is_notify {
        return lie("only a notification shows the session a text");
    }
    if said.prompt.is_some() && !is_agent {
        return lie("only an agent has a prompt");
    }
    let is_ok = said.result.outcome == NodeOutcome::Ok;
    if is_notify && is_ok != said.notification.is_some() {
        return lie("a notification that is ok has its text");
    }
    Ok(())
}

/// Whether the end of an attempt agrees with what its effect was allowed to do.
fn check_effect(
    node: &Node,
    effect: Option<&EffectStart>,
    said: &SaidFinish,
) -> Result<(), Untaken> {
    let is_ok = said.result.outcome == NodeOutcome::Ok;
    match (effect, &said.settlement) {
        (Some(EffectStart::Execute(_)), settlement) => {
            let fits = match settlement {
                Some(SaidSettlement::Applied { execution }) => is_ok == execution.is_none(),
                Some(SaidSettlement::Rejected { .. } | SaidSettlement::Interrupted) => !is_ok,
                None => false,
            };
            if fits {
                Ok(())
            } else {
                lie("the effect was not settled as its attempt ended")
            }
        }
        (_, Some(_)) => lie("no effect may be settled by this attempt"),
        (
            Some(EffectStart::Adopted {
                effect_id, result, ..
            }),
            None,
        ) => check_adopted(effect_id, result.as_deref(), said),
        (
            Some(
                EffectStart::Rejected { effect_id, .. }
                | EffectStart::Cancelled { effect_id }
                | EffectStart::Ambiguous { effect_id },
            ),
            None,
        ) if is_ok => lie(format!("effect {effect_id} was not applied")),
        (None, None) if is_ok && matches!(node.kind, NodeKind::Action(_)) => {
            lie("the action had no effect to act under")
        }
        (_, None) => Ok(()),
    }
}

/// What an effect stored is the output, not what a worker makes of it.
fn check_adopted(
    effect_id: &EffectId,
    stored: Option<&[u8]>,
    said: &SaidFinish,
) -> Result<(), Untaken> {
    let (Some(output), Ok((expected, _))) = (&said.result.output, adopted_value(stored)) else {
        return Ok(());
    };
    if *output == expected {
        Ok(())
    } else {
        lie(format!(
            "effect {effect_id} was applied with another result"
        ))
    }
}
