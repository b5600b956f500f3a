//! A person says what became of an attempt that nobody else can know of (channels reference, section 10), or lets a delivery or a
//! settlement be tried again that was refused for good.
//!
//! The command is on the host's resource, whose revision no adapter names: a person may speak while an adapter works. After a retry
//! the effect is pending, and whoever hosts the profile begins the next attempt; no attempt is begun that nobody is there to send.

use holdpoint_state::effects::{Decision, EffectState, Resolution};
use holdpoint_state::{Actor, Command, Database, Outcome, Payload};
use serde_json::json;

use crate::error::ChannelError;
use crate::identity::{Purpose, attempt_id};
use crate::model::{Ending, MessageStatus, RecoverAction, Recovered};
use crate::store::{channels, messages, parts, read};
use crate::{operations, store};

/// The wish of a person.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// The attempt, as status shows it.
    pub attempt_id: String,
    /// What became of it.
    pub action: RecoverAction,
    /// Who says so.
    pub by: Actor,
}

/// Resolves an ambiguous delivery or settlement, or retries what was refused. Repeating the command gives the first answer.
///
/// # Errors
///
/// [`ChannelError::NotAmbiguous`] unless an effect is ambiguous at exactly that attempt, or what is to be retried was refused for
/// good there. Nothing was written.
pub fn recover(db: &Database, recovery: &Recovery) -> Result<Recovered, ChannelError> {
    let unknown = || ChannelError::NotAmbiguous(recovery.attempt_id.clone());
    let (found, was_refused) = {
        let snapshot = db.snapshot()?;
        let found = read::attempt(&snapshot.sql(), &recovery.attempt_id)?.ok_or_else(unknown)?;
        (
            found,
            read::was_refused(&snapshot.sql(), &recovery.attempt_id)?,
        )
    };
    if was_refused && recovery.action != RecoverAction::Retry {
        return Err(unknown());
    }
    let number = number_of(&found).ok_or_else(unknown)?;
    let recovered = Recovered {
        channel: found.channel.clone(),
        purpose: found.attempt.purpose,
        next_attempt_id: (recovery.action == RecoverAction::Retry)
            .then(|| attempt_id(&found.effect_id, number + 1)),
        warning: match (recovery.action, found.attempt.purpose) {
            (RecoverAction::Confirm, _) => None,
            // It is known not to have been done.
            (RecoverAction::Retry, _) if was_refused => None,
            (RecoverAction::Retry, Purpose::Delivery) => Some(DUPLICATE_WARNING),
            (RecoverAction::Retry, Purpose::Settlement) => Some(EDIT_WARNING),
        },
    };
    let command = Command::new(&operations::RECOVER, found.channel.host_resource())
        .by(recovery.by.clone())
        .recording(Payload::json(
            &json!({ "action": recovery.action.as_str(), "attemptId": recovery.attempt_id }),
        )?);
    let recovery = recovery.clone();
    db.commit(command, move |change| {
        let found = messages::by_attempt(change, &recovery.attempt_id)?
            .ok_or_else(|| ChannelError::NotAmbiguous(recovery.attempt_id.clone()))?;
        let shown = parts::of_decision(change, &found.channel, &found.attempt.decision_id)?;
        let was_refused = found.state == EffectState::Rejected;
        // A refused delivery waits for a person only while there is something to show.
        if was_refused
            && found.attempt.purpose == Purpose::Delivery
            && !messages::is_wanted(
                change,
                &found.channel,
                &found.attempt.decision_id,
                Purpose::Delivery,
                change.now(),
            )?
        {
            return Err(ChannelError::NotAmbiguous(recovery.attempt_id.clone()));
        }
        let decision = match recovery.action {
            RecoverAction::Confirm => Decision::Confirm {
                receipt: Some(Payload::json(&json!({ "messages": shown }))?),
                external_ref: None,
            },
            RecoverAction::Retry => Decision::Retry,
        };
        let resolved = change.resolve_effect(&Resolution {
            effect_id: found.effect_id.clone(),
            attempt_number: number,
            expected_revision: found.effect_revision,
            idempotency_key: format!("{}:{}", recovery.action.as_str(), recovery.attempt_id),
            actor: recovery.by.clone(),
            decision,
        });
        let resolved = match resolved {
            Err(holdpoint_state::StateError::Conflict { .. }) => {
                return Err(ChannelError::NotAmbiguous(recovery.attempt_id.clone()));
            }
            resolved => resolved?,
        };
        if resolved.adopted {
            return Ok(Outcome::Adopted(()));
        }
        if resolved.state == EffectState::Applied {
            confirm(change, &found, shown.len())?;
        }
        if was_refused && found.attempt.purpose == Purpose::Settlement {
            // The last refusal took it from what is shown, so that no scan reads it and no run is kept for it.
            channels::insert_shown(change, &found.channel, &found.attempt.decision_id)?;
        }
        Ok(Outcome::Accepted(()))
    })?;
    Ok(recovered)
}

const DUPLICATE_WARNING: &str =
    "the earlier attempt may have been seen: what was in doubt can now come twice";
const EDIT_WARNING: &str = "until the next attempt the buttons may still be there; where they are gone already, nothing changes and nothing comes twice";

/// What a confirmation is followed by, as if the adapter had reported it.
fn confirm(
    change: &mut holdpoint_state::Change<'_>,
    found: &store::read::InFlight,
    message_count: usize,
) -> Result<(), ChannelError> {
    let ending = Ending {
        status: MessageStatus::Confirmed,
        message_count,
        error: None,
        finished_at: change.now(),
    };
    let id = format!("{}-confirmed", found.attempt.attempt_id);
    messages::insert_ending(change, found, &ending, Some(id))?;
    match found.attempt.purpose {
        Purpose::Delivery => {
            channels::insert_shown(change, &found.channel, &found.attempt.decision_id)?;
        }
        Purpose::Settlement => {
            channels::delete_shown(change, &found.channel, &found.attempt.decision_id)?;
        }
    }
    Ok(())
}

/// Which attempt of its effect this is.
fn number_of(found: &store::read::InFlight) -> Option<u32> {
    (1..=found.attempts)
        .find(|number| attempt_id(&found.effect_id, *number) == found.attempt.attempt_id)
}
