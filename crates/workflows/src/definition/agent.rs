//! The parts of nodes that talk: agents, and notifications to the origin session.
//!
//! Not here: who executes an agent ([`crate::agents`]), the messages that a session is shown (`store`).

use std::sync::Arc;

use serde_json::Value;

use super::context::{NodeContext, NodeError};

/// A function from the context to a text.
pub type TextFunction = Arc<dyn Fn(&NodeContext<'_>) -> Result<String, NodeError> + Send + Sync>;

/// A function that makes the output of a candidate that an agent submitted, or says what is wrong with it.
pub type ValidateFunction =
    Arc<dyn Fn(&NodeContext<'_>, Value) -> Result<Value, NodeError> + Send + Sync>;

/// A step that a model does.
#[derive(Clone)]
pub struct Agent {
    /// Makes the prompt.
    pub prompt: TextFunction,
    /// What counts as the output.
    pub expected: ExpectedOutput,
}

/// What counts as the output of an agent.
#[derive(Clone)]
pub enum ExpectedOutput {
    /// What it submits. In a text the engine looks for JSON.
    Submitted {
        /// What the author says of the output that is wanted.
        description: Option<String>,
        /// Accepts, changes or rejects a candidate.
        validate: Option<ValidateFunction>,
    },
    /// Its next visible, settled text in the origin session.
    AssistantMessage {
        /// The most characters that it may have.
        max_chars: Option<u32>,
    },
}

impl ExpectedOutput {
    /// The `expectedOutput` of snapshots.
    pub(super) fn snapshot(&self) -> Option<Value> {
        match self {
            Self::Submitted { description, .. } => description.as_deref().map(Value::from),
            Self::AssistantMessage { max_chars } => {
                let mut expected = serde_json::json!({ "kind": "assistant-message" });
                if let (Some(max_chars), Some(members)) = (max_chars, expected.as_object_mut()) {
                    members.insert("maxChars".to_owned(), (*max_chars).into());
                }
                Some(expected)
            }
        }
    }
}

/// A text that the origin session is shown. Needs an origin session.
#[derive(Clone)]
pub struct Notify {
    /// Makes the text, which must not be blank.
    pub message: TextFunction,
    /// Whether the work goes on after it.
    pub kind: NotificationKind,
}

/// What a notification is about.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    /// The work goes on.
    Progress,
    /// The work is done.
    Final,
}

impl NotificationKind {
    /// The word of snapshots and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Progress => "progress",
            Self::Final => "final",
        }
    }
}
