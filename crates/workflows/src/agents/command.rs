//! Executes agent steps with a command of the program's choice: prompt in, answer out.
//!
//! The command runs as a shell action does ([`crate::shell`]): without a shell, in a process group of its own, stopped by
//! SIGTERM and one second later SIGKILL. Not here: what the answer means; the engine finds the JSON in a text.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::{AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate};
use crate::definition::{CancellationSignal, NodeError};
use crate::shell::{self, DEFAULT_MAX_OUTPUT_CHARS, ShellCommand, ShellReceipt};

/// Executes each step by one run of a command.
///
/// The prompt is what the command reads on standard input. What it writes to standard output is the reply: one JSON value, or
/// text. An exit status other than 0 is a failure with the end of standard error as its message. The environment is that of this
/// program with what [`CommandAgent::env`] adds, and
///
/// | variable | what it holds |
/// | --- | --- |
/// | `HOLDPOINT_RUN_ID`, `HOLDPOINT_NODE_ID`, `HOLDPOINT_ATTEMPT_ID` | the ids |
/// | `HOLDPOINT_VISIT` | the visit, from 1 |
/// | `HOLDPOINT_EXPECTED_OUTPUT` | what the author says of the output, where something is said |
/// | `HOLDPOINT_TITLE` | the title of the run, where it has one |
///
/// ```
/// use holdpoint_workflows::agents::CommandAgent;
///
/// let agent = CommandAgent::new(["my-agent", "--answer", "json"]).env("MODEL", "small");
/// # let _ = agent;
/// ```
#[derive(Debug, Clone)]
pub struct CommandAgent {
    argv: Vec<String>,
    cwd: Option<PathBuf>,
    env: BTreeMap<String, String>,
    max_output_chars: usize,
}

impl CommandAgent {
    /// An executor that runs a program with its arguments, each passed as it is.
    pub fn new<A: Into<String>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env: BTreeMap::new(),
            max_output_chars: DEFAULT_MAX_OUTPUT_CHARS,
        }
    }

    /// Sets where the command runs; without it, where this program runs.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets a variable. Those named `HOLDPOINT_…` above are the executor's own.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets how many characters the reply may have; 1,000,000 unless said. A longer one is a failure: the beginning of an
    /// answer is not the answer.
    #[must_use]
    pub fn max_output_chars(mut self, chars: usize) -> Self {
        self.max_output_chars = chars;
        self
    }

    fn command(&self, request: &AgentRequest) -> Option<ShellCommand> {
        let (program, args) = self.argv.split_first()?;
        let mut command = ShellCommand::new(program)
            .args(args)
            .stdin(request.prompt.clone())
            .max_output_chars(self.max_output_chars);
        command.cwd.clone_from(&self.cwd);
        command.env.clone_from(&self.env);
        command.env.extend(variables(request));
        Some(command)
    }
}

/// What the environment says of a step.
pub(super) fn variables(request: &AgentRequest) -> BTreeMap<String, String> {
    let said = [
        ("RUN_ID", Some(request.run_id.to_string())),
        ("NODE_ID", Some(request.node_id.to_string())),
        ("ATTEMPT_ID", Some(request.attempt_id.to_string())),
        ("VISIT", Some(request.visit.to_string())),
        ("EXPECTED_OUTPUT", request.expected_output.clone()),
        ("TITLE", request.title.clone()),
    ];
    said.into_iter()
        .filter_map(|(name, value)| {
            // A variable can't hold a zero byte, and a title with one is no reason not to start.
            Some((
                format!("HOLDPOINT_{name}"),
                value?.replace('\0', "\u{fffd}"),
            ))
        })
        .collect()
}

impl AgentExecutor for CommandAgent {
    fn execute(
        &self,
        request: &AgentRequest,
        cancellation: &CancellationSignal,
        _update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let command = self.command(request).ok_or_else(|| AgentFailure {
            error: NodeError::named("SpawnError", "the command of the agent is empty"),
            receipt: None,
        })?;
        let run = shell::run(&command, cancellation);
        let receipt = receipt(&run.receipt);
        let failure = |error| AgentFailure {
            error,
            receipt: Some(receipt.clone()),
        };
        let result = run
            .result
            .map_err(|error| failure(error.into_node_error()))?;
        if result.stdout_truncated {
            return Err(failure(NodeError::named(
                "ReplyTooLarge",
                format!(
                    "the reply has more than {} characters",
                    self.max_output_chars
                ),
            )));
        }
        let output = match serde_json::from_str(result.stdout.trim()) {
            Ok(value) => value,
            Err(_) => Value::String(result.stdout),
        };
        Ok(AgentReply { output, receipt })
    }
}

fn receipt(ran: &ShellReceipt) -> Value {
    json!({
        "executor": "command",
        "command": ran.command,
        "args": ran.args,
        "cwd": ran.cwd,
        "exitCode": ran.exit_code,
        "signal": ran.signal,
        "durationMs": ran.duration_ms,
    })
}
