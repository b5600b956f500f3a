//! Routes between nodes, as authors write them and as the compiled graph holds them.
//!
//! Not here: following them ([`crate::routing`]).

use std::collections::BTreeMap;
use std::fmt;

use crate::id::NodeId;

/// A route as an author writes it, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeDraft {
    /// The node that it leaves.
    pub from: String,
    /// Where it goes.
    pub to: TargetDraft,
}

/// Where a route goes, not yet checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetDraft {
    /// To one node.
    Node(String),
    /// To the node of the case that the value at `on` selects.
    Switch {
        /// The path of the value.
        on: String,
        /// Node by case.
        cases: BTreeMap<String, String>,
    },
}

/// A checked route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To one node.
    To(NodeId),
    /// To the node of the case that a value selects.
    Switch {
        /// The path of the value.
        on: SwitchPath,
        /// Node by case.
        cases: BTreeMap<String, NodeId>,
    },
}

impl Route {
    /// The nodes that the route can lead to.
    pub fn targets(&self) -> Vec<&NodeId> {
        match self {
            Self::To(node) => vec![node],
            Self::Switch { cases, .. } => cases.values().collect(),
        }
    }
}

/// Where a switch reads its value: `$.x`, `$output.x` or `$result.x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPath {
    text: String,
    root: SwitchRoot,
    segments: Vec<String>,
}

/// What the path of a switch starts at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SwitchRoot {
    /// The output of the node. Applies to the outcome `ok` only.
    Output,
    /// The result record of the node. Applies to `failed` and `timed_out` too.
    Result,
}

impl SwitchPath {
    /// Reads a path; `None` if it does not begin with `$.`, `$output.` or `$result.`.
    pub fn parse(text: &str) -> Option<Self> {
        let (root, rest) = if let Some(rest) = text.strip_prefix("$.") {
            (SwitchRoot::Output, rest)
        } else if let Some(rest) = text.strip_prefix("$output.") {
            (SwitchRoot::Output, rest)
        } else {
            (SwitchRoot::Result, text.strip_prefix("$result.")?)
        };
        let segments = rest.split('.').map(str::to_owned).collect();
        Some(Self {
            text: text.to_owned(),
            root,
            segments,
        })
    }

    /// What the path starts at.
    pub fn root(&self) -> SwitchRoot {
        self.root
    }

    /// The names to walk from there.
    pub fn segments(&self) -> &[String] {
        &self.segments
    }

    /// The path as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for SwitchPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
