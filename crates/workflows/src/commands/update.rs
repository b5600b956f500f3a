//! Updates: an attempt says how far it is, while it goes on or waits for its origin session.
//!
//! Both limits are checked here, inside the transaction, against the attempt's last row: updates in flight at the same moment, also of
//! several processes, can't pass them together. Not here: the form of an update (`updates`).

use holdpoint_state::id::random_id;
use holdpoint_state::{Actor, Change, Claim, Command, Database, Outcome, Payload, Receipt};
use serde_json::json;

use super::answer::no_run;
use super::worker::Said;
use crate::error::WorkflowError;
use crate::id::{AttemptId, RunId};
use crate::model::{RequestKind, RequestStatus, RunStatus, resource};
use crate::operations;
use crate::store;
use crate::updates::{PAIR_LIMIT, Update, take_token};

/// The receipt of an accepted update.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// The update's id.
    pub update_id: String,
    /// Its number in its attempt, from 1.
    pub sequence: i64,
    /// The revision of the run that it made.
    pub run_revision: u64,
}

/// Publishes an update of the attempt that a runner executes. The lease is not renewed by it.
///
/// Checks, in this order: the attempt is the present one and goes on; the request id is a repeat; the rate; the number of pairs.
///
/// # Errors
///
/// [`WorkflowError::Transition`] for a late update: the attempt is not the present one any more, or waits.
/// [`WorkflowError::Limit`] when the attempt published too much. [`WorkflowError::Conflict`] when the request id was used for another
/// update. [`WorkflowError::State`] with `ClaimLost` when the run belongs to somebody else.
pub fn publish(
    db: &Database,
    claim: &Claim,
    attempt: &AttemptId,
    update: &Update,
) -> Result<Receipt<Published>, WorkflowError> {
    publish_said(db, claim, (attempt, update), None)
}

