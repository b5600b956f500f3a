//! Status: what a store is and what stands open in it, for people and programs. It never writes, and shows no token, no private
//! id of an owner and no actor.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, named_params};
use serde::Serialize;

use super::files;
use super::verify::{self, Depth, Finding};
use crate::clock::UnixMillis;
use crate::database::{Database, FileSystem, beside};
use crate::error::StateError;
use crate::id::Digest;

/// How many leases are listed at most.
const LEASES_LISTED_MAX: i64 = 100;

/// What a store is and what stands open in it, at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The database file.
    pub path: PathBuf,
    /// The instant, by this process's clock.
    pub now: UnixMillis,
    /// The SQLite that runs.
    pub engine: Engine,
    /// The schema that the program composed and the file has.
    pub schema: SchemaIdentity,
    /// The file system of the real file.
    pub file_system: String,
    /// Sizes of the files.
    pub sizes: Sizes,
    /// Pages of the database.
    pub pages: Pages,
    /// The write-ahead log.
    pub write_ahead_log: WriteAheadLog,
    /// Snapshots that this process holds open.
    pub readers: Readers,
    /// Rows of each table.
    pub rows: BTreeMap<String, u64>,
    /// The sequence number of the newest event, 0 when there is none.
    pub last_event_seq: i64,
    /// Leases that are held now.
    pub leases: Leases,
    /// Follow-up work that is not done or not known to be done.
    pub unsettled_effects: Vec<UnsettledEffects>,
    /// What integrity check, foreign keys, schema and invariants found; `verify` also checks blobs and payloads.
    pub findings: Vec<Finding>,
}

/// The SQLite that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Engine {
    /// Its version.
    pub sqlite_version: String,
    /// The source it was built from.
    pub source_id: String,
}

/// What makes a file this store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SchemaIdentity {
    /// The schema's name.
    pub name: String,
    /// The schema's version.
    pub version: i64,
    /// The application id.
    pub application_id: i32,
    /// SHA-256 over the canonical DDL.
    pub digest: Digest,
    /// The composed domains, lowest first.
    pub domains: Vec<String>,
}

/// Sizes of the files in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sizes {
    /// The database file.
    pub database_bytes: u64,
    /// The write-ahead log.
    pub wal_bytes: u64,
    /// What is free on the volume; null when the system does not say.
    pub volume_free_bytes: Option<u64>,
}

/// Pages of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pages {
    /// The size of one page in bytes.
    pub page_bytes: u64,
    /// All pages.
    pub count: u64,
    /// Pages that hold nothing and are used again before the file grows.
    pub free: u64,
}

/// The write-ahead log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteAheadLog {
    /// Frames in the log.
    pub frames: u64,
    /// Frames that are in the database file already. A number that stays far behind `frames` means that some process, this one or
    /// another, keeps an old snapshot open: SQLite does not say which.
    pub checkpointed_frames: u64,
}

/// Snapshots that this process holds open. Those of other processes can't be seen, only their effect on the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readers {
    /// How many, without the one that this status reads.
    pub open_snapshots: u64,
    /// The age of the oldest in milliseconds.
    pub oldest_age_ms: Option<u64>,
}

/// Leases that are held now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leases {
    /// How many.
    pub active: u64,
    /// How many have an owner whose time is up.
    pub expired: u64,
    /// The active ones that end soonest, at most a hundred.
    pub listed: Vec<ActiveLease>,
}

/// One lease that is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ActiveLease {
    /// The type of the owned resource.
    pub resource_type: String,
    /// The key of the owned resource.
    pub resource_key: String,
    /// What kind of owner holds it.
    pub owner_type: String,
    /// The generation.
    pub generation: u64,
    /// When it ends unless it is renewed.
    pub expires_at: UnixMillis,
}

/// Effects of one type and status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnsettledEffects {
    /// The effect type.
    pub effect_type: String,
    /// The status: `pending`, `applying`, `ambiguous`, or `rejected` with another attempt to come.
    pub status: String,
    /// How many.
    pub count: u64,
    /// When the oldest was reserved.
    pub oldest_created_at: UnixMillis,
    /// When the next attempt is due.
    pub next_attempt_at: Option<UnixMillis>,
}

