//! Finite runs that a resource asks for.

use holdpoint_state::{Digest, Payload, StateError};
use holdpoint_workflows::RunId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::names::{RequestKey, Uid};
use super::words;

words! {
    /// Where the request for a child run is.
    ChildState {
        /// Asked for; no run is known yet.
        Pending = "pending",
        /// Its run goes on.
        Running = "running",
        /// Its run waits for somebody.
        Waiting = "waiting",
        /// Its run completed. Final.
        Succeeded = "succeeded",
        /// Its run failed or was cancelled. Final.
        Failed = "failed",
        /// Its run will not go on; the next pass that asks gets another one.
        Interrupted = "interrupted",
    }
}

impl ChildState {
    /// Whether no run under this request key will follow.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Whether a completion may say it.
    pub const fn is_settled(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// A wish for one finite run, which has one answer for ever: the same key with another workflow or input is a conflict.
#[derive(Debug, Clone, PartialEq)]
pub struct ChildRequest {
    /// Names it within the resource.
    pub request_key: RequestKey,
    /// The workflow, as its caller refers to it.
    pub workflow: String,
    /// The run's input.
    pub input: Value,
}

impl ChildRequest {
    /// SHA-256 of the canonical input.
    ///
    /// # Errors
    ///
    /// An input without a canonical form.
    pub fn fingerprint(&self) -> Result<Digest, StateError> {
        Ok(Payload::json(&self.input)?.digest())
    }
}

/// What is known of a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildRecord {
    /// The request's id.
    pub request_id: String,
    /// Whose child it is.
    pub resource_uid: Uid,
    /// Its name within the resource.
    pub request_key: RequestKey,
    /// The workflow.
    pub workflow: String,
    /// SHA-256 of the canonical input.
    pub input_fingerprint: Digest,
    /// Where it is.
    pub state: ChildState,
    /// How many runs it was given.
    pub attempt: u64,
    /// The id that its run has or will have.
    pub reserved_run_id: Option<RunId>,
    /// Its run, once that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Why it is not what was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ChildRecord {
    /// Whether its run is still to be started: the reserved id is durable, and starting it twice meets the same run.
    pub fn is_to_be_started(&self) -> bool {
        self.state == ChildState::Pending
    }
}

/// The end, or the wait, of a child's run, told to the resource that asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub request_id: String,
    /// The run, which must be the reserved one.
    pub run_id: RunId,
    /// What became of it.
    pub state: ChildState,
    /// Why, when it is not what was wanted.
    pub error: Option<String>,
}

/// The id of the run that an attempt of a request has: the same for ever.
///
/// # Errors
///
/// Never for ids of this domain.
pub(crate) fn reserved_run_id(request_id: &str, attempt: u64) -> Result<RunId, StateError> {
    let digest = Payload::json(&json!({ "attempt": attempt, "requestId": request_id }))?
        .digest()
        .to_hex();
    let id = format!("child-{}", digest.get(..40).unwrap_or(&digest));
    RunId::new(id).map_err(|error| StateError::Corrupt {
        what: format!("child request {request_id}"),
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserved_run_follows_from_request_and_attempt() {
        let id = reserved_run_id("req-1", 1).unwrap();
        assert_eq!(
            id.as_str(),
            "child-3fc4ed8db313bc01dbf7ea6f4dbfdde54d3d5655"
        );
    }

    #[test]
    fn fingerprints_are_those_of_the_reference() {
        let request = |input| ChildRequest {
            request_key: RequestKey::new("a").unwrap(),
            workflow: "w".to_owned(),
            input,
        };
        let hex = |input| request(input).fingerprint().unwrap().to_hex();
        assert_eq!(
            hex(json!({"head": "a"})),
            "40764401a76928bdb533b0a6f4fcdb0c89d16c453354f704c610c36d3b3bb063"
        );
        assert_eq!(
            hex(json!({})),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }
}
