//! How a resource looks.

use std::fmt::Write as _;

use holdpoint_controllers::model::{ConditionStatus, EffectOutcome};
use holdpoint_controllers::views::{self, Blocker, ResourceSummary};
use holdpoint_controllers::{ManagedResource, Target};
use serde_json::{Value, json};

use super::diff::outline;
use super::{not_found, target};
use crate::cli::controllers::{GetArgs, OneResource};
use crate::commands::Context;
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::text;

/// A resource of a list, with what stands in its way.
pub(super) fn summary(summary: &ResourceSummary, blockers: &[Blocker]) -> Value {
    let mut document = json!(summary);
    if let Some(members) = document.as_object_mut() {
        members.insert("blockers".to_owned(), json!(blockers));
    }
    document
}

/// The same in one line.
pub(super) fn line(summary: &ResourceSummary) -> String {
    let ready = match &summary.ready {
        Some(ready) => {
            let word = match ready.status {
                ConditionStatus::True => "ready",
                ConditionStatus::False => "not ready",
                ConditionStatus::Unknown => "unknown",
            };
            format!("{word} ({})", ready.reason)
        }
        None => "unknown".to_owned(),
    };
    let observed = summary
        .ready
        .as_ref()
        .map_or(0, |ready| ready.observed_generation);
    let mut line = format!(
        "{:<24}  {:<28}  generation {} (observed {observed})  {}",
        text::line(&format!("{}/{}", summary.controller, summary.key)),
        text::line(&ready),
        summary.generation,
        summary.queue.as_str(),
    );
    if summary.deletion_timestamp.is_some() {
        line.push_str("  (being deleted)");
    }
    line
}

/// What stands in the way of a resource, in one line, and what to do.
pub(super) fn blocker(blocker: &Blocker) -> String {
    let told = blocker.to_string();
    let told = text::line(&told);
    match blocker {
        Blocker::BackOff { retry_at, .. } => {
            format!("{told}; the next is {}", text::instant(retry_at.0))
        }
        Blocker::HeldLease { expires_at } => format!(
            "{told}; its claim ends {} unless it is renewed",
            text::instant(expires_at.0)
        ),
        Blocker::Finalizer {
            has_controller: false,
            ..
        } => {
            format!("{told}; `holdpoint controllers force-finalizer` takes it away")
        }
        Blocker::IndeterminateEffect { .. } => format!("{told}; see `holdpoint effects list`"),
        Blocker::Finalizer { .. } | Blocker::NoController { .. } | Blocker::WaitingChild { .. } => {
            told.into_owned()
        }
    }
}

/// `controllers get CONTROLLER KEY`.
pub(super) fn get(context: &Context, args: &GetArgs) -> Result<ExitStatus, CommandError> {
    let target = target(&args.resource)?;
    let store = context.existing()?;
    let snapshot = store.snapshot()?;
    let resource = views::resource(&snapshot, &target)?.ok_or_else(|| not_found(&target))?;
    let uid = &resource.metadata.uid;
    let effects = views::effects(&snapshot, uid)?;
    let children = views::children(&snapshot, uid)?;
    let events = views::events(&snapshot, uid, args.events)?;
    let mut document = json!(resource);
    if let Some(members) = document.as_object_mut() {
        members.insert("effects".to_owned(), json!(effects));
        members.insert("children".to_owned(), json!(children));
        members.insert("events".to_owned(), json!(events));
    }
    context.output.document(&document)?;
    let mut told = head(&target, &resource);
    section(&mut told, "spec", &resource.spec);
    if !resource.status.controller_status.is_null() {
        section(&mut told, "status", &resource.status.controller_status);
    }
    // Writing to a string does not fail.
    for child in &children {
        let _ = writeln!(
            told,
            "run        {}  {}  {}",
            json!(child.state).as_str().unwrap_or_default(),
            text::line(&child.workflow),
            child.run_id.as_ref().map_or("(none)", |run| run.as_str())
        );
    }
    let (applied, others): (Vec<_>, Vec<_>) = effects
        .iter()
        .partition(|effect| effect.state == EffectOutcome::Applied);
    if !applied.is_empty() {
        let _ = writeln!(told, "effects    {} applied", applied.len());
    }
    for effect in others {
        let _ = writeln!(
            told,
            "effect     {}  {}  {}{}",
            json!(effect.state).as_str().unwrap_or_default(),
            text::line(&effect.kind),
            text::line(effect.key.as_str()),
            effect
                .error
                .as_ref()
                .map(|error| format!("  {}", text::line(error)))
                .unwrap_or_default()
        );
    }
    for event in &events {
        let _ = writeln!(
            told,
            "event      {:<4} {}  {}  {}",
            event.resource_version,
            text::instant(event.at.0),
            event.actor,
            text::line(&event.event_type)
        );
    }
    context.output.line(told.trim_end());
    Ok(ExitStatus::Done)
}

