//! Statements, bound to the domain in whose name they are prepared.
//!
//! Not here: who decides which domain that is (`change`), and how SQLite is asked (`database::guard`).

use rusqlite::{CachedStatement, Connection};

use crate::database::guard::StatementGuard;
use crate::error::StateError;

/// Statements for one domain. SQLite's authorizer refuses a statement that writes another domain's table when it is prepared, so
/// that executing costs nothing.
#[derive(Clone, Copy)]
pub struct Sql<'a> {
    connection: &'a Connection,
    guard: Option<(&'a StatementGuard, usize)>,
    /// The process that opened the connection, when this is another one, forked from it.
    opened_by: Option<u32>,
}

impl<'a> Sql<'a> {
    pub(crate) fn writing(
        connection: &'a Connection,
        guard: &'a StatementGuard,
        domain: usize,
    ) -> Self {
        Self {
            connection,
            guard: Some((guard, domain)),
            opened_by: None,
        }
    }

    pub(crate) fn reading(connection: &'a Connection) -> Self {
        Self {
            connection,
            guard: None,
            opened_by: None,
        }
    }

    /// In a forked child: nothing is prepared on the parent's connection.
    pub(crate) fn forked(connection: &'a Connection, opened_by: u32) -> Self {
        Self {
            opened_by: Some(opened_by),
            ..Self::reading(connection)
        }
    }

    /// A prepared statement from the cache. The text is a constant: SQL takes what varies as parameters only.
    ///
    /// # Errors
    ///
    /// [`StateError::StatementDenied`] when the statement writes a table of another domain, or is no `SELECT`, `INSERT`,
    /// `UPDATE` or `DELETE`. [`StateError::Forked`] in a child of the process that opened the database.
    pub fn prepare_cached(&self, sql: &'static str) -> Result<CachedStatement<'a>, StateError> {
        if let Some(opened_by) = self.opened_by {
            return Err(StateError::Forked { opened_by });
        }
        match self.guard {
            Some((guard, domain)) => guard.prepare(self.connection, domain, sql),
            None => prepare_reading(self.connection, sql),
        }
    }
}

/// A reader's statement. `query_only` alone is not enough: a `PRAGMA` could turn it off, and would stay with the pooled connection.
fn prepare_reading<'a>(
    connection: &'a Connection,
    sql: &'static str,
) -> Result<CachedStatement<'a>, StateError> {
    let denied = || StateError::StatementDenied {
        domain: "reader".to_owned(),
        statement: sql.to_owned(),
        source: rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_AUTH),
            None,
        ),
    };
    let text = sql.trim_ascii_start();
    let selects = ["SELECT", "WITH", "VALUES"].iter().any(|word| {
        text.get(..word.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(word))
    });
    if !selects {
        return Err(denied());
    }
    let statement = connection.prepare_cached(sql)?;
    if statement.readonly() {
        Ok(statement)
    } else {
        Err(denied())
    }
}

/// Whoever reads rows: a [`Snapshot`](crate::Snapshot), which sees what is committed, or a [`Change`](super::Change), which sees what its
/// own transaction wrote too. A view that takes either serves people and projectors by the same statements.
pub trait Reads {
    /// Statements that read; everything else is refused.
    fn reading(&self) -> Sql<'_>;
}

impl Reads for crate::database::Snapshot<'_> {
    fn reading(&self) -> Sql<'_> {
        self.sql()
    }
}

impl Reads for super::Change<'_> {
    fn reading(&self) -> Sql<'_> {
        self.reading_sql()
    }
}
