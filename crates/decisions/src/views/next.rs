//! What happens next to a decision, and who does it. A projection of what a view shows: nothing is stored of it.

use std::fmt;

use holdpoint_state::clock::UnixMillis;
use serde::Serialize;

use super::{DecisionView, DisplayStatus};
use crate::model::{Provenance, Resolution, to_iso};

/// What happens next to a decision. Its `Display` is a sentence for people, whose labels are text from outside.
///
/// A deadline does nothing by itself: finding it passed grants nobody anything. Whoever works on the store applies what it leads to, under
/// the lease of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(
    tag = "what",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Next {
    /// A person answers.
    Answer {
        /// To whom it is addressed.
        audience: String,
        /// From when on no person may answer.
        #[serde(with = "instant")]
        until: Option<UnixMillis>,
        /// The label of the choice that is given then; none when the decision ends without an answer.
        automatic: Option<String>,
    },
    /// Its run is paused: nobody may answer until somebody resumes the run.
    Resume {
        /// From when on no person may answer; a pause does not stop it.
        #[serde(with = "instant")]
        until: Option<UnixMillis>,
    },
    /// The deadline has passed: whoever works on the store next gives the automatic answer.
    AutomaticAnswer {
        /// The label of its choice.
        label: String,
        /// The run stays paused with it.
        stays_paused: bool,
    },
    /// The deadline has passed: whoever works on the store next ends the decision without an answer, and its run with it.
    Expiry,
    /// It is answered: a runner takes its run up.
    RunGoesOn,
    /// It is answered, and its run is paused: somebody resumes it.
    RunStaysPaused,
    /// It ended without an answer: whoever works on the store next cancels its run.
    RunIsCancelled,
    /// Nothing.
    Nothing,
}

impl DecisionView {
    /// What happens next to the decision, and who does it.
    pub fn next(&self) -> Next {
        let ended = self.resolution.as_ref().map(Resolution::provenance);
        match ended {
            Some(Provenance::ExplicitCancel | Provenance::ExpiredNoDefault) => {
                if self.is_over {
                    Next::Nothing
                } else {
                    Next::RunIsCancelled
                }
            }
            Some(Provenance::Human | Provenance::TimeoutPolicy) => match self.status {
                _ if self.is_over => Next::Nothing,
                DisplayStatus::AcceptedWaiting if self.is_paused => Next::RunStaysPaused,
                DisplayStatus::AcceptedWaiting | DisplayStatus::AcceptedResuming => Next::RunGoesOn,
                DisplayStatus::Open
                | DisplayStatus::Overdue
                | DisplayStatus::Accepted
                | DisplayStatus::Cancelled => Next::Nothing,
            },
            None => {
                let automatic = self.automatic_label();
                match (self.status == DisplayStatus::Overdue, automatic) {
                    (true, Some(label)) => Next::AutomaticAnswer {
                        label,
                        stays_paused: self.is_paused,
                    },
                    (true, None) => Next::Expiry,
                    (false, _) if self.is_paused => Next::Resume {
                        until: self.request.expires_at,
                    },
                    (false, automatic) => Next::Answer {
                        audience: self.request.audience.to_string(),
                        until: self.request.expires_at,
                        automatic,
                    },
                }
            }
        }
    }

    fn automatic_label(&self) -> Option<String> {
        let id = self.request.default_response.as_ref()?.choice().as_str();
        let choice = self.request.choices.get(id);
        Some(choice.map_or(id, |choice| choice.label.as_str()).to_owned())
    }
}

/// Whoever does what is due.
const WORKER: &str = "whoever works on this store next";

impl fmt::Display for Next {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer {
                audience,
                until,
                automatic,
            } => {
                write!(formatter, "a person answers, of the audience {audience}")?;
                match (until, automatic) {
                    (None, _) => write!(formatter, "; nothing happens by itself"),
                    (Some(at), Some(label)) => {
                        write!(
                            formatter,
                            "; from {} on the automatic answer {label:?} is given",
                            to_iso(*at)
                        )
                    }
                    (Some(at), None) => {
                        write!(
                            formatter,
                            "; from {} on it ends without an answer, and its run with it",
                            to_iso(*at)
                        )
                    }
                }
            }
            Self::Resume { until } => {
                write!(
                    formatter,
                    "its run is paused: somebody resumes it, before anybody can answer"
                )?;
                match until {
                    Some(at) => write!(
                        formatter,
                        "; its deadline, {}, comes all the same",
                        to_iso(*at)
                    ),
                    None => Ok(()),
                }
            }
            Self::AutomaticAnswer {
                label,
                stays_paused,
            } => {
                write!(
                    formatter,
                    "the deadline has passed, so that no person may answer: {WORKER} gives the automatic answer {label:?}, and the run {}",
                    if *stays_paused {
                        "stays paused until somebody resumes it"
                    } else {
                        "goes on with it"
                    }
                )
            }
            Self::Expiry => write!(
                formatter,
                "the deadline has passed, so that no person may answer: {WORKER} ends the decision without an answer and cancels its run"
            ),
            Self::RunGoesOn => write!(formatter, "it is answered: {WORKER} goes on with its run"),
            Self::RunStaysPaused => write!(
                formatter,
                "it is answered, and its run is paused: somebody resumes the run"
            ),
            Self::RunIsCancelled => write!(
                formatter,
                "it ended without an answer: {WORKER} cancels its run"
            ),
            Self::Nothing => write!(formatter, "nothing: it is over"),
        }
    }
}

/// An instant as documents have it.
mod instant {
    use holdpoint_state::clock::UnixMillis;
    use serde::Serializer;

    use crate::model::to_iso;

    #[expect(clippy::ref_option, reason = "the form that serde calls")]
    pub(super) fn serialize<S: Serializer>(
        at: &Option<UnixMillis>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => serializer.serialize_some(&to_iso(*at)),
            None => serializer.serialize_none(),
        }
    }
}
