//! `settings`: the live settings of a run.

use holdpoint_workflows::commands::SettingsChange;
use serde_json::json;

use super::{Context, actor, value};
use crate::cli::{SettingsHistoryArgs, SettingsPatchArgs, SettingsShowArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

pub(super) fn show(context: &Context, args: &SettingsShowArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let workflows = context.workflows()?;
    let mut scopes = workflows.settings(&run)?;
    if let Some(scope) = &args.scope {
        scopes.retain(|view| view.scope_id.as_str() == scope);
        if scopes.is_empty() {
            return Err(CommandError::NoScope {
                run,
                scope: scope.clone(),
            });
        }
    }
    context
        .output
        .document(&json!({ "runId": run, "scopes": scopes }))?;
    if scopes.is_empty() {
        context.output.line("its workflow has no settings");
    }
    for scope in &scopes {
        context.output.line(format!(
            "{}  change {}  {}",
            text::line(scope.scope_id.as_str()),
            scope.change_number,
            text::instant(scope.updated_at.0)
        ));
        context.output.line(text::value(&scope.value, "  "));
    }
    Ok(ExitStatus::Done)
}

pub(super) fn patch(
    context: &Context,
    args: &SettingsPatchArgs,
) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let mut change = SettingsChange::new(&run, value::read("patch", &args.patch)?)
        .by(actor())
        .from_source("command-line");
    if let Some(scope) = &args.scope {
        change = change.in_scope(scope);
    }
    if let Some(request) = &args.request {
        change = change.request(request);
    }
    if let Some(number) = args.expect {
        change = change.expecting(number);
    }
    let receipt = context.workflows()?.change_settings(&change)?;
    let adopted = !receipt.is_accepted();
    let changed = receipt.value;
    context.output.document(&json!({
        "runId": run,
        "scopeId": changed.scope_id,
        "changeId": changed.change_id,
        "changeNumber": changed.change_number,
        "requestId": changed.request_id,
        "adopted": adopted,
    }))?;
    let already = if adopted {
        " (it was made already)"
    } else {
        ""
    };
    context.output.line(format!(
        "change {} of {}{already}; the next step begins with it",
        changed.change_number, changed.scope_id
    ));
    Ok(ExitStatus::Done)
}

pub(super) fn history(
    context: &Context,
    args: &SettingsHistoryArgs,
) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let page = (args.after, usize::from(args.limit));
    let history = context
        .workflows()?
        .settings_history(&run, args.scope.as_deref(), page)?;
    context.output.document(&json!({
        "runId": run,
        "scopeId": history.scope_id,
        "initial": history.initial,
        "changes": history.changes,
        "next": history.next,
    }))?;
    for change in &history.changes {
        context.output.line(format!(
            "{}  {}  {} from {}  request {}",
            change.change_number,
            text::instant(change.accepted_at.0),
            text::line(&change.actor_type),
            text::line(&change.source),
            text::line(&change.request_id)
        ));
        context.output.line(text::value(&change.patch, "  "));
    }
    if history.changes.is_empty() {
        context.output.line("no changes");
    }
    if let Some(next) = history.next {
        context
            .output
            .line(format!("there are more: --after {next}"));
    }
    Ok(ExitStatus::Done)
}
