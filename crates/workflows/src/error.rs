//! What can go wrong with workflows: one variant for each thing that a caller does differently.

use holdpoint_state::{Resource, StateError};

use crate::definition::{DefinitionError, SourceError};
use crate::model::RunStatus;
use crate::settings::ChangeError;

/// An error of the workflows domain. Nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkflowError {
    /// The store refused the command.
    #[error(transparent)]
    State(#[from] StateError),
    /// The definition is not well formed.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// A source identity has no valid form.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Another domain refused to write what belongs beside a parked attempt.
    #[error("{0}")]
    Domain(std::sync::Arc<dyn std::error::Error + Send + Sync>),
    /// No such run.
    #[error("run {run} does not exist")]
    NoRun {
        /// The id that was asked for.
        run: String,
    },
    /// No such request, or not one of the named run.
    #[error("run {run} has no such request; list its requests with `show`")]
    NoRequest {
        /// The run.
        run: String,
    },
    /// The run has no settings, or no such scope.
    #[error("run {run} has no {}", match scope {
        Some(scope) => format!("settings scope {scope:?}"),
        None => "settings".to_owned(),
    })]
    NoSettings {
        /// The run.
        run: String,
        /// The scope, if one was named.
        scope: Option<String>,
    },
    /// The settings are at another change number than the caller read. Read them again.
    #[error("settings {scope} are at change {actual}, not {expected}; read them again")]
    StaleSettings {
        /// The scope.
        scope: String,
        /// The number that the caller, or the last of several tries, read.
        expected: u64,
        /// The present one.
        actual: u64,
    },
    /// A change of settings does not apply, is not allowed, or makes settings that the workflow does not take.
    #[error("settings {scope} stay as they are: {error}")]
    SettingsRefused {
        /// The scope.
        scope: String,
        /// Why.
        error: ChangeError,
    },
    /// No such recording.
    #[error("recording {segment} does not exist")]
    NoRecording {
        /// The id that was asked for.
        segment: String,
    },
    /// The recording does not take it: it is over, or the batch does not follow what is there. The run does not notice.
    #[error("recording {segment}: {problem}")]
    Recording {
        /// The recording.
        segment: String,
        /// Why.
        problem: String,
    },
    /// No such follow-up.
    #[error("follow-up {follow_up} does not exist")]
    NoFollowUp {
        /// The id that was asked for.
        follow_up: String,
    },
    /// It is somebody else's.
    #[error("{what}: {problem}")]
    Denied {
        /// What the caller wanted to change.
        what: String,
        /// Who may.
        problem: String,
    },
    /// No such message, or not one of the session.
    #[error("the session has no message {message}")]
    NoMessage {
        /// The message.
        message: String,
    },
    /// A newer connection speaks for the session. Attach again, unless that one is meant to.
    #[error("session {session} is spoken for by a newer connection")]
    Replaced {
        /// The session.
        session: String,
    },
    /// No definition of that name is known to this program.
    #[error("no workflow named {name:?} is known here; register it or name a file")]
    NoWorkflow {
        /// The name or reference.
        name: String,
    },
    /// What the caller handed in can't be taken.
    #[error("{what}: {problem}")]
    Input {
        /// Which input.
        what: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The place is taken by something with other content: the same run id with other facts, the same answer key with another
    /// payload, an answer that was given already.
    #[error("{what} conflicts: {problem}")]
    Conflict {
        /// What the caller wanted to make.
        what: String,
        /// What is there.
        problem: String,
    },
    /// The run is in a state in which the command makes no sense. The text says what it waits for.
    #[error("run {run} is {status}{}: {problem}", if *paused { " and paused" } else { "" })]
    Rejected {
        /// The run.
        run: String,
        /// Its status.
        status: RunStatus,
        /// Whether it is paused.
        paused: bool,
        /// Why the command is refused, and what to do.
        problem: String,
    },
    /// An attempt published too many updates, or too fast. The text says which. Publish fewer, or wait.
    #[error("run {run}: {problem}")]
    Limit {
        /// The run.
        run: String,
        /// Which limit, and what to do.
        problem: String,
    },
    /// A proposal of a runner does not follow from what is committed. A correct runner never sees it.
    #[error("run {run}: {problem}")]
    Transition {
        /// The run.
        run: String,
        /// Which precondition fails.
        problem: String,
    },
    /// The workflow is no longer the one that the run was started with. Put the old source back and resume, or look at the
    /// difference and accept the new definition.
    #[error("run {run} was started with another definition: {}", differences.join("; "))]
    SourceChanged {
        /// The run.
        run: String,
        /// What differs.
        differences: Vec<String>,
    },
    /// The scheduler was stopped, or its threads could not be started.
    #[error("the scheduler {problem}")]
    Scheduler {
        /// What happened.
        problem: String,
    },
}

