//! A home, a private configuration and a played provider for each test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdpoint_channels::dev_server::DevServer;
use holdpoint_channels::telegram::BotToken;
use holdpoint_state::clock::{Clock as _, SystemClock};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The token of the bot.
pub(crate) const TOKEN: &str = "1000:token-that-nobody-may-see";
/// The one who may answer, and where.
pub(crate) const USER: i64 = 100;
pub(crate) const CHAT: i64 = 200;

/// Asks, and ends with what was answered.
pub(crate) const SHIP: &str = r"
name: ship
startAt: review
nodes:
  review:
    decision:
      title: Ship 1.2?
      presentation:
        summary: All tests pass.
      choices:
        go: { label: Ship it, to: end }
        redo: { label: Redo, input: { name: why, prompt: What is missing? }, to: end }
  end:
    compute: { jq: $outputs.review }
";

/// Everything that a test needs on disk.
pub(crate) struct Home {
    directory: TempDir,
}

impl Home {
    /// With one profile `ops`, and a provider that plays.
    pub(crate) fn with_ops() -> (Self, DevServer) {
        let home = Self::new();
        let server = DevServer::start(&BotToken::new(TOKEN).unwrap()).unwrap();
        home.token("token", TOKEN);
        home.set_up("ops", "token", &server.url());
        (home, server)
    }

    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let home = Self { directory };
        fs::write(home.work().join("ship.workflow.yaml"), SHIP).unwrap();
        home
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.path("work")
    }

    pub(crate) fn token(&self, name: &str, token: &str) {
        fs::write(self.path(name), format!("{token}\n")).unwrap();
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }

    pub(crate) fn set_up(&self, profile: &str, token: &str, url: &str) {
        let token = self.path(token);
        let done = self.run(&[
            "channels",
            "setup",
            profile,
            "--token-file",
            token.to_str().unwrap(),
            "--user",
            "100",
            "--chat",
            "200",
            "--api-base",
            url,
        ]);
        assert_eq!(done.0, 0, "{done:?}");
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdpoint"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOLDPOINT_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.work())
            .env("HOLDPOINT_CONFIG_DIR", self.path("config"))
            .env("HOLDPOINT_SWEEP_INTERVAL_MS", "50")
            .env("HOLDPOINT_LEASE_MS", "1500")
            .arg("--home")
            .arg(self.path("home"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs to the end: status, standard output, standard error.
    pub(crate) fn run(&self, args: &[&str]) -> (i32, String, String) {
        let output = self.command(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap_or(-1),
            text(output.stdout),
            text(output.stderr),
        )
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let (_, stdout, stderr) = self.run(&[&["--json"], args].concat());
        serde_json::from_str(&stdout)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {stdout} {stderr}"))
    }

    /// Reserves a run that asks, and gives its id.
    pub(crate) fn ask(&self) -> String {
        let run = self.json(&["run", "ship.workflow.yaml", "--detach"]);
        run["runId"].as_str().unwrap().to_owned()
    }

    /// Executes whatever can be executed.
    pub(crate) fn work_until_idle(&self) {
        let done = self.run(&["work", "--until-idle"]);
        assert_eq!(done.0, 0, "{done:?}");
    }

    pub(crate) fn status(&self) -> Value {
        self.json(&["channels", "status"])
    }

    /// Waits until a run is shown so.
    pub(crate) fn wait_for(&self, run: &str, status: &str) -> Value {
        let mut last = Value::Null;
        until(&format!("{run} to be {status}"), || {
            last = self.json(&["show", run]);
            last["displayStatus"] == status
        });
        last
    }

    /// A host that goes on.
    pub(crate) fn host(&self, url: &str) -> Running {
        self.host_with(&["channels", "run", "--api-base", url])
    }

    pub(crate) fn host_with(&self, args: &[&str]) -> Running {
        Running::start(&mut self.command(args))
    }

    /// Everything that lies in the home, as bytes.
    pub(crate) fn store_bytes(&self) -> Vec<u8> {
        fn read(path: &Path, into: &mut Vec<u8>) {
            for entry in fs::read_dir(path).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    read(&path, into);
                } else {
                    into.extend(fs::read(path).unwrap_or_default());
                }
            }
        }
        let mut bytes = Vec::new();
        read(&self.path("home"), &mut bytes);
        bytes
    }
}

/// A host process. It is killed when the test ends.
pub(crate) struct Running {
    child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Running {
    /// A process that goes on.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let said = Arc::new(Mutex::new(Vec::new()));
        let outputs: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().unwrap()),
            Box::new(child.stderr.take().unwrap()),
        ];
        for output in outputs {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    said.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(line);
                }
            });
        }
        Running { child, said }
    }

    /// Everything that it said so far.
    pub(crate) fn said(&self) -> String {
        self.said
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }

    /// Waits until it has said this so many times.
    pub(crate) fn wait_to_say(&self, text: &str, times: usize) {
        until(
            &format!("{times} times {text:?} in {}", self.said()),
            || times <= self.said().matches(text).count(),
        );
    }

    /// The adapter processes that it has now.
    pub(crate) fn adapters(&self) -> Vec<i32> {
        let host = self.child.id().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let fields: Vec<&str> = stat
                .rsplit_once(") ")
                .map_or(Vec::new(), |(_, rest)| rest.split(' ').collect());
            if fields.get(1) == Some(&host.as_str()) && fields.first() != Some(&"Z") {
                found.push(name.parse().unwrap());
            }
        }
        found
    }

    /// The one adapter process.
    pub(crate) fn adapter(&self) -> i32 {
        let mut found = Vec::new();
        until("an adapter", || {
            found = self.adapters();
            found.len() == 1
        });
        found[0]
    }

    /// Ends it as nobody can refuse.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop, and gives its exit code.
    pub(crate) fn stop(mut self) -> i32 {
        signal(i32::try_from(self.child.id()).unwrap(), Signal::INT);
        until("the host to end", || {
            self.child.try_wait().unwrap().is_some()
        });
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits for a condition, with a bound.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = SystemClock.monotonic();
    while !holds() {
        assert!(
            SystemClock.monotonic().since(begun) < 60_000,
            "waited for {what}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// Waits until the bot has shown so many messages with buttons.
pub(crate) fn wait_for_messages(server: &DevServer, count: usize) -> u64 {
    until(&format!("{count} messages"), || {
        count <= server.chat(CHAT).len()
    });
    server.chat(CHAT).last().unwrap().message
}
