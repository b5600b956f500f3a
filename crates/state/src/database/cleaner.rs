//! The connection of retention: a second writer of this process, which deletes, and makes nothing.
//!
//! It is not the writer's own connection, because it is set up otherwise: foreign keys are off (each deleted row would cost a
//! search of every column that could refer to it, and few of those have an index), and its authorizer lets nothing but deletions
//! through. It takes its turn at the turnstile for each transaction, as another process would, so that commands get theirs in
//! between. What holds instead of the foreign keys: `Schema::compose` refuses a schema in which a table that hangs on a deleted one
//! is forgotten. Not here: what is deleted (`maintenance::retention`).

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::guard::{Purpose, StatementGuard};
use super::open::{self, Opened};
use super::turnstile::{Turn, Turnstile};
use super::{Database, Shared};
use crate::clock::UnixMillis;
use crate::command::Sql;
use crate::error::StateError;
#[cfg(feature = "testing")]
use crate::testing::crash;

/// How many statements it keeps prepared: those of all blockers of all domains.
const STATEMENT_CACHE: usize = 256;
/// How long the log's readers may take to let go of it, in milliseconds, before it is left as it is.
const LOG_PATIENCE_MS: u64 = 500;

pub(crate) struct Cleaner {
    opened: Opened,
    guard: StatementGuard,
    turnstile: Turnstile,
    shared: Arc<Shared>,
}

/// One open transaction of the cleaner.
pub(crate) struct Cleaning<'a> {
    pub(crate) connection: &'a Connection,
    guard: &'a StatementGuard,
    pub(crate) now: UnixMillis,
}

impl<'a> Cleaning<'a> {
    /// Statements in the name of the domain with this index.
    pub(crate) fn sql(&self, domain: usize) -> Sql<'a> {
        Sql::writing(self.connection, self.guard, domain)
    }

    /// Whether every foreign key of the file holds. It reads the whole file.
    pub(crate) fn broken_references(&self) -> Result<i64, StateError> {
        Ok(self.guard.control_number(
            self.connection,
            "SELECT count(*) FROM pragma_foreign_key_check",
        )?)
    }
}

/// What becomes of a transaction.
pub(crate) enum End<T> {
    Commit(T),
    Rollback(T),
}

impl Database {
    /// A connection for retention.
    pub(crate) fn cleaner(&self) -> Result<Cleaner, StateError> {
        self.check_process()?;
        let shared = Arc::clone(self.shared());
        let mut opened = shared.readers.cleaner()?;
        opened
            .connection
            .set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        let guard =
            StatementGuard::install(&mut opened.connection, &shared.schema, Purpose::Retention)?;
        Ok(Cleaner {
            turnstile: Turnstile::open(&shared.path)?,
            opened,
            guard,
            shared,
        })
    }
}

impl Cleaner {
    /// From now on a commit is on the disk when it returns. Until then a commit of the cleaner may be lost with the machine's power,
    /// whole: what was deleted is then there again and is deleted by the next sweep.
    pub(crate) fn become_durable(&self) -> Result<(), StateError> {
        Ok(self
            .guard
            .control(&self.opened.connection, "PRAGMA synchronous = FULL")?)
    }

