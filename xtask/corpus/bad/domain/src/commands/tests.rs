//! Compiled for tests only: what is used here alone is not used.

fn tested(db: &Database) {
    db.commit(Command::new(&crate::operations::IN_TEST_FILE));
}
