//! The conversation of a run through an event. What is settled is an entry of its own, so that the state stays small however long the
//! conversation is.

use serde_json::Value;

use crate::documents::{Block, BlockKind, Checkpoint, Message, MessageStatus, Tool, ToolStatus};

/// After so many events there is a checkpoint.
pub const CHECKPOINT_EVERY: u64 = 256;

/// How many bytes of text a state keeps of each part; the rest is cut, and the state says so.
const TEXT_BYTES: usize = 1024;
/// How many messages, tools and parts of a message a state keeps: the newest.
const ITEMS: usize = 4;
/// How many diagnostics a state keeps.
const DIAGNOSTICS: usize = 4;
/// How long a name may be.
const NAME_BYTES: usize = 256;

/// What a fold needs of an event.
#[derive(Debug, Clone, Copy)]
pub struct SessionEventView<'a> {
    /// Its number in the run.
    pub seq: u64,
    /// What happened.
    pub event_type: &'a str,
    /// The message.
    pub message_id: Option<&'a str>,
    /// The call of a tool.
    pub tool_call_id: Option<&'a str>,
    /// What the session said of it.
    pub payload: &'a Value,
}

/// The state after one more event: the messages that are being said and the tools that run, bounded.
///
/// What is over leaves the state: its entry, or the window of events that a reader has, shows it.
pub fn fold(mut state: Checkpoint, event: &SessionEventView<'_>) -> Checkpoint {
    state.through_seq = event.seq;
    let payload = |name: &str| event.payload.get(name);
    let text = |name: &str| payload(name).and_then(Value::as_str).unwrap_or_default();
    let message_id = event.message_id.unwrap_or_default();
    match event.event_type {
        "message_started" => {
            state
                .messages
                .retain(|message| message.message_id != message_id);
            state.messages.push(Message {
                message_id: message_id.to_owned(),
                role: text("role").to_owned(),
                status: MessageStatus::Streaming,
                entry_id: None,
                blocks: Vec::new(),
            });
        }
        "assistant_event" => {
            if let Some(message) = find(&mut state.messages, message_id) {
                say(message, event.payload);
            }
        }
        "message_finished" => state
            .messages
            .retain(|message| message.message_id != message_id),
        "tool_execution_started" => {
            let call = event.tool_call_id.unwrap_or_default();
            state.tools.retain(|tool| tool.tool_call_id != call);
            state.tools.push(Tool {
                tool_call_id: call.to_owned(),
                message_id: message_id.to_owned(),
                tool_name: text("toolName").to_owned(),
                status: ToolStatus::Running,
                args: payload("args").cloned(),
                result: None,
                updates: 0,
            });
        }
        "tool_execution_finished" => state
            .tools
            .retain(|tool| Some(tool.tool_call_id.as_str()) != event.tool_call_id),
        _ => {}
    }
    bound(&mut state);
    state
}

fn find<'a>(messages: &'a mut [Message], id: &str) -> Option<&'a mut Message> {
    messages
        .iter_mut()
        .rev()
        .find(|message| message.message_id == id)
}

/// Takes up what became known of a message.
fn say(message: &mut Message, payload: &Value) {
    let text = |name: &str| {
        payload
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let index = payload
        .get("contentIndex")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let (kind, stage) = match text("type").split_once('_') {
        Some(("text", stage)) => (BlockKind::Text, stage),
        Some(("thinking", stage)) => (BlockKind::Thinking, stage),
        Some(("toolcall", stage)) => (BlockKind::ToolCall, stage),
        _ => {
            match text("type") {
                "done" => message.status = MessageStatus::Finished,
                "error" => message.status = MessageStatus::Error,
                _ => {}
            }
            return;
        }
    };
    if !message
        .blocks
        .iter()
        .any(|block| block.content_index == index)
    {
        message.blocks.push(Block {
            content_index: index,
            kind,
            text: String::new(),
            value: None,
        });
    }
    let found = message
        .blocks
        .iter_mut()
        .find(|block| block.content_index == index);
    let Some(block) = found else { return };
    match stage {
        "delta" => block.text.push_str(text("delta")),
        "end" => {
            block.value = payload.get("toolCall").cloned();
            if let Some(content) = payload.get("content").and_then(Value::as_str) {
                content.clone_into(&mut block.text);
            }
        }
        _ => {}
    }
}

/// Keeps a state small: what was cut is said once.
fn bound(state: &mut Checkpoint) {
    let mut was_cut = false;
    was_cut |= keep_newest(&mut state.messages);
    was_cut |= keep_newest(&mut state.tools);
    for message in &mut state.messages {
        was_cut |= cut(&mut message.message_id, NAME_BYTES) | cut(&mut message.role, NAME_BYTES);
        was_cut |= keep_newest(&mut message.blocks);
        for block in &mut message.blocks {
            was_cut |= cut(&mut block.text, TEXT_BYTES);
            was_cut |= drop_large(&mut block.value);
        }
    }
    for tool in &mut state.tools {
        was_cut |= cut(&mut tool.tool_call_id, NAME_BYTES)
            | cut(&mut tool.message_id, NAME_BYTES)
            | cut(&mut tool.tool_name, NAME_BYTES)
            | drop_large(&mut tool.args);
    }
    if was_cut {
        const CUT: &str = "what came before is longer than is kept";
        if !state.diagnostics.iter().any(|known| known == CUT) {
            state.diagnostics.push(CUT.to_owned());
        }
        state.diagnostics.truncate(DIAGNOSTICS);
    }
}

fn keep_newest<T>(items: &mut Vec<T>) -> bool {
    let surplus = items.len().saturating_sub(ITEMS);
    items.drain(..surplus);
    0 < surplus
}

fn cut(text: &mut String, most: usize) -> bool {
    let is_long = most < text.len();
    if is_long {
        let mut end = most;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    is_long
}

fn drop_large(value: &mut Option<Value>) -> bool {
    let is_large = value
        .as_ref()
        .is_some_and(|value| TEXT_BYTES < value.to_string().len());
    if is_large {
        *value = None;
    }
    is_large
}
