//! What an effect's work is written in: one trait for other systems, one for this database.

use crate::command::{Change, Sql};
use crate::error::StateError;
use crate::id::EffectId;
use crate::records::blobs::Payload;
use crate::records::effects::{EffectState, Observation, OwnerScope};

/// One effect as its handler sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct EffectCall {
    /// The effect, stable over all attempts: what a provider gets as its idempotency token.
    pub effect_id: EffectId,
    /// The domain's name of the work.
    pub effect_type: String,
    /// Whose authority applies it.
    pub scope: OwnerScope,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// What names the intended action within source and type.
    pub key: String,
    /// The type of the resource that made it necessary.
    pub source_type: String,
    /// The natural key of that resource.
    pub source_key: String,
    /// The revision of that resource which reserved it.
    pub source_revision: u64,
    /// The media type of the request.
    pub media_type: String,
    /// The request.
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for EffectCall {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The request and its key may be private.
        formatter
            .debug_struct("EffectCall")
            .field("effect_id", &self.effect_id)
            .field("effect_type", &self.effect_type)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl EffectCall {
    /// The request as JSON.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] when it is no JSON of this shape.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, StateError> {
        serde_json::from_slice(&self.payload).map_err(|error| StateError::Input {
            what: "effect payload",
            problem: format!("of {}: {error}", self.effect_type),
        })
    }
}

/// What became of one call of another system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// Done.
    Applied {
        /// The receipt.
        result: Option<Payload>,
        /// The provider's name of what was done.
        external_ref: Option<String>,
    },
    /// Provably not done, and worth another attempt: the effect is pending again, after the back-off.
    NotApplied {
        /// Milliseconds before which the provider wants no further attempt.
        retry_after_ms: Option<u64>,
    },
    /// Provably not done, and refused. Effects of the channel scope are tried again, three times in all.
    Rejected {
        /// Why, for the owner.
        error: String,
        /// Milliseconds before which the provider wants no further attempt.
        retry_after_ms: Option<u64>,
    },
    /// It may have been done: the answer is lost. A panic counts as this.
    Indeterminate {
        /// What was seen, for the owner.
        error: Option<String>,
    },
}

/// Does the work of one type of external effect.
///
/// Calls come from threads of the worker, with no transaction open; a slow call keeps its claim.
pub trait EffectHandler: Send + Sync {
    /// The type, which a composed domain declares as external.
    fn effect_type(&self) -> &'static str;

    /// Acts. It must not act again by itself: one call is one attempt.
    fn apply(&self, call: &EffectCall) -> ApplyOutcome;

    /// Asks the provider what became of an attempt whose receipt is lost. It must not act.
    fn observe(&self, call: &EffectCall) -> Observation {
        let _ = call;
        Observation::Unsupported
    }

    /// Whether `apply` with the same effect id is a no-op that returns the same result. Then a lost receipt is repaired by a
    /// repeat; else it needs [`EffectHandler::observe`] or a person.
    ///
    /// After a restored backup only such a token protects from acting twice.
    fn takes_token(&self) -> bool {
        false
    }

    /// Whether the fact that created the effect still stands. Asked inside the transaction that begins an attempt; reads only.
    ///
    /// # Errors
    ///
    /// Those of the database: the effect then stays as it is.
    fn still_wanted(&self, sql: &Sql<'_>, call: &EffectCall) -> Result<bool, StateError> {
        let _ = (sql, call);
        Ok(true)
    }

    /// Lets the domain follow the settlement in the same transaction. `change` is about the effect; its statements are those of
    /// the domain that declares the type, whose resources it touches through [`Change::also`].
    ///
    /// # Errors
    ///
    /// Any: the settlement is rolled back and tried again while the claim lives, then by whoever takes the effect over.
    fn settled(
        &self,
        change: &mut Change<'_>,
        call: &EffectCall,
        state: EffectState,
    ) -> Result<(), StateError> {
        let _ = (change, call, state);
        Ok(())
    }

    /// How many effects of this type one worker has in flight at most.
    fn claims_max(&self) -> usize {
        usize::MAX
    }
}

/// Does the work of one type of local effect: inside the transaction that settles it, so exactly once.
pub trait LocalHandler: Send + Sync {
    /// The type, which a composed domain declares as local.
    fn effect_type(&self) -> &'static str;

    /// Does the work. `change` is about the effect; its statements are those of the domain that declares the type, whose
    /// resources it touches through [`Change::also`]. It may run more than once, but only one run is ever committed.
    ///
    /// # Errors
    ///
    /// Any: nothing was written, the effect stays pending, and the worker comes back to it after a back-off.
    fn apply(&self, change: &mut Change<'_>, call: &EffectCall) -> Result<(), StateError>;

    /// Whether the fact that created the effect still stands; else it is cancelled.
    ///
    /// # Errors
    ///
    /// As [`LocalHandler::apply`].
    fn still_wanted(&self, sql: &Sql<'_>, call: &EffectCall) -> Result<bool, StateError> {
        let _ = (sql, call);
        Ok(true)
    }
}
