//! The explicit, audited acceptance of a changed definition by a person who looked at the difference.

use std::collections::BTreeMap;

use holdpoint_state::{Actor, Command, Database, Digest, Outcome, Payload, Receipt};
use serde_json::json;

use super::answer::no_run;
use crate::definition::{Definition, SourceIdentity};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ParkCode, resource};
use crate::operations;
use crate::store;

/// Pins a run that nobody executes to another definition of the same workflow, at the revision that the person saw.
///
/// Every node that the run has visited must still be there with its type; what was accepted stays. The run is then eligible
/// again, or waits for its answer or for the review of an effect as before.
///
/// # Errors
///
/// [`WorkflowError::Rejected`] when the run is over or executed, or when the new definition lacks a node that the run has been
/// at; [`WorkflowError::State`] with `StaleRevision` when it moved on.
pub fn accept_definition(
    db: &Database,
    run: &RunId,
    revision: u64,
    definition: &Definition,
    source: &SourceIdentity,
    actor: Actor,
) -> Result<Receipt<()>, WorkflowError> {
    let sources = super::start::source_rows(definition, source)?;
    let digest = Digest(definition.digest());
    let name = definition.name().to_owned();
    let snapshot = Payload::json(definition.snapshot())?;
    let types: BTreeMap<String, String> = definition
        .nodes()
        .iter()
        .map(|(id, node)| (id.to_string(), node.kind.node_type().to_owned()))
        .collect();
    let command = Command::new(&operations::ACCEPT_DEFINITION, resource(run))
        .by(actor)
        .expecting(revision);
    db.commit(command, move |change| {
        let row = store::runs::run(change)?;
        if row.status.is_terminal() {
            return Err(row.rejected("it is over"));
        }
        let now = change.now();
        if change.lease()?.is_live(now) {
            return Err(row.rejected("a runner executes it; pause it first"));
        }
        if row.workflow_name != name {
            return Err(row.rejected(format!("it is a run of {:?}, not of {name:?}", row.workflow_name)));
        }
        let key = change.resource_key()?;
        if row.definition_digest == digest && store::runs::sources(change, key)? == sources {
            return Ok(Outcome::Adopted(()));
        }
        for (node, node_type) in store::attempts::visited(change)? {
            if types.get(&node) != Some(&node_type) {
                return Err(row.rejected(format!(
                    "it has been at node {node:?} of type {node_type}, which the new definition lacks; cancel it instead"
                )));
            }
        }
        change.record(Payload::json(&json!({ "from": row.definition_digest, "to": digest }))?);
        change.transition(row.status.as_str(), row.status.as_str())?;
        let blob = change.put_blob(&snapshot)?;
        store::runs::insert_definition(change, digest, &name, blob)?;
        store::runs::pin_definition(change, digest)?;
        store::runs::remove_sources(change)?;
        for (mount, kind, reference, revision) in &sources {
            store::runs::insert_source(change, (mount, kind, reference, revision))?;
        }
        if row.park_code() == Some(ParkCode::EffectAmbiguous) {
            // Another definition says nothing about what an act did: it stays parked until the effect is reviewed and the run
            // resumed.
        } else if row.paused || store::requests::pending(change)?.is_some() {
            store::queue::park(change, None, None)?;
        } else {
            store::queue::make_eligible(change)?;
        }
        Ok(Outcome::Accepted(()))
    })
    .map_err(no_run)
}
