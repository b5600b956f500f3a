//! Writes of the decisions domain: the only room with INSERT, UPDATE or DELETE, on its own tables, and what a command reads before.
//!
//! Not here: whether a change is right (`model`, `commands`), reading for people (`views`), the clock, other I/O.

pub(crate) mod decisions;
pub(crate) mod resolutions;
pub(crate) mod retention;
pub(crate) mod submissions;

/// What SQLite has no type for. Revisions and lengths are far below.
pub(crate) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
