//! One winner among processes that claim the same lease.

use holdpoint_state::testing::counter;
use holdpoint_state::{Actor, Owner, OwnerKind, StateError};

use super::child::{Child, Home, listen, open, say, task};

/// Claims the resource that the parent names, again and again, and says what came of it.
#[test]
fn child_claims() {
    let Some((store, _)) = task() else { return };
    let db = open(&store, 5_000);
    let owner = Owner::new(OwnerKind::Host, "same-name-everywhere");
    say("ready");
    loop {
        let name = listen();
        if name.is_empty() {
            return;
        }
        let claimed = db.claim(
            counter::resource(&name),
            Actor::host("child"),
            &owner,
            3_600_000,
        );
        match claimed {
            Ok(claim) => say(&format!("won {}", claim.generation())),
            Err(StateError::LeaseHeld { .. }) => say("held"),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_lease_has_one_winner_among_processes() {
    let rounds = ["r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"];
    let home = Home::new(&rounds);
    let mut children: Vec<Child> = (0..4)
        .map(|_| Child::start("claims::child_claims", &home.store, ""))
        .collect();
    for child in &mut children {
        assert_eq!(child.hear(), "ready");
    }
    for round in rounds {
        for child in &mut children {
            child.tell(round);
        }
        let mut words: Vec<String> = children.iter_mut().map(Child::hear).collect();
        words.sort();
        assert_eq!(words, ["held", "held", "held", "won 1"], "{round}");
    }
    for mut child in children {
        child.tell("");
        child.finish();
    }
}
