//! `answer`: one accepted answer to what a run waits for. A decision has rules of its own (`decide`).

use holdpoint_decisions::DecisionId;
use holdpoint_decisions::views::{self, DecisionView};
use holdpoint_workflows::commands::Answer;
use holdpoint_workflows::model::RequestKind;
use holdpoint_workflows::{RunId, WorkflowError, Workflows};
use serde_json::json;

use super::prompt::{self, Asked};
use super::{Context, actor, decide, decisions, value};
use crate::cli::AnswerArgs;
use crate::error::{CommandError, ExitStatus};
use crate::signals::Interrupts;

pub(super) fn answer(context: &Context, args: &AnswerArgs) -> Result<ExitStatus, CommandError> {
    let workflows = context.workflows()?;
    if let Some(decision) = decision(&workflows, args)? {
        return decide::answer(context, &workflows, &decision, args);
    }
    let run = Context::run_id(&args.run)?;
    for (flag, given) in [("text", &args.text), ("seen", &args.seen)] {
        if given.is_some() {
            let misplaced = CommandError::input(flag, "it belongs to the answer of a decision");
            return Err(unless_nothing_is_asked(&workflows, &run, misplaced));
        }
    }
    let Some(typed) = &args.answer else {
        return at_terminal(context, &workflows, &run);
    };
    let value = value::read("answer", typed)
        .map_err(|problem| unless_nothing_is_asked(&workflows, &run, problem))?;
    let mut answer = Answer::new(&run, value).by(actor());
    if let Some(request) = &args.request {
        answer = answer.to(request);
    }
    if let Some(key) = &args.key {
        answer = answer.key(key);
    }
    if let Some(revision) = args.expect {
        answer = answer.expecting(revision);
    }
    let receipt = workflows.answer(&answer)?;
    let adopted = !receipt.is_accepted();
    let view = workflows.view(&run)?;
    context.output.document(&json!({
        "runId": run,
        "requestId": receipt.value.request_id,
        "submissionId": receipt.value.submission_id,
        "requestRevision": receipt.value.request_revision,
        "adopted": adopted,
        "status": view.status,
        "displayStatus": view.display_status,
        "revision": view.run_revision,
        "runRevision": view.run_revision,
    }))?;
    context.output.line(if adopted {
        "answered already, with the same answer"
    } else {
        "answered"
    });
    if !view.status.is_terminal() {
        context.output.line(format!(
            "whoever executes the run goes on now; else: {}",
            context.hint(&["work", "--until-idle"])
        ));
    }
    Ok(ExitStatus::Done)
}

/// What is wrong with an answer that was not understood. Somebody who answers before a decision is asked is told that, and not that
/// its choice is no JSON.
fn unless_nothing_is_asked(
    workflows: &Workflows,
    run: &RunId,
    problem: CommandError,
) -> CommandError {
    match workflows.view(run) {
        Ok(view) if view.waiting_on.is_none() => WorkflowError::Rejected {
            run: run.to_string(),
            status: view.status,
            paused: view.paused,
            problem: "it waits for no answer".to_owned(),
        }
        .into(),
        Ok(_) => problem,
        Err(error) => error.into(),
    }
}

/// The decision that is meant: by its own id, as the named request of a run, or as what the run asks.
fn decision(
    workflows: &Workflows,
    args: &AnswerArgs,
) -> Result<Option<DecisionView>, CommandError> {
    let store = workflows.database();
    let (snapshot, now) = (store.snapshot()?, store.clock().now());
    let named = args.request.as_deref().unwrap_or(&args.run);
    if let Ok(id) = DecisionId::new(named)
        && let Some(view) = views::fetch(&snapshot, &id, now)?
    {
        return Ok(Some(view));
    }
    if args.request.is_some() {
        return Ok(None);
    }
    let run = Context::run_id(&args.run)?;
    let view = match workflows.view(&run) {
        // What is missing is a decision, by its name.
        Err(WorkflowError::NoRun { .. }) if args.run.starts_with("decision-") => {
            return decisions::find(&snapshot, &args.run, now).map(Some);
        }
        view => view?,
    };
    let is_decision = view
        .request
        .as_ref()
        .is_some_and(|request| request.kind == RequestKind::Decision);
    if !is_decision {
        return Ok(None);
    }
    decisions::find(&snapshot, run.as_str(), now).map(Some)
}

/// `answer` without an answer, to a checkpoint.
fn at_terminal(
    context: &Context,
    workflows: &Workflows,
    run: &RunId,
) -> Result<ExitStatus, CommandError> {
    if !context.output.is_interactive() {
        return Err(CommandError::input(
            "answer",
            "give one as JSON; only at a terminal you are asked for it",
        ));
    }
    let view = workflows.view(run)?;
    let asks = view
        .request
        .as_ref()
        .is_some_and(|request| request.kind == RequestKind::Checkpoint);
    if view.waiting_on.is_none() || !asks {
        return Err(CommandError::input("answer", "the run waits for no answer"));
    }
    let interrupts = Interrupts::default();
    interrupts
        .listen(workflows.database(), context.output)
        .map_err(|source| CommandError::Io {
            action: "listening for signals".to_owned(),
            source,
        })?;
    Ok(match prompt::ask(context, workflows, &view, &interrupts)? {
        Asked::Answered => ExitStatus::Done,
        Asked::Moved => ExitStatus::Conflict,
        Asked::Left => ExitStatus::Waiting,
        Asked::Interrupted => ExitStatus::Cancelled,
    })
}
