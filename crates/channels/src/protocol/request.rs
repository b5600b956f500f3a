//! What a child gets to see of a decision, and what it may say as an answer. The subject of a decision never comes here.

use std::collections::BTreeMap;

use holdpoint_decisions::model::ChannelRequest;
use serde::{Deserialize, Serialize};

use super::ProtocolError;
use super::checks::{self, require};

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
    /// What of a request is needed to understand an answer to it.
    pub fn of(request: &ChannelRequest) -> Self {
        let choice = |choice: &holdpoint_decisions::model::Choice| Choice {
            label: choice.label.clone(),
            input: choice.input.as_ref().map(|input| TextInput {
                kind: "text".to_owned(),
                name: input.name().to_owned(),
                prompt: input.prompt().to_owned(),
                min_length: input.min_units(),
                max_length: input.max_units(),
            }),
        };
        Self {
            decision_id: request.decision_id.to_string(),
            request_digest: request.request_digest.to_string(),
            choices: request
                .choices
                .iter()
                .map(|(id, one)| (id.to_string(), choice(one)))
                .collect(),
        }
    }

    /// How much room it takes in a line, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        // A comma stands between two of them.
        holdpoint_state::json::to_canonical(self).map_or(usize::MAX, |text| text.len() + 1)
    }

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

/// A request travels as the document of the decisions domain, which refuses a subject and everything else that it does not know.
pub(super) mod document {
    use holdpoint_decisions::model::ChannelRequest;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use serde_json::Value;

    #[expect(
        clippy::borrowed_box,
        reason = "serde hands over a reference to the field as it is"
    )]
    pub(crate) fn serialize<S: Serializer>(
        request: &Box<ChannelRequest>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        request.document().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Box<ChannelRequest>, D::Error> {
        // The text of its error may repeat what the line holds; nobody shows it.
        ChannelRequest::read(&Value::deserialize(deserializer)?)
            .map(Box::new)
            .map_err(D::Error::custom)
    }
}
