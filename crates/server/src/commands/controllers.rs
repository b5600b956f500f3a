//! `controllers …`: managed resources, as people wish, see and delete them.
//!
//! Nothing private is shown: no owner of a lease, no token, no actor's id. Not here: executing passes (`work`).

mod apply;
mod diff;
mod shown;

use holdpoint_controllers::model::{FinalizerName, ProjectPath};
use holdpoint_controllers::views::{self, Blocker, Explanation, Filter, ResourceSummary};
use holdpoint_controllers::{ControllerError, Target, commands};
use holdpoint_state::{Database, Disposition};
use serde_json::{Value, json};

use super::{Context, actor};
use crate::cli::controllers::{
    ControllersVerb, ForceDeleteArgs, ForceFinalizerArgs, ListArgs, OneResource, ProjectArgs,
};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::text;

/// One verb.
pub(super) fn controllers(
    context: &Context,
    verb: &ControllersVerb,
) -> Result<ExitStatus, CommandError> {
    match verb {
        ControllersVerb::List(args) => list(context, args),
        ControllersVerb::Get(args) => shown::get(context, args),
        ControllersVerb::Apply(args) => apply::apply(context, args),
        ControllersVerb::Reconcile(one) => reconcile(context, one),
        ControllersVerb::Delete(one) => delete(context, one),
        ControllersVerb::Explain(one) => shown::explain(context, one),
        ControllersVerb::ForceFinalizer(args) => force_finalizer(context, args),
        ControllersVerb::ForceDelete(args) => force_delete(context, args),
    }
}

/// The project that is meant: a directory that is there, by its one name.
fn project(args: &ProjectArgs) -> Result<ProjectPath, CommandError> {
    home::project(args.project.as_deref())
}

fn target(one: &OneResource) -> Result<Target, CommandError> {
    let project = project(&one.project)?;
    Ok(
        Target::parse(project.as_str(), &one.controller, &one.key)
            .map_err(ControllerError::from)?,
    )
}

fn not_found(target: &Target) -> ControllerError {
    ControllerError::NotFound {
        controller: target.controller.to_string(),
        key: target.key.to_string(),
        project: target.project.to_string(),
    }
}

/// `controllers list`. A store that is not there yet has none.
fn list(context: &Context, args: &ListArgs) -> Result<ExitStatus, CommandError> {
    let project = project(&args.project)?;
    let mut filter = Filter::of(&project);
    // One more tells whether there is a next page.
    filter.limit = args.limit + 1;
    if let Some(controller) = &args.controller {
        filter.controller = Some(controller.parse().map_err(ControllerError::from)?);
    }
    if let Some(cursor) = &args.after {
        let wrong =
            || CommandError::input("after", "it is no cursor: take `next` of the page before");
        let (controller, key) = cursor.split_once('/').ok_or_else(wrong)?;
        filter.after = Some((
            controller.parse().ok().ok_or_else(wrong)?,
            key.parse().ok().ok_or_else(wrong)?,
        ));
    }
    let mut found = Vec::new();
    match context.existing() {
        Ok(store) => found = listed(&store, &project, &filter)?,
        Err(CommandError::NoStore { .. }) => {}
        Err(error) => return Err(error),
    }
    let is_more = args.limit < u32::try_from(found.len()).unwrap_or(u32::MAX);
    if is_more {
        found.pop();
    }
    let next = found
        .last()
        .filter(|_| is_more)
        .map(|(last, _)| format!("{}/{}", last.controller, last.key));
    let documents: Vec<Value> = found
        .iter()
        .map(|(summary, stuck)| shown::summary(summary, stuck))
        .collect();
    context.output.document(&json!({
        "project": project, "resources": documents, "next": next,
    }))?;
    if found.is_empty() {
        context.output.line("no resources");
    }
    for (summary, stuck) in &found {
        context.output.line(shown::line(summary));
        for blocker in stuck {
            context
                .output
                .line(format!("    {}", shown::blocker(blocker)));
        }
    }
    if let Some(next) = next {
        context
            .output
            .line(format!("more: --after {}", super::quoted(&next)));
    }
    Ok(ExitStatus::Done)
}

/// The resources of a page, each with what stands in its way.
fn listed(
    store: &Database,
    project: &ProjectPath,
    filter: &Filter,
) -> Result<Vec<(ResourceSummary, Vec<Blocker>)>, CommandError> {
    let now = store.clock().now();
    let snapshot = store.snapshot()?;
    let known = home::controller_names()?;
    let mut found = Vec::new();
    for summary in views::list(&snapshot, filter, now)? {
        let target = Target::new(
            project.clone(),
            summary.controller.clone(),
            summary.key.clone(),
        );
        let blockers = match views::explain(&snapshot, &target, &known, now)? {
            Some(Explanation { blockers, .. }) => blockers,
            None => Vec::new(),
        };
        found.push((summary, blockers));
    }
    Ok(found)
}

