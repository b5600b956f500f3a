//! A store function takes the right to write as its argument.
use holdpoint_state::StateError;
use holdpoint_state::testing::counter;

fn sneak() -> Result<(), StateError> {
    counter::insert()?; //~ E0061
    Ok(())
}

fn main() {
    sneak().ok();
}
