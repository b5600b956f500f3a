//! What readers see: pure projections of committed rows. SELECT only; nothing is repaired, stored or cached here.
//!
//! Every surface shows the status that [`display_status`] gives; none has a second reducer.

mod capture;
mod display;
mod due;
mod end;
mod explain;
mod follow_ups;
mod list;
mod load;
mod messages;
pub mod pages;
mod run;
mod settings;
mod updates;
mod workers;

pub use capture::{
    EntryView, EventView, LinkView, PAGE_BYTES, PAGE_ROWS, RecordPage, SegmentView, attempt_links,
    prompt, recordings, session_entries, session_events,
};
pub(crate) use capture::{abandoned_recordings, recordings_of_dead};
pub use display::{
    Activity, Control, DisplayFacts, DisplayStatus, activity, controls, display_status,
};
pub(crate) use due::{due, next_expiry};
pub use end::RunEnd;
pub(crate) use end::end;
pub use explain::{Explanation, Holder, explain};
pub use follow_ups::{FollowUpDisplay, FollowUpView, follow_ups};
pub use list::{Filter, Page, RunSummary, list};
pub(crate) use load::{Asked, LoadedRun, OpenAttempt, definition_snapshot, load, pinned};
pub use messages::{
    AgentRequestView, MessageView, TerminalView, TurnView, Verdict, agent_requests,
    messages_of_run, messages_of_session, next_message, terminal_view, verdict,
};
pub(crate) use messages::{
    message, open_clocks, owes_end, owing, resting_clock, runs_of_session, session_of,
    terminal_facts,
};
pub(crate) use run::may_have_stopped;
pub use run::{
    EffectToReview, MountedSourceView, RequestView, RunView, SettingsRead, SourceView, StepView,
    launch_options, run,
};
pub(crate) use settings::{ScopeToChange, document, present_settings, scope_to_change};
pub use settings::{SettingsChangeView, SettingsHistory, SettingsView, settings, settings_history};
pub use updates::{ProgressView, UpdateView, current_progress, update_history, updates};
pub(crate) use workers::saved_answer;
pub use workers::{WorkerView, workers};

use holdpoint_state::sql::Row;
use serde_json::Value;

/// Stored JSON of a column, if there is any. What can't be read is shown as such and breaks nothing.
fn json_column(
    row: &Row<'_>,
    index: usize,
) -> Result<Option<Value>, holdpoint_state::sql::SqlError> {
    let bytes: Option<Vec<u8>> = row.get(index)?;
    Ok(bytes.map(|bytes| {
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|error| serde_json::json!({ "undecodable": error.to_string() }))
    }))
}

/// Stored text of a blob column.
fn text_column(
    row: &Row<'_>,
    index: usize,
) -> Result<Option<String>, holdpoint_state::sql::SqlError> {
    let bytes: Option<Vec<u8>> = row.get(index)?;
    Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}
