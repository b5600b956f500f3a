//! Runs one command to its end, or stops it with all that it started.
//!
//! The command leads a process group of its own. A stop is SIGTERM to the group and SIGKILL after
//! [`KILL_AFTER`]; a stopped run gives its receipt at most [`RECEIPT_GRACE`] after the stop, also when
//! some process that left the group holds a pipe open. When the leader has exited, what it left in
//! its group gets the same grace to close the pipes and is then killed: the effect of an action must
//! not go on after its receipt.
//!
//! Signals are only sent while the leader is not reaped, so the group number can't belong to
//! strangers.

use std::io::{self, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::command::{ShellActionType, ShellCommand, ShellReceipt, ShellResult};
use super::lines::{LineReader, Lines, Stream, Streams, TakeLine};
use super::output::Captured;
use crate::definition::{CancellationSignal, NodeError, StopReason};

/// How long after SIGTERM the group gets SIGKILL.
pub(crate) const KILL_AFTER: Duration = Duration::from_secs(1);

/// How long after a stop, or after the end of the leader, the pipes may stay open.
pub(crate) const RECEIPT_GRACE: Duration = Duration::from_secs(2);

/// How a shell action ended. There is a receipt whatever happened.
#[derive(Debug, Clone, PartialEq)]
pub struct ShellRun {
    /// What is kept of it.
    pub receipt: ShellReceipt,
    /// What it wrote, or why the node does not succeed.
    pub result: Result<ShellResult, ShellFailure>,
}

/// Why a shell action did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellFailure {
    /// The command did not start.
    #[error("command {command:?} did not start: {error}")]
    Spawn {
        /// The program.
        command: String,
        /// The error of the system.
        error: String,
    },
    /// The command ended with another status than 0, or by a signal.
    #[error("command {command:?} {ending}{}", stderr_tail(.stderr))]
    Exit {
        /// The program.
        command: String,
        /// How it ended, in words.
        ending: String,
        /// The end of what it wrote to standard error.
        stderr: String,
    },
    /// The command was stopped, and everything in its group with it.
    #[error("command {command:?} was stopped")]
    Stopped {
        /// The program.
        command: String,
        /// Who stopped it.
        reason: StopReason,
    },
    /// A line of its output was refused, and the command and everything in its group was stopped.
    #[error("command {command:?} was stopped: {error}")]
    Line {
        /// The program.
        command: String,
        /// What was wrong with the line.
        error: NodeError,
    },
    /// It wrote more than is kept, went on, and was stopped with everything in its group.
    #[error(
        "command {command:?} was stopped: it wrote more than {max_chars} characters and went on"
    )]
    Full {
        /// The program.
        command: String,
        /// How much is kept.
        max_chars: usize,
    },
    /// Its end could not be observed.
    #[error("command {command:?} could not be waited for: {error}")]
    Wait {
        /// The program.
        command: String,
        /// The error of the system.
        error: String,
    },
}

fn stderr_tail(stderr: &str) -> String {
    if stderr.is_empty() {
        String::new()
    } else {
        format!(": {stderr}")
    }
}

impl ShellFailure {
    /// The error of the node, with the outcome that fits.
    pub fn into_node_error(self) -> NodeError {
        match &self {
            Self::Stopped { reason, .. } => NodeError::stopped(*reason),
            Self::Line { error, .. } => error.clone(),
            Self::Spawn { .. } => NodeError::named("SpawnError", self.to_string()),
            Self::Exit { .. } => NodeError::named("CommandFailed", self.to_string()),
            Self::Full { .. } => NodeError::named("OutputTooLarge", self.to_string()),
            Self::Wait { .. } => NodeError::named("WaitError", self.to_string()),
        }
    }
}

/// The longest character of UTF-8, in bytes.
const CHAR_BYTES_MAX: usize = 4;

enum Event {
    LineRefused(NodeError),
    Full,
    LeaderExited(Result<Ending, io::Error>),
    StreamClosed,
    Stop(StopReason),
}

/// How the leader of a group ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<i32>,
}

/// Runs a command until it ends or the signal stops it. Blocks.
pub fn run(command: &ShellCommand, cancellation: &CancellationSignal) -> ShellRun {
    run_with(command, cancellation, None)
}

/// The same, with a function that takes each line of some streams while the command runs; one that it refuses stops the command, and
/// so does one that is too long or no UTF-8.
///
/// The function is called on the thread that reads the stream: a command that writes faster than lines are taken waits.
pub fn run_reading_lines(
    command: &ShellCommand,
    cancellation: &CancellationSignal,
    streams: Streams,
    take: TakeLine,
) -> ShellRun {
    run_with(command, cancellation, Some(&Lines { streams, take }))
}

