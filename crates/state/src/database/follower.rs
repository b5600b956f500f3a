//! Following the events of every process, from a sequence number on.
//!
//! A writer holds the write lock from the sequence number's birth to its commit, so that numbers become visible in their order:
//! reading on from the last one misses nothing and repeats nothing. Not here: what an event is (`records::events`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::Shared;
use crate::command::Sql;
use crate::error::StateError;
use crate::records::events::{self, Event};

/// How many events one batch holds at most.
const BATCH_EVENTS: usize = 256;

/// Reads committed events in order, each once, and waits for new ones of any process.
///
/// It keeps a connection of its own, but no open transaction between two batches, so that it never holds the write-ahead log.
///
/// ```
/// # #[cfg(feature = "testing")] {
/// use holdpoint_state::testing::{TestStore, counter};
///
/// let store = TestStore::counters()?;
/// let mut follower = store.db().follow_events(0)?;
/// counter::create(store.db(), "orders")?;
/// let batch = follower.next_batch(1_000)?;
/// assert_eq!(batch[0].event_type, "counter.created");
/// assert!(follower.next_batch(0)?.is_empty());
/// # }
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
pub struct EventFollower {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    after_seq: i64,
    /// The `data_version` at which everything had been read.
    exhausted_at: Option<i64>,
}

impl EventFollower {
    pub(super) fn new(shared: Arc<Shared>, after_seq: i64) -> Result<Self, StateError> {
        let connection = shared.readers.connect()?;
        Ok(Self {
            shared,
            connection: Some(connection),
            after_seq,
            exhausted_at: None,
        })
    }

    /// The sequence number of the last event that was given out, or the one that the follower began after. Keep it to go on later.
    pub fn after_seq(&self) -> i64 {
        self.after_seq
    }

    /// The next events, at least one; waits for them for at most `timeout_ms` milliseconds. Empty when none came in time.
    ///
    /// # Errors
    ///
    /// Those of the database; the position has not moved then.
    #[expect(
        clippy::disallowed_methods,
        reason = "the wait for events is real time of this process, not stored time"
    )]
    pub fn next_batch(&mut self, timeout_ms: u64) -> Result<Vec<Event>, StateError> {
        let deadline = Instant::now() + Duration::from_millis(timeout_ms);
        let poll = Duration::from_millis(self.shared.options.follow_poll_ms.max(1));
        loop {
            // Asked before reading, so that a commit in between ends the wait at once.
            let seen = self.shared.commits.count();
            let events = self.read()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !events.is_empty() || left.is_zero() {
                return Ok(events);
            }
            self.shared.commits.wait(seen, left.min(poll));
        }
    }

    fn read(&mut self) -> Result<Vec<Event>, StateError> {
        self.shared.check_process()?;
        let Some(connection) = &self.connection else {
            return Err(StateError::Closed);
        };
        // Changes with each commit of another connection, of whatever process (<https://www.sqlite.org/pragma.html#pragma_data_version>).
        let version: i64 = connection
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))?;
        if self.exhausted_at == Some(version) {
            // A file that another one has taken the place of is written by nobody any more: its version stays for ever.
            self.shared.readers.check_file()?;
            return Ok(Vec::new());
        }
        // One transaction, so that the events are read from the very store that is checked.
        connection.execute_batch("BEGIN DEFERRED")?;
        let events = self.shared.readers.check(connection).and_then(|()| {
            events::list_after(&Sql::reading(connection), self.after_seq, BATCH_EVENTS)
        });
        // A read has nothing to undo; the first error is the one that counts.
        let ended = connection.execute_batch("ROLLBACK");
        let events = events?;
        ended?;
        match events.last() {
            Some(last) => self.after_seq = last.seq,
            None => self.exhausted_at = Some(version),
        }
        Ok(events)
    }
}

impl std::fmt::Debug for EventFollower {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EventFollower")
            .field("path", &self.shared.path)
            .field("after_seq", &self.after_seq)
            .finish_non_exhaustive()
    }
}

impl Drop for EventFollower {
    fn drop(&mut self) {
        if self.shared.check_process().is_err() {
            // A forked child must not close the parent's connection.
            std::mem::forget(self.connection.take());
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}
