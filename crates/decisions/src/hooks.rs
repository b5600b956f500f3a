//! What this domain hangs into the transactions of runs: nothing stays open under a run that is over.

use holdpoint_state::{Change, StateError, Touched};

use crate::commands;
use crate::error::DecisionError;

/// Ends the open decisions of a run in the transaction that ends it (T6).
pub(crate) fn run_ended(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
    if holdpoint_workflows::hooks::RunEnd::of(touched).is_none() {
        return Ok(());
    }
    commands::cancel_in(change)
        .map(|_| ())
        .map_err(|error| match error {
            DecisionError::State(error) => error,
            other => StateError::Corrupt {
                what: "open decision of a run that ends".to_owned(),
                problem: other.to_string(),
            },
        })
}
