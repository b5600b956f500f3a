//! `attempt_active_intervals`.
//!
//! Not here: the anchors that elapsed time is measured from (`sessions`); a row alone can only be closed.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, StateError};

/// The number of the open interval of an attempt.
pub(crate) fn open(change: &mut Change<'_>, attempt: i64) -> Result<Option<i64>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT interval_number FROM attempt_active_intervals WHERE attempt_key = :attempt AND ended_at IS NULL",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| row.get(0))
        .optional()?)
}

/// Opens the next interval of an attempt and returns its number.
pub(crate) fn insert(change: &mut Change<'_>, attempt: i64) -> Result<i64, StateError> {
    let now = change.now();
    let number: i64 = change
        .sql()
        .prepare_cached(
            "SELECT coalesce(max(interval_number), 0) + 1 FROM attempt_active_intervals WHERE attempt_key = :attempt",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| row.get(0))?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO attempt_active_intervals (attempt_key, interval_number, started_at, observed_at)
             VALUES (:attempt, :number, :now, :now)",
        )?
        .execute(named_params! { ":attempt": attempt, ":number": number, ":now": now })?;
    expect_one(written, "attempt_active_intervals", &attempt)?;
    Ok(number)
}

/// Saves how long an open interval lasts by now; it never gets shorter. Returns false when it is not open any more.
pub(crate) fn observe(
    change: &mut Change<'_>,
    (attempt, number): (i64, i64),
    elapsed_ms: f64,
) -> Result<bool, StateError> {
    let now = change.now();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE attempt_active_intervals SET elapsed_ms = max(elapsed_ms, :elapsed), observed_at = :now
             WHERE attempt_key = :attempt AND interval_number = :number AND ended_at IS NULL",
        )?
        .execute(
            named_params! { ":attempt": attempt, ":number": number, ":elapsed": elapsed_ms, ":now": now },
        )?;
    Ok(written == 1)
}

/// Closes the open interval of an attempt at its last observation. Nothing is charged for what nobody measured.
pub(crate) fn close(change: &mut Change<'_>, attempt: i64) -> Result<(), StateError> {
    change
        .sql()
        .prepare_cached(
            "UPDATE attempt_active_intervals SET ended_at = observed_at WHERE attempt_key = :attempt AND ended_at IS NULL",
        )?
        .execute(named_params! { ":attempt": attempt })?;
    Ok(())
}

/// Closes the clock of the run of this change at its last observation.
pub(crate) fn close_of_run(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "UPDATE attempt_active_intervals SET ended_at = observed_at
             WHERE ended_at IS NULL AND attempt_key = (SELECT attempt_key FROM node_attempts
                 WHERE run_key = :key AND (status = 'pending' OR status = 'running' OR status = 'waiting'))",
        )?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

/// How long an attempt was worked on, as far as it was measured.
pub(crate) fn spent_ms(change: &mut Change<'_>, attempt: i64) -> Result<f64, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT total(elapsed_ms) FROM attempt_active_intervals WHERE attempt_key = :attempt",
        )?
        .query_row(named_params! { ":attempt": attempt }, |row| row.get(0))?)
}
