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

use holdpoint_workflows::RunId;
use holdpoint_workflows::definition::Parked;

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

/// An attempt in line. Its call has the id of its request.
pub(crate) struct Wait {
    pub(crate) key: i64,
    pub(crate) run: RunId,
    pub(crate) call: Call,
}

/// Puts an attempt at the end of the line of this change's budget.
pub(crate) fn insert_wait(
    change: &mut Change<'_>,
    units: i64,
    parked: &Parked,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO budget_waits (budget_key, request_id, run_id, units, state, asked_at)
             VALUES (:budget_key, :request_id, :run_id, :units, 'waiting', :now)",
        )?
        .execute(named_params! {
            ":budget_key": key, ":request_id": parked.request_id, ":run_id": parked.run_id, ":units": units,
            ":now": change.now(),
        })?;
    expect_one(written, "budget_waits", &parked.request_id)
}

/// The line of this change's budget, oldest first; of a very long one its head.
pub(crate) fn line(change: &mut Change<'_>) -> Result<Vec<Wait>, StateError> {
    let key = change.resource_key()?;
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT wait_key, run_id, request_id, units FROM budget_waits
         WHERE budget_key = :budget_key AND state = 'waiting' ORDER BY wait_key LIMIT 100",
    )?;
    let waits = statement.query_map(named_params! { ":budget_key": key }, |row| {
        Ok(Wait {
            key: row.get(0)?,
            run: row.get(1)?,
            call: Call {
                id: row.get(2)?,
                units: row.get(3)?,
            },
        })
    })?;
    Ok(waits.collect::<Result<_, _>>()?)
}

/// Takes an attempt out of the line.
pub(crate) fn end_wait(
    change: &mut Change<'_>,
    wait: i64,
    state: &'static str,
) -> Result<(), StateError> {
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE budget_waits SET state = :state WHERE wait_key = :wait AND state = 'waiting'",
        )?
        .execute(named_params! { ":wait": wait, ":state": state })?;
    expect_one(written, "budget_waits", &wait.to_string())
}
