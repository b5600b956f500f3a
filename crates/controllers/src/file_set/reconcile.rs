//! The passes: one act for each, announced in the status of the pass before.
//!
//! A file that was written and whose receipt was lost in a crash must not look like somebody else's. So what a pass will do is stored as
//! [`FileSetStatus::next`] first, done by the pass after it under an effect of that name, and only then counted as the resource's own.
//! Not here: what is to be done next (`plan`), files (`place`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use holdpoint_workflows::Workflows;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::act::FileAct;
use super::contents::Content;
use super::place::{Place, PlaceError, sha256};
use super::plan::{self, Blocked, Declared, Managed, Plan, Seen, Step, Wanted};
use super::spec::{self, FileSetSpec, Prune};
use super::{FINALIZER, NAME};
use crate::error::ControllerError;
use crate::model::{ConditionInput, ConditionStatus, EffectOutcome, ProjectPath};
use crate::{Action, Controller, Pass, PassError, finalizer};

/// How soon an act is tried again of which nobody knows whether it happened, at the latest.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How many names a message lists.
const NAMED_MAX: usize = 5;

/// What is wanted, or what was stored as that: a spec that can't be read must not keep its resource from being deleted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum FileSetWish {
    /// A spec.
    Files(FileSetSpec),
    /// Something else. The resource is not ready, and nothing is done.
    Unreadable(Value),
}

/// What a file set has written, and what it is about to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FileSetStatus {
    /// The directory that is the resource's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
    /// The files that the resource wrote, with the SHA-256 of each.
    files: Managed,
    /// How many acts are over.
    acts: u64,
    /// What the next pass does.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<Announced>,
}

impl FileSetStatus {
    /// The files that the resource wrote, with the SHA-256 of each.
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }
}

/// An act that the pass before has announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Announced {
    /// The generation that it is done for.
    generation: u64,
    /// Its number among the acts of the resource.
    number: u64,
    /// The directory that it is done in.
    directory: String,
    /// What is done.
    act: Step,
}

/// Keeps directories of files equal to what resources declare.
///
/// It works on this machine alone. Runs make the contents that a spec does not have itself; their outputs are read from the store.
///
/// ```
/// use std::time::Duration;
///
/// use holdpoint_controllers::Controllers;
/// use holdpoint_controllers::file_set::{FileSet, FileSetWish};
/// use holdpoint_state::testing::TestStore;
/// use holdpoint_workflows::{SchedulerOptions, Workflows};
/// use serde_json::json;
///
/// # let directory = tempfile::tempdir()?;
/// # let project = directory.path().canonicalize()?;
/// # let store = TestStore::new([holdpoint_workflows::DOMAIN, holdpoint_controllers::DOMAIN])?;
/// let workflows = Workflows::new(store.db().clone());
/// let controllers = Controllers::new(&workflows, &project)?;
/// let files = FileSet::new(&workflows, controllers.project());
/// let controllers = controllers.register(files)?;
/// let scheduler = controllers.attach(workflows).scheduler(SchedulerOptions::default())?;
///
/// let wish: FileSetWish = serde_json::from_value(json!({
///     "directory": "public",
///     "files": [{ "path": "index.html", "content": "<h1>Hello</h1>" }],
/// }))?;
/// controllers.apply::<FileSet>("site", &wish)?;
/// let ready = controllers.wait_for_condition::<FileSet>("site", "Ready", Duration::from_secs(30))?;
/// assert!(ready.is_some_and(|site| site.status.files().contains_key("index.html")));
/// assert_eq!(std::fs::read_to_string(project.join("public/index.html"))?, "<h1>Hello</h1>");
/// scheduler.stop(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct FileSet {
    pub(super) workflows: Workflows,
    pub(super) project: PathBuf,
}

impl std::fmt::Debug for FileSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("FileSet").finish_non_exhaustive()
    }
}

pub(super) type FilesPass<'a> = Pass<'a, FileSetWish, FileSetStatus>;

impl Controller for FileSet {
    type Spec = FileSetWish;
    type Status = FileSetStatus;

    fn name(&self) -> &str {
        NAME
    }

    fn initial_status(&self, _spec: &FileSetWish) -> FileSetStatus {
        FileSetStatus::default()
    }

    fn reconcile(&self, pass: &mut FilesPass<'_>) -> Result<Action, PassError> {
        finalizer::with(pass, FINALIZER, |pass, event| match event {
            finalizer::Event::Apply => self.converge(pass),
            finalizer::Event::Cleanup => self.clean_up(pass),
        })
    }

    fn spec_schema(&self) -> Option<Value> {
        Some(spec::schema())
    }
}

