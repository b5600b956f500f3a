//! The runner's own transitions: an attempt ends, the next one begins, the run ends. One command for what no crash may separate.

mod route;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::effects::{EffectAttempt, EffectStart, NewEffect, Settlement};
use holdpoint_state::{
    Actor, Change, Claim, Command, Content, Database, Outcome, Payload, Receipt,
};
use serde_json::{Value, json};

use self::route::check_route;
use super::Touches;
use super::settings::{self, SettingsBinding};
use super::terminal::{self, Ending};
use super::worker::Said;
use crate::definition::{Compute, Definition, NodeKind, NotificationKind, TimeBudget};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{AttemptStatus, RequestKind, RunStatus, TerminalStatus, cut};
use crate::operations;
use crate::routing::{NodeOutcome, NodeResult};
use crate::store;
use crate::store::attempts::Standing;

/// An attempt that a runner wants to begin.
#[derive(Debug, Clone)]
pub struct NewAttempt {
    /// Its id, never used before.
    pub attempt_id: AttemptId,
    /// The node, which must be the one that the accepted route leads to.
    pub node_id: NodeId,
    /// The number of the visit.
    pub visit: u32,
    /// The time budget, when it is known already.
    pub timeout: Option<TimeBudget>,
    /// The managed effect of an action, which is begun in the same transaction.
    pub effect: Option<NewEffect>,
}

/// A text that the origin session is shown when its attempt ends.
#[derive(Debug, Clone)]
pub struct Notification(Payload);

impl Notification {
    /// A text of a kind.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::State`] when it is too large to store.
    pub fn new(kind: NotificationKind, text: &str) -> Result<Self, WorkflowError> {
        let content = json!({ "kind": kind, "text": text });
        Ok(Self(Payload::json(&content)?))
    }

    pub(crate) fn content(&self) -> &Payload {
        &self.0
    }
}

/// An attempt that ended.
#[derive(Debug, Clone)]
pub struct FinishedAttempt {
    pub(crate) result: NodeResult,
    pub(crate) output: Option<Payload>,
    pub(crate) receipt: Option<Payload>,
    /// What an agent was told.
    pub(crate) prompt: Option<Payload>,
    /// What the origin session is to be shown.
    pub(crate) notification: Option<Notification>,
    pub(crate) effect: Option<(EffectAttempt, Settlement)>,
    /// How often it was asked again because the settings changed. Only for a settings route.
    pub(crate) route: Route,
}

/// What a settings route that ends says of the settings which it read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// They must still be the present ones. So often they were not.
    Compared { retries: u32 },
    /// They never stood still: it ends as a failure that needs no comparison.
    GivenUp,
}

/// How often a settings route is asked again in one attempt.
pub const SETTINGS_ROUTE_RETRIES_MAX: u32 = 16;

impl FinishedAttempt {
    /// An attempt with its result, and the receipt of what it did.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::State`] when the output or the receipt can't be stored: the attempt then failed.
    pub fn new(result: NodeResult, receipt: Option<&Value>) -> Result<Self, WorkflowError> {
        let output = match (&result.output, result.outcome) {
            (Some(output), NodeOutcome::Ok) => Some(Payload::json(output)?),
            (None, NodeOutcome::Ok) => Some(Payload::json(&Value::Null)?),
            (_, NodeOutcome::Failed | NodeOutcome::TimedOut | NodeOutcome::Cancelled) => None,
        };
        let receipt = receipt.map(Payload::json).transpose()?;
        Ok(Self::prepared(result, output, receipt))
    }

    /// An attempt whose output and receipt were made storable already.
    pub(crate) fn prepared(
        mut result: NodeResult,
        output: Option<Payload>,
        receipt: Option<Payload>,
    ) -> Self {
        if let Some(error) = &mut result.error {
            *error = cut(error);
        }
        Self {
            output,
            receipt,
            prompt: None,
            notification: None,
            effect: None,
            route: Route::Compared { retries: 0 },
            result,
        }
    }

