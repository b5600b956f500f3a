//! `settings.change`: live settings are changed by patches, one after the other, and nobody's change is lost.
//!
//! What a patch makes of a document is found out before the transaction, since the workflow's own functions may take their time;
//! the transaction then takes it only at the very change number that it was made from. Not here: patches, rules (`settings`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdpoint_state::id::random_id;
use holdpoint_state::{
    Actor, Change, Command, Database, Digest, Outcome, Payload, Receipt, Resource, StateError,
};
use serde_json::{Value, json};

use crate::definition::{Definition, NodeError};
use crate::error::WorkflowError;
use crate::id::{RunId, ScopeId};
use crate::model::RunStatus;
use crate::operations;
use crate::settings::{ChangeError, Patch};
use crate::store;
use crate::store::settings::BoundRow;
use crate::views::{self, ScopeToChange};

/// How often a change without an expected number is made again because another one was faster.
const RETRIES_MAX: u32 = 8;
/// The longest source of a change, in characters.
const SOURCE_CHARS_MAX: usize = 128;
/// The longest request id, in bytes.
const REQUEST_BYTES_MAX: usize = 512;

/// A wish to change the settings of a run.
#[derive(Debug, Clone)]
pub struct SettingsChange {
    run: RunId,
    patch: Value,
    scope: Option<String>,
    request: String,
    source: String,
    expected: Option<u64>,
    actor: Actor,
}

impl SettingsChange {
    /// A change by an RFC 6902 patch.
    pub fn new(run: &RunId, patch: Value) -> Self {
        Self {
            run: run.clone(),
            patch,
            scope: None,
            request: random_id("request"),
            source: "program".to_owned(),
            expected: None,
            actor: Actor::control("program"),
        }
    }

    /// The run.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Names the scope. Needed when the run has more than one.
    #[must_use]
    pub fn in_scope(mut self, scope: impl AsRef<str>) -> Self {
        self.scope = Some(scope.as_ref().to_owned());
        self
    }

    /// Sets the request id: a caller that may have to repeat the change sets its own. A repeat meets the first, whatever happened
    /// since.
    #[must_use]
    pub fn request(mut self, request: impl Into<String>) -> Self {
        self.request = request.into();
        self
    }

    /// Says from where the change comes, at most 128 characters.
    #[must_use]
    pub fn from_source(mut self, source: impl Into<String>) -> Self {
        self.source = source.into();
        self
    }

    /// Says at which change number the caller read the settings; at another one the change is refused.
    #[must_use]
    pub fn expecting(mut self, change_number: u64) -> Self {
        self.expected = Some(change_number);
        self
    }

    /// Says who changes: the path rules are about the kind of actor.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    fn check(&self) -> Result<(Patch, Payload), WorkflowError> {
        let form = self.request.len() <= REQUEST_BYTES_MAX
            && self
                .request
                .starts_with(|c: char| c.is_ascii_alphanumeric())
            && self
                .request
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'));
        if !form {
            return Err(WorkflowError::Input {
                what: "request id",
                problem: "it must be a letter or digit and then at most 511 of A-Z a-z 0-9 . _ : -"
                    .to_owned(),
            });
        }
        if self.source.is_empty() || SOURCE_CHARS_MAX < self.source.chars().count() {
            return Err(WorkflowError::Input {
                what: "source",
                problem: format!("it must have 1 to {SOURCE_CHARS_MAX} characters"),
            });
        }
        let patch = Patch::parse(&self.patch).map_err(|error| WorkflowError::Input {
            what: "patch",
            problem: error.to_string(),
        })?;
        let payload = Payload::json(patch.json())?;
        Ok((patch, payload))
    }
}

/// The receipt of a change.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsChanged {
    /// The scope.
    pub scope_id: ScopeId,
    /// The change.
    pub change_id: String,
    /// Its number: the first change of a scope is 1.
    pub change_number: u64,
    /// The request that made it.
    pub request_id: String,
}

