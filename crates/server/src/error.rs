//! From an error to what the caller of a command sees: a stable code, a message with its causes, a resource, an exit status.

use std::error::Error as _;
use std::path::PathBuf;
use std::process::ExitCode;

use holdpoint_channels::ChannelError;
use holdpoint_controllers::ControllerError;
use holdpoint_decisions::DecisionError;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::{Refusal, Resource, StateError};
use holdpoint_workflows::file::{FileError, Problem};
use holdpoint_workflows::{RunId, WorkflowError};

use crate::output::text::instant;

/// What a command tells by its exit status; the same for every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// Done; for `run`: the run completed.
    Done,
    /// The run failed or timed out, or the program itself failed.
    Failed,
    /// The arguments, the workflow file or a value can't be taken.
    Usage,
    /// The run waits for an answer or a review, or is paused.
    Waiting,
    /// The state is not what the command needs: stale revision, key reused with other content, decided already, claim lost.
    Conflict,
    /// Another process uses the store; the same command may succeed later.
    Busy,
    /// The store was refused: identity, version, schema, corruption, file system, mode.
    Refused,
    /// There is no such run, effect, workflow or store.
    NotFound,
    /// `verify` found violations.
    Violations,
    /// The run was cancelled, or the command was interrupted.
    Cancelled,
}

impl ExitStatus {
    /// All of them, in the order of their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Waiting,
        Self::Conflict,
        Self::Busy,
        Self::Refused,
        Self::NotFound,
        Self::Violations,
        Self::Cancelled,
    ];

    /// The number.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Waiting => 3,
            Self::Conflict => 4,
            Self::Busy => 5,
            Self::Refused => 6,
            Self::NotFound => 7,
            Self::Violations => 8,
            Self::Cancelled => 130,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The store.
    #[error(transparent)]
    State(#[from] StateError),
    /// The workflows.
    #[error(transparent)]
    Workflow(#[from] WorkflowError),
    /// A decision.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// A channel.
    #[error(transparent)]
    Channel(ChannelError),
    /// A command on managed resources failed.
    #[error(transparent)]
    Controller(ControllerError),
    /// A workflow file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A value that can't be taken.
    #[error("{what}: {problem}")]
    Input {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it, and the way out.
        problem: String,
    },
    /// Arguments that say nothing to do, found by the reader of arguments.
    #[error("{message}")]
    Usage {
        /// What it says.
        message: String,
    },
    /// A file of resources can't be taken.
    #[error(transparent)]
    Manifest(FileError),
    /// Somebody changed what a resource wants after it was compared.
    #[error(
        "somebody changed what {target} wants after it was compared, so that it was not written; apply again{}",
        match earlier { 0 => String::new(), 1 => " (the resource before it in the file was applied)".to_owned(), count => format!(" (the {count} resources before it in the file were applied)") }
    )]
    ResourceChanged {
        /// The resource.
        target: String,
        /// How many resources of the file were applied before.
        earlier: usize,
    },
    /// No workflow of that name in any of the places.
    #[error(
        "no workflow named {name:?} in {}; name a file, or put {name}.workflow.yaml into one of them",
        places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NoWorkflow {
        /// The name.
        name: String,
        /// The places that were looked at, in order.
        places: Vec<PathBuf>,
    },
    /// No such file.
    #[error("{} does not exist", path.display())]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// There is no store yet.
    #[error("there is no store at {}; `holdpoint run` makes it", path.display())]
    NoStore {
        /// Where it would be.
        path: PathBuf,
    },
    /// A server runs already.
    #[error("a server of this home runs already; see `holdpoint server status`")]
    ServerRuns,
    /// No server runs.
    #[error("no server listens at {}; `holdpoint server start` starts one", socket.display())]
    NoServer {
        /// Where it would be.
        socket: PathBuf,
    },
    /// No such effect.
    #[error("effect {id} does not exist; see `holdpoint effects list --all`")]
    NoEffect {
        /// The id.
        id: String,
    },
    /// No such decision.
    #[error(
        "there is no decision {id}, and no run of that name that asked one; see `holdpoint decisions`"
    )]
    NoDecision {
        /// What was named.
        id: String,
    },
    /// No such settings scope.
    #[error("run {run} has no settings scope {scope:?}; see `holdpoint settings show {run}`")]
    NoScope {
        /// The run.
        run: RunId,
        /// The scope.
        scope: String,
    },
    /// Another process executes the run, and it was not to be taken away.
    #[error(
        "another process executes run {run}; its claim ends {} unless it is renewed. Without --if-free the run is taken away from it: {hint}",
        instant(until.0)
    )]
    Held {
        /// The run.
        run: RunId,
        /// When the present claim ends.
        until: UnixMillis,
        /// The command that takes it away.
        hint: String,
    },
    /// The workflow file of a run is gone, or gives no definition any more.
    #[error(
        "the workflow file of run {run} can't be used; put it back as it was and resume the run, or end the run with `holdpoint cancel`"
    )]
    SourceGone {
        /// The run.
        run: RunId,
        /// What is wrong with the file.
        #[source]
        source: Box<FileError>,
    },
    /// Somebody stopped the command at once.
    #[error(
        "stopped at once: what was in the middle is recovered as after a crash; see `holdpoint list`, and go on with `holdpoint work`"
    )]
    Interrupted,
    /// The operating system failed.
    #[error("{action} failed")]
    Io {
        /// What was being done.
        action: String,
        /// What the operating system says.
        #[source]
        source: std::io::Error,
    },
}

