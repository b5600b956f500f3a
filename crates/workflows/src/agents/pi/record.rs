//! The parts of pi's records that the executor reads (`docs/rpc.md` and `dist/modes/rpc` of the package, 0.73.1).
//!
//! Unknown fields are skipped without being kept, so that a record takes less memory read than written. Not here: what the
//! records mean (`dialogue`).

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize as DeserializeDerive, Serialize};

#[derive(DeserializeDerive)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

#[derive(DeserializeDerive)]
pub(super) struct Response {
    #[serde(default)]
    pub(super) id: Option<String>,
    pub(super) success: bool,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) data: Option<SessionState>,
}

/// What `get_state` tells.
#[derive(DeserializeDerive)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionState {
    #[serde(default)]
    pub(super) is_streaming: bool,
    #[serde(default)]
    pub(super) session_id: Option<String>,
    #[serde(default)]
    pub(super) session_file: Option<String>,
    #[serde(default)]
    pub(super) model: Option<Model>,
}

/// Of a model only its name: the rest can hold keys to it.
#[derive(DeserializeDerive)]
pub(super) struct Model {
    pub(super) provider: String,
    pub(super) id: String,
}

#[derive(DeserializeDerive)]
pub(super) struct MessageEnd {
    pub(super) message: Message,
}

#[derive(DeserializeDerive)]
pub(super) struct AgentEnd {
    pub(super) messages: LastAssistant,
}

#[derive(Debug, Clone, DeserializeDerive)]
#[serde(rename_all = "camelCase")]
pub(super) struct Message {
    pub(super) role: String,
    #[serde(default)]
    pub(super) content: Texts,
    #[serde(default)]
    pub(super) provider: Option<String>,
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    pub(super) usage: Option<Usage>,
    #[serde(default)]
    pub(super) stop_reason: Option<String>,
    #[serde(default, rename = "errorMessage")]
    pub(super) error: Option<String>,
}

/// What the work consumed, in tokens, and its price where the model has one.
#[derive(Debug, Default, Clone, Copy, PartialEq, DeserializeDerive, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "tokens")]
    input: u64,
    #[serde(deserialize_with = "tokens")]
    output: u64,
    #[serde(deserialize_with = "tokens")]
    cache_read: u64,
    #[serde(deserialize_with = "tokens")]
    cache_write: u64,
    cost: Cost,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, DeserializeDerive, Serialize)]
#[serde(default)]
struct Cost {
    #[serde(deserialize_with = "price")]
    total: f64,
}

/// A provider that counts badly makes a number that is no count, which JavaScript writes as `null`: it fails no step.
fn tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let count = Option::<f64>::deserialize(deserializer)?.unwrap_or(0.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and a count ends at its point"
    )]
    Ok(count as u64)
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(0.0))
}

impl Usage {
    pub(super) fn add(&mut self, more: &Self) {
        for (sum, tokens) in [
            (&mut self.input, more.input),
            (&mut self.output, more.output),
            (&mut self.cache_read, more.cache_read),
            (&mut self.cache_write, more.cache_write),
        ] {
            *sum = sum.saturating_add(tokens);
        }
        self.cost.total += more.cost.total;
    }
}

#[derive(DeserializeDerive)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) is_error: bool,
}

#[derive(DeserializeDerive)]
pub(super) struct Failed {
    pub(super) success: bool,
}

#[derive(DeserializeDerive)]
#[serde(rename_all = "camelCase")]
pub(super) struct Compaction {
    pub(super) reason: String,
    #[serde(default)]
    pub(super) will_retry: bool,
    #[serde(default)]
    pub(super) error_message: Option<String>,
}

#[derive(DeserializeDerive)]
pub(super) struct UiRequest {
    pub(super) id: String,
    pub(super) method: String,
}

/// The text of a message: its text blocks one after the other. Thinking, calls of tools and images are not kept.
#[derive(Debug, Default, Clone)]
pub(super) struct Texts {
    pub(super) text: String,
}

#[derive(DeserializeDerive)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    text: Option<String>,
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Blocks;

        impl<'de> Visitor<'de> for Blocks {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts {
                    text: text.to_owned(),
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Texts, A::Error> {
                let mut texts = Texts::default();
                while let Some(block) = blocks.next_element::<Block>()? {
                    if let (Some(text), "text") = (block.text, block.kind.as_str()) {
                        texts.text.push_str(&text);
                    }
                }
                Ok(texts)
            }
        }

        deserializer.deserialize_any(Blocks)
    }
}

/// Of a list of messages the last that the model said. One message is held at a time.
pub(super) struct LastAssistant(pub(super) Option<Message>);

impl<'de> Deserialize<'de> for LastAssistant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Messages;

        impl<'de> Visitor<'de> for Messages {
            type Value = LastAssistant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<LastAssistant, A::Error> {
                let mut last = None;
                while let Some(message) = seq.next_element::<Message>()? {
                    if message.role == "assistant" {
                        last = Some(message);
                    }
                }
                Ok(LastAssistant(last))
            }
        }

        deserializer.deserialize_seq(Messages)
    }
}
