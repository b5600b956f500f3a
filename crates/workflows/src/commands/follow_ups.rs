//! Follow-ups: prompts that are queued while a run goes on, and shown to its origin session after it completed.
//!
//! Each is a resource of its own, with its own events; nothing of it touches the run. Its message is made with it and becomes eligible
//! when the run has completed, behind the terminal message (`store::messages`, `views`); that it was sent is a fact of that message.
//! The terminal fan-out cancels those of a run that ends in another way. A restart takes none of them over.

use holdpoint_state::id::{derived_id, random_id};
use holdpoint_state::{
    Actor, Change, Command, Database, Outcome, Payload, Receipt, Resource, StateError,
};
use serde_json::json;

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, FollowUpStatus, RunStatus};
use crate::operations;
use crate::store;
use crate::store::follow_ups::FollowUpRow;

/// The most bytes that a prompt has.
pub const PROMPT_LIMIT_BYTES: usize = 65_536;

/// A prompt to queue.
#[derive(Debug, Clone)]
pub struct QueueFollowUp {
    run: RunId,
    prompt: String,
    request_id: String,
    session: Option<String>,
    source: String,
    actor: Actor,
}

impl QueueFollowUp {
    /// A prompt for the origin session of a run.
    pub fn new(run: &RunId, prompt: impl Into<String>) -> Self {
        Self {
            run: run.clone(),
            prompt: prompt.into(),
            request_id: random_id("follow-up"),
            session: None,
            source: "program".to_owned(),
            actor: Actor::control("program"),
        }
    }

    /// Sets the idempotency key, unique in the run. A caller that may have to repeat the wish sets its own.
    #[must_use]
    pub fn key(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = request_id.into();
        self
    }

    /// Says which session is meant; it must be the run's origin session.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Says who queues it, and from where: the same two may remove it.
    #[must_use]
    pub fn by(mut self, actor: Actor, source: impl Into<String>) -> Self {
        self.actor = actor;
        self.source = source.into();
        self
    }
}

/// The receipt of a queued follow-up.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedFollowUp {
    /// Its id.
    pub follow_up_id: String,
    /// Its place among those of its run, from 1.
    pub order_number: i64,
}

/// The resource of a follow-up.
fn resource(follow_up: &str) -> Resource {
    Resource::new("follow_up", follow_up)
}

/// The id of a follow-up: the same request of the same run is the same follow-up.
fn follow_up_id(run: &RunId, request: &str) -> String {
    derived_id("follow-up", &[run.as_str(), request])
}

/// Queues a follow-up (`followUp.queue`).
///
/// Checks, in this order: the prompt's form; the run exists; the request is a repeat, also after the run ended; the run has an origin
/// session and it is the named one; the run is running or waiting.
///
/// # Errors
///
/// [`WorkflowError::Input`] for a blank or too long prompt, [`WorkflowError::Conflict`] when the request was used for another prompt,
/// actor, source or session; [`WorkflowError::Rejected`] when the run is not in a state that takes one.
pub fn queue_follow_up(
    db: &Database,
    queue: &QueueFollowUp,
) -> Result<Receipt<QueuedFollowUp>, WorkflowError> {
    check(queue)?;
    let id = follow_up_id(&queue.run, &queue.request_id);
    let prompt = Payload::text(queue.prompt.as_str())?;
    let content = Payload::json(&json!({ "followUpId": id, "prompt": queue.prompt }))?;
    let command = Command::new(&operations::QUEUE_FOLLOW_UP, resource(&id))
        .by(queue.actor.clone())
        .creating();
    let queue = queue.clone();
    db.commit(command, move |change| {
        let run = store::runs::run_named(change, queue.run.as_str())?
            .ok_or_else(|| no_run(&queue.run))?;
        if let Some(earlier) = store::follow_ups::follow_up(change)? {
            return adopt(&queue, &id, &prompt, &earlier);
        }
        if run.mode != ExecutionMode::Interactive {
            return Err(
                run.rejected("it has no origin session, so that nobody would be shown a follow-up")
            );
        }
        if queue
            .session
            .as_ref()
            .is_some_and(|session| *session != run.session)
        {
            return Err(
                run.rejected("another session is its origin, and only that is shown a follow-up")
            );
        }
        if !matches!(run.status, RunStatus::Running | RunStatus::Waiting) {
            return Err(run.rejected("a follow-up is queued while a run is running or waiting"));
        }
        let Some((run_key, _)) = store::runs::revision_of(change, queue.run.as_str())? else {
            return Err(no_run(&queue.run));
        };
        let stored = change.put_blob(&prompt)?;
        let row = store::follow_ups::NewRow {
            run_key,
            request_id: &queue.request_id,
            session: &run.session,
            source_type: &queue.source,
            prompt: stored,
        };
        let order_number = store::follow_ups::insert(change, &row)?;
        store::messages::queue_follow_up(change, run_key, &run.session, &content)?;
        change.transition("none", "queued")?;
        change.record(Payload::json(&json!({
            "runId": queue.run, "requestId": queue.request_id, "orderNumber": order_number,
        }))?);
        Ok(Outcome::Accepted(QueuedFollowUp {
            follow_up_id: id.clone(),
            order_number,
        }))
    })
}

