//! `pause`, `resume`, `cancel`, `restart`.
//!
//! A person who types one of them means it: a run that another process executes is taken away from it, unless `--if-free` is given.

use holdpoint_state::StateError;
use holdpoint_workflows::commands::{Control, ForeignClaim, Restart};
use holdpoint_workflows::{RunId, WorkflowError, Workflows};

use super::{Context, actor};
use crate::cli::{ControlArgs, RestartArgs, ResumeArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::json::Steered;

pub(super) fn pause(context: &Context, args: &ControlArgs) -> Result<ExitStatus, CommandError> {
    let (run, control) = control(args)?;
    let workflows = context.workflows()?;
    let receipt = workflows
        .pause(&control)
        .map_err(|error| held(context, "pause", &run, error))?;
    tell(context, &workflows, &run, !receipt.is_accepted(), "paused")?;
    Ok(ExitStatus::Done)
}

pub(super) fn cancel(context: &Context, args: &ControlArgs) -> Result<ExitStatus, CommandError> {
    let (run, control) = control(args)?;
    let workflows = context.workflows()?;
    let receipt = workflows
        .cancel(&control)
        .map_err(|error| held(context, "cancel", &run, error))?;
    tell(
        context,
        &workflows,
        &run,
        !receipt.is_accepted(),
        "cancelled",
    )?;
    Ok(ExitStatus::Done)
}

pub(super) fn resume(context: &Context, args: &ResumeArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let workflows = context.workflows()?;
    if args.accept_definition {
        let revision = match args.expect {
            Some(revision) => revision,
            None => workflows.view(&run)?.run_revision,
        };
        let accepted = workflows.accept_definition(&run, revision, actor());
        if let Err(WorkflowError::NoWorkflow { .. }) = &accepted {
            check_file(&workflows, &run)?;
        }
        let receipt = accepted?;
        let adopted = !receipt.is_accepted();
        tell(
            context,
            &workflows,
            &run,
            adopted,
            "goes on with the present definition",
        )?;
        return Ok(ExitStatus::Done);
    }
    let mut control = Control::of(&run).by(actor());
    if let Some(reason) = &args.reason {
        control = control.because(reason);
    }
    if let Some(revision) = args.expect {
        control = control.expecting(revision);
    }
    let resumed = workflows.resume(&control);
    if let Err(WorkflowError::SourceChanged { .. }) = &resumed {
        // There is nothing to accept when the file gives no definition.
        check_file(&workflows, &run)?;
        context.output.note(format!(
            "put the old file back, or accept what it says now: {}",
            context.hint(&["resume", run.as_str(), "--accept-definition"])
        ));
    }
    tell(
        context,
        &workflows,
        &run,
        !resumed?.is_accepted(),
        "resumed",
    )?;
    Ok(ExitStatus::Done)
}

pub(super) fn restart(context: &Context, args: &RestartArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let workflows = context.workflows()?;
    let revision = match args.expect {
        Some(revision) => revision,
        None => workflows.view(&run)?.run_revision,
    };
    let receipt = workflows.restart(&Restart::new(&run, revision).by(actor()))?;
    let adopted = !receipt.is_accepted();
    tell(context, &workflows, &receipt.value, adopted, "restarted")?;
    context.output.line(format!(
        "execute it with: {}",
        context.hint(&["work", "--until-idle"])
    ));
    Ok(ExitStatus::Done)
}

/// Whether the workflow file of a run, if it came from one, still gives a definition.
fn check_file(workflows: &Workflows, run: &RunId) -> Result<(), CommandError> {
    let source = workflows.view(run)?.source;
    match source.filter(|source| source.source_type == "file") {
        Some(file) => match workflows.registry().read_file(&file.reference) {
            Ok(_) => Ok(()),
            Err(source) => Err(CommandError::SourceGone {
                run: run.clone(),
                source: Box::new(source),
            }),
        },
        None => Ok(()),
    }
}

/// A run that somebody else executes, with the way to have it all the same.
fn held(context: &Context, verb: &str, run: &RunId, error: WorkflowError) -> CommandError {
    match error {
        WorkflowError::State(StateError::LeaseHeld { expires_at, .. }) => CommandError::Held {
            run: run.clone(),
            until: expires_at,
            hint: context.hint(&[verb, run.as_str()]),
        },
        error => error.into(),
    }
}

fn control(args: &ControlArgs) -> Result<(RunId, Control), CommandError> {
    let run = Context::run_id(&args.run)?;
    let foreign = if args.if_free {
        ForeignClaim::Respect
    } else {
        ForeignClaim::TakeOver
    };
    let mut control = Control::of(&run).by(actor()).foreign_claim(foreign);
    if let Some(reason) = &args.reason {
        control = control.because(reason);
    }
    if let Some(revision) = args.expect {
        control = control.expecting(revision);
    }
    Ok((run, control))
}

fn tell(
    context: &Context,
    workflows: &Workflows,
    run: &RunId,
    adopted: bool,
    done: &str,
) -> Result<(), CommandError> {
    let view = workflows.view(run)?;
    context.output.document(&Steered::of(&view, adopted))?;
    let already = if adopted { " (it was so already)" } else { "" };
    context.output.line(format!(
        "{run} {done}{already}; it is {}",
        view.display_status.as_str()
    ));
    Ok(())
}