    /// Says how often a settings route was asked again before.
    #[must_use]
    pub(crate) fn routed(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// Shows the origin session a text: the message is made in the transaction that ends the attempt.
    #[must_use]
    pub fn notifying(mut self, notification: Notification) -> Self {
        self.notification = Some(notification);
        self
    }

    /// Keeps what an agent was told. A prompt that is too large to store is left out: its attempt ended all the same.
    #[must_use]
    pub(crate) fn prompted(mut self, prompt: Option<&str>) -> Self {
        self.prompt = prompt.and_then(|prompt| Payload::text(prompt).ok());
        self
    }

    /// Whether it settles what an action did.
    pub(crate) fn has_acted(&self) -> bool {
        self.effect.is_some()
    }

    /// Settles the effect of the attempt in the same transaction.
    #[must_use]
    pub fn settling(mut self, effect: EffectAttempt, settlement: Settlement) -> Self {
        self.effect = Some((effect, settlement));
        self
    }

    /// The result.
    pub fn result(&self) -> &NodeResult {
        &self.result
    }
}

/// What follows.
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each step, and moved; a box would cost more than it saves"
)]
#[derive(Debug, Clone)]
pub enum Move {
    /// The next attempt begins.
    Start(NewAttempt),
    /// The run completes with the output of its last step.
    Complete,
    /// The run ends without an output, for this reason.
    End(TerminalStatus, String),
    /// The runner stops here and gives the run back.
    HandOver,
}

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advanced {
    /// When the new attempt began, if one did.
    pub started_at: Option<UnixMillis>,
    /// Whether its action may act now, when it has one. After `Ambiguous` the run is parked and the claim given back.
    pub effect: Option<EffectStart>,
    /// The settings that the new attempt began with, or that a settings route has to read now.
    pub settings: Option<SettingsBinding>,
    /// Whether nothing ended, since the settings changed after a settings route read them.
    pub unsettled: Option<Unsettled>,
}

/// The settings changed after a settings route read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Unsettled {
    /// The attempt goes on with the present ones.
    Again,
    /// They changed too often: nothing was written, and the attempt can only fail.
    TooOften,
}

impl Advanced {
    /// The run was moved, and no attempt began.
    const NOTHING: Self = Self {
        started_at: None,
        effect: None,
        settings: None,
        unsettled: None,
    };
}

/// Ends the present attempt, if one is given, and makes the next move: one transaction, one event for each transition.
///
/// # Errors
///
/// [`WorkflowError::Transition`] when the proposal does not follow from what is committed; [`WorkflowError::State`] with
/// `ClaimLost` when the run belongs to somebody else now: the runner must stop and write nothing more.
pub fn advance(
    db: &Database,
    claim: &Claim,
    definition: &Definition,
    finished: Option<FinishedAttempt>,
    next: Move,
) -> Result<Receipt<Advanced>, WorkflowError> {
    advance_said(db, claim, definition, (finished, next), None)
}

/// [`advance`] with the message of a worker process that proposes it.
pub(crate) fn advance_said(
    db: &Database,
    claim: &Claim,
    definition: &Definition,
    (finished, next): (Option<FinishedAttempt>, Move),
    said: Option<&Said>,
) -> Result<Receipt<Advanced>, WorkflowError> {
    let operation = match &finished {
        Some(finished) => finish_operation(finished),
        None => &operations::START_ATTEMPT,
    };
    let command = Command::new(operation, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    let (definition, said) = (definition.clone(), said.cloned());
    db.commit(command, move |change| {
        let mut touches = Touches::default();
        let standing = store::attempts::standing(change)?;
        let finished = finished.as_ref();
        let advanced = step(
            change,
            &mut touches,
            &definition,
            standing,
            (finished, &next),
        )?;
        if advanced.unsettled == Some(Unsettled::TooOften) {
            return Ok(Outcome::Refused(advanced));
        }
        if let Some(said) = &said {
            said.save(change, Some(&advanced))?;
        }
        touches.finish(change)?;
        Ok(Outcome::Accepted(advanced))
    })
}

fn finish_operation(finished: &FinishedAttempt) -> &'static holdpoint_state::Operation {
    match finished.result.outcome {
        NodeOutcome::Ok => &operations::FINISH_ATTEMPT,
        NodeOutcome::Failed | NodeOutcome::TimedOut | NodeOutcome::Cancelled => {
            &operations::FAIL_ATTEMPT
        }
    }
}

