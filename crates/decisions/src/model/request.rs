//! The request: what is asked, of whom, until when, about what. Immutable, and identified by its digest.

mod channel;

use std::fmt;

use holdpoint_state::clock::UnixMillis;
use serde_json::{Map, Value};

use super::choice::Choices;
use super::fields::Fields;
use super::id::{Audience, DecisionId};
use super::instant::{from_iso, to_iso};
use super::invalid::{Invalid, Limit};
use super::presentation::Presentation;
use super::response::Response;
use super::text::{self, Lines};
use super::words;
use crate::digest::{self, DocumentDigest};
use crate::document::parts;

pub use channel::{CHANNEL_SCHEMA, ChannelRequest};

/// The schema of a request.
pub const REQUEST_SCHEMA: &str = "pi-workflows.human-decision-request.v1";

words! {
    /// Who may answer, of those who are asked.
    Answerers {
        /// Everybody.
        Anyone = "anyone",
        /// Everybody but the person who asked for the run: nobody approves a wish of his own.
        AnotherPerson = "anotherPerson",
    }
}

/// The field of a document that says who may answer. It is there only when it is not everybody.
const ANSWERERS: &str = "answerers";

/// The declared automatic answer: from the deadline on it is given, and no person's any more.
///
/// Its `Debug` does not show the answer's text.
#[derive(Clone, PartialEq)]
pub struct OnTimeout {
    /// Milliseconds from the creation to the deadline: finite and above 0. A fraction of a millisecond is dropped.
    pub after_ms: f64,
    /// The answer.
    pub response: Value,
}

impl fmt::Debug for OnTimeout {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("OnTimeout")
            .field("after_ms", &self.after_ms)
            .finish_non_exhaustive()
    }
}

/// What is to be asked, before it is checked.
///
/// ```
/// use holdpoint_decisions::model::{Choice, Choices, Draft, Presentation, Request};
/// use holdpoint_state::clock::UnixMillis;
///
/// let draft = Draft {
///     run_id: "run-1".to_owned(),
///     workflow_name: "wf".to_owned(),
///     node_id: "gate".to_owned(),
///     attempt_id: "att-1".to_owned(),
///     audience: "operator".to_owned(),
///     title: "Ship".to_owned(),
///     choices: Choices::new([("go", Choice::new("Go"))])?,
///     subject: serde_json::json!({ "plan": "a" }),
///     presentation: Presentation::new("Ship it?", Vec::new())?,
///     revision: 1,
///     on_timeout: None,
///     expires_at: None,
///     created_at: UnixMillis(0),
/// };
/// let request = Request::new(draft.clone())?;
/// // Asked again, it is the same decision; of another attempt, another one.
/// let later = Request::new(Draft { created_at: UnixMillis(1), ..draft.clone() })?;
/// assert_eq!(later.decision_id(), request.decision_id());
/// let second = Request::new(Draft { attempt_id: "att-2".to_owned(), ..draft })?;
/// assert_ne!(second.decision_id(), request.decision_id());
/// # Ok::<(), holdpoint_decisions::model::Invalid>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Draft {
    /// The run that asks.
    pub run_id: String,
    /// The name of its workflow.
    pub workflow_name: String,
    /// The node.
    pub node_id: String,
    /// The attempt: exactly this one is completed by the answer.
    pub attempt_id: String,
    /// To whom it is addressed.
    pub audience: String,
    /// One line that names it.
    pub title: String,
    /// What may be chosen.
    pub choices: Choices,
    /// The machine data under decision. No channel shows it.
    pub subject: Value,
    /// What a person sees.
    pub presentation: Presentation,
    /// The revision of the request, from 1.
    pub revision: u64,
    /// The automatic answer and when it is given.
    pub on_timeout: Option<OnTimeout>,
    /// A deadline without an automatic answer: nobody may answer from then on.
    pub expires_at: Option<UnixMillis>,
    /// When it was made. Not part of what identifies the request.
    pub created_at: UnixMillis,
}

impl fmt::Debug for Draft {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Draft")
            .field("run_id", &self.run_id)
            .field("node_id", &self.node_id)
            .field("attempt_id", &self.attempt_id)
            .field("title", &self.title)
            .finish_non_exhaustive()
    }
}