/// What became of an announced act.
enum Done {
    /// It is over; with what went wrong, if it did.
    Over(Option<String>),
    /// It may have happened.
    Unsure(String),
}

impl FileSet {
    /// File sets of a project, in which the directories are.
    pub fn new(workflows: &Workflows, project: &ProjectPath) -> Self {
        Self {
            workflows: workflows.clone(),
            project: project.as_str().into(),
        }
    }

    fn converge(&self, pass: &mut FilesPass<'_>) -> Result<Action, PassError> {
        let spec = match read(pass.spec()) {
            Ok(spec) => spec,
            Err(problem) => {
                // The spec has to change, which is a reason for a pass.
                tell(pass, false, "InvalidSpec", &problem);
                progress(pass, false, "InvalidSpec");
                return Ok(Action::settled());
            }
        };
        let recheck = Duration::from_millis(spec.recheck_after_ms);
        let mut status = pass.status().clone();
        let leaving = status
            .directory
            .as_ref()
            .is_some_and(|directory| *directory != spec.directory);
        let directory = if leaving {
            status.directory.clone()
        } else {
            None
        }
        .unwrap_or_else(|| spec.directory.clone());
        let place = self.place(pass, &directory);
        let contents = self.contents(pass, if leaving { &[] } else { &spec.files })?;
        let mut trouble = None;
        if let Some(next) = status.next.take() {
            let bytes = contents
                .iter()
                .find_map(|(path, content)| match (content, &next.act) {
                    (
                        Content::Known(bytes),
                        Step::Write {
                            path: written,
                            sha256: wanted,
                            ..
                        },
                    ) if path == written && sha256(bytes) == *wanted => Some(bytes.as_slice()),
                    _ => None,
                });
            match self.carry_out(pass, &mut status, next, bytes)? {
                Done::Over(problem) => trouble = problem,
                Done::Unsure(problem) => {
                    pass.set_status(status);
                    tell(pass, None, "Unsure", &problem);
                    progress(pass, true, "Unsure");
                    return Ok(Action::requeue_after(recheck.min(RETRY_AFTER)));
                }
            }
        }
        if status
            .directory
            .as_ref()
            .is_some_and(|own| *own != directory)
        {
            // It was taken for an older generation, as is known only now. It is left first.
            pass.set_status(status);
            return Ok(Action::requeue());
        }
        let planned = plan_of(&place, &spec, &contents, &mut status, leaving);
        let plan = match planned {
            Ok(plan) => plan,
            Err(error @ PlaceError::Io { .. }) => return Err(error.into()),
            Err(error) => {
                pass.set_status(status);
                let reason = if matches!(error, PlaceError::Taken { .. }) {
                    "DirectoryTaken"
                } else {
                    "DirectoryUnreachable"
                };
                tell(pass, false, reason, &error.to_string());
                progress(pass, false, reason);
                return Ok(Action::requeue_after(recheck));
            }
        };
        let run = contents.iter().find_map(|(_, content)| match content {
            Content::Waiting(run) => run.clone(),
            Content::Known(_) | Content::Failed(_) => None,
        });
        pass.set_workflow_run(run);
        let step = plan.step.clone();
        announce(pass, &mut status, &directory, step.clone());
        pass.set_status(status);
        let goes_on = step.is_some() || leaving;
        if let Some(problem) = trouble.filter(|_| goes_on) {
            // The same may go wrong again at once.
            tell(pass, false, "ActFailed", &problem);
            progress(pass, true, "ActFailed");
            return Ok(Action::requeue_after(recheck));
        }
        if goes_on {
            let message = format!(
                "{} of {} files are as declared",
                plan.right,
                spec.files.len()
            );
            tell(pass, false, "Converging", &message);
            progress(pass, true, "Converging");
            return Ok(Action::requeue());
        }
        say_what_is(pass, &plan, spec.files.len());
        Ok(Action::requeue_after(recheck))
    }

