//! Faults that only the writer's connection can have, for the testing kit. Not compiled into a product.

use std::sync::mpsc;

use super::Database;
use super::ticket::{Job, JobState};
use crate::command::Transaction;
use crate::error::StateError;

struct PageLimit {
    sql: &'static str,
    kept: Result<(), StateError>,
    told: mpsc::Sender<Result<(), StateError>>,
}

impl Job for PageLimit {
    fn run(&mut self, transaction: &Transaction<'_>) -> JobState {
        self.kept = transaction
            .guard
            .control(transaction.connection, self.sql)
            .map_err(StateError::from);
        JobState::Done
    }

    fn finish(self: Box<Self>) {
        // Whoever asked may be gone; nobody needs to know then.
        drop(self.told.send(self.kept));
    }

    fn fail(self: Box<Self>, error: StateError) {
        drop(self.told.send(Err(error)));
    }

    fn operation(&self) -> &'static str {
        "testing.limit_pages"
    }
}

pub(crate) fn limit_pages(db: &Database, pages: u32) -> Result<(), StateError> {
    // A setting takes no parameters. The text lives as long as the test.
    let sql: &'static str = Box::leak(format!("PRAGMA max_page_count = {pages}").into_boxed_str());
    let (told, result) = mpsc::channel();
    let shared = db.shared();
    shared.queue.push(
        Box::new(PageLimit {
            sql,
            kept: Ok(()),
            told,
        }),
        shared.options.busy_timeout_ms,
    )?;
    result.recv().unwrap_or(Err(StateError::Closed))
}
