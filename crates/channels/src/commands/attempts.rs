//! Attempts: how one begins, and what is said of one whose adapter or host ended without a report.

use holdpoint_state::effects::EffectStart;
use holdpoint_state::{Actor, Change, Claim, Command, Database, Outcome, StateError};

use super::{Session, effect};
use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose, attempt_id};
use crate::model::{Attempt, Begun, Ending, MessageStatus};
use crate::protocol::{ChannelRequest, ErrorCode};
use crate::{operations, store};

/// Begins the next attempt: effect, attempt, event and the record of the intent are one transaction, and only then the order is
/// sent. None when it is not wanted or not due any more.
pub(super) fn begin(
    session: &Session<'_>,
    purpose: Purpose,
    request: &ChannelRequest,
) -> Result<Option<Begun>, ChannelError> {
    let effect = effect(session.channel, purpose, request)?;
    let template = Attempt {
        attempt_id: String::new(),
        decision_id: request.decision_id.to_string(),
        purpose,
        request_digest: request.request_digest.to_string(),
        presentation_digest: request.presentation_digest.to_string(),
        started_at: holdpoint_state::clock::UnixMillis(0),
    };
    let channel = session.channel.clone();
    let command = Command::new(&operations::BEGIN, channel.resource())
        .by(Actor::host(session.claim.owner().id()))
        .under(session.claim);
    let begun = session.db.commit(command, move |change| {
        let now = change.now();
        if !store::messages::is_wanted(change, &channel, &template.decision_id, purpose, now)? {
            return Ok::<_, ChannelError>(Outcome::Refused(None));
        }
        let EffectStart::Execute(begun) = change.begin_effect(&effect)? else {
            return Ok(Outcome::Refused(None));
        };
        let attempt = Attempt {
            attempt_id: attempt_id(&begun.effect_id, begun.number),
            started_at: now,
            ..template.clone()
        };
        store::messages::insert_intent(change, &channel, &begun.effect_id, &attempt)?;
        Ok(Outcome::Accepted(Some((
            begun.effect_id,
            attempt.attempt_id,
        ))))
    });
    match begun {
        Ok(receipt) => Ok(receipt.value.map(|(effect_id, attempt_id)| Begun {
            effect_id,
            attempt_id,
            revision: receipt.revision,
        })),
        Err(ChannelError::State(StateError::NotDue { .. })) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says of everything that is in flight in a channel that it may have been done: its adapter ended without a report. Returns how many attempts there were.
///
/// # Errors
///
/// Those of the state layer; nothing was written.
pub fn doubt(
    db: &Database,
    channel: &ChannelId,
    claim: &Claim,
    code: ErrorCode,
) -> Result<usize, ChannelError> {
    if store::read::in_flight(&db.snapshot()?.sql(), channel)?.is_empty() {
        return Ok(0);
    }
    let command = Command::new(&operations::DOUBT, channel.resource())
        .by(Actor::host(claim.owner().id()))
        .under(claim);
    let channel = channel.clone();
    let receipt = db.commit(command, move |change| doubt_in(change, &channel, code))?;
    Ok(receipt.value)
}

/// The body of that command.
pub(super) fn doubt_in(
    change: &mut Change<'_>,
    channel: &ChannelId,
    code: ErrorCode,
) -> Result<Outcome<usize>, ChannelError> {
    let lost = store::messages::in_flight(change, channel)?;
    if lost.is_empty() {
        return Ok(Outcome::Refused(0));
    }
    change.recover_effects_with(Some(&code.to_string()))?;
    for found in &lost {
        let parts = store::parts::of_decision(change, channel, &found.attempt.decision_id)?;
        let ending = Ending {
            status: MessageStatus::Ambiguous,
            message_count: parts.len(),
            error: Some(code),
            finished_at: change.now(),
        };
        store::messages::insert_ending(change, found, &ending, None)?;
    }
    Ok(Outcome::Accepted(lost.len()))
}
