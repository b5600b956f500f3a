//! T3: a person answers through an external channel, inside the change that moves the channel's cursor.

use holdpoint_state::{Actor, Change, Command, Outcome, Payload, Receipt};

use super::answer::or_not_found;
use super::resolve::{Bid, RunSide, resolve};
use crate::error::DecisionError;
use crate::model::{Candidate, Judged, Submission, SubmissionSource};
use crate::operations;
use crate::store::decisions;

/// Judges a candidate inside the caller's change, so that cursor, event and answer are one transaction. The caller has checked the
/// sender against its allow lists, and is the one that says where the candidate came from.
///
/// The checks are those of [`answer`](super::answer()). A candidate for a paused run or with an answer that may not be given keeps its
/// row as well, because the cursor moves on.
///
/// # Errors
///
/// [`DecisionError::Invalid`] before anything is read; otherwise as [`answer`](super::answer()), and the caller's whole change fails.
pub fn submit_in(
    change: &mut Change<'_>,
    submission: &Submission,
) -> Result<Receipt<Judged>, DecisionError> {
    submission.check()?;
    let payload = Payload::json(&submission.response)?;
    let command = Command::new(
        &operations::CHANNEL_ANSWER,
        submission.decision_id.resource(),
    )
    .by(Actor::human(submission.source.actor_id.as_str()));
    let judged = change.also(&command, |change| {
        let Some(stored) = decisions::load(change)? else {
            return Ok(Outcome::Refused(Judged::NotFound));
        };
        let bid = Bid {
            candidate: Candidate::Human {
                source: SubmissionSource::Channel,
                person: submission.person.as_deref(),
                seen: Some(submission.request_digest),
                is_current: true,
                response: &submission.response,
            },
            from: Some(&submission.source),
            key: &submission.idempotency_key,
            answer: Some(&payload),
            seen: submission.request_digest,
            reason: None,
            run: RunSide::Nested,
        };
        resolve(change, &stored, &bid)
    });
    or_not_found(judged)
}
