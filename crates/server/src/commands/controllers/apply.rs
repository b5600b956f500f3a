//! `controllers apply FILE`: what differs is shown first, and written only if it still is the difference.

use std::path::Path;

use holdpoint_controllers::commands::{self, Applied, Apply, SpecChange};
use holdpoint_controllers::manifest::{self, Manifest};
use holdpoint_controllers::model::ProjectPath;
use holdpoint_controllers::{ControllerError, ManagedResource, Target, views};
use holdpoint_state::{Database, StateError};
use serde_json::{Value, json};

use super::diff::diff;
use crate::cli::controllers::ApplyArgs;
use crate::commands::{Context, actor, value};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::{Output, text};

/// How often a resource is compared again that changed meanwhile, though not in its spec: passes write all the time.
const LOOKS_MAX: usize = 8;

/// One resource of the file against the store.
struct Compared {
    target: Target,
    manifest: Manifest,
    before: Option<ManagedResource>,
    change: SpecChange,
    diff: String,
}

pub(super) fn apply(context: &Context, args: &ApplyArgs) -> Result<ExitStatus, CommandError> {
    let project = super::project(&args.project)?;
    let manifests = read(&args.file)?;
    // Only showing makes no store.
    let store = if args.dry_run {
        match context.existing() {
            Ok(store) => Some(store),
            Err(CommandError::NoStore { .. }) => None,
            Err(error) => return Err(error),
        }
    } else {
        Some(context.store()?)
    };
    // All are compared before the first is written: a mistake in one leaves the others alone.
    let mut compared = Vec::new();
    for manifest in manifests {
        compared.push(compare(store.as_ref(), &project, manifest)?);
    }
    let known = home::controller_names()?;
    let mut documents = Vec::new();
    for (index, wish) in compared.iter().enumerate() {
        let applied = match store.as_ref().filter(|_| !args.dry_run) {
            Some(store) => Some(write(store, wish).map_err(|error| beside(error, index))?),
            None => None,
        };
        documents.push(document(wish, applied.as_ref()));
        told(context, wish, args.dry_run);
        if !known.contains(&wish.target.controller) {
            Output::warning(&format!(
                "{} is of a controller that this command does not have: its spec was not checked, and another program has to work on it",
                wish.target
            ));
        }
    }
    context.output.document(&json!({
        "project": project, "dryRun": args.dry_run, "resources": documents,
    }))?;
    Ok(ExitStatus::Done)
}

fn read(file: &Path) -> Result<Vec<Manifest>, CommandError> {
    let name = file.to_string_lossy();
    if name != "-" && !file.exists() {
        return Err(CommandError::NoFile {
            path: file.to_owned(),
        });
    }
    let bytes = value::file_bytes("file", &name)?;
    manifest::read(file, &bytes, &home::known_controllers()?).map_err(CommandError::Manifest)
}

fn compare(
    store: Option<&Database>,
    project: &ProjectPath,
    manifest: Manifest,
) -> Result<Compared, CommandError> {
    let target = Target::new(
        project.clone(),
        manifest.controller.clone(),
        manifest.key.clone(),
    );
    let before = match store {
        Some(store) => views::resource(&store.snapshot()?, &target)?,
        None => None,
    };
    let change = match &before {
        None => SpecChange::Created,
        Some(before) if is_same(&before.spec, &manifest.spec)? => SpecChange::Unchanged,
        Some(before) if before.metadata.deletion_timestamp.is_some() => {
            return Err(ControllerError::Deleting {
                target: target.to_string(),
            }
            .into());
        }
        Some(_) => SpecChange::Updated,
    };
    let diff = match change {
        SpecChange::Unchanged => String::new(),
        SpecChange::Created | SpecChange::Updated => {
            diff(before.as_ref().map(|before| &before.spec), &manifest.spec)
        }
    };
    Ok(Compared {
        target,
        manifest,
        before,
        change,
        diff,
    })
}

/// As the store compares: by canonical bytes.
fn is_same(one: &Value, other: &Value) -> Result<bool, CommandError> {
    Ok(holdpoint_state::Payload::json(one)?.digest()
        == holdpoint_state::Payload::json(other)?.digest())
}

/// Writes one resource, if its spec is still the one that was compared.
fn write(store: &Database, wish: &Compared) -> Result<Applied, CommandError> {
    let mut expected = wish
        .before
        .as_ref()
        .map_or(0, |before| before.metadata.resource_version);
    for _ in 0..LOOKS_MAX {
        let apply = Apply::new(&wish.target, wish.manifest.spec.clone())
            .initial_status(home::initial_status(&wish.target.controller))
            .by(actor())
            .expecting(expected);
        match commands::apply(store, &apply) {
            Ok(receipt) => return Ok(receipt.value),
            Err(ControllerError::State(StateError::StaleRevision { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        // Passes and hints move the version too. What counts is that the spec is the one that the difference was made from.
        let now = views::resource(&store.snapshot()?, &wish.target)?;
        let is_as_compared = match (&wish.before, &now) {
            (Some(before), Some(now)) => {
                before.metadata.uid == now.metadata.uid
                    && before.metadata.generation == now.metadata.generation
            }
            (Some(_), None) | (None, _) => false,
        };
        match now.filter(|_| is_as_compared) {
            Some(now) => expected = now.metadata.resource_version,
            None => break,
        }
    }
    Err(CommandError::ResourceChanged {
        target: wish.target.to_string(),
        earlier: 0,
    })
}

/// Says with an error how much of the file was applied before it.
fn beside(error: CommandError, applied: usize) -> CommandError {
    match error {
        CommandError::ResourceChanged { target, .. } => CommandError::ResourceChanged {
            target,
            earlier: applied,
        },
        other => other,
    }
}

const fn word(change: SpecChange) -> &'static str {
    match change {
        SpecChange::Created => "created",
        SpecChange::Updated => "updated",
        SpecChange::Unchanged => "unchanged",
    }
}

fn document(wish: &Compared, applied: Option<&Applied>) -> Value {
    let before = wish.before.as_ref();
    json!({
        "resourceManager": wish.target.controller,
        "key": wish.target.key,
        "uid": applied.map(|applied| &applied.uid).or(before.map(|before| &before.metadata.uid)),
        "generation": applied.map(|applied| applied.generation).or(before.map(|before| before.metadata.generation)),
        "change": wish.change,
        "before": before.map(|before| &before.spec),
        "after": wish.manifest.spec,
        "diff": wish.diff,
    })
}

fn told(context: &Context, wish: &Compared, dry_run: bool) {
    let would = match (wish.change, dry_run) {
        (SpecChange::Unchanged, _) | (_, false) => "",
        (SpecChange::Created | SpecChange::Updated, true) => "would be ",
    };
    context.output.line(format!(
        "{} {would}{}",
        text::line(&wish.target.to_string()),
        word(wish.change)
    ));
    for line in wish.diff.lines().filter(|line| !line.starts_with("@@")) {
        context.output.line(format!("  {}", text::line(line)));
    }
}
