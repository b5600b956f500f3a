//! Candidates, and what became of them.

use std::fmt;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::id::derived_id;
use serde::Serialize;
use serde_json::Value;

use super::id::DecisionId;
use super::invalid::Invalid;
use super::record::{Provenance, Resolution, Source};
use super::response::RejectCode;
use super::text::check_identity;
use super::words;
use crate::digest::DocumentDigest;

words! {
    /// Which road a candidate came.
    SubmissionSource {
        /// A person at the session of the run.
        Human = "human",
        /// The automatic answer, or the expiry.
        Policy = "policy",
        /// A person through an external channel.
        Channel = "channel",
        /// Somebody with control, or the end of the run.
        Control = "control",
    }
}

words! {
    /// What became of a candidate. It is final.
    SubmissionResult {
        /// It is the one resolution.
        Won = "won",
        /// It was an earlier candidate again. Such a repeat writes no row, so that this word is never stored.
        Adopted = "adopted",
        /// There is a resolution already.
        AlreadyResolved = "already_resolved",
        /// It answers something else than what is asked.
        Stale = "stale",
        /// It may not be given, or came too late.
        Rejected = "rejected",
    }
}

/// One candidate of a person. The host that received it says where it came from.
///
/// Its `Debug` shows neither the source nor the key nor the answer.
#[derive(Clone, PartialEq)]
pub struct Submission {
    /// The decision.
    pub decision_id: DecisionId,
    /// What the person saw.
    pub request_digest: DocumentDigest,
    /// The answer as it came.
    pub response: Value,
    /// Where it came from.
    pub source: Source,
    /// The name by which the host knows this person in the place where runs are asked for, if private configuration gives it one. It
    /// decides whether another person than the requester answers, and is not stored.
    pub person: Option<String>,
    /// Tells it from other candidates of its channel.
    pub idempotency_key: String,
}

impl Submission {
    /// Checks the lengths of what identifies the candidate.
    ///
    /// # Errors
    ///
    /// [`Invalid`].
    pub fn check(&self) -> Result<(), Invalid> {
        check_identity("actor id", &self.source.actor_id)?;
        check_identity("event id", &self.source.event_id)?;
        check_identity("idempotency key", &self.idempotency_key)
    }
}

impl fmt::Debug for Submission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Submission")
            .field("decision_id", &self.decision_id)
            .field("request_digest", &self.request_digest)
            .finish_non_exhaustive()
    }
}

/// The id of a candidate: it follows from what it is for and how it is told from others, so that a retry meets its earlier self.
pub fn submission_id(
    decision: &DecisionId,
    source: SubmissionSource,
    channel: Option<&str>,
    key: &str,
) -> String {
    derived_id(
        "submission",
        &[
            decision.as_str(),
            source.as_str(),
            channel.unwrap_or_default(),
            key,
        ],
    )
}

/// What a resolving command comes to. Nothing in it is private: it may be shown and sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Judged {
    /// This candidate is the one resolution.
    Accepted {
        /// What everybody may see of it.
        resolution: Resolution,
    },
    /// An identical earlier command came to this.
    Adopted {
        /// What it came to.
        earlier: Adopted,
    },
    /// Something stands against it.
    Conflict {
        /// What.
        conflict: Conflict,
    },
    /// It is no answer to what is asked, may not be given, or the decision was cancelled.
    Rejected {
        /// Why.
        reason: Rejection,
    },
    /// The time of the policy or of the expiry has not come. Nothing was written.
    NotDue {
        /// When it comes.
        deadline_at: Option<UnixMillis>,
    },
    /// There is no such decision for this session or run. Nothing was written.
    NotFound,
}

/// Why a candidate was refused, safe to be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "why", rename_all = "camelCase")]
pub enum Rejection {
    /// It answers something else than what is asked: an earlier attempt, another revision.
    Stale,
    /// The answer may not be given, or not any more.
    Invalid {
        /// Why.
        code: RejectCode,
    },
    /// The decision was cancelled.
    Cancelled {
        /// How it ended.
        resolution: Resolution,
    },
}

/// What an identical earlier command came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "as", rename_all = "camelCase")]
pub enum Adopted {
    /// It is the one resolution.
    Won {
        /// What everybody may see of it.
        resolution: Resolution,
    },
    /// It lost against this.
    AlreadyResolved {
        /// What everybody may see of it.
        resolution: Resolution,
    },
    /// It answered something else.
    Stale,
    /// It was refused.
    Rejected {
        /// Why.
        code: RejectCode,
    },
}

/// What stands against a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "with", rename_all = "camelCase")]
pub enum Conflict {
    /// Another candidate won.
    Winner {
        /// What everybody may see of it.
        resolution: Resolution,
    },
    /// The key was used for something else.
    Key,
    /// The run is paused; answer again, with a new key, once it goes on.
    Paused,
}

impl Judged {
    /// How the decision ended, if this says so.
    pub fn resolution(&self) -> Option<&Resolution> {
        match self {
            Self::Accepted { resolution }
            | Self::Adopted {
                earlier: Adopted::Won { resolution } | Adopted::AlreadyResolved { resolution },
            }
            | Self::Conflict {
                conflict: Conflict::Winner { resolution },
            }
            | Self::Rejected {
                reason: Rejection::Cancelled { resolution },
            } => Some(resolution),
            Self::Adopted {
                earlier: Adopted::Stale | Adopted::Rejected { .. },
            }
            | Self::Conflict {
                conflict: Conflict::Key | Conflict::Paused,
            }
            | Self::Rejected {
                reason: Rejection::Stale | Rejection::Invalid { .. },
            }
            | Self::NotDue { .. }
            | Self::NotFound => None,
        }
    }

    /// Whether the decision is resolved by this candidate, now or earlier.
    pub fn has_won(&self) -> bool {
        matches!(
            self,
            Self::Accepted { .. }
                | Self::Adopted {
                    earlier: Adopted::Won { .. }
                }
        )
    }

    /// What ended the decision, if this says so.
    pub fn provenance(&self) -> Option<Provenance> {
        self.resolution().map(Resolution::provenance)
    }
}
