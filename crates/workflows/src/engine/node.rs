//! Runs one node under its time budget, and says how it ended. Writes nothing.

use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::effects::EffectStart;
use serde_json::{Value, json};

use super::Deadlines;
use super::executor::{Executor, Ran};
use super::facts::Facts;
use crate::commands::NewAttempt;
use crate::definition::{
    ActionExecution, CancellationSource, Checkpoint, Node, NodeError, NodeKind, ShellAction,
    TimeBudget, ValueFunction,
};
use crate::error::WorkflowError;
use crate::shell;

/// How long a node may go on after its signal was raised.
const GRACE: Duration = Duration::from_secs(2);
/// The same for a command, whose processes get a second between SIGTERM and SIGKILL and two more for their pipes.
const SHELL_GRACE: Duration = Duration::from_secs(5);

/// How a node ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// With a value.
    Value {
        output: Value,
        receipt: Option<Value>,
    },
    /// With an error of its own.
    Error {
        error: NodeError,
        receipt: Option<Value>,
    },
    /// It wants an answer.
    Ask(Value),
    /// It was left behind: nobody knows what it did.
    Unknown,
}

impl Ended {
    fn error(error: NodeError) -> Self {
        Self::Error {
            error,
            receipt: None,
        }
    }
}

/// A node to run.
pub(super) struct NodeRun<'a> {
    pub(super) node: &'a Node,
    pub(super) attempt: &'a NewAttempt,
    pub(super) effect: Option<&'a EffectStart>,
    pub(super) facts: &'a Arc<Facts>,
    pub(super) source: &'a CancellationSource,
}

impl NodeRun<'_> {
    pub(super) fn run(
        &self,
        executor: &mut Executor,
        deadlines: &Deadlines,
    ) -> Result<Ended, WorkflowError> {
        let _armed = match self.attempt.timeout {
            Some(TimeBudget::Millis(millis)) => Some(deadlines.arm(millis, self.source)),
            Some(TimeBudget::Unlimited) | None => None,
        };
        match &self.node.kind {
            NodeKind::Compute(compute) => self.call(executor, &compute.run, None),
            NodeKind::Checkpoint(checkpoint) => self.ask(executor, checkpoint),
            NodeKind::Action(action) => match self.effect {
                Some(EffectStart::Execute(_)) => match &action.execution {
                    ActionExecution::Function(function) => self.call(
                        executor,
                        function,
                        Some(json!({ "actionType": "function" })),
                    ),
                    ActionExecution::Shell(shell) => self.shell(executor, shell),
                },
                Some(EffectStart::Adopted { result, .. }) => Ok(adopted(result.as_deref())),
                Some(EffectStart::Rejected { error, .. }) => Ok(Ended::error(stored_error(error))),
                Some(EffectStart::Cancelled { .. }) => Ok(Ended::error(NodeError::new(
                    "the effect of this visit was cancelled",
                ))),
                Some(EffectStart::Ambiguous { .. }) | None => Ok(Ended::error(NodeError::new(
                    "BUG: an action was dispatched without its effect",
                ))),
            },
        }
    }

    fn call(
        &self,
        executor: &mut Executor,
        function: &ValueFunction,
        receipt: Option<Value>,
    ) -> Result<Ended, WorkflowError> {
        let function = Arc::clone(function);
        let scene = self.scene();
        let ran = executor.run(&self.source.signal(), GRACE, move || {
            let result = function(&scene.context());
            drop(function);
            result
        })?;
        Ok(match ran {
            Ran::Done(Ok(output)) => Ended::Value { output, receipt },
            Ran::Done(Err(error)) => Ended::Error { error, receipt },
            Ran::Panicked(text) => Ended::Error {
                error: NodeError::named("Panic", text),
                receipt,
            },
            Ran::Abandoned => Ended::Unknown,
        })
    }

    fn ask(
        &self,
        executor: &mut Executor,
        checkpoint: &Checkpoint,
    ) -> Result<Ended, WorkflowError> {
        let request = match &checkpoint.run {
            None => Value::Null,
            Some(function) => match self.call(executor, function, None)? {
                Ended::Value { output, .. } => output,
                other => return Ok(other),
            },
        };
        Ok(Ended::Ask(json!({
            "kind": "checkpoint",
            "nodeId": self.node.id,
            "summary": checkpoint.summary,
            "request": request,
        })))
    }

    fn shell(&self, executor: &mut Executor, action: &ShellAction) -> Result<Ended, WorkflowError> {
        let action = action.clone();
        let scene = self.scene();
        let ran = executor.run(&self.source.signal(), SHELL_GRACE, move || {
            let context = scene.context();
            let command = match (action.exec)(&context) {
                Ok(command) => command,
                Err(error) => return Ended::error(error),
            };
            let run = shell::run(&command, &context.cancellation);
            let receipt = serde_json::to_value(&run.receipt).ok();
            let value = run
                .result
                .map_err(shell::ShellFailure::into_node_error)
                .and_then(|result| match &action.parse {
                    Some(parse) => parse(&context, &result),
                    None => Ok(serde_json::to_value(&result)?),
                });
            match value {
                Ok(output) => Ended::Value { output, receipt },
                Err(error) => Ended::Error { error, receipt },
            }
        })?;
        Ok(match ran {
            Ran::Done(ended) => ended,
            Ran::Panicked(text) => Ended::error(NodeError::named("Panic", text)),
            Ran::Abandoned => Ended::Unknown,
        })
    }

    fn scene(&self) -> Scene {
        let effect_id = match self.effect {
            Some(EffectStart::Execute(effect)) => Some(effect.effect_id.to_string()),
            _ => None,
        };
        Scene {
            facts: Arc::clone(self.facts),
            attempt: self.attempt.clone(),
            signal: self.source.signal(),
            effect_id,
        }
    }
}

/// What the node's thread holds of the run.
struct Scene {
    facts: Arc<Facts>,
    attempt: NewAttempt,
    signal: crate::definition::CancellationSignal,
    effect_id: Option<String>,
}

impl Scene {
    fn context(&self) -> crate::definition::NodeContext<'_> {
        self.facts.context(
            (&self.attempt.node_id, &self.attempt.attempt_id),
            self.attempt.visit,
            self.signal.clone(),
            self.effect_id.as_deref(),
        )
    }
}

/// The execution that an applied effect stored.
pub(super) fn execution(output: &Value, receipt: Option<&Value>) -> Value {
    json!({ "output": output, "receipt": receipt })
}

/// An earlier act of this visit was applied: its result is the output, and nothing acts again.
fn adopted(result: Option<&[u8]>) -> Ended {
    let Some(bytes) = result else {
        return Ended::Value {
            output: Value::Null,
            receipt: None,
        };
    };
    match serde_json::from_slice::<Value>(bytes) {
        Ok(Value::Object(mut execution)) if execution.contains_key("output") => Ended::Value {
            output: execution.remove("output").unwrap_or_default(),
            receipt: execution
                .remove("receipt")
                .filter(|receipt| !receipt.is_null()),
        },
        // A person who confirmed it gave the output itself.
        Ok(output) => Ended::Value {
            output,
            receipt: None,
        },
        Err(error) => Ended::error(NodeError::new(format!(
            "the stored result can't be read: {error}"
        ))),
    }
}

/// The error that a rejected effect stored, as it was.
fn stored_error(text: &str) -> NodeError {
    match text.split_once(": ") {
        Some((name, message)) if !name.is_empty() && name.chars().all(char::is_alphanumeric) => {
            NodeError::named(name, message)
        }
        _ => NodeError::named("EffectRejected", text),
    }
}
