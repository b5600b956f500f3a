//! How a decision ended: the private records, and what everybody may see of them.

use std::fmt;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::json::JsonError;
use serde::Serialize;
use serde_json::{Value, json};

use super::id::{ChannelId, DecisionId};
use super::instant::{from_iso, to_iso};
use super::invalid::Invalid;
use super::request::Request;
use super::response::Response;
use super::text::check_identity;
use super::words;
use crate::digest::{self, DocumentDigest, PlainDigest};

/// The schema of the private record of an accepted answer.
pub const ACCEPTED_SCHEMA: &str = "pi-workflows.human-decision-accepted.v1";
/// The schema of the record of a cancelled decision.
pub const CANCELLATION_SCHEMA: &str = "pi-workflows.human-decision-cancellation.v1";
/// The schema of either of the two as the one resolution.
pub const RESOLUTION_SCHEMA: &str = "pi-workflows.human-decision-resolution.v1";
/// The schema of what everybody may see of an accepted answer.
pub const RECEIPT_SCHEMA: &str = "pi-workflows.human-decision-receipt.v1";

words! {
    /// How a decision ended.
    Outcome {
        /// With an answer.
        Accepted = "accepted",
        /// Without one.
        Cancelled = "cancelled",
    }
}

words! {
    /// What ended a decision. Code branches on this.
    Provenance {
        /// A person answered before the deadline.
        Human = "human",
        /// The declared automatic answer, from the deadline on.
        TimeoutPolicy = "timeout_policy",
        /// Somebody with control cancelled it, or its run ended.
        ExplicitCancel = "explicit_cancel",
        /// The deadline came and there is no automatic answer.
        ExpiredNoDefault = "expired_no_default",
    }
}

words! {
    /// Why a decision has no answer, as everybody may read it.
    CancelReason {
        /// It was cancelled.
        Cancelled = "cancelled",
        /// Nobody answered in time.
        Expired = "expired",
    }
}

impl Provenance {
    /// The outcome that it stands for.
    pub const fn outcome(self) -> Outcome {
        match self {
            Self::Human | Self::TimeoutPolicy => Outcome::Accepted,
            Self::ExplicitCancel | Self::ExpiredNoDefault => Outcome::Cancelled,
        }
    }

    /// The word of an accepted record and of its receipt: `human` or `timeout`.
    const fn public(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::TimeoutPolicy => "timeout",
            Self::ExplicitCancel | Self::ExpiredNoDefault => "none",
        }
    }
}

/// Where an answer came from. The host sets it; no workflow, model or child process may claim it. Private.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// The channel.
    pub channel: ChannelId,
    /// The verified person.
    pub actor_id: String,
    /// What the channel calls the event.
    pub event_id: String,
}

impl Source {
    /// Checks a source.
    ///
    /// # Errors
    ///
    /// [`Invalid`] when the actor or the event is blank or longer than 256 bytes.
    pub fn new(
        channel: ChannelId,
        actor_id: impl Into<String>,
        event_id: impl Into<String>,
    ) -> Result<Self, Invalid> {
        let (actor_id, event_id) = (actor_id.into(), event_id.into());
        check_identity("actor id", &actor_id)?;
        check_identity("event id", &event_id)?;
        Ok(Self {
            channel,
            actor_id,
            event_id,
        })
    }

    pub(crate) fn document(&self) -> Value {
        json!({ "actorId": self.actor_id, "channel": self.channel, "eventId": self.event_id })
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Source(redacted)")
    }
}

/// The private record of an accepted answer.
#[derive(Clone, PartialEq, Eq)]
pub struct AcceptedRecord {
    pub(crate) decision_id: DecisionId,
    pub(crate) request_digest: DocumentDigest,
    pub(crate) node_id: String,
    pub(crate) response: Response,
    pub(crate) human: Option<(Source, String)>,
    pub(crate) accepted_at: UnixMillis,
    pub(crate) answer_digest: PlainDigest,
    pub(crate) subject_digest: DocumentDigest,
    pub(crate) presentation_digest: DocumentDigest,
    pub(crate) revision: u64,
}

impl AcceptedRecord {
    /// The record of an answer that won at `now`: of a person with its source and key, or of the policy.
    pub(crate) fn new(
        request: &Request,
        response: Response,
        human: Option<(Source, String)>,
        now: UnixMillis,
    ) -> Result<Self, JsonError> {
        let digest = request.request_digest();
        let answer_digest = match &human {
            Some((source, _)) => digest::human_answer(digest, &response, source)?,
            None => digest::timeout_answer(digest, &response)?,
        };
        Ok(Self {
            decision_id: request.decision_id().clone(),
            request_digest: digest,
            node_id: request.node_id().to_owned(),
            response,
            human,
            accepted_at: now,
            answer_digest,
            subject_digest: request.subject_digest(),
            presentation_digest: request.presentation_digest(),
            revision: request.revision(),
        })
    }

    /// Reads the stored document of an answer to `request`. `None` unless it is, field by field, what the answer makes of the request.
    pub(crate) fn read(value: &Value, request: &Request) -> Option<Self> {
        let response = Response::check(value.get("response")?, request.choices()).ok()?;
        let human = match value.get("source") {
            None => None,
            Some(source) => {
                let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
                let channel = ChannelId::new(text(source.get("channel"))?).ok()?;
                let source = Source::new(
                    channel,
                    text(source.get("actorId"))?,
                    text(source.get("eventId"))?,
                )
                .ok()?;
                Some((source, text(value.get("idempotencyKey"))?))
            }
        };
        let accepted_at = from_iso(value.get("acceptedAt")?.as_str()?)?;
        let record = Self::new(request, response, human, accepted_at).ok()?;
        (record.document() == *value).then_some(record)
    }

