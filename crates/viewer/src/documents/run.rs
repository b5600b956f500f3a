//! A run as the client reads it: list entry, view, state, steps, trace and what is queued or published beside them.

use serde::Serialize;
use serde_json::{Map, Number, Value};

use super::content::Shown;
use super::schema;
use super::session::Session;
use super::window::Window;
use super::words::{Activity, Control, Outcome, Scope, Status, Timestamp};

/// What the user sees everywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Display {
    /// The status word.
    pub status: Status,
    /// Who makes it go on.
    pub activity: Option<Activity>,
    /// What can be done.
    pub controls: Vec<Control>,
    /// Why it is so, in a sentence.
    pub reason: Option<String>,
}

/// Where the parts of a run lie: with the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paths {
    state: &'static str,
    trace: &'static str,
    workflow: &'static str,
}

/// Where a definition came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Source {
    /// A file.
    File {
        /// Its path.
        path: String,
        /// The digest of its text.
        hash: String,
    },
    /// A workflow that the program has.
    Builtin {
        /// Its id.
        id: String,
        /// Its revision.
        revision: String,
    },
}

/// What identifies a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub(crate) schema: &'static str,
    pub(crate) trace_schema: &'static str,
    pub(crate) paths: Paths,
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow_name: String,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// The source of its workflow, if it has a public one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_source: Option<Source>,
    /// Its status for people.
    pub status: Status,
    /// When it was first executed; until then, when it was reserved.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

impl Manifest {
    /// A manifest of what is always there.
    pub fn new(
        (run_id, workflow_name): (&str, &str),
        status: Status,
        started_at: Timestamp,
    ) -> Self {
        Self {
            schema: schema::MANIFEST,
            trace_schema: schema::TRACE_EVENT,
            paths: Paths {
                state: "server",
                trace: "server",
                workflow: "server",
            },
            run_id: run_id.to_owned(),
            workflow_name: workflow_name.to_owned(),
            run_title: None,
            workflow_source: None,
            status,
            started_at,
            finished_at: None,
        }
    }
}

/// A run in the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListEntry {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow_name: String,
    /// Its origin session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_session_id: Option<String>,
    /// What identifies it.
    pub manifest: Manifest,
    /// Its status.
    pub display: Display,
    /// Whether somebody works on it at this moment.
    pub live: bool,
    /// Whether it should go on and nobody works on it.
    pub possibly_interrupted: bool,
    /// When it was reserved.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// A finished attempt that was accepted as a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepRecord {
    /// The attempt.
    pub attempt_id: String,
    /// The node.
    pub node_id: String,
    /// The kind of the node.
    pub node_type: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// What an agent was told.
    pub prompt: Shown,
    /// What it gave.
    pub output: Shown,
    /// Why it has no output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What a shell or a function did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// Which entries of the session belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation: Option<Conversation>,
    /// The scope of the settings that it read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings_scope_id: Option<String>,
    /// Their change number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings_change_number: Option<u64>,
    /// Their digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings_hash: Option<String>,
}

/// What an action did.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// `shell` or `function`.
    pub action_type: String,
    /// The program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Where it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<Value>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Value>,
    /// How long it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<Number>,
}

/// A range of entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conversation {
    /// The first.
    pub first_entry_id: String,
    /// The last.
    pub last_entry_id: String,
}

/// A step as the graph needs it: a step record without contents.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GraphStep {
    /// The attempt.
    pub attempt_id: String,
    /// The node.
    pub node_id: String,
    /// The kind of the node.
    pub node_type: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// Always null.
    pub prompt: (),
    /// Always null.
    pub output: (),
    /// Its place in the history.
    pub step_index: u64,
    /// The how-manieth visit of its node it is, from 1: true however many visits the document has room for.
    pub visit: u64,
}

/// An event of the trace.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceEvent {
    /// Its place, from 1: the revision of the run that it led to.
    pub seq: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What it is about.
    pub scope: Scope,
    /// What happened.
    #[serde(rename = "type")]
    pub event_type: String,
    /// The run.
    pub run_id: String,
    /// The node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_id: Option<String>,
    /// The attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// What else is known of it.
    pub payload: Shown,
}

