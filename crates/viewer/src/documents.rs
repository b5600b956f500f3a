//! The wire documents: what the published client `piw` 0.16.6 reads, as types.
//!
//! Words of a closed set are enums, so that a word which the client does not know can't be written; user data goes through
//! [`Shown`], so that it can't be taken for a reference. A document is canonical JSON once
//! [`to_canonical`](holdpoint_state::json::to_canonical) wrote it. Not here: where the data comes from (`views`).

mod content;
mod page;
mod patch;
mod run;
mod session;
mod window;
mod words;

pub use content::{
    CHUNK_BYTES, ContentChunk, ContentPath, INLINE_BYTES, Reference, Shown, escape, unescape,
};
pub use page::{ListPage, Page, PageItems, PageKind};
pub use patch::{Delta, Misfit, Op, TargetType};
pub use run::{
    Action, Conversation, Display, FollowUp, FollowUpQueue, GraphStep, ListEntry, Manifest, Paths,
    RunState, RunView, SettingsScope, Source, StepRecord, TraceEvent, Update,
};
pub use session::{
    Binding, Block, BlockKind, Capture, CaptureFailure, CaptureState, Checkpoint, Entry, Event,
    Integrity, Message, MessageStatus, Session, Tool, ToolStatus,
};
pub use window::{Budget, Window};
pub use words::{Activity, Control, Outcome, Scope, Status, Timestamp, one_line};

/// The `schema` words.
pub mod schema {
    /// A run as the client shows it.
    pub const RUN_VIEW: &str = "pi-workflows.run-view.v1";
    /// The state inside a run view.
    pub const RUN_STATE: &str = "pi-workflows.run-state.v1";
    /// What a list says of a run.
    pub const MANIFEST: &str = "pi-workflows.run-manifest.v1";
    /// A page of the list of runs.
    pub const LIST_PAGE: &str = "pi-workflows.run-list-page.v1";
    /// A page of the history of a run.
    pub const RUN_PAGE: &str = "pi-workflows.run-page.v1";
    /// A part of a content.
    pub const CONTENT_CHUNK: &str = "pi-workflows.content-chunk.v1";
    /// An event of the trace.
    pub const TRACE_EVENT: &str = "pi-workflows.trace-event.v1";
    /// Which session a run is bound to.
    pub const SESSION_BINDING: &str = "pi-workflows.session-binding.v1";
    /// How far the recording of the sessions is.
    pub const SESSION_CAPTURE: &str = "pi-workflows.session-capture.v1";
    /// An event of a session.
    pub const SESSION_EVENT: &str = "pi-workflows.session-event.v1";
}