/// Identity and conditions.
fn head(target: &Target, resource: &ManagedResource) -> String {
    let (metadata, status) = (&resource.metadata, &resource.status);
    let mut told = String::new();
    let mut row = |name: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(told, "{name:<10} {}", text::line(value));
    };
    row("resource", &target.to_string());
    row("project", target.project.as_str());
    row("uid", metadata.uid.as_str());
    row(
        "generation",
        &format!(
            "{} (observed {})",
            metadata.generation, status.observed_generation
        ),
    );
    row("version", &metadata.resource_version.to_string());
    if let Some(at) = metadata.deletion_timestamp {
        row("deletion", &format!("asked for {}", text::instant(at.0)));
    }
    for finalizer in &metadata.finalizers {
        row("finalizer", finalizer.as_str());
    }
    for condition in &status.conditions {
        let message = condition
            .message
            .as_ref()
            .map(|message| format!(": {message}"))
            .unwrap_or_default();
        let older = if condition.observed_generation == metadata.generation {
            String::new()
        } else {
            format!(" (of generation {})", condition.observed_generation)
        };
        row(
            "condition",
            &format!(
                "{} {} ({}){older}{message}",
                condition.condition_type,
                condition.status.as_str(),
                condition.reason
            ),
        );
    }
    if let Some(run) = &status.workflow_run {
        row("present", run.as_str());
    }
    told
}

fn section(told: &mut String, name: &str, value: &Value) {
    told.push_str(name);
    told.push('\n');
    for line in outline(value).lines() {
        // Writing to a string does not fail.
        let _ = writeln!(told, "  {}", text::line(line));
    }
}

/// `controllers explain CONTROLLER KEY`.
pub(super) fn explain(context: &Context, one: &OneResource) -> Result<ExitStatus, CommandError> {
    let target = target(one)?;
    let store = context.existing()?;
    let now = store.clock().now();
    let known = home::controller_names()?;
    let explained = views::explain(&store.snapshot()?, &target, &known, now)?
        .ok_or_else(|| not_found(&target))?;
    context.output.document(&explained)?;
    let mut told = head(&target, &explained.resource);
    // Writing to a string does not fail.
    let _ = writeln!(told, "{:<10} {}", "queue", explained.queue_state.as_str());
    if let Some(queue) = &explained.queue {
        let when = if queue.available_at <= now {
            "was due"
        } else {
            "is due"
        };
        let _ = writeln!(
            told,
            "{:<10} {when} {}",
            "next pass",
            text::instant(queue.available_at.0)
        );
    }
    for found in &explained.blockers {
        let _ = writeln!(told, "{:<10} {}", "in the way", blocker(found));
    }
    if !explained.is_observed {
        let hint = context.hint(&["work"]);
        let _ = writeln!(
            told,
            "no pass has seen the present spec; `{hint}` makes one"
        );
    }
    context.output.line(told.trim_end());
    Ok(ExitStatus::Done)
}
