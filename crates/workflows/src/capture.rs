//! Captured sessions: the forms of what a recorder keeps of a Pi session. Pure values.
//!
//! *Entries* are settled entries of the session, as they are; *events* are what happened live, without the deltas of tokens. Not here:
//! the commands ([`commands::append_entries`](crate::commands::append_entries()) and its siblings), and replaying.

use holdpoint_state::{Payload, StateError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::{AttemptId, NodeId};

/// The most bytes that one batch of entries or events has as canonical JSON.
pub const BATCH_LIMIT_BYTES: usize = 1024 * 1024;

/// The failure code of a recording whose recorder is gone.
pub const HOST_INTERRUPTED: &str = "host_interrupted";

/// What happened in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEventType {
    /// A model turn began.
    TurnStarted,
    /// A model turn ended.
    TurnFinished,
    /// A message began.
    MessageStarted,
    /// Something of an assistant's message became known.
    AssistantEvent,
    /// A message ended.
    MessageFinished,
    /// A tool began.
    ToolExecutionStarted,
    /// A tool ended.
    ToolExecutionFinished,
}

impl SessionEventType {
    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TurnStarted => "turn_started",
            Self::TurnFinished => "turn_finished",
            Self::MessageStarted => "message_started",
            Self::AssistantEvent => "assistant_event",
            Self::MessageFinished => "message_finished",
            Self::ToolExecutionStarted => "tool_execution_started",
            Self::ToolExecutionFinished => "tool_execution_finished",
        }
    }
}

/// One live event of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionEvent {
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: SessionEventType,
    /// The node that the session worked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The attempt that the session worked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<AttemptId>,
    /// The turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The call of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// What the session said of it.
    pub payload: Value,
}

impl SessionEvent {
    /// An event about nothing in particular.
    pub fn new(event_type: SessionEventType, payload: Value) -> Self {
        Self {
            event_type,
            node_id: None,
            attempt_id: None,
            turn_id: None,
            message_id: None,
            tool_call_id: None,
            payload,
        }
    }
}

/// One settled entry of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionEntry {
    /// Its id in the session.
    pub entry_id: String,
    /// The whole entry.
    pub content: Value,
}

/// Prepares the contents of a batch and measures it as a whole.
///
/// # Errors
///
/// The problem in words, or what has no canonical form.
pub(crate) fn prepare<T: Serialize>(
    batch: &[T],
    content: impl Fn(&T) -> &Value,
) -> Result<Result<Vec<Payload>, String>, StateError> {
    if batch.is_empty() {
        return Ok(Err("a batch must not be empty".to_owned()));
    }
    let size_bytes = Payload::json(batch)?.as_bytes().len();
    if BATCH_LIMIT_BYTES < size_bytes {
        return Ok(Err(format!(
            "a batch has at most {BATCH_LIMIT_BYTES} bytes, not {size_bytes}"
        )));
    }
    let contents = batch.iter().map(|item| Payload::json(content(item)));
    Ok(Ok(contents.collect::<Result<_, _>>()?))
}

/// The visible text of an entry: of a message or a custom message, the text itself or its parts of type `text` one after the other.
/// None for other entries.
///
/// ```
/// use holdpoint_workflows::capture::visible_text;
/// use serde_json::json;
///
/// let thought = json!({ "type": "thinking", "thinking": "hm" });
/// let said = json!({ "type": "text", "text": "yes" });
/// let entry = json!({ "type": "message", "message": { "role": "assistant", "content": [thought, said] } });
/// assert_eq!(visible_text(&entry).as_deref(), Some("yes"));
/// ```
pub fn visible_text(entry: &Value) -> Option<String> {
    let content = match entry.get("type")?.as_str()? {
        "message" => entry.get("message")?.get("content")?,
        "custom_message" => entry.get("content")?,
        _ => return None,
    };
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(
            parts
                .iter()
                .filter(|part| part.get("type") == Some(&json!("text")))
                .filter_map(|part| part.get("text")?.as_str())
                .collect(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_can_be_seen() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        for (entry, visible) in [
            (
                json!({ "type": "message", "message": { "role": "user", "content": "do it" } }),
                Some("do it"),
            ),
            (
                json!({ "type": "message", "message": { "content": [text("a"), { "type": "toolCall" }, text("b")] } }),
                Some("ab"),
            ),
            (
                json!({ "type": "message", "message": { "content": [] } }),
                Some(""),
            ),
            (
                json!({ "type": "custom_message", "content": [text("x")] }),
                Some("x"),
            ),
            (
                json!({ "type": "message", "message": { "content": 1 } }),
                None,
            ),
            (json!({ "type": "message" }), None),
            (json!({ "type": "compaction", "summary": "x" }), None),
            (json!("x"), None),
        ] {
            assert_eq!(visible_text(&entry).as_deref(), visible, "{entry}");
        }
    }
}
