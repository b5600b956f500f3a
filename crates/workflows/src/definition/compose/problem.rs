//! What can be wrong with the workflow that an include names.

/// Why a workflow can't be included. The include is named by [`DefinitionError::Include`](super::DefinitionError::Include).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IncludeProblem {
    /// G9: the run would be over in the middle of the parent.
    #[error(
        "workflow {workflow:?} ends without an exit at {}; give each of them an exit or a route",
        nodes.join(", ")
    )]
    EndsWithoutExit {
        /// The included workflow.
        workflow: String,
        /// The nodes, and the exits of its own includes, that nothing follows.
        nodes: Vec<String>,
    },
    /// G11
    #[error("{reference:?} can't be resolved: {problem}")]
    Unresolved {
        /// The reference.
        reference: String,
        /// Why.
        problem: String,
    },
    /// G12
    #[error("it is given settings, and workflow {workflow:?} has none")]
    NoSettings {
        /// The included workflow.
        workflow: String,
    },
    /// G13
    #[error("workflow {workflow:?} declares no exit, so that nothing could follow it")]
    NoExit {
        /// The included workflow.
        workflow: String,
    },
    /// G14
    #[error("the workflows include each other: {}", chain.join(" -> "))]
    Cycle {
        /// The chain, from a workflow back to itself.
        chain: Vec<String>,
    },
    /// G15
    #[error(
        "workflow {workflow:?} does not come from a file, so that {reference:?} is relative to nothing; use an absolute path, a name or builtin:ID"
    )]
    RelativeReference {
        /// The workflow that has the reference.
        workflow: String,
        /// The reference.
        reference: String,
    },
    /// G16
    #[error(
        "workflow {workflow:?} has {}, and the contract asks for {wanted:?}",
        found.as_ref().map_or_else(|| "no contract id".to_owned(), |found| format!("contract id {found:?}"))
    )]
    ContractId {
        /// The included workflow.
        workflow: String,
        /// The id of the contract.
        wanted: String,
        /// The id that the workflow has.
        found: Option<String>,
    },
    /// G16
    #[error(
        "workflow {workflow:?} has the exits {}, and the contract asks for {}",
        found.join(", "),
        wanted.join(", ")
    )]
    ContractExits {
        /// The included workflow.
        workflow: String,
        /// The exits of the contract, sorted.
        wanted: Vec<String>,
        /// The exits of the workflow, sorted.
        found: Vec<String>,
    },
    /// G16
    #[error(
        "workflow {workflow:?} {}",
        if *wanted { "takes any input, and the contract asks for one that is checked" } else { "checks its input, and the contract asks for one that takes any" }
    )]
    ContractInput {
        /// The included workflow.
        workflow: String,
        /// Whether the contract has a normaliser of its input.
        wanted: bool,
    },
    /// G17
    #[error("{reference:?} is no workflow: {problem}")]
    NoWorkflow {
        /// The reference.
        reference: String,
        /// Why.
        problem: String,
    },
    /// G18
    #[error("unknown workflow {reference:?}; there {}", words(available))]
    UnknownWorkflow {
        /// The reference.
        reference: String,
        /// All names that there are.
        available: Vec<String>,
    },
    /// G19
    #[error("unknown built-in workflow {id:?}; there {}", words(available))]
    UnknownBuiltin {
        /// The id.
        id: String,
        /// All ids that there are.
        available: Vec<String>,
    },
}

fn words(available: &[String]) -> String {
    match available {
        [] => "is none".to_owned(),
        [one] => format!("is {one}"),
        more => format!("are {}", more.join(", ")),
    }
}

impl IncludeProblem {
    /// The code of the check that failed.
    pub fn code(&self) -> &'static str {
        match self {
            Self::EndsWithoutExit { .. } => "G9",
            Self::Unresolved { .. } => "G11",
            Self::NoSettings { .. } => "G12",
            Self::NoExit { .. } => "G13",
            Self::Cycle { .. } => "G14",
            Self::RelativeReference { .. } => "G15",
            Self::ContractId { .. } | Self::ContractExits { .. } | Self::ContractInput { .. } => {
                "G16"
            }
            Self::NoWorkflow { .. } => "G17",
            Self::UnknownWorkflow { .. } => "G18",
            Self::UnknownBuiltin { .. } => "G19",
        }
    }

    /// Whether it is the contract that is not kept.
    pub fn is_contract(&self) -> bool {
        self.code() == "G16"
    }
}
