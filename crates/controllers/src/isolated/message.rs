//! What a host and the worker of a pass say to each other (controllers reference, section 3). Values only.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use holdpoint_workflows::RunId;

use crate::controller::Proposal;
use crate::external::{Acted, Observed};
use crate::model::{
    ConditionInput, EffectKey, EffectRequest, FinalizerName, Invalid, ManagedResource, Next,
    ProjectPath, RequestKey, StatusPatch,
};

pub(super) const LAUNCH: &str = "pi-workflows.controller-worker-launch.v1";
pub(super) const MESSAGE: &str = "pi-workflows.controller-worker-message.v1";
pub(super) const RESPONSE: &str = "pi-workflows.controller-worker-response.v1";

/// The first frame, from the host: the pass.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Launch {
    pub(super) schema: String,
    /// The worker: one process for one pass.
    pub(super) runner_epoch: String,
    /// The host.
    pub(super) server_epoch: String,
    /// The generation of the claim.
    pub(super) generation: u64,
    pub(super) project_path: ProjectPath,
    /// The program of the worker.
    pub(super) definition_path: String,
    pub(super) controller_name: String,
    pub(super) resource: ManagedResource,
    /// How long the pass may take once the worker is ready.
    pub(super) timeout_ms: u64,
    /// What older generations began and left open; the reference has no such member, and none is sent when there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left_over: Vec<SaidEffect>,
}

/// What a worker says. Each message has one answer.
#[expect(clippy::struct_field_names, reason = "the names of the reference")]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Message {
    pub(super) schema: String,
    pub(super) launch_schema: String,
    pub(super) message_id: String,
    pub(super) runner_epoch: String,
    pub(super) generation: u64,
    pub(super) operation: Operation,
    pub(super) payload: Value,
}

/// What a worker may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Operation {
    #[serde(rename = "runner.ready")]
    Ready,
    #[serde(rename = "effect.reserve")]
    Reserve,
    #[serde(rename = "effect.settle")]
    Settle,
    #[serde(rename = "workflow.ensure")]
    EnsureWorkflow,
    #[serde(rename = "workflow.changeSettings")]
    ChangeSettings,
    #[serde(rename = "workflow.queueFollowUp")]
    QueueFollowUp,
    #[serde(rename = "workflow.removeFollowUp")]
    RemoveFollowUp,
    #[serde(rename = "runner.finished")]
    Finished,
    #[serde(rename = "runner.failed")]
    Failed,
}

/// What the host answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Response {
    pub(super) schema: String,
    pub(super) message_id: String,
    pub(super) outcome: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) result: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Verdict {
    Accepted,
    Rejected,
    ClaimLost,
}

/// An effect as a worker asks for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SaidEffect {
    pub(super) key: String,
    pub(super) kind: String,
    pub(super) request: Value,
}

impl SaidEffect {
    pub(super) fn of(request: &EffectRequest) -> Self {
        Self {
            key: request.key.to_string(),
            kind: request.kind.clone(),
            request: request.request.clone(),
        }
    }

    pub(super) fn request(self) -> Result<EffectRequest, Invalid> {
        Ok(EffectRequest {
            key: EffectKey::new(self.key)?,
            kind: self.kind,
            request: self.request,
        })
    }
}

/// What became of the effect that was reserved last.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum SaidOutcome {
    Observed(Observed),
    Acted(Acted),
}

/// A child as a worker asks for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SaidChild {
    pub(super) request_key: String,
    pub(super) workflow: String,
    pub(super) input: Value,
}

/// A change of a child's settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SaidSettings {
    pub(super) request_key: RequestKey,
    pub(super) patch: Value,
    pub(super) key: String,
}

/// A prompt for the session of a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SaidFollowUp {
    pub(super) request_key: RequestKey,
    pub(super) prompt: String,
    pub(super) key: String,
}

/// A prompt that is taken back.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SaidRemoval {
    pub(super) request_key: RequestKey,
    pub(super) follow_up: String,
}

/// Why a pass failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SaidFailure {
    pub(super) error: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct SaidPatch {
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    controller_status: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<ConditionInput>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    #[expect(
        clippy::option_option,
        reason = "absent keeps it, null takes it away, as in the patch that it becomes"
    )]
    workflow_run: Option<Option<RunId>>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    finalizers: Option<Vec<FinalizerName>>,
}

/// A member that is there, also when it is null.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

/// The result of a pass as it is sent.
pub(super) fn result(proposal: Proposal) -> Result<Value, serde_json::Error> {
    let StatusPatch {
        controller_status,
        conditions,
        workflow_run,
        finalizers,
    } = proposal.patch;
    let patch = SaidPatch {
        controller_status,
        conditions,
        workflow_run,
        finalizers,
    };
    let mut members = Map::new();
    let kind = match proposal.next {
        Next::Settled => "settled",
        Next::Requeue { after_ms } => {
            if let Some(after_ms) = after_ms {
                members.insert("afterMs".to_owned(), after_ms.into());
            }
            "requeue"
        }
    };
    members.insert("kind".to_owned(), kind.into());
    members.insert("status".to_owned(), serde_json::to_value(patch)?);
    Ok(Value::Object(members))
}

/// Reads the result of a pass.
pub(super) fn proposal(result: &Value) -> Result<Proposal, Invalid> {
    let next = Next::from_json(result)?;
    let patch = match result.get("status") {
        None => SaidPatch::default(),
        // Serde would take a list for the members in their order.
        Some(status) if !status.is_object() => {
            return Err(Invalid::Result("its status is not an object".to_owned()));
        }
        Some(status) => SaidPatch::deserialize(status)
            .map_err(|error| Invalid::Result(format!("its status: {error}")))?,
    };
    Ok(Proposal {
        patch: StatusPatch {
            controller_status: patch.controller_status,
            conditions: patch.conditions,
            workflow_run: patch.workflow_run,
            finalizers: patch.finalizers,
        },
        next,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_arrives_as_it_was_sent() {
        let patch = StatusPatch {
            controller_status: Some(Value::Null),
            conditions: vec![ConditionInput::new("Ready", true, "Yes")],
            workflow_run: Some(None),
            finalizers: Some(Vec::new()),
        };
        for (patch, next) in [
            (patch, Next::Settled),
            (StatusPatch::default(), Next::Requeue { after_ms: None }),
            (StatusPatch::default(), Next::Requeue { after_ms: Some(7) }),
        ] {
            let sent = Proposal { patch, next };
            let arrived = proposal(&result(sent.clone()).unwrap()).unwrap();
            assert_eq!(arrived, sent);
        }
    }

    #[test]
    fn a_result_of_another_shape_is_none() {
        for result in [
            json!(null),
            json!({ "kind": "settled", "status": { "more": 1 } }),
            json!({ "kind": "settled", "status": [] }),
            json!({ "kind": "settled", "status": { "finalizers": [""] } }),
            json!({ "kind": "settled", "status": { "conditions": [{ "type": "Ready" }] } }),
        ] {
            assert!(proposal(&result).is_err(), "{result}");
        }
    }
}
