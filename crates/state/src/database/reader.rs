//! Readers: pooled `query_only` connections, each snapshot one read transaction. A reader never repairs, migrates or claims.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::Shared;
use super::open::{Opened, Stamp};
use crate::clock::MonotonicMillis;
use crate::command::Sql;
use crate::error::StateError;

/// For how long a reader waits for another one's connection: about what opening one takes.
const PATIENCE: Duration = Duration::from_millis(2);
/// From when on somebody reads for long, in milliseconds.
const LONG_MS: u64 = 20;

pub(crate) struct ReaderPool {
    stamp: Arc<Stamp>,
    busy_timeout_ms: u64,
    idle_limit: usize,
    state: Mutex<PoolState>,
    given_back: Condvar,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<Connection>,
    /// When each open snapshot was made, by its number.
    open: BTreeMap<u64, MonotonicMillis>,
    next_number: u64,
    /// How many connections were taken and are not given back yet.
    taken: usize,
    /// How many wait for one.
    waiting: usize,
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
            given_back: Condvar::new(),
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
        let connection = self.take(shared.options.clock.monotonic())?;
        let begun = connection
            .prepare_cached("BEGIN DEFERRED")
            .and_then(|mut statement| statement.execute([]))
            .map_err(StateError::from)
            // The first read: it fixes the snapshot, and finds a file or a schema that was changed since.
            .and_then(|_| self.check(&connection));
        if let Err(error) = begun {
            self.give_back(None);
            return Err(error);
        }
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
        let pooled = self.lock().idle.pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => self.connect()?,
        };
        // SQLite answers outside a transaction only. This mode moves nothing (<https://www.sqlite.org/pragma.html#pragma_wal_checkpoint>).
        let (frames, moved): (i64, i64) =
            connection.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| {
                Ok((row.get(1)?, row.get(2)?))
            })?;
        self.put(connection);
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

    /// A connection of the pool. When many read at once, one of them will be done sooner than another connection is opened; who reads
    /// for long is not waited for.
    fn take(&self, now: MonotonicMillis) -> Result<Connection, StateError> {
        let mut state = self.lock();
        // The oldest first.
        let long = state
            .open
            .values()
            .take_while(|since| LONG_MS <= now.since(**since))
            .count();
        if state.idle.is_empty() && self.idle_limit.saturating_add(long) <= state.taken {
            state.waiting += 1;
            let waited = self
                .given_back
                .wait_timeout_while(state, PATIENCE, |state| state.idle.is_empty());
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
        }
        let pooled = state.idle.pop();
        state.taken += 1;
        drop(state);
        match pooled {
            Some(connection) => Ok(connection),
            None => self.connect().inspect_err(|_| self.give_back(None)),
        }
    }

    /// Ends what [`ReaderPool::take`] began. A connection that can't be used again is none.
    fn give_back(&self, connection: Option<Connection>) {
        self.lock().taken -= 1;
        if let Some(connection) = connection {
            self.put(connection);
        }
    }

    /// Keeps a connection for the next reader, unless enough are kept.
    fn put(&self, connection: Connection) {
        let mut state = self.lock();
        if state.idle.len() < self.idle_limit {
            state.idle.push(connection);
            if 0 < state.waiting {
                self.given_back.notify_one();
            }
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

    /// The same, for what SQLite asks the whole connection for.
    #[cfg(feature = "testing")]
    pub(crate) fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
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
        self.pool.give_back(ended.is_ok().then_some(connection));
    }
}
