//! T1: a decision is asked, in the transaction that parks the attempt which waits for it.

use holdpoint_state::{Change, Command, Outcome, Receipt};
use holdpoint_workflows::definition::Parked;

use crate::error::DecisionError;
use crate::model::{Invalid, Request};
use crate::store::decisions::{self, Documents};
use crate::{operations, views};

/// Makes the decision of an attempt that is being parked, inside the change of its run. The interactive request of the attempt has the
/// decision's id.
///
/// The same request again is adopted, and the instant at which it was made first stays.
///
/// # Errors
///
/// [`DecisionError::OtherRequest`] when the attempt has asked for something else, [`Invalid::OtherAttempt`] when the request belongs to
/// another attempt than the one that is being parked.
pub fn request_in(
    change: &mut Change<'_>,
    request: &Request,
    parked: &Parked,
) -> Result<Receipt<()>, DecisionError> {
    for (field, asked, found) in [
        ("runId", request.run_id(), parked.run_id.as_str()),
        ("nodeId", request.node_id(), parked.node_id.as_str()),
        (
            "attemptId",
            request.attempt_id(),
            parked.attempt_id.as_str(),
        ),
        (
            "decisionId",
            request.decision_id().as_str(),
            parked.request_id.as_str(),
        ),
    ] {
        if asked != found {
            return Err(Invalid::OtherAttempt { field }.into());
        }
    }
    let documents = Documents::of(request)?;
    let command = Command::new(&operations::REQUEST, request.decision_id().resource())
        .by(change.actor().clone())
        .creating();
    change.also(&command, |change| {
        if !change.is_new() {
            let stored = decisions::load(change)?;
            return match stored {
                Some(stored) if stored.request.request_digest() == request.request_digest() => {
                    Ok(Outcome::Adopted(()))
                }
                _ => Err(views::stored::missing(request.decision_id().as_str())),
            };
        }
        let keys = decisions::keys_of_attempt(change, request.run_id(), request.attempt_id())?
            .ok_or(Invalid::OtherAttempt { field: "attemptId" })?;
        if let Some((other, _)) = decisions::of_attempt(change, keys.1)? {
            return Err(DecisionError::OtherRequest {
                attempt: request.attempt_id().to_owned(),
                decision: other.to_string(),
            });
        }
        change.transition("none", "open")?;
        // The event carries the whole request.
        change.record(documents.request.clone());
        decisions::insert(change, request, &documents, keys)?;
        Ok(Outcome::Accepted(()))
    })
}
