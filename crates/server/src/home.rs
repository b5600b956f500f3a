//! Which store a command uses, and where it looks for workflow files.
//!
//! The store is `HOME/.pi/agent/workflows/state.sqlite`; `--home` puts another directory in the place of the user's home. A workflow
//! is found by name in the project first and then in the home (workflows reference, section 2.12); the first of a name wins.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdpoint_controllers::file_set::{self, FileSet};
use holdpoint_controllers::manifest::{self, KnownController};
use holdpoint_controllers::model::{ControllerName, ProjectPath};
use holdpoint_controllers::{ControllerError, Controllers};
use holdpoint_decisions::duty::DecisionDuty;
use holdpoint_decisions::effects::SettlePresentations;
use holdpoint_decisions::{node, plan_approval};
use holdpoint_state::database::{product_path, product_path_in};
use holdpoint_state::{Database, Identity, Refusal, Schema, StateError};
use holdpoint_workflows::file::{self, WorkflowFile};
use holdpoint_workflows::{Registry, WorkflowError, Workflows};

use serde_json::{Value, json};

use crate::error::CommandError;
use crate::settings::Settings;

/// Where the project keeps its workflows, under the working directory.
const PROJECT_PLACES: [&str; 2] = [".pi/workflows", "workflows"];
/// Where workflows of all projects are, beside the store.
const GLOBAL_PLACE: &str = "definitions";

/// The schema of the product's store: every domain that the product composes. Tests of the guards take from it what there is.
///
/// # Errors
///
/// A mistake in a domain.
pub fn schema() -> Result<Schema, StateError> {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [
            holdpoint_state::DOMAIN,
            holdpoint_workflows::DOMAIN,
            holdpoint_decisions::DOMAIN,
            holdpoint_channels::DOMAIN,
            holdpoint_controllers::DOMAIN,
            holdpoint_viewer::DOMAIN,
        ],
    )
}

/// The path of the store.
pub(crate) fn store_path(home: Option<&Path>) -> Result<PathBuf, CommandError> {
    match home {
        Some(home) => {
            let home = std::path::absolute(home).map_err(|source| CommandError::Io {
                action: format!("finding {}", home.display()),
                source,
            })?;
            Ok(product_path_in(&home))
        }
        None => product_path().ok_or_else(|| {
            CommandError::input(
                "home",
                "your home directory is not known; name one with --home",
            )
        }),
    }
}

/// The member of a run's launch options that names the directory it belongs to.
const DIRECTORY: &str = "workingDirectory";

/// The launch options of a run that is started here. Commands and files of its nodes are relative to the working directory, so that
/// only a process which works there may execute it.
pub(crate) fn launch_options() -> Result<Value, CommandError> {
    Ok(json!({ DIRECTORY: working_directory()? }))
}

/// The directory that a run belongs to, if it was started by this command.
pub(crate) fn directory_of(launch_options: &Value) -> Option<&str> {
    launch_options.get(DIRECTORY).and_then(Value::as_str)
}

/// Whether a run with these launch options may be executed here.
pub(crate) fn is_at_home(launch_options: &Value) -> bool {
    directory_of(launch_options)
        .is_none_or(|directory| working_directory().is_ok_and(|here| here == directory))
}

fn working_directory() -> Result<String, CommandError> {
    match std::env::current_dir() {
        Ok(directory) => directory.into_os_string().into_string().map_err(|name| {
            // A run keeps it as text, and would look for it under another name.
            let problem = format!(
                "{} is not UTF-8, so that no run can keep it; rename it",
                name.display()
            );
            CommandError::input("working directory", problem)
        }),
        Err(source) => Err(CommandError::Io {
            action: "finding the working directory".to_owned(),
            source,
        }),
    }
}

/// Opens the store, or makes it.
pub(crate) fn open(home: Option<&Path>, settings: &Settings) -> Result<Database, CommandError> {
    let path = store_path(home)?;
    Ok(Database::open_with(
        &path,
        &schema()?,
        settings.database(true),
    )?)
}

/// Opens the store if there is one. A command that only reads makes none.
pub(crate) fn open_existing(
    home: Option<&Path>,
    settings: &Settings,
) -> Result<Database, CommandError> {
    let path = store_path(home)?;
    match Database::open_with(&path, &schema()?, settings.database(false)) {
        Err(StateError::Refused { path, refusal }) if matches!(*refusal, Refusal::Missing) => {
            Err(CommandError::NoStore { path })
        }
        opened => Ok(opened?),
    }
}

