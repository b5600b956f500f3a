//! The public verbs. Each checks its input, builds a command and calls the store, in one transaction, and can be sent twice.
//!
//! Not here: SQL (`store`), other I/O (a handler of an effect).

use std::collections::BTreeMap;

use holdpoint_state::{
    Actor, Change, Command, Database, NewEffect, Outcome, OwnerScope, Payload, Receipt, StateError,
};

use crate::error::BudgetError;
use crate::model::{Account, Answer, Call, Limit, Name};
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