/// `controllers reconcile CONTROLLER KEY`.
fn reconcile(context: &Context, one: &OneResource) -> Result<ExitStatus, CommandError> {
    let target = target(one)?;
    let store = context.existing()?;
    let hinted = commands::enqueue(&store, &target, None)?;
    context.output.document(&json!({
        "resourceManager": target.controller,
        "key": target.key,
        "availableAt": hinted.available_at,
    }))?;
    context.output.line(format!(
        "{} is looked at as soon as `{}` runs",
        text::line(&target.to_string()),
        context.hint(&["work"])
    ));
    Ok(ExitStatus::Done)
}

/// `controllers delete CONTROLLER KEY`.
fn delete(context: &Context, one: &OneResource) -> Result<ExitStatus, CommandError> {
    let target = target(one)?;
    let store = context.existing()?;
    let receipt = commands::request_deletion(&store, &target, actor())?;
    let snapshot = store.snapshot()?;
    let explained = views::explain(
        &snapshot,
        &target,
        &home::controller_names()?,
        store.clock().now(),
    )?;
    let (metadata, blockers) = match explained {
        Some(explained) => (Some(explained.resource.metadata), explained.blockers),
        None => (None, Vec::new()),
    };
    context.output.document(&json!({
        "resourceManager": target.controller,
        "key": target.key,
        "deletionTimestamp": metadata.as_ref().and_then(|metadata| metadata.deletion_timestamp),
        "finalizers": metadata.as_ref().map(|metadata| &metadata.finalizers),
        "adopted": receipt.disposition == Disposition::Adopted,
        "blockers": blockers,
    }))?;
    let name = text::line(&target.to_string()).into_owned();
    context.output.line(format!("{name} is being deleted"));
    for blocker in &blockers {
        context
            .output
            .line(format!("    {}", shown::blocker(blocker)));
    }
    Ok(ExitStatus::Done)
}

/// `controllers force-finalizer CONTROLLER KEY FINALIZER --reason TEXT`.
fn force_finalizer(
    context: &Context,
    args: &ForceFinalizerArgs,
) -> Result<ExitStatus, CommandError> {
    let target = target(&args.resource)?;
    let finalizer: FinalizerName = args.finalizer.parse().map_err(ControllerError::from)?;
    let reason = reason(&args.reason)?;
    let store = context.existing()?;
    let receipt = commands::force_finalizer(&store, &target, &finalizer, reason, actor())?;
    let adopted = receipt.disposition == Disposition::Adopted;
    let forced = receipt.value;
    context.output.document(&json!({
        "resourceManager": target.controller,
        "key": target.key,
        "finalizer": finalizer,
        "finalizers": forced.finalizers,
        "isDeleted": forced.is_deleted,
        "adopted": adopted,
    }))?;
    let name = text::line(&target.to_string()).into_owned();
    let finalizer = text::line(finalizer.as_str()).into_owned();
    context.output.line(match (adopted, forced.is_deleted) {
        (true, _) => format!("{name} has no finalizer {finalizer}"),
        (false, true) => format!("{name} is gone; nothing cleaned up what {finalizer} stood for"),
        (false, false) => {
            format!(
                "{name} has no finalizer {finalizer} any more; nothing cleaned up what it stood for"
            )
        }
    });
    Ok(ExitStatus::Done)
}

/// `controllers force-delete CONTROLLER KEY --reason TEXT`.
fn force_delete(context: &Context, args: &ForceDeleteArgs) -> Result<ExitStatus, CommandError> {
    let target = target(&args.resource)?;
    let reason = reason(&args.reason)?;
    let store = context.existing()?;
    let receipt = commands::force_deletion(&store, &target, reason, actor())?;
    context.output.document(&json!({
        "resourceManager": target.controller,
        "key": target.key,
        "uid": receipt.value,
        "isDeleted": true,
    }))?;
    context
        .output
        .line(format!("{} is gone", text::line(&target.to_string())));
    Ok(ExitStatus::Done)
}

/// Whoever reads the trail wants to know why.
fn reason(text: &str) -> Result<&str, CommandError> {
    if text.trim().is_empty() {
        return Err(CommandError::input(
            "reason",
            "say why; it is kept with what was done",
        ));
    }
    Ok(text)
}
