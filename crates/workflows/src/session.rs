//! An origin session, from the side of whoever speaks for it: what it has to show, and what it reports.
//!
//! Not here: rules. Each verb is one of `commands` or `views`, under the fence of the session's present connection.

use std::sync::Arc;

use holdpoint_state::{Actor, ActorKind, Database};

use crate::commands::{
    self, BranchReport, BranchReported, Reporter, TurnReport, TurnStart, TurnStop,
};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::sessions::Sessions;
use crate::views::{self, MessageView, TerminalView};
use crate::workflows::Workflows;

/// How many ends are told at one look.
const ENDS_AT_ONCE: i64 = 64;

/// A session of models in which interactive runs ask.
///
/// ```
/// # use std::time::Duration;
/// # use holdpoint_state::{Database, Identity, Schema};
/// use holdpoint_workflows::commands::{BranchReport, Start, Submission, TurnStart, TurnStop};
/// use holdpoint_workflows::definition::Workflow;
/// use holdpoint_workflows::model::{SubmissionOutcome, TurnEnd};
/// # use holdpoint_workflows::{DOMAIN, SchedulerOptions, Workflows};
/// # let directory = tempfile::tempdir()?;
/// # let schema = Schema::compose(Identity::PI_WORKFLOWS, [holdpoint_state::DOMAIN, DOMAIN])?;
/// # let workflows = Workflows::new(Database::open(directory.path().join("state.sqlite"), &schema)?);
/// # let scheduler = workflows.scheduler(SchedulerOptions::default())?;
/// let naming = Workflow::new("naming").start_at("name").agent("name", |_| Ok("Give it a name.".to_owned())).build()?;
/// let run = workflows.start(&Start::new(&naming, "".into()).in_session("session-1"))?.value;
/// workflows.wait(&run, Duration::from_secs(30))?;
///
/// let session = workflows.session("session-1").attach()?;
/// let message = session.next_message()?.expect("the agent's prompt");
/// assert_eq!(message.content["contract"]["prompt"], "Give it a name.");
/// // The session shows it, says so, and its model begins.
/// let entries = vec![(message.message_id.clone(), "entry-1".to_owned())];
/// session.report_branch(&BranchReport { entries, ..BranchReport::default() })?;
/// let turn = TurnStart { turn: "turn-1".to_owned(), message: message.message_id, run: run.clone() };
/// session.start_turn(&turn)?;
/// // Its tool submits, and hears what became of it.
/// let candidate = workflows.submit(&Submission::new(&run, "Ada".into()).in_session("session-1"))?.value;
/// let verdict = workflows.wait_for_verdict(&run, &candidate.submission_id, Duration::from_secs(30))?;
/// assert_eq!(verdict.outcome, SubmissionOutcome::Accepted);
/// session.end_turn(&TurnStop { turn: "turn-1".to_owned(), run: run.clone(), end: TurnEnd::Completed, entry: None })?;
///
/// let view = workflows.wait_for(&run, Duration::from_secs(30), |view| view.status.is_terminal())?;
/// assert_eq!(view.final_output, Some("Ada".into()));
/// # scheduler.stop(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Session {
    workflows: Workflows,
    id: String,
}

impl Session {
    pub(crate) fn new(workflows: Workflows, id: String) -> Self {
        Self { workflows, id }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Speaks for the session from now on; whoever spoke for it before is refused from here on. Clocks that nobody measures are
    /// closed, and that of a turn which goes on runs again unless its run is paused.
    ///
    /// # Errors
    ///
    /// Those of the database. Nobody is attached then; whoever spoke before stays refused.
    pub fn attach(&self) -> Result<Coordinator, WorkflowError> {
        let sessions = self.workflows.hub().sessions();
        let epoch = sessions.attach(&self.id);
        let coordinator = Coordinator {
            workflows: self.workflows.clone(),
            reporter: Reporter {
                sessions: Arc::clone(sessions),
                session: self.id.clone(),
                epoch,
            },
        };
        let db = self.workflows.database();
        commands::recover(db, sessions, Some(&self.id))?;
        commands::reopen(db, sessions, &self.id)?;
        Ok(coordinator)
    }

    /// The latest messages of the session, oldest of them first.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn messages(&self, limit: usize) -> Result<Vec<MessageView>, WorkflowError> {
        let snapshot = self.workflows.database().snapshot()?;
        Ok(views::messages_of_session(&snapshot, &self.id, limit)?)
    }

    /// The end of a run that the session shows now: until its message is shown and a minute longer.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn terminal_view(&self) -> Result<Option<TerminalView>, WorkflowError> {
        let db = self.workflows.database();
        let snapshot = db.snapshot()?;
        Ok(views::terminal_view(&snapshot, &self.id, db.clock().now())?)
    }

    /// Takes the end of a run off the session's view.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Rejected`] while the run is not over, [`WorkflowError::NoRun`] for a run of another session.
    pub fn clear_terminal_view(&self, run: &RunId, actor: Actor) -> Result<(), WorkflowError> {
        commands::clear_end(self.workflows.database(), run, &self.id, actor)
    }
}

