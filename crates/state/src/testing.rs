//! A testing kit for domain authors, behind the feature `testing`: temporary stores, a manual clock, crash points, faults of the
//! file, and a tiny domain.
//!
//! Not for production: [`TestStore`] deletes its directory when it is dropped.

pub mod counter;
pub mod crash;
pub mod faults;
pub mod plain;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, ManualClock};
use crate::command::{Actor, Receipt};
use crate::database::{Database, Options, Snapshot};
use crate::error::StateError;
use crate::records::leases::Claim;
use crate::schema::{Domain, Identity, Schema};

/// An instant at which test clocks start: 2026-01-01T00:00:00Z in epoch milliseconds.
pub const START: i64 = 1_767_225_600_000;

/// A database in a temporary directory, with a clock that the test turns.
#[derive(Debug)]
pub struct TestStore {
    directory: PathBuf,
    schema: Schema,
    clock: ManualClock,
    database: Option<Database>,
}

impl TestStore {
    /// A new store with the shared records and these domains.
    ///
    /// # Errors
    ///
    /// Those of composing and opening.
    pub fn new(domains: impl IntoIterator<Item = Domain>) -> Result<Self, StateError> {
        let directory = temporary_directory()?;
        let schema = Schema::compose(
            Identity::PI_WORKFLOWS,
            std::iter::once(crate::DOMAIN).chain(domains),
        )?;
        let clock = ManualClock::at(START);
        let mut store = Self {
            directory,
            schema,
            clock,
            database: None,
        };
        store.database = Some(store.open()?);
        Ok(store)
    }

    /// A new store with the [`counter`] domain.
    ///
    /// # Errors
    ///
    /// As [`TestStore::new`].
    pub fn counters() -> Result<Self, StateError> {
        Self::new([counter::DOMAIN])
    }

    /// The open database.
    ///
    /// # Panics
    ///
    /// After [`TestStore::close`].
    pub fn db(&self) -> &Database {
        match &self.database {
            Some(database) => database,
            None => unreachable!("the test closed its store"),
        }
    }

    /// Another handle on the same file, as another part of a program or another process would open it.
    ///
    /// # Errors
    ///
    /// Those of opening.
    pub fn open(&self) -> Result<Database, StateError> {
        Database::open_with(self.path(), &self.schema, self.options())
    }

    /// The settings of [`TestStore::open`].
    pub fn options(&self) -> Options {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        Options {
            clock,
            ..Options::default()
        }
    }

    /// The clock.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The schema.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The database file.
    pub fn path(&self) -> PathBuf {
        self.directory.join("state.sqlite")
    }

    /// The temporary directory, mode 0700.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Closes the database; the file stays until the store is dropped.
    pub fn close(&mut self) {
        if let Some(database) = self.database.take() {
            database.close();
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        self.close();
        // A leftover in the temporary directory is no reason to fail a test.
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Gives a lease back and keeps the claim, which [`Database::release`] uses up: for tests of what a claim may still do then.
///
/// # Errors
///
/// As [`Database::release`].
pub fn release_keeping(db: &Database, claim: &Claim) -> Result<Receipt<()>, StateError> {
    db.release_by(Database::releasing(claim, Actor::system()))
}

/// How many instructions SQLite runs for what is read of a snapshot, in tens: what a look costs, whatever the machine is at.
///
/// # Errors
///
/// Those of SQLite.
pub fn instructions<T>(
    snapshot: &mut Snapshot<'_>,
    look: impl FnOnce(&Snapshot<'_>) -> T,
) -> Result<(T, u64), StateError> {
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    if let Some(connection) = snapshot.connection_mut() {
        let counting = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(10, Some(counting))?;
    }
    let seen = look(snapshot);
    if let Some(connection) = snapshot.connection_mut() {
        connection.progress_handler(0, None::<fn() -> bool>)?;
    }
    Ok((seen, count.load(Ordering::Relaxed)))
}

/// How many callers wait for room in the writer's queue.
pub fn waiting_for_room(db: &Database) -> usize {
    db.shared().queue.waiting()
}

/// Tables of a schema whose rows are dear to write: SQLite makes a table of its own for each row that it checks, as it does for an
/// `IN` list of three or more values in a `CHECK`. Write a chain of equalities instead.
///
/// # Errors
///
/// Those of SQLite.
pub fn dear_tables(schema: &Schema) -> Result<Vec<String>, StateError> {
    let scratch = rusqlite::Connection::open_in_memory()?;
    // lint:allow(sql-unreadable): whatever schema is composed, in memory.
    scratch.execute_batch(schema.ddl())?;
    let mut dear = Vec::new();
    for (table, _) in schema.tables() {
        // lint:allow(sql-outside-store): explained, never run: the plan of each table's insert is read in memory, for whatever schema is composed.
        let mut plan = scratch.prepare(&format!("EXPLAIN INSERT INTO {table} DEFAULT VALUES"))?;
        let mut rows = plan.raw_query();
        let mut is_dear = false;
        while let Some(row) = rows.next()? {
            is_dear |= row.get::<_, String>(1)? == "OpenEphemeral";
        }
        if is_dear {
            dear.push(table.to_owned());
        }
    }
    Ok(dear)
}

/// How SQLite runs a statement on an empty store: the lines of its plan. A table that is read from end to end is a line
/// `SCAN …` without `USING`.
///
/// # Errors
///
/// Those of SQLite: the statement does not fit the schema.
pub fn query_plan(schema: &Schema, statement: &str) -> Result<Vec<String>, StateError> {
    plan_with(schema, statement, true)
}

/// The same for a statement of retention, which runs without foreign keys.
///
/// # Errors
///
/// As [`query_plan`].
pub fn retention_plan(schema: &Schema, statement: &str) -> Result<Vec<String>, StateError> {
    plan_with(schema, statement, false)
}

fn plan_with(
    schema: &Schema,
    statement: &str,
    foreign_keys: bool,
) -> Result<Vec<String>, StateError> {
    let scratch = rusqlite::Connection::open_in_memory()?;
    scratch.set_db_config(
        rusqlite::config::DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY,
        foreign_keys,
    )?;
    // lint:allow(sql-unreadable): whatever schema is composed, in memory.
    scratch.execute_batch(schema.ddl())?;
    let mut plan = scratch.prepare(&format!("EXPLAIN QUERY PLAN {statement}"))?;
    let mut rows = plan.raw_query();
    let mut lines = Vec::new();
    while let Some(row) = rows.next()? {
        lines.push(row.get(3)?);
    }
    Ok(lines)
}

fn temporary_directory() -> Result<PathBuf, StateError> {
    use std::os::unix::fs::DirBuilderExt as _;
    let directory = std::env::temp_dir().join(crate::id::random_id("holdpoint-test"));
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&directory)
        .map_err(|source| StateError::Io {
            action: format!("creating {}", directory.display()),
            source,
        })?;
    Ok(directory)
}
