//! Whether a move follows from the last step: the routes of the definition decide, whatever a runner proposes.
//!
//! Reads only. Not here: making the move.

use holdpoint_state::{Change, Content};

use super::{FinishedAttempt, Move, read_json, refuse};
use crate::definition::Definition;
use crate::error::WorkflowError;
use crate::model::TerminalStatus;
use crate::routing::{self, Next, NodeOutcome, NodeResult};
use crate::store;

/// Whether the move follows from the last step. Returns the last output when the last step is a stored one.
pub(super) fn check_route(
    change: &mut Change<'_>,
    definition: &Definition,
    (finished, is_first): (Option<&FinishedAttempt>, bool),
    next: &Move,
) -> Result<Option<Content>, WorkflowError> {
    if matches!(next, Move::End(TerminalStatus::Failed, _)) {
        // A runner may fail a run at any time: a limit, a title, a switch without a case.
        return Ok(None);
    }
    let (stored, output) = match finished {
        Some(_) => (None, None),
        None if is_first => (None, None),
        None => stored_result(change)?,
    };
    let last = finished.map(FinishedAttempt::result).or(stored.as_ref());
    let problem = match (last, next) {
        (None, Move::Start(attempt)) if attempt.node_id == *definition.start_at() => None,
        (None, _) => {
            Some("nothing was executed yet, so that only the start node can follow".to_owned())
        }
        (Some(last), _) => match (routing::next(definition, last), next) {
            (Next::Node(node), Move::Start(attempt)) if node == attempt.node_id => None,
            (Next::Complete(_), Move::Complete)
            | (Next::TimedOut(_), Move::End(TerminalStatus::TimedOut, _))
            | (Next::Cancelled, Move::End(TerminalStatus::Cancelled, _)) => None,
            (route, _) => Some(format!("after {:?} the route is {route:?}", last.node_id)),
        },
    };
    match problem {
        None => Ok(output),
        Some(problem) => Err(refuse(change, problem)),
    }
}

/// The result of the last stored step.
fn stored_result(
    change: &mut Change<'_>,
) -> Result<(Option<NodeResult>, Option<Content>), WorkflowError> {
    let Some(step) = store::attempts::last_step(change)? else {
        return Ok((None, None));
    };
    let output = match &step.output {
        Some(Content::Inline(payload)) => Some(read_json(payload.as_bytes())?),
        Some(Content::Blob(hash)) => Some(read_json(&store::attempts::content(change, *hash)?)?),
        None => None,
    };
    let row = step.attempt;
    let error = match step.error {
        Some(hash) => {
            Some(String::from_utf8_lossy(&store::attempts::content(change, hash)?).into_owned())
        }
        None => None,
    };
    let receipt = match step.receipt.filter(|_| row.node_type == "checkpoint") {
        Some(hash) => Some(read_json(&store::attempts::content(change, hash)?)?),
        None => None,
    };
    let finished_at = step.finished_at.unwrap_or(row.started_at);
    let result = NodeResult {
        attempt_id: row.attempt_id,
        node_id: row.node_id,
        node_type: row.node_type,
        outcome: row.status.outcome().unwrap_or(NodeOutcome::Cancelled),
        started_at: row.started_at.0,
        finished_at: finished_at.0,
        duration_ms: finished_at.since(row.started_at),
        output,
        error,
        receipt,
    };
    Ok((Some(result), step.output))
}
