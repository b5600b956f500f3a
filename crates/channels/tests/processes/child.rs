//! A child process and the words that it and its parent exchange.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command as Process, Stdio};

use crate::world::{Hosting, World};

const HOME: &str = "HOLDPOINT_TEST_CHANNELS_HOME";
const PROFILE: &str = "HOLDPOINT_TEST_CHANNELS_PROFILE";
/// What the children say begins with this, so that the words of the test harness are not taken for theirs.
const MARK: &str = "child-says ";

/// What a child is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// The host of a profile, and its adapter.
    Host(&'static str),
    /// A process without a channel: a terminal, a policy, control.
    Local,
}

/// A process on a store. It takes a line, says `ready`, waits for the next line, does what the first one said, and says what came of it.
pub(crate) struct Child {
    process: std::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    /// Starts one; `crash` is where it kills itself.
    pub(crate) fn start(home: &Path, part: Part, crash: Option<&str>) -> Self {
        let mut command = Process::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "child::child",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(HOME, home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(if crash.is_some() {
                Stdio::null()
            } else {
                Stdio::inherit()
            });
        if let Part::Host(profile) = part {
            command.env(PROFILE, profile);
        }
        if let Some(crash) = crash {
            command.env(holdpoint_state::testing::crash::VARIABLE, crash);
        }
        let mut process = command.spawn().unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: BufReader::new(process.stdout.take().unwrap()),
            process,
        }
    }

    /// The next thing that it says; none when it is gone.
    pub(crate) fn try_hear(&mut self) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            // The harness prints `test NAME ... ` without a line's end before it.
            if let Some(at) = line.find(MARK) {
                return line
                    .get(at + MARK.len()..)
                    .map(|words| words.trim_end().to_owned());
            }
        }
    }

    pub(crate) fn hear(&mut self) -> String {
        self.try_hear().unwrap()
    }

    pub(crate) fn tell(&mut self, words: &str) {
        // It may be dead already.
        drop(writeln!(self.input, "{words}"));
    }

    /// Does one thing by itself; none when it died of it.
    pub(crate) fn does(&mut self, words: &str) -> Option<String> {
        self.tell(words);
        self.try_hear()?;
        self.tell("go");
        self.try_hear()
    }
}

/// A test that fails leaves no child behind.
impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn listen() -> Option<String> {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .ok()
        .filter(|length| *length != 0)?;
    Some(line.trim_end().to_owned())
}

fn say(words: &str) {
    println!("{MARK}{words}");
    std::io::stdout().flush().unwrap();
}

fn obey(mut act: impl FnMut(&str) -> String) {
    while let Some(task) = listen() {
        say("ready");
        if listen().is_none() {
            return;
        }
        say(&act(&task));
    }
}

#[test]
#[ignore = "the child of the other tests"]
fn child() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else {
        return;
    };
    let world = World::open(&home);
    match std::env::var(PROFILE) {
        Ok(profile) => {
            let host = world.host(&profile);
            let mut hosting = Hosting::new(&world, &host);
            obey(|task| hosting.act(task));
        }
        Err(_) => obey(|task| world.act(task)),
    }
}
