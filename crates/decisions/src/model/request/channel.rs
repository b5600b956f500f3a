//! What a channel gets of a request. It travels as a document, and whoever receives it reads it strictly.

use holdpoint_state::clock::UnixMillis;
use serde_json::{Map, Value};

use super::{ANSWERERS, Answerers, REQUEST_SCHEMA, of_own, own_value, read_answerers};
use crate::digest::DocumentDigest;
use crate::model::choice::Choices;
use crate::model::fields::Fields;
use crate::model::id::{Audience, DecisionId};
use crate::model::instant::{from_iso, to_iso};
use crate::model::invalid::Invalid;
use crate::model::presentation::Presentation;
use crate::model::response::Response;
use crate::model::text::{self, Lines};

/// The schema of what a channel gets of a request.
pub const CHANNEL_SCHEMA: &str = "pi-workflows.human-decision-channel-request.v1";

/// A request as a channel gets it: what a person sees, without the machine data.
#[derive(Debug, Clone, PartialEq)]
pub struct ChannelRequest {
    /// The decision.
    pub decision_id: DecisionId,
    /// The digest of what is asked.
    pub request_digest: DocumentDigest,
    /// The digest of what a person sees.
    pub presentation_digest: DocumentDigest,
    /// The run that asks.
    pub run_id: String,
    /// The name of its workflow.
    pub workflow_name: String,
    /// The node.
    pub node_id: String,
    /// The attempt.
    pub attempt_id: String,
    /// To whom it is addressed.
    pub audience: Audience,
    /// One line that names it.
    pub title: String,
    /// What a person sees.
    pub presentation: Presentation,
    /// What may be chosen.
    pub choices: Choices,
    /// The revision of the request.
    pub revision: u64,
    /// Who may answer.
    pub answerers: Answerers,
    /// When it was made.
    pub created_at: UnixMillis,
    /// From when on no person may answer.
    pub expires_at: Option<UnixMillis>,
    /// The automatic answer.
    pub default_response: Option<Response>,
}

impl ChannelRequest {
    /// The document that travels.
    pub fn document(&self) -> Value {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("schema", CHANNEL_SCHEMA.into());
        set("sourceSchema", REQUEST_SCHEMA.into());
        set("decisionId", self.decision_id.as_str().into());
        set("requestDigest", self.request_digest.to_string().into());
        set("runId", self.run_id.as_str().into());
        set("workflowName", self.workflow_name.as_str().into());
        set("nodeId", self.node_id.as_str().into());
        set("attemptId", self.attempt_id.as_str().into());
        set("audience", self.audience.as_str().into());
        set("title", self.title.as_str().into());
        set("presentation", own_value(&self.presentation));
        set(
            "presentationDigest",
            self.presentation_digest.to_string().into(),
        );
        set("revision", self.revision.into());
        set("choices", own_value(&self.choices));
        set("createdAt", to_iso(self.created_at).into());
        if let Some(at) = self.expires_at {
            set("expiresAt", to_iso(at).into());
        }
        if let Some(default) = &self.default_response {
            set("defaultResponse", default.document());
        }
        if self.answerers != Answerers::Anyone {
            set(ANSWERERS, self.answerers.as_str().into());
        }
        Value::Object(fields)
    }

    /// Reads what travelled. A document with a subject is refused.
    ///
    /// # Errors
    ///
    /// [`Invalid`]: a field that is missing, unknown or wrong, or a presentation that is not the one that was sent.
    pub fn read(value: &Value) -> Result<Self, Invalid> {
        let mut fields = Fields::of("channel request", value)?;
        fields.exactly(
            "schema",
            CHANNEL_SCHEMA,
            "another schema than this program knows",
        )?;
        fields.exactly(
            "sourceSchema",
            REQUEST_SCHEMA,
            "another schema than this program knows",
        )?;
        let digest = |fields: &mut Fields<'_>, name: &str| {
            DocumentDigest::from_text(fields.text(name)?)
                .ok_or_else(|| fields.shape(name, "a digest is expected"))
        };
        let instant = |fields: &Fields<'_>, name: &str, value: &Value| {
            value
                .as_str()
                .and_then(from_iso)
                .ok_or_else(|| fields.shape(name, "an instant is expected"))
        };
        let created_at = fields.value("createdAt")?;
        let choices = Choices::read(fields.value("choices")?)?;
        let default = fields.optional("defaultResponse");
        let expires_at = fields.optional("expiresAt");
        let answerers = read_answerers(&mut fields)?;
        let request = Self {
            decision_id: DecisionId::new(fields.text("decisionId")?)?,
            request_digest: digest(&mut fields, "requestDigest")?,
            presentation_digest: digest(&mut fields, "presentationDigest")?,
            run_id: fields.text("runId")?.to_owned(),
            workflow_name: fields.text("workflowName")?.to_owned(),
            node_id: fields.text("nodeId")?.to_owned(),
            attempt_id: fields.text("attemptId")?.to_owned(),
            audience: Audience::new(fields.text("audience")?)?,
            title: fields.text("title")?.to_owned(),
            presentation: Presentation::read(fields.value("presentation")?)?,
            revision: fields
                .value("revision")?
                .as_u64()
                .filter(|revision| 1 <= *revision)
                .ok_or(Invalid::Revision)?,
            answerers,
            created_at: instant(&fields, "createdAt", created_at)?,
            expires_at: expires_at
                .map(|at| instant(&fields, "expiresAt", at))
                .transpose()?,
            default_response: default
                .map(|default| Response::check(default, &choices))
                .transpose()
                .map_err(|code| Invalid::Default { code })?,
            choices,
        };
        let other = fields.shape("presentationDigest", "the presentation is another one");
        fields.finish()?;
        text::check(&|| "title".to_owned(), &request.title, Lines::One)?;
        if of_own(&request.presentation)? != request.presentation_digest {
            return Err(other);
        }
        Ok(request)
    }

    /// What people compare.
    pub fn fingerprint(&self) -> String {
        self.presentation_digest.fingerprint()
    }
}
