//! A store in a temporary home, workflows with every kind of node, and schedulers that launch this test binary as their workers.

use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use holdpoint_state::effects::BackOff;
use holdpoint_state::testing::counter;
use holdpoint_state::{Actor, ActorKind, Command, Database, Identity, Outcome, Schema};
use holdpoint_workflows::agents::{
    AgentExecutor, AgentFailure, AgentReply, AgentRequest, PublishUpdate,
};
use holdpoint_workflows::commands;
use holdpoint_workflows::definition::{
    Asked, CancellationSignal, CustomNode, Definition, EffectSpec, NodeContext, NodeError,
    NodeKind, NodeStep, NotificationKind, Park, TimeBudget, Timeout, Workflow,
};
use holdpoint_workflows::settings::{PathRule, Settings};
use holdpoint_workflows::shell::ShellCommand;
use holdpoint_workflows::views::{self, RunView, WorkerView};
use holdpoint_workflows::{
    DOMAIN, Execution, Registry, RunId, Scheduler, SchedulerOptions, WorkerLauncher, WorkerLimits,
    WorkflowError, Workflows,
};
use serde_json::{Value, json};

/// The longest that a test waits for something that must happen.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Numbers for the validator of [`spoken`].
pub(crate) const ABORTS: i64 = -1;
pub(crate) const LEAVES: i64 = -2;
pub(crate) const STOPS: i64 = -3;
pub(crate) const PANICS: i64 = -4;
pub(crate) const LINGERS: i64 = -5;

pub(crate) fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, counter::DOMAIN, DOMAIN],
    )
    .unwrap()
}

/// Bounds that a test can wait for.
pub(crate) const LIMITS: WorkerLimits = WorkerLimits {
    ready_ms: 20_000,
    silence_ms: 4_000,
    stop_grace_ms: 500,
    message_bytes_max: 1024 * 1024,
    memory_bytes_max: None,
};

/// Launches this binary as a worker of a mode, which [`child`](crate::child) knows.
pub(crate) fn launcher(mode: &str, home: &Path) -> WorkerLauncher {
    WorkerLauncher::new(std::env::current_exe().unwrap())
        .argument("child::worker_child")
        .argument("--exact")
        .argument("--nocapture")
        .argument(format!("mode={mode}"))
        .argument(of(home))
        .limited(LIMITS)
}

/// The argument that tells the workers of one store from those of others.
fn of(home: &Path) -> String {
    format!("worker-of={}", home.display())
}

pub(crate) fn options(execution: Execution) -> SchedulerOptions {
    SchedulerOptions {
        workers: 2,
        execution,
        lease_ms: 3_000,
        poll_interval_ms: 50,
        back_off: BackOff {
            base_ms: 20,
            cap_ms: 50,
        },
    }
}

pub(crate) struct Home {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) workflows: Workflows,
}

impl Home {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let db = open(&store(directory.path()));
        counter::create(&db, "gates").unwrap();
        Self {
            workflows: workflows(db),
            directory,
        }
    }

    pub(crate) fn db(&self) -> &Database {
        self.workflows.database()
    }

    pub(crate) fn launcher(&self, mode: &str) -> WorkerLauncher {
        launcher(mode, self.directory.path())
    }

    pub(crate) fn scheduler(&self, mode: &str) -> Scheduler {
        self.workflows
            .scheduler(options(Execution::Processes(self.launcher(mode))))
            .unwrap()
    }

    /// Runs a definition in workers of a mode to where it stops.
    pub(crate) fn run(&self, definition: &Definition, input: Value, mode: &str) -> RunView {
        let scheduler = self.scheduler(mode);
        let run = self.workflows.run(definition, input).unwrap();
        let view = self.workflows.wait(&run, LONG).unwrap();
        scheduler.stop(LONG);
        view
    }

    /// Input of the workflows here: where they leave traces.
    pub(crate) fn input(&self) -> Value {
        json!({ "directory": self.directory.path().to_str().unwrap() })
    }

    /// The lines that nodes left in a file.
    pub(crate) fn traces(&self, name: &str) -> Vec<String> {
        std::fs::read_to_string(self.directory.path().join(name))
            .unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn workers(&self, run: &RunId) -> Vec<WorkerView> {
        let snapshot = self.db().snapshot().unwrap();
        views::workers(&snapshot, run, self.db().clock().now(), 1_000).unwrap()
    }

    /// One number of the database.
    pub(crate) fn count(&self, sql: &'static str) -> i64 {
        let snapshot = self.db().snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }

    /// Everything that `verify` finds.
    pub(crate) fn violations(&self) -> Vec<String> {
        let snapshot = self.db().snapshot().unwrap();
        let mut found = Vec::new();
        for domain in schema().domains() {
            for invariant in domain.invariants {
                let sql = snapshot.sql();
                let mut statement = sql.prepare_cached(invariant.violations).unwrap();
                let mut rows = statement.query([]).unwrap();
                while let Some(row) = rows.next().unwrap() {
                    let name: Result<String, _> = row.get(0);
                    found.push(format!("{}: {name:?}", invariant.name));
                }
            }
        }
        found
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.violations(), Vec::<String>::new());
        }
    }
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (_keep, never) = channel::<()>();
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    panic!("it never came to: {what}");
}

