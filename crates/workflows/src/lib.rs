//! Durable workflows: definitions, engine, runs, queue and attempts.
//!
//! A [`Definition`](definition::Definition) is a graph of nodes and routes. It is built in Rust by
//! [`Workflow`](definition::Workflow) or read from a workflow file by [`mod@file`]; either way it has
//! passed every check of `definition::validate` and can be shared between threads. [`routing`]
//! says, from committed facts only, where a run goes next.
//!
//! # Rooms of the pure half
//!
//! - [`id`]: the forms of run, node and attempt ids.
//! - [`definition`]: nodes, routes, the typed builder, validation, snapshot and digest.
//! - [`routing`]: what follows a finished node. Pure.
//! - [`shell`]: runs one command of a shell action in its own process group.
//! - [`mod@file`]: workflow files, their positions, expressions and JSON Schema.
//!
//! None of these knows the database: they take and give values.

pub mod id;

pub mod definition;
pub mod file;
pub mod routing;
pub mod shell;

pub mod model;
pub mod operations;
mod store;

pub mod commands;
pub mod views;

mod registry;

mod engine;
mod error;
mod scheduler;
mod verify;
mod workflows;

use holdpoint_state::Domain;

pub use error::WorkflowError;
pub use id::{AttemptId, NodeId, RunId};
pub use registry::{Registry, SourceResolver, Unresolved, differences};
pub use scheduler::{Admission, Scheduler, SchedulerOptions};
pub use workflows::Workflows;

/// The workflows domain, to be composed after [`holdpoint_state::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &["run"],
    operations: operations::ALL,
    invariants: verify::INVARIANTS,
    ..Domain::named("workflows")
};
