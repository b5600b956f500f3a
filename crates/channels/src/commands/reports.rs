//! What each report about a decision does to the rows, inside the change of its message.

use holdpoint_decisions::commands::submit_in;
use holdpoint_decisions::digest::DocumentDigest;
use holdpoint_decisions::model::{
    Adopted, ChannelId as AnswerChannel, Conflict, DecisionId, Judged, RejectCode, Rejection,
    Source, Submission,
};
use holdpoint_state::effects::{EffectState, Settlement};
use holdpoint_state::records::effects::CHANNEL_ATTEMPTS_MAX;
use holdpoint_state::{Change, Payload};
use serde_json::json;

use crate::config::Profile;
use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose};
use crate::model::{Ending, RejectReason};
use crate::protocol::{
    AnswerOutcome, AnswerReport, ErrorCode, MessageRef, PresentReport, Report, SendState,
    SettleReport,
};
use crate::store::read::InFlight;
use crate::store::{channels, messages, parts};

/// What became of a report: what an answer came to, or why nothing of the report is taken. Whoever refuses wrote nothing.
type Applied = Result<Option<AnswerOutcome>, RejectReason>;

/// Applies a report. `parts_wanted` is how many parts its request has for each chat, if it is known.
pub(super) fn apply(
    change: &mut Change<'_>,
    channel: &ChannelId,
    profile: &Profile,
    report: &Report,
    parts_wanted: Option<usize>,
) -> Result<Applied, ChannelError> {
    match report {
        Report::Part {
            decision_id,
            request_digest,
            attempt_id,
            message,
        } => {
            let named = Named {
                decision_id,
                request_digest,
                attempt_id,
                purpose: Purpose::Delivery,
            };
            part(change, channel, profile, &named, message)
        }
        Report::Present(report) => present(change, channel, profile, report, parts_wanted),
        Report::Answer(report) => answer(change, channel, profile, report),
        Report::Settle(report) => settle(change, channel, report),
        Report::Ready { .. } | Report::Exiting { .. } => Ok(Ok(None)),
    }
}

/// An attempt as a report names it.
struct Named<'a> {
    decision_id: &'a str,
    request_digest: &'a str,
    attempt_id: &'a str,
    purpose: Purpose,
}

/// The attempt, if it is the present one of its effect, in flight, and of this decision in this channel.
fn in_flight(
    change: &Change<'_>,
    channel: &ChannelId,
    named: &Named<'_>,
) -> Result<Option<InFlight>, ChannelError> {
    let found = messages::by_attempt(change, named.attempt_id)?;
    Ok(found.filter(|found| {
        found.channel == *channel
            && found.state == EffectState::Applying
            && found.is_present()
            && found.attempt.purpose == named.purpose
            && found.attempt.decision_id == named.decision_id
            && found.attempt.request_digest == named.request_digest
    }))
}

fn part(
    change: &mut Change<'_>,
    channel: &ChannelId,
    profile: &Profile,
    named: &Named<'_>,
    message: &MessageRef,
) -> Result<Applied, ChannelError> {
    if in_flight(change, channel, named)?.is_none() {
        return Ok(Err(RejectReason::NotInFlight));
    }
    if !profile.allowed_chat_ids.contains(&message.chat_id) {
        return Ok(Err(RejectReason::NotAllowed));
    }
    if !parts::insert(change, named.decision_id, message)? {
        return Ok(Err(RejectReason::OtherContent));
    }
    Ok(Ok(None))
}

