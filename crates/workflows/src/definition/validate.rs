//! Shape checks of a definition, in the order of the workflows reference, section 2.3.
//!
//! Not here: how the parts fit (`graph`), positions in files ([`crate::file`]).
//! Of the table, V1, V4, V6, V8, V15, V17, V21, V23, V24 and V27 can't be broken in Rust: the types
//! of the builder exclude them, and the file reader refuses them before there is a draft. So it does with an empty `exits` (V32).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::compose::{self, ExitDraft, IncludeDraft, IncludedWorkflow, Library};
use super::edge::{EdgeDraft, Route, SwitchPath, TargetDraft};
use super::node::{EffectRequest, Node, NodeKind, OWN_NODE_TYPES, Timeout, is_budget};
use super::{CustomNode, ExpectedOutput};
use super::{Definition, DefinitionError, Draft, NodeDraft, Parts, RESERVED_NAMES};
use super::{graph, snapshot, value};
use crate::id::{NodeId, is_local_node_id};
use crate::settings::{SettingsDefinition, SettingsSpec};

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

pub(super) fn definition(
    draft: Draft,
    library: &dyn Library,
) -> Result<Definition, DefinitionError> {
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
    includes(&draft.includes, &nodes)?;
    exits(&draft.exits)?;
    for (index, draft) in draft.edges.iter().enumerate() {
        edge(index, draft)?;
    }
    let start_at = graph::start_at(&draft.name, &draft.start_at, &nodes, &draft.includes)?;
    let authored = authored
        .into_iter()
        .chain(draft.includes.iter().map(|include| include.name.clone()))
        .collect::<Vec<_>>();
    let included = compose::resolve(&draft.name, draft.source.as_ref(), draft.includes, library)?;
    let interfaces = compose::Interfaces::of(&included);
    let mut routes = graph::routes(&draft.edges, &nodes, &interfaces)?;
    cases(&nodes, &routes)?;
    let exits = compose::exits(draft.exits, &nodes, &routes)?;
    let mut settings: BTreeMap<String, SettingsDefinition> = settings
        .map(|settings| (String::new(), settings))
        .into_iter()
        .collect();
    let mut mounts = BTreeMap::new();
    compose::flatten(
        &mut compose::Graph {
            nodes: &mut nodes,
            routes: &mut routes,
            settings: &mut settings,
            mounts: &mut mounts,
        },
        included,
    )?;
    graph::reachable(&start_at, &authored, &routes)?;

    let mut parts = Parts {
        name: draft.name,
        contract_id: draft.contract_id,
        title: draft.title,
        input: draft.input,
        declared_input: draft.declared_input,
        settings,
        start_at,
        max_steps: draft.max_steps,
        nodes,
        routes,
        exits,
        mounts,
        source: draft.source,
        snapshot: serde_json::Value::Null,
        digest: [0; 32],
    };
    parts.snapshot = snapshot::of(&parts);
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
        transition: None,
    })
}

/// V30 and V31.
fn includes(
    drafts: &[IncludeDraft],
    nodes: &BTreeMap<NodeId, Node>,
) -> Result<(), DefinitionError> {
    let mut names = BTreeSet::new();
    for draft in drafts {
        let refuse = |problem: &str| {
            Err(DefinitionError::IncludeName {
                include: draft.name.clone(),
                problem: problem.to_owned(),
            })
        };
        if let Err(error) = local_node_id(&draft.name) {
            return refuse(id_problem(&error));
        }
        if nodes.contains_key(draft.name.as_str()) {
            return refuse("is the id of a node too");
        }
        if !names.insert(draft.name.as_str()) {
            return refuse("is used twice");
        }
        let blank = |workflow: &IncludedWorkflow| matches!(workflow, IncludedWorkflow::Reference(reference) if reference.trim().is_empty());
        if blank(&draft.workflow) || draft.contract.as_ref().is_some_and(blank) {
            return Err(DefinitionError::IncludeWorkflow {
                include: draft.name.clone(),
            });
        }
    }
    Ok(())
}

/// V32. That `exits` is not empty when it is given is for the reader of files to say.
fn exits(drafts: &[ExitDraft]) -> Result<(), DefinitionError> {
    let mut names = BTreeSet::new();
    for draft in drafts {
        let refuse = |problem: &str| {
            Err(DefinitionError::Exit {
                exit: draft.name.clone(),
                problem: problem.to_owned(),
            })
        };
        if let Err(error) = local_node_id(&draft.name) {
            return refuse(id_problem(&error));
        }
        if !names.insert(draft.name.as_str()) {
            return refuse("is used twice");
        }
        if draft.from.trim().is_empty() {
            return refuse("needs the node that it follows");
        }
    }
    Ok(())
}

/// What is wrong with a name that has the form of a node id, without the word "node".
fn id_problem(error: &DefinitionError) -> &'static str {
    match error {
        DefinitionError::NodeIdReserved { .. } => {
            "begins with __piw_, which is kept for compiled graphs"
        }
        DefinitionError::NodeIdInherited { .. } => {
            "is a name that every object inherits; choose another"
        }
        _ => "must begin with a letter or _ and go on with A-Z a-z 0-9 _ -",
    }
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

/// G20: what a kind of another crate demands of the routes that leave its node.
fn cases(
    nodes: &BTreeMap<NodeId, Node>,
    routes: &BTreeMap<NodeId, Route>,
) -> Result<(), DefinitionError> {
    for node in nodes.values() {
        let NodeKind::Custom(custom) = &node.kind else {
            continue;
        };
        let Some(wanted) = custom.cases() else {
            continue;
        };
        let problem = match routes.get(&node.id) {
            Some(Route::Switch { on, cases }) if on.as_str() == wanted.on => {
                let missing = wanted.names.iter().find(|name| !cases.contains_key(*name));
                let extra = cases.keys().find(|case| !wanted.names.contains(*case));
                match (missing, extra) {
                    (Some(missing), _) => format!("{missing:?} has no route"),
                    (None, Some(extra)) => {
                        format!("there is a route for {extra:?}, which is no choice")
                    }
                    (None, None) => continue,
                }
            }
            _ => format!(
                "a switch on {} with a case for each of them has to leave it",
                wanted.on
            ),
        };
        return Err(DefinitionError::Cases {
            node: node.id.to_string(),
            problem,
        });
    }
    Ok(())
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
