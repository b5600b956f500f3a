//! The public verbs. Each checks its input, builds a command and calls the store, in one transaction, and can be sent twice.
//!
//! Not here: SQL (`store`), other I/O (a handler of an effect).

use std::collections::BTreeMap;

use holdpoint_state::{
    Actor, Change, Command, Database, NewEffect, Outcome, OwnerScope, Payload, Receipt, StateError,
};

use holdpoint_workflows::definition::Parked;
use holdpoint_workflows::{WorkflowError, commands as workflows};
use serde_json::json;

use crate::error::BudgetError;
use crate::model::{Account, Admitted, Answer, Call, Limit, Name};
use crate::{WARN, operations, store};

/// Opens a budget. Repeating it with the same limit adopts the earlier one.
///
/// # Errors
///
/// [`BudgetError::OtherLimit`], and those of the state layer. Nothing was written.
pub fn open(
    db: &Database,
    name: &Name,
    limit: Limit,
    by: Actor,
) -> Result<Receipt<()>, BudgetError> {
    let payload = Payload::json(&BTreeMap::from([
        ("limitUnits", limit.units),
        ("windowMs", limit.window_ms),
    ]))?;
    let command = Command::new(&operations::OPEN, name.resource())
        .by(by)
        .creating()
        .recording(payload);
    db.commit(command, move |change| {
        if change.is_new() {
            store::insert(change, limit)?;
            return Ok(Outcome::Accepted(()));
        }
        if store::account(change)?.limit == limit {
            return Ok(Outcome::Adopted(()));
        }
        Err(BudgetError::OtherLimit {
            budget: change.resource().key().to_owned(),
        })
    })
}

/// Spends units for one call, if the present window has them. Repeating the call gives its first answer again.
///
/// A refused call is recorded too, as an audit row, so it comes back in `Ok`.
///
/// # Errors
///
/// [`BudgetError::OtherCall`], and those of the state layer. Nothing was written.
pub fn spend(
    db: &Database,
    name: &Name,
    call: &Call,
    by: Actor,
) -> Result<Receipt<Answer>, BudgetError> {
    let call = call.clone();
    let command = Command::new(&operations::SPEND, name.resource()).by(by);
    db.commit(command, move |change| {
        if let Some(earlier) = store::earlier_answer(change, &call)? {
            return earlier.map(Outcome::Adopted);
        }
        let account = store::account(change)?.at(change.now());
        match account.judge(call.units) {
            Ok(after) => {
                store::set_account(change, after)?;
                store::insert_call(change, &call, after.window, true)?;
                change.record(Payload::json(&BTreeMap::from([("units", call.units)]))?);
                warn(change, account, after)?;
                Ok(Outcome::Accepted(Answer::Granted))
            }
            Err(refused) => {
                store::insert_call(change, &call, account.window, false)?;
                Ok(Outcome::Refused(refused))
            }
        }
    })
}

/// Sets another number of units, against the revision that the caller read. What is spent stays spent.
///
/// # Errors
///
/// [`BudgetError::Units`] unless the units are positive; [`StateError::StaleRevision`] when the budget changed since, also by a
/// call that spent from it: read it again. Nothing was written.
pub fn resize(
    db: &Database,
    name: &Name,
    units: i64,
    expected_revision: u64,
    by: Actor,
) -> Result<Receipt<()>, BudgetError> {
    if units <= 0 {
        return Err(BudgetError::Units);
    }
    let command = Command::new(&operations::RESIZE, name.resource())
        .by(by)
        .expecting(expected_revision)
        .recording(Payload::json(&BTreeMap::from([("limitUnits", units)]))?);
    db.commit(command, move |change| {
        let account = store::account(change)?;
        let limit = Limit {
            units,
            ..account.limit
        };
        store::set_account(change, Account { limit, ..account })?;
        Ok(Outcome::Accepted(()))
    })
}

/// Puts an attempt in line, inside the change of its run: the attempt is parked exactly when it has its place.
pub(crate) fn wait(
    change: &mut Change<'_>,
    name: &Name,
    units: i64,
    parked: &Parked,
) -> Result<(), BudgetError> {
    let command = Command::new(&operations::WAIT, name.resource()).by(change.actor().clone());
    change.also(&command, |change| {
        let limit = store::account(change)?.limit;
        if limit.units < units {
            return Err(BudgetError::AboveLimit {
                budget: name.as_str().to_owned(),
                limit_units: limit.units,
                units,
            });
        }
        store::insert_wait(change, units, parked)?;
        Ok(Outcome::Accepted(()))
    })?;
    Ok(())
}

/// Serves the attempts in line, oldest first, as far as the present window goes: units are spent, and the attempts settled, in one
/// transaction. Nobody overtakes: who wants more than is left keeps the others waiting until the next window.
///
/// # Errors
///
/// Those of the state layer and of the workflows. Nothing was written.
pub fn admit(db: &Database, name: &Name, by: Actor) -> Result<Receipt<Admitted>, BudgetError> {
    let command = Command::new(&operations::ADMIT, name.resource()).by(by);
    db.commit(command, move |change| {
        let before = store::account(change)?.at(change.now());
        let mut account = before;
        let mut admitted = Admitted {
            runs: Vec::new(),
            next_window_at: None,
        };
        let line = store::line(change)?;
        let is_empty = line.is_empty();
        for wait in line {
            let Ok(after) = account.judge(wait.call.units) else {
                admitted.next_window_at = Some(account.window.plus(account.limit.window_ms));
                break;
            };
            let answer = json!({ "units": wait.call.units });
            let settled =
                workflows::settle(change, &wait.run, &wait.call.id, (&wait.call.id, &answer));
            match settled {
                Ok(_) => {
                    account = after;
                    store::insert_call(change, &wait.call, account.window, true)?;
                    store::end_wait(change, wait.key, "granted")?;
                    admitted.runs.push(wait.run);
                }
                // Its run ended, and with it the request.
                Err(
                    WorkflowError::Conflict { .. }
                    | WorkflowError::Rejected { .. }
                    | WorkflowError::NoRun { .. }
                    | WorkflowError::NoRequest { .. },
                ) => store::end_wait(change, wait.key, "gone")?,
                Err(error) => return Err(error.into()),
            }
        }
        if is_empty || (admitted.runs.is_empty() && admitted.next_window_at.is_some()) {
            return Ok(Outcome::Adopted(admitted));
        }
        if account != before {
            store::set_account(change, account)?;
            warn(change, before, account)?;
        }
        Ok(Outcome::Accepted(admitted))
    })
}

/// Reserves the warning when this change is the one that passes the mark: once in each window.
fn warn(change: &mut Change<'_>, before: Account, after: Account) -> Result<(), StateError> {
    let limit = after.limit;
    if limit.is_nearly_spent(before.spent_units) || !limit.is_nearly_spent(after.spent_units) {
        return Ok(());
    }
    let request = Payload::json(&BTreeMap::from([
        ("limitUnits", limit.units),
        ("nextWindowAt", after.window.plus(limit.window_ms).0),
        ("spentUnits", after.spent_units),
    ]))?;
    let warning = NewEffect::new(
        WARN,
        change.next_revision().to_string(),
        OwnerScope::System,
        request,
    );
    change.reserve_effect(&warning)?;
    Ok(())
}
