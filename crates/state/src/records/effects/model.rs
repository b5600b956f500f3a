//! The nouns of effects. No SQL here.

use std::fmt;

use crate::clock::UnixMillis;
use crate::error::StateError;
use crate::id::{EffectId, Resource, derived_id};
use crate::json;
use crate::records::blobs::Payload;
use crate::records::resources::ResourceKey;

/// The longest effect type, and the longest key of an effect outside the controller scope, in characters.
const NAME_CHARS_MAX: usize = 256;
/// The longest key of a controller effect, in characters.
const CONTROLLER_KEY_CHARS_MAX: usize = 512;
/// The longest stored error, in characters; what is cut off shows as an ellipsis.
const ERROR_CHARS_MAX: usize = 8_192;

/// Where an effect is between intent and receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EffectState {
    /// To do.
    Pending,
    /// Somebody may be acting now.
    Applying,
    /// Done.
    Applied,
    /// Provably not done.
    Rejected,
    /// May have happened; cannot be known here. Never tried again automatically, never shown as success.
    Ambiguous,
    /// Given up before any act.
    Cancelled,
}

impl EffectState {
    /// Every state.
    pub const ALL: &'static [Self] = &[
        Self::Pending,
        Self::Applying,
        Self::Applied,
        Self::Rejected,
        Self::Ambiguous,
        Self::Cancelled,
    ];

    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Rejected => "rejected",
            Self::Ambiguous => "ambiguous",
            Self::Cancelled => "cancelled",
        }
    }

    /// Reads the stored word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|state| state.as_str() == text)
    }

    /// A code that says why the effect did not succeed and gives nothing private away.
    pub const fn error_code(self) -> Option<&'static str> {
        match self {
            Self::Rejected => Some("effectRejected"),
            Self::Ambiguous => Some("effectAmbiguous"),
            Self::Cancelled => Some("effectCancelled"),
            Self::Pending | Self::Applying | Self::Applied => None,
        }
    }
}

impl fmt::Display for EffectState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Whose authority applies an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OwnerScope {
    /// A run's.
    Run,
    /// A controller's.
    Controller,
    /// A channel's. Rejected effects of this scope are tried again, three times in all.
    Channel,
    /// The system's.
    System,
}

impl OwnerScope {
    /// Every scope.
    pub const ALL: &'static [Self] = &[Self::Run, Self::Controller, Self::Channel, Self::System];

    /// The word that is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Controller => "controller",
            Self::Channel => "channel",
            Self::System => "system",
        }
    }

    /// Reads the stored word.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|scope| scope.as_str() == text)
    }
}

/// From what an effect's id is derived (effects reference, section 3): what a retry must have in common to meet its earlier self.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectIdentity {
    /// Source, type and key: a run's actions.
    SourceTypeKey,
    /// Source and key: a controller's effects, where one key stands for one intent of whatever kind.
    SourceKey,
    /// The canonical JSON of what the effect is about, made by [`EffectIdentity::natural`].
    Natural(String),
}

