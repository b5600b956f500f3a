//! Verbs.
use crate::operations::{self, PAINT};

pub const SHIP_WASH: &str = "ship.wash";

pub fn launch(db: &Database) {
    db.commit(Command::new(&operations::LAUNCH));
    let choose = || if db.is_open() { &PAINT } else { &operations::SINK };
    db.commit(Command::new(choose()));
}

// sample: operation_used_in_a_macro
pub fn rename(db: &Database) {
    commit!(db, operations::RENAME);
}

// sample: effect_that_its_own_domain_settles
fn wash(change: &mut Change<'_>) {
    change.apply_local_effects(SHIP_WASH);
}

struct Count;

impl holdpoint_state::effects::LocalHandler for Count {
    fn effect_type(&self) -> &'static str {
        "ship.count"
    }

    fn apply(&self, change: &mut Change<'_>, call: &EffectCall) -> Result<(), StateError> {
        Ok(())
    }
}