fn check(queue: &QueueFollowUp) -> Result<(), WorkflowError> {
    let input = |what, problem: String| Err(WorkflowError::Input { what, problem });
    if queue.prompt.trim().is_empty() {
        return input("prompt", "it must not be blank".to_owned());
    }
    if PROMPT_LIMIT_BYTES < queue.prompt.len() {
        let bytes = queue.prompt.len();
        return input(
            "prompt",
            format!("it has {bytes} bytes; {PROMPT_LIMIT_BYTES} are allowed"),
        );
    }
    if queue.request_id.is_empty() || 512 < queue.request_id.chars().count() {
        return input("request id", "it must have 1 to 512 characters".to_owned());
    }
    Ok(())
}

fn adopt(
    queue: &QueueFollowUp,
    id: &str,
    prompt: &Payload,
    earlier: &FollowUpRow,
) -> Result<Outcome<QueuedFollowUp>, WorkflowError> {
    let same = earlier.prompt == prompt.digest()
        && is_same_source(earlier, &queue.actor, &queue.source)
        && queue
            .session
            .as_ref()
            .is_none_or(|session| *session == earlier.session);
    if !same {
        return Err(WorkflowError::Conflict {
            what: format!("follow-up {id}"),
            problem: "its request was used for another prompt, or by somebody else".to_owned(),
        });
    }
    Ok(Outcome::Adopted(QueuedFollowUp {
        follow_up_id: id.to_owned(),
        order_number: earlier.order_number,
    }))
}

fn is_same_source(row: &FollowUpRow, actor: &Actor, source: &str) -> bool {
    row.actor_type == actor.kind().as_str()
        && row.actor_id.as_deref() == actor.id()
        && row.source_type == source
}

/// A wish to take a follow-up out of the queue.
#[derive(Debug, Clone)]
pub struct RemoveFollowUp {
    follow_up: String,
    reason: String,
    source: String,
    actor: Actor,
}

impl RemoveFollowUp {
    /// Removes a follow-up.
    pub fn of(follow_up: impl Into<String>) -> Self {
        Self {
            follow_up: follow_up.into(),
            reason: "removed on request".to_owned(),
            source: "program".to_owned(),
            actor: Actor::control("program"),
        }
    }

    /// Says why, for the audit trail.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Says who removes it, and from where. A person may remove any, others only what they queued from there.
    #[must_use]
    pub fn by(mut self, actor: Actor, source: impl Into<String>) -> Self {
        self.actor = actor;
        self.source = source.into();
        self
    }
}

