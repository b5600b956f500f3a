//! Verbs.
use crate::operations::{self, HIDDEN, MACRO_HIDDEN, MUTE, TESTED};

pub fn all(db: &Database) {
    for operation in [&operations::LAUNCH, &operations::SINK, &HIDDEN, &MACRO_HIDDEN, &MUTE] {
        db.commit(Command::new(operation));
    }
}

pub(crate) const EFFECTS: &[EffectType] = &[
    EffectType { name: "boat.call", reach: Reach::External },
    // sample: local_effect_without_a_handler
    EffectType { name: "boat.count", reach: Reach::Local },
    // sample: effect_whose_reach_nobody_says
    EffectType { name: BOAT_WASH, ..PLAIN },
];

const BOAT_WASH: &str = "boat.wash";

struct Other;

impl LocalHandler for Other {
    fn effect_type(&self) -> &'static str {
        "boat.other"
    }
}

#[cfg(test)]
mod tests;

// sample: operation_of_a_macro_of_another_file
operations! {
    ELSEWHERE = "boat.elsewhere", "Declared by a macro of the operations room.";
}
