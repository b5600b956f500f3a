//! A claim comes from the kernel alone: nothing can be put into one, and there are never two of it.
use holdpoint_state::{Claim, Owner, Resource};

fn forge(mut claim: Claim, resource: Resource, owner: Owner) {
    claim.generation += 1; //~ E0616
    let second = claim.clone(); //~ E0599
    let made = Claim::new(resource, owner, 7); //~ E0599
    drop(claim);
}

fn main() {
    let _: fn(Claim, Resource, Owner) = forge;
}
