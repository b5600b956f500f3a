//! Readers: pooled `query_only` connections, each snapshot one read transaction. A reader never repairs, migrates or claims.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use super::Shared;
use super::open::{Opened, Stamp};
use crate::clock::MonotonicMillis;
use crate::command::Sql;
use crate::error::StateError;

pub(crate) struct ReaderPool {
    stamp: Arc<Stamp>,
    busy_timeout_ms: u64,
    idle_limit: usize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// When each open snapshot was made, by its number.
    open: BTreeMap<u64, MonotonicMillis>,
    next_number: u64,
}

/// The snapshots that this process holds open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OpenSnapshots {
    pub(crate) count: usize,
    pub(crate) oldest_age_ms: Option<u64>,
}

impl ReaderPool {
    pub(super) fn new(stamp: Arc<Stamp>, busy_timeout_ms: u64, idle_limit: usize) -> Self {
        Self {
            stamp,
            busy_timeout_ms,
            idle_limit,
            state: Mutex::new(PoolState::default()),
        }
    }

    /// A connection of its own for who reads for long.
    pub(super) fn connect(&self) -> Result<Connection, StateError> {
        self.stamp.reader(self.busy_timeout_ms)
    }

    /// A connection of its own that deletes, for retention.
    pub(super) fn cleaner(&self) -> Result<Opened, StateError> {
        super::open::cleaner(&self.stamp, self.busy_timeout_ms)
    }

    /// Whether what `connection` reads is still the store that was verified.
    pub(super) fn check(&self, connection: &Connection) -> Result<(), StateError> {
        self.stamp.check_reader(connection)
    }

    /// Whether the file at the path is still the one that was verified. One `stat`.
    pub(super) fn check_file(&self) -> Result<(), StateError> {
        self.stamp.check_file()
    }

    pub(super) fn snapshot<'a>(&'a self, shared: &'a Shared) -> Result<Snapshot<'a>, StateError> {
        let connection = self.take()?;
        connection.prepare_cached("BEGIN DEFERRED")?.execute([])?;
        // The first read: it fixes the snapshot, and finds a file or a schema that was changed since.
        self.check(&connection)?;
        let mut state = self.lock();
        let number = state.next_number;
        state.next_number += 1;
        state.open.insert(number, shared.options.clock.monotonic());
        drop(state);
        Ok(Snapshot {
            pool: self,
            shared,
            connection: Some(connection),
            number,
        })
    }

    /// Frames in the write-ahead log, and how many of them are in the database file already.
    pub(crate) fn log_frames(&self) -> Result<(u64, u64), StateError> {
        let connection = self.take()?;
        // SQLite answers outside a transaction only. This mode moves nothing (<https://www.sqlite.org/pragma.html#pragma_wal_checkpoint>).
        let (frames, moved): (i64, i64) =
            connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })?;
        self.give_back(connection);
        // It says -1 before the log is first used.
        let count = |number| u64::try_from(number).unwrap_or(0);
        Ok((count(frames), count(moved)))
    }

    /// What is open now, as seen at `now`.
    pub(crate) fn open_snapshots(&self, now: MonotonicMillis) -> OpenSnapshots {
        let state = self.lock();
        OpenSnapshots {
            count: state.open.len(),
            oldest_age_ms: state.open.values().min().map(|since| now.since(*since)),
        }
    }

    fn take(&self) -> Result<Connection, StateError> {
        let pooled = self.lock().idle.pop();
        match pooled {
            Some(connection) => Ok(connection),
            None => self.connect(),
        }
    }

    fn give_back(&self, connection: Connection) {
        let mut state = self.lock();
        if state.idle.len() < self.idle_limit {
            state.idle.push(connection);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view of the database at one instant, that of its opening. It blocks nobody and can't write.
///
/// Keep it short: the write-ahead log can't be reset past the oldest open snapshot.
///
/// ```
/// use holdpoint_state::testing::{TestStore, counter};
///
/// let store = TestStore::counters()?;
/// counter::create(store.db(), "orders")?;
/// let before = store.db().snapshot()?;
/// counter::add(store.db(), "orders", 5)?;
/// assert_eq!(counter::value(&before, "orders")?, Some(0));
/// assert_eq!(counter::value(&store.db().snapshot()?, "orders")?, Some(5));
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
pub struct Snapshot<'a> {
    pool: &'a ReaderPool,
    shared: &'a Shared,
    connection: Option<Connection>,
    number: u64,
}

impl Snapshot<'_> {
    /// Statements that read. SQLite refuses everything else (`query_only`).
    pub fn sql(&self) -> Sql<'_> {
        match self.shared.check_process() {
            Ok(()) => Sql::reading(self.connection()),
            Err(_) => Sql::forked(self.connection(), self.shared.opened_by),
        }
    }

    /// The connection itself, for the rooms of this crate that read by other means than statements.
    pub(crate) fn connection(&self) -> &Connection {
        // The connection is taken out only by `drop`.
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("BUG: a snapshot without its connection"),
        }
    }

    pub(super) fn owners(&self) -> &super::Owners {
        &self.shared.owners
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
            .field("path", &self.pool.stamp.path)
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
        self.pool.lock().open.remove(&self.number);
        let ended = connection
            .prepare_cached("ROLLBACK")
            .and_then(|mut statement| statement.execute([]));
        if ended.is_ok() {
            self.pool.give_back(connection);
        }
    }
}