impl EffectIdentity {
    /// An identity of its own, such as `{decisionId, effectType}`. Its effects have one source, among whose effects a repeat is
    /// looked for.
    ///
    /// # Errors
    ///
    /// [`StateError::Json`] when the value has no canonical form.
    pub fn natural<T: serde::Serialize + ?Sized>(value: &T) -> Result<Self, StateError> {
        let bytes = json::to_canonical(value).map_err(|source| StateError::Json {
            what: "effect identity",
            source,
        })?;
        Ok(Self::Natural(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The effect id of a natural identity, which some families also use as the key.
    fn natural_id(value: &str) -> EffectId {
        derived_id("effect", &[value]).into()
    }
}

/// The wish for one follow-up.
///
/// ```
/// use holdpoint_state::{NewEffect, OwnerScope, Payload};
///
/// let payload = Payload::json(&serde_json::json!({ "recovery": "manual", "request": {} }))?;
/// let effect = NewEffect::new("preview.deploy", "node-1", OwnerScope::Run, payload);
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEffect {
    /// The domain's name of the work.
    pub effect_type: String,
    /// Names one intended action within source and type.
    pub key: String,
    /// Whose authority applies it.
    pub scope: OwnerScope,
    /// The canonical request. The same key with another payload is a conflict for ever. Two members of a JSON object mean
    /// something here: `recovery` (`"idempotent"` means that trying again is safe; anything else is manual) and
    /// `receiptRequired` (`false` lets an operator confirm a run's action without a receipt).
    pub payload: Payload,
    /// From what the effect id is derived.
    pub identity: EffectIdentity,
    /// When it may begin; at once when none.
    pub due_at: Option<UnixMillis>,
    /// The line in which it stands: outbox effects with one ordering key are applied one at a time, in the order of their
    /// creation. Only for effects that an outbox worker applies.
    pub ordering_key: Option<String>,
}

impl NewEffect {
    /// An effect that is due at once, stands in no line, and is identified by source, type and key.
    pub fn new(
        effect_type: impl Into<String>,
        key: impl Into<String>,
        scope: OwnerScope,
        payload: Payload,
    ) -> Self {
        Self {
            effect_type: effect_type.into(),
            key: key.into(),
            scope,
            payload,
            identity: EffectIdentity::SourceTypeKey,
            due_at: None,
            ordering_key: None,
        }
    }

    /// An effect whose key is its own id, derived from `identity`: the channel family.
    ///
    /// # Errors
    ///
    /// [`StateError::Json`] when the identity has no canonical form.
    pub fn keyed_by_identity<T: serde::Serialize + ?Sized>(
        effect_type: impl Into<String>,
        identity: &T,
        scope: OwnerScope,
        payload: Payload,
    ) -> Result<Self, StateError> {
        let identity = EffectIdentity::natural(identity)?;
        let key = match &identity {
            EffectIdentity::Natural(value) => EffectIdentity::natural_id(value).to_string(),
            EffectIdentity::SourceTypeKey | EffectIdentity::SourceKey => String::new(),
        };
        Ok(Self::new(effect_type, key, scope, payload).identified_by(identity))
    }

    /// Says from what the effect id is derived.
    #[must_use]
    pub fn identified_by(mut self, identity: EffectIdentity) -> Self {
        self.identity = identity;
        self
    }

    /// Says when it may begin.
    #[must_use]
    pub fn due_at(mut self, at: UnixMillis) -> Self {
        self.due_at = Some(at);
        self
    }

    /// Says in which line it stands.
    #[must_use]
    pub fn ordered_by(mut self, ordering_key: impl Into<String>) -> Self {
        self.ordering_key = Some(ordering_key.into());
        self
    }

    /// The id that this effect has, or would have, as a follow-up of `source`.
    pub fn id(&self, source: &Resource) -> EffectId {
        match &self.identity {
            EffectIdentity::SourceTypeKey => derived_id(
                "effect",
                &[source.id().as_str(), &self.effect_type, &self.key],
            )
            .into(),
            EffectIdentity::SourceKey => {
                derived_id("effect", &[source.id().as_str(), &self.key]).into()
            }
            EffectIdentity::Natural(value) => EffectIdentity::natural_id(value),
        }
    }

    /// Checks the lengths, before any row.
    pub(super) fn validate(&self) -> Result<(), StateError> {
        let key_chars_max = match self.scope {
            OwnerScope::Controller => CONTROLLER_KEY_CHARS_MAX,
            OwnerScope::Run | OwnerScope::Channel | OwnerScope::System => NAME_CHARS_MAX,
        };
        check_length("effect type", &self.effect_type, NAME_CHARS_MAX)?;
        check_length("effect key", &self.key, key_chars_max)?;
        match &self.ordering_key {
            Some(key) => check_length("ordering key", key, NAME_CHARS_MAX),
            None => Ok(()),
        }
    }
}

fn check_length(what: &'static str, text: &str, chars_max: usize) -> Result<(), StateError> {
    let chars = text.chars().count();
    if chars == 0 || chars_max < chars {
        return Err(StateError::Input {
            what,
            problem: format!("{chars} characters; give 1 to {chars_max}"),
        });
    }
    Ok(())
}

/// What became of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    /// The effect.
    pub effect_id: EffectId,
    /// Whether an earlier change had reserved it, so that nothing was written.
    pub adopted: bool,
}

/// One numbered try that has begun. It names the try; it is no right: settling compares it with the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EffectAttempt {
    /// The effect, whose id is also the idempotency token for the provider.
    pub effect_id: EffectId,
    /// The number of the try, from 1.
    pub number: u32,
    /// Where the effect's row is.
    pub(super) key: ResourceKey,
}

impl EffectAttempt {
    /// A try as a process without the store knows it, by its name. It can't be settled: only who began it knows its row.
    pub fn named(effect_id: EffectId, number: u32) -> Self {
        Self {
            effect_id,
            number,
            key: ResourceKey::NOWHERE,
        }
    }
}

/// What the owner of a source may do about an effect now (effects reference, section 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectStart {
    /// Act, then settle this attempt.
    Execute(EffectAttempt),
    /// It was done before: go on with the stored receipt, without acting.
    Adopted {
        /// The effect.
        effect_id: EffectId,
        /// The stored result; none when it was applied without one.
        result: Option<Vec<u8>>,
        /// The provider's name of what was done.
        external_ref: Option<String>,
    },
    /// It may have happened, or another attempt may be acting. Park.
    Ambiguous {
        /// The effect.
        effect_id: EffectId,
    },
    /// It was provably not done, with this error. Fail again in the same way.
    Rejected {
        /// The effect.
        effect_id: EffectId,
        /// The stored error.
        error: String,
    },
    /// It was given up.
    Cancelled {
        /// The effect.
        effect_id: EffectId,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Done.
    Applied {
        /// The receipt that a later reservation adopts.
        result: Option<Payload>,
        /// The provider's name of what was done.
        external_ref: Option<String>,
    },
    /// Provably not done.
    Rejected {
        /// Why, for the owner.
        error: String,
    },
    /// May have been done.
    Ambiguous {
        /// What was seen, for the owner.
        error: Option<String>,
    },
    /// Stopped on the way and safe to try again: back to pending. Only for effects whose payload says `idempotent`.
    Interrupted,
}

/// What the provider says about an effect when it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// It was done.
    Applied {
        /// The receipt.
        result: Option<Payload>,
        /// The provider's name of what was done.
        external_ref: Option<String>,
    },
    /// It was not done, and no earlier attempt can still do it.
    NotApplied,
    /// The provider can't tell.
    Indeterminate,
    /// This handler can't ask.
    Unsupported,
    /// Asking failed, for example for the network. Nothing is known and nothing changes; ask again later.
    Failed {
        /// Why, for the log.
        error: String,
    },
}

/// What recovery found to be left open by a former owner of the source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Safe to try again; they are pending now.
    pub returned: Vec<EffectId>,
    /// Cannot be known: every ambiguous effect of the source, also those that were ambiguous before.
    pub ambiguous: Vec<EffectId>,
}

impl Recovered {
    /// Whether the owner may go on: nothing of the source is ambiguous.
    pub fn is_safe(&self) -> bool {
        self.ambiguous.is_empty()
    }
}

/// What a cancellation of the source did to its effects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cancelled {
    /// Given up before any act.
    pub cancelled: Vec<EffectId>,
    /// Somebody was acting: they may have happened.
    pub ambiguous: Vec<EffectId>,
}

/// The resource of an effect.
pub(crate) fn resource(id: &EffectId) -> Resource {
    Resource::new(super::RESOURCE_TYPE, id.as_str())
}

/// An error text as it is stored.
pub(super) fn error_payload(error: &str) -> Result<Payload, StateError> {
    match error.char_indices().nth(ERROR_CHARS_MAX) {
        Some((end, _)) => Payload::text(format!("{}…", error.get(..end).unwrap_or_default())),
        None => Payload::text(error),
    }
}
