//! The floor: the same rows by plain rusqlite, without any check.

use std::path::Path;
use std::time::Instant;

use holdpoint_state::Digest;
use holdpoint_state::id::{Resource, derived_id};
use rusqlite::{Connection, params};

use crate::{COUNTERS, Figure, Settings, counter_name};

/// The text that makes the event's payload 300 bytes long.
pub(crate) fn note() -> String {
    "n".repeat(300 - r#"{"amount":1,"note":""}"#.len())
}

/// (a): one transaction for each command.
pub(crate) fn one_transaction_each(path: &Path, settings: &Settings) -> Figure {
    let connection = open(path);
    let mut writer = Writer::new(&connection);
    let mut waits = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < settings.duration {
        let sent = Instant::now();
        connection
            .prepare_cached("BEGIN IMMEDIATE")
            .unwrap()
            .execute([])
            .unwrap();
        writer.command();
        connection
            .prepare_cached("COMMIT")
            .unwrap()
            .execute([])
            .unwrap();
        let floor = std::time::Duration::from_millis(settings.commit_ms);
        std::thread::sleep(floor.saturating_sub(sent.elapsed()));
        waits.push(sent.elapsed());
    }
    Figure::of(waits.len(), begun.elapsed(), waits)
}

/// (b): all commands in one transaction.
pub(crate) fn one_transaction(path: &Path, settings: &Settings) -> Figure {
    let connection = open(path);
    let mut writer = Writer::new(&connection);
    let mut waits = Vec::new();
    let begun = Instant::now();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    while begun.elapsed() < settings.duration {
        let sent = Instant::now();
        writer.command();
        waits.push(sent.elapsed());
    }
    connection.execute_batch("COMMIT").unwrap();
    Figure::of(waits.len(), begun.elapsed(), waits)
}

/// Makes the store large.
pub(crate) fn fill(path: &Path, commands: usize) {
    let connection = open(path);
    let mut writer = Writer::new(&connection);
    for _ in 0..commands.div_ceil(10_000) {
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        for _ in 0..10_000 {
            writer.command();
        }
        connection.execute_batch("COMMIT").unwrap();
    }
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    for (name, value) in [
        ("journal_mode", "WAL"),
        ("synchronous", "FULL"),
        ("foreign_keys", "ON"),
    ] {
        connection.pragma_update(None, name, value).unwrap();
    }
    connection
        .pragma_update(None, "wal_autocheckpoint", 4_000)
        .unwrap();
    connection
}

struct Writer<'a> {
    connection: &'a Connection,
    counters: Vec<(i64, i64, String)>,
    turn: usize,
    now: i64,
    payload: Vec<u8>,
    digest: Digest,
    request: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection) -> Self {
        let counters = (0..COUNTERS)
            .map(|index| {
                let name = counter_name(index);
                connection
                    .query_row(
                        "SELECT resource_key, revision FROM resources WHERE aggregate_key = ?1",
                        [&name],
                        |row| {
                            Ok((
                                row.get(0)?,
                                row.get(1)?,
                                Resource::new("counter", name.clone()).id().to_string(),
                            ))
                        },
                    )
                    .unwrap()
            })
            .collect();
        let payload = format!(r#"{{"amount":1,"note":"{}"}}"#, note()).into_bytes();
        Self {
            connection,
            counters,
            turn: 0,
            now: 1_767_225_600_000,
            digest: Digest::of(&payload),
            payload,
            request: br#"{"amount":1}"#.to_vec(),
        }
    }

    /// The rows of one full command.
    fn command(&mut self) {
        let counter = self.counters.get_mut(self.turn % COUNTERS).unwrap();
        self.turn += 1;
        self.now += 1;
        counter.1 += 1;
        let (key, revision, source) = (counter.0, counter.1, &counter.2);
        let run = |sql: &str, values: &[&dyn rusqlite::ToSql]| {
            self.connection
                .prepare_cached(sql)
                .unwrap()
                .execute(values)
                .unwrap();
        };
        run(
            "UPDATE counters SET value = value + 1 WHERE resource_key = ?1",
            params![key],
        );
        run(
            "UPDATE resources SET revision = ?2, updated_at = ?3 WHERE resource_key = ?1",
            params![key, revision, self.now],
        );
        run(
            "INSERT INTO events (resource_key, resource_revision, event_type, actor_type, actor_id, recorded_at,
                 payload_digest, payload)
             VALUES (?1, ?2, 'counter.added', 'host', 'bench', ?3, ?4, ?5)",
            params![key, revision, self.now, self.digest, self.payload],
        );
        let idempotency_key = revision.to_string();
        let effect_id = derived_id("effect", &[source, "counter.announce", &idempotency_key]);
        let effect_id = bytes_of_id(&effect_id);
        run(
            "INSERT INTO resources (resource_type, aggregate_key, revision, created_at, updated_at)
             VALUES ('effect', ?1, 1, ?2, ?2)",
            params![effect_id, self.now],
        );
        let effect_key = self.connection.last_insert_rowid();
        run(
            "INSERT INTO effects (resource_key, source_key, source_revision, effect_type, idempotency_key,
                 owner_scope, status, payload)
             VALUES (?1, ?2, ?3, 'counter.announce', ?4, 'system', 'pending', ?5)",
            params![effect_key, key, revision, idempotency_key, self.request],
        );
        run(
            "INSERT INTO events (resource_key, resource_revision, event_type, actor_type, actor_id, recorded_at)
             VALUES (?1, 1, 'effect.reserved', 'host', 'bench', ?2)",
            params![effect_key, self.now],
        );
    }
}

/// An effect id as it is stored: the 20 bytes behind its 40 hex digits.
fn bytes_of_id(id: &str) -> Vec<u8> {
    let digits = id.strip_prefix("effect-").unwrap().as_bytes();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
