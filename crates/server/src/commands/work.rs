//! `work`: executes what is due, whoever left it.

mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdpoint_workflows::model::RunStatus;
use holdpoint_workflows::views::{DisplayStatus, Filter};
use holdpoint_workflows::{Execution, RunId, WorkerLauncher, Workflows, run_child};
use serde_json::{Value, json};

use self::resources::Resources;
use super::Context;
use crate::cli::WorkArgs;
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::Output;
use crate::signals::Interrupts;

/// How long one wait for events lasts, in milliseconds; Ctrl-C is looked for between two.
const LOOK_MS: u64 = 100;
/// How many runs of each status are looked at for being parked when work begins.
const PARKED_MAX: usize = 100;

pub(super) fn work(context: &Context, args: &WorkArgs) -> Result<ExitStatus, CommandError> {
    let store = context.store()?;
    let elsewhere = Elsewhere::default();
    let workflows = home::workflows(context.cli.home.as_deref(), store.clone())?;
    let workflows = elsewhere.watch(&context.cli.settings.executing(workflows));
    let workflows = home::with_controllers(workflows)?;
    let mut resources = Resources::new(context, &store)?;
    let interrupts = Interrupts::default();
    interrupts
        .listen(&store, context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    let mut follower = store.follow_events(store.snapshot()?.last_event_seq()?)?;
    let mut options = context.cli.settings.scheduler();
    if args.isolate {
        options.execution = Execution::Processes(launcher(context, args)?);
    }
    let scheduler = workflows.scheduler(options)?;
    let mut touched = BTreeSet::new();
    let mut parked = Parked {
        context,
        told: BTreeSet::new(),
    };
    parked.find(&workflows)?;
    let interrupted = loop {
        let batch = follower.next_batch(LOOK_MS)?;
        let quiet = batch.is_empty();
        resources.show(&batch)?;
        show(context, batch, &mut touched, &mut parked);
        if interrupts.asked() {
            break true;
        }
        // Asked before the search too: a lease that ends between a search and the question would leave its run to nobody.
        let idle = quiet
            && args.until_idle
            && !is_anything_executed(&workflows)?
            && !resources.is_any_looked_at()?
            && scheduler.wait_until_idle(Duration::from_millis(LOOK_MS))
            && !is_anything_executed(&workflows)?
            && !resources.is_any_looked_at()?;
        if idle {
            break false;
        }
    };
    if interrupted {
        context
            .output
            .note("stopping after the present nodes; Ctrl-C again stops at once");
    }
    scheduler.stop(Duration::from_millis(context.cli.settings.stop_patience_ms));
    loop {
        let batch = follower.next_batch(0)?;
        if batch.is_empty() {
            break;
        }
        resources.show(&batch)?;
        show(context, batch, &mut touched, &mut parked);
    }
    let resources = resources.end()?;
    let mut runs = Vec::new();
    for run in &touched {
        if let Ok(id) = RunId::new(run) {
            let view = workflows.view(&id)?;
            runs.push(json!({
                "runId": view.run_id,
                "status": view.status,
                "displayStatus": view.display_status,
                "revision": view.run_revision,
                "runRevision": view.run_revision,
            }));
            context
                .output
                .line(format!("{run}: {}", view.display_status.as_str()));
        }
    }
    for (run, directory) in elsewhere.take() {
        context.output.line(format!(
            "{run} belongs to another directory; it is executed by: cd {} && {}",
            super::quoted(&directory),
            context.hint(&["work", "--until-idle"])
        ));
    }
    let stopped = if interrupted { "interrupted" } else { "idle" };
    context
        .output
        .document(&json!({ "stopped": stopped, "runs": runs, "resources": resources }))?;
    context.output.line(stopped);
    Ok(if interrupted {
        ExitStatus::Cancelled
    } else {
        ExitStatus::Done
    })
}

/// This program itself, as a worker that looks for files where this process does.
fn launcher(context: &Context, args: &WorkArgs) -> Result<WorkerLauncher, CommandError> {
    let program = std::env::current_exe().map_err(|source| CommandError::Io {
        action: "finding this program".to_owned(),
        source,
    })?;
    let mut launcher = WorkerLauncher::new(program);
    if let Some(home) = &context.cli.home {
        launcher = launcher.argument("--home").argument(home);
    }
    if let Some(agent) = &context.cli.settings.agent {
        // One word: a worker must not take the first of an agent's own options for its own.
        launcher = launcher.argument(format!("--agent={}", agent.line));
    }
    launcher = launcher.argument("worker");
    for name in &args.pass_env {
        launcher = launcher.passing(name);
    }
    Ok(launcher)
}

/// One run, for the process that launched this one. No store is opened here.
pub(super) fn worker(context: &Context) -> Result<ExitStatus, CommandError> {
    let registry = home::registry(context.cli.home.as_deref())?;
    let ended = run_child(&registry, context.cli.settings.agents().as_ref());
    Ok(if ended == std::process::ExitCode::SUCCESS {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

/// Runs that were found and belong to other directories, with those.
#[derive(Debug, Clone, Default)]
struct Elsewhere {
    runs: Arc<Mutex<BTreeMap<RunId, String>>>,
}

impl Elsewhere {
    /// Leaves runs of other directories alone, and remembers them.
    fn watch(&self, workflows: &Workflows) -> Workflows {
        let (reader, elsewhere) = (workflows.clone(), self.clone());
        workflows.clone().admitting(move |run| {
            // A run whose options can't be read is none of this process's business.
            let Ok(options) = reader.launch_options(run) else {
                return false;
            };
            let admitted = home::is_at_home(&options);
            if let Some(directory) = home::directory_of(&options).filter(|_| !admitted) {
                elsewhere.lock().insert(run.clone(), directory.to_owned());
            }
            admitted
        })
    }

    fn take(&self) -> BTreeMap<RunId, String> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunId, String>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The runs that are parked until somebody steps in, each told once.
struct Parked<'a> {
    context: &'a Context,
    told: BTreeSet<String>,
}

impl Parked<'_> {
    /// Tells those of this directory that were parked before, the newest of them.
    fn find(&mut self, workflows: &Workflows) -> Result<(), CommandError> {
        for status in [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting] {
            let page = workflows.list(&Filter {
                status: Some(status),
                limit: PARKED_MAX,
                after: None,
            })?;
            for run in page.runs {
                let may_be = matches!(
                    run.display_status,
                    Some(DisplayStatus::Queued | DisplayStatus::Ambiguous)
                );
                let Ok(id) = RunId::new(&run.run_id) else {
                    continue;
                };
                if !may_be || !home::is_at_home(&workflows.launch_options(&id)?) {
                    continue;
                }
                if let Some(code) = workflows.view(&id)?.error_code {
                    self.tell(&run.run_id, &code);
                }
            }
        }
        Ok(())
    }

    fn tell(&mut self, run: &str, code: &str) {
        if self.told.insert(run.to_owned()) {
            Output::warning(&format!(
                "{run} is parked ({code}) and not executed; see why and what to do: {}",
                self.context.hint(&["explain", run])
            ));
        }
    }
}

fn show(
    context: &Context,
    batch: Vec<holdpoint_state::Event>,
    touched: &mut BTreeSet<String>,
    parked: &mut Parked<'_>,
) {
    for event in batch {
        if event.resource_type == "run" {
            let payload = event.payload.as_deref().unwrap_or_default();
            let payload: Value = serde_json::from_slice(payload).unwrap_or_default();
            let node = payload.get("nodeId").and_then(Value::as_str);
            context.output.line(format!(
                "{} {}{}{}",
                event.resource_key,
                event.event_type,
                if node.is_some() { " " } else { "" },
                node.unwrap_or_default()
            ));
            let is_parked = payload.get("queue").and_then(Value::as_str) == Some("parked");
            let code = payload.get("errorCode").and_then(Value::as_str);
            if let Some(code) = code.filter(|_| is_parked) {
                parked.tell(&event.resource_key, code);
            }
            touched.insert(event.resource_key);
        }
    }
}

/// Whether some process executes a run. It may be a lost one, whose claim has to end before its run can be taken up.
pub(super) fn is_anything_executed(workflows: &Workflows) -> Result<bool, CommandError> {
    let mut filter = Filter {
        status: Some(RunStatus::Running),
        limit: 1_000,
        after: None,
    };
    loop {
        let page = workflows.list(&filter)?;
        if page
            .runs
            .iter()
            .any(|run| run.display_status == Some(DisplayStatus::Running))
        {
            return Ok(true);
        }
        match page.next {
            Some(next) => filter.after = Some(next),
            None => return Ok(false),
        }
    }
}
