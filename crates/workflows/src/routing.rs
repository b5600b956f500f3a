//! Where a run goes after a node: pure functions of a definition and committed results.
//!
//! Not here: reading or writing rows, time, running anything. The rules are those of the workflows
//! reference, sections 2.5 and 2.6.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::definition::{Definition, Route, SwitchPath, SwitchRoot};
use crate::id::{AttemptId, NodeId};

/// How a visit of a node ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutcome {
    /// It has an output.
    Ok,
    /// It raised an error.
    Failed,
    /// Its time budget was spent.
    TimedOut,
    /// It was asked to stop.
    Cancelled,
}

impl NodeOutcome {
    /// The word of rows and results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The record of a node's latest visit; what `$result.` paths and `results` read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeResult {
    /// The attempt that was accepted as the step.
    pub attempt_id: AttemptId,
    /// The node.
    pub node_id: NodeId,
    /// The `nodeType` of the node.
    pub node_type: String,
    /// How it ended.
    pub outcome: NodeOutcome,
    /// When the attempt began, Unix milliseconds.
    pub started_at: i64,
    /// When it was finished, Unix milliseconds.
    pub finished_at: i64,
    /// How long it took, in milliseconds.
    pub duration_ms: i64,
    /// Its output; present exactly when the outcome is `ok`, and then possibly `null`.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub output: Option<Value>,
    /// Name and message of its error, when the outcome is not `ok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What everybody may see of the answer of a decision, such as its `provenance`; no other node has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Value>,
}

/// A member that is there is `Some`, even if it is `null`.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What follows a finished node.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// The run goes to this node.
    Node(NodeId),
    /// The run completes with this output.
    Complete(Value),
    /// The run fails.
    Fail(RunFailure),
    /// The run ends `timed_out`, with the error of the node.
    TimedOut(RunFailure),
    /// The run ends `cancelled`.
    Cancelled,
}

/// Why a run ends without an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RunFailure {
    /// A node failed, or ran out of time, and no route catches that.
    #[error("node {node:?} {}: {error}", outcome_words(*.outcome))]
    Node {
        /// The node.
        node: NodeId,
        /// `failed` or `timed_out`.
        outcome: NodeOutcome,
        /// Its error.
        error: String,
    },
    /// The value that a switch reads is missing or no string, number or boolean.
    #[error(
        "node {node:?}: the switch on {on} needs a string, number or boolean, but the value is {found}"
    )]
    NotScalar {
        /// The node that the switch leaves.
        node: NodeId,
        /// The path.
        on: String,
        /// `missing`, or the JSON type that is there.
        found: &'static str,
    },
    /// The value that a switch reads selects no case.
    #[error("node {node:?}: the switch on {on} has no case for {value:?}; its cases are {cases}")]
    NoCase {
        /// The node that the switch leaves.
        node: NodeId,
        /// The path.
        on: String,
        /// The value as text.
        value: String,
        /// The cases that there are, separated by commas.
        cases: String,
    },
    /// The run has made as many steps as its definition allows.
    #[error("workflow {workflow:?} reached its limit of {max_steps} steps before node {node:?}")]
    MaxSteps {
        /// The workflow whose limit it is.
        workflow: String,
        /// The limit.
        max_steps: u32,
        /// The node that would have come next.
        node: NodeId,
    },
    /// The node is not part of the definition: the run's rows belong to another one.
    #[error("node {node:?} is not part of workflow {workflow:?}")]
    UnknownNode {
        /// The workflow.
        workflow: String,
        /// The node.
        node: NodeId,
    },
}

fn outcome_words(outcome: NodeOutcome) -> &'static str {
    match outcome {
        NodeOutcome::Ok => "ended",
        NodeOutcome::Failed => "failed",
        NodeOutcome::TimedOut => "timed out",
        NodeOutcome::Cancelled => "was cancelled",
    }
}

/// Says what follows `last`, the node just finished.
///
/// Arms are in order of precedence: a cancelled node never routes; an `ok` node takes its one edge
/// or completes the run; a failed or timed out node takes only a switch on `$result.`.
pub fn next(definition: &Definition, last: &NodeResult) -> Next {
    if definition.node(&last.node_id).is_none() {
        return Next::Fail(RunFailure::UnknownNode {
            workflow: definition.name().to_owned(),
            node: last.node_id.clone(),
        });
    }
    let route = definition.route(&last.node_id);
    match (last.outcome, route) {
        (NodeOutcome::Cancelled, _) => Next::Cancelled,
        (NodeOutcome::Ok, None) => Next::Complete(last.output.clone().unwrap_or(Value::Null)),
        (NodeOutcome::Ok, Some(Route::To(node))) => Next::Node(node.clone()),
        (NodeOutcome::Ok, Some(Route::Switch { on, cases })) => switch(last, on, cases),
        (NodeOutcome::Failed | NodeOutcome::TimedOut, Some(Route::Switch { on, cases }))
            if on.root() == SwitchRoot::Result =>
        {
            switch(last, on, cases)
        }
        (NodeOutcome::Failed, _) => Next::Fail(node_failure(last)),
        (NodeOutcome::TimedOut, _) => Next::TimedOut(node_failure(last)),
    }
}

fn node_failure(last: &NodeResult) -> RunFailure {
    RunFailure::Node {
        node: last.node_id.clone(),
        outcome: last.outcome,
        error: last
            .error
            .clone()
            .unwrap_or_else(|| "no error text".to_owned()),
    }
}

