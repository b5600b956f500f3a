//! Durable state in one SQLite file: blobs, resources, leases, events, effects and the command kernel.
//!
//! Finding state never grants the right to change it. Every write is a [`Command`]: it names a resource, an [`Operation`], an
//! [`Actor`], the revision it expects and, where ownership is required, the lease it holds. One transaction checks all five
//! again, makes the change, moves the revision on by one, appends one event and records the follow-up effects. Either all of that
//! is durable, or none of it happened.
//!
//! This crate knows no workflow, no agent and no channel. Domains stand above it and bring their tables and transitions as a
//! [`Domain`]; a program composes the domains it wants into a [`Schema`] and opens a [`Database`] with it.
//!
//! A whole domain, in one place instead of the rooms that it would have:
//!
//! ```
//! use holdpoint_state::sql::named_params;
//! use holdpoint_state::{
//!     Actor, ActorKind, Change, Command, Database, Domain, Identity, LeaseRule, Operation, Outcome, Resource, Schema, StateError,
//!     expect_one,
//! };
//!
//! const PLACE: Operation = Operation {
//!     name: "order.place",
//!     event: "order.placed",
//!     resource: "order",
//!     summary: "A customer places an order.",
//!     actors: &[ActorKind::Human],
//!     lease: LeaseRule::NotRequired,
//!     from: &[],
//!     to: &[],
//! };
//! const PAY: Operation = Operation {
//!     name: "order.pay",
//!     event: "order.paid",
//!     summary: "A customer pays an open order, once.",
//!     from: &["open"],
//!     to: &["paid"],
//!     ..PLACE
//! };
//! const ORDERS: Domain = Domain {
//!     ddl: "CREATE TABLE orders (
//!         resource_key INTEGER PRIMARY KEY REFERENCES resources (resource_key),
//!         status TEXT NOT NULL CHECK (status = 'open' OR status = 'paid')
//!     ) STRICT;",
//!     resource_types: &["order"],
//!     operations: &[&PLACE, &PAY],
//!     ..Domain::named("orders")
//! };
//!
//! /// Store functions are the only ones that write, and need the right to: a `Change`.
//! fn insert(change: &mut Change<'_>) -> Result<(), StateError> {
//!     let key = change.resource_key()?;
//!     let sql = "INSERT INTO orders (resource_key, status) VALUES (:key, 'open')";
//!     let written = change.sql().prepare_cached(sql)?.execute(named_params! { ":key": key })?;
//!     expect_one(written, "orders", change.resource())
//! }
//!
//! fn mark_paid(change: &mut Change<'_>) -> Result<(), StateError> {
//!     let key = change.resource_key()?;
//!     let sql = "UPDATE orders SET status = 'paid' WHERE resource_key = :key AND status = 'open'";
//!     let written = change.sql().prepare_cached(sql)?.execute(named_params! { ":key": key })?;
//!     expect_one(written, "orders", change.resource())
//! }
//!
//! # let home = tempfile::tempdir()?;
//! # let path = home.path().join("orders.sqlite");
//! let identity = Identity { application_id: 0x4f52_4452, user_version: 1, schema_name: "orders", old_state: &[] };
//! let schema = Schema::compose(identity, [holdpoint_state::DOMAIN, ORDERS])?;
//! let db = Database::open(&path, &schema)?;
//! let order = Resource::new("order", "2026-1");
//!
//! let place = Command::new(&PLACE, order.clone()).by(Actor::human("ada")).creating();
//! let placed = db.commit(place, |change| {
//!     insert(change)?;
//!     Ok::<_, StateError>(Outcome::Accepted(()))
//! })?;
//!
//! // Whoever read revision 1 may pay; a second payment from the same reading is refused, and leaves nothing.
//! let pay = || Command::new(&PAY, order.clone()).by(Actor::human("ada")).expecting(placed.revision);
//! let body = |change: &mut Change<'_>| {
//!     change.transition("open", "paid")?;
//!     mark_paid(change)?;
//!     Ok::<_, StateError>(Outcome::Accepted(()))
//! };
//! assert_eq!(db.commit(pay(), body)?.revision, 2);
//! assert!(matches!(db.commit(pay(), body), Err(StateError::StaleRevision { expected: 1, actual: 2, .. })));
//!
//! let events = db.snapshot()?.events_of(&order, 0, 10)?;
//! assert_eq!(events.iter().map(|event| event.event_type.as_str()).collect::<Vec<_>>(), ["order.placed", "order.paid"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
    Actor, ActorKind, Change, Command, Disposition, LeaseRule, Operation, Outcome, Reads, Receipt,
    Touched,
};
pub use database::{Database, EventFollower, Options, OwnerPresence, Snapshot, Ticket, Tickets};
pub use error::{ClaimLostReason, Refusal, StateError};
pub use id::{Digest, EffectId, Resource};
pub use records::DOMAIN;
pub use records::blobs::{BlobPart, Content, Payload};
pub use records::effects::{
    EffectAttempt, EffectIdentity, EffectStart, EffectState, NewEffect, OwnerScope, Settlement,
};
pub use records::events::Event;
pub use records::leases::{Claim, LeaseView, Owner, OwnerKind};
pub use records::resources::{ResourceKey, ResourceView, expect_one};
pub use schema::{Domain, Identity, Schema};

/// The front page's program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
