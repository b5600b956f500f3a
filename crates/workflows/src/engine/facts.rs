//! The committed facts of a run as its nodes see them, kept in step with what the runner commits.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::definition::{CancellationSignal, NodeContext};
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::ExecutionMode;
use crate::routing::{self, NodeResult};
use crate::views::LoadedRun;

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
            cancellation,
            effect_id,
        }
    }
}
