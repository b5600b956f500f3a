//! Executes agent steps with a command of the program's choice: prompt in, answer out.
//!
//! The command runs as a shell action does ([`crate::shell`]): without a shell, in a process group of its own, stopped by
//! SIGTERM and one second later SIGKILL. Not here: what the answer means; the engine finds the JSON in a text.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate};
use crate::definition::{CancellationSignal, NodeError};
use crate::shell::{
    self, DEFAULT_MAX_OUTPUT_CHARS, ShellCommand, ShellFailure, ShellReceipt, ShellRun, Streams,
    TakeLine,
};

/// How a line of standard error begins that is an update.
const UPDATE: &str = "HOLDPOINT_UPDATE ";

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
    reads_updates: bool,
}

impl CommandAgent {
    /// An executor that runs a program with its arguments, each passed as it is.
    pub fn new<A: Into<String>>(argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: None,
            env: BTreeMap::new(),
            max_output_chars: DEFAULT_MAX_OUTPUT_CHARS,
            reads_updates: false,
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
    /// answer is not the answer. A command that goes on writing is stopped.
    #[must_use]
    pub fn max_output_chars(mut self, chars: usize) -> Self {
        self.max_output_chars = chars;
        self
    }

    /// Publishes each line of standard error that says `HOLDPOINT_UPDATE {"type": …, "key": …, "data": …}` as progress.
    ///
    /// Standard error is read by the rules of update lines then: UTF-8, at most 64 KiB to a line. A line that breaks them, says an
    /// update in another form, or says one that is refused, stops the command and fails the step.
    #[must_use]
    pub fn reading_updates(mut self) -> Self {
        self.reads_updates = true;
        self
    }

    fn run(
        &self,
        command: &ShellCommand,
        cancellation: &CancellationSignal,
        update: PublishUpdate<'_>,
    ) -> Option<ShellRun> {
        if self.reads_updates {
            run_publishing(command, cancellation, update)
        } else {
            Some(shell::run(command, cancellation))
        }
    }

    fn command(&self, request: &AgentRequest) -> Option<ShellCommand> {
        let (program, args) = self.argv.split_first()?;
        let mut command = ShellCommand::new(program)
            .args(args)
            .stdin(request.prompt.clone())
            .max_output_chars(self.max_output_chars)
            .stop_when_full();
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
        update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let command = self.command(request).ok_or_else(|| AgentFailure {
            error: NodeError::named("SpawnError", "the command of the agent is empty"),
            receipt: None,
        })?;
        let run = self
            .run(&command, cancellation, update)
            .ok_or_else(|| AgentFailure {
                error: NodeError::named("Panic", "BUG: the command's thread is gone"),
                receipt: None,
            })?;
        let receipt = receipt(&run.receipt);
        let failure = |error| AgentFailure {
            error,
            receipt: Some(receipt.clone()),
        };
        let too_large = || {
            let problem = format!(
                "the reply has more than {} characters",
                self.max_output_chars
            );
            failure(NodeError::named("ReplyTooLarge", problem))
        };
        let result = run.result.map_err(|error| match error {
            // It would write until its time is spent.
            ShellFailure::Full { .. } => too_large(),
            error => failure(error.into_node_error()),
        })?;
        if result.stdout_truncated {
            return Err(too_large());
        }
        let output = match serde_json::from_str(result.stdout.trim()) {
            Ok(value) => value,
            Err(_) => Value::String(result.stdout),
        };
        Ok(AgentReply { output, receipt })
    }
}

/// An update as a line says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Update {
    #[serde(rename = "type")]
    kind: String,
    key: String,
    data: Value,
}

/// What the threads of a command tell the thread that may publish.
enum Told {
    /// An update, and who waits for the verdict.
    Update(Update, SyncSender<Result<(), NodeError>>),
    /// The command is over.
    Over(ShellRun),
}

/// Runs a command on another thread, since this one has the right to publish what it says. Nothing only if that thread panics.
fn run_publishing(
    command: &ShellCommand,
    cancellation: &CancellationSignal,
    update: PublishUpdate<'_>,
) -> Option<ShellRun> {
    let (over, told) = sync_channel(0);
    let lines = over.clone();
    let take: TakeLine = Arc::new(move |_, line| {
        let Some(said) = line.strip_prefix(UPDATE) else {
            return Ok(());
        };
        let said: Update = serde_json::from_str(said)?;
        let (verdict, answered) = sync_channel(1);
        // Nobody listens when the command is over: a descendant still has the stream.
        if lines.send(Told::Update(said, verdict)).is_err() {
            return Ok(());
        }
        answered.recv().unwrap_or(Ok(()))
    });
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let run = shell::run_reading_lines(command, cancellation, Streams::Stderr, take);
            let _gone = over.send(Told::Over(run));
        });
        for told in told {
            match told {
                Told::Over(run) => return Some(run),
                Told::Update(said, verdict) => {
                    let _gone = verdict.send(update(&said.kind, &said.key, said.data));
                }
            }
        }
        None
    })
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