pub(crate) fn store(directory: &Path) -> PathBuf {
    directory.join("state.sqlite")
}

pub(crate) fn open(path: &Path) -> Database {
    Database::open(path, &schema()).unwrap()
}

/// The workflows of a host: it knows the definitions and has an executor, as its workers do.
pub(crate) fn workflows(db: Database) -> Workflows {
    let workflows = Workflows::new(db).executing_agents_with(std::sync::Arc::new(Echo));
    for definition in definitions() {
        workflows.register(&definition);
    }
    workflows
}

pub(crate) fn registry() -> Registry {
    let registry = Registry::default();
    for definition in definitions() {
        registry.register(&definition);
    }
    registry
}

fn definitions() -> [Definition; 10] {
    [
        spoken(),
        chain(1),
        chain(200),
        composed(),
        every(),
        telling(),
        manual(),
        deaf(),
        descriptors(),
        endless(),
    ]
}

/// Leaves a line in a file of the directory that the input names.
pub(crate) fn trace(input: &Value, name: &str, line: &str) {
    use std::io::Write as _;
    let path = Path::new(input["directory"].as_str().unwrap()).join(name);
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    file.unwrap()
        .write_all(format!("{line}\n").as_bytes())
        .unwrap();
}

/// A kind of another domain that counts its waits.
pub(crate) struct Gate;

impl Gate {
    fn park() -> Park {
        let park = Park::new(json!({ "counter": "gates" })).asking(|waiting| {
            Ok(Asked {
                request_id: format!("gates-{}", waiting.attempt_id),
                contract: json!({ "counter": "gates", "at": waiting.now }),
            })
        });
        park.beside(|change, parked| {
            assert_eq!(parked.request_id, format!("gates-{}", parked.attempt_id));
            let command =
                Command::new(&counter::ADD, counter::resource("gates")).by(change.actor().clone());
            change.also(&command, |change| {
                counter::increase(change, 1)?;
                Ok::<_, WorkflowError>(Outcome::Accepted(()))
            })?;
            Ok(())
        })
    }
}

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "gate"
    }

    fn snapshot(&self) -> Value {
        json!({ "counter": "gates" })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(Self::park()))
    }

    fn park_again(&self, contract: &Value) -> Option<Park> {
        assert_eq!(contract["counter"], "gates");
        Some(Self::park())
    }

    fn complete(&self, _context: &NodeContext<'_>, answer: Value) -> Result<Value, NodeError> {
        Ok(json!({ "opened": answer }))
    }
}

/// Opens the gate that a run waits at.
pub(crate) fn open_gate(db: &Database, view: &RunView) {
    let run = view.run_id.clone();
    let request = view.request.as_ref().unwrap().request_id.clone();
    let command = Command::new(&counter::ADD, counter::resource("gates")).by(Actor::host("gates"));
    db.commit(command, move |change| {
        counter::increase(change, 100)?;
        commands::settle(change, &run, &request, ("open", &json!("by hand")))?;
        Ok::<_, WorkflowError>(Outcome::Accepted(()))
    })
    .unwrap();
}

/// Gives its prompt back.
pub(crate) struct Echo;

