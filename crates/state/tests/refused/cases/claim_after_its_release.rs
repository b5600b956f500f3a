//! A claim that was given back is gone.
use holdpoint_state::{Actor, Claim, Database, StateError};

fn release(db: &Database, claim: Claim) -> Result<(), StateError> {
    db.release(claim, Actor::host("worker"))?;
    db.renew(&claim)?; //~ E0382
    Ok(())
}

fn main() {
    let _: fn(&Database, Claim) -> Result<(), StateError> = release;
}
