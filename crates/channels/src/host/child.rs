//! One adapter process: how it is launched, heard and ended. It knows nothing of what is said.
//!
//! It has a process group of its own, an environment of allowed names, and gets its token by the first line of its standard input.
//! Whatever it writes is bounded: a line by the protocol, its diagnostics by [`DIAGNOSTIC_BYTES`].

use std::ffi::OsStr;
use std::io::{BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_decisions::document::parts::without_controls;
use holdpoint_state::clock::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::HostOptions;
use super::supervise::Event;
use crate::protocol::{Launch, ProtocolError, read_line};

/// How much of its diagnostics is kept, in bytes: the end.
pub(super) const DIAGNOSTIC_BYTES: usize = 64 * 1024;
/// Names of variables that an adapter has. Nothing here is a credential of a channel.
const ENVIRONMENT: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "no_proxy",
];
/// How often a process that ends is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long the end of a killed process is waited for.
const KILL_GRACE_MS: u64 = 5_000;

/// A process that runs.
pub(super) struct Adapter {
    process: Child,
    input: Option<SyncSender<Vec<u8>>>,
    diagnostics: Arc<Mutex<Vec<u8>>>,
}

impl Adapter {
    /// Starts the process and gives it the launch line. What it says comes as events.
    pub(super) fn launch(
        options: &HostOptions,
        launch: &Launch,
        events: &SyncSender<Event>,
    ) -> std::io::Result<Self> {
        let line = launch.to_line().map_err(std::io::Error::other)?;
        let allowed = |name: &OsStr| ENVIRONMENT.iter().any(|allowed| *allowed == name);
        let mut process = Command::new(&options.program)
            .args(&options.arguments)
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| allowed(name)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let input = process.stdin.take();
        let mut adapter = Self {
            input: None,
            process,
            diagnostics: Arc::default(),
        };
        let heard = adapter
            .listen(stdout, stderr, events)
            .and_then(|()| adapter.speak(input, &line));
        if let Err(error) = heard {
            adapter.kill();
            return Err(error);
        }
        Ok(adapter)
    }

    fn listen(
        &self,
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        events: &SyncSender<Event>,
    ) -> std::io::Result<()> {
        if let Some(stdout) = stdout {
            let events = events.clone();
            let name = "holdpoint-adapter-lines".to_owned();
            std::thread::Builder::new()
                .name(name)
                .spawn(move || hear(stdout, &events))?;
        }
        if let Some(mut stderr) = stderr {
            let diagnostics = Arc::clone(&self.diagnostics);
            let name = "holdpoint-adapter-words".to_owned();
            std::thread::Builder::new()
                .name(name)
                .spawn(move || keep_tail(&mut stderr, &diagnostics))?;
        }
        Ok(())
    }

    /// Writes the launch line, which fits into the empty pipe of a new process, and starts to write what is said later.
    fn speak(&mut self, input: Option<ChildStdin>, launch: &[u8]) -> std::io::Result<()> {
        let mut input = input.ok_or(std::io::ErrorKind::BrokenPipe)?;
        input.write_all(launch)?;
        let (sender, lines) = sync_channel::<Vec<u8>>(1);
        std::thread::Builder::new()
            .name("holdpoint-adapter-orders".to_owned())
            .spawn(move || {
                for line in lines {
                    // That it is gone is heard where its lines are.
                    if input.write_all(&line).is_err() {
                        return;
                    }
                }
            })?;
        self.input = Some(sender);
        Ok(())
    }

    /// Says one line, and never waits for the process to read it: a host that waited could not keep its claim, nor stop.
    ///
    /// A process that says more without having read what it was told breaks the protocol; then this is an error.
    pub(super) fn write(&mut self, line: &[u8]) -> std::io::Result<()> {
        let input = self.input.as_ref().ok_or(std::io::ErrorKind::BrokenPipe)?;
        input
            .try_send(line.to_vec())
            .map_err(|_full| std::io::ErrorKind::BrokenPipe.into())
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.process.id().cast_signed())
    }

    fn has_ended(&self) -> bool {
        let Some(pid) = self.pid() else {
            return true;
        };
        // It is not reaped before its group is ended, so that its number is nobody else's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(
            waitid(WaitId::Pid(pid), options),
            Ok(None) | Err(rustix::io::Errno::INTR)
        )
    }

    fn ends_within(&self, limit_ms: u64) -> bool {
        let begun = SystemClock.monotonic();
        while !self.has_ended() {
            if limit_ms <= SystemClock.monotonic().since(begun) {
                return false;
            }
            std::thread::park_timeout(LOOK);
        }
        true
    }

    /// Waits so long for its own end, then SIGTERM, the same time again, then SIGKILL, to its whole group. Returns its last words.
    pub(super) fn end(mut self, patience_ms: u64) -> String {
        // The end of its input tells it too.
        drop(self.input.take());
        if !self.ends_within(patience_ms) {
            self.signal(Signal::TERM);
            self.ends_within(patience_ms);
        }
        self.kill();
        let kept = self
            .diagnostics
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let words = String::from_utf8_lossy(&kept);
        let last = words
            .lines()
            .rev()
            .find(|line| !line.trim().is_empty())
            .unwrap_or_default();
        // A few words for a log. They come from another process, and are made inert.
        without_controls(last).chars().take(200).collect()
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _gone = kill_process_group(pid, signal);
        }
    }

    fn kill(&mut self) {
        self.signal(Signal::KILL);
        if self.ends_within(KILL_GRACE_MS)
            && let Err(error) = self.process.wait()
        {
            tracing::debug!(error = %error, "an adapter could not be reaped");
        }
    }
}

/// Hears lines until there are none, or one that breaks a rule.
fn hear(stdout: ChildStdout, events: &SyncSender<Event>) {
    let mut reader = BufReader::new(stdout);
    loop {
        let event = match read_line(&mut reader) {
            Ok(Some(line)) => Event::Line(line),
            Ok(None) | Err(ProtocolError::Io(_) | ProtocolError::Cut) => Event::Ended,
            Err(_) => Event::Flood,
        };
        let is_last = !matches!(event, Event::Line(_));
        if events.send(event).is_err() || is_last {
            break;
        }
    }
    // A process that writes on must not be held up by a full pipe: it is being ended.
    let mut part = [0_u8; 4096];
    while reader.read(&mut part).is_ok_and(|read| 0 < read) {}
}

fn keep_tail(stderr: &mut ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut part = [0_u8; 4096];
    while let Ok(read) = stderr.read(&mut part) {
        if read == 0 {
            break;
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(part.get(..read).unwrap_or_default());
        let excess = kept.len().saturating_sub(DIAGNOSTIC_BYTES);
        kept.drain(..excess);
    }
}
