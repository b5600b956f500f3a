//! Writes of the budgets domain: the only room with INSERT, UPDATE or DELETE, on its own tables, and what a command reads before.
//!
//! Not here: whether a change is right (`model`, `commands`), reading for people (`views`), the clock, other I/O.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Change, StateError};

use crate::error::BudgetError;
use crate::model::{Account, Answer, Call, Limit};

/// Writes the row of the budget that this change makes.
pub(crate) fn insert(change: &mut Change<'_>, limit: Limit) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO budgets
                 (resource_key, name, limit_units, window_ms, window_started_at, spent_units)
             VALUES (:resource_key, :name, :limit_units, :window_ms, :window, 0)",
        )?
        .execute(named_params! {
            ":resource_key": key, ":name": change.resource().key(), ":limit_units": limit.units,
            ":window_ms": limit.window_ms, ":window": limit.window_at(change.now()),
        })?;
    expect_one(written, "budgets", change.resource().key())
}

/// The account of this change's budget, as it was written last.
pub(crate) fn account(change: &mut Change<'_>) -> Result<Account, StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached(
            "SELECT limit_units, window_ms, window_started_at, spent_units FROM budgets
             WHERE resource_key = :resource_key",
        )?
        .query_row(named_params! { ":resource_key": key }, |row| {
            Ok(Account {
                limit: Limit {
                    units: row.get(0)?,
                    window_ms: row.get(1)?,
                },
                window: row.get(2)?,
                spent_units: row.get(3)?,
            })
        })
        .map_err(StateError::from)
}

/// Writes what the account of this change's budget is from now on.
pub(crate) fn set_account(change: &mut Change<'_>, account: Account) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE budgets SET limit_units = :limit_units, window_started_at = :window, spent_units = :spent_units
             WHERE resource_key = :resource_key AND window_started_at <= :window",
        )?
        .execute(named_params! {
            ":resource_key": key, ":limit_units": account.limit.units,
            ":window": account.window, ":spent_units": account.spent_units,
        })?;
    expect_one(written, "budgets", change.resource().key())
}

/// Writes what a call asked and was told.
pub(crate) fn insert_call(
    change: &mut Change<'_>,
    call: &Call,
    window: UnixMillis,
    granted: bool,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO budget_calls (call_id, budget_key, units, granted, window_started_at, decided_at)
             VALUES (:call_id, :budget_key, :units, :granted, :window, :now)",
        )?
        .execute(named_params! {
            ":call_id": call.id, ":budget_key": key, ":units": call.units,
            ":granted": granted, ":window": window, ":now": change.now(),
        })?;
    expect_one(written, "budget_calls", &call.id)
}

/// What the same call was told before; an error when it asked for something else then.
pub(crate) fn earlier_answer(
    change: &mut Change<'_>,
    call: &Call,
) -> Result<Option<Result<Answer, BudgetError>>, StateError> {
    let key = change.resource_key()?;
    let earlier = change
        .sql()
        .prepare_cached(
            "SELECT c.budget_key = :budget_key AND c.units = :units, c.granted, c.window_started_at + b.window_ms
             FROM budget_calls c JOIN budgets b ON b.resource_key = c.budget_key
             WHERE c.call_id = :call_id",
        )?
        .query_row(
            named_params! { ":call_id": call.id, ":budget_key": key, ":units": call.units },
            |row| {
                let (is_same, granted): (bool, bool) = (row.get(0)?, row.get(1)?);
                let answer = if granted {
                    Answer::Granted
                } else {
                    Answer::Refused {
                        next_window_at: row.get(2)?,
                    }
                };
                Ok(is_same.then_some(answer))
            },
        )
        .optional()?;
    Ok(earlier.map(|answer| {
        answer.ok_or_else(|| BudgetError::OtherCall {
            call_id: call.id.clone(),
        })
    }))
}
