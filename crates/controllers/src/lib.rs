//! Controllers: a program says what is wanted, and code looks again and again until the world is so.
//!
//! A *managed resource* has a spec, which its callers own, and a status, which its controller owns. Passes of the controller are
//! level-based: each reads what is now, never the event that woke it. A pass has its resource alone, by a lease; what changes meanwhile is
//! never lost, and a pass that is late writes nothing.
//!
//! ```
//! use holdpoint_controllers::commands::{self, Apply, Claiming, Finished, PassEnd};
//! use holdpoint_controllers::model::{ConditionInput, Next, StatusPatch, Target};
//! use holdpoint_controllers::{DOMAIN, views};
//! use holdpoint_state::testing::TestStore;
//! use holdpoint_state::{Owner, OwnerKind};
//! use serde_json::json;
//!
//! let store = TestStore::new([holdpoint_workflows::DOMAIN, DOMAIN])?;
//! let db = store.db();
//! let target = Target::parse("/srv/app", "tree", "docs")?;
//! let applied = commands::apply(db, &Apply::new(&target, json!({ "files": 2 })))?.value;
//!
//! // A host takes it, looks at the world, and says what it found.
//! let host = Owner::new(OwnerKind::Host, "host");
//! let claim = commands::claim(db, &Claiming::new(&applied.uid, &host))?.ok_or("not due")?;
//! let patch = StatusPatch {
//!     conditions: vec![ConditionInput::new("Ready", true, "InPlace")],
//!     ..StatusPatch::default()
//! };
//! assert_eq!(commands::finish(db, &claim, &patch, Next::Settled, PassEnd::default())?, Finished::Settled);
//!
//! let resource = views::resource(&db.snapshot()?, &target)?.ok_or("gone")?;
//! assert_eq!(resource.status.observed_generation, 1);
//! assert!(resource.current_condition("Ready").is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//!
//! - [`model`]: nouns, limits, and the rules of status, results and back-off. Pure.
//! - `operations`: every transition, as data; other crates call the functions of [`commands`].
//! - [`commands`]: the public verbs. Each checks its input, builds a command and calls the store.
//! - `store`: the only room that writes, on this domain's tables only.
//! - [`views`]: the only room that reads for people and hosts; it never writes.
//! - [`Controllers`]: the controllers of a program, their typed verbs, and how a scheduler executes their passes; its page shows one at
//!   work. [`Controller`], [`Pass`], [`Action`], [`ExternalEffect`] and [`finalizer`] are what a program writes.
//! - `runtime`: passes as work of the scheduler; `isolated`: passes in worker processes; `host`: what a pass may commit.
//! - `hooks`: what is done in the transactions of runs and effects; [`duty`]: the background work that a scheduler does.
//! - [`manifest`]: files that say which resources there shall be; [`file_set`]: a controller that works on this machine alone.
//! - `verify`: the invariants.
//!
//! `docs/CONTROLLERS.md` has the rules, and where they differ from the reference.

pub mod model;
mod operations;
mod store;

pub mod commands;
pub mod views;

mod child;
mod controller;
mod external;
pub mod finalizer;
mod pass;

mod controllers;
pub mod duty;
mod host;
mod isolated;
mod runtime;

pub mod file_set;
pub mod manifest;

mod error;
mod hooks;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::Projector;

pub use child::Child;
pub use controller::{Action, Controller, PassError, TIME_LIMIT};
pub use controllers::{Controllers, Managed, ManagedBy};
pub use error::ControllerError;
pub use external::{Acted, EffectCall, ExternalEffect, Observed};
pub use isolated::PassWorker;
pub use model::{ManagedResource, Target, Uid};
pub use pass::Pass;

/// The controllers domain, to be composed after [`holdpoint_state::DOMAIN`] and [`holdpoint_workflows::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &[model::RESOURCE_TYPE],
    operations: operations::ALL,
    invariants: verify::INVARIANTS,
    retention: store::retention::RETENTION,
    projectors: &[
        Projector {
            name: "children of managed resources",
            project: hooks::child_moved,
        },
        Projector {
            name: "effects of managed resources",
            project: hooks::effect_resolved,
        },
    ],
    ..Domain::named("controllers")
};
