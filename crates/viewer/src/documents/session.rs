//! The sessions of a run as the client reads them: entries, events, and the state that a replay begins with.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::Shown;
use super::schema;
use super::window::Window;
use super::words::Timestamp;

/// The sessions of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// The first session that was recorded for it.
    pub binding: Option<Binding>,
    /// The end of the entries.
    pub entry_page: Window<Entry>,
    /// The end of the events.
    pub event_page: Window<Event>,
    /// How far the recording is.
    pub capture: Option<Capture>,
    /// What is broken.
    pub integrity: Option<Integrity>,
    /// The state just before the first event of the window; none when that is the first of all.
    pub replay_checkpoint: Option<Checkpoint>,
}

/// Which session a run is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Binding {
    schema: &'static str,
    /// The run.
    pub run_id: String,
    /// The session.
    pub pi_session_id: String,
    /// Where it works; empty when that is not known.
    pub cwd: String,
    /// When it was bound.
    pub bound_at: Timestamp,
}

impl Binding {
    /// A binding.
    pub fn new(run_id: &str, session: &str, cwd: &str, bound_at: Timestamp) -> Self {
        Self {
            schema: schema::SESSION_BINDING,
            run_id: run_id.to_owned(),
            pi_session_id: session.to_owned(),
            cwd: cwd.to_owned(),
            bound_at,
        }
    }
}

/// Where a recording stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CaptureState {
    /// It goes on.
    Recording,
    /// It ended well.
    Complete,
    /// It broke off.
    Failed,
}

/// How far the recording of a run's sessions is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Capture {
    schema: &'static str,
    event_schema: &'static str,
    /// Where it stands.
    pub status: CaptureState,
    /// How many events there are.
    pub event_count: u64,
    /// How many entries there are.
    pub entry_count: u64,
    /// The number of the last event.
    pub last_event_seq: u64,
    /// Why it failed; present exactly when it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<CaptureFailure>,
}

impl Capture {
    /// A recording of so many entries and events.
    pub fn new(
        status: CaptureState,
        (entries, events): (u64, u64),
        failure: CaptureFailure,
    ) -> Self {
        Self {
            schema: schema::SESSION_CAPTURE,
            event_schema: schema::SESSION_EVENT,
            status,
            event_count: events,
            entry_count: entries,
            last_event_seq: events,
            failure: (status == CaptureState::Failed).then_some(failure),
        }
    }
}

/// Why a recording failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptureFailure {
    /// When.
    pub failed_at: String,
    /// What kind of failure it is.
    pub code: String,
    /// In words.
    pub message: String,
}

/// What is broken in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Integrity {
    /// Rows and their counts differ.
    pub malformed: bool,
    /// The end is missing. Never so here: what is recorded was committed.
    pub torn_tail: bool,
}

/// An entry of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its number in the run, from 1.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// The entry; its large parts are references.
    pub entry: Shown,
}

/// An event of a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its number in the run, from 1.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The node; empty when the session did not say.
    pub node_id: String,
    /// The attempt; empty when the session did not say.
    pub attempt_id: String,
    /// The turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// The call of a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// What the session said of it.
    pub payload: Shown,
}

/// A conversation, folded through an event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// The number of the last event in it.
    pub through_seq: u64,
    /// Messages, in the order in which they began.
    pub messages: Vec<Message>,
    /// Calls of tools, in the order in which they began.
    pub tools: Vec<Tool>,
    /// The entries that messages settled as.
    pub settled_entry_ids: Vec<String>,
    /// What was not as it should be.
    pub diagnostics: Vec<String>,
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Its id.
    pub message_id: String,
    /// Who speaks.
    pub role: String,
    /// Where it stands.
    pub status: MessageStatus,
    /// The entry that it settled as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry_id: Option<String>,
    /// Its parts.
    pub blocks: Vec<Block>,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageStatus {
    /// It is being said.
    Streaming,
    /// It was said.
    Finished,
    /// It broke off.
    Error,
    /// It is an entry of the session.
    Settled,
    /// It ended and is no entry of the session.
    Unsettled,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// Its place in the message.
    pub content_index: u64,
    /// What it is.
    pub kind: BlockKind,
    /// Its text.
    pub text: String,
    /// The call, of a part that is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// What a part of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BlockKind {
    /// What is said.
    Text,
    /// What is thought.
    Thinking,
    /// What a tool is asked.
    ToolCall,
}

/// The call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Its id.
    pub tool_call_id: String,
    /// The message that asks for it.
    pub message_id: String,
    /// The tool.
    pub tool_name: String,
    /// Where it stands.
    pub status: ToolStatus,
    /// What it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Value>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// How often it told of its progress.
    pub updates: u64,
}

/// Where a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolStatus {
    /// It goes on.
    Running,
    /// It ended well.
    Finished,
    /// It did not.
    Failed,
}
