//! Every transition of the domain, as data: who may, with which lease, from where to where. The operations page prints it.
//!
//! Not here: what a transition does to rows (`store`), and what else must hold (`commands`).

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use crate::model::RESOURCE_TYPE;

/// Makes one decision.
pub(crate) const CREATE: Operation = Operation {
    name: "decision.create",
    event: "decision.created",
    resource: RESOURCE_TYPE,
    summary: "Makes one decision; a repeat adopts it.",
    actors: &[ActorKind::Human, ActorKind::Control, ActorKind::System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// All of them.
pub(crate) const ALL: &[&Operation] = &[&CREATE];
