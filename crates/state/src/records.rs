//! The records that every domain shares: one room for each, and the only rooms that write their tables.
//!
//! Not here: who may change what (`command`), and when (`database::writer`).

pub mod blobs;
pub mod effects;
pub mod events;
pub mod leases;
pub(crate) mod projects;
pub mod resources;

use crate::schema::{Domain, Invariant};

pub(crate) const DOMAIN_NAME: &str = "state";

/// The shared records as a domain: every schema begins with it.
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema/state.sql"),
    resource_types: &["effect"],
    operations: &[
        &leases::CLAIM,
        &leases::RENEW,
        &leases::RELEASE,
        &effects::RESERVE,
    ],
    invariants: INVARIANTS,
    ..Domain::named(DOMAIN_NAME)
};

const INVARIANTS: &[Invariant] = &[];
