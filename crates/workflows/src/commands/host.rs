//! One server for each store: the lease that says which, and its epoch.

use holdpoint_state::{Actor, Claim, Command, Database, Outcome, Owner, Resource, StateError};

use crate::operations;

/// The type of the resource that servers hold, and its one name.
pub(crate) const HOST: &str = "workflow_host";
const NAME: &str = "server";

/// Makes `owner` the one server of this store. The generation of the claim is its epoch: it grows with each start.
///
/// An owner that has said that it lives ([`Database::announce_owner`]) and is dead is taken over at once.
///
/// # Errors
///
/// [`StateError::LeaseHeld`] while another one lives.
pub fn start_host(db: &Database, owner: &Owner, lease_ms: i64) -> Result<Claim, StateError> {
    let host = Resource::new(HOST, NAME);
    // The command that makes a resource may do nothing else when it is there already.
    let create = Command::new(&operations::CREATE_HOST, host.clone())
        .by(Actor::host(owner.id()))
        .creating();
    db.commit(create, |change| {
        if !change.is_new() {
            return Ok::<_, StateError>(Outcome::Adopted(()));
        }
        change.resource_key()?;
        Ok(Outcome::Accepted(()))
    })?;
    let start = Command::new(&operations::START_HOST, host).by(Actor::host(owner.id()));
    let owner = owner.clone();
    let started = db.commit(start, move |change| {
        Ok::<_, StateError>(Outcome::Accepted(change.claim(&owner, lease_ms)?))
    })?;
    Ok(started.value)
}

/// Gives the place back.
///
/// # Errors
///
/// [`StateError::ClaimLost`] when another server has it.
pub fn stop_host(db: &Database, claim: &Claim) -> Result<(), StateError> {
    let stop = Command::new(&operations::STOP_HOST, claim.resource().clone())
        .by(Actor::host(claim.owner().id()))
        .holding(claim);
    db.commit(stop, |change| {
        change.release()?;
        Ok::<_, StateError>(Outcome::Accepted(()))
    })?;
    Ok(())
}
