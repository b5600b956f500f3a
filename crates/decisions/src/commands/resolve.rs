//! The one way in which a decision is resolved: look for the earlier self of a candidate, judge it, write what it comes to.

use std::cell::RefCell;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Change, NewEffect, Outcome, OwnerScope, Payload, StateError};
use holdpoint_workflows::commands::{self as workflows, OwnerAct, Settlement};
use serde_json::json;

use crate::digest::{self, DocumentDigest};
use crate::error::DecisionError;
use crate::model::{
    self, AcceptedRecord, Adopted, CancelReason, CancellationRecord, Candidate, Conflict, Earlier,
    Judged, Provenance, RejectCode, Rejection, Resolution, Response, Situation, Source,
    SubmissionResult, SubmissionSource, Verdict, record, submission_id,
};
use crate::store::resolutions::{self, NewResolution};
use crate::store::submissions::{self, EarlierRow, NewSubmission};
use crate::store::{self};
use crate::views::stored::Stored;
use crate::{CANCEL_PARENT, SETTLE_PRESENTATIONS};

/// A candidate with what belongs to it.
pub(super) struct Bid<'a> {
    pub(super) candidate: Candidate<'a>,
    /// Where a person's answer came from.
    pub(super) from: Option<&'a Source>,
    pub(super) key: &'a str,
    /// The answer as it came.
    pub(super) answer: Option<&'a Payload>,
    /// What the sender saw.
    pub(super) seen: DocumentDigest,
    /// Why it is cancelled, for people.
    pub(super) reason: Option<&'a str>,
    pub(super) run: RunSide<'a>,
}

/// How the run follows a resolution.
#[derive(Clone, Copy)]
pub(super) enum RunSide<'a> {
    /// By a command of its own, nested in this change.
    Nested,
    /// By the change around this one, which is that of the run's owner: what it has to do is put here.
    Around(&'a RefCell<Option<OwnerAct>>),
    /// Not at all: it is ending by itself.
    Ending,
}

impl<'a> Bid<'a> {
    /// What a policy wants.
    pub(super) fn of_policy(
        stored: &Stored,
        candidate: Candidate<'a>,
        key: &'a str,
        run: RunSide<'a>,
    ) -> Self {
        Self {
            candidate,
            from: None,
            key,
            answer: None,
            seen: stored.request.request_digest(),
            reason: None,
            run,
        }
    }
}

/// Whether a candidate would be the one resolution now. Writes nothing.
pub(super) fn would_win(
    change: &mut Change<'_>,
    stored: &Stored,
    bid: &Bid<'_>,
) -> Result<bool, StateError> {
    let earlier = earlier(change, bid)?;
    Ok(matches!(
        judged(stored, bid, earlier.as_ref(), change.now()),
        Verdict::Win(_)
    ))
}

fn judged(
    stored: &Stored,
    bid: &Bid<'_>,
    earlier: Option<&EarlierRow>,
    now: UnixMillis,
) -> Verdict {
    let situation = Situation {
        request: &stored.request,
        earlier: earlier.map(|row| sameness(row, bid)),
        requester: stored.requester.as_deref(),
        is_paused: stored.is_paused,
        winner: stored
            .winner
            .as_ref()
            .map(|winner| winner.resolution.provenance()),
    };
    model::judge(&situation, &bid.candidate, now)
}

/// Judges a candidate and writes what it comes to.
pub(super) fn resolve(
    change: &mut Change<'_>,
    stored: &Stored,
    bid: &Bid<'_>,
) -> Result<Outcome<Judged>, DecisionError> {
    let earlier = earlier(change, bid)?;
    let source = bid.candidate.source();
    match judged(stored, bid, earlier.as_ref(), change.now()) {
        Verdict::Repeat => repeat(stored, earlier.as_ref()),
        Verdict::KeyUsed => Ok(Outcome::Refused(Judged::Conflict {
            conflict: Conflict::Key,
        })),
        Verdict::Paused => {
            // A channel's cursor moves on, so that its row stays; a session sends again.
            if source == SubmissionSource::Channel {
                let result = (SubmissionResult::Rejected, Some(RejectCode::Paused), None);
                insert(change, stored, bid, result)?;
            }
            Ok(Outcome::Refused(Judged::Conflict {
                conflict: Conflict::Paused,
            }))
        }
        Verdict::Stale => {
            insert(change, stored, bid, (SubmissionResult::Stale, None, None))?;
            Ok(Outcome::Refused(Judged::Rejected {
                reason: Rejection::Stale,
            }))
        }
        Verdict::Rejected(code) => {
            insert(
                change,
                stored,
                bid,
                (SubmissionResult::Rejected, Some(code), None),
            )?;
            Ok(Outcome::Refused(Judged::Rejected {
                reason: Rejection::Invalid { code },
            }))
        }
        Verdict::Resolved(provenance) => {
            let Some(winner) = &stored.winner else {
                return Err(corrupt(stored, "resolution"));
            };
            let result = (SubmissionResult::AlreadyResolved, None, Some(winner.digest));
            insert(change, stored, bid, result)?;
            let resolution = winner.resolution.clone();
            Ok(Outcome::Refused(
                if bid.candidate.conflicts_with(provenance) {
                    Judged::Conflict {
                        conflict: Conflict::Winner { resolution },
                    }
                } else {
                    Judged::Rejected {
                        reason: Rejection::Cancelled { resolution },
                    }
                },
            ))
        }
        Verdict::NotDue => Ok(Outcome::Refused(Judged::NotDue {
            deadline_at: stored.request.expires_at(),
        })),
        Verdict::NotAllowed => Err(not_allowed(stored, &bid.candidate)),
        Verdict::Win(Some(response)) => accept(change, stored, bid, response),
        Verdict::Win(None) => end(change, stored, bid),
    }
}

