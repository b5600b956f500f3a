//! What a child gets to see of a decision, and what it may say as an answer. The subject of a decision never comes here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ProtocolError;
use super::checks::{self, require};

/// The schema of a channel request (decisions reference, section 3).
const REQUEST_SCHEMA: &str = "pi-workflows.human-decision-channel-request.v1";

/// The text input that a choice asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TextInput {
    /// Always `text`.
    pub kind: String,
    /// The key of the text in the response.
    pub name: String,
    /// What the person is asked.
    pub prompt: String,
    /// The fewest UTF-16 code units.
    pub min_length: u64,
    /// The most UTF-16 code units.
    pub max_length: u64,
}

/// One choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Choice {
    /// What its button says.
    pub label: String,
    /// The text that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<TextInput>,
}

/// A request as a channel shows it: the canonical JSON of the decisions domain, checked for what a channel relies on.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelRequest {
    fields: Map<String, Value>,
    open: OpenRequest,
}

impl ChannelRequest {
    /// Takes a request over.
    ///
    /// # Errors
    ///
    /// [`ProtocolError::Field`] when it is none, or holds a subject.
    pub fn new(value: Value) -> Result<Self, ProtocolError> {
        let wrong = || ProtocolError::Field { what: "request" };
        let Value::Object(fields) = value else {
            return Err(wrong());
        };
        require("request", !fields.contains_key("subject"))?;
        require(
            "request",
            fields.get("schema").and_then(Value::as_str) == Some(REQUEST_SCHEMA),
        )?;
        let text = |name: &str| {
            fields
                .get(name)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .ok_or_else(wrong)
        };
        let choices = fields.get("choices").cloned().ok_or_else(wrong)?;
        let open = OpenRequest {
            decision_id: text("decisionId")?,
            request_digest: text("requestDigest")?,
            choices: serde_json::from_value(choices).map_err(|_| wrong())?,
        };
        open.check()?;
        Ok(Self { fields, open })
    }

    /// The decision.
    pub fn decision_id(&self) -> &str {
        &self.open.decision_id
    }

    /// The digest of the whole request.
    pub fn request_digest(&self) -> &str {
        &self.open.request_digest
    }

    /// What a token is made of.
    pub fn open(&self) -> &OpenRequest {
        &self.open
    }

    /// All of it.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }
}

impl Serialize for ChannelRequest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.fields.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ChannelRequest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// What a child must know of a shown request to understand an answer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenRequest {
    /// The decision.
    pub decision_id: String,
    /// The digest that its tokens are made of.
    pub request_digest: String,
    /// Its choices, by their ids.
    pub choices: BTreeMap<String, Choice>,
}

impl OpenRequest {
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        checks::id("decisionId", &self.decision_id)?;
        checks::digest("requestDigest", &self.request_digest)?;
        require("choices", !self.choices.is_empty())
    }
}

/// An answer: a choice, with its text if the choice asks for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Response {
    /// The id of the choice.
    pub choice: String,
    /// The text under the name of the input, byte for byte as it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<BTreeMap<String, String>>,
}

impl Response {
    pub(super) fn check(&self) -> Result<(), ProtocolError> {
        checks::id("response", &self.choice)?;
        let one_input = self.input.as_ref().is_none_or(|input| input.len() == 1);
        require("response", one_input)
    }
}
