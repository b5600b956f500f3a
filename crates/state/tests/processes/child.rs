//! A child process and the words that it and its parent exchange.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command as Process, Stdio};
use std::time::{Duration, Instant};

use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Identity, Options, Schema};

const STORE: &str = "HOLDPOINT_PROCESSES_STORE";
const TASK: &str = "HOLDPOINT_PROCESSES_TASK";

/// What the children say begins with this, so that the words of the test harness are not taken for theirs.
const MARK: &str = "child-says ";

pub(crate) fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN],
    )
    .unwrap()
}

pub(crate) fn open(path: &Path, busy_timeout_ms: u64) -> Database {
    let options = Options {
        busy_timeout_ms,
        check_integrity: false,
        ..Options::default()
    };
    Database::open_with(path, &schema(), options).unwrap()
}

/// A store with counters in a temporary directory.
pub(crate) struct Home {
    _directory: tempfile::TempDir,
    pub(crate) store: PathBuf,
}

impl Home {
    pub(crate) fn new(counters: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("state.sqlite");
        let db = open(&store, 5_000);
        for name in counters {
            counter::create(&db, name).unwrap();
        }
        db.close();
        Self {
            _directory: directory,
            store,
        }
    }
}

pub(crate) struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `test` of this binary with a task.
    pub(crate) fn start(test: &str, store: &Path, task: &str) -> Self {
        let mut process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(STORE, store)
            .env(TASK, task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// The next thing that the child says.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.output.read_line(&mut line).unwrap();
            assert_ne!(length, 0, "the child ended without a word");
            // The harness prints `test NAME ... ` without a line's end before it.
            if let Some(at) = line.find(MARK) {
                return line[at + MARK.len()..].trim_end().to_owned();
            }
        }
    }

    pub(crate) fn tell(&mut self, word: &str) {
        writeln!(self.input, "{word}").unwrap();
    }

    /// Stops it (SIGSTOP) or lets it go on (SIGCONT).
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Kills it (SIGKILL), which a stopped process can't delay, and waits for its end.
    pub(crate) fn kill(self) {
        drop(self);
    }

    /// Waits for its end, which must be a success.
    pub(crate) fn finish(mut self) {
        assert!(self.process.wait().unwrap().success(), "a child failed");
    }
}

/// A test that fails leaves no child behind: a stopped one would hold the harness's output open.
impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// The store and the task when this process is a child.
pub(crate) fn task() -> Option<(PathBuf, String)> {
    let store = std::env::var_os(STORE)?;
    Some((store.into(), std::env::var(TASK).unwrap()))
}

/// In a child: says something to the parent.
pub(crate) fn say(words: &str) {
    println!("{MARK}{words}");
    std::io::stdout().flush().unwrap();
}

/// In a child: waits for the parent's next word. Empty when there is none any more.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tests measure how long callers wait in real time"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}
