//! `updates`, `follow-ups`: what a run has beside its steps.

use std::fmt::Write as _;

use holdpoint_state::Disposition;
use holdpoint_state::id::random_id;
use holdpoint_workflows::commands::{QueueFollowUp, RemoveFollowUp};
use holdpoint_workflows::updates::estimate::Confidence;
use holdpoint_workflows::views::ProgressView;
use serde_json::json;

use super::{Context, actor};
use crate::cli::{FollowUpsQueueArgs, FollowUpsRemoveArgs, UpdatesArgs};
use crate::error::{CommandError, ExitStatus};
use crate::output::text;

/// Where a follow-up of this command comes from: what one call queued, another may remove.
const SOURCE: &str = "command-line";

/// `updates RUN`.
pub(super) fn updates(context: &Context, args: &UpdatesArgs) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let workflows = context.workflows()?;
    let found = if args.all {
        workflows.update_history(&run, args.after, args.limit)?
    } else {
        workflows.updates(&run)?
    };
    let progress = workflows.progress(&run)?;
    context
        .output
        .document(&json!({ "runId": run, "updates": found, "progress": progress }))?;
    if found.is_empty() {
        context.output.line("no updates");
    }
    for update in &found {
        context.output.line(format!(
            "{:<5} {}  {} {} {}  {}",
            update.run_revision,
            text::instant(update.recorded_at.0),
            text::line(update.node_id.as_str()),
            text::line(&update.update_type),
            text::line(&update.key),
            text::line(&update.data.to_string())
        ));
    }
    if args.all
        && found.len() == usize::from(args.limit)
        && let Some(last) = found.last()
    {
        context
            .output
            .line(format!("more: --after {}", last.run_revision));
    }
    if let Some(progress) = &progress {
        context.output.line(format!("progress  {}", told(progress)));
    }
    Ok(ExitStatus::Done)
}

/// Progress in one line.
pub(super) fn told(view: &ProgressView) -> String {
    let progress = &view.progress;
    let mut told = json!(progress.status)
        .as_str()
        .unwrap_or_default()
        .to_owned();
    // Writing to a string does not fail.
    if let Some(completed) = progress.completed {
        let _ = write!(told, ", {completed}");
        if let Some(total) = progress.total {
            let _ = write!(told, " of {total}");
        }
        let _ = write!(told, " {}", progress.unit.as_deref().unwrap_or_default());
    }
    for (name, text) in [("phase", &progress.phase), ("", &progress.label)] {
        if let Some(text) = text {
            let space = if name.is_empty() { "" } else { " " };
            let _ = write!(told, ", {name}{space}{text}");
        }
    }
    if let Some(estimate) = &view.estimate {
        let left = text::duration(estimate.remaining_ms.unsigned_abs());
        let trust = match estimate.confidence {
            Confidence::Low => " (a rough guess)",
            Confidence::Medium => " (about)",
            Confidence::High => "",
            Confidence::Reported => " (as it says itself)",
        };
        let _ = write!(told, ", {left} left{trust}");
    }
    text::line(&told).into_owned()
}

/// `follow-ups list RUN`.
pub(super) fn list(context: &Context, run: &str) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(run)?;
    let found = context.workflows()?.follow_ups(&run)?;
    context
        .output
        .document(&json!({ "runId": run, "followUps": found }))?;
    if found.is_empty() {
        context.output.line("no follow-ups");
    }
    for follow_up in &found {
        context.output.line(format!(
            "{:<9}  {}  {}",
            follow_up.status.as_str(),
            follow_up.follow_up_id,
            text::line(&follow_up.prompt)
        ));
    }
    Ok(ExitStatus::Done)
}

/// `follow-ups queue RUN PROMPT`.
pub(super) fn queue(
    context: &Context,
    args: &FollowUpsQueueArgs,
) -> Result<ExitStatus, CommandError> {
    let run = Context::run_id(&args.run)?;
    let key = args.key.clone().unwrap_or_else(|| random_id("follow-up"));
    let queue = QueueFollowUp::new(&run, args.prompt.as_str())
        .key(key)
        .by(actor(), SOURCE);
    let receipt = context.workflows()?.queue_follow_up(&queue)?;
    let queued = &receipt.value;
    context.output.document(&json!({
        "runId": run,
        "followUpId": queued.follow_up_id,
        "orderNumber": queued.order_number,
        "adopted": receipt.disposition == Disposition::Adopted,
    }))?;
    context.output.line(format!(
        "queued {} as number {}",
        queued.follow_up_id, queued.order_number
    ));
    Ok(ExitStatus::Done)
}

/// `follow-ups remove FOLLOW-UP`.
pub(super) fn remove(
    context: &Context,
    args: &FollowUpsRemoveArgs,
) -> Result<ExitStatus, CommandError> {
    let mut remove = RemoveFollowUp::of(args.follow_up.as_str()).by(actor(), SOURCE);
    if let Some(reason) = &args.reason {
        remove = remove.because(reason.as_str());
    }
    let receipt = context.workflows()?.remove_follow_up(&remove)?;
    let adopted = receipt.disposition == Disposition::Adopted;
    context
        .output
        .document(&json!({ "followUpId": args.follow_up, "adopted": adopted }))?;
    context
        .output
        .line(format!("removed {}", text::line(&args.follow_up)));
    Ok(ExitStatus::Done)
}
