//! Shape checks of a definition, in the order of the workflows reference, section 2.3.
//!
//! Not here: how the parts fit (`graph`), positions in files ([`crate::file`]).
//! Of the table, V1, V4, V6, V8, V15, V17, V21, V23, V24 and V27 can't be broken in Rust: the types
//! of the builder exclude them, and the file reader refuses them before there is a draft.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::edge::{EdgeDraft, Route, SwitchPath, TargetDraft};
use super::node::{EffectRequest, Node, NodeKind, OWN_NODE_TYPES, Timeout, is_budget};
use super::{CustomNode, ExpectedOutput};
use super::{
    DEFAULT_MAX_STEPS, Definition, DefinitionError, Draft, NodeDraft, Parts, RESERVED_NAMES,
};
use super::{graph, snapshot, value};
use crate::id::{NodeId, is_local_node_id};
use crate::settings::SettingsSpec;

/// The prefix of node ids that only a compiler may make.
const COMPILED_PREFIX: &str = "__piw_";

/// What every JavaScript object inherits. Definitions travel to programs in which a lookup of such
/// a name in a plain object finds something.
const INHERITED_NAMES: [&str; 12] = [
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "toLocaleString",
    "toString",
    "valueOf",
];

pub(super) fn definition(draft: Draft) -> Result<Definition, DefinitionError> {
    name(&draft.name)?;
    if let Some(contract_id) = draft.contract_id.as_deref() {
        contract(contract_id)?;
    }
    let settings = draft.settings.map(SettingsSpec::check).transpose()?;
    if draft.start_at.trim().is_empty() {
        return Err(DefinitionError::StartAtMissing);
    }
    if draft.max_steps == Some(0) {
        return Err(DefinitionError::MaxSteps {
            given: "0".to_owned(),
        });
    }
    if draft.nodes.is_empty() {
        return Err(DefinitionError::NoNodes);
    }
    let authored: Vec<String> = draft.nodes.iter().map(|node| node.id.clone()).collect();
    let mut nodes = BTreeMap::new();
    for draft in draft.nodes {
        let node = self::node(draft)?;
        if let Some(twice) = nodes.insert(node.id.clone(), node) {
            return Err(DefinitionError::NodeTwice {
                node: twice.id.to_string(),
            });
        }
    }
    for (index, draft) in draft.edges.iter().enumerate() {
        edge(index, draft)?;
    }
    let start_at = graph::start_at(&draft.name, &draft.start_at, &nodes)?;
    let routes = graph::routes(&draft.edges, &nodes)?;
    graph::reachable(&start_at, &authored, &routes)?;

    let mut parts = Parts {
        name: draft.name,
        contract_id: draft.contract_id,
        title: draft.title,
        input: draft.input,
        settings: settings
            .map(|settings| (String::new(), settings))
            .into_iter()
            .collect(),
        start_at,
        max_steps: draft.max_steps.unwrap_or(DEFAULT_MAX_STEPS),
        nodes,
        routes,
        snapshot: serde_json::Value::Null,
        digest: [0; 32],
    };
    parts.snapshot = snapshot::of(&parts, draft.declared_input);
    parts.digest =
        snapshot::digest_of(&parts.snapshot).map_err(|error| DefinitionError::Value {
            what: "the snapshot".to_owned(),
            error,
        })?;
    Ok(Definition(Arc::new(parts)))
}

fn name(name: &str) -> Result<(), DefinitionError> {
    if name.trim().is_empty() {
        return Err(DefinitionError::NameMissing);
    }
    if RESERVED_NAMES.contains(&name) {
        return Err(DefinitionError::NameReserved {
            name: name.to_owned(),
        });
    }
    Ok(())
}

fn contract(contract_id: &str) -> Result<(), DefinitionError> {
    let form = contract_id.len() <= 128
        && contract_id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && contract_id
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | ':' | '-'));
    if form {
        Ok(())
    } else {
        Err(DefinitionError::ContractId {
            contract_id: contract_id.to_owned(),
        })
    }
}

