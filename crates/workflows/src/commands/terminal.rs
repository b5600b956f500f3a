//! The one terminal fan-out: nothing stays open under a run that is over, however it ended.

use holdpoint_state::{Change, Content, Operation, Payload, StateError};
use serde_json::{Value, json};

use super::Touches;
use crate::model::{RunStatus, TerminalStatus, cut};
use crate::operations;
use crate::store;

/// How a run ends.
pub(super) struct Ending<'a> {
    pub(super) status: TerminalStatus,
    /// The final output.
    pub(super) output: Option<&'a Content>,
    /// Why it did not complete.
    pub(super) error: Option<&'a str>,
    /// The queue's code; without one it is the status of a run that failed.
    pub(super) code: Option<&'a str>,
    /// More for the event.
    pub(super) facts: Value,
}

impl<'a> Ending<'a> {
    pub(super) fn completed(output: Option<&'a Content>) -> Self {
        Self {
            status: TerminalStatus::Completed,
            output,
            error: None,
            code: None,
            facts: json!({}),
        }
    }

    pub(super) fn without_output(status: TerminalStatus, error: &'a str) -> Self {
        Self {
            status,
            output: None,
            error: Some(error),
            code: None,
            facts: json!({}),
        }
    }
}

/// Ends the run of this change: run, attempts, requests, submissions, effects, queue row and lease, and what its origin session has
/// open: clock, turns, messages. One event.
pub(super) fn end(
    change: &mut Change<'_>,
    touches: &mut Touches,
    from: RunStatus,
    ending: &Ending<'_>,
) -> Result<(), StateError> {
    let status = ending.status;
    let operation: &'static Operation = match status {
        TerminalStatus::Completed => &operations::COMPLETE,
        TerminalStatus::Failed => &operations::FAIL,
        TerminalStatus::TimedOut => &operations::TIME_OUT,
        TerminalStatus::Cancelled => &operations::CANCEL,
    };
    let mut payload = json!({
        "queue": status.queue(),
        "finalOutputStored": ending.output.is_some(),
        "errorStored": ending.error.is_some(),
    });
    if let (Some(payload), Some(facts)) = (payload.as_object_mut(), ending.facts.as_object()) {
        payload.extend(facts.clone());
    }
    touches.add(
        change,
        operation,
        Some((from.as_str(), status.run().as_str())),
        Some(Payload::json(&payload)?),
    )?;
    // An effect that is still to do is given up, also under a run that completed: a time limit may have left one behind.
    change.cancel_effects(ending.error.unwrap_or("the run is over"))?;
    let error = match ending.error {
        Some(text) => Some(change.put_blob(&Payload::text(cut(text))?)?),
        None => None,
    };
    if store::messages::owe_terminal(change)? {
        // Before the attempts, which say whose clock it is.
        store::intervals::close_of_run(change)?;
        store::turns::lose_of_run(change)?;
        store::messages::cancel_of_run(change, status != TerminalStatus::Completed)?;
    }
    store::runs::finish(change, status, ending.output, error)?;
    if status != TerminalStatus::Completed {
        store::attempts::close_open(change, status, error)?;
        let receipt = change.put_blob(&Payload::text(format!("the run ended {status}"))?)?;
        store::requests::reject_validating(change, Some(receipt))?;
        store::requests::cancel_open(change)?;
        super::follow_ups::cancel_queued(change, &format!("the run ended {status}"))?;
    }
    let code = match status {
        TerminalStatus::Completed => None,
        TerminalStatus::Failed | TerminalStatus::TimedOut | TerminalStatus::Cancelled => {
            Some(ending.code.unwrap_or(status.as_str()))
        }
    };
    store::queue::settle(change, status, code, error)?;
    change.release()?;
    Ok(())
}