impl Database {
    /// What the store is and what stands open in it. It writes nothing; the integrity check makes its cost grow with the file.
    ///
    /// # Errors
    ///
    /// Those of opening a snapshot and of reading.
    pub fn status(&self) -> Result<Status, StateError> {
        let shared = self.shared();
        let clock = self.clock();
        let readers = shared.readers.open_snapshots(clock.monotonic());
        let (frames, checkpointed_frames) = shared.readers.log_frames()?;
        let snapshot = self.snapshot()?;
        let connection = snapshot.connection();
        let now = clock.now();
        let report = verify::examine(connection, self.schema(), self.path(), Depth::Structure)?;
        let identity = self.schema().identity();
        Ok(Status {
            path: self.path().to_owned(),
            now,
            engine: Engine {
                sqlite_version: rusqlite::version().to_owned(),
                source_id: connection
                    .query_row("SELECT sqlite_source_id()", [], |row| row.get(0))?,
            },
            schema: SchemaIdentity {
                name: identity.schema_name.to_owned(),
                version: identity.user_version,
                application_id: identity.application_id,
                digest: self.schema().digest(),
                domains: self
                    .schema()
                    .domains()
                    .iter()
                    .map(|domain| domain.name.to_owned())
                    .collect(),
            },
            file_system: FileSystem::of(self.path())
                .map_or_else(|_| "unknown".to_owned(), |found| found.kind().to_owned()),
            sizes: sizes(self.path()),
            pages: Pages {
                page_bytes: number(connection, "PRAGMA page_size")?,
                count: number(connection, "PRAGMA page_count")?,
                free: number(connection, "PRAGMA freelist_count")?,
            },
            write_ahead_log: WriteAheadLog {
                frames,
                checkpointed_frames,
            },
            readers: Readers {
                open_snapshots: u64::try_from(readers.count).unwrap_or(u64::MAX),
                oldest_age_ms: readers.oldest_age_ms,
            },
            rows: self
                .schema()
                .tables()
                .map(|(table, _)| Ok((table.to_owned(), rows_of(connection, table)?)))
                .collect::<Result<_, StateError>>()?,
            last_event_seq: connection.query_row(
                "SELECT coalesce(max(event_seq), 0) FROM events",
                [],
                |row| row.get(0),
            )?,
            leases: leases(connection, now)?,
            unsettled_effects: unsettled_effects(connection)?,
            findings: report.findings,
        })
    }
}

fn sizes(path: &Path) -> Sizes {
    Sizes {
        database_bytes: files::size_bytes(path),
        wal_bytes: files::size_bytes(&beside(path, "-wal")),
        volume_free_bytes: files::free_bytes(files::directory_of(path)).ok(),
    }
}

fn number(connection: &Connection, sql: &str) -> Result<u64, StateError> {
    let number: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(number.unsigned_abs())
}

fn rows_of(connection: &Connection, table: &str) -> Result<u64, StateError> {
    // The name comes from the composed schema, not from outside.
    let quoted = table.replace('"', "\"\"");
    number(connection, &format!("SELECT count(*) FROM \"{quoted}\""))
}

fn leases(connection: &Connection, now: UnixMillis) -> Result<Leases, StateError> {
    let (active, expired): (i64, i64) = connection.query_row(
        "SELECT count(*) FILTER (WHERE :now < expires_at), count(*) FILTER (WHERE expires_at <= :now)
         FROM leases WHERE expires_at IS NOT NULL",
        named_params! { ":now": now },
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    let mut statement = connection.prepare(
        "SELECT r.resource_type, r.aggregate_key, l.owner_type, l.generation, l.expires_at
         FROM leases l JOIN resources r ON r.resource_key = l.resource_key
         WHERE :now < l.expires_at ORDER BY l.expires_at, l.resource_key LIMIT :limit",
    )?;
    let listed = statement
        .query_map(
            named_params! { ":now": now, ":limit": LEASES_LISTED_MAX },
            |row| {
                Ok(ActiveLease {
                    resource_type: row.get(0)?,
                    resource_key: row.get(1)?,
                    owner_type: row.get(2)?,
                    generation: row.get::<_, i64>(3)?.unsigned_abs(),
                    expires_at: row.get(4)?,
                })
            },
        )?
        .collect::<Result<_, _>>()?;
    Ok(Leases {
        active: active.unsigned_abs(),
        expired: expired.unsigned_abs(),
        listed,
    })
}

fn unsettled_effects(connection: &Connection) -> Result<Vec<UnsettledEffects>, StateError> {
    let mut statement = connection.prepare(
        "SELECT e.effect_type, e.status, count(*), min(r.created_at), min(e.next_attempt_at)
         FROM effects e JOIN resources r ON r.resource_key = e.resource_key
         WHERE e.status IN ('pending', 'applying', 'ambiguous')
             OR (e.status = 'rejected' AND e.next_attempt_at IS NOT NULL)
         GROUP BY e.effect_type, e.status ORDER BY e.effect_type, e.status",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(UnsettledEffects {
            effect_type: row.get(0)?,
            status: row.get(1)?,
            count: row.get::<_, i64>(2)?.unsigned_abs(),
            oldest_created_at: row.get(3)?,
            next_attempt_at: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
