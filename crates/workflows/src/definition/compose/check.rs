//! What must be true of exits, and of a workflow that another one includes.
//!
//! A definition is complete before it can be included, so that none includes itself by identity (G14) in Rust; a file can be named
//! by what it includes, and that shows in the sources.

use std::collections::{BTreeMap, BTreeSet};

use super::{EXIT_PREFIX, Exit, ExitDraft, IncludeProblem, Included};
use crate::definition::edge::Route;
use crate::definition::node::Node;
use crate::definition::source::SourceIdentity;
use crate::definition::{Definition, DefinitionError};
use crate::id::NodeId;

/// G6 to G8. The shape of the exits was checked.
pub(in crate::definition) fn exits(
    drafts: Vec<ExitDraft>,
    nodes: &BTreeMap<NodeId, Node>,
    routes: &BTreeMap<NodeId, Route>,
) -> Result<BTreeMap<String, Exit>, DefinitionError> {
    let mut exits = BTreeMap::new();
    let mut taken: BTreeMap<NodeId, String> = BTreeMap::new();
    for draft in drafts {
        let Some((from, node)) = nodes.get_key_value(draft.from.as_str()) else {
            return Err(DefinitionError::ExitFromUnknown {
                exit: draft.name,
                from: draft.from,
            });
        };
        if node.transition.is_some() {
            return Err(DefinitionError::ExitFromUnknown {
                exit: draft.name,
                from: draft.from,
            });
        }
        if routes.contains_key(from) {
            return Err(DefinitionError::ExitNotTerminal {
                exit: draft.name,
                from: draft.from,
            });
        }
        if let Some(other) = taken.insert(from.clone(), draft.name.clone()) {
            return Err(DefinitionError::ExitTwice {
                exit: draft.name,
                other,
                from: draft.from,
            });
        }
        exits.insert(
            draft.name,
            Exit {
                from: from.clone(),
                validate: draft.validate,
                declared: draft.declared,
            },
        );
    }
    Ok(exits)
}

/// G9, G12, G13 and G14.
pub(super) fn included(
    (parent, parent_source): (&str, Option<&SourceIdentity>),
    (child, child_source): (&Definition, &SourceIdentity),
    is_given_settings: bool,
) -> Result<(), IncludeProblem> {
    let workflow = || child.name().to_owned();
    if let Some(parent_source) = parent_source {
        let chain = chain(parent, parent_source, child, child_source);
        if let Some(chain) = chain {
            return Err(IncludeProblem::Cycle { chain });
        }
    }
    if child.exits().next().is_none() {
        return Err(IncludeProblem::NoExit {
            workflow: workflow(),
        });
    }
    if is_given_settings && child.settings("").is_none() {
        return Err(IncludeProblem::NoSettings {
            workflow: workflow(),
        });
    }
    let exits: BTreeSet<&NodeId> = child.0.exits.values().map(|exit| &exit.from).collect();
    let nodes: Vec<String> = child
        .nodes()
        .keys()
        .filter(|node| child.route(node).is_none() && !exits.contains(node))
        .map(authored)
        .collect();
    if nodes.is_empty() {
        Ok(())
    } else {
        Err(IncludeProblem::EndsWithoutExit {
            workflow: workflow(),
            nodes,
        })
    }
}

/// Whether the source of the parent is somewhere in the child: the names on the way there.
fn chain(
    parent: &str,
    source: &SourceIdentity,
    child: &Definition,
    child_source: &SourceIdentity,
) -> Option<Vec<String>> {
    let is_parent = |other: &SourceIdentity| {
        other.source_type() == source.source_type() && other.reference() == source.reference()
    };
    let mut chain = vec![parent.to_owned(), child.name().to_owned()];
    if is_parent(child_source) {
        return Some(chain);
    }
    let (path, _) = child
        .mounts()
        .iter()
        .find(|(_, mount)| is_parent(&mount.source))?;
    let steps = path.as_str().split('/').count();
    for length in 1..=steps {
        let above: Vec<&str> = path.as_str().split('/').take(length).collect();
        let mount = child.mounts().get(above.join("/").as_str())?;
        chain.push(mount.workflow.clone());
    }
    Some(chain)
}

/// A node as an author of the workflow would name it: an exit node is `include.exit`.
fn authored(node: &NodeId) -> String {
    let exit = node
        .as_str()
        .rsplit_once('/')
        .and_then(|(mount, local)| Some((mount, local.strip_prefix(EXIT_PREFIX)?)));
    exit.map_or_else(
        || node.to_string(),
        |(mount, exit)| format!("{mount}.{exit}"),
    )
}

/// G16: the outside of a workflow is its contract id, its exits, and whether it checks its input.
pub(super) fn contract(contract: &Definition, found: &Definition) -> Result<(), IncludeProblem> {
    let workflow = found.name().to_owned();
    if let Some(wanted) = contract.contract_id()
        && found.contract_id() != Some(wanted)
    {
        return Err(IncludeProblem::ContractId {
            workflow,
            wanted: wanted.to_owned(),
            found: found.contract_id().map(str::to_owned),
        });
    }
    let exits = |definition: &Definition| definition.exits().map(str::to_owned).collect();
    let (wanted_exits, found_exits): (Vec<String>, Vec<String>) = (exits(contract), exits(found));
    if wanted_exits != found_exits {
        return Err(IncludeProblem::ContractExits {
            workflow,
            wanted: wanted_exits,
            found: found_exits,
        });
    }
    let wanted = contract.has_input_normalizer();
    if wanted != found.has_input_normalizer() {
        return Err(IncludeProblem::ContractInput { workflow, wanted });
    }
    Ok(())
}

/// What edges of the parent may lead to, and leave from, besides its nodes.
pub(in crate::definition) struct Interfaces<'i> {
    includes: BTreeMap<&'i str, &'i Definition>,
}

impl<'i> Interfaces<'i> {
    pub(in crate::definition) fn of(included: &'i [Included]) -> Self {
        let by_name = |include: &'i Included| (include.name.as_str(), &include.definition);
        Self {
            includes: included.iter().map(by_name).collect(),
        }
    }

    pub(in crate::definition) fn has(&self, include: &str) -> bool {
        self.includes.contains_key(include)
    }

    /// The node that an edge enters by: the entry of an include has its name.
    pub(in crate::definition) fn entry(&self, name: &str) -> Option<NodeId> {
        self.has(name).then(|| NodeId::new(name).ok())?
    }

    /// The exit node of `include.exit`; `None` when it names none.
    pub(in crate::definition) fn exit(&self, from: &str) -> Option<NodeId> {
        let (include, exit) = from.split_once('.')?;
        let child = self.includes.get(include)?;
        child.exits().find(|name| *name == exit)?;
        NodeId::new(format!("{include}/{EXIT_PREFIX}{exit}")).ok()
    }

    /// The exits of the include that an edge seems to mean.
    pub(in crate::definition) fn exits_of(&self, from: &str) -> Option<Vec<String>> {
        let name = from.split_once('.').map_or(from, |(include, _)| include);
        let child = self.includes.get(name)?;
        Some(child.exits().map(|exit| format!("{name}.{exit}")).collect())
    }
}
