//! The graph of a run through a step: which visits it shows, and which edges were taken.

use std::collections::{BTreeMap, BTreeSet};

/// How many of the last steps are all on the graph; of earlier ones, only the newest of each node that has none among these.
pub const GRAPH_WINDOW: u64 = 256;

/// A step as the graph counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Visited {
    /// Its place in the history.
    pub step: u64,
    /// Its node.
    pub node: String,
    /// The how-manieth visit of the node it is, from 1.
    pub visit: u64,
}

/// The graph through a step: a fold of steps. The tables that the projector keeps give the same without the history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphState {
    steps: Vec<Visited>,
    visits: BTreeMap<String, u64>,
    known: BTreeSet<(String, String)>,
    taken: Vec<String>,
}

impl GraphState {
    /// The step that comes next, by its node.
    pub fn step(&mut self, node: &str) {
        if let Some(before) = self.steps.last() {
            let edge = (before.node.clone(), node.to_owned());
            if self.known.insert(edge) {
                self.taken.push(format!("{}->{node}", before.node));
            }
        }
        let visit = self.visits.entry(node.to_owned()).or_default();
        *visit += 1;
        self.steps.push(Visited {
            step: u64::try_from(self.steps.len()).unwrap_or(u64::MAX),
            node: node.to_owned(),
            visit: *visit,
        });
    }

    /// The visits that are shown, in the order of the steps.
    pub fn shown(&self) -> Vec<&Visited> {
        let total = u64::try_from(self.steps.len()).unwrap_or(u64::MAX);
        let window = total.saturating_sub(GRAPH_WINDOW);
        let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
        for visited in &self.steps {
            newest.insert(&visited.node, visited.step);
        }
        self.steps
            .iter()
            .filter(|visited| {
                window <= visited.step || newest.get(visited.node.as_str()) == Some(&visited.step)
            })
            .collect()
    }

    /// The edges that were taken, each once, in the order in which that happened first.
    pub fn taken(&self) -> &[String] {
        &self.taken
    }
}
