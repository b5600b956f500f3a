//! Acts of a resource on the outside world.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Digest, EffectAttempt, EffectId, EffectState};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::names::{EffectKey, Uid};

/// A wish for one act. The same key with another kind, request or generation is a conflict, for ever.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectRequest {
    /// Names the act within the resource.
    pub key: EffectKey,
    /// What kind of act it is, 1 to 256 characters.
    pub kind: String,
    /// What is asked for.
    pub request: Value,
}

/// The states of an act as people see them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EffectOutcome {
    /// Not known yet: somebody may be acting.
    Pending,
    /// Done.
    Applied,
    /// Provably not done.
    Rejected,
    /// It may have been done, and nobody here can know.
    Indeterminate,
    /// Given up before any act.
    Cancelled,
}

impl From<EffectState> for EffectOutcome {
    fn from(state: EffectState) -> Self {
        match state {
            EffectState::Pending | EffectState::Applying => Self::Pending,
            EffectState::Applied => Self::Applied,
            EffectState::Rejected => Self::Rejected,
            EffectState::Ambiguous => Self::Indeterminate,
            EffectState::Cancelled => Self::Cancelled,
        }
    }
}

/// What is known of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectRecord {
    /// The effect, whose id is also the idempotency token for the provider.
    pub effect_id: EffectId,
    /// Its name within the resource.
    pub key: EffectKey,
    /// Whose act it is.
    pub resource_uid: Uid,
    /// The generation that asked for it.
    pub generation: u64,
    /// What kind of act it is.
    pub kind: String,
    /// Where it is.
    pub state: EffectOutcome,
    /// SHA-256 of the canonical request.
    pub request_fingerprint: Digest,
    /// When it was asked for.
    pub started_at: UnixMillis,
    /// When it was settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<UnixMillis>,
    /// The provider's name of what was done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<String>,
    /// Why it was not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a pass does about an act that it asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectStep {
    /// Act, then settle this attempt.
    Act(EffectAttempt, EffectRecord),
    /// An earlier attempt may have acted: ask the provider, then say what it said.
    Observe(EffectRecord),
    /// It is over: this is what is known.
    Known(EffectRecord),
}

impl EffectStep {
    /// What is known of the act.
    pub fn record(&self) -> &EffectRecord {
        match self {
            Self::Act(_, record) | Self::Observe(record) | Self::Known(record) => record,
        }
    }
}
