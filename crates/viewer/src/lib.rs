//! Read models of runs: what people see of them, live and in replay.
//!
//! A view is a document of one instant; it costs what it holds, however long the run is. What makes that so (presentation revisions,
//! retained patches, visits, checkpoints) is written by a projector inside the transaction of each change, so that a follower never
//! sees a state which is not durable.
//!
//! # Rooms
//!
//! - [`text`]: makes untrusted text safe to show; nothing else makes what a screen is given.
//! - [`documents`]: the wire documents of the published client, as types, and the patches between them.
//! - [`views`]: the only room that reads for people; it never writes.
//! - [`replay`]: pure folds: the graph through a step, the conversation through an event.
//! - `projector`: what a touch makes of the read model; `render`: rows as documents.
//! - `store`: the only room that writes, on this domain's tables only. `verify`: the invariants.
//!
//! Not here: changing anything about a run, sockets, screens. The domain has no resource and no operation of its own.

pub mod documents;
pub mod replay;
pub mod text;

pub mod views;

mod error;
mod projector;
mod render;
mod store;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::Projector;

pub use error::ViewerError;

/// The viewer domain, to be composed after [`holdpoint_workflows::DOMAIN`] and whatever else changes runs.
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    invariants: verify::INVARIANTS,
    retention: store::RETENTION,
    projectors: &[Projector {
        name: "read models of runs",
        project: projector::project,
    }],
    ..Domain::named("viewer")
};