/// A checked request with its digests. Nothing of it ever changes.
///
/// Its `Debug` does not show the subject.
#[derive(Clone, PartialEq)]
#[expect(
    clippy::struct_field_names,
    reason = "the digest of the request is called so everywhere"
)]
pub struct Request {
    run_id: String,
    workflow_name: String,
    node_id: String,
    attempt_id: String,
    audience: Audience,
    title: String,
    choices: Choices,
    subject: Value,
    presentation: Presentation,
    revision: u64,
    answerers: Answerers,
    expires_at: Option<UnixMillis>,
    default_response: Option<Response>,
    created_at: UnixMillis,
    subject_digest: DocumentDigest,
    presentation_digest: DocumentDigest,
    request_digest: DocumentDigest,
    decision_id: DecisionId,
}

impl fmt::Debug for Request {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Request")
            .field("decision_id", &self.decision_id)
            .field("title", &self.title)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

/// Why a stored document is no request that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredProblem {
    /// It is of another version: a field is missing or unknown, or the schema is another one.
    Incompatible(String),
    /// It is not what was stored: the named digest is another one now.
    Digest(&'static str),
}

impl Request {
    /// Checks a draft and makes its digests. Everybody of its audience may answer.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: the first thing that is wrong. Nothing pending is made.
    pub fn new(draft: Draft) -> Result<Self, Invalid> {
        Self::answered_by(Answerers::Anyone, draft)
    }

    /// Checks a draft and makes its digests, and says who may answer.
    ///
    /// # Errors
    ///
    /// As [`Request::new`].
    pub fn answered_by(answerers: Answerers, draft: Draft) -> Result<Self, Invalid> {
        let default = draft
            .on_timeout
            .as_ref()
            .map(|on_timeout| &on_timeout.response);
        let expires_at = match (&draft.on_timeout, draft.expires_at) {
            (Some(_), Some(_)) => return Err(Invalid::TwoDeadlines),
            (Some(on_timeout), None) => {
                Some(deadline_after(draft.created_at, on_timeout.after_ms)?)
            }
            (None, Some(at)) if at <= draft.created_at => return Err(Invalid::Deadline),
            (None, at) => at,
        };
        let default_response = default
            .map(|default| Response::check(default, &draft.choices))
            .transpose()
            .map_err(|code| Invalid::Default { code })?;
        let request = Self::checked(draft, answerers, expires_at, default_response)?;
        // Whoever is to be reached later must be able to show all of it. A stored request was counted when it was made.
        match parts::parts(&request.for_channels()) {
            Ok(_) => Ok(request),
            Err(too_many) => Err(Invalid::Limit {
                at: "the document".to_owned(),
                limit: Limit::TransportParts,
                observed: too_many.observed as u64,
            }),
        }
    }

    /// What remains to be checked once the deadline is known.
    fn checked(
        draft: Draft,
        answerers: Answerers,
        expires_at: Option<UnixMillis>,
        default_response: Option<Response>,
    ) -> Result<Self, Invalid> {
        let audience = Audience::new(draft.audience)?;
        text::check(&|| "title".to_owned(), &draft.title, Lines::One)?;
        if draft.revision < 1 || (1 << 53) < draft.revision {
            return Err(Invalid::Revision);
        }
        for (field, text) in [
            ("runId", &draft.run_id),
            ("workflowName", &draft.workflow_name),
            ("nodeId", &draft.node_id),
            ("attemptId", &draft.attempt_id),
        ] {
            if text::is_blank(text) {
                return Err(Invalid::Blank {
                    at: field.to_owned(),
                });
            }
        }
        let subject_digest = DocumentDigest::of(&draft.subject).map_err(Invalid::Subject)?;
        let presentation_digest = of_own(&draft.presentation)?;
        let mut request = Self {
            run_id: draft.run_id,
            workflow_name: draft.workflow_name,
            node_id: draft.node_id,
            attempt_id: draft.attempt_id,
            audience,
            title: draft.title,
            choices: draft.choices,
            subject: draft.subject,
            presentation: draft.presentation,
            revision: draft.revision,
            answerers,
            expires_at,
            default_response,
            created_at: draft.created_at,
            subject_digest,
            presentation_digest,
            request_digest: subject_digest,
            decision_id: DecisionId::new("unknown")?,
        };
        request.request_digest = of_own(&Value::Object(request.basis()))?;
        let id = digest::decision_id(
            &request.run_id,
            &request.node_id,
            &request.attempt_id,
            request.request_digest,
        )
        .map_err(Invalid::Subject)?;
        request.decision_id = DecisionId::new(id)?;
        Ok(request)
    }

