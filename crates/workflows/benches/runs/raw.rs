//! The floor: the same rows by plain SQLite, in the fewest transactions that a crash allows, without any check.
//!
//! One transaction starts a run and claims it for its first step, one ends each step and begins the next, the last one ends the
//! run too. At concurrency N, N runs share each transaction, which is the best that a group commit can do. What the product writes
//! is compared with this row by row in `space`.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use holdpoint_state::Digest;
use holdpoint_state::sql::{Params, params};
use holdpoint_state::testing::plain::{self, Connection};

use crate::{Figure, Settings, Spent};

const NOW: i64 = 1_767_225_600_000;
/// The input of the next run, of which its id is made: no two writers of a store repeat one.
static NEXT: AtomicI64 = AtomicI64::new(1 << 48);

/// Runs of `steps` steps, `concurrency` of them at once, for the time of one figure.
pub(crate) fn measure(path: &Path, settings: &Settings, steps: u32, concurrency: usize) -> Figure {
    let connection = plain::open(path).unwrap();
    let writer = Writer::new(&connection);
    let mut waits = Vec::new();
    let (begun, before) = (Instant::now(), Spent::so_far());
    while begun.elapsed() < settings.duration {
        let sent = Instant::now();
        writer.runs(steps, concurrency);
        waits.extend(std::iter::repeat_n(sent.elapsed(), concurrency));
    }
    Figure::of(begun.elapsed(), Spent::so_far().since(before), waits)
}

/// Makes the store large: finished runs of one step.
pub(crate) fn fill(path: &Path, runs: usize) {
    let connection = plain::open(path).unwrap();
    let writer = Writer::new(&connection);
    for _ in 0..runs.div_ceil(10_000) {
        writer.runs(1, 10_000);
    }
    checkpoint(&connection);
}

/// Finished runs of one step, by themselves.
pub(crate) fn some(path: &Path, runs: usize) {
    let connection = plain::open(path).unwrap();
    Writer::new(&connection).runs(1, runs);
    checkpoint(&connection);
}

/// A copy of a store.
pub(crate) fn copy(from: &Path, to: &Path) {
    let connection = plain::open(from).unwrap();
    connection
        .execute("VACUUM INTO ?1", [to.to_str().unwrap()])
        .unwrap();
}

/// Moves what the log holds into the file.
pub(crate) fn checkpoint(connection: &Connection) {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}

/// One run that goes on.
struct Run {
    key: i64,
    id: String,
    revision: i64,
    attempt: i64,
    value: i64,
}

struct Writer<'a> {
    connection: &'a Connection,
    host: String,
    options: Vec<u8>,
    definitions: [Vec<u8>; 2],
}

impl<'a> Writer<'a> {
    fn new(connection: &'a Connection) -> Self {
        let definition = |name: &str| {
            connection
                .query_row(
                    "SELECT definition_digest FROM workflow_definitions WHERE workflow_name = ?1",
                    [name],
                    |row| row.get(0),
                )
                .unwrap()
        };
        Self {
            connection,
            host: holdpoint_state::id::random_id("host"),
            options: Digest::of(b"{}").0.to_vec(),
            definitions: [definition("steps-1"), definition("steps-10")],
        }
    }

    fn runs(&self, steps: u32, concurrency: usize) {
        self.control("BEGIN IMMEDIATE");
        let mut runs: Vec<_> = (0..concurrency).map(|_| self.start(steps)).collect();
        self.control("COMMIT");
        for step in 1..=steps {
            self.control("BEGIN IMMEDIATE");
            for run in &mut runs {
                self.step(run, step, steps);
            }
            self.control("COMMIT");
        }
    }

    fn control(&self, sql: &'static str) {
        self.write(sql, []);
    }

    fn write(&self, sql: &'static str, values: impl Params) {
        self.connection
            .prepare_cached(sql)
            .unwrap()
            .execute(values)
            .unwrap();
    }

