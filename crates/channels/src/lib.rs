//! The channels domain. Say here in one sentence what it is for.
//!
//! ```
//! use holdpoint_state::Actor;
//! use holdpoint_state::testing::TestStore;
//! use holdpoint_channels::{DOMAIN, Name, commands, views};
//!
//! let store = TestStore::new([DOMAIN])?;
//! let name = Name::new("first")?;
//! commands::create(store.db(), &name, Actor::human("ann"))?;
//!
//! let channel = views::fetch(&store.db().snapshot()?, &name)?;
//! assert_eq!(channel.map(|channel| channel.revision), Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Rooms
//!
//! - [`model`]: nouns, limits, judgement. Pure.
//! - `operations`: every transition, as data; other crates call the functions of [`commands`].
//! - [`commands`]: the public verbs. Each checks its input, builds a command and calls the store.
//! - `store`: the only room that writes, on this domain's tables only.
//! - [`views`]: the only room that reads for people; it never writes.
//! - `verify`: the invariants.

pub mod config;
pub mod identity;
pub mod model;
mod operations;
pub mod protocol;
mod store;

pub mod commands;
pub mod views;

pub mod dev_server;
pub mod telegram;

mod error;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::{EffectType, Reach};

pub use error::ChannelError;
pub use model::{Channel, Name};

/// The effect type that tells the world of a new channel. Whoever talks to the world brings its handler.
pub const ANNOUNCE: &str = "channel.announce";

/// The channels domain, to be composed after [`holdpoint_state::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &[model::RESOURCE_TYPE],
    operations: operations::ALL,
    effect_types: &[EffectType {
        name: ANNOUNCE,
        summary: "Tells the world of a new channel.",
        reach: Reach::External,
    }],
    invariants: verify::INVARIANTS,
    ..Domain::named("channels")
};
