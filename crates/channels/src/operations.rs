//! Every transition of the domain, as data: who may, with which lease, from where to where. The operations page prints it.
//!
//! No command holds the lease of a channel: a host acts under its own (`Command::under`), which is that of the resource
//! `channel_host`. Not here: what a transition does to rows (`store`), and what else must hold (`commands`).

use holdpoint_state::{ActorKind, LeaseRule, Operation};

use crate::identity::{BOT_RESOURCE_TYPE, HOST_RESOURCE_TYPE, RESOURCE_TYPE};

/// Makes a channel.
pub(crate) const CREATE: Operation = Operation {
    name: "channel.create",
    event: "channel.created",
    resource: RESOURCE_TYPE,
    summary: "Makes the channel of a profile on its first start; a repeat adopts it.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Begins an attempt, before its order is sent.
pub(crate) const BEGIN: Operation = Operation {
    name: "channel.begin",
    event: "channel.attempt_begun",
    resource: RESOURCE_TYPE,
    summary: "Begins the next attempt of a delivery or settlement, before the adapter gets the order.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Says that what was in flight can't be known.
pub(crate) const DOUBT: Operation = Operation {
    name: "channel.doubt",
    event: "channel.attempt_doubted",
    resource: RESOURCE_TYPE,
    summary: "Says that an attempt in flight may have been done: its adapter or its host ended without a report.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// An adapter that has read on.
pub(crate) const READY: Operation = Operation {
    name: "channel.ready",
    event: "channel.ready",
    resource: RESOURCE_TYPE,
    summary: "An adapter has read on, or the provider wants a pause. Without news nothing is written.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A part was confirmed.
pub(crate) const PART: Operation = Operation {
    name: "channel.part",
    event: "channel.part",
    resource: RESOURCE_TYPE,
    summary: "An adapter reports a part as the provider confirms it.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A delivery ended.
pub(crate) const PRESENT: Operation = Operation {
    name: "channel.present",
    event: "channel.present",
    resource: RESOURCE_TYPE,
    summary: "An adapter reports how a delivery ended.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A person answered.
pub(crate) const ANSWER: Operation = Operation {
    name: "channel.answer",
    event: "channel.answer",
    resource: RESOURCE_TYPE,
    summary: "An adapter reports an answer: cursor, submission and what follows from it are one transaction.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A settlement ended.
pub(crate) const SETTLE: Operation = Operation {
    name: "channel.settle",
    event: "channel.settle",
    resource: RESOURCE_TYPE,
    summary: "An adapter reports how a settlement ended.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// An adapter ends.
pub(crate) const EXITING: Operation = Operation {
    name: "channel.exiting",
    event: "channel.exiting",
    resource: RESOURCE_TYPE,
    summary: "An adapter ends by itself and has read on. Without news nothing is written.",
    actors: &[ActorKind::Channel],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// Makes the resource whose lease the hosts of a profile hold.
pub(crate) const HOST_CREATE: Operation = Operation {
    name: "channel_host.create",
    event: "channel_host.created",
    resource: HOST_RESOURCE_TYPE,
    summary: "Makes the resource whose lease the hosts of a profile hold, one after the other; a repeat adopts it.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A host takes a profile.
pub(crate) const HOST_START: Operation = Operation {
    name: "channel_host.start",
    event: "channel_host.started",
    resource: HOST_RESOURCE_TYPE,
    summary: "A host takes a profile; the generation of its lease is the host's epoch. What an earlier host left in flight is in doubt.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A host gives a profile back.
pub(crate) const HOST_STOP: Operation = Operation {
    name: "channel_host.stop",
    event: "channel_host.stopped",
    resource: HOST_RESOURCE_TYPE,
    summary: "A host gives a profile back, once its adapter has ended.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::RequiredUnrenewed,
    from: &[],
    to: &[],
};

/// Makes the resource whose lease the one reader of a bot holds.
pub(crate) const BOT_CREATE: Operation = Operation {
    name: "channel_bot.create",
    event: "channel_bot.created",
    resource: BOT_RESOURCE_TYPE,
    summary: "Makes the resource whose lease the one reader of a bot's updates holds; a repeat adopts it.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A host takes a bot for one of its profiles.
pub(crate) const BOT_HOLD: Operation = Operation {
    name: "channel_bot.hold",
    event: "channel_bot.held",
    resource: BOT_RESOURCE_TYPE,
    summary: "A host takes a bot for one of its profiles: no other profile reads or sends with that bot meanwhile.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// A host gives a bot back.
pub(crate) const BOT_RELEASE: Operation = Operation {
    name: "channel_bot.release",
    event: "channel_bot.released",
    resource: BOT_RESOURCE_TYPE,
    summary: "A host gives a bot back, once the adapter that spoke for it has ended.",
    actors: &[ActorKind::Host],
    lease: LeaseRule::RequiredUnrenewed,
    from: &[],
    to: &[],
};

/// A person resolves what nobody else can know.
pub(crate) const RECOVER: Operation = Operation {
    name: "channel_host.recover",
    event: "channel_host.recovered",
    resource: HOST_RESOURCE_TYPE,
    summary: "A person says that an ambiguous delivery or settlement happened, or takes the risk of a repeat.",
    actors: &[ActorKind::Human, ActorKind::Control],
    lease: LeaseRule::NotRequired,
    from: &[],
    to: &[],
};

/// All of them.
pub(crate) const ALL: &[&Operation] = &[
    &CREATE,
    &BEGIN,
    &DOUBT,
    &READY,
    &PART,
    &PRESENT,
    &ANSWER,
    &SETTLE,
    &EXITING,
    &HOST_CREATE,
    &HOST_START,
    &HOST_STOP,
    &BOT_CREATE,
    &BOT_HOLD,
    &BOT_RELEASE,
    &RECOVER,
];
