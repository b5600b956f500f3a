//! Answers per second against raw SQLite, on the same rows in the same run.
//!
//! `cargo bench -p holdpoint-decisions` prints, for 1, 16 and 64 people who answer decisions in a closed loop, how many answers a second
//! are accepted, beside plain SQLite that writes byte for byte the rows which the product has just written, with as many answers in
//! a transaction as there are people, and checks nothing: the best that a group commit can do.
//!
//! Environment: `HOLDPOINT_BENCH_DECISIONS` (decisions of each figure, default 3000).

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark measures real time, prints it and fails by panicking"
)]

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdpoint_decisions::commands::{self, Answer};
use holdpoint_decisions::model::{Choice, Choices, Draft, Presentation, Request};
use holdpoint_decisions::{DOMAIN, DecisionError, DecisionId};
use holdpoint_state::sql::{ToSql, Value as SqlValue};
use holdpoint_state::testing::plain::{self, Connection};
use holdpoint_state::{Database, Identity, Options, Schema};
use holdpoint_workflows::definition::{
    Asked, CustomNode, Definition, NodeContext, NodeError, NodeKind, NodeStep, Park, Waiting,
    Workflow,
};
use holdpoint_workflows::{SchedulerOptions, WorkflowError, Workflows};
use serde_json::{Value, json};

/// How many people answer at once.
const FIGURES: [usize; 3] = [1, 16, 64];
/// The longest that a run may take until it asks.
const LIMIT: Duration = Duration::from_mins(1);

/// What an answer adds to, with the column by which the new rows are known; none where all rows are new.
const TABLES: [(&str, Option<&str>); 7] = [
    ("blobs", Some("blob_key")),
    ("resources", Some("resource_key")),
    ("effects", Some("resource_key")),
    ("events", Some("event_seq")),
    ("human_decision_resolutions", None),
    ("human_decision_submissions", None),
    ("interactive_submissions", None),
];

struct Gate;

impl CustomNode for Gate {
    fn node_type(&self) -> &'static str {
        "checkpoint"
    }

    fn snapshot(&self) -> Value {
        json!({ "bench": "gate" })
    }

    fn execute(&self, _context: &NodeContext<'_>) -> Result<NodeStep, NodeError> {
        Ok(NodeStep::Park(
            Park::new(json!({}))
                .decision()
                .asking(|waiting| {
                    let request = Request::new(draft(waiting)).map_err(DecisionError::from)?;
                    Ok(Asked {
                        request_id: request.decision_id().to_string(),
                        contract: request.document(),
                    })
                })
                .beside(|change, parked| {
                    let request = Request::read(&parked.contract).map_err(|problem| {
                        WorkflowError::Input {
                            what: "request",
                            problem: format!("{problem:?}"),
                        }
                    })?;
                    commands::request_in(change, &request, parked)?;
                    Ok(())
                }),
        ))
    }
}

fn draft(waiting: &Waiting<'_>) -> Draft {
    Draft {
        run_id: waiting.run_id.to_string(),
        workflow_name: waiting.workflow.to_owned(),
        node_id: waiting.node_id.to_string(),
        attempt_id: waiting.attempt_id.to_string(),
        audience: "operator".to_owned(),
        title: "Ship".to_owned(),
        choices: Choices::new([("go", Choice::new("Go")), ("stop", Choice::new("Stop"))]).unwrap(),
        subject: json!({ "plan": "a" }),
        presentation: Presentation::new("Ship it?", Vec::new()).unwrap(),
        revision: 1,
        on_timeout: None,
        expires_at: None,
        created_at: waiting.now,
    }
}

fn definition() -> Definition {
    Workflow::new("gated")
        .start_at("gate")
        .node("gate", NodeKind::custom(Gate))
        .build()
        .unwrap()
}

fn schema() -> Schema {
    Schema::compose(
        Identity::PI_WORKFLOWS,
        [holdpoint_state::DOMAIN, holdpoint_workflows::DOMAIN, DOMAIN],
    )
    .unwrap()
}

fn open(path: &Path) -> Database {
    let options = Options {
        check_integrity: false,
        ..Options::default()
    };
    Database::open_with(path, &schema(), options).unwrap()
}