/// A scope of live settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsScope {
    /// Its id.
    pub scope_id: String,
    /// The mount that has it; the root has the empty path.
    pub mount_path: String,
    /// The invocation.
    pub invocation: u64,
    /// How often it was changed.
    pub change_number: u64,
    /// The document.
    pub settings: Shown,
}

/// A prompt that is queued for the origin session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUp {
    /// Its id.
    pub follow_up_id: String,
    /// Its place, from 1.
    pub order: u64,
    /// What became of it.
    pub state: &'static str,
    /// What the session is asked.
    pub prompt: Shown,
}

/// What is queued.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FollowUpQueue {
    /// What the session does with it at this moment.
    pub presentation_state: &'static str,
    /// The prompts.
    pub items: Vec<FollowUp>,
}

/// A value that an attempt published and that holds now.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Update {
    /// Its number in the attempt.
    pub seq: u64,
    /// Its type.
    #[serde(rename = "type")]
    pub update_type: String,
    /// Its key.
    pub key: String,
    /// The node that published it.
    pub node_id: String,
    /// The value.
    pub data: Shown,
}

/// The state of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunState {
    pub(crate) schema: &'static str,
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow_name: String,
    /// Its title.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_title: Option<String>,
    /// The run that it restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<String>,
    /// The source of its workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_source: Option<Source>,
    /// Its status, as stored.
    pub status: Status,
    /// Whether somebody paused it.
    pub paused: bool,
    /// What it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_detail: Option<String>,
    /// Its revision, which is the number of its events.
    pub trace_seq: u64,
    /// When it was first executed; until then, when it was reserved.
    pub started_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    /// The node that is executed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_node: Option<String>,
    /// The attempt that goes on now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_attempt_id: Option<String>,
    /// When that began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_node_started_at: Option<Timestamp>,
    /// The node that it waits at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_on: Option<String>,
    /// Its error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its input.
    pub input: Shown,
    /// Its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_output: Option<Shown>,
    /// Always empty: the outputs of a long run are no page. Each step has its own.
    pub outputs: Map<String, Value>,
    /// Always empty, as the outputs are.
    pub results: Map<String, Value>,
    /// The end of its history.
    pub steps: Vec<StepRecord>,
    /// What its present attempt published.
    pub updates: Vec<Update>,
}

/// A run as the client shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    pub(crate) schema: &'static str,
    /// The run.
    pub run_id: String,
    /// Grows with each change of anything in this document that a transaction made.
    pub revision: u64,
    /// The revision that commands take.
    pub run_revision: u64,
    /// Its status for people.
    pub display: Display,
    /// What identifies it.
    pub manifest: Manifest,
    /// Whether somebody works on it at this moment.
    pub live: bool,
    /// Whether it should go on and nobody works on it.
    pub possibly_interrupted: bool,
    /// Its state.
    pub state: RunState,
    /// The index of the first step of the state.
    pub step_start: u64,
    /// How many steps there are.
    pub step_total: u64,
    /// Its definition, or a reference to it.
    pub workflow: Shown,
    /// The graph through the last step.
    pub graph_steps: Vec<GraphStep>,
    /// The last step; 0 when there is none.
    pub graph_cursor: u64,
    /// The edges that were taken.
    pub taken_transitions: Vec<String>,
    /// The end of its trace.
    pub trace_page: Window<TraceEvent>,
    /// Its sessions.
    pub session: Session,
    /// Its settings.
    pub settings_scopes: Vec<SettingsScope>,
    /// The index of the first of them.
    pub settings_start: u64,
    /// How many there are.
    pub settings_total: u64,
    /// What is queued for its session; none when nothing ever was.
    pub follow_up_queue: Option<FollowUpQueue>,
    /// The index of the first of it.
    pub follow_up_start: u64,
    /// How many there are.
    pub follow_up_total: u64,
    /// The index of the first update of the state.
    pub update_start: u64,
    /// How many there are.
    pub update_total: u64,
}
