//! What the host says to a child: the response to its last message, and with it the next order.

use holdpoint_decisions::model::ChannelRequest;
use serde::{Deserialize, Serialize};

use super::checks::{self, Checked, require};
use super::frames::{MessageRef, are_unique};
use super::request::{OpenRequest, Response, document};
use super::{ADAPTER_SCHEMA, ProtocolError};

/// The response to one message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToAdapter {
    /// The number of the message that is answered.
    pub sequence: u64,
    /// Whether it was taken. A rejected child ends.
    pub outcome: Verdict,
    /// The revision of the channel from now on.
    pub revision: u64,
    /// What to do next; nothing after a part, an answer and an exit.
    pub command: Option<Order>,
    /// What became of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerOutcome>,
    /// Why it was rejected, for the log of the child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Whether a message was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is durable, or was before.
    Accepted,
    /// Nothing of it is.
    Rejected,
}

/// What became of an answer, for the text on the pressed button.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AnswerOutcome {
    /// It is the one answer.
    Received,
    /// There is another answer, or there can be none any more.
    AlreadyDecided,
    /// It came too late.
    Expired,
    /// The run is paused: the same answer may be given again when it goes on.
    Paused,
    /// Another person than the one who asked for the run has to answer.
    Requester,
    /// Another person has to answer, and nobody knows here who this one is.
    UnknownPerson,
    /// It can't be taken.
    NotAccepted,
}

/// What a child is to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields)]
pub enum Order {
    /// Show a request to every allowed chat.
    #[serde(rename = "channel.present")]
    Present {
        /// The name of the report to come: the attempt.
        #[serde(rename = "stableMessageId")]
        stable_message_id: String,
        /// The attempt.
        #[serde(rename = "attemptId")]
        attempt_id: String,
        /// What to show.
        #[serde(with = "document")]
        request: Box<ChannelRequest>,
        /// The parts that earlier attempts confirmed: never sent again.
        messages: Vec<MessageRef>,
    },
    /// Take the buttons off the shown messages.
    #[serde(rename = "channel.settle")]
    Settle {
        /// The name of the report to come: the attempt.
        #[serde(rename = "stableMessageId")]
        stable_message_id: String,
        /// The attempt.
        #[serde(rename = "attemptId")]
        attempt_id: String,
        /// What was shown.
        #[serde(with = "document")]
        request: Box<ChannelRequest>,
        /// How the decision ended.
        outcome: SettleOutcome,
        /// The winning answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Response>,
        /// Where it was shown.
        messages: Vec<MessageRef>,
    },
    /// Ask the provider who the bot is, and say so. Nothing else is ordered before the host knows, and has the bot for itself.
    #[serde(rename = "channel.identify")]
    Identify,
    /// Read updates, and ask again soon: a poll stays open at the provider meanwhile.
    #[serde(rename = "channel.poll")]
    Poll {
        /// The first update to read.
        cursor: u64,
        /// What may be answered.
        requests: Vec<OpenRequest>,
        /// How long the provider still wants nothing sent, in milliseconds; 0 when it wants no pause.
        #[serde(default, rename = "quietMs", skip_serializing_if = "is_zero")]
        quiet_ms: u64,
    },
    /// End.
    #[serde(rename = "channel.stop")]
    Stop,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference to the field"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// How a decision ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SettleOutcome {
    /// Somebody or its own policy answered.
    Accepted,
    /// It was called off.
    Cancelled,
    /// Its time ran out, and it has no automatic answer.
    Expired,
}

/// The line with its schema.
#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    r#type: &'static str,
    #[serde(flatten)]
    response: &'a ToAdapter,
}

impl ToAdapter {
    /// The line.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`] for a field that the child would refuse, and for a line that is too long.
    pub fn to_line(&self) -> Result<Vec<u8>, ProtocolError> {
        self.check()?;
        super::write(&Line {
            schema: ADAPTER_SCHEMA,
            r#type: "response",
            response: self,
        })
    }

    /// Reads a line and checks every field.
    ///
    /// # Errors
    ///
    /// [`ProtocolError`]: the child must end with a code that is not zero.
    pub fn from_line(line: &[u8]) -> Result<Self, ProtocolError> {
        let mut fields = super::read(line, ADAPTER_SCHEMA)?;
        let kind: String = fields.take("type")?;
        require("type", kind == "response")?;
        // `Option` would take a missing command for none.
        require("command", fields.0.contains_key("command"))?;
        let response: Self = fields.rest("response")?;
        response.check()?;
        Ok(response)
    }

    fn check(&self) -> Checked {
        require("sequence", 0 < self.sequence)?;
        checks::safe("sequence", self.sequence)?;
        checks::safe("revision", self.revision)?;
        require(
            "error",
            (self.outcome == Verdict::Rejected) == self.error.is_some(),
        )?;
        require(
            "command",
            self.outcome == Verdict::Accepted || self.command.is_none(),
        )?;
        require(
            "answer",
            self.outcome == Verdict::Accepted || self.answer.is_none(),
        )?;
        self.command.as_ref().map_or(Ok(()), Order::check)
    }
}

impl Order {
    fn check(&self) -> Checked {
        match self {
            Self::Present {
                stable_message_id,
                attempt_id,
                messages,
                ..
            } => {
                attempt(stable_message_id, attempt_id)?;
                references(messages)
            }
            Self::Settle {
                stable_message_id,
                attempt_id,
                outcome,
                response,
                messages,
                ..
            } => {
                attempt(stable_message_id, attempt_id)?;
                require(
                    "response",
                    (*outcome == SettleOutcome::Accepted) == response.is_some(),
                )?;
                response.as_ref().map_or(Ok(()), Response::check)?;
                references(messages)
            }
            Self::Poll {
                cursor,
                requests,
                quiet_ms,
            } => {
                checks::safe("cursor", *cursor)?;
                checks::safe("quietMs", *quiet_ms)?;
                requests.iter().try_for_each(OpenRequest::check)
            }
            Self::Identify | Self::Stop => Ok(()),
        }
    }
}

fn attempt(stable_message_id: &str, attempt_id: &str) -> Checked {
    checks::stable_id("attemptId", attempt_id)?;
    require("stableMessageId", stable_message_id == attempt_id)
}

fn references(messages: &[MessageRef]) -> Checked {
    messages.iter().try_for_each(MessageRef::check)?;
    are_unique(messages)
}
