//! What a child says to the host.

use serde::{Deserialize, Serialize};

use super::checks::{self, Checked, is_name, is_numeric, require};
use super::request::Response;
use super::{ADAPTER_SCHEMA, ErrorCode, PARTS_MAX, ProtocolError};

/// One message of a child: who speaks, against which revision, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FromAdapter {
    /// The process that speaks.
    pub adapter_epoch: String,
    /// Its profile.
    pub profile: String,
    /// Counts the messages of this process, from 1.
    pub sequence: u64,
    /// The revision of the channel that the last response told; 0 only in the first message.
    pub expected_revision: u64,
    /// Names what is reported, so that a repeat is known.
    pub stable_message_id: String,
    /// What is said.
    #[serde(flatten)]
    pub report: Report,
}

/// What a child has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Report {
    /// It can take an order. The cursor says up to where it has read.
    #[serde(rename = "channel.ready")]
    Ready {
        /// The next update to read; 0 before the first.
        cursor: u64,
        /// What keeps it from reading updates at the moment.
        #[serde(default, rename = "errorCode", skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
        /// Who the bot is, as the provider says: told once, in answer to `channel.identify`.
        #[serde(default, rename = "botId", skip_serializing_if = "Option::is_none")]
        bot_id: Option<u64>,
        /// Seconds before which the provider wants nothing sent, when something that is no attempt was told so.
        #[serde(
            default,
            rename = "retryAfter",
            skip_serializing_if = "Option::is_none"
        )]
        retry_after: Option<u64>,
    },
    /// One part of a delivery was confirmed. Sent after every part, before the next is sent to the provider.
    #[serde(rename = "channel.part")]
    Part {
        /// The decision that is shown.
        #[serde(rename = "decisionId")]
        decision_id: String,
        /// The digest of its request.
        #[serde(rename = "requestDigest")]
        request_digest: String,
        /// The attempt that sent it.
        #[serde(rename = "attemptId")]
        attempt_id: String,
        /// The part.
        message: MessageRef,
    },
    /// A delivery ended.
    #[serde(rename = "channel.present")]
    Present(PresentReport),
    /// A person answered.
    #[serde(rename = "channel.answer")]
    Answer(AnswerReport),
    /// A settlement ended.
    #[serde(rename = "channel.settle")]
    Settle(SettleReport),
    /// It is about to end by itself.
    #[serde(rename = "channel.exiting")]
    Exiting {
        /// The next update to read.
        cursor: u64,
        /// Why, unless it was told to.
        #[serde(default, rename = "errorCode", skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
    },
}

/// How an attempt ended, as the child saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SendState {
    /// All of it was done.
    Confirmed,
    /// It was provably not done, or only in part.
    Failed,
    /// It may have been done.
    Unknown,
}

/// Where one shown part is at the provider. Private.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MessageRef {
    /// The chat.
    pub chat_id: String,
    /// The message within the chat.
    pub message_id: u64,
    /// Which recipient, from 0, in the order of the allowed chats.
    pub recipient_index: u32,
    /// Which part, from 0.
    pub part_index: u32,
    /// The digest of the text that was sent.
    pub content_digest: String,
}

/// The report of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PresentReport {
    /// The decision.
    pub decision_id: String,
    /// The digest of its request.
    pub request_digest: String,
    /// The attempt.
    pub attempt_id: String,
    /// How it ended.
    pub state: SendState,
    /// Every part that is confirmed, those of earlier attempts too.
    pub messages: Vec<MessageRef>,
    /// Why it was not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Seconds before which the provider wants no further attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// An answer of a person, as the provider told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AnswerReport {
    /// The decision.
    pub decision_id: String,
    /// The digest that the answered message showed.
    pub request_digest: String,
    /// The answer.
    pub response: Response,
    /// The numeric user.
    pub actor_id: String,
    /// The numeric chat.
    pub chat_id: String,
    /// The provider's name of the event.
    pub event_id: String,
    /// The name under which a repeat is known.
    pub idempotency_key: String,
    /// The update after the one that held the answer.
    pub cursor: u64,
}

/// The report of a settlement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SettleReport {
    /// The decision.
    pub decision_id: String,
    /// The digest of its request.
    pub request_digest: String,
    /// The attempt.
    pub attempt_id: String,
    /// How it ended.
    pub state: SendState,
    /// Why it was not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<ErrorCode>,
    /// Seconds before which the provider wants no further attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// The line with its schema.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    message: &'a FromAdapter,
}

