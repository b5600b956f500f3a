//! `run`: starts a run, executes it here and follows it to its end, or to what it waits for.

use std::time::Duration;

use holdpoint_workflows::commands::Start;
use holdpoint_workflows::model::RequestKind;
use holdpoint_workflows::views::{DisplayStatus, RunView};
use holdpoint_workflows::{RunId, Scheduler, Workflows};
use serde_json::{Value, json};

use super::prompt::{self, Asked};
use super::{Context, actor, decide, runs, value};
use crate::cli::RunArgs;
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::json::Run;
use crate::output::progress::Progress;
use crate::output::{Output, text};
use crate::signals::Interrupts;

/// How often a run is looked at for what changed, and Ctrl-C for having been pressed.
const LOOK: Duration = Duration::from_millis(100);
/// The most characters of a key, as for the keys of answers.
const KEY_CHARS_MAX: usize = 512;

pub(super) fn run(context: &Context, args: &RunArgs) -> Result<ExitStatus, CommandError> {
    if let Some(key) = &args.key
        && !(1..=KEY_CHARS_MAX).contains(&key.chars().count())
    {
        return Err(CommandError::input(
            "key",
            format!("a key has 1 to {KEY_CHARS_MAX} characters"),
        ));
    }
    let file = home::workflow(context.cli.home.as_deref(), &args.workflow)?;
    for (node, warning) in file.definition.warnings() {
        Output::warning(&format!("node {node}: {warning}"));
    }
    let input = match &args.input {
        Some(text) => value::read("input", text)?,
        None => json!({}),
    };
    let has_agents = file
        .definition
        .nodes()
        .values()
        .any(|node| node.kind.node_type() == "agent");
    // With a session it is the session that is asked, so that nobody else has to be named.
    let needs_agent = has_agents && args.session.is_none() && !args.detach;
    if needs_agent && context.cli.settings.agent.is_none() {
        return Err(CommandError::input(
            "workflow",
            "it has agent steps; say who executes them, such as --agent pi (docs/AGENTS.md), name the session that is asked \
             with --session, or only reserve the run with --detach",
        ));
    }
    // Told before a store is made for it; the start does it again for what is stored.
    if let Err(error) = file.definition.normalize_input(input.clone()) {
        return Err(CommandError::input("input", error.to_string()));
    }
    let mut start = Start::from_source(&file.definition, file.source.clone(), input)
        .options(home::launch_options()?)
        .by(actor());
    if let Some(key) = &args.key {
        start = start.key(key);
    }
    if let Some(session) = &args.session {
        start = start.in_session(session);
    }
    let store = context.store()?;
    let workflows = home::workflows(context.cli.home.as_deref(), store.clone())?;
    let workflows = context.cli.settings.executing(workflows);
    if args.detach {
        let receipt = workflows.start(&start)?;
        let view = workflows.view(&receipt.value)?;
        let adopted = !receipt.is_accepted();
        context.output.line(format!(
            "{} {}",
            if adopted {
                "there already:"
            } else {
                "reserved"
            },
            receipt.value
        ));
        context.output.line(format!(
            "execute it with: {}",
            context.hint(&["work", "--until-idle"])
        ));
        document(context, &workflows, &view, adopted)?;
        return Ok(ExitStatus::Done);
    }
    let interrupts = Interrupts::default();
    interrupts
        .listen(&store, context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    let receipt = workflows.start(&start)?;
    let adopted = !receipt.is_accepted();
    // This process executes this run and no other, so that its end is the end of the command.
    let own = receipt.value.clone();
    let workflows = workflows.admitting(move |run| *run == own);
    let scheduler = workflows.scheduler(context.cli.settings.scheduler())?;
    workflows.offer(&receipt.value);
    let follow = Follow {
        context,
        workflows: &workflows,
        interrupts: &interrupts,
        run: &receipt.value,
    };
    context.output.line(format!(
        "{} {}",
        if adopted {
            "run (there already)"
        } else {
            "run"
        },
        receipt.value
    ));
    let (view, interrupted) = follow.to_the_end(scheduler)?;
    document(context, &workflows, &view, adopted)?;
    tell_end(context, &view, interrupted);
    Ok(if interrupted && !view.status.is_terminal() {
        ExitStatus::Cancelled
    } else {
        exit(&view)
    })
}

fn document(
    context: &Context,
    workflows: &Workflows,
    view: &RunView,
    adopted: bool,
) -> Result<(), CommandError> {
    let options = workflows.launch_options(&view.run_id)?;
    context.output.document(&Run {
        adopted: Some(adopted),
        ..Run::of(view, &options)
    })
}

/// A run that is executed here and looked at.
struct Follow<'a> {
    context: &'a Context,
    workflows: &'a Workflows,
    interrupts: &'a Interrupts,
    run: &'a RunId,
}