fn main() {
    let decisions = std::env::var("HOLDPOINT_BENCH_DECISIONS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(3_000);
    println!("{decisions} decisions for each figure");
    println!("people   answers/s   raw SQLite   ratio        p50        p99");
    for people in FIGURES {
        let home = tempfile::tempdir().unwrap();
        let (path, copy) = (
            home.path().join("state.sqlite"),
            home.path().join("raw.sqlite"),
        );
        let asked = ask(&path, decisions);
        let db = open(&path);
        db.backup(&copy).unwrap();
        let (product, mut waits) = answer(&db, &asked, people);
        db.close();
        let raw = replay(&path, &copy, asked.len(), people);
        waits.sort_unstable();
        let at = |share: usize| {
            waits
                .get(waits.len() * share / 100)
                .copied()
                .unwrap_or_default()
        };
        println!(
            "{people:>6}   {product:>9.0}   {raw:>10.0}   {:>5.2}   {:>8.2?}   {:>8.2?}",
            product / raw,
            at(50),
            at(99)
        );
    }
}

/// So many runs that wait.
fn ask(path: &Path, count: usize) -> Vec<DecisionId> {
    let workflows = Workflows::new(open(path));
    let definition = definition();
    let scheduler = workflows.scheduler(SchedulerOptions::default()).unwrap();
    let runs: Vec<_> = (0..count)
        .map(|_| workflows.run(&definition, json!({})).unwrap())
        .collect();
    let asked = runs
        .iter()
        .map(|run| {
            DecisionId::new(
                workflows
                    .wait(run, LIMIT)
                    .unwrap()
                    .request
                    .unwrap()
                    .request_id,
            )
            .unwrap()
        })
        .collect();
    scheduler.stop(LIMIT);
    asked
}

/// Answers a second, and how long each took.
fn answer(db: &Database, asked: &[DecisionId], people: usize) -> (f64, Vec<Duration>) {
    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let waits: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..people)
            .map(|_| {
                scope.spawn(|| {
                    let mut waits = Vec::new();
                    while let Some(decision) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let sent = Instant::now();
                        let answer = Answer::new(decision, json!({ "choice": "go" }), "ann");
                        assert!(commands::answer(db, &answer).unwrap().value.has_won());
                        waits.push(sent.elapsed());
                    }
                    waits
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    (asked.len() as f64 / begun.elapsed().as_secs_f64(), waits)
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

/// The part of the rows that belongs to one answer of so many.
fn part(rows: &Rows, index: usize, of: usize) -> &[Vec<SqlValue>] {
    rows.get(rows.len() * index / of..rows.len() * (index + 1) / of)
        .unwrap_or_default()
}

fn write(connection: &Connection, sql: &str, row: &[SqlValue]) {
    let values: Vec<&dyn ToSql> = row.iter().map(|value| value as &dyn ToSql).collect();
    connection
        .prepare_cached(sql)
        .unwrap()
        .execute(values.as_slice())
        .unwrap();
}

/// Writes what the answers added to `answered` into `copy`, which is the store before them. Answers a second.
fn replay(answered: &Path, copy: &Path, answers: usize, at_once: usize) -> f64 {
    let (from, to) = (plain::open(answered).unwrap(), plain::open(copy).unwrap());
    // The rows of one answer are not always those that its transaction here gets; that they refer to each other is checked by nobody.
    to.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
    let mut inserts: Vec<(String, Rows)> = Vec::new();
    for (table, key) in TABLES {
        let condition = key.map_or(String::new(), |key| {
            let last = number(&to, &format!("SELECT coalesce(max({key}), 0) FROM {table}"));
            format!("WHERE {key} > {last}")
        });
        let new = rows(&from, &format!("SELECT * FROM {table} {condition}"));
        let places = vec!["?"; new.first().map_or(0, Vec::len)].join(", ");
        inserts.push((format!("INSERT INTO {table} VALUES ({places})"), new));
    }
    let last = number(&to, "SELECT max(resource_key) FROM resources");
    let touched = rows(
        &from,
        &format!(
            "SELECT revision, updated_at, resource_key FROM resources
             WHERE resource_key <= {last} AND (resource_type = 'decision' OR resource_type = 'run')"
        ),
    );
    let settled = rows(
        &from,
        "SELECT revision, accepted_submission_id, settled_at, request_key FROM interactive_requests WHERE status = 'settled'",
    );
    let updates = [
        ("UPDATE resources SET revision = ?1, updated_at = ?2 WHERE resource_key = ?3", touched),
        (
            "UPDATE interactive_requests SET status = 'settled', revision = ?1, accepted_submission_id = ?2, settled_at = ?3
             WHERE request_key = ?4 AND status = 'pending'",
            settled,
        ),
    ];
    let begun = Instant::now();
    for first in (0..answers).step_by(at_once) {
        to.execute_batch("BEGIN IMMEDIATE").unwrap();
        for index in first..answers.min(first + at_once) {
            for (sql, rows) in &inserts {
                for row in part(rows, index, answers) {
                    write(&to, sql, row);
                }
            }
            for (sql, rows) in &updates {
                for row in part(rows, index, answers) {
                    write(&to, sql, row);
                }
            }
        }
        to.execute_batch("COMMIT").unwrap();
    }
    let elapsed = begun.elapsed();
    // It is the same work only if the same rows are there.
    for (table, _) in TABLES {
        let count = format!("SELECT count(*) FROM {table}");
        assert_eq!(number(&from, &count), number(&to, &count), "{table}");
    }
    answers as f64 / elapsed.as_secs_f64()
}
