//! Everything that can be wrong with a definition, each with the code of the workflows reference.
//!
//! Codes `V…` are errors in the shape of one part (section 2.3) and share one prefix; codes `G…` are
//! errors in how the parts fit (section 2.4); codes `H…` are Holdpoint's own, for mistakes that only
//! a builder can make.

use super::compose::{IncludeProblem, NODES_MAX};
use crate::settings::SettingsError;

/// Names that a workflow can't have, since they are words of the workflow command.
pub const RESERVED_NAMES: [&str; 9] = [
    "answer",
    "cancel",
    "change-settings",
    "list",
    "pause",
    "queue-follow-up",
    "remove-follow-up",
    "resume",
    "status",
];

/// Why a definition was refused. The first failing check is reported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// V2
    #[error("Invalid workflow definition: name is required and must not be blank")]
    NameMissing,
    /// V3
    #[error(
        "Invalid workflow definition: name {name:?} is a command word; choose another than {}",
        RESERVED_NAMES.join(", ")
    )]
    NameReserved {
        /// The name.
        name: String,
    },
    /// V5
    #[error(
        "Invalid workflow definition: contractId {contract_id:?} must be a letter or digit and then at most 127 of A-Z a-z 0-9 . _ : -"
    )]
    ContractId {
        /// The contract id.
        contract_id: String,
    },
    /// V7
    #[error("Invalid workflow definition: settings: {0}")]
    Settings(#[from] SettingsError),
    /// V9
    #[error("Invalid workflow definition: startAt is required and must not be blank")]
    StartAtMissing,
    /// V10
    #[error("Invalid workflow definition: maxSteps must be a positive integer, not {given}")]
    MaxSteps {
        /// What was given.
        given: String,
    },
    /// V11
    #[error("Invalid workflow definition: nodes must have at least one node")]
    NoNodes,
    /// V12
    #[error(
        "Invalid workflow definition: node id {node:?} must begin with a letter or _ and go on with A-Z a-z 0-9 _ -"
    )]
    NodeIdForm {
        /// The node id.
        node: String,
    },
    /// V13
    #[error(
        "Invalid workflow definition: node id {node:?} begins with __piw_, which is kept for compiled graphs"
    )]
    NodeIdReserved {
        /// The node id.
        node: String,
    },
    /// V14
    #[error(
        "Invalid workflow definition: node id {node:?} is a name that every object inherits; choose another"
    )]
    NodeIdInherited {
        /// The node id.
        node: String,
    },
    /// V16
    #[error(
        "Invalid workflow definition: timeoutMs of node {node:?} must be a finite positive number, null or a function, not {given}"
    )]
    NodeTimeout {
        /// The node id.
        node: String,
        /// What was given.
        given: String,
    },
    /// V15
    #[error(
        "Invalid workflow definition: node type {node_type:?} of node {node:?} must be a letter and then at most 63 of A-Z a-z 0-9 _ -, and none of agent, compute, action, notify"
    )]
    NodeType {
        /// The node id.
        node: String,
        /// What the kind calls itself.
        node_type: String,
    },
    /// V19
    #[error("Invalid workflow definition: expectedOutput of node {node:?}: {problem}")]
    ExpectedOutput {
        /// The node id.
        node: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// V26
    #[error(
        "Invalid workflow definition: the effect type of node {node:?} must have 1 to 256 characters, not {length}"
    )]
    EffectType {
        /// The node id.
        node: String,
        /// How many characters it has without surrounding space.
        length: usize,
    },
    /// V30
    #[error("Invalid workflow definition: include name {include:?} {problem}")]
    IncludeName {
        /// The name.
        include: String,
        /// What is wrong.
        problem: String,
    },
    /// V31
    #[error(
        "Invalid workflow definition: include {include:?} needs a workflow: a path, a name or builtin:ID"
    )]
    IncludeWorkflow {
        /// The include.
        include: String,
    },
    /// V32
    #[error("Invalid workflow definition: exit {exit:?} {problem}")]
    Exit {
        /// The exit.
        exit: String,
        /// What is wrong.
        problem: String,
    },
    /// V33
    #[error("Invalid workflow definition: edge {index} has no \"from\"")]
    EdgeFrom {
        /// The place of the edge in the list, from 0.
        index: usize,
    },
    /// V33
    #[error(
        "Invalid workflow definition: the edge from {from:?} needs \"to\" or \"switch\", and only one of them"
    )]
    EdgeTarget {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
    },
    /// V34
    #[error(
        "Invalid workflow definition: switch.on of the edge from {from:?} must begin with $. or $output. or $result., but is {on:?}"
    )]
    SwitchPath {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
        /// The path.
        on: String,
    },
    /// V35
    #[error(
        "Invalid workflow definition: switch.cases of the edge from {from:?} must have at least one case"
    )]
    SwitchNoCases {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
    },
    /// V35
    #[error(
        "Invalid workflow definition: case {case:?} of the edge from {from:?} must name a node"
    )]
    SwitchCaseBlank {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
        /// The case.
        case: String,
    },
    /// G1
    #[error("startAt names {start_at:?}, which is not a node of workflow {workflow:?}")]
    StartAtUnknown {
        /// The workflow.
        workflow: String,
        /// The node that is missing.
        start_at: String,
    },
    /// G1
    #[error("startAt names {start_at:?}, which is an include; begin with a node that leads to it")]
    StartAtInclude {
        /// The include.
        start_at: String,
    },
    /// G2
    #[error("an edge leaves {from:?}, which is no exit of the include; its exits are {}", exits.join(", "))]
    EdgeFromNoExit {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// What was given.
        from: String,
        /// All exits, each with the name of the include.
        exits: Vec<String>,
    },
    /// G2
    #[error("an edge leaves {from:?}, which is not a node of the workflow")]
    EdgeFromUnknown {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that is missing.
        from: String,
    },
    /// G3
    #[error("node {from:?} has more than one outgoing edge; use one switch")]
    EdgeTwice {
        /// The place of the second edge in the list, from 0.
        index: usize,
        /// The node that the edges leave.
        from: String,
    },
    /// G4
    #[error("the edge from {from:?} leads to {to:?}, which is not a node of the workflow")]
    EdgeToUnknown {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
        /// The node that is missing.
        to: String,
    },
    /// G5
    #[error(
        "case {case:?} of the edge from {from:?} leads to {to:?}, which is not a node of the workflow"
    )]
    SwitchCaseUnknown {
        /// The place of the edge in the list, from 0.
        index: usize,
        /// The node that the edge leaves.
        from: String,
        /// The case.
        case: String,
        /// The node that is missing.
        to: String,
    },
    /// G6
    #[error("exit {exit:?} follows {from:?}, which is not a node of the workflow")]
    ExitFromUnknown {
        /// The exit.
        exit: String,
        /// The node that is missing.
        from: String,
    },
    /// G7
    #[error(
        "exit {exit:?} follows node {from:?}, which an edge leaves; an exit follows a node that ends the workflow"
    )]
    ExitNotTerminal {
        /// The exit.
        exit: String,
        /// The node.
        from: String,
    },
    /// G8
    #[error("the exits {other:?} and {exit:?} both follow node {from:?}; a node has one exit")]
    ExitTwice {
        /// The second exit.
        exit: String,
        /// The first one.
        other: String,
        /// The node.
        from: String,
    },
    /// G9 and G11 to G19: the workflow that an include names.
    #[error("include {include:?}: {problem}")]
    Include {
        /// The include.
        include: String,
        /// What is wrong with its workflow.
        problem: Box<IncludeProblem>,
    },
    /// G10
    #[error("nodes that can't be reached from {start_at:?}: {}", nodes.join(", "))]
    Unreachable {
        /// The first node.
        start_at: String,
        /// All nodes that no route reaches, in the order of the author.
        nodes: Vec<String>,
    },
    /// G20
    #[error("the choices of {from:?}: {problem}")]
    Choices {
        /// The node that the routes leave.
        from: String,
        /// What does not fit.
        problem: String,
    },
    /// G20
    #[error("the choices of node {node:?}: {problem}")]
    Cases {
        /// The node.
        node: String,
        /// What does not fit.
        problem: String,
    },
    /// H1: a map of nodes can't have this mistake, a chain of calls can.
    #[error("Invalid workflow definition: node id {node:?} is used twice")]
    NodeTwice {
        /// The node id.
        node: String,
    },
    /// H2: an option was set before any node, or on a node of another kind.
    #[error("Invalid workflow definition: {option} {why}")]
    Misplaced {
        /// The option.
        option: &'static str,
        /// What is wrong with its place.
        why: String,
    },
    /// H3: a part of the definition that is data does not survive JSON.
    #[error("Invalid workflow definition: {what} does not survive JSON: {error}")]
    Value {
        /// Which part.
        what: String,
        /// What was lost.
        error: holdpoint_state::json::JsonError,
    },
    /// H4: the graph is too large with all that it includes.
    #[error(
        "Invalid workflow definition: the graph has {nodes} nodes with all that it includes, and {NODES_MAX} are allowed"
    )]
    TooLarge {
        /// How many nodes it would have.
        nodes: usize,
    },
}

