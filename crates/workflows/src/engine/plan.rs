//! What comes next, and everything that must be known before it is proposed: budget and effect of the next attempt.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::effects::{NewEffect, OwnerScope};
use holdpoint_state::id::random_id;
use holdpoint_state::{Payload, StateError};
use serde_json::{Value, json};

use super::Deadlines;
use super::executor::{Executor, Ran};
use super::facts::{Documents, Facts};
use crate::commands::{FinishedAttempt, Move, NewAttempt, Plan};
use crate::definition::{
    CancellationSignal, CancellationSource, Definition, EffectRequest, Node, NodeContext,
    NodeError, NodeKind, RESOLVE_LIMIT_MS, Timeout, Title,
};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId};
use crate::model::{DEADLINE_EXPIRED, RunStatus, TerminalStatus, effect_key};
use crate::routing::{self, Next, NodeOutcome, NodeResult};
use crate::views::{LoadedRun, OpenAttempt};

/// How long a resolving function gets after its time is up.
const RESOLVE_GRACE: Duration = Duration::ZERO;

/// The next move, with what the runner keeps of it.
pub(super) struct NextMove {
    pub(super) next: Move,
    /// Why the attempt can only fail: its budget or its effect's request could not be made.
    pub(super) failure: Option<NodeError>,
}

impl NextMove {
    fn end(status: TerminalStatus, error: impl Into<String>) -> Self {
        Self {
            next: Move::End(status, error.into()),
            failure: None,
        }
    }
}

/// Plans with the help of the author's code, within bounds.
pub(super) struct Planner<'a> {
    pub(super) definition: &'a Definition,
    pub(super) executor: &'a mut Executor,
    pub(super) deadlines: &'a Deadlines,
    pub(super) documents: &'a dyn Documents,
}

