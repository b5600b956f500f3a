//! Launching a worker process, and ending it: one process, one session of its own, one end of a socket pair.
//!
//! The child gets an environment of allowed names only, no descriptor but its three standard ones, and a session of its own, so that
//! what it started can be ended with it. Not here: what is said over the channel (`host`, `child`).

use std::ffi::{OsStr, OsString};
use std::io::{PipeReader, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_state::clock::{Clock as _, SystemClock};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group,
    prlimit, waitid,
};

use crate::definition::CancellationSignal;
use crate::store::workers::Process;

/// Names of variables that a worker has unless its launcher says otherwise. Nothing here is a credential.
const ENVIRONMENT: &[&str] = &[
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
];
/// How much of what a worker wrote to its standard streams last is kept, in bytes.
const DIAGNOSTIC_BYTES: usize = 4 * 1024;
/// How long a worker may go on after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long the end of a killed process, or of its streams, is waited for.
const KILL_GRACE: Duration = Duration::from_secs(5);
const STREAMS_GRACE: Duration = Duration::from_millis(100);
/// How often a process that ends is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The bounds of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// How long it may take until it is ready, in milliseconds.
    pub ready_ms: u64,
    /// How long it may say nothing, in milliseconds. It says that it is alive five times as often.
    pub silence_ms: u64,
    /// How long it may go on after it was told to stop, in milliseconds; then it gets SIGTERM, and a second later SIGKILL.
    pub stop_grace_ms: u64,
    /// The longest message in either direction, in bytes.
    pub message_bytes_max: usize,
    /// How much memory it may map, in bytes; without a number as much as its host.
    pub memory_bytes_max: Option<u64>,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self {
            ready_ms: 30_000,
            silence_ms: 15_000,
            // A node has two seconds to listen to its signal, a command five.
            stop_grace_ms: 7_000,
            message_bytes_max: 72 * 1024 * 1024,
            memory_bytes_max: None,
        }
    }
}

/// How worker processes are launched: the program and its arguments, what they see of the environment, and their bounds. The
/// program must call [`run_child`](super::run_child) when it is started in this way.
///
/// ```
/// use holdpoint_workflows::{Execution, SchedulerOptions, WorkerLauncher};
///
/// // The program itself, with an argument by which it knows what it is.
/// let launcher = WorkerLauncher::new(std::env::current_exe()?).argument("worker").passing("MY_MODE");
/// let options = SchedulerOptions { execution: Execution::Processes(launcher), ..SchedulerOptions::default() };
/// # let _ = options;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLauncher {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<OsString>,
    limits: WorkerLimits,
}

impl WorkerLauncher {
    /// A program without arguments, with the ordinary environment and bounds.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            environment: ENVIRONMENT.iter().map(Into::into).collect(),
            limits: WorkerLimits::default(),
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Lets workers see one more variable of the environment. The ordinary ones are those of paths, names, languages and times.
    #[must_use]
    pub fn passing(mut self, name: impl Into<OsString>) -> Self {
        self.environment.push(name.into());
        self
    }

    /// Sets the bounds.
    #[must_use]
    pub fn limited(mut self, limits: WorkerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The bounds.
    pub fn limits(&self) -> &WorkerLimits {
        &self.limits
    }

    /// Starts one process. Gives it, and the host's end of the channel.
    pub(super) fn spawn(&self) -> std::io::Result<(Launched, UnixStream)> {
        let (host, child) = UnixStream::pair()?;
        let (reader, writer) = std::io::pipe()?;
        let allowed = |name: &OsStr| self.environment.iter().any(|allowed| allowed == name);
        let process = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| allowed(name)))
            .stdin(Stdio::from(OwnedFd::from(child)))
            .stdout(writer.try_clone()?)
            .stderr(writer)
            // What it starts before it leads a session is in its group at least, and is ended with it.
            .process_group(0)
            .spawn()?;
        let launched = Launched {
            tail: Tail::follow(reader)?,
            process,
        };
        if let (Some(bytes), Some(pid)) = (self.limits.memory_bytes_max, launched.pid()) {
            let limit = Rlimit {
                current: Some(bytes),
                maximum: Some(bytes),
            };
            if let Err(error) = prlimit(Some(pid), Resource::As, limit) {
                launched.end(Duration::ZERO, true);
                return Err(error.into());
            }
        }
        Ok((launched, host))
    }
}

/// A process that was launched. It is not reaped before [`Launched::end`], so that its number is nobody else's.
pub(super) struct Launched {
    process: Child,
    tail: Arc<Tail>,
}

/// How a process ended.
pub(super) struct Left {
    pub(super) status: Option<ExitStatus>,
    pub(super) diagnostic: String,
    /// Whether it had to be ended.
    pub(super) was_killed: bool,
}

