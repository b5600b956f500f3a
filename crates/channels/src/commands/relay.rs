//! One message of an adapter: the fencing, in its order, and what is done with what passes (channels reference, section 5).
//!
//! 1. The process speaks for the profile now, and its number is the next one. Nothing is read before that.
//! 2. The stable id is new; a repeat of the same content is adopted, and other content is refused.
//! 3. The revision is the present one.
//! 4. It is applied, and the revision grows by one, with one event.
//!
//! Steps 2 to 4 are one transaction. Not here: the next order (`order`).

use holdpoint_decisions::document::parts::parts;
use holdpoint_decisions::model::DecisionId;
use holdpoint_state::{Actor, Change, Command, Operation, Outcome, Payload, Receipt};
use serde_json::json;

use super::{Session, profile_of, reports};
use crate::error::ChannelError;
use crate::model::{RejectReason, Relayed};
use crate::operations;
use crate::protocol::{FromAdapter, Report};
use crate::store::{channels, inbox, read};

/// Takes one message of an adapter, or says why not. The receipt's revision is what the adapter is told.
///
/// # Errors
///
/// Those of the state layer: nothing was written, and the message may be relayed again.
pub fn relay(
    session: &mut Session<'_>,
    message: &FromAdapter,
) -> Result<(Relayed, u64), ChannelError> {
    let rejected = |reason| Ok((Relayed::Rejected { reason }, 0));
    if message.adapter_epoch != session.adapter_epoch
        || Some(message.profile.as_str()) != session.channel.profile()
    {
        return rejected(RejectReason::StaleAdapter);
    }
    if message.sequence != session.sequence + 1 {
        return rejected(RejectReason::Sequence);
    }
    let relayed = match &message.report {
        Report::Ready {
            cursor,
            retry_after,
            ..
        } => signal(session, message, *cursor, *retry_after)?,
        Report::Exiting { cursor, .. } => signal(session, message, *cursor, None)?,
        Report::Part { .. } | Report::Present(_) | Report::Answer(_) | Report::Settle(_) => {
            report(session, message)?
        }
    };
    session.sequence = message.sequence;
    Ok(relayed)
}

/// The revision that a message may name: the present one, and 0 in the first `ready` of a process.
fn names_revision(message: &FromAdapter, revision: u64) -> bool {
    let is_first = message.sequence == 1 && matches!(message.report, Report::Ready { .. });
    message.expected_revision == revision || (is_first && message.expected_revision == 0)
}

/// A `ready` or an `exiting`. One that has not read on, and was not told to pause, writes nothing, so that an idle channel does not grow.
fn signal(
    session: &Session<'_>,
    message: &FromAdapter,
    cursor: u64,
    retry_after: Option<u64>,
) -> Result<(Relayed, u64), ChannelError> {
    let stored = read::channel(&session.db.snapshot()?.sql(), session.channel)?;
    let Some(stored) = stored else {
        return Err(ChannelError::Corrupt {
            what: session.channel.to_string(),
        });
    };
    if !names_revision(message, stored.revision) {
        return Ok((
            Relayed::Rejected {
                reason: RejectReason::StaleRevision,
            },
            stored.revision,
        ));
    }
    if cursor <= stored.cursor && retry_after.is_none() {
        return Ok((Relayed::Repeated { answer: None }, stored.revision));
    }
    let operation = match message.report {
        Report::Exiting { .. } => &operations::EXITING,
        _ => &operations::READY,
    };
    let receipt = commit(session, operation, message, move |change, message| {
        if !names_revision(message, change.revision()) {
            return Ok(Outcome::Refused(Relayed::Rejected {
                reason: RejectReason::StaleRevision,
            }));
        }
        change.record(facts(message, None)?);
        if channels::is_ahead(change, cursor)? {
            channels::advance_cursor(change, cursor)?;
        }
        if let Some(seconds) = retry_after {
            let until = change.now().plus(reports::wait_ms(seconds));
            channels::keep_quiet_until(change, until)?;
        }
        Ok(Outcome::Accepted(Relayed::Taken { answer: None }))
    })?;
    Ok((receipt.value, receipt.revision))
}

