//! The records of the domain and what its commands come to. Pure: no SQL, no clock, no I/O.
#![warn(clippy::wildcard_enum_match_arm)]

use holdpoint_state::EffectId;
use holdpoint_state::clock::UnixMillis;
use serde::Serialize;
use serde_json::{Value, json};

use crate::identity::{ChannelId, Purpose};
use crate::protocol::{AnswerOutcome, ErrorCode, SendState};

/// The schema of the record of a delivery.
const DELIVERY_SCHEMA: &str = "pi-workflows.human-decision-delivery.v1";
/// The schema of the record of a settlement.
const SETTLEMENT_SCHEMA: &str = "pi-workflows.human-decision-settlement.v1";
/// The schema of the payload of an effect.
pub(crate) const EFFECT_SCHEMA: &str = "pi-workflows.channel-effect.v1";

/// The status of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum MessageStatus {
    /// It is about to be done.
    Pending,
    /// It was done.
    Confirmed,
    /// It was provably not done, or only in part.
    Failed,
    /// It may have been done.
    Ambiguous,
}

impl MessageStatus {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
            Self::Ambiguous => "ambiguous",
        }
    }

    /// The word of the record.
    const fn state(self) -> &'static str {
        match self {
            Self::Pending => "intent",
            Self::Confirmed => "confirmed",
            Self::Failed => "failed",
            Self::Ambiguous => "unknown",
        }
    }
}

impl From<SendState> for MessageStatus {
    fn from(state: SendState) -> Self {
        match state {
            SendState::Confirmed => Self::Confirmed,
            SendState::Failed => Self::Failed,
            SendState::Unknown => Self::Ambiguous,
        }
    }
}

/// One attempt, with what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "`id` alone would leave open of what, beside that of the decision"
)]
pub(crate) struct Attempt {
    pub(crate) attempt_id: String,
    pub(crate) decision_id: String,
    pub(crate) purpose: Purpose,
    pub(crate) request_digest: String,
    pub(crate) presentation_digest: String,
    pub(crate) started_at: UnixMillis,
}

/// How an attempt ended, for its record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) status: MessageStatus,
    pub(crate) message_count: usize,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) finished_at: UnixMillis,
}

impl Attempt {
    /// The record of an attempt that begins (no ending) or ends. A repeat gives the same bytes.
    pub(crate) fn record(&self, channel: &ChannelId, ending: Option<&Ending>) -> Value {
        let status = ending.map_or(MessageStatus::Pending, |ending| ending.status);
        let mut record = json!({
            "schema": match self.purpose { Purpose::Delivery => DELIVERY_SCHEMA, Purpose::Settlement => SETTLEMENT_SCHEMA },
            "attemptId": self.attempt_id,
            "decisionId": self.decision_id,
            "requestDigest": self.request_digest,
            "channel": channel,
            "phase": if ending.is_some() { "complete" } else { "intent" },
            "state": status.state(),
            "createdAt": holdpoint_decisions::model::to_iso(self.started_at),
        });
        if let Some(fields) = record.as_object_mut() {
            if self.purpose == Purpose::Delivery {
                fields.insert(
                    "presentationDigest".to_owned(),
                    self.presentation_digest.as_str().into(),
                );
            }
            if let Some(ending) = ending {
                let finished_at = holdpoint_decisions::model::to_iso(ending.finished_at);
                fields.insert("finishedAt".to_owned(), finished_at.into());
                if self.purpose == Purpose::Delivery {
                    fields.insert("messageCount".to_owned(), ending.message_count.into());
                }
                if let Some(error) = ending.error {
                    fields.insert("errorCode".to_owned(), error.to_string().into());
                }
            }
        }
        record
    }

    /// From what the id of its record is derived.
    pub(crate) fn record_basis(&self, channel: &ChannelId, phase: &str) -> Value {
        json!({
            "attemptId": self.attempt_id,
            "channel": channel,
            "decisionId": self.decision_id,
            "phase": phase,
            "purpose": self.purpose.as_str(),
        })
    }
}

/// What became of a message of an adapter. All but `taken` and `repeated` ends the adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Relayed {
    /// It is durable now.
    Taken {
        /// What became of it, when it is an answer.
        answer: Option<AnswerOutcome>,
    },
    /// It was durable before, or says nothing new.
    Repeated {
        /// What became of it, when it is an answer.
        answer: Option<AnswerOutcome>,
    },
    /// Nothing of it is taken.
    Rejected {
        /// Why.
        reason: RejectReason,
    },
}

/// Why a message of an adapter is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RejectReason {
    /// It comes from another process than the one that speaks for the profile now.
    StaleAdapter,
    /// Its number is not the next one.
    Sequence,
    /// Its name was given to other content.
    OtherContent,
    /// It was made against another revision of the channel.
    StaleRevision,
    /// It is about an attempt that is not in flight.
    NotInFlight,
    /// The person or the chat is not allowed, or the decision is not shown in this channel.
    NotAllowed,
    /// It says that all was confirmed and leaves a chat or a part out.
    Incomplete,
}

impl RejectReason {
    /// The words for the log of the adapter.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StaleAdapter => "another adapter speaks for this profile",
            Self::Sequence => "the sequence is not the next one",
            Self::OtherContent => "the stable id has other content",
            Self::StaleRevision => "the channel has another revision",
            Self::NotInFlight => "no such attempt is in flight",
            Self::NotAllowed => "the sender is not allowed",
            Self::Incomplete => "the report leaves parts out",
        }
    }
}

/// An attempt that has begun and whose order is to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The effect.
    pub effect_id: EffectId,
    /// The attempt.
    pub attempt_id: String,
    /// The revision of the channel from now on.
    pub revision: u64,
}

/// What a person says about an attempt that nobody else can know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecoverAction {
    /// It happened.
    Confirm,
    /// Do it again. What was confirmed is not sent again; what was in doubt may come twice. A delivery that was refused for good may be
    /// done again too.
    Retry,
}

impl RecoverAction {
    /// The word of it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Confirm => "confirm",
            Self::Retry => "retry",
        }
    }
}

/// What a recovery came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The channel.
    pub channel: ChannelId,
    /// What the attempt was for.
    pub purpose: Purpose,
    /// The name of the next attempt, after a retry.
    pub next_attempt_id: Option<String>,
    /// What the person should know.
    pub warning: Option<&'static str>,
}
