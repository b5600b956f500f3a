//! The crate that breaks the rules.
//!
//! sample: doc_test_of_a_crate
//!
//! ```
//! # use rusqlite::Connection;
//! db.execute("DELETE FROM runs", []);
//! ```
// sample: constant
pub const FINISH: &str = "UPDATE runs SET status = 'done' WHERE id = ?1";
// sample: static_bytes
pub static CLEAR: &[u8] = b"DELETE FROM runs WHERE 1";
// sample: c_string
pub const C: &core::ffi::CStr = c"DELETE FROM queue WHERE run_id = ?1";
// sample: raw_string
pub const RAW: &str = r#"INSERT INTO "queue" (run_id) VALUES (?1)"#;
// sample: raw_bytes
pub const RAW_BYTES: &[u8] = br"REPLACE INTO queue VALUES (?1)";
// sample: odd_case
pub const CASE: &str = "dElEtE fRoM runs wHeRe id = 1";
// sample: comments_between_the_words
pub const COMMENTS: &str = "DELETE/* a */FROM -- b\n /* c */ runs WHERE id = 1";
// sample: leading_comment
pub const LEADING: &str = "-- harmless\n/* really */ DELETE FROM runs WHERE id = 1";
// sample: unterminated_comment
pub const OPEN_COMMENT: &str = "DELETE FROM runs WHERE id = 1 /* never closed";
// sample: byte_order_mark
pub const MARKED: &str = "\u{feff}DELETE FROM runs WHERE id = 1";
// sample: escaped_letters
pub const ESCAPED: &str = "\x44\u{45}LETE FROM runs WHERE id = 1";
// sample: continued_line
pub const CONTINUED: &str = "DEL\
    ETE FROM runs WHERE id = 1";
// sample: explained
pub const EXPLAINED: &str = "EXPLAIN QUERY PLAN UPDATE runs SET status = 'x'";
// sample: common_table
pub const CTE: &str = "WITH old AS (SELECT id FROM runs) DELETE FROM runs WHERE id IN (SELECT id FROM old)";
// sample: recursive_common_table
pub const RECURSIVE: &str =
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) INSERT INTO queue SELECT i FROM n";
// sample: second_of_a_batch
pub const BATCH: &str = "SELECT 1; SELECT ';'; DELETE FROM runs WHERE id = 1;";
// sample: second_of_a_broken_batch
pub const BROKEN_BATCH: &str = "it's not SQL at first; DELETE FROM runs WHERE id = 1";
// sample: trigger
pub const TRIGGER: &str = "CREATE TEMP TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM queue; END";
// sample: upsert
pub const UPSERT: &str = "INSERT INTO runs VALUES (?1, ?2) ON CONFLICT DO UPDATE SET status = 'x' RETURNING id";
// sample: insert_or_replace
pub const OR_REPLACE: &str = "insert or replace into runs values (?1, ?2)";
// sample: update_from
pub const UPDATE_FROM: &str = "UPDATE main.runs SET status = q.run_id FROM queue AS q WHERE q.run_id = runs.id";
// sample: quoted_table
pub const QUOTED: &str = "DELETE FROM [runs] WHERE id = 1";
// sample: create_table
pub const CREATE: &str = "CREATE TABLE IF NOT EXISTS sneaky (id INTEGER)";
// sample: create_index
pub const INDEX: &str = "CREATE UNIQUE INDEX i ON runs (status)";
// sample: create_view
pub const VIEW: &str = "CREATE VIEW v AS SELECT * FROM runs";
// sample: virtual_table
pub const VIRTUAL: &str = "CREATE VIRTUAL TABLE search USING fts5(body)";
// sample: alter
pub const ALTER: &str = "ALTER TABLE runs RENAME TO old_runs";
// sample: drop_known_table
pub const DROP: &str = "drop table runs";
// sample: attach
pub const ATTACH: &str = "ATTACH DATABASE 'other.sqlite' AS other";
// sample: pragma
pub const PRAGMA: &str = "PRAGMA journal_mode = DELETE";
// sample: pragma_that_acts
pub const CHECKPOINT: &str = "PRAGMA wal_checkpoint(TRUNCATE)";
// sample: pragma_of_a_template
pub const ANY_PRAGMA: &str = "PRAGMA {name} = {value}";
// sample: vacuum_into
pub const VACUUM: &str = "VACUUM INTO 'copy.sqlite'";
// sample: reindex_in_capitals
pub const REINDEX: &str = "REINDEX runs_by_status";
// sample: savepoint_in_capitals
pub const SAVEPOINT: &str = "SAVEPOINT command_1";
// sample: one_word_that_another_file_runs
pub const END_IT: &str = "ROLLBACK";
// sample: allowed_without_reason
// lint:allow(sql-outside-store):
pub const NO_REASON: &str = "DELETE FROM runs WHERE id = 2";
// sample: allowed_by_a_rule_that_is_none
// lint:allow(sql-anything): because
pub const NO_RULE: &str = "DELETE FROM runs WHERE id = 3";
// sample: exception_that_nothing_needs
// lint:allow(sql-ddl): nothing here defines anything
pub const NOTHING: &str = "SELECT 1";