/// Where workflow files are looked for by name: in the project first, then in the home.
fn places(home: Option<&Path>) -> Result<Vec<PathBuf>, CommandError> {
    let mut places: Vec<PathBuf> = PROJECT_PLACES.iter().map(PathBuf::from).collect();
    if let Some(directory) = store_path(home)?.parent() {
        places.push(directory.join(GLOBAL_PLACE));
    }
    Ok(places)
}

/// The workflows of a store, which find what their files include by name.
pub(crate) fn workflows(home: Option<&Path>, store: Database) -> Result<Workflows, CommandError> {
    let decisions = DecisionDuty::new(&store, SettlePresentations::new())?;
    let workflows = Workflows::new(store).with_duty(Arc::new(decisions));
    furnish(workflows.registry(), places(home)?)?;
    Ok(workflows)
}

/// What a worker process finds the code of its run in: the files that its host would find.
pub(crate) fn registry(home: Option<&Path>) -> Result<Registry, CommandError> {
    let registry = Registry::default();
    furnish(&registry, places(home)?)?;
    Ok(registry)
}

/// What every registry of this program knows: where files are, and what domains bring to them.
fn furnish(registry: &Registry, places: Vec<PathBuf>) -> Result<(), CommandError> {
    registry.search(places);
    node::file::register(registry);
    plan_approval::register(registry).map_err(WorkflowError::from)?;
    Ok(())
}

/// The JSON Schema of the workflow files that this program reads.
pub(crate) fn file_schema() -> Result<Value, CommandError> {
    let registry = Registry::default();
    furnish(&registry, Vec::new())?;
    Ok(registry.json_schema())
}

/// The project: a directory that is there, by its one name, so that two ways to it are one project.
pub(crate) fn project(directory: Option<&Path>) -> Result<ProjectPath, CommandError> {
    let directory = directory.unwrap_or_else(|| Path::new("."));
    let canonical = directory
        .canonicalize()
        .map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => CommandError::NoFile {
                path: directory.to_owned(),
            },
            _ => CommandError::Io {
                action: format!("finding {}", directory.display()),
                source,
            },
        })?;
    let wrong = |problem: String| CommandError::input("project", problem);
    if !canonical.is_dir() {
        return Err(wrong(format!("{} is no directory", directory.display())));
    }
    let text = canonical
        .to_str()
        .ok_or_else(|| wrong(format!("{} is not UTF-8; rename it", canonical.display())))?;
    Ok(ProjectPath::new(text).map_err(ControllerError::from)?)
}

/// The workflows with the controllers that this program has, for the resources of the working directory.
pub(crate) fn with_controllers(workflows: Workflows) -> Result<Workflows, CommandError> {
    let project = project(None)?;
    let files = FileSet::new(&workflows, &project);
    let controllers = Controllers::new(&workflows, project.as_str())?
        .launching_with(json!({ DIRECTORY: project }))
        .register(files)?;
    Ok(controllers.attach(workflows))
}

/// What is known of the controllers that this program has.
pub(crate) fn known_controllers() -> Result<Vec<KnownController>, CommandError> {
    Ok(vec![file_set::known().map_err(ControllerError::from)?])
}

/// Their names.
pub(crate) fn controller_names() -> Result<Vec<ControllerName>, CommandError> {
    let known = known_controllers()?;
    Ok(known.into_iter().map(|known| known.name).collect())
}

/// The status that a new resource of a controller begins with. A controller that this program does not have gives none here.
pub(crate) fn initial_status(controller: &ControllerName) -> Value {
    match controller.as_str() {
        file_set::NAME => json!({}),
        _ => Value::Null,
    }
}

/// The JSON Schema of the resource files that this program reads.
pub(crate) fn resource_schema() -> Result<Value, CommandError> {
    Ok(manifest::json_schema(&known_controllers()?))
}

/// Reads a workflow by file or by name.
///
/// It is a file when it has the ending of one or a `/` in it, and a name otherwise.
pub(crate) fn workflow(
    home: Option<&Path>,
    file_or_name: &Path,
) -> Result<WorkflowFile, CommandError> {
    let places = places(home)?;
    let registry = Registry::default();
    furnish(&registry, places.clone())?;
    let text = file_or_name.to_string_lossy();
    if text.contains('/') || file::is_workflow_file(file_or_name) {
        if !file_or_name.exists() {
            return Err(CommandError::NoFile {
                path: file_or_name.to_owned(),
            });
        }
        return Ok(registry.read_file(file_or_name)?);
    }
    match registry.file_named(&text) {
        Some(path) => Ok(registry.read_file(path)?),
        None => Err(CommandError::NoWorkflow {
            name: text.into_owned(),
            places,
        }),
    }
}