fn present(
    change: &mut Change<'_>,
    channel: &ChannelId,
    profile: &Profile,
    report: &PresentReport,
    parts_wanted: Option<usize>,
) -> Result<Applied, ChannelError> {
    let named = Named {
        decision_id: &report.decision_id,
        request_digest: &report.request_digest,
        attempt_id: &report.attempt_id,
        purpose: Purpose::Delivery,
    };
    let Some(found) = in_flight(change, channel, &named)? else {
        return Ok(Err(RejectReason::NotInFlight));
    };
    if report.state == SendState::Confirmed && !is_complete(profile, &report.messages, parts_wanted)
    {
        return Ok(Err(RejectReason::Incomplete));
    }
    let known = parts::of_decision(change, channel, &report.decision_id)?;
    let differs = |message: &MessageRef| {
        known.iter().any(|part| {
            part.chat_id == message.chat_id
                && part.part_index == message.part_index
                && (part.message_id, &part.content_digest)
                    != (message.message_id, &message.content_digest)
        })
    };
    if report.messages.iter().any(differs) {
        return Ok(Err(RejectReason::OtherContent));
    }
    for message in &report.messages {
        parts::insert(change, &report.decision_id, message)?;
    }
    let result = json!({ "messages": parts::of_decision(change, channel, &report.decision_id)? });
    let ended = Ended {
        state: report.state,
        error: report.error_code,
        retry_after: report.retry_after,
        result,
    };
    let _again = close(change, &found, &ended)?;
    if report.state == SendState::Confirmed {
        channels::insert_shown(change, channel, &report.decision_id)?;
    }
    Ok(Ok(None))
}

/// Whether every allowed chat has every part of the request. How many there are is counted by the host, since an adapter that leaves
/// out the last one leaves out the buttons. Parts in a chat that is allowed no more are beside the point.
fn is_complete(profile: &Profile, messages: &[MessageRef], parts_wanted: Option<usize>) -> bool {
    let Some(parts) = parts_wanted else {
        return false;
    };
    let has = |chat: &str, part: usize| {
        messages
            .iter()
            .any(|message| message.chat_id == chat && message.part_index as usize == part)
    };
    let chats = &profile.allowed_chat_ids;
    !chats.is_empty()
        && chats
            .iter()
            .all(|chat| (0..parts).all(|part| has(chat, part)))
}

fn settle(
    change: &mut Change<'_>,
    channel: &ChannelId,
    report: &SettleReport,
) -> Result<Applied, ChannelError> {
    let named = Named {
        decision_id: &report.decision_id,
        request_digest: &report.request_digest,
        attempt_id: &report.attempt_id,
        purpose: Purpose::Settlement,
    };
    let Some(found) = in_flight(change, channel, &named)? else {
        return Ok(Err(RejectReason::NotInFlight));
    };
    let ended = Ended {
        state: report.state,
        error: report.error_code,
        retry_after: report.retry_after,
        result: json!({}),
    };
    let again = close(change, &found, &ended)?;
    let is_over = match report.state {
        SendState::Confirmed => true,
        SendState::Failed => again == Again::No,
        SendState::Unknown => false,
    };
    if is_over {
        channels::delete_shown(change, channel, &report.decision_id)?;
    }
    Ok(Ok(None))
}

/// How an attempt ended.
struct Ended {
    state: SendState,
    error: Option<ErrorCode>,
    retry_after: Option<u64>,
    result: serde_json::Value,
}

/// Whether another attempt begins by itself after a failed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Again {
    Yes,
    No,
}

/// How many attempts of one effect may end with a wait: without a bound a provider that always wants one would fill the store.
const WAITS_MAX: u32 = 100;

/// How many attempts of this effect, the present one with them, only had to wait: the provider wanted a pause, or was not there. They
/// do not use up the attempts that an effect has (field case 93).
fn waits(change: &Change<'_>, found: &InFlight, ended: &Ended) -> Result<u32, ChannelError> {
    let words = [ErrorCode::TelegramHttp(429), ErrorCode::TelegramUnreachable];
    let is_wait =
        ended.state == SendState::Failed && ended.error.is_some_and(|code| words.contains(&code));
    let [first, second] = words.map(|code| code.to_string());
    let earlier = messages::waits(change, found, [&first, &second])?;
    Ok((earlier + u32::from(is_wait)).min(WAITS_MAX))
}

