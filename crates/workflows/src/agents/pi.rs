//! Executes agent steps with pi (`@mariozechner/pi-coding-agent`, 0.73.1) in its RPC mode.
//!
//! One process for each step: the prompt goes in, the last thing that the model says is the output. Rooms: `framing` cuts the
//! stream into records, `record` has their shape, `dialogue` their meaning, `peer` the process. Not here: what the output means
//! (the engine finds the JSON in it), time budgets (the engine raises the signal), keys of providers (pi's own configuration).

mod dialogue;
mod error;
mod framing;
mod peer;
mod record;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::dialogue::{Dialogue, Facts, Step};
use self::error::PiError;
use self::peer::{End, Farewell, Heard, Peer};
use super::command::variables;
use super::{AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate};
use crate::definition::{CancellationSignal, StopReason};
use crate::shell::{DEFAULT_MAX_OUTPUT_CHARS, millis, now, signal_name};

/// How long pi has to end its work after it was told to abort. What it had to say until then is in the receipt.
const ABORT_GRACE: Duration = Duration::from_millis(500);

/// The type of the update that tells how far an agent is, and its key.
const ACTIVITY: (&str, &str) = ("agent.activity", "overall");

/// Executes each step by one process of `pi --mode rpc`.
///
/// Pi finds models, keys and settings as it does for its user: in the directory that `PI_CODING_AGENT_DIR` names (set it with
/// [`PiAgent::env`]), else in the home of the user. Extensions that want to ask somebody are told that nobody answers.
///
/// ```
/// use holdpoint_workflows::agents::PiAgent;
///
/// let agent = PiAgent::new("pi")
///     .provider("ollama")
///     .model("qwen2.5-coder:7b")
///     .args(["--no-extensions", "--tools", "read,grep,find,ls"])
///     .cwd("/srv/checkout")
///     .session_dir("/srv/sessions");
/// # let _ = agent;
/// ```
#[derive(Debug, Clone)]
pub struct PiAgent {
    program: PathBuf,
    args: Vec<String>,
    cwd: Option<PathBuf>,
    env: BTreeMap<String, String>,
    provider: Option<String>,
    model: Option<String>,
    session_dir: Option<PathBuf>,
    max_reply_chars: usize,
}

impl PiAgent {
    /// An executor that runs this program: a path, or a name to look up in `PATH`. It keeps no sessions unless told where.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            cwd: None,
            env: BTreeMap::new(),
            provider: None,
            model: None,
            session_dir: None,
            max_reply_chars: DEFAULT_MAX_OUTPUT_CHARS,
        }
    }

    /// Sets the provider (`--provider`).
    #[must_use]
    pub fn provider(mut self, provider: impl Into<String>) -> Self {
        self.provider = Some(provider.into());
        self
    }

    /// Sets the model (`--model`).
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Adds arguments, each passed as it is.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the directory that the agent works in; without it, the one of this program.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets a variable. Those named `HOLDPOINT_…` in [`CommandAgent`](super::CommandAgent) are the executor's own.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Keeps the session of each step as a file in this directory; its path is in the receipt.
    #[must_use]
    pub fn session_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.session_dir = Some(directory.into());
        self
    }

    /// Sets how many characters the reply may have; 1,000,000 unless said. A longer one is a failure.
    #[must_use]
    pub fn max_reply_chars(mut self, chars: usize) -> Self {
        self.max_reply_chars = chars;
        self
    }

    fn command(&self, request: &AgentRequest) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--mode", "rpc"]);
        for (option, value) in [("--provider", &self.provider), ("--model", &self.model)] {
            if let Some(value) = value {
                command.arg(option).arg(value);
            }
        }
        match &self.session_dir {
            Some(directory) => command.arg("--session-dir").arg(directory),
            None => command.arg("--no-session"),
        };
        command
            .args(&self.args)
            .envs(&self.env)
            .envs(variables(request));
        if let Some(cwd) = &self.cwd {
            command.current_dir(cwd);
        }
        command
    }

    fn receipt(&self, facts: &Facts, end: &End, began: Instant) -> Value {
        let ending = end.ending;
        json!({
            "executor": "pi",
            "program": self.program.to_string_lossy(),
            "provider": facts.provider,
            "model": facts.model,
            "stopReason": facts.stop_reason,
            "error": facts.error,
            "turns": facts.turns,
            "toolCalls": facts.tool_calls,
            "toolErrors": facts.tool_errors,
            "retries": facts.retries,
            "compactions": facts.compactions,
            "usage": facts.usage,
            "sessionId": facts.session_id,
            "sessionFile": facts.session_file,
            "exitCode": ending.and_then(|ending| ending.exit_code),
            "signal": ending.and_then(|ending| ending.signal).map(signal_name),
            "durationMs": millis(now().duration_since(began)),
        })
    }
}

