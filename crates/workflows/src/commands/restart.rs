//! `run.restart`: the one restart child of a finished run.

use holdpoint_state::{Actor, Change, Command, Database, Outcome, Payload, Receipt};
use serde_json::json;

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, resource, restart_run_id};
use crate::operations;
use crate::store;

/// A wish to run a finished run again.
#[derive(Debug, Clone)]
pub struct Restart {
    run: RunId,
    revision: u64,
    session: Option<String>,
    actor: Actor,
}

impl Restart {
    /// Restarts a run as it is at this revision: the run's own (`runRevision`), not that of its presentation.
    pub fn new(run: &RunId, revision: u64) -> Self {
        Self {
            run: run.clone(),
            revision,
            session: None,
            actor: Actor::control("program"),
        }
    }

    /// Says which session asks. An interactive run is restarted by its origin session only; a headless one by whoever has the
    /// store, since nobody else could.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Says who asks.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }
}

/// Makes the restart child of a finished run: same definition, sources, input, options, session and mode; nothing else is copied.
///
/// The child's id follows from the run and its revision, so that a repeat meets the same child. There is never a second one.
///
/// # Errors
///
/// In this order: [`WorkflowError::NoRun`], [`WorkflowError::Rejected`] for another session, a run that is not settled, or one
/// with an effect that is not settled; [`WorkflowError::Conflict`] when the run is at another revision or the session is taken.
pub fn restart(db: &Database, restart: &Restart) -> Result<Receipt<RunId>, WorkflowError> {
    let child = restart_run_id(&restart.run, restart.revision);
    let child = RunId::new(&child).map_err(|error| WorkflowError::Input {
        what: "run",
        problem: error.to_string(),
    })?;
    let command = Command::new(&operations::RESTART, resource(&child))
        .by(restart.actor.clone())
        .creating();
    let restart = restart.clone();
    db.commit(command, move |change| {
        if !change.is_new() {
            // The name says it all, unless somebody gave it to a run of their own.
            let stored = store::runs::run(change)?;
            if stored.parent_run_revision.is_none() {
                return Err(WorkflowError::Conflict {
                    what: format!("the restart of run {}", restart.run),
                    problem: format!("the id {child} was given to a run that is no restart"),
                });
            }
            return Ok(Outcome::Adopted(child.clone()));
        }
        reserve(change, &restart, &child)?;
        Ok(Outcome::Accepted(child.clone()))
    })
}

fn reserve(change: &mut Change<'_>, restart: &Restart, child: &RunId) -> Result<(), WorkflowError> {
    let no_run = || WorkflowError::NoRun {
        run: restart.run.to_string(),
    };
    let parent = store::runs::run_named(change, restart.run.as_str())?.ok_or_else(no_run)?;
    let (parent_key, revision) =
        store::runs::revision_of(change, restart.run.as_str())?.ok_or_else(no_run)?;
    if parent.mode == ExecutionMode::Interactive
        && restart.session.as_deref() != Some(parent.session.as_str())
    {
        return Err(parent.rejected("only its origin session may restart it"));
    }
    if !parent.status.is_terminal() || !parent.queue.is_settled() {
        return Err(parent.rejected("it is not over yet"));
    }
    if 0 < store::runs::open_effects(change, parent_key)? {
        return Err(parent.rejected("one of its effects is not settled; resolve it first"));
    }
    if let Some(other) = store::runs::restart_child(change, parent_key)? {
        return Err(WorkflowError::Conflict {
            what: format!("the restart of run {}", parent.run_id),
            problem: format!("it was restarted already, as run {other}"),
        });
    }
    if revision != restart.revision {
        return Err(WorkflowError::Conflict {
            what: format!("the restart of run {}", parent.run_id),
            problem: format!("it is at revision {revision}, not {}", restart.revision),
        });
    }
    if parent.mode == ExecutionMode::Interactive {
        super::start::check_reservation(change, &parent.session, child)?;
    }
    change.transition("none", "queued")?;
    change.record(Payload::json(&json!({
        "workflow": parent.workflow_name,
        "definition": parent.definition_digest,
        "executionMode": parent.mode,
        "restartOf": parent.run_id,
        "inputStored": true,
    }))?);
    let (launch_options, input) = store::runs::contents(change, parent_key)?;
    store::runs::insert_run(
        change,
        &store::runs::NewRun {
            run_id: child,
            parent: Some((
                parent_key,
                revision,
                parent.root_key,
                parent.restart_number + 1,
            )),
            definition: parent.definition_digest,
            workflow_ref: &parent.workflow_ref,
            launch_options: &launch_options,
            input: &input,
        },
    )?;
    for (mount, kind, reference, revision) in store::runs::sources(change, parent_key)? {
        store::runs::insert_source(change, (&mount, &kind, &reference, &revision))?;
    }
    store::runs::insert_binding(change, &parent.session, parent.mode)?;
    store::queue::insert(change, &parent.session, parent.mode)?;
    Ok(())
}
