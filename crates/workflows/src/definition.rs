//! Definitions: immutable, validated graphs of nodes and routes.
//!
//! A definition is made by the typed builder [`Workflow`] or by [`crate::file`]; both end in the same
//! checks (`validate` for the shape of each part, `graph` for how they fit). After that it never
//! changes, and clones share it.
//!
//! Not here: rows, runs, time. A definition holds functions, so it can't be stored; what is stored
//! is its [snapshot](Definition::snapshot), and a run is resumed only on a definition with the same
//! [digest](Definition::digest).

mod agent;
mod builder;
mod cancellation;
mod compose;
mod context;
mod custom;
mod decision;
mod edge;
mod error;
mod graph;
mod node;
pub mod snapshot;
mod source;
mod validate;
pub mod value;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

pub use agent::{Agent, ExpectedOutput, NotificationKind, Notify, TextFunction, ValidateFunction};
pub use builder::Workflow;
pub use cancellation::{CancellationSignal, CancellationSource, StopReason, WatchGuard};
pub(crate) use compose::EXIT_PREFIX;
pub use compose::{
    ENTRY_SCHEMA, ExitDraft, ExitFunction, IncludeDraft, IncludeProblem, IncludeTransition,
    IncludedWorkflow, Library, Mount, NODES_MAX, Referrer,
};
pub use context::{Context, NodeContext, NodeError};
pub use custom::{Asked, Cases, CustomNode, NodeStep, Park, Parked, Waiting};
pub(crate) use custom::{Asking, Beside, Checking};
pub use decision::{Choice, Decided};
pub(crate) use decision::{
    agent as decision_agent, edge as decision_edge, problem as problem_of_choices,
};
pub use edge::{EdgeDraft, Route, SwitchPath, SwitchRoot, TargetDraft};
pub use error::{DefinitionError, RESERVED_NAMES};
pub use node::{
    Action, ActionExecution, Checkpoint, CommandFunction, Compute, DEFAULT_TIMEOUT_MS,
    EffectRequest, EffectSpec, Node, NodeKind, ParseFunction, ParseLineFunction, RESOLVE_LIMIT_MS,
    Recovery, ShellAction, ShellUpdates, TimeBudget, Timeout, TimeoutFunction, ValueFunction,
};
pub(crate) use node::{OWN_NODE_TYPES, is_budget};
pub use source::{SourceError, SourceIdentity};

use crate::id::NodeId;
use crate::settings::{SettingsDefinition, SettingsSpec};

/// How many steps a run may make unless its definition says otherwise.
pub const DEFAULT_MAX_STEPS: u32 = 100;

/// Makes the input that a run stores from the input that a caller gave.
pub type InputNormalizer = Arc<dyn Fn(Value) -> Result<Value, NodeError> + Send + Sync>;

/// Makes the title of a run from its input.
pub type TitleFunction = Arc<dyn Fn(&Value) -> Result<String, NodeError> + Send + Sync>;

/// The title of a run. Display only.
#[derive(Clone)]
pub enum Title {
    /// Always the same.
    Text(String),
    /// Made from the input, once, within [`RESOLVE_LIMIT_MS`].
    Function(TitleFunction),
}

/// The parts of a definition before any check.
#[derive(Clone, Default)]
pub struct Draft {
    /// The name of the workflow.
    pub name: String,
    /// The contract that it keeps as an included workflow.
    pub contract_id: Option<String>,
    /// The title of its runs.
    pub title: Option<Title>,
    /// The normaliser of its input.
    pub input: Option<InputNormalizer>,
    /// The declared form of the normaliser, for a workflow file.
    pub declared_input: Option<Value>,
    /// Its live settings, if it has any.
    pub settings: Option<SettingsSpec>,
    /// The id of its first node.
    pub start_at: String,
    /// How many steps a run may make; without it [`DEFAULT_MAX_STEPS`].
    pub max_steps: Option<u32>,
    /// Its nodes, in the order of the author.
    pub nodes: Vec<NodeDraft>,
    /// The workflows that it includes, in the order of the author.
    pub includes: Vec<IncludeDraft>,
    /// The ways to leave it, when another workflow includes it.
    pub exits: Vec<ExitDraft>,
    /// Its routes, in the order of the author.
    pub edges: Vec<EdgeDraft>,
    /// Where it came from; without it a program built it.
    pub source: Option<SourceIdentity>,
}

/// A node before any check.
#[derive(Clone)]
pub struct NodeDraft {
    /// Its id.
    pub id: String,
    /// What it does.
    pub kind: NodeKind,
    /// How long one attempt may take.
    pub timeout: Timeout,
    /// What a run shows while it is here.
    pub status_detail: Option<String>,
    /// The declared parts of a node from a workflow file.
    pub declared: Option<Value>,
}

impl Draft {
    /// Checks the parts and makes the definition.
    ///
    /// # Errors
    ///
    /// The first failing check, in the order of the workflows reference, sections 2.3 and 2.4.
    pub fn build(self) -> Result<Definition, DefinitionError> {
        self.build_with(&compose::NoLibrary)
    }

    /// The same, with a library that finds the workflows which its includes name by reference.
    ///
    /// # Errors
    ///
    /// As [`Draft::build`].
    pub fn build_with(self, library: &dyn Library) -> Result<Definition, DefinitionError> {
        validate::definition(self, library)
    }
}

/// An immutable, validated graph of nodes and routes. Clones share it.
#[derive(Clone)]
pub struct Definition(Arc<Parts>);

