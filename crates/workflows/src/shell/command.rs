//! What a shell action asks for, and what it gets back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How many characters of each stream are kept unless the command says otherwise.
pub const DEFAULT_MAX_OUTPUT_CHARS: usize = 1_000_000;

/// A command with its arguments. Nothing here passes through a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCommand {
    /// The program: a path, or a name to look up in `PATH`.
    pub command: String,
    /// Its arguments, each passed as it is.
    pub args: Vec<String>,
    /// Where it runs; without it, where the engine runs.
    pub cwd: Option<PathBuf>,
    /// Variables to add to the environment of the engine, or to replace in it.
    pub env: BTreeMap<String, String>,
    /// What it reads on standard input; without it, nothing. It is in no receipt.
    pub stdin: Option<String>,
    /// Whether an exit status other than 0, or a signal, is an ordinary result.
    pub allow_non_zero_exit: bool,
    /// How many characters of standard output, and of standard error, are kept.
    pub max_output_chars: usize,
    /// Whether a command that goes on writing after its standard output can't be kept whole any more is stopped.
    pub stops_when_full: bool,
}

impl ShellCommand {
    /// A command without arguments, in the directory and environment of the engine.
    pub fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            args: Vec::new(),
            cwd: None,
            env: BTreeMap::new(),
            stdin: None,
            allow_non_zero_exit: false,
            max_output_chars: DEFAULT_MAX_OUTPUT_CHARS,
            stops_when_full: false,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets the directory.
    #[must_use]
    pub fn cwd(mut self, cwd: impl Into<PathBuf>) -> Self {
        self.cwd = Some(cwd.into());
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets what it reads on standard input. It need not read it.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<String>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Makes an exit status other than 0, or a signal, an ordinary result.
    #[must_use]
    pub fn allow_non_zero_exit(mut self) -> Self {
        self.allow_non_zero_exit = true;
        self
    }

    /// Sets how many characters of each stream are kept.
    #[must_use]
    pub fn max_output_chars(mut self, chars: usize) -> Self {
        self.max_output_chars = chars;
        self
    }

    /// Stops the command, and fails, when it goes on writing although its standard output can't be kept whole any more. It is stopped
    /// at four bytes for each character at the latest.
    #[must_use]
    pub fn stop_when_full(mut self) -> Self {
        self.stops_when_full = true;
        self
    }
}

/// What is kept of a shell action, also of one that failed or could not start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellReceipt {
    /// Always `shell`.
    pub action_type: ShellActionType,
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Where it ran.
    pub cwd: String,
    /// Its exit status, if it exited.
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it, if one did.
    pub signal: Option<String>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// The word `shell`, so that a receipt of another action can't be read as one of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellActionType {
    /// `shell`.
    #[default]
    Shell,
}

/// What a command wrote and how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShellResult {
    /// Standard output, cut with a marker if it was too long. Bytes that are no UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Whether standard output was cut.
    pub stdout_truncated: bool,
    /// Whether standard error was cut.
    pub stderr_truncated: bool,
    /// The exit status, if the command exited.
    pub exit_code: Option<i32>,
    /// The name of the signal that ended it, if one did.
    pub signal: Option<String>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}
