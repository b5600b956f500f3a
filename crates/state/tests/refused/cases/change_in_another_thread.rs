//! A change stays on the writer's thread, inside its transaction.
use holdpoint_state::testing::counter;
use holdpoint_state::{Command, Database, Outcome, StateError};

fn elsewhere(db: &Database) -> Result<(), StateError> {
    let command = Command::new(&counter::ADD, counter::resource("orders"));
    db.commit(command, |change| {
        let revision = change.revision();
        std::thread::scope(|scope| scope.spawn(|| counter::increase(change, 1)).join().is_ok()); //~ E0277
        Ok::<_, StateError>(Outcome::Refused(revision))
    })?;
    Ok(())
}

fn main() {
    let _: fn(&Database) -> Result<(), StateError> = elsewhere;
}
