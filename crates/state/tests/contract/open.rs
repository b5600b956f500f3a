//! Opening: what is refused is left as it was, what is created is created once, and whoever has it open notices a change.

mod changed;
mod create;
mod fork;
mod identity;
mod migrate;
mod places;
mod race;
mod rights;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdpoint_state::schema::Schema;
use holdpoint_state::testing::counter;
use holdpoint_state::{Database, Options, Refusal, StateError};
use rusqlite::Connection;

use crate::children::counters_schema;

/// A private directory with or without a store in it.
struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// A home with a closed store that has one counter.
    fn with_store() -> Self {
        let home = Self::empty();
        let db = Database::open(home.path(), &counters_schema()).unwrap();
        counter::create(&db, "a").unwrap();
        db.close();
        home
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("state.sqlite")
    }

    /// Does to the file what only another program does.
    fn tamper(&self, sql: &str) {
        let connection = Connection::open(self.path()).unwrap();
        connection.execute_batch(sql).unwrap();
        connection.close().unwrap();
    }

    /// Every file with its bytes.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        files(self.directory.path())
    }

    /// Why the store is refused; asserts that no file appeared, vanished or changed.
    fn refusal(&self) -> Refusal {
        self.refusal_with(&counters_schema(), options())
    }

    fn refusal_with(&self, schema: &Schema, options: Options) -> Refusal {
        let before = self.files();
        let modified = fs::metadata(self.path())
            .and_then(|found| found.modified())
            .ok();
        let refusal = refusal(Database::open_with(self.path(), schema, options));
        assert!(before == self.files(), "{refusal:?} touched a file");
        let after = fs::metadata(self.path())
            .and_then(|found| found.modified())
            .ok();
        assert_eq!(modified, after, "{refusal:?} touched the file's time");
        refusal
    }
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect()
}

fn refusal<T: std::fmt::Debug>(result: Result<T, StateError>) -> Refusal {
    match result {
        Err(StateError::Refused { refusal, .. }) => *refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Short waits: no test here waits for a lock that will be given.
fn options() -> Options {
    Options {
        busy_timeout_ms: 200,
        ..Options::default()
    }
}