/// The one connection that speaks for a session. A newer one fences it: each of its reports is then refused with
/// [`WorkflowError::Replaced`]. Dropping it is a disconnection; the session's clocks stop.
pub struct Coordinator {
    workflows: Workflows,
    reporter: Reporter,
}

impl Coordinator {
    /// Which connection of the session this is, in this process.
    pub fn epoch(&self) -> u64 {
        self.reporter.epoch
    }

    /// The session's id.
    pub fn session(&self) -> &str {
        &self.reporter.session
    }

    /// Who it is in the audit trail.
    pub fn actor(&self) -> Actor {
        Actor::new(ActorKind::Session, self.session())
    }

    /// What the session should show next. The same again, until a branch report proves that it is shown.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Replaced`], and those of the database.
    pub fn next_message(&self) -> Result<Option<MessageView>, WorkflowError> {
        self.reporter.check()?;
        let snapshot = self.workflows.database().snapshot()?;
        Ok(views::next_message(&snapshot, self.session())?)
    }

    /// Says which messages are on the session's active branch. When the session is idle besides, a turn that goes on is lost, and a
    /// request whose message left the branch is shown again.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Replaced`]; [`WorkflowError::NoMessage`] for one that is not the session's, and
    /// [`WorkflowError::Conflict`] for another entry of a message that was reported before: then nothing is noted.
    pub fn report_branch(&self, report: &BranchReport) -> Result<BranchReported, WorkflowError> {
        let reported = commands::report_branch(self.workflows.database(), &self.reporter, report)?;
        self.work_may_be_due()?;
        Ok(reported)
    }

    /// Says that a model turn began.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Replaced`]; [`WorkflowError::NoMessage`]; [`WorkflowError::Conflict`] for an id that was used, a message
    /// that is not on the branch yet, and while another turn of the session goes on.
    pub fn start_turn(&self, turn: &TurnStart) -> Result<TurnReport, WorkflowError> {
        commands::start_turn(self.workflows.database(), &self.reporter, turn)
    }

    /// Says that a model turn ended. One that a person stopped pauses a run that still asks.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Replaced`]; [`WorkflowError::Conflict`] when it ended otherwise before, or is another session's.
    pub fn end_turn(&self, stop: &TurnStop) -> Result<TurnReport, WorkflowError> {
        let report = commands::end_turn(self.workflows.database(), &self.reporter, stop)?;
        self.workflows.hub().offer(&stop.run);
        Ok(report)
    }

    /// A clock that was closed may have reached the budget.
    fn work_may_be_due(&self) -> Result<(), WorkflowError> {
        let db = self.workflows.database();
        let runs = views::runs_of_session(&db.snapshot()?, self.session())?;
        for run in runs {
            self.workflows.hub().offer(&run);
        }
        Ok(())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        let Reporter {
            sessions,
            session,
            epoch,
        } = &self.reporter;
        if !sessions.detach(session, *epoch) {
            return;
        }
        // What can't be closed now is closed at its last observation by whoever attaches next.
        if let Err(error) = commands::close_of_session(self.workflows.database(), sessions, session)
        {
            tracing::debug!(session, error = %error, "the clocks of a session could not be closed");
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Coordinator")
            .field("session", &self.session())
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}

/// Looks after sessions, unless that was done less than `interval_ms` ago: saves how long clocks have run, lets those run again that
/// should, and tells ends that were not told. What fails is tried again at the next look.
pub(crate) fn look(db: &Database, sessions: &Arc<Sessions>, interval_ms: u64) {
    if !sessions.is_time_to_look(db.clock().monotonic(), interval_ms) {
        return;
    }
    let measured = commands::sample(db, sessions).and_then(|()| {
        for session in sessions.attached() {
            commands::reopen(db, sessions, &session)?;
        }
        Ok(())
    });
    if let Err(error) = measured {
        tracing::warn!(error = %error, "the clocks of sessions could not be measured; it is tried again");
    }
    fail_dead_recordings(db);
    let owing = db
        .snapshot()
        .and_then(|snapshot| views::owing(&snapshot, ENDS_AT_ONCE));
    match owing {
        Ok(runs) => {
            for run in runs {
                if let Err(error) = commands::tell_end(db, &run) {
                    tracing::warn!(run = %run, error = %error, "the end of a run could not be told yet");
                }
            }
        }
        Err(error) => {
            tracing::warn!(error = %error, "ends could not be searched; it is tried again");
        }
    }
}

/// Fails what a dead process was recording. A run can't be pruned while one of its recordings goes on, and nobody else ends these.
pub(crate) fn fail_dead_recordings(db: &Database) {
    match commands::interrupt_dead_recordings(db, "scheduler") {
        Ok(failed) => {
            for segment in failed {
                tracing::warn!(segment, "a recording ended with the process that made it");
            }
        }
        Err(error) => {
            tracing::warn!(error = %error, "recordings of dead processes could not be ended; it is tried again");
        }
    }
}
