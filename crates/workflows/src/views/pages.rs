//! Parts of one run, and of the list of runs, that cost what they show and not what the run or the list has: for read models and screens.
//!
//! Each takes a [`Snapshot`](holdpoint_state::Snapshot) or a [`Change`](holdpoint_state::Change), so that a projector sees in its
//! transaction what readers see after it. A large value is measured and left where it is. Positions are those of the rows themselves;
//! nothing is counted. Not here: documents, windows, and words for people.

mod facts;
mod records;
mod steps;

pub use facts::{OpenVisit, RunFacts, RunValues, facts, key_of, newest, run_behind, total, values};
pub use records::{
    EntryRow, EventRow, FollowUpRow, RecordTotals, ScopeRow, Segment, UpdateRow, entries, events,
    follow_up_total, follow_ups, newest_entry_at, record_totals, segment, settings, settings_total,
    update_places, updates,
};
pub use steps::{StepLink, StepRow, TraceRow, definition, linked_step, steps, trace};

use holdpoint_state::Digest;
use holdpoint_state::sql::{Row, SqlError};

/// A stored value: its digest and its size, and its bytes if they are not more than was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// SHA-256 of its bytes, which is also where it lies when it is large.
    pub digest: Digest,
    /// How many bytes it has.
    pub size_bytes: u64,
    /// Whether it is canonical JSON; otherwise it is text.
    pub is_json: bool,
    /// Its bytes, unless there are too many.
    pub content: Option<Vec<u8>>,
}

impl Stored {
    /// The JSON value, if it is there. What can't be read is shown as such and breaks nothing.
    pub fn json(&self) -> Option<serde_json::Value> {
        self.content.as_deref().map(|bytes| {
            serde_json::from_slice(bytes)
                .unwrap_or_else(|error| serde_json::json!({ "undecodable": error.to_string() }))
        })
    }

    /// The text, if it is there.
    pub fn text(&self) -> Option<String> {
        self.content
            .as_deref()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// A value in a blob: hash, length and content from column `at` on.
fn blob(row: &Row<'_>, at: usize, is_json: bool) -> Result<Option<Stored>, SqlError> {
    let Some(digest) = row.get::<_, Option<Digest>>(at)? else {
        return Ok(None);
    };
    Ok(Some(Stored {
        digest,
        size_bytes: row
            .get::<_, Option<i64>>(at + 1)?
            .unwrap_or(0)
            .unsigned_abs(),
        is_json,
        content: row.get(at + 2)?,
    }))
}

/// A value beside its digest or in a blob: digest and bytes, then as [`blob`].
fn inline_or_blob(row: &Row<'_>, at: usize) -> Result<Option<Stored>, SqlError> {
    let Some(digest) = row.get::<_, Option<Digest>>(at)? else {
        return blob(row, at + 2, true);
    };
    let content: Vec<u8> = row.get(at + 1)?;
    Ok(Some(Stored {
        digest,
        size_bytes: u64::try_from(content.len()).unwrap_or(u64::MAX),
        is_json: true,
        content: Some(content),
    }))
}

/// A number that is never negative.
fn unsigned(row: &Row<'_>, at: usize) -> Result<u64, SqlError> {
    Ok(row.get::<_, i64>(at)?.unsigned_abs())
}

/// A position as SQLite has it.
fn position(place: u64) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX)
}
