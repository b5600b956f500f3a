//! What this domain hangs into the transactions of others: a resource is told of the end and of the wait of its children's runs (K12), and
//! looked at when a person resolved one of its effects.

use holdpoint_state::{Change, StateError, Touched};
use holdpoint_workflows::hooks::{RunEnd, RunParked};
use holdpoint_workflows::model::TerminalStatus;

use crate::commands;
use crate::error::ControllerError;
use crate::model::ChildState;
use crate::store;

/// Tells the resource whose child's run ends or waits, in the transaction in which it does.
pub(crate) fn child_moved(change: &mut Change<'_>, touched: &Touched) -> Result<(), StateError> {
    let told = if let Some(end) = RunEnd::of(touched) {
        let state = match end.status {
            TerminalStatus::Completed => ChildState::Succeeded,
            TerminalStatus::Failed | TerminalStatus::TimedOut | TerminalStatus::Cancelled => {
                ChildState::Failed
            }
        };
        let error =
            (state == ChildState::Failed).then(|| store::children::ended(end.status.as_str()));
        commands::tell(change, &end.run, state, error)
    } else if let Some(parked) = RunParked::of(touched) {
        commands::tell(change, &parked.run, ChildState::Waiting, None)
    } else {
        return Ok(());
    };
    told.map(|_| ()).map_err(|error| match error {
        ControllerError::State(error) => error,
        other => StateError::Corrupt {
            what: "child of a managed resource".to_owned(),
            problem: other.to_string(),
        },
    })
}

/// The operations by which a person says what became of an effect.
const RESOLUTIONS: [&str; 3] = [
    "effect.confirm",
    "effect.resolve_retry",
    "effect.resolve_reject",
];

/// Wakes the resource whose effect a person resolved: what it waited for may be over.
pub(crate) fn effect_resolved(
    change: &mut Change<'_>,
    touched: &Touched,
) -> Result<(), StateError> {
    if !RESOLUTIONS.contains(&touched.operation.name) {
        return Ok(());
    }
    if let Some(source) = store::resources::source_of_effect(change)? {
        store::queue::enqueue_key(change, source, touched.now)?;
    }
    Ok(())
}
