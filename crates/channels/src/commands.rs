//! The public verbs. Each checks its input, builds a command and calls the store, in one transaction, and can be sent twice.
//!
//! Only a host calls most of them, under its claim on `channel_host`: without it nothing of a channel can be changed. Not here: SQL
//! (`store`), processes and pipes (`host`), the provider (`telegram`).

mod attempts;
mod hosting;
mod order;
mod recover;
mod relay;
mod reports;

use holdpoint_state::effects::NewEffect;
use holdpoint_state::{Claim, Database, OwnerScope, Payload, StateError};
use serde_json::json;

pub use attempts::doubt;
pub use hosting::{hold_bot, release_bot, start_host, stop_host};
pub use order::{Next, next};
pub use recover::{Recovery, recover};
pub use relay::relay;

use crate::config::Profile;
use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose, effect_basis};
use crate::model::EFFECT_SCHEMA;
use crate::protocol::ChannelRequest;

/// One adapter process as its host knows it: what its messages are checked against.
#[derive(Debug)]
pub struct Session<'a> {
    /// The store.
    pub db: &'a Database,
    /// The host's claim on the profile.
    pub claim: &'a Claim,
    /// The channel.
    pub channel: &'a ChannelId,
    /// The profile, as the host read it.
    pub profile: &'a Profile,
    /// The name of this process.
    pub adapter_epoch: &'a str,
    /// The number of its last message; 0 before the first.
    pub sequence: u64,
}

/// The effect of showing or settling a request in a channel.
fn effect(
    channel: &ChannelId,
    purpose: Purpose,
    request: &ChannelRequest,
) -> Result<NewEffect, StateError> {
    let (decision, digest) = (
        request.decision_id.as_str(),
        request.request_digest.to_string(),
    );
    let payload = Payload::json(&json!({
        "schema": EFFECT_SCHEMA,
        "channelId": channel,
        "profile": channel.profile(),
        "decisionId": decision,
        "purpose": purpose,
        "request": request.document(),
    }))?;
    let basis = effect_basis(channel, decision, purpose, &digest);
    NewEffect::keyed_by_identity(purpose.effect_type(), &basis, OwnerScope::Channel, payload)
}

/// The channel's profile name, for actors and messages.
fn profile_of(channel: &ChannelId) -> Result<&str, ChannelError> {
    channel.profile().ok_or(ChannelError::Name)
}