/// Changes the settings of a run. The definition must be the one that the run is pinned to: its rules decide.
///
/// A repeat with the same request id, patch, actor and source gets the receipt of the first, also after the run is over.
///
/// Checks, in this order: request id, source and patch have their form; the scope exists; the request is a repeat; the run goes on;
/// the expected number; then what the patch does, the rules and the workflow's own functions.
///
/// # Errors
///
/// [`WorkflowError::Input`], [`WorkflowError::NoRun`], [`WorkflowError::NoSettings`]; [`WorkflowError::Conflict`] when the request
/// id was used for another change; [`WorkflowError::Rejected`] when the run did not begin or is over;
/// [`WorkflowError::StaleSettings`] at another change number, or when others were faster nine times in a row;
/// [`WorkflowError::SettingsRefused`] with the reason. Nothing was written.
pub fn change_settings(
    db: &Database,
    definition: &Definition,
    wish: &SettingsChange,
) -> Result<Receipt<SettingsChanged>, WorkflowError> {
    let (patch, stored) = wish.check()?;
    let mut retries = 0;
    loop {
        let read = {
            let snapshot = db.snapshot()?;
            views::scope_to_change(&snapshot, &wish.run, wish.scope.as_deref(), &wish.request)?
        };
        // Where it can't change, the transaction finds the reason again, and tells it.
        let after = read
            .may_change(wish)
            .then(|| evaluate(definition, wish, &patch, &read))
            .transpose()?;
        match commit(db, definition, wish, &stored, (&read, after)) {
            Err(WorkflowError::StaleSettings { actual, .. })
                if retries < RETRIES_MAX
                    && wish.expected.is_none_or(|expected| expected == actual) =>
            {
                retries += 1;
            }
            other => return other,
        }
    }
}

impl ScopeToChange {
    /// Whether a new change could be made of what was read.
    fn may_change(&self, wish: &SettingsChange) -> bool {
        !self.is_repeat
            && is_open(self.status)
            && wish
                .expected
                .is_none_or(|expected| expected == self.change_number)
    }
}

/// What the patch makes of the document, in the caller's own thread.
fn evaluate(
    definition: &Definition,
    wish: &SettingsChange,
    patch: &Patch,
    read: &ScopeToChange,
) -> Result<Payload, WorkflowError> {
    let refused = |error| WorkflowError::SettingsRefused {
        scope: read.scope_id.to_string(),
        error,
    };
    let Some(settings) = definition.settings(&read.mount_path) else {
        return Err(WorkflowError::NoSettings {
            run: wish.run.to_string(),
            scope: Some(read.scope_id.to_string()),
        });
    };
    let change = || settings.change(&read.value, patch, &wish.actor);
    let after = catch_unwind(AssertUnwindSafe(change))
        .unwrap_or_else(|panic| {
            let text = crate::engine::panic_text(&*panic);
            Err(ChangeError::Refused(NodeError::named("Panic", text)))
        })
        .map_err(refused)?;
    Ok(Payload::json(&after)?)
}

fn commit(
    db: &Database,
    definition: &Definition,
    wish: &SettingsChange,
    patch: &Payload,
    (read, after): (&ScopeToChange, Option<Payload>),
) -> Result<Receipt<SettingsChanged>, WorkflowError> {
    let command =
        Command::new(&operations::CHANGE_SETTINGS, resource(&read.scope_id)).by(wish.actor.clone());
    let digest = Digest(definition.digest());
    let (wish, patch) = (wish.clone(), patch.clone());
    let (scope_id, change_number) = (read.scope_id.clone(), read.change_number);
    db.commit(command, move |change| {
        let key = change.resource_key()?;
        let (Some(scope), Some(owner)) = (
            store::settings::scope(change, key)?,
            store::settings::owner(change, key)?,
        ) else {
            return Err(WorkflowError::NoSettings {
                run: wish.run.to_string(),
                scope: Some(scope_id.to_string()),
            });
        };
        if let Some(earlier) = store::settings::requested(change, &wish.request)? {
            let same = earlier.patch == patch.digest()
                && earlier.actor_type == wish.actor.kind().as_str()
                && earlier.actor_id.as_deref() == wish.actor.id()
                && earlier.source_type == wish.source;
            if !same {
                return Err(WorkflowError::Conflict {
                    what: format!("settings request {:?}", wish.request),
                    problem: format!(
                        "change {} was made by it, with another patch, actor or source",
                        earlier.change_number
                    ),
                });
            }
            return Ok(Outcome::Adopted(SettingsChanged {
                scope_id: scope.scope_id,
                change_id: earlier.change_id,
                change_number: earlier.change_number.unsigned_abs(),
                request_id: wish.request.clone(),
            }));
        }
        let run = store::runs::run_named(change, &owner)?
            .ok_or_else(|| WorkflowError::NoRun { run: owner.clone() })?;
        if run.status.is_terminal() {
            return Err(run.rejected("it is over; its settings stay as they are"));
        }
        if !is_open(run.status) {
            return Err(run.rejected("it has not begun; its settings come with its first step"));
        }
        if run.definition_digest != digest {
            return Err(
                run.rejected("the rules of another definition can't decide; resolve it again")
            );
        }
        let now = scope.change_number.unsigned_abs();
        let stale = |expected| WorkflowError::StaleSettings {
            scope: scope.scope_id.to_string(),
            expected,
            actual: now,
        };
        if let Some(expected) = wish.expected.filter(|expected| *expected != now) {
            return Err(stale(expected));
        }
        let Some(after) = after.as_ref().filter(|_| now == change_number) else {
            return Err(stale(change_number));
        };
        let change_id = random_id("setting-change");
        let number = scope.change_number + 1;
        let (patch, after) = (change.put_blob(&patch)?, change.put_blob(after)?);
        store::settings::insert_change(
            change,
            &store::settings::NewChange {
                change_id: &change_id,
                request: &wish.request,
                source: &wish.source,
                change_number: number,
                patch,
                before: scope.hash,
                after,
            },
        )?;
        change.record(Payload::json(&json!({
            "runId": owner,
            "changeId": change_id,
            "changeNumber": number,
            "requestId": wish.request,
            "source": wish.source,
        }))?);
        Ok(Outcome::Accepted(SettingsChanged {
            scope_id: scope.scope_id,
            change_id,
            change_number: number.unsigned_abs(),
            request_id: wish.request.clone(),
        }))
    })
}