impl Follow<'_> {
    /// Follows the run until nothing more happens here. Says also whether Ctrl-C ended that.
    fn to_the_end(&self, scheduler: Scheduler) -> Result<(RunView, bool), CommandError> {
        let clock = self.workflows.database().clock();
        let output = self.context.output;
        let mut progress = Progress::new(output);
        let interrupted = loop {
            let steps = progress.steps();
            let view = self.workflows.wait_for(self.run, LOOK, |view| {
                steps < view.steps.len() || is_settled(view)
            })?;
            progress.show(&view, clock.now());
            if self.interrupts.asked() {
                break true;
            }
            if !is_settled(&view) {
                continue;
            }
            if view.display_status != DisplayStatus::Waiting || !output.is_interactive() {
                break false;
            }
            progress.clear();
            let is_decision = view
                .request
                .as_ref()
                .is_some_and(|request| request.kind == RequestKind::Decision);
            let asked = if is_decision {
                decide::ask(self.context, self.workflows, &view, self.interrupts)?
            } else {
                prompt::ask(self.context, self.workflows, &view, self.interrupts)?
            };
            match asked {
                Asked::Answered | Asked::Moved => {}
                Asked::Left => break false,
                Asked::Interrupted => break true,
            }
        };
        progress.clear();
        let executed = self.workflows.view(self.run)?.display_status == DisplayStatus::Running;
        if interrupted && executed {
            output.note("stopping after the present node; Ctrl-C again stops at once");
        }
        scheduler.stop(Duration::from_millis(
            self.context.cli.settings.stop_patience_ms,
        ));
        let view = self.workflows.view(self.run)?;
        progress.show(&view, clock.now());
        Ok((view, interrupted))
    }
}

/// Whether the run goes no further without somebody.
fn is_settled(view: &RunView) -> bool {
    match view.display_status {
        DisplayStatus::Queued => view.error_code.is_some(),
        DisplayStatus::Running => false,
        DisplayStatus::Waiting
        | DisplayStatus::Paused
        | DisplayStatus::Ambiguous
        | DisplayStatus::Completed
        | DisplayStatus::Failed
        | DisplayStatus::TimedOut
        | DisplayStatus::Cancelled => true,
    }
}

/// What a run's status means as an exit status.
fn exit(view: &RunView) -> ExitStatus {
    match view.display_status {
        DisplayStatus::Completed => ExitStatus::Done,
        DisplayStatus::Failed | DisplayStatus::TimedOut => ExitStatus::Failed,
        DisplayStatus::Cancelled => ExitStatus::Cancelled,
        DisplayStatus::Queued
        | DisplayStatus::Running
        | DisplayStatus::Waiting
        | DisplayStatus::Paused
        | DisplayStatus::Ambiguous => ExitStatus::Waiting,
    }
}

fn tell_end(context: &Context, view: &RunView, interrupted: bool) {
    let output = context.output;
    let run = view.run_id.as_str();
    let hint = |words: &[&str]| context.hint(words);
    match view.display_status {
        DisplayStatus::Waiting => {
            output.line(runs::question(view));
            match view.request.as_ref().map(|request| request.kind) {
                Some(RequestKind::Agent) => output.line(format!(
                    "its session answers, or:  {}",
                    hint(&["submit", run, "JSON"])
                )),
                Some(RequestKind::Assistant) => output.line("its session answers"),
                Some(RequestKind::Decision) => output.line(format!(
                    "answer it with:  {}",
                    hint(&["answer", run, "CHOICE"])
                )),
                _ => output.line(format!(
                    "answer it with:  {}",
                    hint(&["answer", run, "JSON"])
                )),
            }
            output.line(format!(
                "and execute it:  {}",
                hint(&["work", "--until-idle"])
            ));
        }
        DisplayStatus::Completed => {
            output.line("completed");
            if let Some(value) = view
                .final_output
                .as_ref()
                .filter(|value| **value != Value::Null)
            {
                output.line(text::value(value, "  "));
            }
        }
        status => {
            let why = view.error.as_deref().or(view.status_detail.as_deref());
            output.line(match why {
                // Indented, so that no text from outside begins a line of its own that reads like one of ours.
                Some(why) => format!("{}: {}", status.as_str(), why.replace('\n', "\n  ")),
                None => status.as_str().to_owned(),
            });
            if interrupted && !view.status.is_terminal() {
                output.line(format!("go on with:  {}", hint(&["work", "--until-idle"])));
            } else if !view.status.is_terminal() {
                output.line(format!("see why:  {}", hint(&["explain", run])));
            }
        }
    }
}