impl FromAdapter {
    /// The line.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] for a field that the host would refuse.
    pub fn to_line(&self) -> Result<Vec<u8>, ProtocolError> {
        self.check()?;
        super::write(&Line {
            schema: ADAPTER_SCHEMA,
            message: self,
        })
    }

    /// Reads a line and checks every field.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]: the child must be ended.
    pub fn from_line(line: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = super::read(line, ADAPTER_SCHEMA)?;
        let message = Self {
            adapter_epoch: fields.take("adapterEpoch")?,
            profile: fields.take("profile")?,
            sequence: fields.take("sequence")?,
            expected_revision: fields.take("expectedRevision")?,
            stable_message_id: fields.take("stableMessageId")?,
            report: fields.rest("kind or a field")?,
        };
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Checked {
        checks::id("adapterEpoch", &self.adapter_epoch)?;
        require("profile", is_name(&self.profile))?;
        require("sequence", 0 < self.sequence)?;
        checks::safe("sequence", self.sequence)?;
        checks::safe("expectedRevision", self.expected_revision)?;
        checks::stable_id("stableMessageId", &self.stable_message_id)?;
        self.report.check(&self.stable_message_id)
    }
}

impl Report {
    /// The kind, which is also the type of the event that an accepted message writes.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Ready { .. } => "channel.ready",
            Self::Part { .. } => "channel.part",
            Self::Present(_) => "channel.present",
            Self::Answer(_) => "channel.answer",
            Self::Settle(_) => "channel.settle",
            Self::Exiting { .. } => "channel.exiting",
        }
    }

    fn check(&self, stable_id: &str) -> Checked {
        match self {
            Self::Ready {
                cursor,
                bot_id,
                retry_after,
                ..
            } => {
                checks::safe("cursor", *cursor)?;
                require("botId", *bot_id != Some(0))?;
                checks::safe("botId", bot_id.unwrap_or(0))?;
                checks::safe("retryAfter", retry_after.unwrap_or(0))
            }
            Self::Exiting { cursor, .. } => checks::safe("cursor", *cursor),
            Self::Part {
                decision_id,
                request_digest,
                attempt_id,
                message,
            } => {
                attempt(decision_id, request_digest, attempt_id)?;
                message.check()
            }
            Self::Present(report) => {
                attempt(
                    &report.decision_id,
                    &report.request_digest,
                    &report.attempt_id,
                )?;
                require("attemptId", report.attempt_id == stable_id)?;
                report.messages.iter().try_for_each(MessageRef::check)?;
                are_unique(&report.messages)?;
                reason(report.state, report.error_code, report.retry_after)
            }
            Self::Answer(report) => {
                checks::id("decisionId", &report.decision_id)?;
                checks::digest("requestDigest", &report.request_digest)?;
                report.response.check()?;
                require("actorId", is_numeric(&report.actor_id))?;
                require("chatId", is_numeric(&report.chat_id))?;
                checks::id("eventId", &report.event_id)?;
                checks::id("idempotencyKey", &report.idempotency_key)?;
                checks::safe("cursor", report.cursor)
            }
            Self::Settle(report) => {
                attempt(
                    &report.decision_id,
                    &report.request_digest,
                    &report.attempt_id,
                )?;
                require("attemptId", report.attempt_id == stable_id)?;
                reason(report.state, report.error_code, report.retry_after)
            }
        }
    }
}

impl MessageRef {
    pub(super) fn check(&self) -> Checked {
        require("chatId", is_numeric(&self.chat_id))?;
        checks::safe("messageId", self.message_id)?;
        require("partIndex", self.part_index < PARTS_MAX)?;
        checks::digest("contentDigest", &self.content_digest)
    }
}

/// No part of one chat is told twice.
pub(super) fn are_unique(messages: &[MessageRef]) -> Checked {
    let mut seen = std::collections::HashSet::new();
    let all_new = messages
        .iter()
        .all(|message| seen.insert((&message.chat_id, message.part_index)));
    require("messages", all_new)
}

fn attempt(decision_id: &str, request_digest: &str, attempt_id: &str) -> Checked {
    checks::id("decisionId", decision_id)?;
    checks::digest("requestDigest", request_digest)?;
    checks::stable_id("attemptId", attempt_id)
}

/// Success has no reason, everything else has one.
fn reason(state: SendState, code: Option<ErrorCode>, retry_after: Option<u64>) -> Checked {
    require(
        "errorCode",
        (state == SendState::Confirmed) == code.is_none(),
    )?;
    require(
        "retryAfter",
        state == SendState::Failed || retry_after.is_none(),
    )?;
    checks::safe("retryAfter", retry_after.unwrap_or(0))
}