/// Whether the settings of a run in this state may change. Paused runs are in one of these.
const fn is_open(status: RunStatus) -> bool {
    match status {
        RunStatus::Running | RunStatus::Waiting => true,
        RunStatus::Queued
        | RunStatus::Completed
        | RunStatus::Failed
        | RunStatus::TimedOut
        | RunStatus::Cancelled => false,
    }
}

/// The resource of a scope.
fn resource(scope: &ScopeId) -> Resource {
    Resource::new("settings", scope.as_str())
}

/// Which settings an attempt began with, and keeps reading.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsBinding {
    /// The scope.
    pub scope_id: ScopeId,
    /// The change number.
    pub change_number: u64,
    /// The blob of the document.
    pub hash: Digest,
}

impl From<&BoundRow> for SettingsBinding {
    fn from(row: &BoundRow) -> Self {
        Self {
            scope_id: row.scope_id.clone(),
            change_number: row.change_number.unsigned_abs(),
            hash: row.hash,
        }
    }
}

/// Makes the scope of one invocation of a workflow, inside a change of its run: when the root begins, or an include is entered.
///
/// The document must be what the workflow's own `parse` gives, as `SettingsDefinition::begin` and
/// `SettingsDefinition::initial` do.
pub(crate) fn create_scope(
    change: &mut Change<'_>,
    mount_path: &str,
    invocation: u32,
    document: &Value,
) -> Result<BoundRow, WorkflowError> {
    let run = change.resource_key()?;
    let run_id = RunId::new(change.resource().key()).map_err(|error| corrupt(&error))?;
    let scope_id = ScopeId::of(&run_id, mount_path, invocation);
    let initial = change.put_blob(&Payload::json(document)?)?;
    let payload = Payload::json(&json!({
        "runId": run_id,
        "mountPath": mount_path,
        "invocation": invocation,
    }))?;
    let command = Command::new(&operations::CREATE_SETTINGS, resource(&scope_id))
        .by(change.actor().clone())
        .recording(payload)
        .creating();
    let receipt = change.also(&command, |change| {
        store::settings::insert_scope(
            change,
            &store::settings::NewScope {
                scope_id: &scope_id,
                run,
                mount_path,
                invocation,
                initial,
            },
        )?;
        let key = change.resource_key()?;
        Ok::<_, WorkflowError>(Outcome::Accepted(BoundRow {
            key,
            scope_id: scope_id.clone(),
            change_number: 0,
            hash: initial,
        }))
    })?;
    Ok(receipt.value)
}

/// The settings that an attempt at a node of this mount begins with.
///
/// A run that was pinned to a definition which declares settings only now gets its scope here.
pub(super) fn bind(
    change: &mut Change<'_>,
    definition: &Definition,
    mount_path: &str,
) -> Result<Option<BoundRow>, WorkflowError> {
    let Some(settings) = definition.settings(mount_path) else {
        return Ok(None);
    };
    let run = change.resource_key()?;
    if let Some(bound) = store::settings::latest(change, run, mount_path)? {
        return Ok(Some(bound));
    }
    create_scope(change, mount_path, 1, settings.initial()).map(Some)
}

/// Refuses to go on with a run whose settings have a history that does not add up: what its nodes read can't be trusted then.
pub(super) fn check_history(change: &mut Change<'_>) -> Result<(), WorkflowError> {
    let run = change.resource_key()?;
    match store::settings::broken(change, run)? {
        None => Ok(()),
        Some(scope) => Err(WorkflowError::State(StateError::Corrupt {
            what: format!("the history of settings {scope}"),
            problem: "its changes do not lead from the first document to the present one; restore a backup, or cancel the run"
                .to_owned(),
        })),
    }
}

fn corrupt(problem: &impl std::fmt::Display) -> WorkflowError {
    WorkflowError::State(StateError::Corrupt {
        what: "a run".to_owned(),
        problem: problem.to_string(),
    })
}
