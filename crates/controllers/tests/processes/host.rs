//! A host process: a store, a controller, and a provider that is a file of the calls which it got.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use holdpoint_controllers::model::{ChildState, ConditionInput};
use holdpoint_controllers::{
    Acted, Action, Controller, Controllers, DOMAIN, EffectCall, ExternalEffect, Observed, Pass,
    PassError, finalizer,
};
use holdpoint_state::testing::crash;
use holdpoint_state::{Database, Identity, Options, Schema};
use holdpoint_workflows::definition::{CancellationSignal, Definition, Workflow};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::{Value, json};

pub(crate) const LONG: Duration = Duration::from_mins(1);
const HOME: &str = "HOLDPOINT_CONTROLLERS_HOME";
const TASK: &str = "HOLDPOINT_CONTROLLERS_TASK";

/// A directory with a store, and with what the provider knows.
pub(crate) struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        home.open().close();
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn open(&self) -> Database {
        open(self.path())
    }

    /// Starts a host with a task; `crash` is where it kills itself.
    pub(crate) fn start(&self, task: &str, crash: Option<&str>) -> Host {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([
                "--exact",
                "host::host",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(HOME, self.path())
            .env(TASK, task)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(crash) = crash {
            command.env(crash::VARIABLE, crash).stderr(Stdio::null());
        }
        Host(command.spawn().unwrap())
    }

    /// What was asked of the provider, one line for each call.
    pub(crate) fn calls(&self) -> Vec<String> {
        calls(self.path()).lines().map(str::to_owned).collect()
    }
}

/// A host process. A test that fails leaves none behind.
pub(crate) struct Host(pub(crate) Child);

impl Host {
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Waits for something that comes.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let never = CancellationSignal::never();
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        never.wait(Duration::from_millis(5));
    }
    panic!("{what} did not come");
}

pub(crate) fn open(home: &Path) -> Database {
    let schema = Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN, DOMAIN],
    );
    let options = Options {
        busy_timeout_ms: 60_000,
        check_integrity: false,
        ..Options::default()
    };
    Database::open_with(home.join("state.sqlite"), &schema.unwrap(), options).unwrap()
}

fn calls(home: &Path) -> String {
    std::fs::read_to_string(home.join("calls")).unwrap_or_default()
}

/// Appends a line with one write.
pub(crate) fn note(home: &Path, file: &str, line: &str) -> std::io::Result<()> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(home.join(file))?;
    file.write_all(format!("{line}\n").as_bytes())
}

/// A call of the provider.
struct Call {
    home: PathBuf,
    name: String,
}

impl ExternalEffect for Call {
    fn kind(&self) -> &'static str {
        "provider.call"
    }

    fn key(&self) -> String {
        self.name.clone()
    }

    fn request(&self) -> Value {
        json!({ "name": self.name })
    }

    fn observe(&self, _: &EffectCall<'_>) -> Result<Observed, PassError> {
        let is_done = calls(&self.home).lines().any(|line| line == self.name);
        Ok(if is_done {
            Observed::applied_as("seen")
        } else {
            Observed::NotApplied
        })
    }

    fn apply(&self, _: &EffectCall<'_>) -> Result<Acted, PassError> {
        note(&self.home, "calls", &self.name)?;
        Ok(Acted::applied_as("called"))
    }
}

/// Things that are made by a call, worked on by a child workflow, and removed by a call.
pub(crate) struct Things {
    home: PathBuf,
    working: Definition,
}

impl Controller for Things {
    type Spec = String;
    type Status = Value;

    fn name(&self) -> &'static str {
        "things"
    }

    fn initial_status(&self, _: &String) -> Value {
        Value::Null
    }

    fn reconcile(&self, pass: &mut Pass<'_, String, Value>) -> Result<Action, PassError> {
        let key = pass.metadata().key.to_string();
        let call = |what: &str| Call {
            home: self.home.clone(),
            name: format!("{what} {key}"),
        };
        note(&self.home, "passes", &key)?;
        if pass.spec() == "hold" {
            note(&self.home, "held", &key)?;
            pass.cancellation().wait(LONG);
            return Err(PassError::new("nobody killed it"));
        }
        if pass.spec().starts_with("quick") {
            return Ok(Action::settled());
        }
        finalizer::with(pass, "example.com/thing", |pass, event| {
            if event == finalizer::Event::Cleanup {
                pass.ensure(&call("remove"))?;
                return Ok(Action::settled());
            }
            pass.ensure(&call("make"))?;
            let input = json!(pass.spec());
            let child = holdpoint_controllers::Child::of("work", &self.working, input)?;
            let record = pass.ensure_workflow(&child)?;
            pass.set_workflow_run(record.run_id);
            if record.state == ChildState::Succeeded {
                pass.set_condition(ConditionInput::new("Ready", true, "Worked"));
            }
            Ok(Action::settled())
        })
    }
}

pub(crate) fn controllers(home: &Path, db: &Database) -> (Controllers, Workflows) {
    let working = Workflow::new("working")
        .input::<String>()
        .start_at("n")
        .compute("n", |ctx| Ok(ctx.input().len()))
        .build()
        .unwrap();
    let workflows = Workflows::new(db.clone());
    workflows.register(&working);
    let things = Things {
        home: home.to_owned(),
        working,
    };
    let controllers = Controllers::new(&workflows, "/srv/app")
        .unwrap()
        .register(things)
        .unwrap();
    let workflows = controllers.attach(workflows);
    (controllers, workflows)
}

#[test]
#[ignore = "the host of the other tests"]
fn host() {
    let (Some(home), Ok(task)) = (
        std::env::var_os(HOME).map(PathBuf::from),
        std::env::var(TASK),
    ) else {
        return;
    };
    let db = open(&home);
    let (controllers, workflows) = controllers(&home, &db);
    let options = SchedulerOptions {
        workers: 2,
        poll_interval_ms: 100,
        ..SchedulerOptions::default()
    };
    let scheduler = workflows.scheduler(options).unwrap();
    match task.as_str() {
        // The whole life of a thing, from wherever it stands.
        "life" => {
            let is_ready = home.join("ready");
            if !is_ready.exists() {
                controllers
                    .apply::<Things>("one", &"work".to_owned())
                    .unwrap();
                let ready = controllers
                    .wait_for_condition::<Things>("one", "Ready", LONG)
                    .unwrap();
                assert!(ready.is_some());
                std::fs::write(is_ready, "").unwrap();
            }
            if controllers.get::<Things>("one").unwrap().is_some() {
                controllers.delete::<Things>("one").unwrap();
            }
            assert!(controllers.wait_until_gone::<Things>("one", LONG).unwrap());
        }
        "idle" => assert!(scheduler.wait_until_idle(LONG)),
        "serve" => {
            wait_for("the word to stop", || home.join("stop").exists());
            assert!(scheduler.wait_until_idle(LONG));
        }
        other => panic!("{other}"),
    }
    scheduler.stop(Duration::from_secs(10));
    db.close();
}
