//! K11 to K13: finite runs that a resource asks for.
//!
//! The id of a child's run is durable before the run is started, so that no crash between the two makes a second run. The run's end is told
//! in the transaction that ends it (`hooks`), never with the claim of the pass that asked for it.

use holdpoint_state::id::random_id;
use holdpoint_state::{
    Actor, ActorKind, Change, Command, Database, Disposition, Outcome, Receipt, StateError,
};
use holdpoint_workflows::RunId;
use holdpoint_workflows::commands::{
    QueueFollowUp, QueuedFollowUp, RemoveFollowUp, SettingsChange, SettingsChanged,
};
use holdpoint_workflows::definition::Definition;
use serde_json::{Value, json};

use super::claim::PassClaim;
use super::effects::still_wanted;
use super::{facts, renew};
use crate::error::ControllerError;
use crate::model::{
    ChildRecord, ChildRequest, ChildState, Completion, Invalid, RequestKey, Uid, reserved_run_id,
};
use crate::views;
use crate::{operations, store};

/// Asks for a child run: the id that its run has is reserved, once for each attempt. A record that is pending says that the run is to be
/// started under that id, and then linked; one that is settled is returned as it is.
///
/// # Errors
///
/// [`ControllerError::RequestConflict`] when the key was used with another workflow or input; [`ControllerError::DeletedMeanwhile`];
/// [`StateError::ClaimLost`].
pub fn reserve(
    db: &Database,
    claim: &PassClaim,
    request: &ChildRequest,
) -> Result<ChildRecord, ControllerError> {
    let fingerprint = request.fingerprint()?;
    if request.workflow.trim().is_empty() {
        return Err(Invalid::Name {
            what: "workflow",
            rule: "not blank",
        }
        .into());
    }
    let (seen, request) = (claim.seen().clone(), request.clone());
    let receipt = db.commit::<_, ControllerError>(claim.command(&operations::REQUEST_CHILD), move |change| {
        let known = store::children::by_key(change, &request.request_key)?;
        let (request_id, attempt) = match &known {
            None => {
                still_wanted(change, &seen)?;
                let request_id = random_id("request");
                let run = reserved_run_id(&request_id, 1)?;
                store::children::insert(change, &request_id, &request, fingerprint, &run)?;
                (request_id, 1)
            }
            Some(child) => {
                check_same(child, &request, fingerprint)?;
                if child.state != ChildState::Interrupted && child.attempt != 0 {
                    return Ok(Outcome::Adopted(child.clone()));
                }
                still_wanted(change, &seen)?;
                let attempt = child.attempt + 1;
                let run = reserved_run_id(&child.request_id, attempt)?;
                store::children::begin_attempt(change, child, &run)?;
                (child.request_id.clone(), attempt)
            }
        };
        let child = required(change, &request.request_key)?;
        change.record(facts(&json!({
            "reconcileId": seen.reconcile_id, "requestId": request_id, "requestKey": request.request_key,
            "workflow": request.workflow, "attempt": attempt, "runId": child.reserved_run_id,
        }))?);
        Ok(Outcome::Accepted(child))
    })?;
    Ok(claim.wrote(receipt))
}

fn check_same(
    child: &ChildRecord,
    request: &ChildRequest,
    fingerprint: holdpoint_state::Digest,
) -> Result<(), ControllerError> {
    let difference = if child.workflow != request.workflow {
        "workflow"
    } else if child.input_fingerprint != fingerprint {
        "input"
    } else {
        return Ok(());
    };
    Err(ControllerError::RequestConflict {
        what: "child",
        key: request.request_key.to_string(),
        difference,
    })
}

fn required(change: &mut Change<'_>, key: &RequestKey) -> Result<ChildRecord, ControllerError> {
    store::children::by_key(change, key)?.ok_or_else(|| ControllerError::NoChild(key.to_string()))
}

