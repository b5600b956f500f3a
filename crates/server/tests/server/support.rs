//! A home with a server, and peers that speak to it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// How often a condition is looked at, and how many times at most: together a minute.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3_000;
/// How long one message is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two steps and an answer.
pub(crate) const ASK: &str = r"
name: ask
startAt: prepare
nodes:
  prepare: { compute: { options: [lunch, nothing] } }
  review: { checkpoint: { summary: Go on? } }
  finish: { compute: { answer: { jq: $outputs.review } } }
edges:
  - { from: prepare, to: review }
  - { from: review, to: finish }
";

/// Waits for a condition.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        std::thread::park_timeout(LOOK);
    }
    panic!("it did not come to pass: {what}");
}

/// A home, and a directory to work in.
pub(crate) struct Home {
    home: TempDir,
    work: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = TempDir::new().unwrap();
        let work = TempDir::new().unwrap();
        std::fs::write(work.path().join("ask.workflow.yaml"), ASK).unwrap();
        Self { home, work }
    }

    pub(crate) fn path(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.work.path().join(name), text).unwrap();
    }

    /// Whether a file is in the directory to work in.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.work.path().join(name).exists()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join(".pi/agent/workflows/host/host.sock")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOLDPOINT_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.work.path())
            .env("HOLDPOINT_SWEEP_INTERVAL_MS", "50")
            .env("LC_ALL", "C")
            .arg("--home")
            .arg(self.path())
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The exit status and the document of a command.
    pub(crate) fn json(&self, args: &[&str]) -> (i32, Value) {
        let output = self.run(&[args, &["--json"]].concat());
        let document = serde_json::from_slice(&output.stdout);
        let document = document
            .unwrap_or_else(|_| panic!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)));
        (output.status.code().unwrap(), document)
    }

    /// Starts a server that ends with this value.
    pub(crate) fn serve(&self) -> Server<'_> {
        let child = self
            .command(&["server", "run"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let server = Server {
            home: self,
            child: child.unwrap(),
        };
        until("the server listens", || {
            UnixStream::connect(self.socket()).is_ok()
        });
        server
    }

    /// A run that waits for its answer, by its id.
    pub(crate) fn asking(&self) -> String {
        let (_, document) = self.json(&["run", "ask.workflow.yaml"]);
        document["runId"].as_str().unwrap().to_owned()
    }
}

/// A server in the foreground of a test.
pub(crate) struct Server<'a> {
    home: &'a Home,
    pub(crate) child: Child,
}

impl Server<'_> {
    pub(crate) fn peer(&self) -> Peer {
        Peer::connect(&self.home.socket())
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server<'_> {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A peer that speaks the protocol.
pub(crate) struct Peer {
    pub(crate) stream: UnixStream,
    reader: BufReader<UnixStream>,
    count: u32,
}

impl Peer {
    /// Connects and takes the hello.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let reader = BufReader::new(stream.try_clone().unwrap());
        let mut peer = Self {
            stream,
            reader,
            count: 0,
        };
        let hello = peer.message().unwrap();
        assert_eq!(
            (&hello["type"], &hello["packageVersion"]),
            (&json!("hello"), &json!("0.16.6"))
        );
        peer
    }

    /// The next message, nothing at the end.
    pub(crate) fn message(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("{error}"),
            Ok(_) => {
                assert!(line.len() <= 1_048_576);
                let text = line.strip_suffix('\n').unwrap();
                assert!(
                    holdpoint_state::json::is_canonical(text.as_bytes()),
                    "{text}"
                );
                Some(serde_json::from_str(text).unwrap())
            }
        }
    }

    pub(crate) fn send(&mut self, operation: &str, run: Option<&str>, payload: &Value) {
        self.count += 1;
        let id = format!("piw-1-{}", self.count);
        let mut request = json!({ "schema": "pi-workflows.client.v1", "type": "request", "requestId": id, "clientId": "piw-1",
            "operation": operation, "idempotencyKey": id, "payload": payload });
        if let Some(run) = run {
            request["runId"] = run.into();
        }
        let mut frame = holdpoint_state::json::canonical(&request).unwrap();
        frame.push(b'\n');
        self.stream.write_all(&frame).unwrap();
    }

    /// The answer to a request; events before it are left out.
    pub(crate) fn ask(&mut self, operation: &str, run: Option<&str>, payload: &Value) -> Value {
        self.send(operation, run, payload);
        loop {
            let message = self.message().unwrap();
            if message["type"] == "response" {
                assert_eq!(message["requestId"], format!("piw-1-{}", self.count));
                return message;
            }
        }
    }

    /// The next event.
    pub(crate) fn event(&mut self) -> Value {
        let message = self.message().unwrap();
        assert_eq!(message["type"], "event", "{message}");
        message
    }
}