struct Parts {
    name: String,
    contract_id: Option<String>,
    title: Option<Title>,
    input: Option<InputNormalizer>,
    declared_input: Option<Value>,
    /// By the path of the mount that has them; the root has the empty path.
    settings: BTreeMap<String, SettingsDefinition>,
    start_at: NodeId,
    max_steps: Option<u32>,
    nodes: BTreeMap<NodeId, Node>,
    routes: BTreeMap<NodeId, Route>,
    exits: BTreeMap<String, compose::Exit>,
    /// By path, which is the id of the entry node.
    mounts: BTreeMap<NodeId, Mount>,
    source: Option<SourceIdentity>,
    snapshot: Value,
    digest: [u8; 32],
}

impl Definition {
    /// The name of the workflow.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The contract that the workflow keeps, if it names one.
    pub fn contract_id(&self) -> Option<&str> {
        self.0.contract_id.as_deref()
    }

    /// The first node.
    pub fn start_at(&self) -> &NodeId {
        &self.0.start_at
    }

    /// How many steps a run may make.
    pub fn max_steps(&self) -> u32 {
        self.0.max_steps.unwrap_or(DEFAULT_MAX_STEPS)
    }

    /// All nodes by id.
    pub fn nodes(&self) -> &BTreeMap<NodeId, Node> {
        &self.0.nodes
    }

    /// What is allowed and still deserves a second look of its author: the node and a sentence, in the order of the nodes, also of the
    /// workflows that are included.
    pub fn warnings(&self) -> Vec<(NodeId, String)> {
        let of_node = |(id, node): (&NodeId, &Node)| match &node.kind {
            NodeKind::Custom(custom) => custom
                .warnings()
                .into_iter()
                .map(|warning| (id.clone(), warning))
                .collect(),
            NodeKind::Compute(_)
            | NodeKind::Action(_)
            | NodeKind::Checkpoint(_)
            | NodeKind::Agent(_)
            | NodeKind::Notify(_) => Vec::new(),
        };
        self.0.nodes.iter().flat_map(of_node).collect()
    }

    /// The node with this id.
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.0.nodes.get(id)
    }

    /// All routes by the node that they leave.
    pub fn routes(&self) -> &BTreeMap<NodeId, Route> {
        &self.0.routes
    }

    /// The route that leaves a node; a node without one is terminal.
    pub fn route(&self, from: &NodeId) -> Option<&Route> {
        self.0.routes.get(from)
    }

    /// The names of its exits, sorted: what leads out of it when another workflow includes it.
    pub fn exits(&self) -> impl Iterator<Item = &str> {
        self.0.exits.keys().map(String::as_str)
    }

    /// All workflows in it, at any depth, by mount path.
    pub fn mounts(&self) -> &BTreeMap<NodeId, Mount> {
        &self.0.mounts
    }

    /// Whether a node only leads into an include or out of it.
    pub(crate) fn is_transition(&self, node: &NodeId) -> bool {
        !self.0.mounts.is_empty()
            && self
                .node(node)
                .is_some_and(|node| node.transition.is_some())
    }

    /// Where it came from: a file, a built-in workflow, or the program itself.
    pub fn source_identity(&self) -> SourceIdentity {
        let source = self.0.source.clone();
        source.unwrap_or_else(|| SourceIdentity::inline(self))
    }

    /// The title of its runs, if it has one.
    pub fn title(&self) -> Option<&Title> {
        self.0.title.as_ref()
    }

    /// The title of a run with this (normalised) input.
    ///
    /// # Errors
    ///
    /// The error of the title function; a failing title fails the run. The caller bounds the call
    /// by [`RESOLVE_LIMIT_MS`].
    pub fn resolve_title(&self, input: &Value) -> Result<Option<String>, NodeError> {
        match &self.0.title {
            None => Ok(None),
            Some(Title::Text(text)) => Ok(Some(text.clone())),
            Some(Title::Function(function)) => function(input).map(Some),
        }
    }

    /// The settings of the workflow at a mount path; the root has the empty path.
    pub fn settings(&self, mount_path: &str) -> Option<&SettingsDefinition> {
        self.0.settings.get(mount_path)
    }

    /// Whether the workflow, or one that it includes, has settings.
    pub fn has_settings(&self) -> bool {
        !self.0.settings.is_empty()
    }

    /// Whether the workflow has an input normaliser.
    pub fn has_input_normalizer(&self) -> bool {
        self.0.input.is_some()
    }

    /// Makes the input that a run stores. Runs before any row is written, so a failure leaves no trace.
    ///
    /// # Errors
    ///
    /// The error of the normaliser, or that its value does not survive JSON.
    pub fn normalize_input(&self, input: Value) -> Result<Value, NodeError> {
        let normalized = match &self.0.input {
            None => input,
            Some(normalizer) => normalizer(input)?,
        };
        Ok(value::normal(&normalized)?)
    }

    /// The structure as JSON, without functions: what a run stores of its definition.
    pub fn snapshot(&self) -> &Value {
        &self.0.snapshot
    }

    /// SHA-256 over the canonical JSON of what decides behaviour in the snapshot; see [`snapshot`].
    pub fn digest(&self) -> [u8; 32] {
        self.0.digest
    }

    /// The public form of the digest: `sha256:` and 64 hex digits.
    pub fn digest_text(&self) -> String {
        snapshot::digest_text(&self.0.digest)
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("name", &self.0.name)
            .field("digest", &self.digest_text())
            .field("nodes", &self.0.nodes.keys())
            .finish_non_exhaustive()
    }
}