fn node(draft: NodeDraft) -> Result<Node, DefinitionError> {
    let id = local_node_id(&draft.id)?;
    if let Timeout::Fixed(millis) = draft.timeout
        && !is_budget(millis)
    {
        return Err(DefinitionError::NodeTimeout {
            node: draft.id,
            given: millis.to_string(),
        });
    }
    let mut kind = draft.kind;
    match &kind {
        NodeKind::Agent(agent) => expected_output(&draft.id, &agent.expected)?,
        NodeKind::Custom(custom) => custom_node(&draft.id, &**custom)?,
        NodeKind::Compute(_)
        | NodeKind::Action(_)
        | NodeKind::Checkpoint(_)
        | NodeKind::Notify(_) => {}
    }
    if let NodeKind::Action(action) = &mut kind {
        let effect_type = action.effect.effect_type.trim();
        let length = effect_type.chars().count();
        if !(1..=256).contains(&length) {
            return Err(DefinitionError::EffectType {
                node: draft.id,
                length,
            });
        }
        action.effect.effect_type = effect_type.to_owned();
        if let Some(EffectRequest::Value(request)) = &mut action.effect.request {
            *request = value::normal(request).map_err(|error| DefinitionError::Value {
                what: format!("the effect request of node {:?}", draft.id),
                error,
            })?;
        }
    }
    Ok(Node {
        id,
        kind,
        timeout: draft.timeout,
        status_detail: draft.status_detail,
        declared: draft.declared,
    })
}

/// V19.
fn expected_output(node: &str, expected: &ExpectedOutput) -> Result<(), DefinitionError> {
    let problem = match expected {
        ExpectedOutput::Submitted {
            description: Some(text),
            ..
        } if text.trim().is_empty() => "its description must not be blank",
        ExpectedOutput::AssistantMessage { max_chars: Some(0) } => {
            "maxChars must be a positive integer"
        }
        ExpectedOutput::Submitted { .. } | ExpectedOutput::AssistantMessage { .. } => return Ok(()),
    };
    Err(DefinitionError::ExpectedOutput {
        node: node.to_owned(),
        problem,
    })
}

/// What a kind of another crate says of itself.
fn custom_node(node: &str, custom: &dyn CustomNode) -> Result<(), DefinitionError> {
    let node_type = custom.node_type();
    let form = node_type.len() <= 64
        && node_type.starts_with(|c: char| c.is_ascii_alphabetic())
        && node_type
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    // A human decision is a checkpoint to whoever reads a run.
    let taken = OWN_NODE_TYPES.contains(&node_type) && node_type != "checkpoint";
    if !form || taken {
        return Err(DefinitionError::NodeType {
            node: node.to_owned(),
            node_type: node_type.to_owned(),
        });
    }
    value::normal(&custom.snapshot())
        .map(drop)
        .map_err(|error| DefinitionError::Value {
            what: format!("the snapshot of node {node:?}"),
            error,
        })
}

/// Checks an id as an author writes it, and makes the id of the compiled graph.
fn local_node_id(text: &str) -> Result<NodeId, DefinitionError> {
    let form = || DefinitionError::NodeIdForm {
        node: text.to_owned(),
    };
    if !is_local_node_id(text) {
        return Err(form());
    }
    if text.starts_with(COMPILED_PREFIX) {
        return Err(DefinitionError::NodeIdReserved {
            node: text.to_owned(),
        });
    }
    if INHERITED_NAMES.contains(&text) {
        return Err(DefinitionError::NodeIdInherited {
            node: text.to_owned(),
        });
    }
    NodeId::new(text).ok().ok_or_else(form)
}

fn edge(index: usize, draft: &EdgeDraft) -> Result<(), DefinitionError> {
    let from = || draft.from.clone();
    if draft.from.trim().is_empty() {
        return Err(DefinitionError::EdgeFrom { index });
    }
    match &draft.to {
        TargetDraft::Node(to) if to.trim().is_empty() => Err(DefinitionError::EdgeTarget {
            index,
            from: from(),
        }),
        TargetDraft::Node(_) => Ok(()),
        TargetDraft::Switch { on, cases } => {
            if SwitchPath::parse(on).is_none() {
                return Err(DefinitionError::SwitchPath {
                    index,
                    from: from(),
                    on: on.clone(),
                });
            }
            if cases.is_empty() {
                return Err(DefinitionError::SwitchNoCases {
                    index,
                    from: from(),
                });
            }
            match cases.iter().find(|(_, node)| node.trim().is_empty()) {
                None => Ok(()),
                Some((case, _)) => Err(DefinitionError::SwitchCaseBlank {
                    index,
                    from: from(),
                    case: case.clone(),
                }),
            }
        }
    }
}

/// The nodes of a route, for `graph`.
pub(super) fn targets(routes: &BTreeMap<NodeId, Route>, from: &NodeId) -> BTreeSet<NodeId> {
    routes
        .get(from)
        .map(Route::targets)
        .unwrap_or_default()
        .into_iter()
        .cloned()
        .collect()
}
