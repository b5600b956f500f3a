//! Effects: the transactional outbox. Rows and transitions; who does the work is in the `effects` room.
//!
//! Every transition moves the effect's own revision by one and writes one event with its attempt number and nothing private. All
//! SQL on `effects` and `effect_attempts` is in this room and the rooms under it. Not here: handlers, threads, waiting.
//!
//! An effect is taken by one of two kinds of owner. A run or a controller begins and settles its effects inside its own changes,
//! under the lease of the *source* ([`Change::begin_effect`](crate::Change::begin_effect)); the effect's own lease stays free.
//! An outbox worker holds the lease of the *effect*. An effect is in flight in the outbox exactly while its own lease has an
//! owner, and neither kind touches what the other has in flight.

mod model;
pub(crate) mod outbox;
pub(crate) mod resolution;
mod source;
mod steps;
mod store;
pub(crate) mod views;

use crate::command::{ActorKind, LeaseRule, Operation};

pub use model::{
    Cancelled, EffectAttempt, EffectIdentity, EffectStart, EffectState, NewEffect, Observation,
    OwnerScope, Recovered, Reserved, Settlement,
};
pub use resolution::{Decision, Resolution, Resolved};
pub use views::{EffectContent, EffectCounts, EffectFilter, EffectView};

/// The resource type of effects.
pub const RESOURCE_TYPE: &str = "effect";
/// How many attempts a rejected channel effect gets in all.
pub const CHANNEL_ATTEMPTS_MAX: u32 = 3;

macro_rules! operations {
    ($($(#[$meta:meta])* $constant:ident = $name:literal, $event:literal, $actors:expr, $from:expr => $to:expr, $summary:literal;)*) => {
        $($(#[$meta])* pub const $constant: Operation = Operation {
            name: $name,
            event: $event,
            resource: RESOURCE_TYPE,
            summary: $summary,
            actors: $actors,
            lease: LeaseRule::NotRequired,
            from: &$from,
            to: &$to,
        };)*
    };
}

/// Who looked at the outside world and may say what happened there.
const OPERATORS: &[ActorKind] = &[ActorKind::Human, ActorKind::Control];
const ANYBODY: &[ActorKind] = ActorKind::ALL;

operations! {
    /// F1 and F2.
    RESERVE = "effect.reserve", "effect.reserved", ANYBODY, ["none"] => ["pending", "applying"],
        "Records the intent of one follow-up, with its source; a run may begin it at once.";
    /// F3 and F10 by an outbox worker or a channel.
    BEGIN = "effect.begin", "effect.applying", ANYBODY, ["pending", "rejected"] => ["applying"],
        "Begins the next attempt: somebody may be acting from now on.";
    /// F3 by the owner of the source.
    RETRY = "effect.retry", "effect.retry_started", ANYBODY, ["pending"] => ["applying"],
        "Begins the next attempt of a run's or controller's effect.";
    /// F4 and F9.
    APPLY = "effect.apply", "effect.applied", ANYBODY, ["applying", "pending"] => ["applied"],
        "Settles an effect that was done, with its receipt.";
    /// F5.
    REJECT = "effect.reject", "effect.rejected", ANYBODY, ["applying"] => ["rejected"],
        "Settles an effect that was provably not done.";
    /// A rejected effect whose next attempt is not wanted any more.
    GIVE_UP = "effect.give_up", "effect.rejected", ANYBODY, ["rejected"] => ["rejected"],
        "Takes a rejected effect's next attempt away.";
    /// F6.
    DOUBT = "effect.doubt", "effect.ambiguous", ANYBODY, ["applying"] => ["ambiguous"],
        "Says that an effect may have happened and that nobody here can know.";
    /// F7 and the observed half of F12.
    RETURN = "effect.return", "effect.retry_ready", ANYBODY, ["applying", "ambiguous"] => ["pending"],
        "Makes an effect ready for another attempt, which is safe or was observed to be needed.";
    /// F8.
    CANCEL = "effect.cancel", "effect.cancelled", ANYBODY, ["pending"] => ["cancelled"],
        "Gives an effect up before any act.";
    /// F11 by observation.
    RECOVER = "effect.recover", "effect.recovered", ANYBODY, ["ambiguous"] => ["applied"],
        "Settles an ambiguous effect that the provider was seen to have done.";
    /// F11 by an operator.
    CONFIRM = "effect.confirm", "effect.recovered_confirmed", OPERATORS, ["ambiguous"] => ["applied"],
        "A person says that an ambiguous effect happened.";
    /// F12 by an operator.
    RESOLVE_RETRY = "effect.resolve_retry", "effect.retry_ready", OPERATORS, ["ambiguous", "rejected"] => ["pending"],
        "A person takes the risk of a duplicate and asks for another attempt, or for one more of what a channel was refused for good.";
    /// F13.
    RESOLVE_REJECT = "effect.resolve_reject", "effect.recovered_rejected", OPERATORS, ["ambiguous"] => ["rejected"],
        "A person says that an ambiguous effect did not happen and must not.";
}