    /// Undoes what was made for the resource, act by act.
    fn clean_up(&self, pass: &mut FilesPass<'_>) -> Result<Action, PassError> {
        let mut status = pass.status().clone();
        if let Some(next) = status.next.take() {
            // The directory may be the resource's own by an act whose receipt is lost.
            status
                .directory
                .get_or_insert_with(|| next.directory.clone());
            if let Done::Unsure(problem) = self.carry_out(pass, &mut status, next, None)? {
                pass.set_status(status);
                tell(pass, None, "Unsure", &problem);
                return Ok(Action::requeue_after(RETRY_AFTER));
            }
        }
        let Some(directory) = status.directory.clone() else {
            return Ok(Action::settled());
        };
        let prune = match pass.spec() {
            FileSetWish::Files(spec) => spec.prune,
            FileSetWish::Unreadable(_) => Prune::default(),
        };
        let place = self.place(pass, &directory);
        let left = place.is_claimed().and_then(|is_claimed| {
            let seen = look_at(&place, status.files.keys())?;
            let seen = |path: &str| seen.get(path).cloned().unwrap_or(Seen::Other);
            Ok(plan::leave(prune, &mut status.files, is_claimed, seen).step)
        });
        let step = match left {
            Ok(step) => step,
            Err(error @ PlaceError::Io { .. }) => return Err(error.into()),
            // The directory is somebody else's by now, or none: nothing in it is the resource's.
            Err(PlaceError::Taken { .. } | PlaceError::Way { .. } | PlaceError::Changed { .. }) => {
                None
            }
        };
        if step.is_none() {
            return Ok(Action::settled());
        }
        announce(pass, &mut status, &directory, step);
        pass.set_status(status);
        tell(pass, false, "Deleting", "its files are being removed");
        Ok(Action::requeue())
    }

    /// Does what was announced, or finds out what became of it. Without its content a file is not written: it was announced for a spec that is
    /// no longer wanted.
    fn carry_out(
        &self,
        pass: &mut FilesPass<'_>,
        status: &mut FileSetStatus,
        next: Announced,
        bytes: Option<&[u8]>,
    ) -> Result<Done, PassError> {
        let place = self.place(pass, &next.directory);
        let act = FileAct {
            key: format!("{}-{}", next.generation, next.number),
            place,
            step: &next.act,
            bytes,
        };
        // Of a spec that is no longer wanted: what becomes of it is nobody's trouble.
        let is_wanted = next.generation == pass.generation();
        let record = match pass.ensure(&act) {
            // It is over, and its pass could not say so: the spec changed in the middle of it. What came of it is seen.
            Err(error) if is_of_an_older_generation(&error) => {
                status.acts = next.number;
                match &next.act {
                    Step::Claim if act.place.is_claimed().is_ok_and(|is| is) => {
                        status.directory = Some(next.directory);
                    }
                    Step::Write { path, sha256, .. } if matches!(act.place.look(path), Ok(Seen::File(there)) if there == *sha256) =>
                    {
                        status.files.insert(path.clone(), sha256.clone());
                    }
                    Step::Claim | Step::Write { .. } | Step::Remove { .. } | Step::Release => {}
                }
                if let Step::Write { path, sha256, .. } = &next.act {
                    act.place.clear(path, sha256)?;
                }
                return Ok(Done::Over(None));
            }
            record => record?,
        };
        if let Step::Write { path, sha256, .. } = &next.act
            && matches!(
                record.state,
                EffectOutcome::Rejected | EffectOutcome::Applied
            )
        {
            // An earlier attempt may have died in the middle.
            act.place.clear(path, sha256)?;
        }
        let error = record.error.unwrap_or_else(|| "the act failed".to_owned());
        match record.state {
            EffectOutcome::Pending | EffectOutcome::Indeterminate => {
                status.next = Some(next);
                return Ok(Done::Unsure(error));
            }
            EffectOutcome::Rejected | EffectOutcome::Cancelled => {
                status.acts = next.number;
                return Ok(Done::Over(Some(error).filter(|_| is_wanted)));
            }
            EffectOutcome::Applied => {}
        }
        status.acts = next.number;
        match next.act {
            Step::Claim => status.directory = Some(next.directory),
            Step::Release => status.directory = None,
            Step::Write { path, sha256, .. } => drop(status.files.insert(path, sha256)),
            Step::Remove { path, .. } => drop(status.files.remove(&path)),
        }
        Ok(Done::Over(None))
    }

    fn place(&self, pass: &FilesPass<'_>, directory: &str) -> Place {
        let metadata = pass.metadata();
        Place {
            project: self.project.clone(),
            directory: directory.to_owned(),
            uid: metadata.uid.to_string(),
            resource: format!("{}/{}", metadata.controller, metadata.key),
        }
    }
}

fn is_of_an_older_generation(error: &PassError) -> bool {
    matches!(
        error.downcast_ref::<ControllerError>(),
        Some(ControllerError::RequestConflict {
            difference: "generation",
            ..
        })
    )
}

/// The spec, if it is one.
fn read(wish: &FileSetWish) -> Result<FileSetSpec, String> {
    match wish {
        FileSetWish::Files(spec) => match spec.check() {
            Ok(()) => Ok(spec.clone()),
            Err((at, problem)) => Err(format!("{at} {problem}")),
        },
        FileSetWish::Unreadable(value) => match FileSetSpec::deserialize(value) {
            Ok(spec) => Ok(spec),
            Err(error) => Err(error.to_string()),
        },
    }
}

