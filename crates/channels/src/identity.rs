//! Names that a repeat finds again: each is derived from what it names (channels reference, section 4). Pure.

use std::fmt;

use holdpoint_state::{Digest, EffectId, Resource};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::ChannelError;
use crate::protocol::is_name;

/// The resource type of channels.
pub const RESOURCE_TYPE: &str = "channel";
/// The resource type whose lease a host holds, one for each profile.
pub const HOST_RESOURCE_TYPE: &str = "channel_host";
/// The resource type whose lease the one reader of a bot's updates holds.
pub const BOT_RESOURCE_TYPE: &str = "channel_bot";
/// The local surface, which is always there.
pub const LOCAL: &str = "pi";
/// The adapter type of Telegram channels, and what their ids begin with.
pub const TELEGRAM: &str = "telegram";

holdpoint_state::text_id! {
    /// Names one channel: `pi`, or `telegram:` and a profile. One spelling everywhere.
    pub struct ChannelId;
}

impl ChannelId {
    /// The channel of a Telegram profile.
    ///
    /// # Errors
    ///
    /// [`ChannelError::Name`] when the profile can't have that name.
    pub fn telegram(profile: &str) -> Result<Self, ChannelError> {
        if is_name(profile) {
            Ok(format!("{TELEGRAM}:{profile}").into())
        } else {
            Err(ChannelError::Name)
        }
    }

    /// The local channel.
    pub fn local() -> Self {
        LOCAL.into()
    }

    /// The profile of an external channel.
    pub fn profile(&self) -> Option<&str> {
        self.as_str()
            .strip_prefix(TELEGRAM)?
            .strip_prefix(':')
            .filter(|profile| is_name(profile))
    }

    /// The resource whose lease the host of this channel holds.
    pub fn host_resource(&self) -> Resource {
        Resource::new(HOST_RESOURCE_TYPE, self.as_str())
    }

    /// The resource, whose id is `channel-` and 40 hex digits.
    pub fn resource(&self) -> Resource {
        Resource::new(RESOURCE_TYPE, self.as_str())
    }
}

/// The resource whose lease the one reader of a Telegram bot's updates holds, whatever its profile is called. The number is the
/// bot's public one, and nothing of its token.
pub fn bot_resource(bot_id: u64) -> Resource {
    Resource::new(BOT_RESOURCE_TYPE, format!("{TELEGRAM}:{bot_id}"))
}

/// What an effect of a channel is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Purpose {
    /// Showing a request to every allowed chat.
    Delivery,
    /// Taking the buttons off what was shown.
    Settlement,
}

impl Purpose {
    /// Both, in the order in which they happen.
    pub const ALL: &'static [Self] = &[Self::Delivery, Self::Settlement];

    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivery => "delivery",
            Self::Settlement => "settlement",
        }
    }

    /// The type of its effects.
    pub const fn effect_type(self) -> &'static str {
        match self {
            Self::Delivery => "channel.delivery",
            Self::Settlement => "channel.settlement",
        }
    }

    /// Reads the stored word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|purpose| purpose.as_str() == text)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// From what the id of an effect is derived; it is its own idempotency key.
pub(crate) fn effect_basis(
    channel: &ChannelId,
    decision_id: &str,
    purpose: Purpose,
    request_digest: &str,
) -> serde_json::Value {
    json!({ "channelId": channel, "decisionId": decision_id, "purpose": purpose, "requestDigest": request_digest })
}

/// The name of attempt `number` of an effect, and of the report about it.
pub fn attempt_id(effect: &EffectId, number: u32) -> String {
    channel_hash(&[effect.as_str(), &number.to_string()])
}

/// The name of the report that a part was confirmed.
pub fn part_id(attempt_id: &str, recipient_index: u32, part_index: u32) -> String {
    channel_hash(&[
        attempt_id,
        "part",
        &recipient_index.to_string(),
        &part_index.to_string(),
    ])
}

