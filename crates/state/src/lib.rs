//! Durable state in one SQLite file: blobs, resources, leases, events, effects and the command kernel.
//!
//! Finding state never grants the right to change it. Every write is a [`Command`]: it names a resource, an [`Operation`], an
//! [`Actor`], the revision it expects and, where ownership is required, the lease it holds. One transaction checks all five
//! again, makes the change, moves the revision on by one, appends one event and records the follow-up effects. Either all of that
//! is durable, or none of it happened.
//!
//! This crate knows no workflow, no agent and no channel. Domains stand above it and bring their tables and transitions as a
//! [`Domain`]; a program composes the domains it wants into a [`Schema`] and opens a [`Database`] with it.

pub mod clock;
#[macro_use]
pub mod id;
pub mod error;
pub mod json;
pub mod sql;

pub mod command;
pub mod database;
pub mod effects;
pub mod maintenance;
pub mod records;
pub mod schema;
#[cfg(feature = "testing")]
pub mod testing;

pub use command::{
    Actor, ActorKind, Change, Command, Disposition, LeaseRule, Operation, Outcome, Receipt,
};
pub use database::{Database, EventFollower, Options, Snapshot, Ticket};
pub use error::{ClaimLostReason, Refusal, StateError};
pub use id::{Digest, EffectId, Resource};
pub use records::DOMAIN;
pub use records::blobs::{BlobPart, Payload};
pub use records::effects::{
    EffectAttempt, EffectIdentity, EffectStart, EffectState, NewEffect, OwnerScope, Settlement,
};
pub use records::events::Event;
pub use records::leases::{Claim, LeaseView, Owner, OwnerKind};
pub use records::resources::{ResourceKey, ResourceView};
pub use schema::{Domain, Identity, Schema};