/// Removes a follow-up (`followUp.remove`). A second removal is adopted.
///
/// # Errors
///
/// [`WorkflowError::NoFollowUp`]; [`WorkflowError::Denied`] for somebody else's; [`WorkflowError::Conflict`] when it was cancelled with
/// its run, or is on the session's branch already.
pub fn remove_follow_up(
    db: &Database,
    remove: &RemoveFollowUp,
) -> Result<Receipt<()>, WorkflowError> {
    let reason = Payload::text(crate::model::cut(&remove.reason))?;
    let command = Command::new(&operations::REMOVE_FOLLOW_UP, resource(&remove.follow_up))
        .by(remove.actor.clone());
    let remove = remove.clone();
    let follow_up = remove.follow_up.clone();
    db.commit(command, move |change| {
        let id = &remove.follow_up;
        let Some(row) = store::follow_ups::follow_up(change)? else {
            return Err(WorkflowError::NoFollowUp {
                follow_up: id.clone(),
            });
        };
        let is_person = remove.actor.kind() == holdpoint_state::ActorKind::Human;
        if !is_person && !is_same_source(&row, &remove.actor, &remove.source) {
            return Err(WorkflowError::Denied {
                what: format!("follow-up {id}"),
                problem: "only who queued it, from there, or a person may remove it".to_owned(),
            });
        }
        let conflict = |problem: &str| WorkflowError::Conflict {
            what: format!("the removal of follow-up {id}"),
            problem: problem.to_owned(),
        };
        match row.status {
            FollowUpStatus::Removed => return Ok(Outcome::Adopted(())),
            FollowUpStatus::Cancelled => return Err(conflict("it was cancelled with its run")),
            FollowUpStatus::Queued => {}
        }
        if store::messages::is_sent(change, id)? {
            return Err(conflict("its session shows it already"));
        }
        close(change, FollowUpStatus::Removed, &reason, &row)?;
        Ok(Outcome::Accepted(()))
    })
    .map_err(|error| match error {
        WorkflowError::State(StateError::NotFound { .. }) => {
            WorkflowError::NoFollowUp { follow_up }
        }
        other => other,
    })
}

/// Cancels what is queued for the session of the run of this change, which is over without having completed. A part of the terminal
/// fan-out.
pub(super) fn cancel_queued(change: &mut Change<'_>, reason: &str) -> Result<(), StateError> {
    let queued = store::follow_ups::queued(change)?;
    if queued.is_empty() {
        return Ok(());
    }
    let reason = Payload::text(crate::model::cut(reason))?;
    for id in queued {
        let command =
            Command::new(&operations::CANCEL_FOLLOW_UP, resource(&id)).by(change.actor().clone());
        change.also(&command, |change| {
            let Some(row) = store::follow_ups::follow_up(change)? else {
                return Err(StateError::Corrupt {
                    what: format!("follow-up {id}"),
                    problem: "it was there a moment ago".to_owned(),
                });
            };
            close(change, FollowUpStatus::Cancelled, &reason, &row)?;
            Ok::<_, StateError>(Outcome::Accepted(()))
        })?;
    }
    Ok(())
}

/// Takes the follow-up of this change out of the queue, with its message.
fn close(
    change: &mut Change<'_>,
    to: FollowUpStatus,
    reason: &Payload,
    row: &FollowUpRow,
) -> Result<(), StateError> {
    let id = change.resource().key().to_owned();
    let stored = change.put_blob(reason)?;
    store::follow_ups::close(change, to, stored)?;
    store::messages::cancel_follow_up(change, &id)?;
    change.transition("queued", to.as_str())?;
    change.record(Payload::json(
        &json!({ "runId": row.run_id, "reasonStored": true }),
    )?);
    Ok(())
}

fn no_run(run: &RunId) -> WorkflowError {
    WorkflowError::NoRun {
        run: run.to_string(),
    }
}
