//! Runs one node under its time budget, and says how it ended. Writes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::effects::EffectStart;
use serde_json::{Value, json};

use super::Deadlines;
use super::executor::{Executor, Ran};
use super::facts::Facts;
use crate::agents::{AgentExecutor, AgentFailure, AgentReply, AgentRequest, extract};
use crate::commands::{Ask, NewAttempt};
use crate::definition::{
    ActionExecution, Agent, CancellationSource, Checkpoint, CustomNode, ExpectedOutput, Node,
    NodeError, NodeKind, NodeStep, NotificationKind, Notify, ParseLineFunction, ShellAction,
    TextFunction, TimeBudget, ValueFunction,
};
use crate::error::WorkflowError;
use crate::model::{ExecutionMode, RequestKind};
use crate::shell;
use crate::updates::Publisher;

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
    Ask(Ask),
    /// The origin session is to be shown a text.
    Notify {
        kind: NotificationKind,
        text: String,
    },
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

/// How a node ended, and what an agent was told before.
#[derive(Debug)]
pub(super) struct NodeEnd {
    pub(super) ended: Ended,
    pub(super) prompt: Option<String>,
}

impl From<Ended> for NodeEnd {
    fn from(ended: Ended) -> Self {
        Self {
            ended,
            prompt: None,
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
    /// Who executes the agents of headless runs.
    pub(super) agents: Option<&'a Arc<dyn AgentExecutor>>,
    /// Where its updates go.
    pub(super) publisher: Publisher,
}

impl NodeRun<'_> {
    pub(super) fn run(
        &self,
        executor: &mut Executor,
        deadlines: &Deadlines,
    ) -> Result<NodeEnd, WorkflowError> {
        let _armed = match self.attempt.timeout {
            Some(TimeBudget::Millis(millis)) => Some(deadlines.arm(millis, self.source)),
            Some(TimeBudget::Unlimited) | None => None,
        };
        let ended = match &self.node.kind {
            NodeKind::Agent(agent) => return self.agent(executor, agent),
            NodeKind::Notify(notify) => self.notify(executor, notify),
            NodeKind::Custom(custom) => self.custom(executor, custom),
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
        };
        ended.map(NodeEnd::from)
    }

    /// An agent: the origin session is asked, or an executor of the program does the work.
    fn agent(&self, executor: &mut Executor, agent: &Agent) -> Result<NodeEnd, WorkflowError> {
        let prompt = match self.text(executor, &agent.prompt)? {
            Ok(prompt) => prompt,
            Err(ended) => return Ok(ended.into()),
        };
        let ended = match self.facts.mode {
            ExecutionMode::Interactive => Ended::Ask(self.asking(agent, &prompt)),
            ExecutionMode::Headless => self.execute_agent(executor, agent, &prompt)?,
        };
        let prompt = Some(prompt);
        Ok(NodeEnd { ended, prompt })
    }

    /// What the origin session is asked.
    fn asking(&self, agent: &Agent, prompt: &str) -> Ask {
        let (kind, expected) = match &agent.expected {
            ExpectedOutput::Submitted { description, .. } => {
                (RequestKind::Agent, json!(description))
            }
            ExpectedOutput::AssistantMessage { max_chars } => (
                RequestKind::Assistant,
                json!({ "kind": "assistant-message", "maxChars": max_chars }),
            ),
        };
        let contract = json!({
            "kind": kind,
            "nodeId": self.node.id,
            "prompt": prompt,
            "expectedOutput": expected,
            "title": self.facts.title,
        });
        Ask::new(kind, contract).prompting(prompt.to_owned())
    }

    fn execute_agent(
        &self,
        executor: &mut Executor,
        agent: &Agent,
        prompt: &str,
    ) -> Result<Ended, WorkflowError> {
        let ExpectedOutput::Submitted {
            description,
            validate,
        } = &agent.expected
        else {
            return Ok(Ended::error(NodeError::named(
                "NoOriginSession",
                "the next visible text of an origin session is the output of this node, and a headless run has no such session",
            )));
        };
        let Some(agents) = self.agents else {
            return Ok(Ended::error(NodeError::named(
                "NoAgentExecutor",
                "this program has no executor for the agents of headless runs",
            )));
        };
        let (agents, validate) = (Arc::clone(agents), validate.clone());
        let request = AgentRequest {
            run_id: self.facts.run_id.clone(),
            node_id: self.attempt.node_id.clone(),
            attempt_id: self.attempt.attempt_id.clone(),
            visit: self.attempt.visit,
            prompt: prompt.to_owned(),
            expected_output: description.clone(),
            title: self.facts.title.clone(),
        };
        let scene = self.scene();
        let ran = executor.run(&self.source.signal(), SHELL_GRACE, move || {
            let context = scene.context();
            let publish = |update_type: &str, key: &str, data: Value| {
                context.publish(update_type, key, &data)
            };
            match agents.execute(&request, &context.cancellation, &publish) {
                Err(AgentFailure { error, receipt }) => Ended::Error { error, receipt },
                Ok(AgentReply { output, receipt }) => {
                    let receipt = Some(receipt);
                    let output = match output {
                        Value::String(text) => extract(&text),
                        output => output,
                    };
                    let judged = match &validate {
                        None => Ok(output),
                        Some(validate) => validate(&context, output),
                    };
                    match judged {
                        Ok(output) => Ended::Value { output, receipt },
                        Err(error) => Ended::Error { error, receipt },
                    }
                }
            }
        })?;
        Ok(of_ran(ran))
    }

    fn notify(&self, executor: &mut Executor, notify: &Notify) -> Result<Ended, WorkflowError> {
        if self.facts.mode == ExecutionMode::Headless {
            return Ok(Ended::error(NodeError::named(
                "NoOriginSession",
                "a notification is shown in the origin session, and a headless run has none",
            )));
        }
        Ok(match self.text(executor, &notify.message)? {
            Ok(text) if text.trim().is_empty() => Ended::error(NodeError::new(
                "the text of a notification must not be blank",
            )),
            Ok(text) => Ended::Notify {
                kind: notify.kind,
                text,
            },
            Err(ended) => ended,
        })
    }

    fn custom(
        &self,
        executor: &mut Executor,
        custom: &Arc<dyn CustomNode>,
    ) -> Result<Ended, WorkflowError> {
        let custom = Arc::clone(custom);
        let scene = self.scene();
        let node = self.node.id.clone();
        let ran = executor.run(&self.source.signal(), GRACE, move || {
            match custom.execute(&scene.context()) {
                Ok(NodeStep::Output(output)) => Ended::Value {
                    output,
                    receipt: None,
                },
                Ok(NodeStep::Park(park)) => {
                    let contract = json!({
                        "kind": if park.is_decision { RequestKind::Decision } else { RequestKind::External },
                        "nodeId": node,
                        "nodeType": custom.node_type(),
                        "request": park.contract,
                    });
                    Ended::Ask(Ask::parked(park, contract))
                }
                Err(error) => Ended::error(error),
            }
        })?;
        Ok(of_ran(ran))
    }

    /// Makes a text by a function of the author, or says how the node ended instead.
    fn text(
        &self,
        executor: &mut Executor,
        function: &TextFunction,
    ) -> Result<Result<String, Ended>, WorkflowError> {
        let function = Arc::clone(function);
        let scene = self.scene();
        let ran = executor.run(&self.source.signal(), GRACE, move || {
            function(&scene.context())
        })?;
        Ok(match ran {
            Ran::Done(Ok(text)) => Ok(text),
            Ran::Done(Err(error)) => Err(Ended::error(error)),
            Ran::Panicked(text) => Err(Ended::error(NodeError::named("Panic", text))),
            Ran::Abandoned => Err(Ended::Unknown),
        })
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
        let contract = json!({
            "kind": "checkpoint",
            "nodeId": self.node.id,
            "summary": checkpoint.summary,
            "request": request,
        });
        Ok(Ended::Ask(Ask::new(RequestKind::Checkpoint, contract)))
    }

    fn shell(&self, executor: &mut Executor, action: &ShellAction) -> Result<Ended, WorkflowError> {
        let action = action.clone();
        let scene = Arc::new(self.scene());
        let ran = executor.run(&self.source.signal(), SHELL_GRACE, move || {
            let context = scene.context();
            let command = match (action.exec)(&context) {
                Ok(command) => command,
                Err(error) => return Ended::error(error),
            };
            let run = match &action.updates {
                None => shell::run(&command, &context.cancellation),
                Some(updates) => {
                    let take = publish_lines(Arc::clone(&scene), &updates.parse_line);
                    shell::run_reading_lines(&command, &context.cancellation, updates.streams, take)
                }
            };
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
        Ok(of_ran(ran))
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
            publisher: self.publisher.clone(),
        }
    }
}

/// Takes the lines of a command: each is made updates of by the author's function, and those are published.
fn publish_lines(scene: Arc<Scene>, parse_line: &ParseLineFunction) -> shell::TakeLine {
    let parse_line = Arc::clone(parse_line);
    Arc::new(move |stream, line| {
        let context = scene.context();
        // Lines are read on a thread of the command, where nobody else would see the panic.
        let parsed = catch_unwind(AssertUnwindSafe(|| parse_line(&context, stream, line)))
            .map_err(|panic| NodeError::named("Panic", super::panic_text(&*panic)))?;
        for update in parsed? {
            context.publisher.publish(update)?;
        }
        Ok(())
    })
}

fn of_ran(ran: Ran<Ended>) -> Ended {
    match ran {
        Ran::Done(ended) => ended,
        Ran::Panicked(text) => Ended::error(NodeError::named("Panic", text)),
        Ran::Abandoned => Ended::Unknown,
    }
}

/// What the node's thread holds of the run.
struct Scene {
    facts: Arc<Facts>,
    attempt: NewAttempt,
    signal: crate::definition::CancellationSignal,
    effect_id: Option<String>,
    publisher: Publisher,
}

impl Scene {
    fn context(&self) -> crate::definition::NodeContext<'_> {
        let mut context = self.facts.context(
            (&self.attempt.node_id, &self.attempt.attempt_id),
            self.attempt.visit,
            self.signal.clone(),
            self.effect_id.as_deref(),
        );
        context.publisher = self.publisher.clone();
        context
    }
}

/// The execution that an applied effect stored.
pub(crate) fn execution(output: &Value, receipt: Option<&Value>) -> Value {
    json!({ "output": output, "receipt": receipt })
}

/// An earlier act of this visit was applied: its result is the output, and nothing acts again.
fn adopted(result: Option<&[u8]>) -> Ended {
    match adopted_value(result) {
        Ok((output, receipt)) => Ended::Value { output, receipt },
        Err(error) => Ended::error(NodeError::new(format!(
            "the stored result can't be read: {error}"
        ))),
    }
}

/// Output and receipt of what an effect stored.
pub(crate) fn adopted_value(
    result: Option<&[u8]>,
) -> Result<(Value, Option<Value>), serde_json::Error> {
    let Some(bytes) = result else {
        return Ok((Value::Null, None));
    };
    Ok(match serde_json::from_slice::<Value>(bytes)? {
        Value::Object(mut execution) if execution.contains_key("output") => (
            execution.remove("output").unwrap_or_default(),
            execution
                .remove("receipt")
                .filter(|receipt| !receipt.is_null()),
        ),
        // A person who confirmed it gave the output itself.
        output => (output, None),
    })
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