    /// Reads a stored request, and makes all of its digests again.
    ///
    /// # Errors
    ///
    /// [`StoredProblem`]: it was made by another version, or it is not what was stored.
    pub fn read(value: &Value) -> Result<Self, StoredProblem> {
        let incompatible = |invalid: Invalid| StoredProblem::Incompatible(invalid.to_string());
        let digests = |name: &str| {
            value
                .get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let request = Self::read_fields(value).map_err(incompatible)?;
        for (name, found) in [
            ("subjectDigest", request.subject_digest.to_string()),
            (
                "presentationDigest",
                request.presentation_digest.to_string(),
            ),
            ("requestDigest", request.request_digest.to_string()),
            ("decisionId", request.decision_id.to_string()),
        ] {
            if digests(name) != found {
                return Err(StoredProblem::Digest(match name {
                    "subjectDigest" => "subject",
                    "presentationDigest" => "presentation",
                    _ => "request",
                }));
            }
        }
        Ok(request)
    }

    fn read_fields(value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of("request", value)?;
        fields.exactly(
            "schema",
            REQUEST_SCHEMA,
            "another schema than this program knows",
        )?;
        let instant = |fields: &Fields<'_>, name: &str, value: &Value| {
            value
                .as_str()
                .and_then(from_iso)
                .ok_or_else(|| fields.shape(name, "an instant is expected"))
        };
        let created_at = fields.value("createdAt")?;
        let created_at = instant(&fields, "createdAt", created_at)?;
        let expires_at = match fields.optional("expiresAt") {
            Some(at) => Some(instant(&fields, "expiresAt", at)?),
            None => None,
        };
        let revision = fields
            .value("revision")?
            .as_u64()
            .ok_or(Invalid::Revision)?;
        let draft = Draft {
            run_id: fields.text("runId")?.to_owned(),
            workflow_name: fields.text("workflowName")?.to_owned(),
            node_id: fields.text("nodeId")?.to_owned(),
            attempt_id: fields.text("attemptId")?.to_owned(),
            audience: fields.text("audience")?.to_owned(),
            title: fields.text("title")?.to_owned(),
            choices: Choices::read(fields.value("choices")?)?,
            subject: fields.value("subject")?.clone(),
            presentation: Presentation::read(fields.value("presentation")?)?,
            revision,
            on_timeout: None,
            expires_at: None,
            created_at,
        };
        let answerers = read_answerers(&mut fields)?;
        let default = fields.optional("defaultResponse");
        for derived in [
            "requestDigest",
            "subjectDigest",
            "presentationDigest",
            "decisionId",
        ] {
            fields.text(derived)?;
        }
        let no_deadline = fields.shape("defaultResponse", "it needs a deadline");
        fields.finish()?;
        if default.is_some() && expires_at.is_none() {
            return Err(no_deadline);
        }
        let default = default
            .map(|default| Response::check(default, &draft.choices))
            .transpose()
            .map_err(|code| Invalid::Default { code })?;
        if expires_at.is_some_and(|at| at <= created_at) {
            return Err(Invalid::Deadline);
        }
        Self::checked(draft, answerers, expires_at, default)
    }

    /// What identifies the request: the fields of its digest.
    fn basis(&self) -> Map<String, Value> {
        let mut basis = self.shared();
        basis.insert("schema".to_owned(), REQUEST_SCHEMA.into());
        basis.insert("subject".to_owned(), self.subject.clone());
        basis
    }

    /// What requests and channel requests have in common, without schema and digests.
    fn shared(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("runId", self.run_id.as_str().into());
        set("workflowName", self.workflow_name.as_str().into());
        set("nodeId", self.node_id.as_str().into());
        set("attemptId", self.attempt_id.as_str().into());
        set("audience", self.audience.as_str().into());
        set("title", self.title.as_str().into());
        set("choices", own_value(&self.choices));
        set("presentation", own_value(&self.presentation));
        set("revision", self.revision.into());
        if let Some(at) = self.expires_at {
            set("expiresAt", to_iso(at).into());
        }
        if let Some(default) = &self.default_response {
            set("defaultResponse", default.document());
        }
        if self.answerers != Answerers::Anyone {
            set(ANSWERERS, self.answerers.as_str().into());
        }
        fields
    }

    /// The whole request as it is stored.
    pub fn document(&self) -> Value {
        let mut document = self.basis();
        for (name, digest) in [
            ("requestDigest", self.request_digest),
            ("subjectDigest", self.subject_digest),
            ("presentationDigest", self.presentation_digest),
        ] {
            document.insert(name.to_owned(), digest.to_string().into());
        }
        document.insert("decisionId".to_owned(), self.decision_id.as_str().into());
        document.insert("createdAt".to_owned(), to_iso(self.created_at).into());
        Value::Object(document)
    }

