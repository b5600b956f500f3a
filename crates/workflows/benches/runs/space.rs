//! What one finished run of one step takes in the file, row by row, and whether the raw floor writes the same rows.

use std::collections::BTreeMap;
use std::path::Path;

use holdpoint_state::testing::plain;

use crate::{Store, raw};

/// How many runs are measured: enough for the pages to be full.
const RUNS: usize = 20_000;

/// What each table's row of a run is for. A table that is not here stops the benchmark: nobody would know why it costs.
const PURPOSE: &[(&str, &str)] = &[
    (
        "resources",
        "its name, type and revision: what every command is checked against",
    ),
    (
        "runs",
        "its definition, options, input, status, output and place among restarts",
    ),
    (
        "run_sources",
        "where its definition came from, which a resume compares",
    ),
    (
        "run_bindings",
        "whose run it is: session and execution mode",
    ),
    ("run_queue", "when it was due, taken up and settled"),
    (
        "leases",
        "the generation of its last owner, which only grows",
    ),
    (
        "node_attempts",
        "the one execution of its node: id, times, budget, outcome, output",
    ),
    ("run_steps", "the accepted history: which attempt counts"),
    (
        "events",
        "the audit trail: queued, claimed, initialized, node started, node finished, completed",
    ),
];

pub(crate) fn print() {
    let store = Store::new();
    let before = sizes(&store.path);
    let plain_copy = store.copy("raw-space");
    store.run(1, 16, |made| made < RUNS / 16);
    let after = sizes(&store.path);
    raw::some(&plain_copy, RUNS);
    let floor = sizes(&plain_copy);

    println!("\nbytes of file for a finished run of one step");
    let mut total = 0.0;
    for (table, after) in &after {
        let (rows, bytes, index_bytes) = after.since(before.get(table));
        if rows == 0.0 && bytes == 0.0 {
            continue;
        }
        let purpose = PURPOSE.iter().find(|(name, _)| name == table);
        assert!(purpose.is_some(), "nobody says what {table} is for");
        let (_, purpose) = purpose.unwrap();
        total += bytes + index_bytes;
        println!(
            "{table:<16} {rows:>4.1} rows {bytes:>6.0} bytes {index_bytes:>6.0} in indexes   {purpose}"
        );
        let (floor_rows, ..) = floor.get(table).unwrap().since(before.get(table));
        assert!(
            (floor_rows - rows).abs() < 0.01,
            "raw writes {floor_rows} rows of {table}"
        );
    }
    let raw_total: f64 = floor
        .iter()
        .map(|(table, after)| {
            let (_, bytes, index_bytes) = after.since(before.get(table));
            bytes + index_bytes
        })
        .sum();
    println!("together {total:.0} bytes; the raw rows take {raw_total:.0}");
}

#[derive(Debug, Default, Clone, Copy)]
struct Size {
    rows: i64,
    bytes: i64,
    index_bytes: i64,
}

impl Size {
    /// Rows, bytes and bytes of indexes for each run since then.
    fn since(self, before: Option<&Self>) -> (f64, f64, f64) {
        let before = before.copied().unwrap_or_default();
        let each = |difference: i64| difference as f64 / (RUNS / 16 * 16) as f64;
        (
            each(self.rows - before.rows),
            each(self.bytes - before.bytes),
            each(self.index_bytes - before.index_bytes),
        )
    }
}

/// Every table's rows and bytes.
fn sizes(path: &Path) -> BTreeMap<String, Size> {
    let connection = plain::open(path).unwrap();
    raw::checkpoint(&connection);
    let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
    let mut statement = connection
        .prepare("SELECT m.tbl_name, m.type = 'table', s.pgsize FROM dbstat s JOIN sqlite_schema m ON m.name = s.name WHERE s.aggregate = 1")
        .unwrap();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let size = sizes.entry(row.get(0).unwrap()).or_default();
        if row.get(1).unwrap() {
            size.bytes += row.get::<_, i64>(2).unwrap();
        } else {
            size.index_bytes += row.get::<_, i64>(2).unwrap();
        }
    }
    for (table, size) in &mut sizes {
        size.rows = connection
            .query_row(&format!("SELECT count(*) FROM \"{table}\""), [], |row| {
                row.get(0)
            })
            .unwrap();
    }
    sizes
}
