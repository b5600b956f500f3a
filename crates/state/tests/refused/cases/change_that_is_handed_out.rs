//! Nor can the body hand out a change, or its statements, as its result.
use holdpoint_state::testing::counter;
use holdpoint_state::{Command, Database, Outcome, StateError};

fn hand_out(db: &Database) -> Result<(), StateError> {
    let command = || Command::new(&counter::ADD, counter::resource("orders"));
    db.commit(command(), |change| Ok::<_, StateError>(Outcome::Refused(change.sql())))?; //~ E0277
    db.commit(command(), |change| Ok::<_, StateError>(Outcome::Refused(change.now())))?;
    Ok(())
}

fn main() {
    let _: fn(&Database) -> Result<(), StateError> = hand_out;
}
