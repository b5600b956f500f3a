//! The committed facts of a run as its nodes see them, kept in step with what the runner commits.
//!
//! A node of an included workflow sees that workflow only: its input, its own nodes by their own names, and of them what happened
//! since the workflow was entered last. So each mount that is entered has a [`Scope`]; entering it again begins a new one. A workflow
//! without includes has no scopes and pays nothing for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdpoint_state::{Database, Digest};
use serde_json::Value;

use crate::definition::{CancellationSignal, Definition, IncludeTransition, NodeContext};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::ExecutionMode;
use crate::routing::{self, NodeOutcome, NodeResult};
use crate::updates::Publisher;
use crate::views::{self, LoadedRun};

/// Where the documents of live settings are read from.
pub(crate) trait Documents {
    /// The document with this digest.
    fn document(&self, hash: Digest) -> Result<Value, WorkflowError>;

    /// What the settings of a mount of a run are now.
    fn present(&self, run: &RunId, mount_path: &str) -> Result<Option<Value>, WorkflowError>;
}

impl Documents for Database {
    fn document(&self, hash: Digest) -> Result<Value, WorkflowError> {
        views::document(&self.snapshot()?, hash)
    }

    fn present(&self, run: &RunId, mount_path: &str) -> Result<Option<Value>, WorkflowError> {
        views::present_settings(&self.snapshot()?, run, mount_path)
    }
}

/// Everything that a node may look at.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) run_id: RunId,
    pub(super) mode: ExecutionMode,
    /// The title of the run, once it is known.
    pub(super) title: Option<String>,
    pub(super) input: Value,
    pub(super) outputs: BTreeMap<NodeId, Value>,
    pub(super) results: BTreeMap<NodeId, NodeResult>,
    /// What the nodes of each mount read; the root has the empty path.
    pub(super) settings: BTreeMap<String, (Digest, Arc<Value>)>,
    /// How often each node was visited.
    visits: BTreeMap<NodeId, u32>,
    /// How many steps there are that count for the limit.
    pub(super) step_count: u64,
    /// The last step.
    pub(super) last: Option<NodeId>,
    /// What included workflows need; none for a workflow without includes.
    composed: Option<Box<Composed>>,
}

/// The scopes of included workflows.
#[derive(Debug, Clone)]
struct Composed {
    definition: Definition,
    /// By mount path: the present invocation, or the one that ended last.
    scopes: BTreeMap<String, Scope>,
    /// The last step. What leads into an include is in no scope.
    last: Option<NodeResult>,
}

/// What the nodes of one invocation of an included workflow see.
#[derive(Debug, Clone, Default)]
struct Scope {
    input: Value,
    outputs: BTreeMap<NodeId, Value>,
    results: BTreeMap<NodeId, NodeResult>,
    /// How many steps count for the limit of the workflow, with those of what it includes.
    step_count: u64,
}

impl Facts {
    pub(super) fn of(loaded: &LoadedRun, definition: &Definition) -> Self {
        let composed = (!definition.mounts().is_empty()).then(|| {
            Box::new(Composed {
                definition: definition.clone(),
                scopes: BTreeMap::new(),
                last: None,
            })
        });
        let mut facts = Self {
            run_id: loaded.run_id.clone(),
            mode: loaded.mode,
            title: loaded.title.clone(),
            input: loaded.input.clone(),
            outputs: BTreeMap::new(),
            results: BTreeMap::new(),
            settings: BTreeMap::new(),
            visits: BTreeMap::new(),
            step_count: 0,
            last: None,
            composed,
        };
        for result in &loaded.history {
            facts.apply(result.clone());
        }
        facts
    }

    /// Takes a step in.
    pub(super) fn apply(&mut self, result: NodeResult) {
        *self.visits.entry(result.node_id.clone()).or_default() += 1;
        self.last = Some(result.node_id.clone());
        match &mut self.composed {
            None => {
                self.step_count += 1;
                routing::apply(&mut self.outputs, &mut self.results, result);
            }
            Some(composed) => {
                composed.last = Some(result.clone());
                let root = (&mut self.outputs, &mut self.results);
                if composed.apply(root, result) {
                    self.step_count += 1;
                }
            }
        }
    }