impl Planner<'_> {
    /// The first move with a run that was just read. An accepted answer is taken into the facts.
    pub(super) fn first(
        &mut self,
        loaded: &LoadedRun,
        facts: &mut Arc<Facts>,
        now: i64,
    ) -> Result<(Plan, Option<NodeError>), WorkflowError> {
        if loaded.status == RunStatus::Queued {
            return self.begin(facts);
        }
        match (&loaded.attempt, &loaded.answer) {
            (Some(attempt), Some(answer)) => {
                let started_at = attempt.started_at.0;
                Facts::bind(facts, self.documents, &attempt.node_id, attempt.settings)?;
                let receipt = loaded.answer_receipt.as_ref();
                let completed = self.complete(facts, attempt, answer)?;
                let finished_at = now.max(started_at);
                let result = NodeResult {
                    attempt_id: attempt.attempt_id.clone(),
                    node_id: attempt.node_id.clone(),
                    node_type: attempt.node_type.clone(),
                    outcome: completed
                        .as_ref()
                        .map_or_else(NodeError::outcome, |_| NodeOutcome::Ok),
                    started_at,
                    finished_at,
                    duration_ms: finished_at - started_at,
                    error: completed.as_ref().err().map(ToString::to_string),
                    output: completed.ok(),
                    receipt: receipt
                        .filter(|_| attempt.node_type == "checkpoint")
                        .cloned(),
                };
                let finished = FinishedAttempt::new(result.clone(), receipt)?;
                Arc::make_mut(facts).apply(result);
                let NextMove { next, failure } = self.next(facts)?;
                Ok((Plan::Answered { finished, next }, failure))
            }
            (Some(attempt), None)
                if loaded.asked.as_ref().is_some_and(|asked| asked.is_expired) =>
            {
                let started_at = attempt.started_at.0;
                let finished_at = now.max(started_at);
                let result = NodeResult {
                    attempt_id: attempt.attempt_id.clone(),
                    node_id: attempt.node_id.clone(),
                    node_type: attempt.node_type.clone(),
                    outcome: NodeOutcome::TimedOut,
                    started_at,
                    finished_at,
                    duration_ms: finished_at - started_at,
                    output: None,
                    error: Some(NodeError::named("TimedOut", DEADLINE_EXPIRED).to_string()),
                    receipt: None,
                };
                let finished = FinishedAttempt::new(result.clone(), None)?;
                Arc::make_mut(facts).apply(result);
                let NextMove { next, failure } = self.next(facts)?;
                Ok((Plan::Expired { finished, next }, failure))
            }
            (Some(attempt), None) => {
                let NextMove { next, failure } = self.dispatch(facts, &attempt.node_id)?;
                Ok((Plan::Again { next }, failure))
            }
            (None, _) => {
                let NextMove { next, failure } = self.next(facts)?;
                Ok((Plan::Again { next }, failure))
            }
        }
    }

    /// What an accepted answer means: itself, or what the node's kind of another crate makes of it.
    fn complete(
        &mut self,
        facts: &Arc<Facts>,
        attempt: &OpenAttempt,
        answer: &Value,
    ) -> Result<Result<Value, NodeError>, WorkflowError> {
        let custom = match self.definition.node(&attempt.node_id) {
            Some(node) => match &node.kind {
                NodeKind::Custom(custom) => Arc::clone(custom),
                _ => return Ok(Ok(answer.clone())),
            },
            None => return Ok(Ok(answer.clone())),
        };
        let (facts, answer) = (Arc::clone(facts), answer.clone());
        let (node, id) = (attempt.node_id.clone(), attempt.attempt_id.clone());
        let visit = facts.visit(&node);
        let completed = self.resolve(move |signal| {
            let context = facts.context((&node, &id), visit, signal, None);
            custom.complete(&context, answer)
        })?;
        Ok(completed.and_then(|output| Ok(crate::definition::value::normal(&output)?)))
    }

    fn begin(&mut self, facts: &Arc<Facts>) -> Result<(Plan, Option<NodeError>), WorkflowError> {
        let title = match self.definition.title() {
            None => Ok(None),
            Some(Title::Text(text)) => Ok(Some(text.clone())),
            Some(Title::Function(_)) => {
                let (definition, facts) = (self.definition.clone(), Arc::clone(facts));
                self.resolve(move |_| definition.resolve_title(&facts.input))?
            }
        };
        let (title, NextMove { next, failure }) = match title {
            Ok(title) => (title, self.next(facts)?),
            Err(error) => (
                None,
                NextMove::end(TerminalStatus::Failed, format!("title: {error}")),
            ),
        };
        Ok((Plan::First { title, next }, failure))
    }

    /// What follows the last step, or the start.
    pub(super) fn next(&mut self, facts: &Arc<Facts>) -> Result<NextMove, WorkflowError> {
        let Some(last) = facts.last_result() else {
            let start = self.definition.start_at().clone();
            return self.dispatch(facts, &start);
        };
        match routing::next(self.definition, last) {
            Next::Node(node) => self.dispatch(facts, &node),
            Next::Complete(_) => Ok(NextMove {
                next: Move::Complete,
                failure: None,
            }),
            Next::Fail(failure) => Ok(NextMove::end(TerminalStatus::Failed, failure.to_string())),
            Next::TimedOut(failure) => {
                Ok(NextMove::end(TerminalStatus::TimedOut, failure.to_string()))
            }
            Next::Cancelled => Ok(NextMove::end(
                TerminalStatus::Cancelled,
                "its node was cancelled",
            )),
        }
    }

    /// A new attempt at a node, unless the run has made all its steps.
    fn dispatch(&mut self, facts: &Arc<Facts>, node: &NodeId) -> Result<NextMove, WorkflowError> {
        let steps = |path: &str| facts.steps(path);
        if let Err(failure) = routing::check_max_steps(self.definition, steps, node) {
            return Ok(NextMove::end(TerminalStatus::Failed, failure.to_string()));
        }
        let Some(known) = self.definition.node(node) else {
            let problem = format!("node {node:?} is not part of the workflow");
            return Ok(NextMove::end(TerminalStatus::Failed, problem));
        };
        let attempt_id =
            AttemptId::new(random_id("attempt")).map_err(|error| WorkflowError::Input {
                what: "attempt id",
                problem: error.to_string(),
            })?;
        let facts = &self.with_present_settings(facts, known)?;
        let visit = facts.visit(node);
        let mut attempt = NewAttempt {
            attempt_id: attempt_id.clone(),
            node_id: node.clone(),
            visit,
            timeout: None,
            effect: None,
        };
        let mut failure = None;
        let never = CancellationSignal::never();
        let budget = match &known.timeout {
            fixed @ (Timeout::Default | Timeout::Fixed(_) | Timeout::Unlimited) => {
                fixed.resolve(&facts.context((node, &attempt_id), visit, never.clone(), None))
            }
            function @ Timeout::Function(_) => {
                let (function, facts, node, id) = (
                    function.clone(),
                    Arc::clone(facts),
                    node.clone(),
                    attempt_id.clone(),
                );
                self.resolve(move |signal| {
                    function.resolve(&facts.context((&node, &id), visit, signal, None))
                })?
            }
        };
        match budget {
            Ok(budget) => attempt.timeout = Some(budget),
            Err(error) => failure = Some(error),
        }
        if let NodeKind::Action(action) = &known.kind {
            let spec = action.effect.clone();
            let request = match &spec.request {
                None | Some(EffectRequest::Value(_)) => {
                    spec.resolve_request(&facts.context((node, &attempt_id), visit, never, None))
                }
                Some(EffectRequest::Function(_)) => {
                    let (spec, facts, node, id) = (
                        spec.clone(),
                        Arc::clone(facts),
                        node.clone(),
                        attempt_id.clone(),
                    );
                    self.resolve(move |signal| {
                        let context: NodeContext<'_> =
                            facts.context((&node, &id), visit, signal, None);
                        spec.resolve_request(&context)
                    })?
                }
            };
            let effect_type = spec.effect_type.trim();
            let effect = request.and_then(|request| {
                let payload = json!({ "recovery": spec.recovery, "request": request });
                let payload = storable(&payload)?;
                let key = effect_key(&facts.run_id, effect_type, node, visit);
                Ok(NewEffect::new(effect_type, key, OwnerScope::Run, payload))
            });
            match effect {
                Ok(effect) if failure.is_none() => attempt.effect = Some(effect),
                Ok(_) => {}
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        Ok(NextMove {
            next: Move::Start(attempt),
            failure,
        })
    }

    /// The facts with the settings as they are now, when the author's code is asked about an attempt before it begins. The attempt
    /// itself reads those that it is bound to when it begins, in the transaction.
    fn with_present_settings(
        &self,
        facts: &Arc<Facts>,
        node: &Node,
    ) -> Result<Arc<Facts>, WorkflowError> {
        let asks = matches!(node.timeout, Timeout::Function(_))
            || matches!(
                &node.kind,
                NodeKind::Action(action) if matches!(action.effect.request, Some(EffectRequest::Function(_)))
            );
        let mount = node.id.mount();
        let Some(settings) = self.definition.settings(mount).filter(|_| asks) else {
            return Ok(Arc::clone(facts));
        };
        let document = self
            .documents
            .present(&facts.run_id, mount)?
            .unwrap_or_else(|| settings.initial().clone());
        let digest = Payload::json(&document)?.digest();
        let mut facts = Arc::clone(facts);
        Arc::make_mut(&mut facts)
            .settings
            .insert(mount.to_owned(), (digest, Arc::new(document)));
        Ok(facts)
    }

    /// Runs a function of the author that makes a title, a budget or a request, within its bound.
    fn resolve<T: Send + 'static>(
        &mut self,
        function: impl FnOnce(CancellationSignal) -> Result<T, NodeError> + Send + 'static,
    ) -> Result<Result<T, NodeError>, WorkflowError> {
        let source = CancellationSource::new();
        #[expect(clippy::cast_precision_loss, reason = "thirty thousand")]
        let _armed = self.deadlines.arm(RESOLVE_LIMIT_MS as f64, &source);
        let signal = source.signal();
        let ran = self
            .executor
            .run(&source.signal(), RESOLVE_GRACE, move || function(signal))?;
        Ok(match ran {
            Ran::Done(result) => result,
            Ran::Panicked(text) => Err(NodeError::named("Panic", text)),
            Ran::Abandoned => Err(NodeError::new(format!(
                "it took longer than {RESOLVE_LIMIT_MS} ms"
            ))),
        })
    }
}

/// A value as a payload; what can't be stored is the author's error.
pub(super) fn storable(value: &Value) -> Result<Payload, NodeError> {
    Payload::json(value).map_err(|error| NodeError::named("InvalidOutput", state_text(&error)))
}

fn state_text(error: &StateError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