fn switch(last: &NodeResult, on: &SwitchPath, cases: &BTreeMap<String, NodeId>) -> Next {
    let value = match on.root() {
        SwitchRoot::Output => last
            .output
            .as_ref()
            .and_then(|output| walk(output, on.segments()))
            .cloned(),
        SwitchRoot::Result => result_field(last, on.segments()),
    };
    let Some(text) = value.as_ref().and_then(case_text) else {
        return Next::Fail(RunFailure::NotScalar {
            node: last.node_id.clone(),
            on: on.to_string(),
            found: value.as_ref().map_or("missing", json_type),
        });
    };
    match cases.get(&text) {
        Some(node) => Next::Node(node.clone()),
        None => Next::Fail(RunFailure::NoCase {
            node: last.node_id.clone(),
            on: on.to_string(),
            value: text,
            cases: cases
                .keys()
                .map(|case| format!("{case:?}"))
                .collect::<Vec<_>>()
                .join(", "),
        }),
    }
}

/// Reads a `$result.` path without making JSON of the whole record.
fn result_field(result: &NodeResult, segments: &[String]) -> Option<Value> {
    let (field, rest) = segments.split_first()?;
    let whole = match field.as_str() {
        "attemptId" => Value::from(result.attempt_id.as_str()),
        "nodeId" => Value::from(result.node_id.as_str()),
        "nodeType" => Value::from(result.node_type.as_str()),
        "outcome" => Value::from(result.outcome.as_str()),
        "startedAt" => Value::from(result.started_at),
        "finishedAt" => Value::from(result.finished_at),
        "durationMs" => Value::from(result.duration_ms),
        "output" => {
            return result
                .output
                .as_ref()
                .and_then(|output| walk(output, rest))
                .cloned();
        }
        "error" => Value::from(result.error.as_deref()?),
        _ => return None,
    };
    rest.is_empty().then_some(whole)
}

/// Walks names through objects, and indexes through arrays.
fn walk<'v>(value: &'v Value, segments: &[String]) -> Option<&'v Value> {
    segments
        .iter()
        .try_fold(value, |value, segment| match value {
            Value::Object(fields) => fields.get(segment),
            Value::Array(items) => items.get(array_index(segment)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
}

/// An index as JSON would print it: digits only, no leading zero.
fn array_index(segment: &str) -> Option<usize> {
    let digits = segment.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = 1 < segment.len() && segment.starts_with('0');
    (digits && !leading_zero).then(|| segment.parse().ok())?
}

/// The text by which a scalar selects a case.
fn case_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(crate::definition::value::number_text(number)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Checks, before `node` is dispatched, that the run may make one more step.
///
/// `steps` says how many authored nodes were executed so far, an answered checkpoint counting once: of the whole run for the empty
/// path, of the present invocation for the path of a mount. The root is checked first, then the mounts from outside in. A node that
/// only leads into an include or out of it is no step and passes every limit.
///
/// # Errors
///
/// [`RunFailure::MaxSteps`]: the run fails with it, and `node` is not executed.
pub fn check_max_steps(
    definition: &Definition,
    steps: impl Fn(&str) -> u64,
    node: &NodeId,
) -> Result<(), RunFailure> {
    let check = |path: &str, workflow: &str, max_steps: u32| {
        if steps(path) < u64::from(max_steps) {
            return Ok(());
        }
        Err(RunFailure::MaxSteps {
            workflow: workflow.to_owned(),
            max_steps,
            node: node.clone(),
        })
    };
    if definition.is_transition(node) {
        return Ok(());
    }
    check("", definition.name(), definition.max_steps())?;
    for path in node.mounts() {
        if let Some(mount) = definition.mounts().get(path)
            && let Some(max_steps) = mount.max_steps
        {
            check(path, &mount.workflow, max_steps)?;
        }
    }
    Ok(())
}

/// The number of the next visit of `node`: one more than the steps that it already has.
pub fn visit_number<'s>(node: &NodeId, steps: impl IntoIterator<Item = &'s NodeId>) -> u32 {
    let taken = steps.into_iter().filter(|step| *step == node).count();
    u32::try_from(taken).unwrap_or(u32::MAX).saturating_add(1)
}

/// Takes a finished step into what later nodes see.
///
/// A visit that did not end `ok` removes the node's earlier output; it stays out until the node
/// succeeds again. An exit of an include stands for the include too, under the path of its mount.
pub fn apply(
    outputs: &mut BTreeMap<NodeId, Value>,
    results: &mut BTreeMap<NodeId, NodeResult>,
    result: NodeResult,
) {
    if let Some(mount) = result.node_id.exit_mount() {
        apply_as(outputs, results, mount, result.clone());
    }
    let node = result.node_id.clone();
    apply_as(outputs, results, node, result);
}

/// Takes a finished step into what later nodes see under this name.
pub(crate) fn apply_as(
    outputs: &mut BTreeMap<NodeId, Value>,
    results: &mut BTreeMap<NodeId, NodeResult>,
    name: NodeId,
    result: NodeResult,
) {
    match (&result.outcome, &result.output) {
        (NodeOutcome::Ok, output) => {
            outputs.insert(name.clone(), output.clone().unwrap_or(Value::Null));
        }
        (NodeOutcome::Failed | NodeOutcome::TimedOut | NodeOutcome::Cancelled, _) => {
            outputs.remove(&name);
        }
    }
    results.insert(name, result);
}

#[cfg(test)]
mod tests;