fn plan_of(
    place: &Place,
    spec: &FileSetSpec,
    contents: &[(String, Content)],
    status: &mut FileSetStatus,
    leaving: bool,
) -> Result<Plan, PlaceError> {
    let is_claimed = place.is_claimed()?;
    let wanted: BTreeMap<String, Wanted> = contents
        .iter()
        .map(|(path, content)| {
            let wanted = match content {
                Content::Known(bytes) => Wanted::Content(sha256(bytes)),
                Content::Waiting(_) => Wanted::Waiting,
                Content::Failed(why) => Wanted::Failed(why.clone()),
            };
            (path.clone(), wanted)
        })
        .collect();
    let seen = look_at(place, wanted.keys().chain(status.files.keys()))?;
    let seen = |path: &str| seen.get(path).cloned().unwrap_or(Seen::Other);
    if leaving {
        let plan = plan::leave(spec.prune, &mut status.files, is_claimed, seen);
        if plan.step.is_none() {
            status.directory = None;
        }
        return Ok(plan);
    }
    if is_claimed {
        status.directory = Some(place.directory.clone());
    }
    let others = match spec.prune {
        Prune::Everything if is_claimed => {
            place.others(|path| wanted.contains_key(path) || status.files.contains_key(path))?
        }
        Prune::Everything | Prune::Managed | Prune::Never => BTreeMap::new(),
    };
    let declared = Declared {
        others: &others,
        wanted: &wanted,
        existing: spec.existing,
        drift: spec.drift,
        prune: spec.prune,
    };
    Ok(plan::converge(
        &declared,
        &mut status.files,
        is_claimed,
        seen,
    ))
}

fn look_at<'p>(
    place: &Place,
    paths: impl Iterator<Item = &'p String>,
) -> Result<BTreeMap<String, Seen>, PlaceError> {
    let mut seen = BTreeMap::new();
    for path in paths {
        if !seen.contains_key(path) {
            seen.insert(path.clone(), place.look(path)?);
        }
    }
    Ok(seen)
}

/// Stores what the next pass does.
fn announce(pass: &FilesPass<'_>, status: &mut FileSetStatus, directory: &str, step: Option<Step>) {
    status.next = step.map(|act| Announced {
        generation: pass.generation(),
        number: status.acts + 1,
        directory: directory.to_owned(),
        act,
    });
}

fn tell(pass: &mut FilesPass<'_>, ready: impl Into<Option<bool>>, reason: &str, message: &str) {
    let status = ready.into().map_or(ConditionStatus::Unknown, Into::into);
    pass.set_condition(ConditionInput::new("Ready", status, reason).because(message));
}

fn progress(pass: &mut FilesPass<'_>, goes_on: bool, reason: &str) {
    pass.set_condition(ConditionInput::new("Progressing", goes_on, reason));
}

/// The conditions of a set for which nothing can be done at this moment.
fn say_what_is(pass: &mut FilesPass<'_>, plan: &Plan, declared: usize) {
    let (ready, goes_on, reason, message) = if let Some((_, why)) = plan.blocked.first() {
        let reason = match why {
            Blocked::Occupied => "Occupied",
            Blocked::NotAFile => "NotAFile",
            Blocked::Drifted => "Drifted",
            Blocked::Failed(_) => "WorkflowFailed",
        };
        let told: Vec<String> = plan
            .blocked
            .iter()
            .map(|(path, why)| format!("{path}: {}", why_of(why)))
            .collect();
        (false, !plan.waiting.is_empty(), reason, list(&told))
    } else if plan.waiting.is_empty() {
        (
            true,
            false,
            "Equal",
            format!("all {declared} files are as declared"),
        )
    } else {
        (false, true, "WaitingForWorkflow", list(&plan.waiting))
    };
    tell(pass, ready, reason, &message);
    progress(pass, goes_on, reason);
}

fn why_of(why: &Blocked) -> &str {
    match why {
        Blocked::Occupied => "a file of somebody else is there",
        Blocked::NotAFile => "something that is no ordinary file is there",
        Blocked::Drifted => "somebody changed it",
        Blocked::Failed(why) => why,
    }
}

fn list(all: &[String]) -> String {
    let mut text = all
        .iter()
        .take(NAMED_MAX)
        .cloned()
        .collect::<Vec<_>>()
        .join("; ");
    if NAMED_MAX < all.len() {
        // Writing to a string does not fail.
        let _ = write!(text, "; and {} more", all.len() - NAMED_MAX);
    }
    text
}
