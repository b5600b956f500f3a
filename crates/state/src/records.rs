//! The records that every domain shares: one room for each, and the only rooms that write their tables.
//!
//! Not here: who may change what (`command`), and when (`database::writer`).

pub mod blobs;
pub mod effects;
pub mod events;
mod invariants;
pub mod leases;
pub(crate) mod projects;
pub mod resources;
pub(crate) mod retention;
pub(crate) mod schema_meta;

use crate::command::Operation;
use crate::schema::Domain;

pub(crate) const DOMAIN_NAME: &str = "state";

/// The shared records as a domain: every schema begins with it.
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema/state.sql"),
    resource_types: &["effect"],
    operations: OPERATIONS,
    invariants: invariants::INVARIANTS,
    ..Domain::named(DOMAIN_NAME)
};

const OPERATIONS: &[&Operation] = &[
    &leases::CLAIM,
    &leases::RENEW,
    &leases::RELEASE,
    &effects::RESERVE,
    &effects::BEGIN,
    &effects::RETRY,
    &effects::APPLY,
    &effects::REJECT,
    &effects::GIVE_UP,
    &effects::DOUBT,
    &effects::RETURN,
    &effects::CANCEL,
    &effects::RECOVER,
    &effects::CONFIRM,
    &effects::RESOLVE_RETRY,
    &effects::RESOLVE_REJECT,
];
