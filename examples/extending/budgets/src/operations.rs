//! Every transition of the domain, as data: who may, with which lease, from where to where. The operations page prints it.
//!
//! Not here: what a transition does to rows (`store`), and what else must hold (`commands`).

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use crate::model::RESOURCE_TYPE;

use ActorKind::{Control, Controller, Host, Human, Session, System};

/// Opens one budget.
pub(crate) const OPEN: Operation = Operation {
    name: "budget.open",
    event: "budget.opened",
    resource: RESOURCE_TYPE,
    summary: "Opens one budget; a repeat with the same limit adopts it.",
    actors: &[Human, Control, System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Spends from a budget. Whoever works may; only people and their tools open and resize.
pub(crate) const SPEND: Operation = Operation {
    name: "budget.spend",
    event: "budget.spent",
    resource: RESOURCE_TYPE,
    summary: "Spends units of the present window for one call; a refusal is recorded too.",
    actors: &[Host, Session, Controller],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Sets another limit.
pub(crate) const RESIZE: Operation = Operation {
    name: "budget.resize",
    event: "budget.resized",
    resource: RESOURCE_TYPE,
    summary: "Sets another number of units, against the revision that the caller read.",
    actors: &[Human, Control],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Puts an attempt of a workflow run in line. Its runner does, in the transaction that parks the attempt.
pub(crate) const WAIT: Operation = Operation {
    name: "budget.wait",
    event: "budget.waited",
    resource: RESOURCE_TYPE,
    summary: "Puts a parked attempt in line for units; the attempt and its place are one transaction.",
    actors: &[Host, System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Serves the line.
pub(crate) const ADMIT: Operation = Operation {
    name: "budget.admit",
    event: "budget.admitted",
    resource: RESOURCE_TYPE,
    summary: "Grants units to the attempts in line, oldest first, and settles their requests in the same transaction.",
    actors: &[Host, Human, Control, System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// All of them.
pub(crate) const ALL: &[&Operation] = &[&OPEN, &SPEND, &RESIZE, &WAIT, &ADMIT];
