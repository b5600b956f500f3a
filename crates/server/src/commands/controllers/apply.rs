//! `controllers apply FILE`: what differs is shown first, and written only if it still is the difference.

use std::path::Path;

use holdpoint_controllers::commands::{self, Applied, Apply, SpecChange};
use holdpoint_controllers::manifest::{self, Manifest};
use holdpoint_controllers::model::ProjectPath;
use holdpoint_controllers::{ControllerError, ManagedResource, Target, views};
use holdpoint_state::Database;
use serde_json::{Value, json};

use super::diff::diff;
use crate::cli::controllers::ApplyArgs;
use crate::commands::{Context, actor, value};
use crate::error::{CommandError, ExitStatus};
use crate::home;
use crate::output::{Output, text};

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
    // Passes and hints move the version all the time. What counts is that the spec is the one that the difference was made from.
    let compared = wish.before.as_ref();
    let compared = compared.map(|before| (before.metadata.uid.clone(), before.metadata.generation));
    let apply = Apply::new(&wish.target, wish.manifest.spec.clone())
        .initial_status(home::initial_status(&wish.target.controller))
        .by(actor())
        .expecting_spec(compared);
    match commands::apply(store, &apply) {
        Ok(receipt) => Ok(receipt.value),
        Err(ControllerError::SpecChanged { target }) => {
            Err(CommandError::ResourceChanged { target, earlier: 0 })
        }
        Err(error) => Err(error.into()),
    }
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

#[cfg(test)]
mod tests {
    use holdpoint_controllers::commands::{Claiming, PassEnd, claim, finish, request_deletion};
    use holdpoint_controllers::model::{Next, StatusPatch};
    use holdpoint_state::testing::TestStore;
    use holdpoint_state::{Owner, OwnerKind};
    use serde_json::json;

    use super::*;

    fn store() -> TestStore {
        TestStore::new([holdpoint_workflows::DOMAIN, holdpoint_controllers::DOMAIN]).unwrap()
    }

    /// What a file with this spec comes to, as it is now.
    fn compared(store: &TestStore, spec: &Value) -> Compared {
        let text = json!({ "controller": "lamp", "key": "hall", "spec": spec }).to_string();
        let manifest = manifest::read("lamp.json", text.as_bytes(), &[])
            .unwrap()
            .remove(0);
        compare(
            Some(store.db()),
            &ProjectPath::new("/srv/app").unwrap(),
            manifest,
        )
        .unwrap()
    }

    fn apply_now(store: &TestStore, spec: &Value) -> Applied {
        write(store.db(), &compared(store, spec)).unwrap()
    }

    fn spec(store: &TestStore) -> Value {
        let target = Target::parse("/srv/app", "lamp", "hall").unwrap();
        let found = views::resource(&store.db().snapshot().unwrap(), &target).unwrap();
        found.map(|found| found.spec).unwrap_or_default()
    }

    #[test]
    fn what_is_written_is_what_was_shown() {
        let store = store();
        let stale = |wish: &Compared| {
            let error = write(store.db(), wish).unwrap_err();
            assert!(
                matches!(error, CommandError::ResourceChanged { .. }),
                "{error}"
            );
        };
        // Somebody else makes it meanwhile.
        let wish = compared(&store, &json!(1));
        apply_now(&store, &json!(2));
        stale(&wish);
        assert_eq!(spec(&store), json!(2));
        // Somebody else changes it meanwhile.
        let wish = compared(&store, &json!(3));
        apply_now(&store, &json!(4));
        stale(&wish);
        assert_eq!(spec(&store), json!(4));
        // There and back again is a change too.
        let wish = compared(&store, &json!(5));
        apply_now(&store, &json!(6));
        apply_now(&store, &json!(4));
        stale(&wish);
        // Meanwhile it becomes what was wanted: that holds.
        let wish = compared(&store, &json!(7));
        apply_now(&store, &json!(7));
        assert_eq!(
            write(store.db(), &wish).unwrap().change,
            SpecChange::Unchanged
        );
    }

    #[test]
    fn a_pass_meanwhile_is_no_conflict() {
        let store = store();
        let uid = apply_now(&store, &json!(1)).uid;
        let wish = compared(&store, &json!(2));
        let host = Owner::new(OwnerKind::Host, "host");
        let pass = claim(store.db(), &Claiming::new(&uid, &host))
            .unwrap()
            .unwrap();
        finish(
            store.db(),
            &pass,
            &StatusPatch::default(),
            Next::Settled,
            PassEnd::default(),
        )
        .unwrap();
        let applied = write(store.db(), &wish).unwrap();
        assert_eq!(
            (applied.change, applied.generation),
            (SpecChange::Updated, 2)
        );
        // What is being deleted takes no other spec.
        let wish = compared(&store, &json!(3));
        request_deletion(store.db(), &wish.target, actor()).unwrap();
        let error = write(store.db(), &wish).unwrap_err();
        assert_eq!(error.exit(), ExitStatus::Conflict, "{error}");
        assert_eq!(spec(&store), json!(2));
    }
}