fn run_with(
    command: &ShellCommand,
    cancellation: &CancellationSignal,
    lines: Option<&Lines>,
) -> ShellRun {
    let began = now();
    let mut receipt = ShellReceipt {
        action_type: ShellActionType::Shell,
        command: command.command.clone(),
        args: command.args.clone(),
        cwd: directory(command),
        exit_code: None,
        signal: None,
        duration_ms: 0,
    };
    let result = supervise(command, cancellation, lines, &mut receipt);
    receipt.duration_ms = millis(now().duration_since(began));
    let result = result.map(|mut result| {
        result.duration_ms = receipt.duration_ms;
        result
    });
    ShellRun { receipt, result }
}

fn supervise(
    command: &ShellCommand,
    cancellation: &CancellationSignal,
    lines: Option<&Lines>,
    receipt: &mut ShellReceipt,
) -> Result<ShellResult, ShellFailure> {
    let program = || command.command.clone();
    if let Some(reason) = cancellation.reason() {
        return Err(ShellFailure::Stopped {
            command: program(),
            reason,
        });
    }
    let spawn_failed = |error: String| ShellFailure::Spawn {
        command: program(),
        error,
    };
    let mut child = spawn(command).map_err(|error| spawn_failed(error.to_string()))?;
    let group = Pid::from_child(&child);

    feed(child.stdin.take(), command.stdin.clone());
    let (sender, events) = mpsc::channel();
    let reader = |stream| lines.and_then(|lines| lines.reader(stream));
    let max_chars = command.max_output_chars;
    let full_after = command
        .stops_when_full
        .then(|| max_chars.saturating_mul(CHAR_BYTES_MAX));
    let stdout = capture(
        child.stdout.take(),
        (max_chars, full_after),
        reader(Stream::Stdout),
        &sender,
    );
    let stderr = capture(
        child.stderr.take(),
        (max_chars, None),
        reader(Stream::Stderr),
        &sender,
    );
    let exited = sender.clone();
    std::thread::spawn(move || {
        // Nobody listens any more when the receipt was given without the end.
        let _gone = exited.send(Event::LeaderExited(observe_exit(group)));
    });
    let _guard = cancellation.watch(move |reason| {
        let _gone = sender.send(Event::Stop(reason));
    });

    let settled = settle(&events, group);
    // What is left of the group goes before the leader is reaped, while the number is still its own.
    let _gone = kill_process_group(group, Signal::KILL);
    reap(child);

    let (stdout, stdout_truncated) = stdout.text(command.max_output_chars);
    let (stderr, stderr_truncated) = stderr.text(command.max_output_chars);
    if let Some(Ok(ending)) = &settled.ending {
        receipt.exit_code = ending.exit_code;
        receipt.signal = ending.signal.map(signal_name);
    }
    if let Some(reason) = settled.stopped {
        return Err(ShellFailure::Stopped {
            command: program(),
            reason,
        });
    }
    if settled.is_full {
        return Err(ShellFailure::Full {
            command: program(),
            max_chars,
        });
    }
    if let Some(error) = settled.refused {
        let command = program();
        return Err(ShellFailure::Line { command, error });
    }
    if let Some(Err(error)) = settled.ending {
        return Err(ShellFailure::Wait {
            command: program(),
            error: error.to_string(),
        });
    }
    if receipt.exit_code != Some(0) && !command.allow_non_zero_exit {
        return Err(ShellFailure::Exit {
            command: program(),
            ending: match (receipt.exit_code, &receipt.signal) {
                (Some(code), _) => format!("exited with status {code}"),
                (None, Some(signal)) => format!("was ended by {signal}"),
                (None, None) => "ended in an unknown way".to_owned(),
            },
            stderr: tail(&stderr),
        });
    }
    Ok(ShellResult {
        stdout,
        stderr,
        stdout_truncated,
        stderr_truncated,
        exit_code: receipt.exit_code,
        signal: receipt.signal.clone(),
        duration_ms: 0,
    })
}

