//! The verbs about what a run has beside its steps: updates, follow-ups.

use holdpoint_state::{Receipt, Snapshot};

use super::{Workflows, no_run};
use crate::commands::{
    self, Published, QueueFollowUp, QueuedFollowUp, RemoveFollowUp, SessionUpdate,
};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::views::{self, FollowUpView, ProgressView, UpdateView};

impl Workflows {
    /// Publishes an update about the attempt that waits for its origin session.
    ///
    /// # Errors
    ///
    /// Those of [`commands::publish_from_session()`].
    pub fn publish_from_session(
        &self,
        update: &SessionUpdate,
    ) -> Result<Receipt<Published>, WorkflowError> {
        commands::publish_from_session(&self.db, update)
    }

    /// The updates of a run that hold now.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn updates(&self, run: &RunId) -> Result<Vec<UpdateView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        known(&snapshot, run)?;
        Ok(views::updates(&snapshot, run)?)
    }

    /// All updates of a run above one of its revisions, in order.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn update_history(
        &self,
        run: &RunId,
        after_revision: u64,
        limit: u16,
    ) -> Result<Vec<UpdateView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        known(&snapshot, run)?;
        Ok(views::update_history(
            &snapshot,
            run,
            after_revision,
            limit,
        )?)
    }

    /// How far the present attempt of a run is, as it said itself.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn progress(&self, run: &RunId) -> Result<Option<ProgressView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        known(&snapshot, run)?;
        Ok(views::current_progress(
            &snapshot,
            run,
            self.db.clock().now(),
        )?)
    }

    /// Queues a prompt for the origin session of a run, to be shown when it has completed.
    ///
    /// # Errors
    ///
    /// Those of [`commands::queue_follow_up()`].
    pub fn queue_follow_up(
        &self,
        queue: &QueueFollowUp,
    ) -> Result<Receipt<QueuedFollowUp>, WorkflowError> {
        commands::queue_follow_up(&self.db, queue)
    }

    /// Takes a queued prompt back.
    ///
    /// # Errors
    ///
    /// Those of [`commands::remove_follow_up()`].
    pub fn remove_follow_up(&self, remove: &RemoveFollowUp) -> Result<Receipt<()>, WorkflowError> {
        commands::remove_follow_up(&self.db, remove)
    }

    /// The follow-ups of a run, in their order.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn follow_ups(&self, run: &RunId) -> Result<Vec<FollowUpView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        known(&snapshot, run)?;
        Ok(views::follow_ups(&snapshot, run)?)
    }
}

fn known(snapshot: &Snapshot<'_>, run: &RunId) -> Result<(), WorkflowError> {
    match views::launch_options(snapshot, run)? {
        Some(_) => Ok(()),
        None => Err(no_run(run)),
    }
}
