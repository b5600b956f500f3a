//! A managed resource as people and controllers read it, and the pure rules of its status.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Payload, StateError};
use holdpoint_workflows::RunId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::invalid::{DOCUMENT_BYTES_MAX, Invalid};
use super::names::{ControllerName, FinalizerName, Key, Uid};
use crate::error::ControllerError;

/// A managed resource: what is wanted (`spec`, which its callers own) and what was found (`status`, which its controller owns).
///
/// It serialises in the public shape, in which a controller is called resource manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ManagedResource {
    /// Who it is, and what counts its changes.
    pub metadata: Metadata,
    /// What is wanted.
    pub spec: Value,
    /// What was found last.
    pub status: StatusView,
}

impl ManagedResource {
    /// The condition of a type, if its present generation produced it: what an older generation found says nothing of this one.
    pub fn current_condition(&self, condition_type: &str) -> Option<&Condition> {
        self.status
            .condition(condition_type)
            .filter(|condition| condition.observed_generation == self.metadata.generation)
    }
}

/// Identity and counters of a managed resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Never used again, not even for the same key.
    pub uid: Uid,
    /// Its controller.
    #[serde(rename = "resourceManager")]
    pub controller: ControllerName,
    /// Its key within project and controller.
    pub key: Key,
    /// Counts every accepted change: the token of a conditional change.
    pub resource_version: u64,
    /// Counts the changes of the spec, from 1.
    pub generation: u64,
    /// When its deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deletion_timestamp: Option<UnixMillis>,
    /// What holds its deletion, in the declared order.
    #[serde(default)]
    pub finalizers: Vec<FinalizerName>,
}

/// What a controller found last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// The generation that it was found for; 0 before the first pass.
    pub observed_generation: u64,
    /// The latest known conditions, one for each type.
    pub conditions: Vec<Condition>,
    /// The run that a person should look at.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub workflow_run: Option<RunId>,
    /// The controller's own part.
    #[serde(rename = "resourceManagerStatus", alias = "controllerStatus")]
    pub controller_status: Value,
}

impl StatusView {
    /// The status of a resource that no pass has looked at.
    pub fn initial(controller_status: Value) -> Self {
        Self {
            observed_generation: 0,
            conditions: Vec::new(),
            workflow_run: None,
            controller_status,
        }
    }

    /// The condition of a type, of whatever generation.
    pub fn condition(&self, condition_type: &str) -> Option<&Condition> {
        self.conditions
            .iter()
            .find(|condition| condition.condition_type == condition_type)
    }

    /// The stored document, within its limit.
    pub(crate) fn payload(&self) -> Result<Payload, ControllerError> {
        let mut document = json!({
            "observedGeneration": self.observed_generation,
            "conditions": self.conditions,
            "controllerStatus": self.controller_status,
        });
        if let (Some(run), Some(members)) = (&self.workflow_run, document.as_object_mut()) {
            members.insert("workflowRun".to_owned(), json!(run));
        }
        limited("status", &document, DOCUMENT_BYTES_MAX)
    }

    /// Reads a stored document.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Invalid> {
        serde_json::from_slice(bytes).map_err(|error| Invalid::Status(error.to_string()))
    }
}

/// Canonical JSON of at most `bytes_max` bytes.
pub(crate) fn limited(
    what: &'static str,
    value: &Value,
    bytes_max: usize,
) -> Result<Payload, ControllerError> {
    let payload = match Payload::json(value) {
        Ok(payload) => payload,
        // A mistake of whoever gives it: a pass that finds such a status has failed, as with one that is too large.
        Err(StateError::Json { source, .. }) => {
            let problem = source.to_string();
            return Err(Invalid::NotStorable { what, problem }.into());
        }
        Err(error) => return Err(error.into()),
    };
    let bytes = payload.as_bytes().len();
    if bytes_max < bytes {
        return Err(Invalid::TooLarge {
            what,
            bytes,
            bytes_max,
        }
        .into());
    }
    Ok(payload)
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It does.
    True,
    /// It does not.
    False,
    /// It can't be said.
    Unknown,
}

impl ConditionStatus {
    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "true",
            Self::False => "false",
            Self::Unknown => "unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Serialize for ConditionStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::True => serializer.serialize_bool(true),
            Self::False => serializer.serialize_bool(false),
            Self::Unknown => serializer.serialize_str("unknown"),
        }
    }
}

