//! Child processes for tests: the test binary runs itself again with one test and a task in its environment.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use holdpoint_state::testing::counter;
use holdpoint_state::{Identity, Schema};

const STORE: &str = "HOLDPOINT_TEST_STORE";
const ARGUMENT: &str = "HOLDPOINT_TEST_ARGUMENT";

/// A running child.
pub(crate) struct Child {
    process: std::process::Child,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts `test` of this binary with the store and an argument.
    pub(crate) fn start(test: &str, store: &Path, argument: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(STORE, store)
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// Waits until the child has said `word` on a line of its own.
    pub(crate) fn wait_for(&mut self, word: &str) {
        // The harness prints `test NAME ... ` without a line's end before it.
        let found = self
            .output
            .by_ref()
            .lines()
            .any(|line| line.unwrap().ends_with(word));
        assert!(found, "the child never said {word}");
    }

    /// Lets a child go on that waits in [`wait_for_parent`].
    pub(crate) fn release(&mut self) {
        self.process
            .stdin
            .take()
            .unwrap()
            .write_all(b"go\n")
            .unwrap();
    }

    /// Waits for its end, which must be a success.
    pub(crate) fn finish(mut self) {
        // A child that still prints must not meet a closed pipe.
        std::io::copy(&mut self.output, &mut std::io::sink()).unwrap();
        assert!(self.process.wait().unwrap().success(), "a child failed");
    }

    /// Kills it (SIGKILL) and waits for its end.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The store and the argument when this process is a child.
pub(crate) fn task() -> Option<(PathBuf, String)> {
    let store = std::env::var_os(STORE)?;
    Some((store.into(), std::env::var(ARGUMENT).unwrap()))
}

/// In a child: says a word and waits for the parent's release, or for its end.
#[expect(clippy::print_stdout, reason = "the parent reads the word")]
pub(crate) fn wait_for_parent(word: &str) {
    println!("{word}");
    std::io::stdout().flush().unwrap();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

pub(crate) fn counters_schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN],
    )
    .unwrap()
}