impl WorkflowError {
    /// The refusal of another domain, in its own words.
    pub fn domain(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Domain(std::sync::Arc::new(error))
    }

    /// The error's stable code: the word that the command line prints and programs compare.
    pub fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Definition(_) => "definition",
            Self::Source(_) | Self::Input { .. } => "input",
            Self::NoRun { .. }
            | Self::NoRequest { .. }
            | Self::NoSettings { .. }
            | Self::NoFollowUp { .. }
            | Self::NoMessage { .. }
            | Self::NoRecording { .. }
            | Self::NoWorkflow { .. } => "notFound",
            Self::Replaced { .. } => "sessionReplaced",
            Self::Denied { .. } => "denied",
            Self::Limit { .. } => "limit",
            Self::Recording { .. } => "recording",
            Self::StaleSettings { .. } => "staleRevision",
            Self::SettingsRefused { .. } => "settingsRefused",
            Self::Conflict { .. } => "conflict",
            Self::Rejected { .. } | Self::Domain(_) => "rejected",
            Self::Transition { .. } => "invalidTransition",
            Self::SourceChanged { .. } => "workflowSourceChanged",
            Self::Scheduler { .. } => "scheduler",
        }
    }

    /// The resource that the error is about, where it names one.
    pub fn resource(&self) -> Option<Resource> {
        match self {
            Self::NoRun { run }
            | Self::NoRequest { run }
            | Self::NoSettings { run, .. }
            | Self::Rejected { run, .. }
            | Self::Transition { run, .. }
            | Self::Limit { run, .. }
            | Self::SourceChanged { run, .. } => Some(Resource::new("run", run.as_str())),
            Self::StaleSettings { scope, .. } | Self::SettingsRefused { scope, .. } => {
                Some(Resource::new("settings", scope.as_str()))
            }
            Self::State(
                StateError::StaleRevision { resource, .. }
                | StateError::ClaimLost { resource, .. }
                | StateError::LeaseHeld { resource, .. }
                | StateError::Conflict { resource, .. }
                | StateError::NotFound { resource },
            ) => Some(resource.clone()),
            Self::NoRecording { segment } | Self::Recording { segment, .. } => {
                Some(Resource::new("session", segment.as_str()))
            }
            Self::NoFollowUp { follow_up } => Some(Resource::new("follow_up", follow_up.as_str())),
            Self::State(_)
            | Self::Domain(_)
            | Self::Denied { .. }
            | Self::Definition(_)
            | Self::Source(_)
            | Self::NoWorkflow { .. }
            | Self::NoMessage { .. }
            | Self::Replaced { .. }
            | Self::Input { .. }
            | Self::Conflict { .. }
            | Self::Scheduler { .. } => None,
        }
    }

    /// Whether a runner that meets it has lost its claim: it must stop and write nothing more.
    pub fn is_claim_lost(&self) -> bool {
        matches!(self, Self::State(StateError::ClaimLost { .. }))
    }

    /// Whether the same command may succeed later without a change of its content.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::State(error) if error.is_retryable())
    }
}
