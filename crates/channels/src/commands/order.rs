//! What an adapter is to do next (channels reference, section 6): deliver, settle, or read updates.
//!
//! The choice is made anew from the rows each time, so that a lost wake-up delays an order and never loses it.

use holdpoint_decisions::DecisionError;
use holdpoint_decisions::model::{Audience, ChannelRequest, DecisionId, Outcome, Provenance};
use holdpoint_decisions::views as decisions;
use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;

use super::{Session, attempts, effect};
use crate::config::Config;
use crate::error::ChannelError;
use crate::identity::{ChannelId, Purpose};
use crate::protocol::{INTEGER_MAX, OpenRequest, Order, POLL_BYTES_MAX, Response, SettleOutcome};
use crate::store::read;

/// How many open decisions are read at once.
const PAGE: u32 = 64;
/// How often a choice that somebody else was faster with is made again.
const TRIES: usize = 8;

/// The next order, with the revision that the adapter is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    /// What to do.
    pub order: Order,
    /// The revision of the channel.
    pub revision: u64,
}

/// What there is to do, before anything is begun.
enum Choice {
    Attempt(Purpose, Box<ChannelRequest>, Option<Ended>),
    Poll(Vec<OpenRequest>),
}

/// How a shown decision ended.
struct Ended {
    outcome: SettleOutcome,
    response: Option<Response>,
}

/// Chooses the next order of an adapter. What is begun for it is durable before it is returned.
///
/// # Errors
///
/// Those of the state layer and of the decisions domain.
pub fn next(session: &Session<'_>, config: &Config) -> Result<Next, ChannelError> {
    for _ in 0..TRIES {
        let now = session.db.clock().now();
        let (row, choice) = {
            let snapshot = session.db.snapshot()?;
            let row = read::channel(&snapshot.sql(), session.channel)?;
            let is_quiet = row.as_ref().is_some_and(|row| 0 < quiet_ms(row, now));
            let choice = if is_quiet {
                // Nothing is sent while the provider wants a pause, whichever effect met it. Answers are read meanwhile.
                Choice::Poll(open_here(&snapshot, session.channel, now)?)
            } else {
                choose(&snapshot, session.channel, config, now)?
            };
            (row, choice)
        };
        let Some(row) = row else {
            return Err(ChannelError::Corrupt {
                what: session.channel.to_string(),
            });
        };
        let (purpose, request, ended) = match choice {
            Choice::Poll(requests) => {
                let order = Order::Poll {
                    cursor: row.cursor,
                    requests,
                    quiet_ms: quiet_ms(&row, now),
                };
                return Ok(Next {
                    order,
                    revision: row.revision,
                });
            }
            Choice::Attempt(purpose, request, ended) => (purpose, request, ended),
        };
        let Some(begun) = attempts::begin(session, purpose, &request)? else {
            continue;
        };
        let messages = read::parts(
            &session.db.snapshot()?.sql(),
            session.channel,
            request.decision_id.as_str(),
        )?;
        let (stable_message_id, attempt_id) = (begun.attempt_id.clone(), begun.attempt_id);
        let order = match ended {
            None => Order::Present {
                stable_message_id,
                attempt_id,
                request,
                messages,
            },
            Some(Ended { outcome, response }) => Order::Settle {
                stable_message_id,
                attempt_id,
                request,
                outcome,
                response,
                messages,
            },
        };
        return Ok(Next {
            order,
            revision: begun.revision,
        });
    }
    // Each try found something that was gone a moment later. Reading updates loses nothing.
    let snapshot = session.db.snapshot()?;
    let row =
        read::channel(&snapshot.sql(), session.channel)?.ok_or_else(|| ChannelError::Corrupt {
            what: session.channel.to_string(),
        })?;
    let now = session.db.clock().now();
    let requests = open_here(&snapshot, session.channel, now)?;
    Ok(Next {
        order: Order::Poll {
            cursor: row.cursor,
            requests,
            quiet_ms: quiet_ms(&row, now),
        },
        revision: row.revision,
    })
}

/// How long the provider still wants nothing sent. No longer than any reader of the order can carry.
fn quiet_ms(row: &read::ChannelRow, now: UnixMillis) -> u64 {
    let left = row
        .quiet_until
        .map_or(0, |until| until.0.saturating_sub(now.0));
    u64::try_from(left).unwrap_or(0).min(INTEGER_MAX)
}

