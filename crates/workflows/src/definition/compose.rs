//! Composition: a workflow includes others, and all of them become one flat graph.
//!
//! A node `n` of a workflow mounted at `a/b` is `a/b/n` in the graph; the mount path itself is the node by which the workflow is
//! entered, and `a/b/__piw_exit_x` the one by which it is left. Both are compute nodes that the compiler makes. Since an included
//! definition is whole already, including it is no more than to put its graph under a name, whatever it includes itself.
//!
//! Not here: what a node of an included workflow sees (`engine::facts`), limits of steps ([`crate::routing`]), reading files.

mod check;
mod flatten;
mod problem;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use problem::IncludeProblem;

use super::context::{NodeContext, NodeError};
use super::node::ValueFunction;
use super::source::SourceIdentity;
use super::{Definition, DefinitionError};
use crate::id::NodeId;

pub(super) use check::{Interfaces, exits};
pub(super) use flatten::{Graph, flatten};

/// The `schema` of what an entry node gives.
pub const ENTRY_SCHEMA: &str = "pi-workflows.include-entry.v1";

/// What the id of an exit node begins with, after its mount path.
pub(crate) const EXIT_PREFIX: &str = "__piw_exit_";

/// How many nodes a graph may have with all that it includes. A workflow that includes another one twice, which includes another
/// one twice, grows with each level; this bounds it before memory does.
pub const NODES_MAX: usize = 10_000;

/// Makes the output of an exit from the output of its node, or says that it is none.
pub type ExitFunction =
    Arc<dyn Fn(&NodeContext<'_>, Value) -> Result<Value, NodeError> + Send + Sync>;

/// A workflow in another one, before any check.
#[derive(Clone)]
pub struct IncludeDraft {
    /// Its name there: edges lead to it and leave from `name.exit`.
    pub name: String,
    /// Which workflow.
    pub workflow: IncludedWorkflow,
    /// Makes its input from the context of the parent; without it the child gets the parent's own input.
    pub input: Option<ValueFunction>,
    /// Makes the settings that it begins with.
    pub settings: Option<ValueFunction>,
    /// A workflow whose outside it must have.
    pub contract: Option<IncludedWorkflow>,
    /// The declared form of the functions, for a workflow file.
    pub declared: Option<Value>,
}

/// A workflow that is to be included.
#[derive(Clone)]
pub enum IncludedWorkflow {
    /// This one.
    Definition(Definition),
    /// The one that a [`Library`] finds.
    Reference(String),
    /// What a reference led to, found by whoever read the file that has it.
    Found(Definition, SourceIdentity),
}

/// A way to leave a workflow that another one includes, before any check.
#[derive(Clone)]
pub struct ExitDraft {
    /// Its name.
    pub name: String,
    /// The node after which the workflow is left; no edge leaves it.
    pub from: String,
    /// Accepts, changes or rejects the output of that node.
    pub validate: Option<ExitFunction>,
    /// The declared form of the function, for a workflow file.
    pub declared: Option<Value>,
}

/// A checked exit.
#[derive(Clone)]
pub(super) struct Exit {
    pub(super) from: NodeId,
    pub(super) validate: Option<ExitFunction>,
    pub(super) declared: Option<Value>,
}

/// What a node does that only leads into an included workflow or out of it. It never counts as a step for a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IncludeTransition {
    /// It leads in.
    Entry,
    /// It leads out.
    Exit,
}

impl IncludeTransition {
    /// The word of snapshots.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Exit => "exit",
        }
    }
}

/// An included workflow in the graph. Its path is the id of its entry node.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The name of the workflow.
    pub workflow: String,
    /// Its first node.
    pub start_at: NodeId,
    /// Its exit nodes by the names of the exits.
    pub exits: BTreeMap<String, NodeId>,
    /// How many steps each of its invocations may make, if it says so.
    pub max_steps: Option<u32>,
    /// Where it came from.
    pub source: SourceIdentity,
}

/// The workflow that has a reference.
#[derive(Debug, Clone, Copy)]
pub struct Referrer<'a> {
    /// Its name.
    pub workflow: &'a str,
    /// Its source, which relative paths are relative to; a workflow that a program builds has none.
    pub source: Option<&'a SourceIdentity>,
}

/// Finds the workflow that a reference names.
pub trait Library {
    /// The workflow, and where it came from.
    ///
    /// # Errors
    ///
    /// [`IncludeProblem`] says what is wrong with the reference, or with what it names.
    fn resolve(
        &self,
        reference: &str,
        referrer: &Referrer<'_>,
    ) -> Result<(Definition, SourceIdentity), IncludeProblem>;
}

/// Knows no workflow.
pub(super) struct NoLibrary;

impl Library for NoLibrary {
    fn resolve(
        &self,
        reference: &str,
        _referrer: &Referrer<'_>,
    ) -> Result<(Definition, SourceIdentity), IncludeProblem> {
        Err(IncludeProblem::Unresolved {
            reference: reference.to_owned(),
            problem: "nothing was given to find it with; build the workflow with a library"
                .to_owned(),
        })
    }
}

/// An include whose workflow was found and fits.
pub(super) struct Included {
    pub(super) name: String,
    pub(super) definition: Definition,
    pub(super) source: SourceIdentity,
    pub(super) input: Option<ValueFunction>,
    pub(super) settings: Option<ValueFunction>,
    pub(super) declared: Option<Value>,
}

/// Finds the workflows of all includes and checks that each can be included: G9 and G11 to G19.
pub(super) fn resolve(
    workflow: &str,
    source: Option<&SourceIdentity>,
    includes: Vec<IncludeDraft>,
    library: &dyn Library,
) -> Result<Vec<Included>, DefinitionError> {
    let mut found = Vec::new();
    for draft in includes {
        let name = draft.name.clone();
        let resolved =
            one(workflow, source, draft, library).map_err(|problem| DefinitionError::Include {
                include: name,
                problem: Box::new(problem),
            })?;
        found.push(resolved);
    }
    Ok(found)
}

fn one(
    workflow: &str,
    source: Option<&SourceIdentity>,
    draft: IncludeDraft,
    library: &dyn Library,
) -> Result<Included, IncludeProblem> {
    let referrer = Referrer { workflow, source };
    let find = |wanted: IncludedWorkflow| match wanted {
        IncludedWorkflow::Definition(definition) => {
            let source = definition.source_identity();
            Ok((definition, source))
        }
        IncludedWorkflow::Found(definition, source) => Ok((definition, source)),
        IncludedWorkflow::Reference(reference) => library.resolve(&reference, &referrer),
    };
    let (definition, found_at) = find(draft.workflow)?;
    check::included(
        (workflow, source),
        (&definition, &found_at),
        draft.settings.is_some(),
    )?;
    if let Some(contract) = draft.contract {
        let (contract, _) = find(contract)?;
        check::contract(&contract, &definition)?;
    }
    Ok(Included {
        name: draft.name,
        definition,
        source: found_at,
        input: draft.input,
        settings: draft.settings,
        declared: draft.declared,
    })
}
