//! The one writer of this process: it runs queued commands inside one transaction and acknowledges them after the commit.
//!
//! Commands that are refused leave nothing to undo, so that the common case needs no savepoints. When one fails after it wrote, the
//! whole transaction is undone and each of its commands runs again in a transaction of its own, so that it takes nobody with it.

use std::sync::Arc;
use std::thread::JoinHandle;

use super::Shared;
use super::guard::StatementGuard;
use super::open::Opened;
use super::ticket::{Job, JobState};
use super::turnstile::Turnstile;
use crate::command::Transaction;
use crate::error::StateError;

/// How many statements the write connection keeps prepared.
const STATEMENT_CACHE: usize = 512;

/// Starts the writer's thread.
pub(super) fn spawn(shared: Arc<Shared>, mut opened: Opened) -> Result<JoinHandle<()>, StateError> {
    let guard = StatementGuard::install(&mut opened.connection, &shared.schema)?;
    opened
        .connection
        .set_prepared_statement_cache_capacity(STATEMENT_CACHE);
    let turnstile = Turnstile::open(&opened.stamp.path)?;
    std::thread::Builder::new()
        .name("holdpoint-writer".into())
        .spawn(move || {
            let mut writer = Writer {
                shared,
                opened,
                guard,
                turnstile,
            };
            writer.run();
            for job in writer.shared.queue.take_rest() {
                job.fail(StateError::Closed);
            }
        })
        .map_err(|source| StateError::Io {
            action: "starting the writer thread".into(),
            source,
        })
}

struct Writer {
    shared: Arc<Shared>,
    opened: Opened,
    guard: StatementGuard,
    turnstile: Turnstile,
}

/// How a transaction ended, when not by its commit.
enum Undo {
    /// A command failed after it wrote: run each again, guarded.
    Replay,
    /// The transaction is gone for everybody.
    Lost(StateError),
}

impl Writer {
    fn run(&mut self) {
        while let Some(first) = self.shared.queue.pop() {
            self.batch(first);
        }
    }

    /// Runs `first` and whatever else waits, in one transaction.
    fn batch(&mut self, first: Box<dyn Job>) {
        let turn = match self.turnstile.enter(self.shared.options.busy_timeout_ms) {
            Ok(turn) => turn,
            Err(error) => return fail_all(vec![first], &error),
        };
        let mut jobs = vec![first];
        match self.transact(&mut jobs) {
            Ok(()) => {
                drop(turn);
                for job in jobs {
                    job.finish();
                }
            }
            Err(Undo::Lost(error)) => {
                drop(turn);
                fail_all(jobs, &error);
            }
            Err(Undo::Replay) => {
                for job in jobs {
                    self.alone(job);
                }
                drop(turn);
            }
        }
    }

    /// The optimistic way: no savepoints. Takes more jobs while there are any.
    fn transact(&self, jobs: &mut Vec<Box<dyn Job>>) -> Result<(), Undo> {
        let connection = &self.opened.connection;
        self.begin().map_err(Undo::Lost)?;
        let transaction = Transaction::new(
            connection,
            &self.guard,
            &self.shared.schema,
            &*self.shared.options.clock,
        );
        let mut next = 0;
        while let Some(job) = jobs.get_mut(next) {
            let before = connection.total_changes();
            let state = job.run(&transaction);
            // SQLite undoes the transaction by itself on a full disk or a failed read; the others then have lost their rows too.
            let vanished = connection.is_autocommit();
            if vanished || (state == JobState::Failed && connection.total_changes() != before) {
                self.rollback();
                return Err(Undo::Replay);
            }
            next += 1;
            if next == jobs.len() && next < self.shared.options.batch_limit {
                jobs.extend(self.shared.queue.try_pop());
            }
        }
        self.commit().map_err(|error| match error {
            // A deferred constraint is somebody's fault, but not everybody's.
            rusqlite::Error::SqliteFailure(failure, _)
                if failure.code == rusqlite::ErrorCode::ConstraintViolation =>
            {
                self.rollback();
                Undo::Replay
            }
            error => {
                self.rollback();
                Undo::Lost(error.into())
            }
        })?;
        transaction.committed();
        Ok(())
    }

    /// The guarded way: one command in a transaction of its own.
    fn alone(&self, mut job: Box<dyn Job>) {
        if let Err(error) = self.begin() {
            return job.fail(error);
        }
        let connection = &self.opened.connection;
        let transaction = Transaction::new(
            connection,
            &self.guard,
            &self.shared.schema,
            &*self.shared.options.clock,
        );
        let state = job.run(&transaction);
        match state {
            JobState::Failed => {
                self.rollback();
                job.finish();
            }
            JobState::Done if connection.is_autocommit() => job.fail(StateError::Corrupt {
                what: "the transaction".into(),
                problem: "SQLite ended it under a command that saw no error".into(),
            }),
            JobState::Done => match self.commit() {
                Ok(()) => {
                    transaction.committed();
                    job.finish();
                }
                Err(error) => {
                    self.rollback();
                    job.fail(error.into());
                }
            },
        }
    }

    /// `BEGIN IMMEDIATE`, and whether the store is still the one that was opened.
    fn begin(&self) -> Result<(), StateError> {
        self.guard
            .control(&self.opened.connection, "BEGIN IMMEDIATE")?;
        let checked = self.opened.still_the_same(&self.guard);
        if checked.is_err() {
            self.rollback();
        }
        checked
    }

    fn commit(&self) -> Result<(), rusqlite::Error> {
        let started = self.shared.options.clock.monotonic();
        self.guard.control(&self.opened.connection, "COMMIT")?;
        self.slow_down(started);
        self.shared.commits.notify();
        Ok(())
    }

    /// Makes the commit as slow as the benchmark asks.
    #[expect(
        clippy::disallowed_methods,
        reason = "a benchmark's option makes each commit take its time"
    )]
    fn slow_down(&self, started: crate::clock::MonotonicMillis) {
        let floor = self.shared.options.commit_floor_ms;
        if 0 < floor {
            let spent = self.shared.options.clock.monotonic().since(started);
            std::thread::sleep(std::time::Duration::from_millis(
                floor.saturating_sub(spent),
            ));
        }
    }

    /// Undoes what is open. A failing rollback must not hide the error that led to it.
    fn rollback(&self) {
        if !self.opened.connection.is_autocommit()
            && let Err(error) = self.guard.control(&self.opened.connection, "ROLLBACK")
        {
            tracing::error!(%error, "rollback failed");
        }
    }
}

fn fail_all(jobs: Vec<Box<dyn Job>>, error: &StateError) {
    for job in jobs {
        job.fail(error.share());
    }
}
