//! Every transition of the domain, as data: who may, with which lease, from where to where. The operations page prints it.
//!
//! A policy acts inside a change of its run that holds the run's lease: the kernel refuses it anywhere else. Not here: what a transition
//! does to rows (`store`), and what else must hold (`commands`, `model::judge`).
#![warn(clippy::wildcard_enum_match_arm)]

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use crate::model::RESOURCE_TYPE;

/// A decision is asked (T1).
pub(crate) const REQUEST: Operation = Operation {
    name: "decision.request",
    event: "decision.requested",
    resource: RESOURCE_TYPE,
    summary: "Makes a decision, in the transaction that parks the attempt which waits for it; a repeat adopts it.",
    actors: &[ActorKind::Host, ActorKind::System],
    lease: LeaseRule::NotRequired,
    from: &["none"],
    to: &["open"],
};

/// A person answers at the session of the run (T2).
pub(crate) const ANSWER: Operation = Operation {
    name: "decision.answer",
    event: "decision.accepted",
    resource: RESOURCE_TYPE,
    summary: "A person answers at the session of the run, before the deadline. The first answer wins; a refused one is recorded.",
    actors: &[ActorKind::Human],
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["accepted"],
};

/// A person answers through an external channel (T3).
pub(crate) const CHANNEL_ANSWER: Operation = Operation {
    name: "decision.channel_answer",
    event: "decision.accepted",
    resource: RESOURCE_TYPE,
    summary: "A person answers through an external channel, in the transaction that moves the channel's cursor.",
    actors: &[ActorKind::Human],
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["accepted"],
};

/// The declared automatic answer is given (T4).
pub(crate) const TIMEOUT: Operation = Operation {
    name: "decision.timeout",
    event: "decision.accepted",
    resource: RESOURCE_TYPE,
    summary: "Gives the declared automatic answer, from the deadline on, under the lease of the run.",
    actors: &[ActorKind::Policy],
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["accepted"],
};

/// Nobody answered, and there is no automatic answer (T7).
pub(crate) const EXPIRE: Operation = Operation {
    name: "decision.expire",
    event: "decision.cancelled",
    resource: RESOURCE_TYPE,
    summary: "Ends a decision without an automatic answer, from its deadline on, under the lease of the run.",
    actors: &[ActorKind::Policy],
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["cancelled"],
};

/// Somebody with control ends a decision (T5).
pub(crate) const CANCEL: Operation = Operation {
    name: "decision.cancel",
    event: "decision.cancelled",
    resource: RESOURCE_TYPE,
    summary: "Ends a decision without an answer, and its run with it.",
    actors: &[ActorKind::Control],
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["cancelled"],
};

/// The run ends (T6).
pub(crate) const CANCEL_WITH_RUN: Operation = Operation {
    name: "decision.cancel_with_run",
    event: "decision.cancelled",
    resource: RESOURCE_TYPE,
    summary: "Ends the open decision of a run that ends, in the same transaction.",
    actors: ActorKind::ALL,
    lease: LeaseRule::NotRequired,
    from: &["open"],
    to: &["cancelled"],
};

/// The policy came too late (T4, T7).
pub(crate) const NOTE_POLICY: Operation = Operation {
    name: "decision.note_policy",
    event: "decision.policy_noted",
    resource: RESOURCE_TYPE,
    summary: "Notes that a policy lost, or was applied before. It changes no revision and writes no event.",
    actors: &[ActorKind::System],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// All of them.
pub(crate) const ALL: &[&Operation] = &[
    &REQUEST,
    &ANSWER,
    &CHANNEL_ANSWER,
    &TIMEOUT,
    &EXPIRE,
    &CANCEL,
    &CANCEL_WITH_RUN,
    &NOTE_POLICY,
];