    /// Runs `work` alone in one write transaction.
    pub(crate) fn transact<T>(
        &mut self,
        work: impl FnOnce(&Cleaning<'_>) -> Result<End<T>, StateError>,
    ) -> Result<T, StateError> {
        let turn = self.turn()?;
        self.begin("BEGIN IMMEDIATE")?;
        self.end(turn, work)
    }

    /// Looks first, without keeping anybody from writing, and then runs `work` on what it saw, if nobody has written meanwhile. If
    /// somebody has, it looks again while nobody can.
    pub(crate) fn look_and_transact<L, T>(
        &mut self,
        look: impl Fn(&Connection) -> Result<L, StateError>,
        work: impl Fn(&Cleaning<'_>, &L) -> Result<End<T>, StateError>,
    ) -> Result<T, StateError> {
        self.begin("BEGIN DEFERRED")?;
        let seen = match look(&self.opened.connection) {
            Ok(seen) => seen,
            Err(error) => {
                self.rollback();
                return Err(error);
            }
        };
        let turn = match self.turn() {
            Ok(turn) => turn,
            Err(error) => {
                self.rollback();
                return Err(error);
            }
        };
        // The first write of `work` makes this a write transaction. SQLite refuses that when the snapshot is not the newest.
        match self.end(turn, |cleaning| work(cleaning, &seen)) {
            Err(StateError::Busy { .. }) => {}
            other => return other,
        }
        drop(seen);
        self.transact(|cleaning| {
            let seen = look(cleaning.connection)?;
            work(cleaning, &seen)
        })
    }

    fn turn(&mut self) -> Result<Turn, StateError> {
        self.turnstile.enter(self.shared.options.busy_timeout_ms)
    }

    fn begin(&self, statement: &'static str) -> Result<(), StateError> {
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::BeforeBegin);
        self.guard.control(&self.opened.connection, statement)?;
        let checked = self.opened.still_the_same(&self.guard);
        if checked.is_err() {
            self.rollback();
        }
        checked
    }

    fn end<T>(
        &self,
        turn: Turn,
        work: impl FnOnce(&Cleaning<'_>) -> Result<End<T>, StateError>,
    ) -> Result<T, StateError> {
        let cleaning = Cleaning {
            connection: &self.opened.connection,
            guard: &self.guard,
            now: self.shared.options.clock.now(),
        };
        let ended = work(&cleaning);
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::AfterCommand);
        let result = match ended {
            Ok(End::Commit(value)) => self.commit().map(|()| value),
            Ok(End::Rollback(value)) => {
                self.rollback();
                Ok(value)
            }
            Err(error) => Err(error),
        };
        if result.is_err() {
            self.rollback();
        }
        drop(turn);
        result
    }

    fn commit(&self) -> Result<(), StateError> {
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::BeforeCommit);
        self.guard.control(&self.opened.connection, "COMMIT")?;
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::AfterCommit);
        Ok(())
    }

    fn rollback(&self) {
        if !self.opened.connection.is_autocommit()
            && let Err(error) = self.guard.control(&self.opened.connection, "ROLLBACK")
        {
            tracing::error!(%error, "rollback failed");
        }
    }

    /// Moves the log into the file and cuts it to nothing. Returns whether its readers let go of it in time.
    pub(crate) fn empty_log(&mut self) -> Result<bool, StateError> {
        let turn = self.turn()?;
        let connection = self.shared.readers.cleaner()?.connection;
        connection.busy_timeout(Duration::from_millis(LOG_PATIENCE_MS))?;
        let busy = open::cut_log(&connection)?;
        drop(turn);
        Ok(!busy)
    }

    /// Writes the file anew without its free pages. Nobody else writes meanwhile.
    pub(crate) fn vacuum(&mut self) -> Result<(), StateError> {
        let turn = self.turn()?;
        // SQLite does it by statements of its own, which no authorizer of ours could know.
        let connection = self.shared.readers.cleaner()?.connection;
        connection.execute_batch("VACUUM")?;
        drop(turn);
        Ok(())
    }
}

/// The right to do maintenance that deletes: one of all processes has it. It ends with the process that holds it.
pub(crate) struct MaintenanceRight {
    _file: std::fs::File,
}

impl MaintenanceRight {
    /// Takes it, or says that somebody has it.
    pub(crate) fn take(database: &std::path::Path) -> Result<Self, StateError> {
        let path = super::beside(database, ".maintenance-lock");
        let failed = |source: std::io::Error| StateError::Io {
            action: format!("locking {}", path.display()),
            source,
        };
        let file = open::open_lock_file(&path).map_err(failed)?;
        match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StateError::InUse {
                path: database.to_owned(),
                by: "a sweep or a prune is at work; wait for its end",
            }),
            Err(error) => Err(failed(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::records::retention as records;
    use crate::testing::{TestStore, counter};

    /// What was seen before somebody wrote is not acted on: it is looked at again while nobody can write.
    #[test]
    fn what_was_seen_before_a_write_is_looked_at_again() {
        let store = TestStore::counters().unwrap();
        counter::create(store.db(), "c").unwrap();
        for writes in [false, true] {
            let looks = Cell::new(0);
            let look = |connection: &Connection| {
                let seen: i64 =
                    connection.query_row("SELECT value FROM counters", [], |row| row.get(0))?;
                looks.set(looks.get() + 1);
                if writes && looks.get() == 1 {
                    counter::add(store.db(), "c", 1)?;
                }
                Ok(seen)
            };
            let work = |cleaning: &Cleaning<'_>, seen: &i64| {
                records::record_sweep(
                    &cleaning.sql(super::super::KERNEL),
                    cleaning.now,
                    cleaning.now,
                )?;
                Ok(End::Commit(*seen))
            };
            let seen = store
                .db()
                .cleaner()
                .unwrap()
                .look_and_transact(look, work)
                .unwrap();
            assert_eq!((looks.get(), seen), if writes { (2, 1) } else { (1, 0) });
            assert!(store.db().last_sweep().unwrap().is_some());
        }
    }
}