impl AgentExecutor for Echo {
    fn execute(
        &self,
        request: &AgentRequest,
        _cancellation: &CancellationSignal,
        _update: PublishUpdate<'_>,
    ) -> Result<AgentReply, AgentFailure> {
        Ok(AgentReply {
            output: json!({ "said": request.prompt }),
            receipt: json!({ "pid": std::process::id() }),
        })
    }
}

fn sh(script: String) -> ShellCommand {
    ShellCommand::new("sh").args(["-c".to_owned(), script])
}

/// Every kind that a headless run may have.
pub(crate) fn every() -> Definition {
    let idempotent = || EffectSpec::idempotent("test.act");
    Workflow::new("every")
        .title_with(|_: &Value| Ok("every kind".to_owned()))
        .start_at("count")
        .compute("count", |ctx| {
            ctx.publish("test.count", "n", &json!({ "n": 7 }))?;
            Ok(7)
        })
        .timeout_with(|_| Ok(TimeBudget::Millis(30_000.0)))
        .action("act", idempotent(), |ctx| {
            trace(ctx.input(), "acts", ctx.effect_id.unwrap_or("none"));
            Ok(std::process::id())
        })
        .shell("sh", EffectSpec::idempotent("test.sh"), |ctx| {
            let directory = ctx.input()["directory"].as_str().unwrap_or(".").to_owned();
            Ok(sh(format!("echo line >> {directory}/lines; echo $PPID")))
        })
        .checkpoint("ask")
        .request(|ctx| ctx.output::<i64>("count"))
        .node("gate", NodeKind::custom(Gate))
        .agent("agent", |ctx| {
            Ok(format!("say {}", ctx.output::<i64>("count")?))
        })
        .expects("what was said")
        .compute("end", |ctx| {
            Ok(json!({
                "count": ctx.output::<i64>("count")?,
                "ask": ctx.output::<Value>("ask")?,
                "gate": ctx.output::<Value>("gate")?,
                "agent": ctx.output::<Value>("agent")?,
            }))
        })
        .edge("count", "act")
        .edge("act", "sh")
        .edge("sh", "ask")
        .edge("ask", "gate")
        .edge("gate", "agent")
        .edge("agent", "end")
        .build()
        .unwrap()
}

