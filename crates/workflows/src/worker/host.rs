//! The host's side: launches one worker process, and knows what becomes of its run when it ends.
//!
//! Not here: judging what it says (`session`).

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdpoint_state::Database;

use super::launch::{Left, WorkerLauncher};
use super::message::GaveUp;
use super::session::Session;
use crate::commands::{self, Aftermath, RefusedMessage, WorkerExit};
use crate::definition::Definition;
use crate::engine::{ActiveRun, Executed, Stop};
use crate::error::WorkflowError;
use crate::model::WorkerStatus;
use crate::views::LoadedRun;

/// One run in one worker process, under a claim.
pub(crate) struct Supervision<'a> {
    pub(crate) db: &'a Database,
    pub(crate) active: &'a Arc<ActiveRun>,
    pub(crate) draining: &'a AtomicBool,
    pub(crate) definition: &'a Definition,
    pub(crate) launcher: &'a WorkerLauncher,
    pub(crate) epoch: String,
    /// The run's revision after the claim.
    pub(crate) revision: u64,
}

/// Why the supervision ends.
pub(super) enum End {
    /// Nothing of the run is left to do here: it waits, is over, or was given back.
    Done,
    /// Its process ended, or its channel broke.
    Gone(String),
    /// It broke a rule.
    Broke(String, Option<RefusedMessage>),
    /// It said nothing for too long.
    Silent(String),
    /// It was told to stop, and did not in time.
    Stopped(Stop),
    /// The claim is lost.
    Lost(Option<RefusedMessage>),
    /// It said that it can't go on.
    GaveUp(GaveUp),
    /// Its workflow can't be loaded.
    LoadFailed(String),
    /// The store refused for a reason of its own.
    Failed(WorkflowError, Option<RefusedMessage>),
}

impl Supervision<'_> {
    /// Launches the worker and serves it until its run is done here. The run is given back, or belongs to somebody else, when this
    /// returns, unless the store could not be written.
    pub(crate) fn run(self, run: &LoadedRun) -> Result<Executed, WorkflowError> {
        let (launched, stream) = match self.launcher.spawn() {
            Ok(launched) => launched,
            Err(error) => {
                let problem = format!("the worker could not be launched: {error}");
                let left = Left::never(problem.clone());
                return self.conclude(run, Progress::None, End::Gone(problem), &left);
            }
        };
        let mut session = Session::new(&self, run, (&launched, stream));
        let end = session.serve(run);
        let progress = session.progress();
        let left = session.dismiss(launched, &end);
        self.conclude(run, progress, end, &left)
    }

    /// Writes how the worker ended, and what becomes of its run.
    fn conclude(
        &self,
        run: &LoadedRun,
        progress: Progress,
        end: End,
        left: &Left,
    ) -> Result<Executed, WorkflowError> {
        let (status, aftermath, said, refused) = judge(progress, end, left);
        let mut diagnostic = left.diagnostic.clone();
        if let Some(said) = &said {
            if !diagnostic.is_empty() {
                diagnostic.push('\n');
            }
            diagnostic.push_str(said);
        }
        let exit = WorkerExit {
            epoch: self.epoch.clone(),
            status,
            exit_code: left.status.and_then(|status| status.code()),
            signal: left.signal(),
            diagnostic,
            refused,
        };
        if let Some(problem) = &said {
            tracing::warn!(run = %run.run_id, worker = self.epoch, status = %status, problem, "a worker ended");
        }
        if let Some(aftermath) = &aftermath {
            match commands::worker_exited(self.db, &self.active.claim, &exit, aftermath) {
                Ok(_) => {
                    return Ok(match aftermath {
                        // It is tried again, but not at once.
                        Aftermath::Again if status != WorkerStatus::Cancelled => Executed::Crashed,
                        Aftermath::Again | Aftermath::NoProgress(_) | Aftermath::LoadFailed(_) => {
                            Executed::Released
                        }
                    });
                }
                // Somebody else has the run: its worker has no say in it.
                Err(error) if error.is_claim_lost() => {}
                Err(error) => return Err(error),
            }
        }
        commands::worker_gone(self.db, &run.run_id, &exit)?;
        Ok(match status {
            WorkerStatus::Exited => Executed::Released,
            WorkerStatus::Starting
            | WorkerStatus::Ready
            | WorkerStatus::Running
            | WorkerStatus::Cancelled
            | WorkerStatus::TimedOut
            | WorkerStatus::Crashed
            | WorkerStatus::ClaimLost
            | WorkerStatus::Orphaned => Executed::Lost,
        })
    }
}

/// How far a worker came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// It was not ready.
    None,
    /// It was ready, and advanced nothing.
    Ready,
    /// It advanced its run.
    Some,
}

/// What the end of a supervision means: the worker's status, what becomes of its run when the claim stands, and what to say.
fn judge(
    progress: Progress,
    end: End,
    left: &Left,
) -> (
    WorkerStatus,
    Option<Aftermath>,
    Option<String>,
    Option<RefusedMessage>,
) {
    let again = |problem: &str| match progress {
        Progress::Ready => {
            Aftermath::NoProgress(format!("the worker did not advance the run: {problem}"))
        }
        // One that was not ready says nothing about the run: it is launched again, later.
        Progress::None | Progress::Some => Aftermath::Again,
    };
    match end {
        End::Done if left.was_killed => (
            WorkerStatus::TimedOut,
            None,
            Some("it did not end after its last word and was killed".to_owned()),
            None,
        ),
        End::Done => (WorkerStatus::Exited, None, None, None),
        End::Gone(problem) => {
            let is_success = left.status.is_some_and(|status| status.success());
            let status = if is_success {
                WorkerStatus::Exited
            } else {
                WorkerStatus::Crashed
            };
            let said = match (left.status, left.was_killed) {
                (Some(status), false) => format!("its process ended ({status})"),
                (Some(_), true) => format!("{problem}, and its process was killed"),
                (None, _) => problem,
            };
            (status, Some(again(&said)), Some(said), None)
        }
        End::Broke(problem, refused) => {
            let said = format!("it was killed: {problem}");
            (
                WorkerStatus::Crashed,
                Some(again(&said)),
                Some(said),
                refused,
            )
        }
        End::Silent(problem) => {
            let said = format!("it was killed: {problem}");
            (WorkerStatus::TimedOut, Some(again(&said)), Some(said), None)
        }
        End::Stopped(Stop::Drain) => (WorkerStatus::Cancelled, Some(Aftermath::Again), None, None),
        End::Stopped(Stop::Lost) => (WorkerStatus::ClaimLost, None, None, None),
        End::Lost(refused) => (WorkerStatus::ClaimLost, None, None, refused),
        End::GaveUp(GaveUp {
            detail,
            is_passing: true,
        }) => (
            WorkerStatus::Exited,
            Some(Aftermath::Again),
            Some(detail),
            None,
        ),
        End::GaveUp(GaveUp { detail, .. }) => (
            WorkerStatus::Exited,
            Some(Aftermath::NoProgress(detail.clone())),
            Some(detail),
            None,
        ),
        End::LoadFailed(error) => (
            WorkerStatus::Exited,
            Some(Aftermath::LoadFailed(error.clone())),
            Some(error),
            None,
        ),
        End::Failed(error, refused) if error.is_retryable() => (
            WorkerStatus::Cancelled,
            Some(Aftermath::Again),
            Some(error.to_string()),
            refused,
        ),
        End::Failed(error, refused) => (
            WorkerStatus::Cancelled,
            Some(Aftermath::NoProgress(error.to_string())),
            Some(error.to_string()),
            refused,
        ),
    }
}