fn choose(
    snapshot: &Snapshot<'_>,
    channel: &ChannelId,
    config: &Config,
    now: UnixMillis,
) -> Result<Choice, ChannelError> {
    let open = open_here(snapshot, channel, now)?;
    if let Some(request) = to_deliver(snapshot, channel, config, now, &open)? {
        return Ok(Choice::Attempt(Purpose::Delivery, Box::new(request), None));
    }
    if let Some((request, ended)) = to_settle(snapshot, channel, now)? {
        return Ok(Choice::Attempt(
            Purpose::Settlement,
            Box::new(request),
            Some(ended),
        ));
    }
    Ok(Choice::Poll(open))
}

/// The requests that are confirmed here and pending, past their deadline too: an answer to them is refused and recorded.
fn open_here(
    snapshot: &Snapshot<'_>,
    channel: &ChannelId,
    now: UnixMillis,
) -> Result<Vec<OpenRequest>, ChannelError> {
    let mut open = Vec::new();
    for (decision, has_ended) in read::shown(&snapshot.sql(), channel)? {
        if has_ended {
            continue;
        }
        let view = unless_unusable(decisions::fetch(snapshot, &id(&decision)?, now))?;
        open.extend(view.map(|view| OpenRequest::of(&view.request)));
    }
    Ok(open)
}

/// The oldest request that is to be shown here and may be now.
fn to_deliver(
    snapshot: &Snapshot<'_>,
    channel: &ChannelId,
    config: &Config,
    now: UnixMillis,
    open: &[OpenRequest],
) -> Result<Option<ChannelRequest>, ChannelError> {
    let audiences: Vec<Audience> = config
        .audiences_of(channel)
        .filter_map(|audience| Audience::new(audience).ok())
        .collect();
    if audiences.is_empty() {
        return Ok(None);
    }
    let mut used: usize = open.iter().map(OpenRequest::size_bytes).sum();
    let mut after = None;
    loop {
        let page = decisions::open_for_channel(snapshot, &audiences, now, after.as_ref(), PAGE)?;
        for request in page.requests {
            let key = effect(channel, Purpose::Delivery, &request)?;
            let found = read::effect(
                &snapshot.sql(),
                channel,
                Purpose::Delivery,
                &key.key.as_str().into(),
            )?;
            if found.is_some_and(|effect| !effect.is_due(now)) {
                continue;
            }
            used = used.saturating_add(OpenRequest::of(&request).size_bytes());
            // Later ones are not tried: the oldest must not starve behind smaller ones.
            return Ok((used <= POLL_BYTES_MAX).then_some(request));
        }
        after = page.after;
        if after.is_none() {
            return Ok(None);
        }
    }
}

/// One decision that is damaged, or of another version, holds up no other: nothing is done about it here until it can be read.
fn unless_unusable<T>(found: Result<Option<T>, DecisionError>) -> Result<Option<T>, DecisionError> {
    match found {
        Err(error) if error.is_of_one_decision() => Ok(None),
        found => found,
    }
}

/// The oldest decision that ended, is shown here, and is to be settled now.
fn to_settle(
    snapshot: &Snapshot<'_>,
    channel: &ChannelId,
    now: UnixMillis,
) -> Result<Option<(ChannelRequest, Ended)>, ChannelError> {
    for (decision, has_ended) in read::shown(&snapshot.sql(), channel)? {
        if !has_ended {
            continue;
        }
        let Some(resolved) = unless_unusable(decisions::resolved(snapshot, &id(&decision)?))?
        else {
            continue;
        };
        let key = effect(channel, Purpose::Settlement, &resolved.request)?;
        let found = read::effect(
            &snapshot.sql(),
            channel,
            Purpose::Settlement,
            &key.key.as_str().into(),
        )?;
        if found.is_some_and(|effect| !effect.is_due(now)) {
            continue;
        }
        let outcome = match (
            resolved.resolution.outcome(),
            resolved.resolution.provenance(),
        ) {
            (Outcome::Accepted, _) => SettleOutcome::Accepted,
            (Outcome::Cancelled, Provenance::ExpiredNoDefault) => SettleOutcome::Expired,
            (
                Outcome::Cancelled,
                Provenance::Human | Provenance::TimeoutPolicy | Provenance::ExplicitCancel,
            ) => SettleOutcome::Cancelled,
        };
        let response = resolved.resolution.response().map(|response| Response {
            choice: response.choice().to_string(),
            input: None,
        });
        return Ok(Some((resolved.request, Ended { outcome, response })));
    }
    Ok(None)
}

fn id(decision: &str) -> Result<DecisionId, ChannelError> {
    DecisionId::new(decision).map_err(|_invalid| ChannelError::Corrupt {
        what: format!("decision {decision}"),
    })
}