    /// What a channel gets of it: everything that a person sees, and no subject.
    pub fn for_channels(&self) -> ChannelRequest {
        ChannelRequest {
            decision_id: self.decision_id.clone(),
            request_digest: self.request_digest,
            presentation_digest: self.presentation_digest,
            run_id: self.run_id.clone(),
            workflow_name: self.workflow_name.clone(),
            node_id: self.node_id.clone(),
            attempt_id: self.attempt_id.clone(),
            audience: self.audience.clone(),
            title: self.title.clone(),
            presentation: self.presentation.clone(),
            choices: self.choices.clone(),
            revision: self.revision,
            answerers: self.answerers,
            created_at: self.created_at,
            expires_at: self.expires_at,
            default_response: self.default_response.clone(),
        }
    }

    /// The decision.
    pub fn decision_id(&self) -> &DecisionId {
        &self.decision_id
    }

    /// The run that asks.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The name of its workflow.
    pub fn workflow_name(&self) -> &str {
        &self.workflow_name
    }

    /// The node.
    pub fn node_id(&self) -> &str {
        &self.node_id
    }

    /// The attempt that the answer completes.
    pub fn attempt_id(&self) -> &str {
        &self.attempt_id
    }

    /// To whom it is addressed.
    pub fn audience(&self) -> &Audience {
        &self.audience
    }

    /// One line that names it.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// What may be chosen.
    pub fn choices(&self) -> &Choices {
        &self.choices
    }

    /// The machine data under decision.
    pub fn subject(&self) -> &Value {
        &self.subject
    }

    /// What a person sees.
    pub fn presentation(&self) -> &Presentation {
        &self.presentation
    }

    /// The revision of the request.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Who may answer.
    pub fn answerers(&self) -> Answerers {
        self.answerers
    }

    /// From when on no person may answer.
    pub fn expires_at(&self) -> Option<UnixMillis> {
        self.expires_at
    }

    /// The automatic answer.
    pub fn default_response(&self) -> Option<&Response> {
        self.default_response.as_ref()
    }

    /// When it was made.
    pub fn created_at(&self) -> UnixMillis {
        self.created_at
    }

    /// The digest of the machine data.
    pub fn subject_digest(&self) -> DocumentDigest {
        self.subject_digest
    }

    /// The digest of what a person sees.
    pub fn presentation_digest(&self) -> DocumentDigest {
        self.presentation_digest
    }

    /// The digest of what is asked.
    pub fn request_digest(&self) -> DocumentDigest {
        self.request_digest
    }
}

/// The deadline so many milliseconds after the creation.
fn deadline_after(created_at: UnixMillis, after_ms: f64) -> Result<UnixMillis, Invalid> {
    /// The furthest from which text and number are the same: the end of the year 9999.
    const LAST: i64 = 253_402_300_799_999;
    if !after_ms.is_finite() || after_ms <= 0.0 {
        return Err(Invalid::AfterMs);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction is dropped; what is too large saturates and is refused"
    )]
    let at = created_at.plus(after_ms.trunc() as i64);
    if LAST < at.0 {
        return Err(Invalid::AfterMs);
    }
    // Less than a millisecond: a deadline at the creation would leave no instant for an answer.
    if at <= created_at {
        return Ok(created_at.plus(1));
    }
    Ok(at)
}

/// Who may answer, as a document says it.
fn read_answerers(fields: &mut Fields<'_>) -> Result<Answerers, Invalid> {
    let Some(value) = fields.optional(ANSWERERS) else {
        return Ok(Answerers::Anyone);
    };
    // What is left out has no second form: a digest is made of it.
    value
        .as_str()
        .and_then(Answerers::from_text)
        .filter(|answerers| *answerers != Answerers::Anyone)
        .ok_or_else(|| fields.shape(ANSWERERS, "only `anotherPerson` is known"))
}

/// The digest of a value of this room, which has only texts and whole numbers below 2^53 in it.
fn of_own<T: serde::Serialize>(value: &T) -> Result<DocumentDigest, Invalid> {
    DocumentDigest::of(value).map_err(Invalid::Subject)
}

/// A value of this room as JSON. Its keys are texts, so that this can't fail.
fn own_value<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
