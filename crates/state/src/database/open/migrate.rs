//! Forward-only migrations: all steps from the file's version to the schema's in one transaction, or none.
//!
//! Called only under the turnstile. One transaction for all steps, because a step that leads nowhere must not leave the file at a
//! version between two programs.

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode};

use super::create::end;
use super::identity::{self, Standing};
use super::{Fault, Options};
use crate::error::Refusal;
use crate::records::schema_meta;
use crate::schema::{Migration, Schema, Shape};

/// Leads an older file to the schema's exact shape, unless somebody has done so. On an error the file is as it was.
pub(super) fn migrate(
    connection: &mut Connection,
    schema: &Schema,
    options: &Options,
) -> Result<(), Fault> {
    // Rebuilding a table drops the old one, which would cascade (<https://www.sqlite.org/lang_altertable.html>, section 7).
    // References are checked as a whole before the commit instead. The setting can't change inside a transaction.
    connection.pragma_update(None, "foreign_keys", "OFF")?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let result = steps(connection, schema, options);
    let result = end(connection, result);
    let restored = connection.pragma_update(None, "foreign_keys", "ON");
    result?;
    restored?;
    Ok(())
}

/// The whole way, inside the write lock. The version is read again here: another program may have been faster, also a newer one.
fn steps(connection: &mut Connection, schema: &Schema, options: &Options) -> Result<(), Fault> {
    let version = match identity::read(connection, schema)? {
        Standing::Whole => return Ok(()),
        Standing::Empty => return Err(Refusal::Replaced.into()),
        Standing::Older { version } => version,
    };
    identity::damage(connection)?;
    let ahead = schema
        .migrations()
        .iter()
        .filter(|migration| version < migration.to_version);
    let mut last = None;
    for migration in ahead {
        step(connection, migration)?;
        last = Some(migration);
    }
    let Some(last) = last else {
        return Ok(());
    };
    check_goal(connection, schema, last)?;
    schema_meta::update(connection, schema, options.clock.now())?;
    match identity::read(connection, schema) {
        Ok(Standing::Whole) => Ok(()),
        Ok(Standing::Empty | Standing::Older { .. }) | Err(Fault::Refused(_)) => Err(failed(
            last,
            "the file has another identity or another schema_meta row after it",
        )
        .into()),
        Err(fault) => Err(fault),
    }
}

fn step(connection: &mut Connection, migration: &Migration) -> Result<(), Fault> {
    // A step that ended the transaction would leave half of the way in the file.
    connection.authorizer(Some(|context: AuthContext<'_>| match context.action {
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. } => Authorization::Deny,
        _ => Authorization::Allow,
    }))?;
    let run = connection.execute_batch(migration.sql);
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    run.map_err(|error| match error.sqlite_error_code() {
        // The machine's fault, not the step's.
        Some(
            ErrorCode::DiskFull
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseCorrupt,
        ) => Fault::Sqlite(error),
        Some(ErrorCode::AuthorizationForStatementDenied) => failed(
            migration,
            "it ends its transaction or names another file, which no migration may",
        )
        .into(),
        _ => failed(migration, &error.to_string()).into(),
    })?;
    connection.pragma_update(None, "user_version", migration.to_version)?;
    Ok(())
}

/// Whether the last step led to the exact shape, with whole references.
fn check_goal(connection: &Connection, schema: &Schema, last: &Migration) -> Result<(), Fault> {
    let differences = schema.shape().differences(&Shape::read(connection)?);
    if !differences.is_empty() {
        let problem = format!("it does not lead to the schema: {}", differences.join("; "));
        return Err(failed(last, &problem).into());
    }
    let broken = identity::broken_references(connection)?;
    if broken.is_empty() {
        Ok(())
    } else {
        Err(failed(last, &broken.join("; ")).into())
    }
}

fn failed(migration: &Migration, problem: &str) -> Refusal {
    Refusal::Migration {
        migration: migration.name.to_owned(),
        problem: problem.to_owned(),
    }
}