impl AgentExecutor for PiAgent {
    fn execute(
        &self,
        request: &AgentRequest,
        cancellation: &CancellationSignal,
        update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        let began = now();
        let mut dialogue = Dialogue::default();
        if let Some(reason) = cancellation.reason() {
            return Err(AgentFailure {
                error: PiError::Stopped(reason).into_node_error(),
                receipt: None,
            });
        }
        let spawned = Peer::spawn(&mut self.command(request)).map_err(|error| PiError::Spawn {
            program: self.program.to_string_lossy().into_owned(),
            error: error.to_string(),
        });
        let (result, end) = match spawned {
            Err(error) => (Err(error), End::default()),
            Ok(peer) => {
                let _guard = cancellation.watch(peer.stopper());
                let result = converse(&peer, &mut dialogue, &instructions(request), update);
                let end = peer.end(match result {
                    Ok(()) => Farewell::Close,
                    Err(_) => Farewell::Terminate,
                });
                (result, end)
            }
        };
        let receipt = self.receipt(dialogue.facts(), &end, began);
        match result
            .map_err(|error| blame(error, &end))
            .and_then(|()| dialogue.reply(self.max_reply_chars))
        {
            Ok(text) => Ok(AgentReply {
                output: Value::String(text),
                receipt,
            }),
            Err(error) => Err(AgentFailure {
                error: error.into_node_error(),
                receipt: Some(receipt),
            }),
        }
    }
}

/// Talks with pi until its work is settled.
fn converse(
    peer: &Peer,
    dialogue: &mut Dialogue,
    prompt: &str,
    update: PublishUpdate<'_>,
) -> Result<(), PiError> {
    let mut stopped: Option<StopReason> = None;
    let mut until: Option<Instant> = None;
    // To one that is being stopped nothing needs to be said: what does not listen gets signals.
    let say = |command: &Value, stopped: Option<StopReason>| {
        if peer.say(command) {
            Ok(())
        } else {
            Err(stopped.map_or_else(
                || PiError::Protocol {
                    problem: "it does not read what it is told".to_owned(),
                },
                PiError::Stopped,
            ))
        }
    };
    say(&Dialogue::prompt(prompt), None)?;
    loop {
        let step = match peer.listen(until) {
            Heard::Stopped(reason) => {
                stopped = Some(reason);
                until = Some(now() + ABORT_GRACE);
                Some(Step::Say(Dialogue::abort()))
            }
            Heard::Record(record) => match (dialogue.hear(&record), stopped) {
                (Ok(step), _) => step,
                (Err(_), Some(reason)) => return Err(PiError::Stopped(reason)),
                (Err(error), None) => return Err(error),
            },
            Heard::Ended => {
                return Err(stopped.map_or(
                    PiError::Exited {
                        ending: String::new(),
                        stderr: String::new(),
                    },
                    PiError::Stopped,
                ));
            }
            Heard::TimeUp => Some(Step::Settled),
        };
        match (step, stopped) {
            (Some(Step::Settled), Some(reason)) => return Err(PiError::Stopped(reason)),
            (Some(Step::Settled), None) => return Ok(()),
            (Some(Step::Say(command)), stopped) => say(&command, stopped)?,
            (Some(Step::Progress), None) => publish(dialogue.facts(), update),
            (Some(Step::Progress), Some(_)) | (None, _) => {}
        }
    }
}

/// Tells how far the agent is. A refusal, such as that of a rate, changes nothing about the work.
fn publish(facts: &Facts, update: PublishUpdate<'_>) {
    let (kind, key) = ACTIVITY;
    let data = json!({
        "turns": facts.turns,
        "toolCalls": facts.tool_calls,
        "toolErrors": facts.tool_errors,
        "lastTool": facts.last_tool,
    });
    if let Err(error) = update(kind, key, data) {
        tracing::debug!(%error, "the activity of an agent was not published");
    }
}

/// Says of a process that ended too early how it ended, which is known only now.
fn blame(error: PiError, end: &End) -> PiError {
    let PiError::Exited { .. } = error else {
        return error;
    };
    let ending = end.ending.map(|ending| (ending.exit_code, ending.signal));
    PiError::Exited {
        ending: match ending {
            Some((Some(code), _)) => format!("exited with status {code}"),
            Some((None, Some(signal))) => format!("was ended by {}", signal_name(signal)),
            Some((None, None)) | None => "ended in an unknown way".to_owned(),
        },
        stderr: end.stderr.clone(),
    }
}

/// The prompt of a step without a person: the author's text, and how to answer.
///
/// It never begins with the author's text, since pi takes a prompt that begins with a slash for a command.
fn instructions(request: &AgentRequest) -> String {
    let wanted = match &request.expected_output {
        Some(expected) => format!(
            "It must be: {expected}\n\nIf that is data, write exactly one JSON value in that message and nothing around it."
        ),
        None => "Say in it what came of the task.".to_owned(),
    };
    format!(
        "You carry out one step of a workflow. Nobody can answer a question: decide what is open yourself, and finish the \
         step.\n\n# Task\n\n{}\n\n# Answer\n\nThe text of your last message is the output of the step. {wanted}",
        request.prompt
    )
}