    /// Who answered.
    pub fn provenance(&self) -> Provenance {
        match self.human {
            Some(_) => Provenance::Human,
            None => Provenance::TimeoutPolicy,
        }
    }

    /// The answer.
    pub fn response(&self) -> &Response {
        &self.response
    }

    /// What everybody may see of it.
    pub fn receipt(&self) -> DecisionReceipt {
        DecisionReceipt {
            schema: RECEIPT_SCHEMA,
            decision_id: self.decision_id.clone(),
            request_digest: self.request_digest,
            node_id: self.node_id.clone(),
            response: self.response.clone(),
            provenance: self.provenance().public(),
            accepted_at: to_iso(self.accepted_at),
            answer_digest: self.answer_digest,
            subject_digest: self.subject_digest,
            presentation_digest: self.presentation_digest,
            revision: self.revision,
        }
    }

    /// The private document.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "schema": ACCEPTED_SCHEMA,
            "decisionId": self.decision_id,
            "requestDigest": self.request_digest,
            "response": self.response.document(),
            "provenance": self.provenance().public(),
            "acceptedAt": to_iso(self.accepted_at),
            "answerDigest": self.answer_digest,
            "subjectDigest": self.subject_digest,
            "presentationDigest": self.presentation_digest,
            "revision": self.revision,
        });
        if let (Some((source, key)), Some(document)) = (&self.human, document.as_object_mut()) {
            document.insert("source".to_owned(), source.document());
            document.insert("idempotencyKey".to_owned(), key.as_str().into());
        }
        document
    }
}

impl fmt::Debug for AcceptedRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AcceptedRecord")
            .field("decision_id", &self.decision_id)
            .field("provenance", &self.provenance())
            .finish_non_exhaustive()
    }
}

/// The record of a decision without an answer. It holds nothing private.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CancellationRecord {
    schema: &'static str,
    /// The decision.
    pub decision_id: DecisionId,
    /// What was asked.
    pub request_digest: DocumentDigest,
    /// When, as text.
    pub cancelled_at: String,
    /// Why.
    pub reason: CancelReason,
}

impl CancellationRecord {
    pub(crate) fn new(
        decision_id: DecisionId,
        request_digest: DocumentDigest,
        reason: CancelReason,
        now: UnixMillis,
    ) -> Self {
        Self {
            schema: CANCELLATION_SCHEMA,
            decision_id,
            request_digest,
            cancelled_at: to_iso(now),
            reason,
        }
    }
}

/// What everybody may see of an accepted answer: no source, no key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionReceipt {
    schema: &'static str,
    /// The decision.
    pub decision_id: DecisionId,
    /// What was asked.
    pub request_digest: DocumentDigest,
    /// The node that asked.
    pub node_id: String,
    /// The answer.
    pub response: Response,
    /// `human` or `timeout`.
    pub provenance: &'static str,
    /// When, as text.
    pub accepted_at: String,
    /// The digest of the answer.
    pub answer_digest: PlainDigest,
    /// The digest of the machine data.
    pub subject_digest: DocumentDigest,
    /// The digest of what was shown.
    pub presentation_digest: DocumentDigest,
    /// The revision of the request.
    pub revision: u64,
}

/// How a decision ended, as everybody may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "camelCase")]
pub enum Resolution {
    /// With an answer.
    Accepted {
        /// What may be seen of it.
        receipt: Box<DecisionReceipt>,
    },
    /// Without one.
    Cancelled {
        /// The record.
        cancellation: CancellationRecord,
    },
}

impl Resolution {
    /// What ended it.
    pub fn provenance(&self) -> Provenance {
        match self {
            Self::Accepted { receipt } if receipt.provenance == Provenance::Human.public() => {
                Provenance::Human
            }
            Self::Accepted { .. } => Provenance::TimeoutPolicy,
            Self::Cancelled { cancellation } => match cancellation.reason {
                CancelReason::Cancelled => Provenance::ExplicitCancel,
                CancelReason::Expired => Provenance::ExpiredNoDefault,
            },
        }
    }

    /// How it ended.
    pub fn outcome(&self) -> Outcome {
        self.provenance().outcome()
    }

    /// The accepted answer.
    pub fn response(&self) -> Option<&Response> {
        match self {
            Self::Accepted { receipt } => Some(&receipt.response),
            Self::Cancelled { .. } => None,
        }
    }
}

/// The digest of the resolution document of an accepted answer.
pub(crate) fn accepted_digest(record: &AcceptedRecord) -> Result<DocumentDigest, JsonError> {
    DocumentDigest::of(
        &json!({ "schema": RESOLUTION_SCHEMA, "outcome": Outcome::Accepted, "decision": record.document() }),
    )
}

/// The digest of the resolution document of a cancellation.
pub(crate) fn cancelled_digest(record: &CancellationRecord) -> Result<DocumentDigest, JsonError> {
    DocumentDigest::of(
        &json!({ "schema": RESOLUTION_SCHEMA, "outcome": Outcome::Cancelled, "cancellation": record }),
    )
}
