//! A change ends with its command: the body can't keep it, not even on its own thread.
use std::cell::RefCell;

use holdpoint_state::testing::counter;
use holdpoint_state::{Change, Command, Database, Outcome, StateError};

thread_local! {
    static KEPT: RefCell<Vec<&'static mut Change<'static>>> = const { RefCell::new(Vec::new()) };
}

fn keep(db: &Database) -> Result<(), StateError> {
    let command = Command::new(&counter::ADD, counter::resource("orders"));
    db.commit(command, |change| {
        let revision = change.revision();
        KEPT.with_borrow_mut(|kept| kept.push(change)); //~ E0521
        Ok::<_, StateError>(Outcome::Refused(revision))
    })?;
    KEPT.with_borrow_mut(Vec::clear);
    Ok(())
}

fn main() {
    let _: fn(&Database) -> Result<(), StateError> = keep;
}
