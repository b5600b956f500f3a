//! The one writer of this process: it runs queued commands inside one transaction and acknowledges them after the commit.
//!
//! Commands that are refused leave nothing to undo, so that the common case needs no savepoints. When one fails after it wrote, the
//! whole transaction is undone and each of its commands runs again in a transaction of its own, so that it takes nobody with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::Shared;
use super::guard::{Purpose, StatementGuard};
use super::open::Opened;
use super::queue::Queued;
use super::ticket::{Job, JobState};
use super::turnstile::Turnstile;
use crate::command::Transaction;
use crate::error::StateError;
#[cfg(feature = "testing")]
use crate::testing::crash;

/// How many statements the write connection keeps prepared.
const STATEMENT_CACHE: usize = 512;

/// For how long one transaction waits for more commands altogether, once several share it: a part of what an fsync takes.
const PATIENCE: Duration = Duration::from_micros(60);

/// The longest wait that SQLite's busy handler can be told, in milliseconds: some 24 days. Longer settings mean this one.
const BUSY_TIMEOUT_MAX_MS: u64 = i32::MAX.unsigned_abs() as u64;

/// Starts the writer's thread.
pub(super) fn spawn(shared: Arc<Shared>, mut opened: Opened) -> Result<JoinHandle<()>, StateError> {
    let guard = StatementGuard::install(&mut opened.connection, &shared.schema, Purpose::Commands)?;
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
                last_turn: now(),
            };
            writer.shared.queue.id().serve_here();
            // Foreign code is caught where it is called. Should something panic here all the same, nobody may wait for a dead writer.
            if catch_unwind(AssertUnwindSafe(|| writer.run())).is_err() {
                tracing::error!("BUG: the writer panicked; its queue is closed");
            }
            for queued in writer.shared.queue.take_rest() {
                settle(|| queued.job.fail(StateError::Closed));
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
    /// When the last transaction ended: what waits longer has waited for the commands before it, not for other processes.
    last_turn: Instant,
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a command waits is real time of this process, not stored time"
)]
fn now() -> Instant {
    Instant::now()
}

/// Runs one command. What panics outside its body, such as the drop of an earlier result, is foreign code too.
fn run_job(job: &mut dyn Job, transaction: &Transaction<'_>) -> JobState {
    catch_unwind(AssertUnwindSafe(|| job.run(transaction))).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        JobState::Failed
    })
}