fn earlier(change: &mut Change<'_>, bid: &Bid<'_>) -> Result<Option<EarlierRow>, StateError> {
    match bid.from {
        Some(from) => submissions::of_channel(change, &from.channel, bid.key),
        None => submissions::of_decision(change, bid.candidate.source(), bid.key),
    }
}

/// Whether an earlier candidate with the key is this one.
fn sameness(row: &EarlierRow, bid: &Bid<'_>) -> Earlier {
    let same_sender = match bid.from {
        // What the policy and control want follows from their key.
        None => true,
        Some(from) => {
            row.actor_id.as_deref() == Some(&from.actor_id)
                && row.event_id.as_deref() == Some(&from.event_id)
                && row.response == bid.answer.map(Payload::digest)
                && row.request_digest == bid.seen
        }
    };
    if row.is_for_this && row.source == bid.candidate.source() && same_sender {
        Earlier::Same
    } else {
        Earlier::Other
    }
}

fn repeat(stored: &Stored, earlier: Option<&EarlierRow>) -> Result<Outcome<Judged>, DecisionError> {
    let resolution = || match &stored.winner {
        Some(winner) => Ok(winner.resolution.clone()),
        None => Err(corrupt(stored, "resolution")),
    };
    let Some(row) = earlier else {
        return Err(corrupt(stored, "submission"));
    };
    let earlier = match row.result {
        SubmissionResult::Won | SubmissionResult::Adopted => Adopted::Won {
            resolution: resolution()?,
        },
        SubmissionResult::AlreadyResolved => Adopted::AlreadyResolved {
            resolution: resolution()?,
        },
        SubmissionResult::Stale => Adopted::Stale,
        SubmissionResult::Rejected => Adopted::Rejected {
            code: row.reject_code.unwrap_or(RejectCode::Malformed),
        },
    };
    Ok(Outcome::Adopted(Judged::Adopted { earlier }))
}

/// An answer wins.
fn accept(
    change: &mut Change<'_>,
    stored: &Stored,
    bid: &Bid<'_>,
    response: Response,
) -> Result<Outcome<Judged>, DecisionError> {
    let (request, now) = (&stored.request, change.now());
    let human = bid.from.map(|from| (from.clone(), bid.key.to_owned()));
    let json = |source| StateError::Json {
        what: "accepted record",
        source,
    };
    let record = AcceptedRecord::new(request, response, human, now).map_err(json)?;
    let digest = record::accepted_digest(&record).map_err(json)?;
    let receipt = record.receipt();
    let private = Payload::json(&record.document())?;
    let blob = change.put_blob(&private)?;
    change.transition("open", "accepted")?;
    change.record(private);
    let actor = change.actor().id().map(str::to_owned);
    resolutions::insert(
        change,
        &NewResolution {
            provenance: bid.candidate.provenance(),
            response: Some(blob),
            reason: None,
            human: bid.from.map(|from| (from, bid.key)),
            actor: actor.as_deref(),
            digest,
        },
    )?;
    insert(change, stored, bid, (SubmissionResult::Won, None, None))?;
    store::decisions::forget_deadline(change, request)?;
    let channel = bid.from.map(|from| from.channel.as_str());
    let key = submission_id(
        request.decision_id(),
        bid.candidate.source(),
        channel,
        bid.key,
    );
    let public = serde_json::to_value(&receipt).unwrap_or_default();
    let answer = record.response().document();
    let settlement = Settlement::new(request.decision_id().as_str(), (&key, &answer), &public)?;
    match bid.run {
        RunSide::Nested => {
            workflows::settle_with(change, &stored.run, &settlement)?;
        }
        RunSide::Around(act) => *act.borrow_mut() = Some(OwnerAct::Settle(settlement)),
        RunSide::Ending => {}
    }
    follow_up(
        change,
        stored,
        SETTLE_PRESENTATIONS,
        bid.candidate.provenance(),
    )?;
    Ok(Outcome::Accepted(Judged::Accepted {
        resolution: Resolution::Accepted {
            receipt: Box::new(receipt),
        },
    }))
}

