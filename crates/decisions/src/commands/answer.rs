//! T2: a person answers at the session of the run, or at a command line beside it.

use std::fmt;

use holdpoint_state::id::random_id;
use holdpoint_state::{Actor, Command, Database, Outcome, Payload, Receipt, StateError};
use serde_json::Value;

use super::resolve::{Bid, RunSide, resolve};
use crate::digest::DocumentDigest;
use crate::error::DecisionError;
use crate::model::{Candidate, ChannelId, DecisionId, Judged, Source, SubmissionSource};
use crate::operations;
use crate::store::decisions;

/// A person's answer.
///
/// Its `Debug` shows neither who answers nor what.
#[derive(Clone)]
pub struct Answer {
    decision: DecisionId,
    response: Value,
    actor: Actor,
    session: Option<String>,
    run: Option<String>,
    digest: Option<DocumentDigest>,
    revision: Option<u64>,
    key: String,
}

impl Answer {
    /// An answer by a verified person: `{choice}` or `{choice, input: {name: text}}`. The text is kept byte for byte.
    pub fn new(decision: &DecisionId, response: Value, by: &str) -> Self {
        Self {
            decision: decision.clone(),
            response,
            actor: Actor::human(by),
            session: None,
            run: None,
            digest: None,
            revision: None,
            key: random_id("answer"),
        }
    }

    /// Says who answers. Only a person may: everybody else is refused before anything is read.
    #[must_use]
    pub fn by(mut self, actor: Actor) -> Self {
        self.actor = actor;
        self
    }

    /// Says at which session it is given; it must be the one that is asked.
    #[must_use]
    pub fn in_session(mut self, session: impl Into<String>) -> Self {
        self.session = Some(session.into());
        self
    }

    /// Says for which run it is.
    #[must_use]
    pub fn of_run(mut self, run: impl Into<String>) -> Self {
        self.run = Some(run.into());
        self
    }

    /// Says what the person saw.
    #[must_use]
    pub fn seeing(mut self, digest: DocumentDigest) -> Self {
        self.digest = Some(digest);
        self
    }

    /// Says which revision of the request the person saw.
    #[must_use]
    pub fn at_revision(mut self, revision: u64) -> Self {
        self.revision = Some(revision);
        self
    }

    /// Sets the idempotency key. A caller that may have to repeat the answer sets its own.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = key.into();
        self
    }

    /// The decision.
    pub fn decision(&self) -> &DecisionId {
        &self.decision
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Answer")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// Answers a decision. The first answer before the deadline wins; the attempt that asked goes on with it, and everybody else is told.
///
/// A repeat with the same key and content gets what the first one came to. A refused, stale or late answer is recorded, so that it comes
/// back in `Ok`. Checks, in this order: the decision exists for this session and run; the key is a repeat; the run is not paused; the
/// person saw what is asked; this person may answer; the answer may be given; the decision is open; the deadline has not come.
///
/// # Errors
///
/// [`StateError::ActorDenied`] unless a person answers, [`DecisionError::Invalid`] for a key or an actor that is blank or too long,
/// [`DecisionError::Corrupt`] and [`DecisionError::Incompatible`] for a request that can't be used. Nothing was written.
pub fn answer(db: &Database, answer: &Answer) -> Result<Receipt<Judged>, DecisionError> {
    let answer = answer.clone();
    let payload = Payload::json(&answer.response)?;
    // At the local surface the key is what names the event.
    let actor = answer.actor.id().unwrap_or_default();
    let source = Source::new(ChannelId::local(), actor, answer.key.as_str())?;
    let command =
        Command::new(&operations::ANSWER, answer.decision.resource()).by(answer.actor.clone());
    let judged = db.commit(command, move |change| {
        let Some(stored) = decisions::load(change)? else {
            return Ok(Outcome::Refused(Judged::NotFound));
        };
        let is_for_it = answer
            .session
            .as_ref()
            .is_none_or(|session| *session == stored.session)
            && answer
                .run
                .as_ref()
                .is_none_or(|run| *run == stored.request.run_id());
        if !is_for_it {
            return Ok(Outcome::Refused(Judged::NotFound));
        }
        let bid = Bid {
            candidate: Candidate::Human {
                source: SubmissionSource::Human,
                // At the local surface the host says who answers, as it says who asks for a run.
                person: answer.actor.id(),
                seen: answer.digest,
                is_current: answer
                    .revision
                    .is_none_or(|revision| revision == stored.request.revision()),
                response: &answer.response,
            },
            from: Some(&source),
            key: &answer.key,
            answer: Some(&payload),
            seen: answer.digest.unwrap_or(stored.request.request_digest()),
            reason: None,
            run: RunSide::Nested,
        };
        resolve(change, &stored, &bid)
    });
    or_not_found(judged)
}

/// A decision that does not exist is an answer and no error.
pub(super) fn or_not_found(
    judged: Result<Receipt<Judged>, DecisionError>,
) -> Result<Receipt<Judged>, DecisionError> {
    match judged {
        Err(DecisionError::State(StateError::NotFound { .. })) => Ok(Receipt {
            disposition: holdpoint_state::Disposition::Refused,
            revision: 0,
            event_seq: None,
            value: Judged::NotFound,
        }),
        other => other,
    }
}