/// The body of [`advance`], also a part of claiming a run. The run must be `running`.
pub(super) fn step(
    change: &mut Change<'_>,
    touches: &mut Touches,
    definition: &Definition,
    standing: Standing,
    (finished, next): (Option<&FinishedAttempt>, &Move),
) -> Result<Advanced, WorkflowError> {
    let Standing {
        status,
        detail,
        active,
        asks,
        is_first,
    } = standing;
    if status != RunStatus::Running {
        // Only a run that is not executed yet may end in this way without having begun.
        if !(finished.is_none()
            && matches!(next, Move::End(TerminalStatus::Failed, _) | Move::HandOver))
        {
            return Err(refuse(change, format!("it is {status}, not running")));
        }
    }
    let last_output = match (finished, active) {
        (Some(finished), Some(active)) => {
            if let Some(unsettled) =
                compare_settings(change, touches, definition, (&active, finished))?
            {
                return Ok(unsettled);
            }
            let output = finish(change, touches, (&active, asks), finished)?;
            include(change, touches, definition, &finished.result)?;
            output
        }
        (Some(finished), None) => {
            let id = &finished.result.attempt_id;
            return Err(refuse(change, format!("attempt {id} is not going on")));
        }
        (None, Some(active)) if !matches!(next, Move::End(..) | Move::HandOver) => {
            let id = active.attempt_id;
            return Err(refuse(change, format!("attempt {id} is still going on")));
        }
        (None, _) => None,
    };
    match next {
        Move::Start(attempt) => {
            check_route(change, definition, (finished, is_first), next)?;
            let bound = begin(change, touches, definition, attempt, detail.as_deref())?;
            let effect = match &attempt.effect {
                Some(effect) => Some(change.begin_effect(effect)?),
                None => None,
            };
            if let Some(EffectStart::Ambiguous { effect_id }) = &effect {
                super::park::park_ambiguous(change, touches, status, effect_id.as_str())?;
            }
            Ok(Advanced {
                started_at: Some(change.now()),
                effect,
                settings: bound,
                unsettled: None,
            })
        }
        Move::Complete => {
            let last = check_route(change, definition, (finished, is_first), next)?;
            let output = match finished {
                Some(_) => last_output,
                None => last,
            };
            terminal::end(change, touches, status, &Ending::completed(output.as_ref()))?;
            Ok(Advanced::NOTHING)
        }
        Move::End(TerminalStatus::Completed, _) => {
            Err(refuse(change, "a run completes by its route only"))
        }
        Move::End(ending, error) => {
            check_route(change, definition, (finished, is_first), next)?;
            terminal::end(
                change,
                touches,
                status,
                &Ending::without_output(*ending, error),
            )?;
            Ok(Advanced::NOTHING)
        }
        Move::HandOver => {
            super::park::give_back(change, touches, status)?;
            Ok(Advanced::NOTHING)
        }
    }
}

/// A settings route ends only with the settings that are the present ones. When they are others by now, the attempt goes on with
/// those instead of ending, so that no step was ever routed by settings which an accepted change had replaced.
fn compare_settings(
    change: &mut Change<'_>,
    touches: &mut Touches,
    definition: &Definition,
    (active, finished): (&store::attempts::AttemptRow, &FinishedAttempt),
) -> Result<Option<Advanced>, WorkflowError> {
    let is_route = definition.node(&active.node_id).is_some_and(|node| {
        matches!(
            node.kind,
            NodeKind::Compute(Compute {
                settings_route: true,
                ..
            })
        )
    });
    let (true, Some((scope, read)), Route::Compared { retries }) =
        (is_route, active.settings, finished.route)
    else {
        return Ok(None);
    };
    // A route whose time is up, or that was cancelled, decided nothing.
    match finished.result.outcome {
        NodeOutcome::Ok | NodeOutcome::Failed => {}
        NodeOutcome::TimedOut | NodeOutcome::Cancelled => return Ok(None),
    }
    let Some(now) = store::settings::scope(change, scope)?.filter(|now| now.change_number != read)
    else {
        return Ok(None);
    };
    let unsettled = |unsettled| Advanced {
        settings: Some((&now).into()),
        unsettled: Some(unsettled),
        ..Advanced::NOTHING
    };
    if SETTINGS_ROUTE_RETRIES_MAX <= retries {
        return Ok(Some(unsettled(Unsettled::TooOften)));
    }
    let payload = Payload::json(&json!({
        "attemptId": active.attempt_id,
        "nodeId": active.node_id,
        "scopeId": now.scope_id,
        "fromChangeNumber": read,
        "changeNumber": now.change_number,
        "retry": retries + 1,
    }))?;
    touches.add(
        change,
        &operations::RETRY_SETTINGS_ROUTE,
        Some(("running", "running")),
        Some(payload),
    )?;
    store::attempts::rebind(change, active.key, &now)?;
    Ok(Some(unsettled(Unsettled::Again)))
}

