//! Writes of the decisions domain: the only room with INSERT, UPDATE or DELETE, on its own tables.
//!
//! Not here: whether a change is right (`model`, `commands`), reading for people (`views`), the clock, other I/O.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Change, StateError};

/// Writes the row of the decision that this change makes.
pub(crate) fn insert(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO decisions (resource_key, name, created_at)
             VALUES (:resource_key, :name, :now)",
        )?
        .execute(named_params! {
            ":resource_key": key, ":name": change.resource().key(), ":now": change.now(),
        })?;
    expect_one(written, "decisions", change.resource().key())
}