/// So many nodes, one after the other.
pub(crate) fn chain(nodes: u32) -> Definition {
    let mut draft = Workflow::new(format!("chain-{nodes}")).start_at("n1");
    for node in 1..=nodes {
        draft = draft.compute(format!("n{node}"), |_| Ok(1));
    }
    for node in 1..nodes {
        draft = draft.edge(format!("n{node}"), format!("n{}", node + 1));
    }
    draft.max_steps(nodes + 1).build().unwrap()
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Limits {
    pub(crate) batch: u32,
}

/// Live settings that a route reads, once they stand still, and an included workflow that gets what it read.
pub(crate) fn composed() -> Definition {
    let settings = Settings::new(Limits { batch: 10 }).path(
        PathRule::new("")
            .may_read(ActorKind::ALL)
            .may_replace(&[ActorKind::Human, ActorKind::Control]),
    );
    let plus = Workflow::new("plus")
        .start_at("add")
        .compute("add", |ctx| Ok(ctx.input()["n"].as_u64().unwrap_or(0) + 1))
        .exit("done", "add")
        .build()
        .unwrap();
    Workflow::new("composed")
        .settings(settings)
        .start_at("route")
        .settings_route("route", |ctx| {
            let limits: Limits = ctx.settings()?;
            trace(ctx.input(), "routes", &limits.batch.to_string());
            let go = Path::new(ctx.input()["directory"].as_str().unwrap_or(".")).join("go");
            while !go.exists() {
                CancellationSignal::never().wait(Duration::from_millis(5));
            }
            Ok(json!({ "to": if limits.batch == 10 { "small" } else { "plus" }, "batch": limits.batch }))
        })
        .compute("small", |_| Ok("small"))
        .include("plus", &plus)
        .input_map(|ctx| Ok(json!({ "n": ctx.output::<Value>("route")?["batch"] })))
        .compute("last", |ctx| ctx.output::<Value>("plus"))
        .switch("route", "$.to", [("small", "small"), ("plus", "plus")])
        .edge("plus.done", "last")
        .build()
        .unwrap()
}

/// An agent of an origin session, whose output must be a number, and a node that says where it is executed. Some numbers are the end of
/// whoever looks at them.
pub(crate) fn spoken() -> Definition {
    Workflow::new("spoken")
        .start_at("say")
        .agent("say", |_| Ok("say a number".to_owned()))
        .expects("a number")
        .validate(|ctx, said: i64| {
            trace(ctx.input(), "looks", &std::process::id().to_string());
            let go = Path::new(ctx.input()["directory"].as_str().unwrap_or(".")).join("go");
            match said {
                ABORTS => std::process::abort(),
                LEAVES => std::process::exit(0),
                STOPS => {
                    let me = rustix::process::getpid();
                    let _ = rustix::process::kill_process(me, rustix::process::Signal::STOP);
                    // The other threads may be stopped a moment before this one.
                    CancellationSignal::never().wait(LONG);
                }
                PANICS => panic!("a number that nobody wants"),
                LINGERS if !go.exists() => {
                    if let Some(reason) = ctx.cancellation.wait(LONG) {
                        return Err(NodeError::stopped(reason));
                    }
                }
                _ => {}
            }
            Ok(said * 2)
        })
        .compute("where", |_| Ok(std::process::id()))
        .edge("say", "where")
        .build()
        .unwrap()
}

/// A notification for the session of an interactive run.
pub(crate) fn telling() -> Definition {
    Workflow::new("telling")
        .start_at("tell")
        .notify("tell", NotificationKind::Progress, |_| {
            Ok("half way".to_owned())
        })
        .build()
        .unwrap()
}

/// An action that nobody may do twice, and that takes its time.
pub(crate) fn manual() -> Definition {
    Workflow::new("manual")
        .start_at("act")
        .action("act", EffectSpec::manual("test.manual"), |ctx| {
            trace(ctx.input(), "acts", "begun");
            ctx.cancellation.wait(Duration::from_mins(2));
            Ok("done")
        })
        .build()
        .unwrap()
}

/// A node that does not listen, after one that counts its beginnings.
pub(crate) fn deaf() -> Definition {
    Workflow::new("deaf")
        .start_at("first")
        .compute("first", |_| Ok(1))
        .compute("hang", |ctx| {
            trace(ctx.input(), "hangs", "begun");
            CancellationSignal::never().wait(Duration::from_mins(2));
            Ok(2)
        })
        .timeout(Timeout::Unlimited)
        .edge("first", "hang")
        .build()
        .unwrap()
}

/// Says which descriptors its process has, what its environment is, and what a command that it starts has.
pub(crate) fn descriptors() -> Definition {
    Workflow::new("descriptors")
        .start_at("look")
        .compute("look", |_| {
            let mut open: Vec<String> = std::fs::read_dir("/proc/self/fd")
                .map_err(|error| NodeError::new(error.to_string()))?
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.path()).ok())
                .map(|path| path.display().to_string())
                .collect();
            open.sort();
            let names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            Ok(json!({ "open": open, "names": names }))
        })
        .shell("sh", EffectSpec::idempotent("test.sh"), |_| {
            Ok(ShellCommand::new("ls").args(["-l", "/proc/self/fd"]))
        })
        .edge("look", "sh")
        .build()
        .unwrap()
}

/// A command that goes on for ever, with its process id left in a file.
pub(crate) fn endless() -> Definition {
    Workflow::new("endless")
        .start_at("sh")
        .shell("sh", EffectSpec::idempotent("test.sh"), |ctx| {
            let directory = ctx.input()["directory"].as_str().unwrap_or(".").to_owned();
            Ok(sh(format!(
                "echo $$ >> {directory}/pids; while true; do sleep 1; done"
            )))
        })
        .timeout(Timeout::Unlimited)
        .build()
        .unwrap()
}

/// The children of this process that are workers of a store.
pub(crate) fn worker_pids(home: &Home) -> Vec<i32> {
    let whose = of(home.directory.path());
    let me = std::process::id().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok()?.parse::<i32>().ok())
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
            let mut fields = after.split_ascii_whitespace();
            fields.next() != Some("Z") && fields.next() == Some(&me)
        })
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&whose)
        })
        .collect()
}

pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, after)| !after.trim_start().starts_with('Z'))
}

pub(crate) fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
