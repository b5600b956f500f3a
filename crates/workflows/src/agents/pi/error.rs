//! Why a step that pi executed has no output.

use crate::definition::{NodeError, StopReason};

/// One variant for each thing that a reader of a failed step does differently. Its name in the run is [`PiError::name`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum PiError {
    #[error("pi ({program:?}) did not start: {error}")]
    Spawn { program: String, error: String },
    #[error("pi {ending} before it had an answer{}", separated(.stderr))]
    Exited { ending: String, stderr: String },
    #[error("pi does not speak its protocol: {problem}")]
    Protocol { problem: String },
    #[error("pi sent a record of {bytes} bytes, which is too long to be read")]
    RecordTooLarge { bytes: u64 },
    #[error("pi did not take the prompt: {error}")]
    PromptRejected { error: String },
    #[error("pi took the prompt and did not run the agent: an extension handled it")]
    PromptNotRun,
    #[error("the model failed: {error}")]
    Model { error: String },
    #[error("the reply ends where the model's limit was reached")]
    ReplyTruncated,
    #[error("the reply has more than {chars_max} characters")]
    ReplyTooLarge { chars_max: usize },
    #[error("the agent ended without a word")]
    EmptyReply,
    #[error("the step was stopped")]
    Stopped(StopReason),
}

fn separated(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        stderr => format!(": {stderr}"),
    }
}

impl PiError {
    /// The error's name in a run; docs/AGENTS.md lists them.
    fn name(&self) -> &'static str {
        match self {
            Self::Spawn { .. } => "SpawnError",
            Self::Exited { .. } => "AgentExited",
            Self::Protocol { .. } => "AgentProtocol",
            Self::RecordTooLarge { .. } | Self::ReplyTooLarge { .. } => "ReplyTooLarge",
            Self::PromptRejected { .. } => "PromptRejected",
            Self::PromptNotRun => "PromptNotRun",
            Self::Model { .. } => "ModelError",
            Self::ReplyTruncated => "ReplyTruncated",
            Self::EmptyReply => "EmptyReply",
            Self::Stopped(_) => "Stopped",
        }
    }

    /// The error of the node, with the outcome that fits.
    pub(super) fn into_node_error(self) -> NodeError {
        match self {
            Self::Stopped(reason) => NodeError::stopped(reason),
            other => NodeError::named(other.name(), other.to_string()),
        }
    }
}
