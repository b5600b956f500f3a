//! A home and a working directory of their own for each test, and what makes outputs comparable.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

/// How often a condition is looked at, and how many times at most: together a minute.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3_000;

/// Asks, and ends with what is answered.
pub(crate) const ASK: &str = r#"
name: ask
title: { jq: '"Ask about \($input.what)"' }
input:
  fields:
    what: { type: string, default: lunch }
startAt: prepare
nodes:
  prepare:
    compute: { jq: '{ options: [$input.what, "nothing"] }' }
  review:
    checkpoint:
      summary: Go on?
      request: { options: { jq: $outputs.prepare.options }, note: "two\nlines" }
  finish:
    compute: { answer: { jq: $outputs.review } }
edges:
  - { from: prepare, to: review }
  - { from: review, to: finish }
"#;

/// Reads its settings, asks, and decides by what they are then.
pub(crate) const TUNED: &str = r#"
name: tuned
settings:
  initial: { batch: 10 }
  fields:
    batch: { type: integer }
    mode: { type: string, default: slow }
  paths:
    - { path: '', read: [human, control] }
    - { path: /batch, read: [human, control], replace: [human, control] }
  validateChange: { jq: 'if .after.batch <= 2 * .before.batch then true else "at most twice as many" end' }
startAt: before
nodes:
  before:
    compute: { jq: $settings.batch }
  review:
    checkpoint: {}
  route:
    settingsRoute: { jq: 'if $settings.batch < 20 then { to: "small" } else { to: "large" } end' }
  small:
    compute: small
  large:
    compute: { jq: '"\($outputs.before) became \($settings.batch)"' }
edges:
  - { from: before, to: review }
  - { from: review, to: route }
  - { from: route, switch: { on: $.to, cases: { small: small, large: large } } }
"#;

/// Waits in an action until the file `go` is there, and says in `started` that it does.
pub(crate) fn held(recovery: &str) -> String {
    format!(
        r#"
name: held
startAt: before
nodes:
  before:
    compute: 1
  hold:
    statusDetail: Holding the line
    shell:
      argv: [sh, -c, 'echo run >> started; while [ -e started ] && [ ! -e go ]; do sleep 0.02; done; [ -e go ] && echo did >> done; echo "a receipt"']
      parse: {{ jq: .stdout }}
      effect: {{ type: test.hold, recovery: {recovery} }}
  after:
    compute: {{ jq: $outputs.hold }}
edges:
  - {{ from: before, to: hold }}
  - {{ from: hold, to: after }}
"#
    )
}

/// A home with its store, and a directory to work in.
pub(crate) struct Home {
    home: TempDir,
    work: TempDir,
}

/// What a command did.
pub(crate) struct Done {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = TempDir::new().unwrap();
        let work = TempDir::new().unwrap();
        Self { home, work }
    }

    /// A home with one workflow file.
    pub(crate) fn with(name: &str, text: &str) -> Self {
        let home = Self::new();
        home.write(name, text);
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.work.path().canonicalize().unwrap()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path().join(".pi/agent/workflows/state.sqlite")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.work().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    /// The binary with this home, in the working directory, with settings for tests.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOLDPOINT_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.work())
            .env("HOLDPOINT_CONFIG_DIR", self.path().join("config"))
            .env("HOLDPOINT_SWEEP_INTERVAL_MS", "50")
            .env("HOLDPOINT_LEASE_MS", "1500")
            .env("LC_ALL", "C")
            .arg("--home")
            .arg(self.path())
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        self.command(args).output().unwrap().into()
    }

    /// Runs with `--json`: one document on standard output and nothing on standard error but what `work` says of parked runs.
    pub(crate) fn json(&self, args: &[&str]) -> (i32, Value) {
        let done = self.run(&[&["--json"], args].concat());
        let is_work = args.first() == Some(&"work");
        let surprise = done.stderr.lines().find(|line| {
            !(is_work && line.starts_with("warning: ") && line.contains(" is parked ("))
        });
        assert_eq!(surprise, None, "{args:?}");
        let document = serde_json::from_str(&done.stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {}", done.stdout));
        (done.status, document)
    }

    /// The document of a command that must succeed.
    pub(crate) fn ok(&self, args: &[&str]) -> Value {
        let (status, document) = self.json(args);
        assert_eq!(status, 0, "{args:?}: {document:#}");
        document
    }

    pub(crate) fn spawn(&self, args: &[&str]) -> Running {
        Running(Some(self.command(args).spawn().unwrap()))
    }

    /// The newest run.
    /// The newest run of a workflow.
    pub(crate) fn newest_of(&self, workflow: &str) -> String {
        let listed = self.ok(&["list"]);
        let runs = listed["runs"].as_array().unwrap();
        let run = runs
            .iter()
            .find(|run| run["workflowName"] == workflow)
            .unwrap();
        run["runId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn newest(&self) -> String {
        let list = self.ok(&["list"]);
        list["runs"][0]["runId"].as_str().unwrap().to_owned()
    }

    /// Starts the workflow and gives its run, which must then wait for an answer.
    pub(crate) fn asking(&self, file: &str) -> String {
        let (status, run) = self.json(&["run", file]);
        assert_eq!(status, 3, "{run:#}");
        run["runId"].as_str().unwrap().to_owned()
    }

    /// Waits for a run to be shown with this status.
    pub(crate) fn wait_for(&self, run: &str, status: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("{run} to be {status}"), || {
            last = self.json(&["show", run]).1;
            last["displayStatus"] == status
        });
        last
    }

    /// Waits for a file that a node writes.
    pub(crate) fn wait_for_file(&self, name: &str) {
        until(name, || self.work().join(name).exists());
    }

    /// Makes outputs comparable: paths, ids, digests and times.
    pub(crate) fn plain(&self, text: &str) -> String {
        let text = text
            .replace(self.work().to_str().unwrap(), "[work]")
            .replace(self.path().to_str().unwrap(), "[home]")
            .replace(
                self.path().canonicalize().unwrap().to_str().unwrap(),
                "[home]",
            );
        plain(&text)
    }
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// A command that goes on. It is killed when the test ends.
pub(crate) struct Running(Option<Child>);

impl Running {
    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    /// Sends a signal.
    pub(crate) fn signal(&mut self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(mut self) {
        self.child().kill().unwrap();
        self.child().wait().unwrap();
    }

    /// The next line of standard error, byte by byte, so that the rest stays for [`Running::end`].
    pub(crate) fn line_of_stderr(&mut self) -> String {
        use std::io::Read as _;
        let stderr = self.child().stderr.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\n") && stderr.read(&mut byte).unwrap() == 1 {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child().try_wait().unwrap().is_some()
    }

    pub(crate) fn end(mut self) -> Done {
        self.0.take().unwrap().wait_with_output().unwrap().into()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Waits for a condition that only another process can make true, with a bound.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        std::thread::park_timeout(LOOK);
    }
    panic!("waited too long for {what}");
}

/// Replaces ids, digests and times, word by word.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    let ends = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    for c in text.chars().chain(['\0']) {
        if ends(c) {
            out.push_str(&plain_word(&word));
            word.clear();
            if c != '\0' {
                out.push(c);
            }
        } else {
            word.push(c);
        }
    }
    durations(&instants(&out))
}

