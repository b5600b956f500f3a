//! The process that the executor talks with: its pipes, its end.
//!
//! Threads of its own read and write the pipes, so that neither side can block the other, and everything that waits in memory is
//! bounded: what the process writes faster than it is heard stays in its pipe. It leads a process group; the group is ended
//! before the executor returns. Not here: what is said (`dialogue`).

use std::collections::VecDeque;
use std::io::{self, Read, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::framing::{Framing, RECORD_BYTES_MAX, Record};
use crate::definition::StopReason;
use crate::shell::{Captured, Ending, KILL_AFTER, RECEIPT_GRACE, now, observe_exit, reap, tail};

/// How many records may wait to be heard, and how many bytes of them besides the last.
const WAITING_MAX: usize = 64;

/// How many commands may wait to be read by the process.
const UNREAD_MAX: usize = 64;

/// How much of standard error is kept, in characters.
const STDERR_CHARS: usize = 65_536;

/// How long a process has to exit by itself after its input was closed.
const EXIT_GRACE: Duration = Duration::from_secs(1);

/// How long standard error may stay open behind the process.
const STDERR_GRACE: Duration = Duration::from_millis(500);

/// A process in conversation.
#[derive(Debug)]
pub(super) struct Peer {
    child: Option<Child>,
    group: Pid,
    input: Option<SyncSender<String>>,
    inbox: Arc<Inbox>,
    stderr: Arc<Captured>,
}

/// What the executor hears next.
#[derive(Debug)]
pub(super) enum Heard {
    /// The step should stop. Said once.
    Stopped(StopReason),
    /// A record.
    Record(Record),
    /// The process has ended and everything that it wrote was heard.
    Ended,
    /// The time until which the executor wanted to listen has come.
    TimeUp,
}

/// How the process ended, and the end of what it wrote to standard error.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) ending: Option<Ending>,
    pub(super) stderr: String,
}

/// How a process is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Farewell {
    /// It may exit by itself when its input closes.
    Close,
    /// It gets SIGTERM at once.
    Terminate,
}

impl Peer {
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = Pid::from_child(&child);
        let inbox = Arc::new(Inbox::default());
        let stderr = Arc::new(Captured::default());
        let (input, commands) = sync_channel(UNREAD_MAX);
        if let Some(stdin) = child.stdin.take() {
            std::thread::spawn(move || write(stdin, &commands));
        }
        if let Some(stdout) = child.stdout.take() {
            let inbox = Arc::clone(&inbox);
            std::thread::spawn(move || read(stdout, &inbox));
        }
        if let Some(stream) = child.stderr.take() {
            let (stderr, inbox) = (Arc::clone(&stderr), Arc::clone(&inbox));
            std::thread::spawn(move || {
                stderr.drain(stream, STDERR_CHARS);
                inbox.change(|state| state.stderr_closed = true);
            });
        }
        let exited = Arc::clone(&inbox);
        std::thread::spawn(move || {
            let ending = observe_exit(group).ok();
            exited.change(|state| state.exited = Some((ending, now())));
        });
        Ok(Self {
            child: Some(child),
            group,
            input: Some(input),
            inbox,
            stderr,
        })
    }

    /// Where a signal's watcher says that the step should stop.
    pub(super) fn stopper(&self) -> impl FnOnce(StopReason) + Send + 'static {
        let inbox = Arc::clone(&self.inbox);
        move |reason| inbox.change(|state| state.stop = Some(reason))
    }

    /// Says something. False: the process left so much unread that it does not listen at all. One that has ended is found by
    /// listening.
    pub(super) fn say(&self, command: &Value) -> bool {
        let Some(input) = &self.input else {
            return true;
        };
        !matches!(
            input.try_send(format!("{command}\n")),
            Err(TrySendError::Full(_))
        )
    }

    /// Waits for what comes next, at most until an instant.
    pub(super) fn listen(&self, until: Option<Instant>) -> Heard {
        let mut state = self.inbox.lock();
        loop {
            if let Some(reason) = state.stop.take() {
                return Heard::Stopped(reason);
            }
            if let Some(record) = state.records.pop_front() {
                state.held -= record.held();
                drop(state);
                self.inbox.changed.notify_all();
                return Heard::Record(record);
            }
            // A process that left its group may hold the pipe open for ever.
            let give_up = state.exited.map(|(_, at)| at + RECEIPT_GRACE);
            if state.exited.is_some()
                && (state.stdout_closed || give_up.is_some_and(|due| due <= now()))
            {
                return Heard::Ended;
            }
            if until.is_some_and(|due| due <= now()) {
                return Heard::TimeUp;
            }
            state = self
                .inbox
                .wait(state, [until, give_up].into_iter().flatten().min());
        }
    }

    /// Ends the process and what is left of its group. Returns when it is gone, or SIGKILL was sent and does not help.
    pub(super) fn end(mut self, farewell: Farewell) -> End {
        self.inbox.change(|state| {
            state.deaf = true;
            state.records.clear();
            state.held = 0;
        });
        self.input = None;
        let gone = |limit| self.inbox.wait_for(limit, |state| state.exited.is_some());
        if farewell == Farewell::Terminate || !gone(EXIT_GRACE) {
            let _gone = kill_process_group(self.group, Signal::TERM);
            if !gone(KILL_AFTER) {
                let _gone = kill_process_group(self.group, Signal::KILL);
                gone(KILL_AFTER);
            }
        }
        self.finish();
        self.inbox
            .wait_for(STDERR_GRACE, |state| state.stderr_closed);
        let (stderr, _) = self.stderr.text(STDERR_CHARS);
        End {
            ending: self.inbox.lock().exited.and_then(|(ending, _)| ending),
            stderr: tail(&stderr),
        }
    }

    /// Ends what is left of the group while its number is still its own, then lets the leader go.
    fn finish(&mut self) {
        if let Some(child) = self.child.take() {
            let _gone = kill_process_group(self.group, Signal::KILL);
            reap(child);
        }
    }
}