/// Ends the active attempt and appends it to the history. Gives where its output lies.
fn finish(
    change: &mut Change<'_>,
    touches: &mut Touches,
    (active, asks): (&store::attempts::AttemptRow, bool),
    finished: &FinishedAttempt,
) -> Result<Option<Content>, WorkflowError> {
    let result = &finished.result;
    let same = active.attempt_id == result.attempt_id
        && active.node_id == result.node_id
        && active.node_type == result.node_type
        && active.started_at.0 == result.started_at;
    if !same {
        return Err(refuse(
            change,
            format!(
                "attempt {} of {} is the present one",
                active.attempt_id, active.node_id
            ),
        ));
    }
    if active.status == AttemptStatus::Waiting {
        return Err(refuse(change, "the present attempt waits for an answer"));
    }
    let output = finished
        .output
        .as_ref()
        .map(|output| change.keep(output))
        .transpose()?;
    let accepted = if asks {
        store::requests::accepted_payload(change, active.key)?
    } else {
        None
    };
    // What the decision's own domain wrote, whatever the runner says of it.
    let public = accepted
        .filter(|accepted| accepted.kind == RequestKind::Decision)
        .and_then(|accepted| accepted.receipt);
    match (accepted, result.outcome) {
        (Some(accepted), NodeOutcome::Ok) => {
            // What a domain's answer means is for the node's kind to say, and a candidate is what the author's check made of it.
            let is_judged =
                accepted.kind == RequestKind::External || accepted.kind == RequestKind::Agent;
            if !is_judged && output.as_ref().map(Content::digest) != Some(accepted.payload) {
                return Err(refuse(change, "the output is not the accepted answer"));
            }
            store::requests::consume(change, accepted.request)?;
        }
        (Some(accepted), _) => store::requests::consume(change, accepted.request)?,
        (None, NodeOutcome::Ok) if active.node_type == "checkpoint" => {
            return Err(refuse(
                change,
                "a checkpoint ends by an accepted answer only",
            ));
        }
        (None, _) => {}
    }
    if let Some((effect, settlement)) = &finished.effect {
        change.settle_effect(effect, settlement.clone())?;
    }
    let receipt = match (public, &finished.receipt) {
        (Some(public), _) => Some(public),
        (None, Some(receipt)) => Some(change.put_blob(receipt)?),
        (None, None) => None,
    };
    if let Some(prompt) = &finished.prompt {
        let prompt = change.put_blob(prompt)?;
        store::attempts::set_prompt(change, active.key, prompt)?;
    }
    if let Some(notification) = &finished.notification {
        store::messages::notify(change, &result.attempt_id, notification.content())?;
    }
    let error = match &result.error {
        Some(text) => Some(change.put_blob(&Payload::text(text.as_str())?)?),
        None => None,
    };
    let payload = Payload::json(&json!({
        "attemptId": result.attempt_id,
        "nodeId": result.node_id,
        "outcome": result.outcome,
        "outputStored": output.is_some(),
        "errorStored": error.is_some(),
    }))?;
    touches.add(
        change,
        finish_operation(finished),
        Some(("running", "running")),
        Some(payload),
    )?;
    store::attempts::finish(
        change,
        active.key,
        &store::attempts::Ending {
            status: result.outcome.into(),
            output: output.as_ref(),
            receipt,
            error,
            finished_at: UnixMillis(result.finished_at.max(active.started_at.0)),
        },
    )?;
    store::attempts::append_step(change, active.key)?;
    Ok(output)
}

