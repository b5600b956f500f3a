//! A domain with every room, one of them a folder.
pub mod commands;
pub mod model;
pub mod operations;
mod store;
pub mod testing;
mod verify;
pub mod views;

pub const DOMAIN: Domain = Domain {
    operations: operations::ALL,
    // sample: effects_with_a_handler_or_elsewhere
    effect_types: &[
        EffectType { name: "ship.call", summary: "Calls.", reach: Reach::External },
        EffectType { name: "ship.count", summary: "Counts.", reach: Reach::Local },
        EffectType { name: commands::SHIP_WASH, summary: "Washes.", reach: Reach::Local },
    ],
    invariants: verify::INVARIANTS,
    ..Domain::named("ships")
};