fn spawn(command: &ShellCommand) -> io::Result<Child> {
    use std::os::unix::process::CommandExt as _;
    let mut process = Command::new(&command.command);
    process
        .args(&command.args)
        .envs(&command.env)
        .stdin(match command.stdin {
            Some(_) => Stdio::piped(),
            None => Stdio::null(),
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(cwd) = &command.cwd {
        process.current_dir(cwd);
    }
    process.spawn()
}

/// Writes standard input on a thread of its own: a command that reads nothing must not block what waits for it.
fn feed(stream: Option<ChildStdin>, text: Option<String>) {
    if let (Some(mut stream), Some(text)) = (stream, text) {
        std::thread::spawn(move || {
            // A command that closed its input did not want the rest.
            let _unread = stream.write_all(text.as_bytes());
        });
    }
}

/// Reads a stream on a thread of its own, which says when the stream is closed.
fn capture<R: io::Read + Send + 'static>(
    stream: Option<R>,
    (max_chars, full_after): (usize, Option<usize>),
    mut lines: Option<LineReader>,
    sender: &Sender<Event>,
) -> Arc<Captured> {
    let captured = Arc::new(Captured::default());
    let (writer, closed) = (Arc::clone(&captured), sender.clone());
    std::thread::spawn(move || {
        let refused = |error| {
            let _gone = closed.send(Event::LineRefused(error));
        };
        let (mut seen, mut full_after) = (0, full_after);
        if let Some(stream) = stream {
            writer.drain_seen(stream, max_chars, |chunk| {
                seen += chunk.len();
                if full_after.is_some_and(|limit| limit < seen) {
                    full_after = None;
                    let _gone = closed.send(Event::Full);
                }
                if let Some(Err(error)) = lines.as_mut().map(|lines| lines.push(chunk)) {
                    // What comes after a refused line is read, so that the command can end, and not looked at.
                    lines = None;
                    refused(error);
                }
            });
        }
        if let Some(Err(error)) = lines.map(LineReader::finish) {
            refused(error);
        }
        let _gone = closed.send(Event::StreamClosed);
    });
    captured
}

/// What is known when the waiting is over.
#[derive(Default)]
struct Settled {
    ending: Option<Result<Ending, io::Error>>,
    /// What ended it first: the signal, or a line.
    stopped: Option<StopReason>,
    refused: Option<NodeError>,
    is_full: bool,
}

/// Waits for the leader and both streams, and stops the group when asked.
fn settle(events: &Receiver<Event>, group: Pid) -> Settled {
    let mut settled = Settled::default();
    let mut open_streams = 2;
    let mut kill_at: Option<Instant> = None;
    let mut give_up_at: Option<Instant> = None;
    let terminate = |kill_at: &mut Option<Instant>, give_up_at: &mut Option<Instant>| {
        let _gone = kill_process_group(group, Signal::TERM);
        let stopped_at = now();
        *kill_at = Some(stopped_at + KILL_AFTER);
        *give_up_at = Some(stopped_at + RECEIPT_GRACE);
    };
    while settled.ending.is_none() || 0 < open_streams {
        let due = [kill_at, give_up_at].into_iter().flatten().min();
        let event = match due {
            None => events.recv().map_err(RecvTimeoutError::from),
            Some(due) => events.recv_timeout(due.saturating_duration_since(now())),
        };
        match event {
            Ok(Event::LeaderExited(ending)) => {
                settled.ending = Some(ending);
                give_up_at.get_or_insert_with(|| now() + RECEIPT_GRACE);
            }
            Ok(Event::StreamClosed) => open_streams -= 1,
            // The leader has done its work: the stop only ends the waiting for what it left.
            Ok(Event::Stop(_)) if settled.ending.is_some() => break,
            Ok(Event::Stop(reason)) => {
                if settled.refused.is_none() && !settled.is_full {
                    settled.stopped = Some(reason);
                }
                terminate(&mut kill_at, &mut give_up_at);
            }
            Ok(Event::Full) => {
                if settled.stopped.is_none() && settled.refused.is_none() {
                    settled.is_full = true;
                    if settled.ending.is_none() {
                        terminate(&mut kill_at, &mut give_up_at);
                    }
                }
            }
            Ok(Event::LineRefused(error)) => {
                if settled.stopped.is_some() || settled.refused.is_some() || settled.is_full {
                    continue;
                }
                settled.refused = Some(error);
                if settled.ending.is_none() {
                    terminate(&mut kill_at, &mut give_up_at);
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let at = now();
                if kill_at.is_some_and(|due| due <= at) {
                    let _gone = kill_process_group(group, Signal::KILL);
                    kill_at = None;
                }
                if give_up_at.is_some_and(|due| due <= at) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    settled
}

/// Waits until the leader has exited and leaves it to be reaped.
pub(crate) fn observe_exit(leader: Pid) -> Result<Ending, io::Error> {
    loop {
        match waitid(
            WaitId::Pid(leader),
            WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
        ) {
            Ok(Some(status)) => {
                return Ok(Ending {
                    exit_code: status.exit_status(),
                    signal: status.terminating_signal(),
                });
            }
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Takes the exit status of the killed leader. It is on a thread of its own, since a process in an
/// uninterruptible wait does not even die of SIGKILL in time.
pub(crate) fn reap(mut child: Child) {
    if !matches!(child.try_wait(), Ok(Some(_))) {
        std::thread::spawn(move || drop(child.wait()));
    }
}

fn directory(command: &ShellCommand) -> String {
    let path = match &command.cwd {
        Some(cwd) => std::path::absolute(cwd).unwrap_or_else(|_| cwd.clone()),
        None => std::env::current_dir().unwrap_or_default(),
    };
    path.to_string_lossy().into_owned()
}

/// The last 2,000 characters of an error stream, for the error of the node.
pub(crate) fn tail(text: &str) -> String {
    let text = text.trim_end();
    let skip = text.chars().count().saturating_sub(2000);
    text.chars().skip(skip).collect()
}

/// The name of a signal.
pub(crate) fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

/// A duration as a receipt has it.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::disallowed_methods,
    reason = "grace periods of a real process pass in real time; a held clock would wait for ever"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