/// Notes the run of a child and where it is, as the rows of the run say. A child whose run does not exist yet stays as it is.
///
/// # Errors
///
/// [`ControllerError::NoChild`], [`StateError::ClaimLost`].
pub fn link(
    db: &Database,
    claim: &PassClaim,
    key: &RequestKey,
) -> Result<ChildRecord, ControllerError> {
    let (seen, key) = (claim.seen().clone(), key.clone());
    let receipt = db.commit::<_, ControllerError>(claim.command(&operations::LINK_CHILD), move |change| {
        let child = required(change, &key)?;
        let run = match &child.reserved_run_id {
            Some(reserved) => store::children::run(change, reserved)?,
            None => None,
        };
        // What is settled was told by the run itself, and stays.
        let Some(run) = run.filter(|_| !child.state.is_settled() || child.run_id.is_none()) else {
            return Ok(Outcome::Adopted(child));
        };
        let state = if child.state.is_settled() { child.state } else { run.state };
        if state == child.state && child.run_id.is_some() {
            return Ok(Outcome::Adopted(child));
        }
        store::children::set_state(change, &child.request_id, state, Some(run.key), run.error.as_deref())?;
        change.record(facts(&json!({
            "reconcileId": seen.reconcile_id, "requestId": child.request_id, "state": state, "runId": child.reserved_run_id,
        }))?);
        Ok(Outcome::Accepted(required(change, &key)?))
    })?;
    Ok(claim.wrote(receipt))
}

/// Tells the resource of a child that the child's run ended or waits, and queues it. The same again is adopted. None: the resource is gone,
/// so that there is nobody to tell.
///
/// # Errors
///
/// [`ControllerError::Completion`] for a state that is no completion, for another run than the reserved one, and for another state after
/// a final one. Nothing was written.
pub fn child_completed(
    db: &Database,
    completion: &Completion,
) -> Result<Option<Receipt<ChildRecord>>, ControllerError> {
    check(completion)?;
    let Some(uid) = views::uid_of_request(&db.snapshot()?, &completion.request_id)? else {
        return Ok(None);
    };
    let completion = completion.clone();
    let told =
        db.commit::<_, ControllerError>(command(&uid), move |change| complete(change, &completion));
    match told {
        Err(ControllerError::State(StateError::NotFound { .. })) => Ok(None),
        other => {
            let Receipt {
                disposition,
                revision,
                event_seq,
                value,
            } = other?;
            Ok(value.map(|value| Receipt {
                disposition,
                revision,
                event_seq,
                value,
            }))
        }
    }
}

fn command(uid: &Uid) -> Command {
    Command::new(&operations::COMPLETE_CHILD, uid.resource()).by(Actor::system())
}

fn check(completion: &Completion) -> Result<(), ControllerError> {
    if completion.state.is_settled() {
        return Ok(());
    }
    Err(refused(
        completion,
        format!("{} is no completion", completion.state),
    ))
}

fn refused(completion: &Completion, problem: String) -> ControllerError {
    ControllerError::Completion {
        request: completion.request_id.clone(),
        problem,
    }
}