impl From<ControllerError> for CommandError {
    fn from(error: ControllerError) -> Self {
        match error {
            ControllerError::State(error) => Self::State(error),
            ControllerError::Workflow(error) => Self::Workflow(error),
            other => Self::Controller(other),
        }
    }
}

impl From<ChannelError> for CommandError {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::State(error) => Self::State(error),
            ChannelError::Decision(error) => Self::Decision(error),
            other => Self::Channel(other),
        }
    }
}

impl CommandError {
    /// A value of an argument that can't be taken.
    pub(crate) fn input(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Input {
            what,
            problem: problem.into(),
        }
    }

    /// The stable word for programs.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::State(error) => error.code(),
            Self::Workflow(error) => error.code(),
            Self::Decision(error) => match error {
                DecisionError::Invalid(_) => "input",
                DecisionError::OtherRequest { .. } => "conflict",
                DecisionError::Corrupt { .. } => "corrupt",
                DecisionError::Incompatible { .. } => "incompatible",
                DecisionError::Workflow(error) => error.code(),
                DecisionError::State(error) => error.code(),
                _ => "decision",
            },
            Self::Controller(error) => match error {
                ControllerError::Invalid(_) => "input",
                ControllerError::NotFound { .. } | ControllerError::NoChild(_) => "notFound",
                ControllerError::Deleting { .. } | ControllerError::NotForced { .. } => "conflict",
                ControllerError::Corrupt { .. } => "corrupt",
                ControllerError::Workflow(error) => error.code(),
                ControllerError::State(error) => error.code(),
                _ => "controller",
            },
            Self::Manifest(_) => "resourceFile",
            Self::ResourceChanged { .. } => "conflict",
            Self::Channel(error) => match error {
                ChannelError::Name => "input",
                ChannelError::Config(_) => "configuration",
                ChannelError::NotAmbiguous(_) => "notFound",
                ChannelError::Corrupt { .. } => "corrupt",
                _ => "channel",
            },
            Self::File(error) => match error.problem {
                Problem::Definition(_) | Problem::Shape { .. } => "definition",
                _ => "workflowFile",
            },
            Self::SourceGone { .. } => "workflowFile",
            Self::Input { .. } => "input",
            Self::Usage { .. } => "usage",
            Self::NoWorkflow { .. }
            | Self::NoFile { .. }
            | Self::NoStore { .. }
            | Self::NoServer { .. }
            | Self::NoEffect { .. }
            | Self::NoDecision { .. }
            | Self::NoScope { .. } => "notFound",
            Self::Held { .. } | Self::ServerRuns => "leaseHeld",
            Self::Interrupted => "interrupted",
            Self::Io { .. } => "io",
        }
    }

    /// What the error is about, as far as it names one.
    pub(crate) fn resource(&self) -> Option<Resource> {
        match self {
            Self::State(
                StateError::StaleRevision { resource, .. }
                | StateError::ClaimLost { resource, .. }
                | StateError::LeaseHeld { resource, .. }
                | StateError::Conflict { resource, .. }
                | StateError::NotFound { resource },
            ) => Some(resource.clone()),
            Self::Workflow(error) | Self::Decision(DecisionError::Workflow(error)) => {
                error.resource()
            }
            Self::SourceGone { run, .. } | Self::NoScope { run, .. } | Self::Held { run, .. } => {
                Some(Resource::new("run", run.as_str()))
            }
            Self::NoEffect { id } => Some(Resource::new("effect", id.as_str())),
            Self::Decision(_)
            | Self::NoDecision { .. }
            | Self::Channel(_)
            | Self::Controller(_)
            | Self::Manifest(_)
            | Self::ResourceChanged { .. }
            | Self::State(_)
            | Self::File(_)
            | Self::Input { .. }
            | Self::Usage { .. }
            | Self::NoWorkflow { .. }
            | Self::NoFile { .. }
            | Self::NoStore { .. }
            | Self::NoServer { .. }
            | Self::ServerRuns
            | Self::Interrupted
            | Self::Io { .. } => None,
        }
    }

    /// The exit status.
    pub(crate) fn exit(&self) -> ExitStatus {
        match self {
            Self::State(error) => of_state(error),
            Self::Workflow(error) => of_workflow(error),
            Self::Decision(error) => match error {
                DecisionError::Invalid(_) => ExitStatus::Usage,
                DecisionError::OtherRequest { .. } => ExitStatus::Conflict,
                DecisionError::Corrupt { .. } | DecisionError::Incompatible { .. } => {
                    ExitStatus::Refused
                }
                DecisionError::Workflow(error) => of_workflow(error),
                DecisionError::State(error) => of_state(error),
                _ => ExitStatus::Failed,
            },
            Self::Controller(error) => match error {
                ControllerError::Invalid(_) => ExitStatus::Usage,
                ControllerError::NotFound { .. } | ControllerError::NoChild(_) => {
                    ExitStatus::NotFound
                }
                ControllerError::Deleting { .. }
                | ControllerError::NotForced { .. }
                | ControllerError::RequestConflict { .. } => ExitStatus::Conflict,
                ControllerError::Unsteady { .. } => ExitStatus::Busy,
                ControllerError::Corrupt { .. } => ExitStatus::Refused,
                ControllerError::Workflow(error) => of_workflow(error),
                ControllerError::State(error) => of_state(error),
                _ => ExitStatus::Failed,
            },
            Self::Manifest(_) => ExitStatus::Usage,
            Self::Channel(error) => match error {
                ChannelError::Name | ChannelError::Config(_) => ExitStatus::Usage,
                ChannelError::NotAmbiguous(_) => ExitStatus::NotFound,
                ChannelError::Corrupt { .. } => ExitStatus::Refused,
                _ => ExitStatus::Failed,
            },
            Self::File(_) | Self::SourceGone { .. } | Self::Input { .. } | Self::Usage { .. } => {
                ExitStatus::Usage
            }
            Self::NoWorkflow { .. }
            | Self::NoFile { .. }
            | Self::NoStore { .. }
            | Self::NoServer { .. }
            | Self::NoEffect { .. }
            | Self::NoDecision { .. }
            | Self::NoScope { .. } => ExitStatus::NotFound,
            Self::Held { .. } | Self::ResourceChanged { .. } | Self::ServerRuns => {
                ExitStatus::Conflict
            }
            Self::Interrupted => ExitStatus::Cancelled,
            Self::Io { .. } => ExitStatus::Failed,
        }
    }

    /// The message and each cause that says something new, outermost first.
    pub(crate) fn chain(&self) -> Vec<String> {
        let mut chain = vec![self.to_string()];
        let mut cause = self.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !chain.iter().any(|said| said.contains(&text)) {
                chain.push(text);
            }
            cause = error.source();
        }
        chain
    }
}