/// [`publish`] with the message of a worker process that proposes it.
pub(crate) fn publish_said(
    db: &Database,
    claim: &Claim,
    (attempt, update): (&AttemptId, &Update),
    said: Option<&Said>,
) -> Result<Receipt<Published>, WorkflowError> {
    let command = Command::new(&operations::PUBLISH, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (attempt, update, said) = (attempt.clone(), update.clone(), said.cloned());
    db.commit(command, move |change| {
        let (status, _) = store::runs::status(change)?;
        let active = store::attempts::active(change)?
            .filter(|active| active.attempt_id == attempt && status == RunStatus::Running);
        let Some(active) = active else {
            return Err(WorkflowError::Transition {
                run: change.resource().key().to_owned(),
                problem: format!("attempt {attempt} does not go on, so that it publishes nothing"),
            });
        };
        if let Some(earlier) = repeat(change, Some(active.key), &update)? {
            return Ok(Outcome::Adopted(earlier));
        }
        let accepted = accept(change, (active.key, &active.attempt_id), status, &update)?;
        if let Some(said) = &said {
            said.save(change, None)?;
        }
        Ok(accepted)
    })
}

/// An update from the origin session of a run, about the attempt that waits for it.
#[derive(Debug, Clone)]
pub struct SessionUpdate {
    run: RunId,
    update: Update,
    request: Option<String>,
    session: Option<String>,
    actor: Actor,
}

impl SessionUpdate {
    /// An update about whatever the run waits for.
    pub fn new(run: &RunId, update: Update) -> Self {
        Self {
            run: run.clone(),
            update,
            request: None,
            session: None,
            actor: Actor::control("program"),
        }
    }

    /// Names the request that the session works on.
    #[must_use]
    pub fn about(mut self, request: impl Into<String>) -> Self {
        self.request = Some(request.into());
        self
    }

    /// Says which session publishes; it must be the one that is asked.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Says who publishes.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }
}

/// Publishes an update of the attempt that waits for its origin session (`interaction.update`). The attempt stays open.
///
/// Checks, in this order: the request id is a repeat, also after the request was settled; the run is not paused and waits; its pending
/// request is of kind agent, of this session and the named one; the rate; the number of pairs.
///
/// # Errors
///
/// [`WorkflowError::Rejected`] when no agent is asked now; [`WorkflowError::NoRequest`] when another one is; otherwise as
/// [`publish`].
pub fn publish_from_session(
    db: &Database,
    publishing: &SessionUpdate,
) -> Result<Receipt<Published>, WorkflowError> {
    let command = Command::new(&operations::PUBLISH_FROM_SESSION, resource(&publishing.run))
        .by(publishing.actor.clone());
    let publishing = publishing.clone();
    db.commit(command, move |change| {
        let SessionUpdate {
            update, session, ..
        } = &publishing;
        let run = store::runs::run(change)?;
        if let Some(earlier) = repeat(change, None, update)? {
            return Ok(Outcome::Adopted(earlier));
        }
        if run.paused || run.status != RunStatus::Waiting {
            return Err(run.rejected("no session works on it now, so that none publishes"));
        }
        let Some(request) = store::requests::pending(change)? else {
            return Err(
                run.rejected("its session was answered already, so that it publishes nothing more")
            );
        };
        let is_named = publishing
            .request
            .as_ref()
            .is_none_or(|named| *named == request.request_id);
        if !is_named
            || session
                .as_ref()
                .is_some_and(|session| *session != request.session)
        {
            return Err(WorkflowError::NoRequest {
                run: run.run_id.to_string(),
            });
        }
        if request.kind != RequestKind::Agent {
            return Err(run.rejected(format!("a request of kind {} has no updates", request.kind)));
        }
        let (attempt, status) = store::updates::attempt_of(change, request.key)?;
        let active = store::attempts::active(change)?.filter(|active| active.key == attempt);
        let (Some(active), RequestStatus::Pending) = (active, status) else {
            return Err(run.rejected("the attempt that it waits at does not go on"));
        };
        accept(change, (attempt, &active.attempt_id), run.status, update)
    })
    .map_err(no_run)
}

/// The receipt of an earlier update under the same request id.
fn repeat(
    change: &mut Change<'_>,
    attempt: Option<i64>,
    update: &Update,
) -> Result<Option<Published>, WorkflowError> {
    let Some(request_id) = update.request_id() else {
        return Ok(None);
    };
    let Some(earlier) = store::updates::repeated(change, attempt, request_id)? else {
        return Ok(None);
    };
    let same = earlier.update_type == update.update_type()
        && earlier.key == update.key()
        && earlier.data == update.data().digest();
    if !same {
        return Err(WorkflowError::Conflict {
            what: format!("the update {request_id}"),
            problem: format!("it was used for {} {}", earlier.update_type, earlier.key),
        });
    }
    Ok(Some(Published {
        update_id: earlier.update_id,
        sequence: earlier.sequence,
        run_revision: earlier.run_revision,
    }))
}

/// Admits and appends.
fn accept(
    change: &mut Change<'_>,
    (attempt, attempt_id): (i64, &AttemptId),
    status: RunStatus,
    update: &Update,
) -> Result<Outcome<Published>, WorkflowError> {
    let last = store::updates::last(change, attempt)?;
    let limit = |change: &Change<'_>, problem: String| WorkflowError::Limit {
        run: change.resource().key().to_owned(),
        problem,
    };
    let rested_at =
        take_token(last.map(|last| last.rested_at), change.now()).map_err(|wait_ms| {
            limit(
                change,
                format!("its attempt publishes too fast; wait {wait_ms} ms"),
            )
        })?;
    let mut pair_count = last.map_or(0, |last| last.pair_count);
    if pair_count == 0 || !store::updates::has_pair(change, attempt, update)? {
        pair_count += 1;
    }
    if i64::from(PAIR_LIMIT) < pair_count {
        let problem = format!(
            "its attempt has {PAIR_LIMIT} pairs of type and key already; replace one of them"
        );
        return Err(limit(change, problem));
    }
    let published = Published {
        update_id: random_id("upd").replacen('-', "_", 1),
        sequence: last.map_or(0, |last| last.sequence) + 1,
        run_revision: change.next_revision(),
    };
    let row = store::updates::NewRow {
        update_id: &published.update_id,
        attempt,
        sequence: published.sequence,
        pair_count,
        rested_at,
    };
    store::updates::insert(change, update, &row)?;
    change.transition(status.as_str(), status.as_str())?;
    change.record(Payload::json(&json!({
        "attemptId": attempt_id,
        "updateId": published.update_id,
        "sequence": published.sequence,
        "type": update.update_type(),
        "key": update.key(),
    }))?);
    Ok(Outcome::Accepted(published))
}
