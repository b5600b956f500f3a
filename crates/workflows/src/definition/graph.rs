//! Graph checks of a definition, in the order of the workflows reference, section 2.4.
//!
//! Not here: the shape of each part (`validate`). A self-edge is allowed, and so are loops; the
//! limit of steps bounds them.

use std::collections::{BTreeMap, BTreeSet};

use super::compose::{IncludeDraft, Interfaces};
use super::edge::{EdgeDraft, Route, SwitchPath, TargetDraft};
use super::node::Node;
use super::{DefinitionError, validate};
use crate::id::NodeId;

type Nodes = BTreeMap<NodeId, Node>;

/// G1.
pub(super) fn start_at(
    workflow: &str,
    start_at: &str,
    nodes: &Nodes,
    includes: &[IncludeDraft],
) -> Result<NodeId, DefinitionError> {
    if includes.iter().any(|include| include.name == start_at) {
        return Err(DefinitionError::StartAtInclude {
            start_at: start_at.to_owned(),
        });
    }
    find(nodes, start_at).ok_or_else(|| DefinitionError::StartAtUnknown {
        workflow: workflow.to_owned(),
        start_at: start_at.to_owned(),
    })
}

/// G2 to G5, edge by edge.
pub(super) fn routes(
    edges: &[EdgeDraft],
    nodes: &Nodes,
    includes: &Interfaces<'_>,
) -> Result<BTreeMap<NodeId, Route>, DefinitionError> {
    let target = |name: &str| find(nodes, name).or_else(|| includes.entry(name));
    let mut routes = BTreeMap::new();
    for (index, edge) in edges.iter().enumerate() {
        let from = || edge.from.clone();
        let source = find(nodes, &edge.from).or_else(|| includes.exit(&edge.from));
        let source = source.ok_or_else(|| match includes.exits_of(&edge.from) {
            Some(exits) => DefinitionError::EdgeFromNoExit {
                index,
                from: from(),
                exits,
            },
            None => DefinitionError::EdgeFromUnknown {
                index,
                from: from(),
            },
        })?;
        if routes.contains_key(&source) {
            return Err(DefinitionError::EdgeTwice {
                index,
                from: from(),
            });
        }
        let route = match &edge.to {
            TargetDraft::Node(to) => {
                Route::To(target(to).ok_or_else(|| DefinitionError::EdgeToUnknown {
                    index,
                    from: from(),
                    to: to.clone(),
                })?)
            }
            TargetDraft::Switch { on, cases } => {
                let path = SwitchPath::parse(on).ok_or_else(|| DefinitionError::SwitchPath {
                    index,
                    from: from(),
                    on: on.clone(),
                })?;
                let mut targets = BTreeMap::new();
                for (case, to) in cases {
                    let node = target(to).ok_or_else(|| DefinitionError::SwitchCaseUnknown {
                        index,
                        from: from(),
                        case: case.clone(),
                        to: to.clone(),
                    })?;
                    targets.insert(case.clone(), node);
                }
                Route::Switch {
                    on: path,
                    cases: targets,
                }
            }
        };
        routes.insert(source, route);
    }
    Ok(routes)
}

/// G10. The routes are those of the whole graph, so that an include which is reached reaches its exits.
pub(super) fn reachable(
    start_at: &NodeId,
    authored: &[String],
    routes: &BTreeMap<NodeId, Route>,
) -> Result<(), DefinitionError> {
    let mut reached = BTreeSet::new();
    let mut open = vec![start_at.clone()];
    while let Some(node) = open.pop() {
        if reached.insert(node.clone()) {
            open.extend(validate::targets(routes, &node));
        }
    }
    let nodes: Vec<String> = authored
        .iter()
        .filter(|id| !reached.contains(id.as_str()))
        .cloned()
        .collect();
    if nodes.is_empty() {
        return Ok(());
    }
    Err(DefinitionError::Unreachable {
        start_at: start_at.to_string(),
        nodes,
    })
}

fn find(nodes: &Nodes, id: &str) -> Option<NodeId> {
    nodes.get_key_value(id).map(|(id, _)| id.clone())
}