impl Left {
    /// There was no process.
    pub(super) fn never(problem: String) -> Self {
        Self {
            status: None,
            diagnostic: problem,
            was_killed: false,
        }
    }

    /// The name of the signal that ended it.
    pub(super) fn signal(&self) -> Option<String> {
        let number = self.status?.signal()?;
        Some(match number {
            6 => "SIGABRT".to_owned(),
            9 => "SIGKILL".to_owned(),
            11 => "SIGSEGV".to_owned(),
            15 => "SIGTERM".to_owned(),
            other => format!("signal {other}"),
        })
    }
}

impl Launched {
    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// The process as it is noted.
    pub(super) fn identity(&self) -> Process {
        let pid = self.process.id();
        Process {
            start: started(pid).unwrap_or_else(|| "unknown".to_owned()),
            pid,
        }
    }

    fn has_ended(&self) -> bool {
        let Some(pid) = self.pid() else {
            return true;
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(rustix::io::Errno::INTR)
        )
    }

    fn has_ended_within(&self, limit: Duration) -> bool {
        let never = CancellationSignal::never();
        let begun = SystemClock.monotonic();
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        while !self.has_ended() {
            if limit_ms <= SystemClock.monotonic().since(begun) {
                return false;
            }
            never.wait(LOOK);
        }
        true
    }

    /// Waits so long for its end, then ends it, with everything that it started. Returns how it ended.
    pub(super) fn end(self, patience: Duration, at_once: bool) -> Left {
        self.end_after(patience, (!at_once).then_some(TERM_GRACE))
    }

    /// The same with so long between SIGTERM and SIGKILL; without a grace it gets SIGKILL only.
    pub(super) fn end_after(mut self, patience: Duration, grace: Option<Duration>) -> Left {
        let by_itself = self.has_ended_within(patience);
        if let Some(pid) = self.pid() {
            if let (false, Some(grace)) = (by_itself, grace) {
                let _gone = kill_process(pid, Signal::TERM);
                self.has_ended_within(grace);
            }
            if !self.has_ended() {
                let _gone = kill_process(pid, Signal::KILL);
                self.has_ended_within(KILL_GRACE);
            }
            // Its session is its own once it is ready, and its group from the beginning on.
            let _gone = kill_process_group(pid, Signal::KILL);
            for member in session(pid) {
                let _gone = kill_process(member, Signal::KILL);
            }
        }
        let status = if self.has_ended() {
            self.process.wait().ok()
        } else {
            None
        };
        Left {
            status,
            diagnostic: self.tail.text(),
            was_killed: !by_itself,
        }
    }
}

/// When a process started, as the kernel counts: it tells it from a later one with the same number.
fn started(pid: u32) -> Option<String> {
    stat(&pid.to_string(), 19)
}

/// The processes of a session, but for its leader. Commands have groups of their own, so that the group of a worker is not all that
/// it started. Where there is no `/proc`, only its group is ended.
fn session(leader: Pid) -> Vec<Pid> {
    let id = leader.as_raw_nonzero().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| *name != id && name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|name| stat(name, 3).as_deref() == Some(&id))
        .filter_map(|name| Pid::from_raw(name.parse().ok()?))
        .collect()
}

/// A field of `/proc/PID/stat` after the name, which may have blanks and parentheses itself; 0 is the state.
fn stat(pid: &str, field: usize) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = text.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(field).map(str::to_owned)
}

/// The end of what a process writes. Everything is read, so that it never waits; little is kept.
struct Tail {
    state: Mutex<(Vec<u8>, bool)>,
    ended: std::sync::Condvar,
}

impl Tail {
    fn follow(mut reader: PipeReader) -> std::io::Result<Arc<Self>> {
        let tail = Arc::new(Self {
            state: Mutex::new((Vec::new(), false)),
            ended: std::sync::Condvar::new(),
        });
        let filled = Arc::clone(&tail);
        std::thread::Builder::new()
            .name("holdpoint-worker-streams".to_owned())
            .spawn(move || {
                let mut part = [0_u8; 4096];
                while let Ok(read) = reader.read(&mut part) {
                    if read == 0 {
                        break;
                    }
                    let mut state = filled.lock();
                    state
                        .0
                        .extend_from_slice(part.get(..read).unwrap_or_default());
                    let excess = state.0.len().saturating_sub(DIAGNOSTIC_BYTES);
                    state.0.drain(..excess);
                }
                filled.lock().1 = true;
                filled.ended.notify_all();
            })?;
        Ok(tail)
    }

    /// The text, once the streams are closed; what the process started may hold them open longer than is waited for.
    fn text(&self) -> String {
        let waited = self
            .ended
            .wait_timeout_while(self.lock(), STREAMS_GRACE, |state| !state.1);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        String::from_utf8_lossy(&state.0).trim().to_owned()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Vec<u8>, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