/// The name of the report of an answer.
pub fn answer_id(profile: &str, decision_id: &str, event_id: &str) -> String {
    channel_hash(&[profile, decision_id, event_id])
}

/// The name of a `ready` (`kind` is `ready`) or of an `exiting`: the `number`th of that process, at that cursor.
pub fn signal_id(adapter_epoch: &str, kind: &str, number: u64, cursor: u64) -> String {
    channel_hash(&[
        adapter_epoch,
        kind,
        &number.to_string(),
        &cursor.to_string(),
    ])
}

/// The name of a record of what was shown.
pub(crate) fn message_id(basis: &serde_json::Value) -> Result<String, ChannelError> {
    let canonical = holdpoint_state::json::canonical(basis).map_err(|source| {
        holdpoint_state::StateError::Json {
            what: "channel message",
            source,
        }
    })?;
    let digits = Digest::of(&canonical).to_hex();
    Ok(format!("message-{}", digits.get(..40).unwrap_or_default()))
}

/// `channel-` and all 64 hex digits over the parts joined by NUL.
fn channel_hash(parts: &[&str]) -> String {
    format!("channel-{}", Digest::of(parts.join("\0").as_bytes()))
}

#[cfg(test)]
mod tests {
    use holdpoint_state::{NewEffect, OwnerScope, Payload};

    use super::*;

    const DECISION: &str = "decision-04e3310ed6ed2a6bface438826db346753f8ee93";
    const DIGEST: &str = "sha256:eca52995d29f0509833d368a76130002c2e02d9c1fd27e903203a68f1e90c35c";

    #[test]
    fn effects_and_attempts_have_the_ids_of_the_reference() {
        let channel = ChannelId::telegram("ops").unwrap();
        let effect = |purpose: Purpose| {
            let basis = effect_basis(&channel, DECISION, purpose, DIGEST);
            let payload = Payload::json(&json!({})).unwrap();
            let effect = NewEffect::keyed_by_identity(
                purpose.effect_type(),
                &basis,
                OwnerScope::Channel,
                payload,
            )
            .unwrap();
            assert_eq!(effect.key, effect.id(&channel.resource()).as_str());
            effect.id(&channel.resource())
        };
        let delivery = effect(Purpose::Delivery);
        assert_eq!(
            delivery.as_str(),
            "effect-3bc6649f3e54d55a25ed3424c324b0662c213c88"
        );
        assert_eq!(
            effect(Purpose::Settlement).as_str(),
            "effect-6b9f5726dd2de8e5118aa44ba37c274b1ed80cc0"
        );
        assert_eq!(
            attempt_id(&delivery, 1),
            "channel-e678792ad0567da80291e3edc8eb44dec3ba1e944a65f1a039e2f7e2d3ca1588"
        );
    }

    #[test]
    fn a_channel_has_one_spelling() {
        let channel = ChannelId::telegram("ops").unwrap();
        assert_eq!(channel.as_str(), "telegram:ops");
        assert_eq!(channel.profile(), Some("ops"));
        assert_eq!(
            channel.resource().id().as_str().len(),
            "channel-".len() + 40
        );
        assert_eq!(ChannelId::local().profile(), None);
        for wrong in ["", "a:b", "../x", "-a"] {
            assert!(matches!(
                ChannelId::telegram(wrong),
                Err(ChannelError::Name)
            ));
            assert_eq!(ChannelId::from(format!("telegram:{wrong}")).profile(), None);
        }
    }

    #[test]
    fn names_of_reports_do_not_meet() {
        let attempt = attempt_id(&"effect-1".into(), 1);
        let names = [
            attempt.clone(),
            part_id(&attempt, 0, 1),
            part_id(&attempt, 1, 0),
            answer_id("ops", DECISION, "cb-1"),
            answer_id("ops", DECISION, "100:7"),
            signal_id("epoch", "ready", 1, 0),
            signal_id("epoch", "ready", 2, 0),
            signal_id("epoch", "exiting", 1, 0),
        ];
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len());
        assert!(names.iter().all(|name| name.len() == "channel-".len() + 64));
    }
}