/// A report about a decision.
fn report(session: &Session<'_>, message: &FromAdapter) -> Result<(Relayed, u64), ChannelError> {
    let operation = match message.report {
        Report::Part { .. } => &operations::PART,
        Report::Present(_) => &operations::PRESENT,
        Report::Answer(_) => &operations::ANSWER,
        _ => &operations::SETTLE,
    };
    let (channel, profile) = (session.channel.clone(), session.profile.clone());
    let parts_wanted = parts_wanted(session, &message.report)?;
    let receipt = commit(session, operation, message, move |change, message| {
        let payload = content(message)?;
        if let Some(earlier) = inbox::fetch(change, &message.stable_message_id)? {
            if earlier.payload != payload.digest() {
                return Ok(Outcome::Refused(Relayed::Rejected {
                    reason: RejectReason::OtherContent,
                }));
            }
            return repeated(change, message, earlier.answer);
        }
        if !names_revision(message, change.revision()) {
            return Ok(Outcome::Refused(Relayed::Rejected {
                reason: RejectReason::StaleRevision,
            }));
        }
        let applied = reports::apply(change, &channel, &profile, &message.report, parts_wanted)?;
        let answer = match applied {
            Ok(answer) => answer,
            Err(reason) => return Ok(Outcome::Refused(Relayed::Rejected { reason })),
        };
        let (decision_id, external_event_id) = match &message.report {
            Report::Part { decision_id, .. } => (decision_id, None),
            Report::Present(report) => (&report.decision_id, None),
            Report::Settle(report) => (&report.decision_id, None),
            Report::Answer(report) => (&report.decision_id, Some(report.event_id.as_str())),
            Report::Ready { .. } | Report::Exiting { .. } => {
                return Ok(Outcome::Refused(Relayed::Taken { answer: None }));
            }
        };
        let report = inbox::NewReport {
            stable_message_id: &message.stable_message_id,
            kind: message.report.kind(),
            decision_id,
            external_event_id,
            payload: &payload,
            answer,
        };
        inbox::insert(change, &report)?;
        change.record(facts(message, Some(decision_id))?);
        Ok(Outcome::Accepted(Relayed::Taken { answer }))
    })?;
    Ok((receipt.value, receipt.revision))
}

/// How many parts the request of a confirmed delivery has for each chat. A request never changes, so that it may be read before.
fn parts_wanted(session: &Session<'_>, report: &Report) -> Result<Option<usize>, ChannelError> {
    let Report::Present(report) = report else {
        return Ok(None);
    };
    let Ok(decision) = DecisionId::new(report.decision_id.as_str()) else {
        return Ok(None);
    };
    let now = session.db.clock().now();
    let found = holdpoint_decisions::views::fetch(&session.db.snapshot()?, &decision, now)?;
    Ok(found
        .and_then(|view| parts(&view.request).ok())
        .map(|parts| parts.len()))
}

/// A report that was taken before. An answer that the provider told twice, under two numbers, still moves the cursor on.
fn repeated(
    change: &mut Change<'_>,
    message: &FromAdapter,
    answer: Option<crate::protocol::AnswerOutcome>,
) -> Result<Outcome<Relayed>, ChannelError> {
    let relayed = Relayed::Repeated { answer };
    let Report::Answer(report) = &message.report else {
        return Ok(Outcome::Adopted(relayed));
    };
    if !channels::is_ahead(change, report.cursor)? {
        return Ok(Outcome::Adopted(relayed));
    }
    if !names_revision(message, change.revision()) {
        return Ok(Outcome::Refused(Relayed::Rejected {
            reason: RejectReason::StaleRevision,
        }));
    }
    change.record(facts(message, Some(&report.decision_id))?);
    channels::advance_cursor(change, report.cursor)?;
    Ok(Outcome::Accepted(relayed))
}

fn commit(
    session: &Session<'_>,
    operation: &'static Operation,
    message: &FromAdapter,
    mut body: impl FnMut(&mut Change<'_>, &FromAdapter) -> Result<Outcome<Relayed>, ChannelError>
    + Send
    + 'static,
) -> Result<Receipt<Relayed>, ChannelError> {
    let actor = Actor::new(
        holdpoint_state::ActorKind::Channel,
        profile_of(session.channel)?,
    );
    let command = Command::new(operation, session.channel.resource())
        .by(actor)
        .under(session.claim);
    let message = message.clone();
    session
        .db
        .commit(command, move |change| body(change, &message))
}

/// What is reported, without what differs between a report and its repeat: process, numbers, and where an answer stood.
fn content(message: &FromAdapter) -> Result<Payload, ChannelError> {
    let mut report = message.report.clone();
    if let Report::Answer(answer) = &mut report {
        answer.cursor = 0;
    }
    Ok(Payload::json(&report)?)
}

/// What the event holds. The report itself is beside it, in the inbox, and goes with the run; events of a channel stay.
fn facts(message: &FromAdapter, decision_id: Option<&str>) -> Result<Payload, ChannelError> {
    Ok(Payload::json(
        &json!({ "decisionId": decision_id, "stableMessageId": message.stable_message_id }),
    )?)
}
