//! The store of a home, read beside the processes that are tested.

use std::path::Path;

use holdpoint_state::Database;
use holdpoint_state::database::product_path_in;

/// A reader of its own.
pub(crate) struct Store {
    pub(crate) db: Database,
}

impl Store {
    /// Opens the store under `home`, which is there already.
    pub(crate) fn open(home: &Path) -> Self {
        let schema = holdpoint_server::schema().unwrap();
        Self {
            db: Database::open(product_path_in(home), &schema).unwrap(),
        }
    }

    pub(crate) fn one(&self, sql: &'static str) -> i64 {
        let snapshot = self.db.snapshot().unwrap();
        snapshot
            .sql()
            .prepare_cached(sql)
            .unwrap()
            .query_row([], |row| row.get(0))
            .unwrap()
    }
}