    /// Lets the nodes of the same mount read the document with this digest, or none.
    pub(super) fn bind(
        facts: &mut Arc<Self>,
        documents: &dyn Documents,
        node: &NodeId,
        hash: Option<Digest>,
    ) -> Result<(), WorkflowError> {
        let mount = node.mount();
        if facts.settings.get(mount).map(|(hash, _)| *hash) == hash {
            return Ok(());
        }
        match hash {
            None => drop(Arc::make_mut(facts).settings.remove(mount)),
            Some(hash) => {
                let document = documents.document(hash)?;
                let read = (hash, Arc::new(document));
                Arc::make_mut(facts).settings.insert(mount.to_owned(), read);
            }
        }
        Ok(())
    }

    /// The number of the next visit of a node.
    pub(super) fn visit(&self, node: &NodeId) -> u32 {
        self.visits
            .get(node)
            .copied()
            .unwrap_or(0)
            .saturating_add(1)
    }

    /// How many steps count for the limit of the workflow at a mount path; of the root for the empty path.
    pub(super) fn steps(&self, path: &str) -> u64 {
        if path.is_empty() {
            return self.step_count;
        }
        self.scope(path).map_or(0, |scope| scope.step_count)
    }

    /// The result of the last step.
    pub(super) fn last_result(&self) -> Option<&NodeResult> {
        match &self.composed {
            None => self.results.get(self.last.as_ref()?),
            Some(composed) => composed.last.as_ref(),
        }
    }

    pub(super) fn context<'a>(
        &'a self,
        (node_id, attempt_id): (&'a NodeId, &'a AttemptId),
        visit: u32,
        cancellation: CancellationSignal,
        effect_id: Option<&'a str>,
    ) -> NodeContext<'a> {
        let (input, outputs, results) = match self.scope(node_id.mount()) {
            None => (&self.input, &self.outputs, &self.results),
            Some(scope) => (&scope.input, &scope.outputs, &scope.results),
        };
        NodeContext {
            run_id: &self.run_id,
            node_id,
            visit,
            attempt_id,
            input,
            outputs,
            results,
            settings: self
                .settings
                .get(node_id.mount())
                .map(|(_, document)| &**document),
            cancellation,
            effect_id,
            publisher: Publisher::default(),
        }
    }

    /// The scope of a mount; none for the root.
    fn scope(&self, path: &str) -> Option<&Scope> {
        self.composed.as_ref()?.scopes.get(path)
    }
}

impl Composed {
    /// Takes a step into the scope of its workflow, and says whether it counts for limits.
    fn apply(
        &mut self,
        root: (
            &mut BTreeMap<NodeId, Value>,
            &mut BTreeMap<NodeId, NodeResult>,
        ),
        result: NodeResult,
    ) -> bool {
        let node = result.node_id.clone();
        let transition = self.definition.node(&node).and_then(|node| node.transition);
        match transition {
            Some(IncludeTransition::Entry) if result.outcome == NodeOutcome::Ok => {
                self.enter(node.as_str(), result.output);
                return false;
            }
            // The parent knows the include by what it gave last; nothing was entered.
            Some(IncludeTransition::Entry) => self.put(root, node.mount(), node.as_local(), result),
            Some(IncludeTransition::Exit) => {
                let Some(mount) = node.exit_mount() else {
                    return false;
                };
                self.put(root, mount.mount(), mount.as_local(), result);
            }
            None => {
                for path in node.mounts() {
                    if let Some(scope) = self.scopes.get_mut(path) {
                        scope.step_count += 1;
                    }
                }
                self.put(root, node.mount(), node.as_local(), result);
                return true;
            }
        }
        false
    }

    /// Begins a new invocation of a mount. Scopes of what it includes may be left from the one before; none of its nodes runs before
    /// they are entered again.
    fn enter(&mut self, path: &str, output: Option<Value>) {
        let input = match output {
            Some(Value::Object(mut entry)) => entry.remove("input").unwrap_or_default(),
            _ => Value::Null,
        };
        let scope = Scope {
            input,
            ..Scope::default()
        };
        self.scopes.insert(path.to_owned(), scope);
    }

    /// Takes a result in under the name that the workflow at `path` knows it by.
    fn put(
        &mut self,
        (outputs, results): (
            &mut BTreeMap<NodeId, Value>,
            &mut BTreeMap<NodeId, NodeResult>,
        ),
        path: &str,
        name: NodeId,
        result: NodeResult,
    ) {
        if path.is_empty() {
            routing::apply_as(outputs, results, name, result);
        } else if let Some(scope) = self.scopes.get_mut(path) {
            routing::apply_as(&mut scope.outputs, &mut scope.results, name, result);
        }
    }
}
