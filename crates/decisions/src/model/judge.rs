//! The judge: what a candidate comes to, as a pure function of what is stored, the candidate and the instant.
//!
//! The order of the arms is the order of the checks, and contract. There is no instant at which both a person and a policy may win.

use holdpoint_state::clock::UnixMillis;
use serde_json::Value;

use super::record::{Outcome, Provenance};
use super::request::{Answerers, Request};
use super::response::{RejectCode, Response};
use super::submission::SubmissionSource;
use crate::digest::DocumentDigest;

/// What is stored, as far as it decides.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// What is asked.
    pub request: &'a Request,
    /// The candidate that had this key before, if one had.
    pub earlier: Option<Earlier>,
    /// The person who asked for the run, if one did: the name by which its host knows that person.
    pub requester: Option<&'a str>,
    /// Whether the run is paused.
    pub is_paused: bool,
    /// What resolved the decision, if it is resolved.
    pub winner: Option<Provenance>,
}

/// A candidate that had the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// With the same content.
    Same,
    /// With other content, or for another decision.
    Other,
}

/// Who wants what.
#[derive(Debug, Clone, Copy)]
pub enum Candidate<'a> {
    /// A person answers.
    Human {
        /// At the session of the run, or through an external channel.
        source: SubmissionSource,
        /// The name by which the host of the store knows the person, if it knows that person.
        person: Option<&'a str>,
        /// What the person saw, if the sender says so.
        seen: Option<DocumentDigest>,
        /// The revision that the person saw, if the sender says so: whether it is the present one.
        is_current: bool,
        /// The answer.
        response: &'a Value,
    },
    /// The declared automatic answer.
    Timeout,
    /// Nobody answered, and there is no automatic answer.
    Expiry,
    /// Somebody with control cancels the decision, or its run ends.
    Cancel,
}

/// What a candidate comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is the one resolution, with this answer.
    Win(Option<Response>),
    /// It is an earlier candidate again.
    Repeat,
    /// Its key was used for something else.
    KeyUsed,
    /// The run is paused.
    Paused,
    /// It answers something else than what is asked.
    Stale,
    /// It may not be given.
    Rejected(RejectCode),
    /// The decision is resolved by this.
    Resolved(Provenance),
    /// Its time has not come.
    NotDue,
    /// This decision never ends so.
    NotAllowed,
}

/// What `candidate` does to a decision at `now`. Pure: no SQL, no clock, no I/O.
pub fn judge(situation: &Situation<'_>, candidate: &Candidate<'_>, now: UnixMillis) -> Verdict {
    let request = situation.request;
    let is_due = request.expires_at().is_some_and(|deadline| deadline <= now);
    match situation.earlier {
        Some(Earlier::Same) => return Verdict::Repeat,
        Some(Earlier::Other) => return Verdict::KeyUsed,
        None => {}
    }
    match candidate {
        Candidate::Human {
            person,
            seen,
            is_current,
            response,
            ..
        } => {
            if situation.is_paused {
                return Verdict::Paused;
            }
            if !is_current || seen.is_some_and(|seen| seen != request.request_digest()) {
                return Verdict::Stale;
            }
            if let Err(code) = may_answer(situation, *person) {
                return Verdict::Rejected(code);
            }
            let response = match Response::check(response, request.choices()) {
                Ok(response) => response,
                Err(code) => return Verdict::Rejected(code),
            };
            match situation.winner {
                Some(winner) => Verdict::Resolved(winner),
                None if is_due => Verdict::Rejected(RejectCode::Expired),
                None => Verdict::Win(Some(response)),
            }
        }
        Candidate::Timeout => match (request.default_response(), situation.winner) {
            (None, _) => Verdict::NotAllowed,
            (Some(_), Some(winner)) => Verdict::Resolved(winner),
            (Some(_), None) if !is_due => Verdict::NotDue,
            (Some(default), None) => Verdict::Win(Some(default.clone())),
        },
        Candidate::Expiry => match (
            request.default_response(),
            request.expires_at(),
            situation.winner,
        ) {
            (Some(_), _, _) | (None, None, _) => Verdict::NotAllowed,
            (None, Some(_), Some(winner)) => Verdict::Resolved(winner),
            (None, Some(_), None) if !is_due => Verdict::NotDue,
            (None, Some(_), None) => Verdict::Win(None),
        },
        Candidate::Cancel => match situation.winner {
            Some(winner) => Verdict::Resolved(winner),
            None => Verdict::Win(None),
        },
    }
}

/// Whether a person is one of those who may answer. Where another person is demanded, one whom the host does not know is none: names of
/// different places say nothing about each other, and the requester may well have two.
fn may_answer(situation: &Situation<'_>, person: Option<&str>) -> Result<(), RejectCode> {
    match (situation.request.answerers(), situation.requester, person) {
        (Answerers::AnotherPerson, Some(_), None) => Err(RejectCode::UnknownPerson),
        (Answerers::AnotherPerson, Some(requester), Some(person)) if requester == person => {
            Err(RejectCode::Requester)
        }
        (Answerers::Anyone, _, _)
        | (Answerers::AnotherPerson, None, _)
        | (Answerers::AnotherPerson, Some(_), Some(_)) => Ok(()),
    }
}

impl Candidate<'_> {
    /// What ends the decision if this candidate wins.
    pub fn provenance(&self) -> Provenance {
        match self {
            Self::Human { .. } => Provenance::Human,
            Self::Timeout => Provenance::TimeoutPolicy,
            Self::Expiry => Provenance::ExpiredNoDefault,
            Self::Cancel => Provenance::ExplicitCancel,
        }
    }

    /// Which road it comes.
    pub fn source(&self) -> SubmissionSource {
        match self {
            Self::Human { source, .. } => *source,
            Self::Timeout | Self::Expiry => SubmissionSource::Policy,
            Self::Cancel => SubmissionSource::Control,
        }
    }

    /// Whether losing against a resolution is a conflict, rather than a rejection: whoever wants an answer is refused once there can't
    /// be one, and told the winner where there is one.
    pub(crate) fn conflicts_with(&self, winner: Provenance) -> bool {
        match self {
            Self::Human { .. } | Self::Timeout => winner.outcome() == Outcome::Accepted,
            Self::Expiry | Self::Cancel => true,
        }
    }
}

#[cfg(test)]
mod tests;
