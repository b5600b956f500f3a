//! Effects: the transactional outbox. Rows and transitions; who does the work is in the `effects` room.

use crate::command::{ActorKind, LeaseRule, Operation};

macro_rules! operations {
    ($($(#[$meta:meta])* $constant:ident = $name:literal, $event:literal, $from:expr => $to:expr, $summary:literal;)*) => {
        $($(#[$meta])* pub const $constant: Operation = Operation {
            name: $name,
            event: $event,
            resource: "effect",
            summary: $summary,
            actors: ActorKind::ALL,
            lease: LeaseRule::NotRequired,
            from: &$from,
            to: &$to,
        };)*
    };
}

operations! {
    /// F1 and F2.
    RESERVE = "effect.reserve", "effect.reserved", ["none"] => ["pending", "applying"], "Records the intent of one follow-up, with its source.";
}
