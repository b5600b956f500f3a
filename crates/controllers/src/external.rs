//! Effects that a pass has on other systems: what a program brings for one, and what it hears of it.
//!
//! Not here: when which function is called (`pass`), what is stored (`commands::effects`).

use holdpoint_state::EffectId;
use holdpoint_workflows::definition::CancellationSignal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::controller::PassError;

/// One act on another system that must not happen twice unseen. A pass has it done by [`Pass::ensure`](crate::Pass::ensure).
///
/// The key names the intent within the resource: the same key stands for the same kind and request for ever, and a pass that meets it
/// again gets the receipt instead of acting. Name in the key what makes an act another one, such as the digest of the content.
///
/// **Deleting.** Whoever asks for the end of something may find it gone: an earlier call whose answer was lost, a person, another
/// cleanup. An effect that removes something therefore treats "not found" as done, in `apply` as in `observe`; otherwise the resource
/// could never be deleted:
///
/// ```
/// use holdpoint_controllers::{EffectCall, Acted, ExternalEffect, Observed, PassError};
/// use serde_json::{Value, json};
///
/// struct RemoveFile(std::path::PathBuf);
///
/// impl ExternalEffect for RemoveFile {
///     fn kind(&self) -> &str {
///         "file.remove"
///     }
///
///     fn key(&self) -> String {
///         format!("remove {}", self.0.display())
///     }
///
///     fn request(&self) -> Value {
///         json!({ "path": self.0 })
///     }
///
///     fn observe(&self, _call: &EffectCall<'_>) -> Result<Observed, PassError> {
///         Ok(if self.0.try_exists()? { Observed::NotApplied } else { Observed::applied() })
///     }
///
///     fn apply(&self, _call: &EffectCall<'_>) -> Result<Acted, PassError> {
///         match std::fs::remove_file(&self.0) {
///             Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
///             Ok(()) | Err(_) => Ok(Acted::applied()),
///         }
///     }
/// }
/// ```
pub trait ExternalEffect {
    /// The program's name of this kind of act, such as `bucket.create`.
    fn kind(&self) -> &str;

    /// The intent, within the resource: 1 to 512 characters.
    fn key(&self) -> String;

    /// What is asked of the other system, whole. It is stored: no credentials.
    fn request(&self) -> Value;

    /// Looks what became of an earlier attempt whose receipt is lost. It must not act.
    ///
    /// # Errors
    ///
    /// Nothing can be known now: the pass fails, and a later one asks again.
    fn observe(&self, call: &EffectCall<'_>) -> Result<Observed, PassError>;

    /// Acts, once. It must not act again by itself.
    ///
    /// # Errors
    ///
    /// Anything that leaves open whether it happened: the effect is then indeterminate, and the next pass observes. What provably did
    /// not happen is [`Acted::Rejected`].
    fn apply(&self, call: &EffectCall<'_>) -> Result<Acted, PassError>;
}

/// Which effect it is, as the other system may be told.
#[derive(Debug, Clone, Copy)]
pub struct EffectCall<'a> {
    /// The effect, the same in all attempts: what a provider gets as its idempotency token.
    pub effect_id: &'a EffectId,
    /// Says when the pass should end.
    pub cancellation: &'a CancellationSignal,
}

/// What became of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "outcome",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Acted {
    /// It happened.
    Applied {
        /// The other system's name of what was done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        external_ref: Option<String>,
    },
    /// It provably did not happen, and will not under this key.
    Rejected {
        /// Why. It is stored and shown.
        error: String,
    },
    /// It may have happened.
    Indeterminate {
        /// What was seen. It is stored and shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
}

impl Acted {
    /// It happened, and has no name.
    pub const fn applied() -> Self {
        Self::Applied { external_ref: None }
    }

    /// It happened, and the other system calls it so.
    pub fn applied_as(external_ref: impl Into<String>) -> Self {
        Self::Applied {
            external_ref: Some(external_ref.into()),
        }
    }

    /// It provably did not happen.
    pub fn rejected(error: impl Into<String>) -> Self {
        Self::Rejected {
            error: error.into(),
        }
    }
}

/// What is seen of an earlier attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "observed",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Observed {
    /// It happened.
    Applied {
        /// The other system's name of what was done.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        external_ref: Option<String>,
    },
    /// It did not happen, and no earlier attempt can still do it: the pass acts.
    NotApplied,
    /// The other system can't tell.
    Indeterminate,
}

impl Observed {
    /// It happened, and has no name.
    pub const fn applied() -> Self {
        Self::Applied { external_ref: None }
    }

    /// It happened, and the other system calls it so.
    pub fn applied_as(external_ref: impl Into<String>) -> Self {
        Self::Applied {
            external_ref: Some(external_ref.into()),
        }
    }
}
