//! Pages: parts of the list of runs and of the histories of one run.

use serde::Serialize;

use super::run::{FollowUp, GraphStep, ListEntry, SettingsScope, StepRecord, TraceEvent, Update};
use super::schema;
use super::session::{Checkpoint, Entry, Event};
use super::window::Window;

/// The histories of a run that can be paged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PageKind {
    /// Its steps.
    Steps,
    /// Its trace, by place.
    Trace,
    /// Its trace around a step.
    TraceAtStep,
    /// The entries of its sessions, near an event.
    SessionEntries,
    /// The events of its sessions.
    SessionEvents,
    /// The scopes of its settings.
    Settings,
    /// What is queued for its session.
    FollowUps,
    /// What its present attempt published.
    Updates,
}

impl PageKind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Steps,
        Self::Trace,
        Self::TraceAtStep,
        Self::SessionEntries,
        Self::SessionEvents,
        Self::Settings,
        Self::FollowUps,
        Self::Updates,
    ];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Trace => "trace",
            Self::TraceAtStep => "trace_at_step",
            Self::SessionEntries => "session_entries",
            Self::SessionEvents => "session_events",
            Self::Settings => "settings",
            Self::FollowUps => "follow_ups",
            Self::Updates => "updates",
        }
    }

    /// The kind of that word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The items of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(
    missing_docs,
    reason = "each is the item type of the kinds that have it"
)]
pub enum PageItems {
    Steps(Vec<StepRecord>),
    Trace(Vec<TraceEvent>),
    Entries(Vec<Entry>),
    Events(Vec<Event>),
    Settings(Vec<SettingsScope>),
    FollowUps(Vec<FollowUp>),
    Updates(Vec<Update>),
}

/// A part of one history of a run, around a cursor.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    pub(crate) schema: &'static str,
    /// The run.
    pub run_id: String,
    /// Which history.
    pub kind: PageKind,
    /// The cursor as it was asked for, not clamped.
    pub cursor: u64,
    /// The revision of the run view that it belongs to.
    pub revision: u64,
    /// The index of the first item.
    pub start: u64,
    /// How many there are in all.
    pub total: u64,
    /// The items.
    pub items: PageItems,
    /// For steps: the step that the graph is shown at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_cursor: Option<u64>,
    /// For steps: the graph through that step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph_steps: Option<Vec<GraphStep>>,
    /// For steps: the edges that were taken up to that step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_transitions: Option<Vec<String>>,
    /// For events: the state just before the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay_checkpoint: Option<Checkpoint>,
}

impl Page {
    /// A page without what only one kind has.
    pub fn new<T>(
        (run_id, revision): (&str, u64),
        (kind, cursor): (PageKind, u64),
        window: Window<T>,
        items: impl FnOnce(Vec<T>) -> PageItems,
    ) -> Self {
        Self {
            schema: schema::RUN_PAGE,
            run_id: run_id.to_owned(),
            kind,
            cursor,
            revision,
            start: window.start,
            total: window.total,
            items: items(window.items),
            graph_cursor: None,
            graph_steps: None,
            taken_transitions: None,
            replay_checkpoint: None,
        }
    }
}

/// A part of the list of runs, newest first.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPage {
    schema: &'static str,
    /// Changes whenever the list does.
    pub revision: String,
    /// The index of the first entry.
    pub start: u64,
    /// How many runs there are.
    pub total: u64,
    /// The entries.
    pub items: Vec<ListEntry>,
}

impl ListPage {
    /// A page.
    pub fn new(revision: String, window: Window<ListEntry>) -> Self {
        Self {
            schema: schema::LIST_PAGE,
            revision,
            start: window.start,
            total: window.total,
            items: window.items,
        }
    }
}