fn plain_word(word: &str) -> String {
    let is_hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let parts: Vec<&str> = word.split('-').collect();
    let is_stamp =
        |text: &str| text.len() == 19 && text.ends_with('Z') && text.as_bytes()[8] == b'T';
    match parts.as_slice() {
        [stamp, name @ .., tail] if is_stamp(stamp) && tail.len() == 8 => {
            format!("RUN-{}", name.join("-"))
        }
        [name, tail] if 32 <= tail.len() && is_hex(tail) => format!("{name}-HEX"),
        [tail] if 32 <= tail.len() && is_hex(tail) => "HEX".to_owned(),
        // UUIDs.
        [.., first, second, third, fourth, last]
            if [first, second, third, fourth, last].map(|part| part.len()) == [8, 4, 4, 4, 12] =>
        {
            let mut name = parts[..parts.len() - 5].to_vec();
            name.push("UUID");
            name.join("-")
        }
        _ => word.to_owned(),
    }
}

/// `2026-11-30 15:31:12 UTC` -> `[time]`.
fn instants(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(" UTC") {
        let begin = at.saturating_sub(19);
        let stamp = rest.get(begin..at).unwrap_or_default();
        if stamp.len() == 19 && stamp.as_bytes()[4] == b'-' && stamp.as_bytes()[13] == b':' {
            out.push_str(&rest[..begin]);
            out.push_str("[time]");
        } else {
            out.push_str(&rest[..at + 4]);
        }
        rest = &rest[at + 4..];
    }
    out + rest
}

/// `(12 ms)`, `(1.2 s)` -> `([took])`.
fn durations(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('(') {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if number.len() < rest.len() && (number.starts_with(" ms)") || number.starts_with(" s)")) {
            out.push_str("[took]");
            rest = &number[number.find(')').unwrap()..];
        }
    }
    out + rest
}

/// A document with its times, durations and digests replaced, and its texts made plain.
pub(crate) fn plain_document(home: &Home, document: &Value) -> Value {
    match document {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| {
                let is_time = name.ends_with("At") && value.is_number();
                let value = if is_time {
                    "[time]".into()
                } else if name.ends_with("Ms") && value.is_number() {
                    "[ms]".into()
                } else {
                    plain_document(home, value)
                };
                (home.plain(name), value)
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .map(|item| plain_document(home, item))
            .collect(),
        Value::String(text) => home.plain(text).into(),
        other => other.clone(),
    }
}

/// A document as its shape: member names and the kinds of their values. Lists show their first item.
pub(crate) fn shape(document: &Value) -> Value {
    match document {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), shape(value)))
            .collect(),
        Value::Array(items) => items.iter().take(1).map(shape).collect(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        Value::Bool(_) => "boolean".into(),
        Value::Null => Value::Null,
    }
}