impl<'de> Deserialize<'de> for ConditionStatus {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Bool(holds) => Ok(holds.into()),
            Value::String(word) if word == "unknown" => Ok(Self::Unknown),
            Value::Null
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => Err(serde::de::Error::custom(
                "a condition is true, false or \"unknown\"",
            )),
        }
    }
}

/// The latest known answer to one question about a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The question, such as `Ready`.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// The answer.
    pub status: ConditionStatus,
    /// Why, as one word for programs.
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// The generation that it was found for.
    pub observed_generation: u64,
    /// When the answer became another one.
    pub last_transition_time: UnixMillis,
}

/// A condition as a controller gives it: generation and time are the domain's to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConditionInput {
    /// The question, such as `Ready`.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// The answer.
    pub status: ConditionStatus,
    /// Why, as one word for programs.
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
}

impl ConditionInput {
    /// A condition without a message.
    pub fn new(
        condition_type: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            condition_type: condition_type.into(),
            status: status.into(),
            reason: reason.into(),
            message: None,
        }
    }

    /// Adds a message for people.
    #[must_use]
    pub fn because(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
}

/// What a pass changes of the status. What is absent stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatusPatch {
    /// Replaces the controller's own part; JSON null is a value like others.
    pub controller_status: Option<Value>,
    /// Merged by type.
    pub conditions: Vec<ConditionInput>,
    /// Names or takes away the run that a person should look at.
    pub workflow_run: Option<Option<RunId>>,
    /// Replaces the list of finalizers.
    pub finalizers: Option<Vec<FinalizerName>>,
}

impl StatusPatch {
    /// The status after this patch, found for `generation` at `now`. Finalizers are no part of it: see [`StatusPatch::finalizers_of`].
    ///
    /// # Errors
    ///
    /// [`Invalid::DuplicateCondition`], [`Invalid::BlankCondition`].
    pub fn apply(
        &self,
        before: &StatusView,
        generation: u64,
        now: UnixMillis,
    ) -> Result<StatusView, Invalid> {
        let mut after = before.clone();
        after.observed_generation = generation;
        if let Some(status) = &self.controller_status {
            after.controller_status = status.clone();
        }
        if let Some(run) = &self.workflow_run {
            after.workflow_run.clone_from(run);
        }
        for (at, given) in self.conditions.iter().enumerate() {
            for (what, text) in [("type", &given.condition_type), ("reason", &given.reason)] {
                if text.trim().is_empty() {
                    return Err(Invalid::BlankCondition(what));
                }
            }
            if self
                .conditions
                .iter()
                .skip(at + 1)
                .any(|other| other.condition_type == given.condition_type)
            {
                return Err(Invalid::DuplicateCondition(given.condition_type.clone()));
            }
            let known = after
                .conditions
                .iter_mut()
                .find(|known| known.condition_type == given.condition_type);
            let since = match &known {
                Some(known) if known.status == given.status => known.last_transition_time,
                _ => now,
            };
            let condition = Condition {
                condition_type: given.condition_type.clone(),
                status: given.status,
                reason: given.reason.clone(),
                message: given.message.clone(),
                observed_generation: generation,
                last_transition_time: since,
            };
            match known {
                Some(known) => *known = condition,
                None => after.conditions.push(condition),
            }
        }
        Ok(after)
    }

    /// The finalizers after this patch, or none when it does not change them.
    ///
    /// # Errors
    ///
    /// [`Invalid::DuplicateFinalizer`]; [`Invalid::FinalizerWhileDeleting`] for a new one of a resource that is being deleted.
    pub fn finalizers_of(
        &self,
        before: &[FinalizerName],
        is_deleting: bool,
    ) -> Result<Option<Vec<FinalizerName>>, Invalid> {
        match &self.finalizers {
            Some(wanted) => {
                check_finalizers(before, wanted, is_deleting)?;
                Ok((wanted.as_slice() != before).then(|| wanted.clone()))
            }
            None => Ok(None),
        }
    }
}

/// Whether a list of finalizers may follow another.
pub(crate) fn check_finalizers(
    before: &[FinalizerName],
    wanted: &[FinalizerName],
    is_deleting: bool,
) -> Result<(), Invalid> {
    for (at, name) in wanted.iter().enumerate() {
        if wanted.iter().skip(at + 1).any(|other| other == name) {
            return Err(Invalid::DuplicateFinalizer(name.to_string()));
        }
        if is_deleting && !before.contains(name) {
            return Err(Invalid::FinalizerWhileDeleting(name.to_string()));
        }
    }
    Ok(())
}
