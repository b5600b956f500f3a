//! The contract of the state crate, through its public surface: one module for each promise.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod authorizer;
mod backup;
mod blobs;
mod children;
mod commands;
mod compose;
mod effects;
mod events;
mod gate;
mod invariants;
mod kernel;
mod kernel_schema;
mod leases;
mod open;
mod owners;
mod permits;
mod projects;
mod queue;
mod restore;
mod retention;
mod status;
mod turnstile;
mod verify;
