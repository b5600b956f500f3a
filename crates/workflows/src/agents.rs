//! Executors of agent steps without an origin session: what a step asks, what it gets back, and who does the work.
//!
//! The engine turns a node into an [`AgentRequest`], hands it to the [`AgentExecutor`] of the program, and commits what comes
//! back. Not here: any knowledge of the database, the time budget of a step (the engine raises the signal), validation of an
//! output (the node's own `validate`, run by the engine).

mod command;
mod extract;
mod pi;

use serde_json::Value;

pub use command::CommandAgent;
pub use extract::extract;
pub use pi::PiAgent;

use crate::definition::{CancellationSignal, NodeError};
use crate::id::{AttemptId, NodeId, RunId};

/// What an agent step asks of whoever executes it.
#[derive(Debug, Clone)]
pub struct AgentRequest {
    /// The run.
    pub run_id: RunId,
    /// The node.
    pub node_id: NodeId,
    /// The attempt. Only while it is the current one of its run does what an executor gives count.
    pub attempt_id: AttemptId,
    /// How often the run has come to the node, from 1.
    pub visit: u32,
    /// What the agent is told to do.
    pub prompt: String,
    /// What the author says of the output that is wanted; none: any.
    pub expected_output: Option<String>,
    /// The title of the run, for people who look at what agents do.
    pub title: Option<String>,
}

/// What an agent gave.
#[derive(Debug, Clone)]
pub struct AgentReply {
    /// The output. A reply in text is a [`Value::String`]; the engine extracts JSON from text.
    pub output: Value,
    /// What is kept of the execution: an object that says how the output came about.
    pub receipt: Value,
}

/// Takes the progress that an agent publishes while it works: type, key, data. An error refuses the update.
pub type PublishUpdate<'a> = &'a (dyn Fn(&str, &str, Value) -> Result<(), NodeError> + Sync);

/// Executes agent steps without an origin session.
pub trait AgentExecutor: Send + Sync {
    /// Runs one step to its end; returns early with [`NodeError::stopped`] when the signal is raised.
    ///
    /// Blocks. When it returns, nothing that it started acts any more.
    ///
    /// # Errors
    ///
    /// [`AgentFailure`]: why there is no output, with the receipt of what was done until then.
    fn execute(
        &self,
        request: &AgentRequest,
        cancellation: &CancellationSignal,
        update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure>;
}

/// Why an agent step has no output.
#[derive(Debug, Clone)]
pub struct AgentFailure {
    /// The error of the node; its outcome is that of the error.
    pub error: NodeError,
    /// What is kept of the execution until the failure, if it got so far.
    pub receipt: Option<Value>,
}
