//! Readers: pooled `query_only` connections, each snapshot one read transaction. A reader never repairs, migrates or claims.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use rusqlite::Connection;

use super::{Shared, open};
use crate::command::Sql;
use crate::error::StateError;

pub(crate) struct ReaderPool {
    path: PathBuf,
    busy_timeout_ms: u64,
    idle_limit: usize,
    idle: Mutex<Vec<Connection>>,
}

impl ReaderPool {
    pub(super) fn new(path: PathBuf, busy_timeout_ms: u64, idle_limit: usize) -> Self {
        Self {
            path,
            busy_timeout_ms,
            idle_limit,
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn snapshot<'a>(&'a self, shared: &'a Shared) -> Result<Snapshot<'a>, StateError> {
        let pooled = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => open::reader(&self.path, self.busy_timeout_ms)?,
        };
        connection.execute_batch("BEGIN DEFERRED")?;
        Ok(Snapshot {
            pool: self,
            shared,
            connection: Some(connection),
        })
    }
}

/// A view of the database at one instant: the first read fixes it. It blocks nobody and can't write.
///
/// Keep it short: the write-ahead log can't be reset past the oldest open snapshot.
pub struct Snapshot<'a> {
    pool: &'a ReaderPool,
    shared: &'a Shared,
    connection: Option<Connection>,
}

impl Snapshot<'_> {
    /// Statements that read. SQLite refuses everything else (`query_only`).
    pub fn sql(&self) -> Sql<'_> {
        // The connection is taken out only by `drop`.
        match &self.connection {
            Some(connection) => Sql::reading(connection),
            None => unreachable!("BUG: a snapshot without its connection"),
        }
    }

    /// The schema that the database was opened with.
    pub fn schema(&self) -> &crate::schema::Schema {
        &self.shared.schema
    }
}

impl std::fmt::Debug for Snapshot<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Snapshot")
            .field("path", &self.pool.path)
            .finish_non_exhaustive()
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.shared.check_process().is_err() {
            // A forked child must not close the parent's connection.
            std::mem::forget(connection);
            return;
        }
        if connection.execute_batch("ROLLBACK").is_err() {
            return;
        }
        let mut idle = self
            .pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.pool.idle_limit {
            idle.push(connection);
        }
    }
}
