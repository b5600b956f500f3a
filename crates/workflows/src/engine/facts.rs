//! The committed facts of a run as its nodes see them, kept in step with what the runner commits.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdpoint_state::{Database, Digest};
use serde_json::Value;

use crate::definition::{CancellationSignal, NodeContext};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::ExecutionMode;
use crate::routing::{self, NodeResult};
use crate::views::{self, LoadedRun};

/// Where the documents of live settings are read from.
pub(super) trait Documents {
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
    /// How many steps there are.
    pub(super) step_count: u64,
    /// The last step.
    pub(super) last: Option<NodeId>,
}

impl Facts {
    pub(super) fn of(loaded: &LoadedRun) -> Self {
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
        };
        for result in &loaded.history {
            facts.apply(result.clone());
        }
        facts
    }

    /// Takes a step in.
    pub(super) fn apply(&mut self, result: NodeResult) {
        *self.visits.entry(result.node_id.clone()).or_default() += 1;
        self.step_count += 1;
        self.last = Some(result.node_id.clone());
        routing::apply(&mut self.outputs, &mut self.results, result);
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

    /// The result of the last step.
    pub(super) fn last_result(&self) -> Option<&NodeResult> {
        self.results.get(self.last.as_ref()?)
    }

    pub(super) fn context<'a>(
        &'a self,
        (node_id, attempt_id): (&'a NodeId, &'a AttemptId),
        visit: u32,
        cancellation: CancellationSignal,
        effect_id: Option<&'a str>,
    ) -> NodeContext<'a> {
        NodeContext {
            run_id: &self.run_id,
            node_id,
            visit,
            attempt_id,
            input: &self.input,
            outputs: &self.outputs,
            results: &self.results,
            settings: self
                .settings
                .get(node_id.mount())
                .map(|(_, document)| &**document),
            cancellation,
            effect_id,
        }
    }
}