/// Records that the step leads into an included workflow, or out of it. Entering it makes the scope of its settings.
fn include(
    change: &mut Change<'_>,
    touches: &mut Touches,
    definition: &Definition,
    result: &NodeResult,
) -> Result<(), WorkflowError> {
    let node = &result.node_id;
    if result.outcome != NodeOutcome::Ok || !definition.is_transition(node) {
        return Ok(());
    }
    let exit = node.exit_mount();
    let entry = exit.as_ref().unwrap_or(node);
    let workflow = definition.mounts().get(entry).map(|mount| &mount.workflow);
    // Each completed step at the entry began an invocation; the present one is among them.
    let invocation = store::attempts::completed_at(change, entry)?;
    let mut payload = json!({
        "mountPath": entry,
        "workflowName": workflow,
        "invocation": invocation,
    });
    let output = |member: &str| {
        let output = result.output.as_ref();
        output.and_then(|output| output.get(member))
    };
    let operation = match (&exit, payload.as_object_mut()) {
        (Some(_), Some(members)) => {
            members.insert("exit".to_owned(), json!(output("exit")));
            members.insert("outputStored".to_owned(), true.into());
            &operations::EXIT_INCLUDE
        }
        _ => &operations::ENTER_INCLUDE,
    };
    let payload = Payload::json(&payload)?;
    touches.add(
        change,
        operation,
        Some(("running", "running")),
        Some(payload),
    )?;
    if let (None, Some(document), Some(_)) = (
        &exit,
        output("settings"),
        definition.settings(entry.as_str()),
    ) {
        let invocation = u32::try_from(invocation).unwrap_or(u32::MAX);
        settings::create_scope(change, entry.as_str(), invocation, document)?;
    }
    Ok(())
}

/// Begins an attempt; the route was checked.
fn begin(
    change: &mut Change<'_>,
    touches: &mut Touches,
    definition: &Definition,
    attempt: &NewAttempt,
    detail: Option<&str>,
) -> Result<Option<SettingsBinding>, WorkflowError> {
    let Some(node) = definition.node(&attempt.node_id) else {
        return Err(refuse(
            change,
            format!("node {:?} is not known", attempt.node_id),
        ));
    };
    let timeout_ms = attempt.timeout.map(budget_column);
    let bound = settings::bind(change, definition, attempt.node_id.mount())?;
    let payload = Payload::json(&json!({
        "attemptId": attempt.attempt_id,
        "nodeId": attempt.node_id,
        "nodeType": node.kind.node_type(),
        "visit": attempt.visit,
        "timeoutMs": timeout_ms,
    }))?;
    touches.add(
        change,
        &operations::START_ATTEMPT,
        Some(("running", "running")),
        Some(payload),
    )?;
    let row = store::attempts::NewRow {
        attempt_id: &attempt.attempt_id,
        node_id: &attempt.node_id,
        node_type: node.kind.node_type(),
        timeout_ms,
        settings: bound.as_ref(),
    };
    if !store::attempts::insert(change, &row)? {
        return Err(refuse(
            change,
            format!("attempt id {} was used before", attempt.attempt_id),
        ));
    }
    if node.status_detail.as_deref() != detail {
        store::runs::set_detail(change, node.status_detail.as_deref())?;
    }
    Ok(bound.as_ref().map(SettingsBinding::from))
}

/// How a budget is stored: 0 is unlimited.
pub(super) fn budget_column(budget: TimeBudget) -> f64 {
    match budget {
        TimeBudget::Unlimited => 0.0,
        TimeBudget::Millis(millis) => millis,
    }
}

/// Stored JSON as a value.
pub(crate) fn read_json(bytes: &[u8]) -> Result<Value, WorkflowError> {
    serde_json::from_slice(bytes).map_err(|error| {
        WorkflowError::State(holdpoint_state::StateError::Corrupt {
            what: "a stored value".to_owned(),
            problem: error.to_string(),
        })
    })
}

pub(super) fn refuse(change: &Change<'_>, problem: impl Into<String>) -> WorkflowError {
    WorkflowError::Transition {
        run: change.resource().key().to_owned(),
        problem: problem.into(),
    }
}

/// The run that a claim is for.
pub(crate) fn run_of(claim: &Claim) -> Result<RunId, WorkflowError> {
    RunId::new(claim.resource().key()).map_err(|error| WorkflowError::Input {
        what: "claim",
        problem: error.to_string(),
    })
}