/// Tells a caller. Its waker, and the drop of its values when it has gone, are foreign code: their panic must not end the writer.
fn settle(tell: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(tell)) {
        tracing::error!("a caller's code panicked when it was told its result");
        std::mem::forget(panic);
    }
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
    fn batch(&mut self, first: Queued) {
        // A command that has waited behind others which found the store busy has used up its own time with them.
        let since = first.since.max(self.last_turn);
        let mut jobs = vec![first.job];
        let turn = match self.turnstile.enter(self.left_ms(since)) {
            Ok(turn) => turn,
            Err(error) => return fail_all(jobs, &waited(error, since)),
        };
        match self.transact(&mut jobs, since) {
            Ok(()) => {
                drop(turn);
                self.last_turn = now();
                for job in jobs {
                    settle(|| job.finish());
                }
            }
            Err(Undo::Lost(error)) => {
                drop(turn);
                if !matches!(error, StateError::Busy { .. }) {
                    self.last_turn = now();
                }
                fail_all(jobs, &error);
            }
            Err(Undo::Replay) => {
                tracing::warn!(
                    commands = jobs.len(),
                    "a command failed after it wrote; each of its transaction runs alone"
                );
                // As for a batch: who waits behind others that found the store busy uses up its own time with them.
                let mut since = now();
                for job in jobs {
                    if self.alone(job, since) {
                        since = now();
                    }
                }
                drop(turn);
                self.last_turn = now();
            }
        }
    }

    /// How long a command that waits since `since` may wait still, in milliseconds.
    fn left_ms(&self, since: Instant) -> u64 {
        let waited = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.shared.options.busy_timeout_ms.saturating_sub(waited)
    }

    /// The optimistic way: no savepoints. Takes more jobs while there are any.
    fn transact(&self, jobs: &mut Vec<Box<dyn Job>>, since: Instant) -> Result<(), Undo> {
        let connection = &self.opened.connection;
        self.begin(since).map_err(Undo::Lost)?;
        let transaction = Transaction::new(
            connection,
            &self.guard,
            &self.shared.schema,
            &*self.shared.options.clock,
            &self.shared.owners,
        );
        let (mut next, mut senders) = (0, 1);
        let mut patience = PATIENCE;
        while let Some(job) = jobs.get_mut(next) {
            let before = connection.total_changes();
            let state = run_job(&mut **job, &transaction);
            #[cfg(feature = "testing")]
            crash::reached(crash::Point::AfterCommand);
            // SQLite undoes the transaction by itself on a full disk or a failed read; the others then have lost their rows too.
            let vanished = connection.is_autocommit();
            if vanished || (state == JobState::Failed && connection.total_changes() != before) {
                self.rollback();
                return Err(Undo::Replay);
            }
            next += 1;
            if next == jobs.len() && next < self.shared.options.batch_limit {
                // Whoever sent one of these together with others is about to send the next: one fsync may serve it too. A command
                // that came alone is committed at once.
                if 1 < senders {
                    patience = patience.saturating_sub(self.shared.queue.linger(patience));
                }
                if let Some(queued) = self.shared.queue.try_pop() {
                    senders += usize::from(!queued.is_second);
                    jobs.push(queued.job);
                }
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

    /// The guarded way: one command in a transaction of its own. Returns whether the transaction began.
    fn alone(&self, mut job: Box<dyn Job>, since: Instant) -> bool {
        if let Err(error) = self.begin(since) {
            settle(|| job.fail(error));
            return false;
        }
        let connection = &self.opened.connection;
        let transaction = Transaction::new(
            connection,
            &self.guard,
            &self.shared.schema,
            &*self.shared.options.clock,
            &self.shared.owners,
        );
        let state = run_job(&mut *job, &transaction);
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::AfterCommand);
        match state {
            JobState::Failed => {
                self.rollback();
                settle(|| job.finish());
            }
            JobState::Done => match self.commit() {
                Ok(()) => {
                    transaction.committed();
                    settle(|| job.finish());
                }
                Err(error) => {
                    self.rollback();
                    settle(|| job.fail(error.into()));
                }
            },
        }
        true
    }

    /// `BEGIN IMMEDIATE`, and whether the store is still the one that was opened. The first command waits since `since`.
    fn begin(&self, since: Instant) -> Result<(), StateError> {
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::BeforeBegin);
        // A program that does not know the turnstile may hold SQLite's own lock.
        self.wait_for_others(self.left_ms(since))?;
        let begun = self
            .guard
            .control(&self.opened.connection, "BEGIN IMMEDIATE");
        self.wait_for_others(self.shared.options.busy_timeout_ms)?;
        begun.map_err(|error| waited(error.into(), since))?;
        let checked = self.opened.still_the_same(&self.guard);
        if checked.is_err() {
            self.rollback();
        }
        checked
    }

    fn wait_for_others(&self, timeout_ms: u64) -> Result<(), rusqlite::Error> {
        // rusqlite panics above SQLite's own limit.
        let timeout_ms = timeout_ms.min(BUSY_TIMEOUT_MAX_MS);
        self.opened
            .connection
            .busy_timeout(Duration::from_millis(timeout_ms))
    }

    fn commit(&self) -> Result<(), rusqlite::Error> {
        let started = self.shared.options.clock.monotonic();
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::BeforeCommit);
        self.guard.control(&self.opened.connection, "COMMIT")?;
        #[cfg(feature = "testing")]
        crash::reached(crash::Point::AfterCommit);
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

/// The error, and for how long its command has waited.
fn waited(error: StateError, since: Instant) -> StateError {
    match error {
        StateError::Busy { .. } => StateError::Busy {
            waited_ms: u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX),
        },
        other => other,
    }
}

fn fail_all(jobs: Vec<Box<dyn Job>>, error: &StateError) {
    for job in jobs {
        settle(|| job.fail(error.share()));
    }
}