fn of_workflow(error: &WorkflowError) -> ExitStatus {
    match error {
        WorkflowError::State(error) => of_state(error),
        WorkflowError::Definition(_) | WorkflowError::Source(_) | WorkflowError::Input { .. } => {
            ExitStatus::Usage
        }
        WorkflowError::NoRun { .. }
        | WorkflowError::NoRequest { .. }
        | WorkflowError::NoSettings { .. }
        | WorkflowError::NoFollowUp { .. }
        | WorkflowError::NoRecording { .. }
        | WorkflowError::NoWorkflow { .. } => ExitStatus::NotFound,
        WorkflowError::Conflict { .. }
        | WorkflowError::Rejected { .. }
        | WorkflowError::StaleSettings { .. }
        | WorkflowError::SettingsRefused { .. }
        | WorkflowError::Denied { .. }
        | WorkflowError::Limit { .. }
        | WorkflowError::Recording { .. }
        | WorkflowError::Transition { .. }
        | WorkflowError::SourceChanged { .. } => ExitStatus::Conflict,
        _ => ExitStatus::Failed,
    }
}

fn of_state(error: &StateError) -> ExitStatus {
    match error {
        StateError::StaleRevision { .. }
        | StateError::ClaimLost { .. }
        | StateError::LeaseHeld { .. }
        | StateError::ActorDenied { .. }
        | StateError::InvalidTransition { .. }
        | StateError::Conflict { .. }
        | StateError::SelectionChanged { .. } => ExitStatus::Conflict,
        StateError::NotFound { .. } => ExitStatus::NotFound,
        StateError::Busy { .. } | StateError::InUse { .. } => ExitStatus::Busy,
        StateError::Input { .. }
        | StateError::Json { .. }
        | StateError::TooLarge { .. }
        | StateError::MediaType { .. } => ExitStatus::Usage,
        StateError::Refused { refusal, .. } if matches!(**refusal, Refusal::Missing) => {
            ExitStatus::NotFound
        }
        StateError::Refused { .. }
        | StateError::Corrupt { .. }
        | StateError::DiskFull { .. }
        | StateError::Io { .. }
        | StateError::Sqlite { .. } => ExitStatus::Refused,
        _ => ExitStatus::Failed,
    }
}