/// A decision ends without an answer.
fn end(
    change: &mut Change<'_>,
    stored: &Stored,
    bid: &Bid<'_>,
) -> Result<Outcome<Judged>, DecisionError> {
    let (request, now) = (&stored.request, change.now());
    let (reason, text) = match bid.candidate.provenance() {
        Provenance::ExpiredNoDefault => (CancelReason::Expired, "nobody answered in time"),
        Provenance::Human | Provenance::TimeoutPolicy | Provenance::ExplicitCancel => {
            (CancelReason::Cancelled, "the decision was cancelled")
        }
    };
    let record = CancellationRecord::new(
        request.decision_id().clone(),
        request.request_digest(),
        reason,
        now,
    );
    let digest = record::cancelled_digest(&record).map_err(|source| StateError::Json {
        what: "cancellation record",
        source,
    })?;
    change.transition("open", "cancelled")?;
    change.record(Payload::json(&record)?);
    let actor = change.actor().id().map(str::to_owned);
    resolutions::insert(
        change,
        &NewResolution {
            provenance: bid.candidate.provenance(),
            response: None,
            reason: Some(bid.reason.unwrap_or(text)),
            human: None,
            actor: actor.as_deref(),
            digest,
        },
    )?;
    insert(change, stored, bid, (SubmissionResult::Won, None, None))?;
    store::decisions::forget_deadline(change, request)?;
    let id = request.decision_id().as_str();
    match bid.run {
        RunSide::Nested => {
            workflows::withdraw(change, &stored.run, id)?;
        }
        RunSide::Around(act) => *act.borrow_mut() = Some(OwnerAct::Withdraw(id.to_owned())),
        RunSide::Ending => {}
    }
    if !matches!(bid.run, RunSide::Ending) {
        follow_up(change, stored, CANCEL_PARENT, bid.candidate.provenance())?;
    }
    follow_up(
        change,
        stored,
        SETTLE_PRESENTATIONS,
        bid.candidate.provenance(),
    )?;
    Ok(Outcome::Accepted(Judged::Accepted {
        resolution: Resolution::Cancelled {
            cancellation: record,
        },
    }))
}

/// Reserves what follows from the resolution.
fn follow_up(
    change: &mut Change<'_>,
    stored: &Stored,
    effect_type: &'static str,
    provenance: Provenance,
) -> Result<(), StateError> {
    let decision = stored.request.decision_id();
    let payload = Payload::json(&json!({
        "decisionId": decision,
        "runId": stored.request.run_id(),
        "outcome": provenance.outcome(),
    }))?;
    let effect = NewEffect::new(effect_type, decision.as_str(), OwnerScope::Run, payload)
        .identified_by(digest::effect_identity(decision, effect_type)?);
    change.reserve_effect(&effect)?;
    Ok(())
}

fn insert(
    change: &mut Change<'_>,
    stored: &Stored,
    bid: &Bid<'_>,
    (result, reject_code, winner): (SubmissionResult, Option<RejectCode>, Option<DocumentDigest>),
) -> Result<(), StateError> {
    let response = match bid.answer {
        Some(answer) => Some(change.put_blob(answer)?),
        None => None,
    };
    let actor = change.actor().id().map(str::to_owned);
    submissions::insert(
        change,
        &NewSubmission {
            decision: stored.request.decision_id(),
            source: bid.candidate.source(),
            request_digest: bid.seen,
            from: bid.from,
            actor: actor.as_deref(),
            key: bid.key,
            response,
            result,
            reject_code,
            winner,
        },
    )
}

fn not_allowed(stored: &Stored, candidate: &Candidate<'_>) -> DecisionError {
    let operation = match candidate.provenance() {
        Provenance::TimeoutPolicy => crate::operations::TIMEOUT.name,
        Provenance::ExpiredNoDefault => crate::operations::EXPIRE.name,
        Provenance::Human | Provenance::ExplicitCancel => crate::operations::CANCEL.name,
    };
    let request = &stored.request;
    let from = match (request.expires_at(), request.default_response()) {
        (None, _) => "a decision without a deadline",
        (Some(_), Some(_)) => "a decision with an automatic answer",
        (Some(_), None) => "a decision without an automatic answer",
    };
    StateError::InvalidTransition {
        operation,
        from: from.to_owned(),
        to: candidate.provenance().to_string(),
    }
    .into()
}

fn corrupt(stored: &Stored, what: &'static str) -> DecisionError {
    DecisionError::Corrupt {
        decision: stored.request.decision_id().to_string(),
        what,
    }
}