impl DefinitionError {
    /// The code of the check that failed.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NameMissing => "V2",
            Self::NameReserved { .. } => "V3",
            Self::ContractId { .. } => "V5",
            Self::Settings(_) => "V7",
            Self::StartAtMissing => "V9",
            Self::MaxSteps { .. } => "V10",
            Self::NoNodes => "V11",
            Self::NodeIdForm { .. } => "V12",
            Self::NodeIdReserved { .. } => "V13",
            Self::NodeIdInherited { .. } => "V14",
            Self::NodeType { .. } => "V15",
            Self::NodeTimeout { .. } => "V16",
            Self::ExpectedOutput { .. } => "V19",
            Self::EffectType { .. } => "V26",
            Self::IncludeName { .. } => "V30",
            Self::IncludeWorkflow { .. } => "V31",
            Self::Exit { .. } => "V32",
            Self::EdgeFrom { .. } | Self::EdgeTarget { .. } => "V33",
            Self::SwitchPath { .. } => "V34",
            Self::SwitchNoCases { .. } | Self::SwitchCaseBlank { .. } => "V35",
            Self::StartAtUnknown { .. } | Self::StartAtInclude { .. } => "G1",
            Self::EdgeFromUnknown { .. } | Self::EdgeFromNoExit { .. } => "G2",
            Self::EdgeTwice { .. } => "G3",
            Self::EdgeToUnknown { .. } => "G4",
            Self::SwitchCaseUnknown { .. } => "G5",
            Self::ExitFromUnknown { .. } => "G6",
            Self::ExitNotTerminal { .. } => "G7",
            Self::ExitTwice { .. } => "G8",
            Self::Include { problem, .. } => problem.code(),
            Self::Unreachable { .. } => "G10",
            Self::Choices { .. } | Self::Cases { .. } => "G20",
            Self::NodeTwice { .. } => "H1",
            Self::Misplaced { .. } => "H2",
            Self::Value { .. } => "H3",
            Self::TooLarge { .. } => "H4",
        }
    }
}
