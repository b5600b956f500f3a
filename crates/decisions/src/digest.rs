//! The two digests of the domain, kept apart by type: with a newline at the end, and without.
//!
//! Both are SHA-256 over the canonical form of RFC 8785. Not here: what is digested (`model`).

use std::fmt;

use holdpoint_state::json::{self, JsonError};
use holdpoint_state::sql::{FromSql, FromSqlResult, SqlError, ToSql, ToSqlOutput, ValueRef};
use holdpoint_state::{Digest, EffectId, EffectIdentity, Resource, StateError};
use serde::Serialize;
use serde_json::{Value, json};

use crate::model::{DecisionId, Response, Source};

/// The digest of a document: canonical JSON with a newline at the end. Shown as `sha256:` and 64 hex digits; stored as 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DocumentDigest(Digest);

/// The digest from which ids and the digests of answers are made: canonical JSON alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlainDigest(Digest);

impl DocumentDigest {
    /// The digest of a value.
    ///
    /// # Errors
    ///
    /// [`JsonError`] when it has no canonical form.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        Ok(Self::of_canonical(json::to_canonical(value)?))
    }

    /// The digest of a value whose canonical form these bytes are.
    pub(crate) fn of_canonical(mut canonical: Vec<u8>) -> Self {
        canonical.push(b'\n');
        Self(Digest::of(&canonical))
    }

    /// Reads `sha256:` and 64 hex digits in lower case.
    pub fn from_text(text: &str) -> Option<Self> {
        let digest = Digest::from_hex(text.strip_prefix("sha256:")?)?;
        let digest = Self(digest);
        (digest.to_string() == text).then_some(digest)
    }

    /// The first hex digits, for people to compare.
    pub fn fingerprint(self) -> String {
        self.0
            .to_hex()
            .chars()
            .take(crate::model::FINGERPRINT_CHARS)
            .collect()
    }
}

impl PlainDigest {
    /// The digest of a value.
    ///
    /// # Errors
    ///
    /// [`JsonError`] when it has no canonical form.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        Ok(Self(Digest::of(&json::to_canonical(value)?)))
    }

    /// 64 hex digits.
    pub fn to_hex(self) -> String {
        self.0.to_hex()
    }

    /// An id of 40 hex digits.
    fn id(self, prefix: &str) -> String {
        let digits: String = self.0.to_hex().chars().take(40).collect();
        format!("{prefix}-{digits}")
    }
}

impl fmt::Display for DocumentDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

impl fmt::Debug for DocumentDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DocumentDigest({self})")
    }
}

impl fmt::Display for PlainDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sha256:{}", self.0)
    }
}

impl fmt::Debug for PlainDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PlainDigest({self})")
    }
}

impl Serialize for DocumentDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for PlainDigest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for DocumentDigest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        Self::from_text(&text)
            .ok_or_else(|| serde::de::Error::custom("a digest is `sha256:` and 64 hex digits"))
    }
}

impl<'de> serde::Deserialize<'de> for PlainDigest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DocumentDigest::deserialize(deserializer).map(|digest| Self(digest.0))
    }
}

impl ToSql for DocumentDigest {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, SqlError> {
        self.0.to_sql()
    }
}

impl FromSql for DocumentDigest {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Digest::column_result(value).map(Self)
    }
}

/// The id of a decision.
pub(crate) fn decision_id(
    run: &str,
    node: &str,
    attempt: &str,
    request: DocumentDigest,
) -> Result<String, JsonError> {
    let key =
        json!({ "attemptId": attempt, "nodeId": node, "requestDigest": request, "runId": run });
    Ok(PlainDigest::of(&key)?.id("decision"))
}

/// The digest of a person's answer.
pub(crate) fn human_answer(
    request: DocumentDigest,
    response: &Response,
    source: &Source,
) -> Result<PlainDigest, JsonError> {
    PlainDigest::of(
        &json!({ "requestDigest": request, "response": response, "source": source.document() }),
    )
}

/// The digest of the automatic answer.
pub(crate) fn timeout_answer(
    request: DocumentDigest,
    response: &Response,
) -> Result<PlainDigest, JsonError> {
    PlainDigest::of(
        &json!({ "provenance": "timeout", "requestDigest": request, "response": response }),
    )
}

/// From what the id of a follow-up effect is made.
pub(crate) fn effect_identity(
    decision: &DecisionId,
    effect_type: &str,
) -> Result<EffectIdentity, StateError> {
    EffectIdentity::natural(&effect_key(decision, effect_type))
}

/// The id of a follow-up effect of a decision.
pub fn effect_id(decision: &DecisionId, effect_type: &str) -> EffectId {
    let key = effect_key(decision, effect_type);
    // Two texts always have a canonical form.
    PlainDigest::of(&key)
        .map(|digest| digest.id("effect"))
        .unwrap_or_default()
        .into()
}

fn effect_key(decision: &DecisionId, effect_type: &str) -> Value {
    json!({ "decisionId": decision, "effectType": effect_type })
}

/// The public id of a decision's resource. It looks like the id of the decision and is another one.
pub fn resource_id(decision: &DecisionId) -> String {
    Resource::id(&decision.resource()).to_string()
}