impl Drop for Peer {
    /// A panic of the caller leaves no process behind.
    fn drop(&mut self) {
        self.inbox.change(|state| state.deaf = true);
        self.finish();
    }
}

/// What the threads of the pipes tell the executor.
#[derive(Debug, Default)]
struct Inbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    /// Bytes in `records`.
    held: usize,
    stdout_closed: bool,
    stderr_closed: bool,
    exited: Option<(Option<Ending>, Instant)>,
    stop: Option<StopReason>,
    /// Nobody listens any more: what comes is read and thrown away, so that the process does not block on its pipe.
    deaf: bool,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        until: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        match until {
            None => self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let limit = until.saturating_duration_since(now());
                let waited = self.changed.wait_timeout(state, limit);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits for a condition; true when it is met in time.
    fn wait_for(&self, limit: Duration, met: impl Fn(&State) -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), limit, |state| !met(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        met(&state)
    }

    /// Puts a record at the end, when there is room.
    fn push(&self, record: Record) {
        let is_full = |state: &mut State| {
            !state.deaf && (WAITING_MAX <= state.records.len() || RECORD_BYTES_MAX <= state.held)
        };
        let waited = self.changed.wait_while(self.lock(), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if !state.deaf {
            state.held += record.held();
            state.records.push_back(record);
        }
        drop(state);
        self.changed.notify_all();
    }
}

fn read(mut stream: ChildStdout, inbox: &Inbox) {
    let mut framing = Framing::new(RECORD_BYTES_MAX);
    let mut chunk = vec![0_u8; 64 * 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => framing.feed(chunk.get(..read).unwrap_or_default(), |record| {
                inbox.push(record);
            }),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The pipe broke: what came until now is what there is.
            Err(_) => break,
        }
    }
    framing.finish(|record| inbox.push(record));
    inbox.change(|state| state.stdout_closed = true);
}

/// Ends, and closes the pipe, when nobody has anything to say any more.
fn write(mut stdin: std::process::ChildStdin, commands: &Receiver<String>) {
    for command in commands {
        // A process that closed its input hears nothing more; it ends by itself or is ended.
        if stdin.write_all(command.as_bytes()).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_heard_yet_waits_outside() {
        let mut command = Command::new("sh");
        command.args(["-c", "yes | head -n 100000"]);
        let peer = Peer::spawn(&mut command).unwrap();
        let mut heard = 0;
        loop {
            let waiting = peer.inbox.lock().records.len();
            assert!(waiting <= WAITING_MAX, "{waiting} records wait");
            match peer.listen(None) {
                Heard::Record(record) => {
                    assert_eq!(record, Record::Whole(b"y".to_vec()));
                    heard += 1;
                }
                Heard::Ended => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(heard, 100_000);
        let end = peer.end(Farewell::Close);
        assert_eq!(end.ending.unwrap().exit_code, Some(0));
    }
}
