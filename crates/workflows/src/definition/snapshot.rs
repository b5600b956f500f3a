//! The snapshot of a definition and its digest.
//!
//! The snapshot (`pi-workflows.definition-snapshot.v1`) is the structure of a definition as JSON: what
//! the definition's row keeps and what viewers show. Functions are never in it.
//!
//! # What the digest covers
//!
//! A run is pinned to the digest of its definition and does not resume on another. So the digest
//! covers what decides behaviour, and leaves out what is only displayed. The whole list of what is
//! left out:
//!
//! | Member | Why it decides nothing |
//! |---|---|
//! | `nodes.*.statusDetail` | a line that viewers show while a run is at the node |
//! | `nodes.*.summary` of a checkpoint | a headline above the request |
//! | `settings.description`, `settings.paths.*.description`, and those of `settingsScopes` | words beside a value |
//!
//! The title of a workflow is display too; it is a function as often as a text and is not in the
//! snapshot at all. Neither is the root's `maxSteps`: a limit that stopped runs may be raised for them; that of an included workflow
//! is in it, since there it decides what its parent does.
//! Two definitions that differ in display only have one digest and share one row, whose snapshot is
//! that of the first one stored.
//!
//! Not here: storing it.

use std::fmt::Write as _;

use holdpoint_state::json::{self, JsonError};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::Parts;
use super::compose::Mount;
use super::edge::Route;
use super::node::{Node, NodeKind, Timeout};
use super::value;

/// The `schema` of every snapshot.
pub const SCHEMA: &str = "pi-workflows.definition-snapshot.v1";

/// The digest of a snapshot: SHA-256 over its canonical JSON without what is only displayed.
///
/// # Errors
///
/// The value has no canonical JSON form.
pub fn digest_of(snapshot: &Value) -> Result<[u8; 32], JsonError> {
    let mut behaviour = snapshot.clone();
    if let Some(nodes) = behaviour.get_mut("nodes").and_then(Value::as_object_mut) {
        for node in nodes.values_mut().filter_map(Value::as_object_mut) {
            node.remove("statusDetail");
            if node.get("nodeType").and_then(Value::as_str) == Some("checkpoint") {
                node.remove("summary");
            }
        }
    }
    if let Some(settings) = behaviour.get_mut("settings") {
        remove_descriptions(settings);
    }
    for scope in behaviour
        .get_mut("settingsScopes")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if let Some(settings) = scope.get_mut("settings") {
            remove_descriptions(settings);
        }
    }
    Ok(Sha256::digest(json::canonical(&behaviour)?).into())
}

fn remove_descriptions(settings: &mut Value) {
    if let Some(settings) = settings.as_object_mut() {
        settings.remove("description");
    }
    for rule in settings
        .get_mut("paths")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        rule.remove("description");
    }
}

/// The public form of a digest: `sha256:` and 64 hex digits.
pub fn digest_text(digest: &[u8; 32]) -> String {
    let mut text = String::from("sha256:");
    for byte in digest {
        // Writing to a String can't fail.
        write!(text, "{byte:02x}").unwrap_or_default();
    }
    text
}

pub(super) fn of(parts: &Parts) -> Value {
    let mut snapshot = Map::new();
    let mut put = |key: &str, value: Value| drop(snapshot.insert(key.to_owned(), value));
    put("schema", SCHEMA.into());
    put("name", parts.name.as_str().into());
    if let Some(contract_id) = &parts.contract_id {
        put("contractId", contract_id.as_str().into());
    }
    put("startAt", parts.start_at.as_str().into());
    if let Some(input) = &parts.declared_input {
        put("input", input.clone());
    }
    let nodes = parts
        .nodes
        .iter()
        .map(|(id, node)| (id.to_string(), self::node(node)))
        .collect();
    put("nodes", Value::Object(nodes));
    // One edge for each node and sorted by it: the order in which an author wrote edges means nothing.
    put(
        "edges",
        parts
            .routes
            .iter()
            .map(|(from, route)| edge(from.as_str(), route))
            .collect(),
    );
    let mounts: Value = parts
        .mounts
        .iter()
        .map(|(path, mount)| self::mount(path.as_str(), mount))
        .collect();
    put("composition", json!({ "mounts": mounts }));
    if let Some(settings) = parts.settings.get("") {
        put("settings", settings.snapshot());
    }
    // Settings of mounts, sorted by path as the map is.
    put(
        "settingsScopes",
        parts
            .settings
            .iter()
            .filter(|(path, _)| !path.is_empty())
            .map(|(path, settings)| {
                json!({ "mountPath": path.split('/').collect::<Vec<_>>(), "settings": settings.snapshot() })
            })
            .collect(),
    );
    Value::Object(snapshot)
}

fn mount(path: &str, mount: &Mount) -> Value {
    let mut snapshot = json!({
        "mountPath": path.split('/').collect::<Vec<_>>(),
        "workflowName": mount.workflow,
        "entryNode": path,
        "exits": mount.exits,
    });
    if let (Some(max_steps), Some(members)) = (mount.max_steps, snapshot.as_object_mut()) {
        members.insert("maxSteps".to_owned(), max_steps.into());
    }
    snapshot
}

fn node(node: &Node) -> Value {
    let mut snapshot = Map::new();
    let mut put = |key: &str, value: Value| drop(snapshot.insert(key.to_owned(), value));
    put("nodeType", node.kind.node_type().into());
    put(
        "mountPath",
        node.id.mount_path().into_iter().map(Value::from).collect(),
    );
    put("localNodeId", node.id.local().into());
    if let Some(transition) = node.transition {
        put("includeTransition", transition.as_str().into());
    }
    match &node.timeout {
        Timeout::Fixed(millis) => put("timeoutMs", value::number(*millis)),
        Timeout::Unlimited => put("timeoutMs", Value::Null),
        Timeout::Default | Timeout::Function(_) => {}
    }
    if let Some(detail) = &node.status_detail {
        put("statusDetail", detail.as_str().into());
    }
    match &node.kind {
        NodeKind::Compute(compute) => {
            if compute.settings_route {
                put("settingsRoute", true.into());
            }
        }
        NodeKind::Agent(agent) => {
            if let Some(expected) = agent.expected.snapshot() {
                put("expectedOutput", expected);
            }
        }
        NodeKind::Notify(notify) => put("summary", notify.kind.as_str().into()),
        NodeKind::Custom(custom) => put("declared", custom.snapshot()),
        NodeKind::Action(action) => {
            put("actionExecution", action.execution.action_type().into());
            if let super::ActionExecution::Shell(super::ShellAction {
                updates: Some(updates),
                ..
            }) = &action.execution
            {
                put("updates", json!({ "streams": updates.streams }));
            }
            put(
                "effect",
                json!({ "type": action.effect.effect_type, "recovery": action.effect.recovery.as_str() }),
            );
        }
        NodeKind::Checkpoint(checkpoint) => {
            if let Some(summary) = &checkpoint.summary {
                put("summary", summary.as_str().into());
            }
        }
    }
    if let Some(declared) = &node.declared {
        put("declared", declared.clone());
    }
    Value::Object(snapshot)
}

fn edge(from: &str, route: &Route) -> Value {
    match route {
        Route::To(to) => json!({ "from": from, "to": to }),
        Route::Switch { on, cases } => {
            json!({ "from": from, "switch": { "on": on.as_str(), "cases": cases } })
        }
    }
}