/// Seconds that a provider wants, as milliseconds.
pub(super) fn wait_ms(seconds: u64) -> i64 {
    i64::try_from(seconds.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

/// Settles the effect, and writes the record.
fn close(change: &mut Change<'_>, found: &InFlight, ended: &Ended) -> Result<Again, ChannelError> {
    let error = || ended.error.map(|code| code.to_string());
    let settlement = match ended.state {
        SendState::Confirmed => Settlement::Applied {
            result: Some(Payload::json(&ended.result)?),
            external_ref: None,
        },
        SendState::Failed => Settlement::Rejected {
            error: error().unwrap_or_default(),
        },
        SendState::Unknown => Settlement::Ambiguous { error: error() },
    };
    let not_before = ended
        .retry_after
        .map(|seconds| change.now().plus(wait_ms(seconds)));
    let waits = waits(change, found, ended)?;
    let again = if found.attempts.saturating_sub(waits) < CHANNEL_ATTEMPTS_MAX {
        Again::Yes
    } else {
        Again::No
    };
    if let Some(attempt) = change.attempt_in_flight(&found.effect_id)? {
        change.settle_effect_not_before(&attempt, settlement, not_before, waits)?;
    }
    if let Some(not_before) = not_before {
        channels::keep_quiet_until(change, not_before)?;
    }
    let parts = parts::of_decision(change, &found.channel, &found.attempt.decision_id)?;
    let ending = Ending {
        status: ended.state.into(),
        message_count: parts.len(),
        error: ended.error,
        finished_at: change.now(),
    };
    messages::insert_ending(change, found, &ending, None)?;
    Ok(again)
}

fn answer(
    change: &mut Change<'_>,
    channel: &ChannelId,
    profile: &Profile,
    report: &AnswerReport,
) -> Result<Applied, ChannelError> {
    if !profile.allows(&report.actor_id, &report.chat_id)
        || !messages::was_shown(change, channel, &report.decision_id)?
    {
        return Ok(Err(RejectReason::NotAllowed));
    }
    let (Ok(decision_id), Some(request_digest), Ok(answer_channel)) = (
        DecisionId::new(report.decision_id.as_str()),
        DocumentDigest::from_text(&report.request_digest),
        AnswerChannel::new(channel.as_str()),
    ) else {
        return Ok(Err(RejectReason::NotAllowed));
    };
    let source = Source {
        channel: answer_channel,
        actor_id: report.actor_id.clone(),
        event_id: report.event_id.clone(),
    };
    let submission = Submission {
        decision_id,
        request_digest,
        response: json!(report.response),
        source,
        person: profile.persons.get(&report.actor_id).cloned(),
        idempotency_key: report.idempotency_key.clone(),
    };
    let judged = submit_in(change, &submission)?.value;
    channels::advance_cursor(change, report.cursor)?;
    Ok(Ok(Some(outcome(&judged))))
}

/// What the person is told on the button.
fn outcome(judged: &Judged) -> AnswerOutcome {
    match judged {
        Judged::Accepted { .. }
        | Judged::Adopted {
            earlier: Adopted::Won { .. },
        } => AnswerOutcome::Received,
        Judged::Adopted {
            earlier: Adopted::AlreadyResolved { .. },
        }
        | Judged::Conflict {
            conflict: Conflict::Winner { .. },
        }
        | Judged::Rejected {
            reason: Rejection::Cancelled { .. },
        }
        | Judged::NotFound => AnswerOutcome::AlreadyDecided,
        Judged::Adopted {
            earlier: Adopted::Rejected { code },
        }
        | Judged::Rejected {
            reason: Rejection::Invalid { code },
        } => refusal(*code),
        Judged::Conflict {
            conflict: Conflict::Paused,
        } => AnswerOutcome::Paused,
        Judged::Adopted {
            earlier: Adopted::Stale,
        }
        | Judged::Conflict {
            conflict: Conflict::Key,
        }
        | Judged::Rejected {
            reason: Rejection::Stale,
        }
        | Judged::NotDue { .. } => AnswerOutcome::NotAccepted,
    }
}

/// Why an answer may not be given, as far as whoever pressed can do something about it.
fn refusal(code: RejectCode) -> AnswerOutcome {
    match code {
        RejectCode::Expired => AnswerOutcome::Expired,
        RejectCode::Paused => AnswerOutcome::Paused,
        RejectCode::Requester => AnswerOutcome::Requester,
        RejectCode::UnknownPerson => AnswerOutcome::UnknownPerson,
        RejectCode::Malformed
        | RejectCode::UnknownChoice
        | RejectCode::MissingInput
        | RejectCode::UnexpectedInput
        | RejectCode::UnknownInput
        | RejectCode::InputNotText
        | RejectCode::InputTooShort
        | RejectCode::InputTooLong => AnswerOutcome::NotAccepted,
    }
}
