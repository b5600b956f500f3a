//! Passes per second against raw SQLite, on the same rows in the same run.
//!
//! `cargo bench -p holdpoint-controllers` prints, for 1, 4 and 16 workers, how many passes a second a scheduler makes: passes that find
//! nothing to do, and passes with one effect and one status. Beside it stands plain SQLite that writes byte for byte the event, lease, effect and
//! queue rows which the product has just written, in as many steps that must be durable one after the other (claim, begin, settle,
//! finish), with as many passes in a transaction as there are workers, and that checks nothing: the best that a group commit can do.
//!
//! Environment: `HOLDPOINT_BENCH_RESOURCES` (resources of each figure, default 3000).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark measures real time, prints it and fails by panicking"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use holdpoint_controllers::model::ConditionInput;
use holdpoint_controllers::{
    Acted, Action, Controller, Controllers, DOMAIN, EffectCall, ExternalEffect, Observed, Pass,
    PassError,
};
use holdpoint_state::sql::{ToSql, Value as SqlValue};
use holdpoint_state::testing::plain::{self, Connection};
use holdpoint_state::{Database, Identity, Options, Schema};
use holdpoint_workflows::{SchedulerOptions, Workflows};
use serde_json::{Value, json};

/// How many passes are executed at once.
const WORKERS: [usize; 3] = [1, 4, 16];
/// The longest that a figure may take.
const LIMIT: Duration = Duration::from_mins(5);
/// The project of the resources.
const PROJECT: &str = "/srv/bench";

/// What a pass does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It finds the world as it should be.
    Idle,
    /// It acts once and says what it found.
    Acting,
}

/// An act that is done as soon as it is asked for.
struct Act(u64);

impl ExternalEffect for Act {
    fn kind(&self) -> &'static str {
        "bench.act"
    }

    fn key(&self) -> String {
        format!("act-{}", self.0)
    }

    fn request(&self) -> Value {
        json!({ "generation": self.0 })
    }

    fn observe(&self, _: &EffectCall<'_>) -> Result<Observed, PassError> {
        Ok(Observed::applied())
    }

    fn apply(&self, _: &EffectCall<'_>) -> Result<Acted, PassError> {
        Ok(Acted::applied())
    }
}

struct Things;

impl Controller for Things {
    type Spec = Value;
    type Status = Value;

    fn name(&self) -> &'static str {
        "things"
    }

    fn initial_status(&self, _: &Value) -> Value {
        Value::Null
    }

    fn reconcile(&self, pass: &mut Pass<'_, Value, Value>) -> Result<Action, PassError> {
        // The first generation only comes to rest; what is measured acts for the second.
        if pass.generation() == 2 && pass.spec()["acts"] == true {
            pass.ensure(&Act(2))?;
            pass.set_status(json!({ "acted": true }));
            pass.set_condition(ConditionInput::new("Ready", true, "Acted"));
        }
        Ok(Action::settled())
    }
}

fn open(path: &Path) -> Database {
    let schema = Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN, DOMAIN],
    );
    let options = Options {
        check_integrity: false,
        ..Options::default()
    };
    Database::open_with(path, &schema.unwrap(), options).unwrap()
}