    fn event(&self, run: &mut Run, kind: &str, by_host: bool, payload: &str) {
        run.revision += 1;
        let actor = if by_host {
            ("host", self.host.as_str(), Some(1))
        } else {
            ("control", "program", None)
        };
        self.write(
            "INSERT INTO events (resource_key, resource_revision, event_type, actor_type, actor_id, lease_generation, recorded_at,
                 payload_digest, payload)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                run.key,
                run.revision,
                kind,
                actor.0,
                actor.1,
                actor.2,
                NOW,
                Digest::of(payload.as_bytes()),
                payload.as_bytes()
            ],
        );
    }

    /// A run is started and claimed for its first step.
    fn start(&self, steps: u32) -> Run {
        let value = NEXT.fetch_add(1_000, Ordering::Relaxed);
        let id = format!("run_20260101T000000Z_steps-{steps}_{value:08x}");
        let input = value.to_string();
        self.write(
            "INSERT INTO resources (resource_type, aggregate_key, revision, created_at, updated_at) VALUES ('run', ?1, 4, ?2, ?2)",
            params![id, NOW],
        );
        let key = self.connection.last_insert_rowid();
        let [one, ten] = &self.definitions;
        let definition = if steps == 1 { one } else { ten };
        self.write(
            "INSERT INTO runs (resource_key, run_id, root_key, definition_digest, workflow_ref, launch_options_digest,
                 launch_options, status, input_digest, input, created_at)
             VALUES (?1, ?2, ?1, ?3, ?4, ?5, x'7b7d', 'running', ?6, ?7, ?8)",
            params![
                key,
                id,
                definition,
                format!("steps-{steps}"),
                self.options,
                Digest::of(input.as_bytes()),
                input.as_bytes(),
                NOW
            ],
        );
        self.write(
            "INSERT INTO run_sources (run_key, mount_path, source_type, source_ref, source_revision)
             VALUES (?1, '', 'builtin', ?2, ?3)",
            params![
                key,
                format!("inline:steps-{steps}"),
                Digest::of(definition).to_hex()
            ],
        );
        self.write(
            "INSERT INTO run_bindings (run_key, origin_session_id, execution_mode, created_at)
             VALUES (?1, 'local', 'headless', ?2)",
            params![key, NOW],
        );
        self.write(
            "INSERT INTO run_queue (run_key, status, available_at, created_at, started_at) VALUES (?1, 'running', ?2, ?2, ?2)",
            params![key, NOW],
        );
        self.write(
            "INSERT INTO leases (resource_key, generation, owner_type, owner_id, token_hash, acquired_at, heartbeat_at, expires_at)
             VALUES (?1, 1, 'host', ?2, ?3, ?4, ?4, ?4 + 30000)",
            params![key, self.host, Digest::of(id.as_bytes()), NOW],
        );
        let mut run = Run {
            key,
            id,
            revision: 0,
            attempt: 0,
            value,
        };
        let queued = format!(
            r#"{{"definition":"{}","executionMode":"headless","inputStored":true,"workflow":"steps-{steps}"}}"#,
            Digest::of(definition).to_hex()
        );
        self.event(&mut run, "run.queued", false, &queued);
        self.event(&mut run, "lease.claimed", true, r#"{"generation":1}"#);
        self.event(&mut run, "run_initialized", true, r#"{"title":null}"#);
        self.begin(&mut run, 1);
        run
    }

    fn begin(&self, run: &mut Run, step: u32) {
        let tail = run.id.len() - 8;
        let attempt = format!(
            "attempt-0197a5c4-7f00-7000-8000-{step:04x}{}",
            run.id.get(tail..).unwrap()
        );
        let node = format!("step-{step}");
        self.write(
            "INSERT INTO node_attempts (attempt_id, run_key, node_id, attempt_number, node_type, status, started_at, timeout_ms)
             VALUES (?1, ?2, ?3, 1, 'compute', 'running', ?4, 900000.0)",
            params![attempt, run.key, node, NOW],
        );
        run.attempt = self.connection.last_insert_rowid();
        let payload = format!(
            r#"{{"attemptId":"{attempt}","nodeId":"{node}","nodeType":"compute","timeoutMs":900000,"visit":1}}"#
        );
        self.event(run, "node_started", true, &payload);
    }

    /// A step ends; the next one begins, or the run ends.
    fn step(&self, run: &mut Run, step: u32, steps: u32) {
        let output = (run.value + i64::from(step)).to_string();
        let (digest, output) = (Digest::of(output.as_bytes()), output.as_bytes());
        self.write(
            "UPDATE node_attempts SET status = 'completed', output_digest = ?2, output = ?3, finished_at = ?4 WHERE attempt_key = ?1",
            params![run.attempt, digest, output, NOW],
        );
        self.write(
            "INSERT INTO run_steps (run_key, step_index, attempt_key) VALUES (?1, ?2, ?3)",
            params![run.key, step - 1, run.attempt],
        );
        let tail = run.id.len() - 8;
        let payload = format!(
            r#"{{"attemptId":"attempt-0197a5c4-7f00-7000-8000-{step:04x}{}","errorStored":false,"nodeId":"step-{step}","outcome":"ok","outputStored":true}}"#,
            run.id.get(tail..).unwrap()
        );
        self.event(run, "node_finished", true, &payload);
        if step < steps {
            self.begin(run, step + 1);
            self.write(
                "UPDATE leases SET heartbeat_at = ?2, expires_at = ?2 + 30000 WHERE resource_key = ?1",
                params![run.key, NOW],
            );
        } else {
            self.write(
                "UPDATE runs SET status = 'completed', final_output_digest = ?2, final_output = ?3, finished_at = ?4
                 WHERE resource_key = ?1",
                params![run.key, digest, output, NOW],
            );
            self.write(
                "UPDATE run_queue SET status = 'done', finished_at = ?2 WHERE run_key = ?1",
                params![run.key, NOW],
            );
            self.write(
                "UPDATE leases SET owner_type = NULL, owner_id = NULL, token_hash = NULL, acquired_at = NULL, heartbeat_at = NULL,
                     expires_at = NULL WHERE resource_key = ?1",
                params![run.key],
            );
            self.event(
                run,
                "run_completed",
                true,
                r#"{"errorStored":false,"finalOutputStored":true,"queue":"done"}"#,
            );
        }
        self.write(
            "UPDATE resources SET revision = ?2, updated_at = ?3 WHERE resource_key = ?1",
            params![run.key, run.revision, NOW],
        );
    }
}