#[cfg(test)]
mod tests {
    use holdpoint_state::{NewEffect, OwnerScope, Payload};

    use super::*;
    use crate::model::{ChannelId, ChoiceId};

    const REQUEST: &str = r#"{"attemptId":"att-1","audience":"operator","choices":{"go":{"label":"Go"},"redo":{"input":{"kind":"text","maxLength":4000,"minLength":1,"name":"why","prompt":"What?"},"label":"Redo"}},"nodeId":"gate","presentation":{"blocks":[],"schema":"pi-workflows.decision-presentation.v1","summary":"Ship it?"},"revision":1,"runId":"run-1","schema":"pi-workflows.human-decision-request.v1","subject":{"plan":"a"},"title":"Ship","workflowName":"wf"}"#;

    fn request() -> DocumentDigest {
        let basis: Value = serde_json::from_str(REQUEST).unwrap();
        DocumentDigest::of(&basis).unwrap()
    }

    #[test]
    fn vectors() {
        let request_digest = request();
        let decision =
            DecisionId::new(decision_id("run-1", "gate", "att-1", request_digest).unwrap())
                .unwrap();
        let redo = Response::with_text(ChoiceId::new("redo").unwrap(), "why", " x ");
        let go = Response::choose(ChoiceId::new("go").unwrap());
        let source = Source {
            channel: ChannelId::new("telegram:ops").unwrap(),
            actor_id: "100".to_owned(),
            event_id: "cb-1".to_owned(),
        };
        let presentation = json!({"schema": "pi-workflows.decision-presentation.v1", "summary": "Ship it?", "blocks": []});
        let mut dated: Value = serde_json::from_str(REQUEST).unwrap();
        dated["expiresAt"] = "2026-09-01T00:10:00.000Z".into();
        dated["defaultResponse"] = json!({ "choice": "go" });
        for (found, vector) in [
            (
                DocumentDigest::of(&json!({"b": 2, "a": 1}))
                    .unwrap()
                    .to_string(),
                "sha256:e8d38819d39f705646bfb643368eca78f7db476c16471dbc33b941b27326410d",
            ),
            (
                DocumentDigest::of(&json!({"plan": "a"}))
                    .unwrap()
                    .to_string(),
                "sha256:b12302086d7e05d2ff28e733e9d1a1ca447af9d245739026b79a5b82a80e4d13",
            ),
            (
                DocumentDigest::of(&presentation).unwrap().to_string(),
                "sha256:bb93c16b02b422048b7f915b7e8039f6f6ac1fb07542b6f0c97254c1fb6e0ec4",
            ),
            (
                request_digest.to_string(),
                "sha256:eca52995d29f0509833d368a76130002c2e02d9c1fd27e903203a68f1e90c35c",
            ),
            (
                DocumentDigest::of(&dated).unwrap().to_string(),
                "sha256:36a1dfd3ade4859799eaa9b817b7b2af6d9e73489caad743b37a2e129ed81b6b",
            ),
            (
                decision.to_string(),
                "decision-04e3310ed6ed2a6bface438826db346753f8ee93",
            ),
            (
                human_answer(request_digest, &redo, &source)
                    .unwrap()
                    .to_string(),
                "sha256:802edc8c52ed4123bf2a13f84e613fa4f510c0d3a18c8d2504b74c9871de94e4",
            ),
            (
                timeout_answer(request_digest, &go).unwrap().to_string(),
                "sha256:be9c7d5b615dec6d97a4ca176f34bc6f1e0de5fbf43d7eb81d190cdf942e19be",
            ),
            (
                effect_id(&decision, "decision.settle_presentations").to_string(),
                "effect-8cd28be7da51f62dbf173f7de71ee0cee172fbbb",
            ),
            (
                effect_id(&decision, "decision.cancel_parent").to_string(),
                "effect-7eed7ae9428e74a127b84951fac5aae0b8059f80",
            ),
        ] {
            assert_eq!(found, vector);
        }
        assert_ne!(resource_id(&decision), decision.as_str());
        assert!(resource_id(&decision).starts_with("decision-"));
        // The kernel derives the same id from the identity.
        let identity = effect_identity(&decision, "decision.cancel_parent").unwrap();
        let payload = Payload::json(&json!({})).unwrap();
        let effect = NewEffect::new(
            "decision.cancel_parent",
            decision.as_str(),
            OwnerScope::Run,
            payload,
        );
        assert_eq!(
            effect.identified_by(identity).id(&decision.resource()),
            effect_id(&decision, "decision.cancel_parent")
        );
    }

    #[test]
    fn the_two_digests_differ_and_read_what_they_show() {
        let value = json!({ "a": 1 });
        let (document, plain) = (
            DocumentDigest::of(&value).unwrap(),
            PlainDigest::of(&value).unwrap(),
        );
        assert_ne!(document.to_string(), plain.to_string());
        assert_eq!(
            DocumentDigest::from_text(&document.to_string()),
            Some(document)
        );
        assert_eq!(document.fingerprint().len(), 12);
        for wrong in [
            "",
            "sha256:",
            &plain.to_hex(),
            &document.to_string().to_uppercase(),
        ] {
            assert_eq!(DocumentDigest::from_text(wrong), None, "{wrong}");
        }
    }
}