/// Tells a resource inside the change of the run that ends or waits. It never stops that: a resource that is damaged is not told, which is
/// seen before anything is written, and the duty says so again.
pub(crate) fn tell(
    change: &mut Change<'_>,
    run: &RunId,
    state: ChildState,
    error: Option<String>,
) -> Result<bool, ControllerError> {
    let (request_id, uid) = match who_waits(change, run) {
        Ok(Some(waits)) => waits,
        Ok(None) => return Ok(false),
        Err(ControllerError::State(StateError::Corrupt { what, problem })) => {
            tracing::error!(%run, what, problem, "the resource whose child's run this is can't be told of it");
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let completion = Completion {
        request_id,
        run_id: run.clone(),
        state,
        error,
    };
    let receipt = change.also(&command(&uid), |change| complete(change, &completion))?;
    Ok(receipt.disposition == Disposition::Accepted)
}

/// The request and the resource that wait for a run.
fn who_waits(change: &Change<'_>, run: &RunId) -> Result<Option<(String, Uid)>, ControllerError> {
    let Some((request_id, uid)) = store::children::of_run(change, run)? else {
        return Ok(None);
    };
    let child = store::children::by_request(change, &request_id)?;
    Ok(child
        .filter(|child| !child.state.is_final())
        .map(|_| (request_id, uid)))
}

fn complete(
    change: &mut Change<'_>,
    completion: &Completion,
) -> Result<Outcome<Option<ChildRecord>>, ControllerError> {
    check(completion)?;
    let Some(child) = store::children::by_request(change, &completion.request_id)? else {
        return Ok(Outcome::Refused(None));
    };
    if child.reserved_run_id.as_ref() != Some(&completion.run_id) {
        return Err(refused(
            completion,
            format!("{} is not its run", completion.run_id),
        ));
    }
    if child.state == completion.state {
        return Ok(Outcome::Adopted(Some(child)));
    }
    if child.state.is_final() {
        return Err(refused(
            completion,
            format!(
                "it is {} for ever, and not {}",
                child.state, completion.state
            ),
        ));
    }
    let run = store::children::run(change, &completion.run_id)?.map(|run| run.key);
    store::children::set_state(
        change,
        &completion.request_id,
        completion.state,
        run,
        completion.error.as_deref(),
    )?;
    store::queue::enqueue(change, change.now())?;
    change.record(facts(&json!({
        "requestId": completion.request_id, "state": completion.state, "runId": completion.run_id,
    }))?);
    Ok(Outcome::Accepted(store::children::by_request(
        change,
        &completion.request_id,
    )?))
}

/// The name under which a wish of a child is known to the workflows domain, so that a repeat meets the first.
fn wish_key(claim: &PassClaim, key: &str) -> Result<String, ControllerError> {
    if key.trim().is_empty() {
        return Err(Invalid::Name {
            what: "request key",
            rule: "not blank",
        }
        .into());
    }
    Ok(format!("resourceManager:{}:{key}", claim.uid()))
}

/// The run of a child of the claimed resource. The claim is renewed with it, as by each message of a pass.
pub(crate) fn run_of(
    db: &Database,
    claim: &PassClaim,
    child: &RequestKey,
) -> Result<RunId, ControllerError> {
    renew(db, claim)?;
    let children = views::children(&db.snapshot()?, claim.uid())?;
    let found = children
        .into_iter()
        .find(|record| record.request_key == *child);
    found
        .and_then(|record| record.run_id)
        .ok_or_else(|| ControllerError::NoChild(child.to_string()))
}

fn owner(claim: &PassClaim) -> Actor {
    Actor::new(ActorKind::Controller, claim.uid().as_str())
}

/// Changes the settings of a child's run by an RFC 6902 patch, once for each `key`.
///
/// # Errors
///
/// [`ControllerError::NoChild`], [`StateError::ClaimLost`]; those of [`holdpoint_workflows::commands::change_settings`].
pub fn change_settings(
    db: &Database,
    claim: &PassClaim,
    child: &RequestKey,
    definition: &Definition,
    patch: Value,
    key: &str,
) -> Result<Receipt<SettingsChanged>, ControllerError> {
    let request = wish_key(claim, key)?;
    let wish = SettingsChange::new(&run_of(db, claim, child)?, patch)
        .request(request)
        .from_source("resourceManager")
        .by(owner(claim));
    Ok(holdpoint_workflows::commands::change_settings(
        db, definition, &wish,
    )?)
}

/// Queues a prompt for the session that a child's run belongs to, once for each `key`.
///
/// # Errors
///
/// As [`change_settings`]; a run without a session takes none.
pub fn queue_follow_up(
    db: &Database,
    claim: &PassClaim,
    child: &RequestKey,
    prompt: &str,
    key: &str,
) -> Result<Receipt<QueuedFollowUp>, ControllerError> {
    let request = wish_key(claim, key)?;
    let wish = QueueFollowUp::new(&run_of(db, claim, child)?, prompt)
        .key(request)
        .by(owner(claim), "resourceManager");
    Ok(holdpoint_workflows::commands::queue_follow_up(db, &wish)?)
}

/// Takes a prompt back that this resource queued and that its session was not shown yet.
///
/// # Errors
///
/// As [`queue_follow_up`].
pub fn remove_follow_up(
    db: &Database,
    claim: &PassClaim,
    child: &RequestKey,
    follow_up: &str,
) -> Result<Receipt<()>, ControllerError> {
    run_of(db, claim, child)?;
    let wish = RemoveFollowUp::of(follow_up).by(owner(claim), "resourceManager");
    Ok(holdpoint_workflows::commands::remove_follow_up(db, &wish)?)
}
