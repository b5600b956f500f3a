//! Writes of the controllers domain: the only rooms with INSERT, UPDATE or DELETE, on its own tables.
//!
//! Not here: whether a change is right (`model`, `commands`), reading for people (`views`), the clock, other I/O.

pub(crate) mod children;
pub(crate) mod queue;
pub(crate) mod resources;
pub(crate) mod retention;

use holdpoint_state::{Change, Content, Payload, StateError};

/// A counter as SQLite stores it.
pub(crate) fn integer(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

/// A stored error, within its length.
pub(crate) fn keep_error(
    change: &mut Change<'_>,
    error: Option<&str>,
) -> Result<Option<Content>, StateError> {
    match error {
        Some(error) => Ok(Some(
            change.keep(&Payload::json(&crate::model::cut(error))?)?,
        )),
        None => Ok(None),
    }
}
