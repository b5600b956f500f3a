//! Channels carry human decisions to people and their answers back: a Telegram bot today, and the local terminal always.
//!
//! Nothing is ever sent twice blindly: each delivery and each settlement is an external effect with numbered attempts, each part is
//! recorded as the provider confirms it, and what nobody can know waits for a person. Nothing is accepted from the wrong hand: an
//! answer needs an allowed person in an allowed chat, about a decision that is shown there, relayed by the one adapter process that
//! speaks for the profile now.
//!
//! ```
//! use holdpoint_channels::identity::{ChannelId, Purpose, attempt_id};
//!
//! let channel = ChannelId::telegram("ops")?;
//! assert_eq!(channel.as_str(), "telegram:ops");
//! assert_eq!(Purpose::Delivery.effect_type(), "channel.delivery");
//! // A repeat meets its earlier self: names are derived from what they name.
//! assert_eq!(attempt_id(&"effect-1".into(), 1), attempt_id(&"effect-1".into(), 1));
//! # Ok::<(), holdpoint_channels::ChannelError>(())
//! ```
//!
//! # Rooms
//!
//! - [`config`]: the private configuration. Nothing of it enters the database.
//! - [`identity`]: names that a repeat finds again.
//! - [`protocol`]: what host and adapter child say to each other.
//! - [`model`]: the records, and what commands come to.
//! - `operations`: every transition, as data; other crates call the functions of [`commands`].
//! - [`commands`]: the public verbs. Each checks its input, builds a command and calls the store.
//! - `store`: the only room that writes, on this domain's tables only.
//! - [`host`]: supervised adapter processes.
//! - [`views`]: the only room that reads for people; it never writes.
//! - `verify`: the invariants.
//!
//! `docs/CHANNELS.md` has the rules, and where they differ from the reference.

pub mod config;
pub mod identity;
pub mod model;
mod operations;
pub mod protocol;
mod store;

pub mod commands;
pub mod views;

pub mod dev_server;
pub mod host;
pub mod telegram;

mod error;
mod verify;

use holdpoint_state::Domain;
use holdpoint_state::schema::{EffectType, Reach};

pub use error::ChannelError;
pub use identity::ChannelId;

/// The channels domain, to be composed after [`holdpoint_state::DOMAIN`], [`holdpoint_workflows::DOMAIN`] and
/// [`holdpoint_decisions::DOMAIN`].
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema.sql"),
    resource_types: &[
        identity::RESOURCE_TYPE,
        identity::HOST_RESOURCE_TYPE,
        identity::BOT_RESOURCE_TYPE,
    ],
    operations: operations::ALL,
    effect_types: &[
        EffectType {
            name: identity::Purpose::Delivery.effect_type(),
            summary: "Shows a request to every allowed chat of a profile.",
            reach: Reach::External,
        },
        EffectType {
            name: identity::Purpose::Settlement.effect_type(),
            summary: "Takes the buttons off what was shown, once the decision has ended.",
            reach: Reach::External,
        },
    ],
    invariants: verify::INVARIANTS,
    retention: store::retention::RETENTION,
    ..Domain::named("channels")
};