fn main() {
    let resources = std::env::var("HOLDPOINT_BENCH_RESOURCES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3_000);
    println!("{resources} resources, one pass each");
    println!("workers   pass          passes/s   raw SQLite   ratio");
    for workers in WORKERS {
        for kind in [Kind::Idle, Kind::Acting] {
            let home = tempfile::tempdir().unwrap();
            let (path, copy) = (
                home.path().join("state.sqlite"),
                home.path().join("raw.sqlite"),
            );
            prepare(&path, resources, kind);
            let db = open(&path);
            db.backup(&copy).unwrap();
            let product = resources as f64 / pass_all(&db, workers);
            db.close();
            let raw = replay(&path, &copy, resources, workers, kind);
            let name = match kind {
                Kind::Idle => "nothing to do",
                Kind::Acting => "effect+status",
            };
            println!(
                "{workers:>7}   {name}   {product:>8.0}   {raw:>10.0}   {:>5.2}",
                product / raw
            );
        }
    }
}

/// So many resources that have come to rest, each of which is due again.
fn prepare(path: &Path, resources: usize, kind: Kind) {
    let workflows = Workflows::new(open(path));
    let controllers = Controllers::new(&workflows, PROJECT).unwrap();
    let controllers = controllers.register(Things).unwrap();
    let keys: Vec<String> = (0..resources).map(|index| format!("r{index}")).collect();
    for key in &keys {
        controllers.apply::<Things>(key, &json!({})).unwrap();
    }
    pass_all(workflows.database(), 16);
    for key in &keys {
        match kind {
            Kind::Idle => {
                controllers.hint::<Things>(key, None).unwrap();
            }
            Kind::Acting => {
                controllers
                    .apply::<Things>(key, &json!({ "acts": true }))
                    .unwrap();
            }
        }
    }
}

/// Makes every pass that is due. Seconds.
fn pass_all(db: &Database, workers: usize) -> f64 {
    let workflows = Workflows::new(db.clone());
    let controllers = Controllers::new(&workflows, PROJECT).unwrap();
    let workflows = controllers.register(Things).unwrap().attach(workflows);
    let options = SchedulerOptions {
        workers,
        ..SchedulerOptions::default()
    };
    let begun = Instant::now();
    let scheduler = workflows.scheduler(options).unwrap();
    assert!(scheduler.wait_until_idle(LIMIT));
    let elapsed = begun.elapsed().as_secs_f64();
    scheduler.stop(LIMIT);
    elapsed
}

type Rows = Vec<Vec<SqlValue>>;

fn rows(connection: &Connection, sql: &str) -> Rows {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    statement
        .query_map([], |row| {
            (0..columns).map(|column| row.get(column)).collect()
        })
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

fn number(connection: &Connection, sql: &str) -> i64 {
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Writes the part of the rows that belongs to the passes from `first` to `end`.
fn write(connection: &Connection, write: &(String, Rows), (first, end): (usize, usize), of: usize) {
    let (sql, rows) = write;
    let part = rows.len() * first / of..rows.len() * end / of;
    let mut statement = connection.prepare_cached(sql).unwrap();
    for row in rows.get(part).unwrap_or_default() {
        let values: Vec<&dyn ToSql> = row.iter().map(|value| value as &dyn ToSql).collect();
        statement.execute(values.as_slice()).unwrap();
    }
}

/// The statements of one durable step, each with its rows.
struct Step(Vec<(String, Rows)>);

impl Step {
    /// A step that writes these events and moves what they are of.
    fn of_events(from: &Connection, last: i64, types: &str) -> Self {
        let events = format!("FROM events WHERE event_seq > {last} AND event_type IN ({types})");
        let inserted = rows(from, &format!("SELECT * {events} ORDER BY event_seq"));
        let moved = rows(
            from,
            &format!(
                "SELECT resource_revision, recorded_at, resource_key {events} ORDER BY event_seq"
            ),
        );
        let places = vec!["?"; inserted.first().map_or(0, Vec::len)].join(", ");
        Self(vec![
            (
                "UPDATE resources SET revision = ?1, updated_at = ?2 WHERE resource_key = ?3"
                    .to_owned(),
                moved,
            ),
            (format!("INSERT INTO events VALUES ({places})"), inserted),
        ])
    }

    fn before(mut self, sql: &str, rows: Rows) -> Self {
        self.0.insert(0, (sql.to_owned(), rows));
        self
    }

    fn and(mut self, sql: &str, rows: Rows) -> Self {
        self.0.push((sql.to_owned(), rows));
        self
    }
}

/// What the passes wrote, as the steps that have to be durable one after the other.
fn steps(from: &Connection, to: &Connection, kind: Kind) -> Vec<Step> {
    let last = number(to, "SELECT max(event_seq) FROM events");
    let keys = "SELECT resource_key FROM controller_resources ORDER BY resource_key";
    let claimed = rows(
        from,
        &format!(
            "SELECT lease_generation, coalesce(actor_id, 'host'), payload_digest, recorded_at, recorded_at + 30000, resource_key
             FROM events WHERE event_seq > {last} AND event_type = 'lease.claimed' ORDER BY event_seq"
        ),
    );
    let renew = "UPDATE leases SET heartbeat_at = heartbeat_at + 1, expires_at = expires_at + 1 WHERE resource_key = ?1";
    let mut steps = vec![Step::of_events(from, last, "'lease.claimed'").and(
        "UPDATE leases SET generation = ?1, owner_type = 'host', owner_id = ?2, token_hash = ?3,
             acquired_at = ?4, heartbeat_at = ?4, expires_at = ?5 WHERE resource_key = ?6",
        claimed,
    )];
    if kind == Kind::Acting {
        let effects = rows(
            from,
            "SELECT resource_key, 'effect', aggregate_key, created_at FROM resources WHERE resource_type = 'effect' ORDER BY resource_key",
        );
        let intents = rows(
            from,
            "SELECT resource_key, source_key, source_revision, effect_type, idempotency_key, owner_scope, attempt_count, payload, payload_blob
             FROM effects ORDER BY resource_key",
        );
        let attempts = rows(
            from,
            "SELECT resource_key, attempt_number, owner_id, lease_generation, started_at FROM effect_attempts ORDER BY resource_key",
        );
        let types = "'effect_started', 'effect.reserved'";
        steps.push(
            Step::of_events(from, last, types)
                .before(
                    "INSERT INTO effect_attempts (resource_key, attempt_number, owner_id, lease_generation, started_at) VALUES (?, ?, ?, ?, ?)",
                    attempts,
                )
                .before(
                    "INSERT INTO effects (resource_key, source_key, source_revision, effect_type, idempotency_key, owner_scope, status,
                         attempt_count, payload, payload_blob) VALUES (?, ?, ?, ?, ?, ?, 'applying', ?, ?, ?)",
                    intents,
                )
                .before(
                    "INSERT INTO resources (resource_key, resource_type, aggregate_key, revision, created_at, updated_at) VALUES (?1, ?2, ?3, 0, ?4, ?4)",
                    effects,
                )
                .and(renew, rows(from, keys)),
        );
        let settled = rows(
            from,
            "SELECT status, settled_at, resource_key FROM effects ORDER BY resource_key",
        );
        let finished = rows(
            from,
            "SELECT outcome, finished_at, resource_key, attempt_number FROM effect_attempts ORDER BY resource_key",
        );
        steps.push(
            Step::of_events(from, last, "'effect_settled', 'effect.applied'")
                .and("UPDATE effects SET status = ?1, settled_at = ?2 WHERE resource_key = ?3", settled)
                .and(
                    "UPDATE effect_attempts SET outcome = ?1, finished_at = ?2 WHERE resource_key = ?3 AND attempt_number = ?4",
                    finished,
                )
                .and(renew, rows(from, keys)),
        );
    }
    let mut finish = Step::of_events(from, last, "'reconcile_finished'")
        .and("DELETE FROM controller_queue WHERE resource_key = ?1", rows(from, keys))
        .and(
            "UPDATE leases SET owner_type = NULL, owner_id = NULL, token_hash = NULL, acquired_at = NULL, heartbeat_at = NULL,
                 expires_at = NULL WHERE resource_key = ?1",
            rows(from, keys),
        );
    if kind == Kind::Acting {
        let status = "SELECT status_digest, status, updated_at, resource_key FROM controller_resources ORDER BY resource_key";
        finish = finish.and(
            "UPDATE controller_resources SET status_digest = ?1, status = ?2, updated_at = ?3 WHERE resource_key = ?4",
            rows(from, status),
        );
    }
    steps.push(finish);
    steps
}

/// Writes what the passes added to `passed` into `copy`, which is the store before them. Passes a second.
fn replay(done: &Path, copy: &Path, passes: usize, at_once: usize, kind: Kind) -> f64 {
    let (from, to) = (plain::open(done).unwrap(), plain::open(copy).unwrap());
    // The rows of one pass are not always those that its transaction here gets; that they refer to each other is checked by nobody.
    to.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let written = steps(&from, &to, kind);
    let begun = Instant::now();
    for first in (0..passes).step_by(at_once) {
        let part = (first, passes.min(first + at_once));
        for step in &written {
            to.execute_batch("BEGIN IMMEDIATE").unwrap();
            for statement in &step.0 {
                write(&to, statement, part, passes);
            }
            to.execute_batch("COMMIT").unwrap();
        }
    }
    let elapsed = begun.elapsed().as_secs_f64();
    // It is the same work only if the same rows are there.
    for table in [
        "resources",
        "events",
        "effects",
        "effect_attempts",
        "controller_queue",
    ] {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(number(&from, &count), number(&to, &count), "{table}");
    }
    passes as f64 / elapsed
}
