//! The handle of a program: every verb, with the process's own scheduler told of what it makes.
//!
//! Not here: rules. Each verb is one of `commands` or `views`; this room only passes on what happened.

mod records;

use std::sync::Arc;
use std::time::Duration;

use holdpoint_state::{Actor, Database, Receipt, Snapshot};
use serde_json::Value;

use crate::agents::AgentExecutor;
use crate::commands::{
    self, Answer, Answered, AssistantText, Control, Paused, Restart, SettingsChange,
    SettingsChanged, Start, Submission, Submitted,
};
use crate::definition::{Definition, SourceIdentity};
use crate::error::WorkflowError;
use crate::file::WorkflowFile;
use crate::id::RunId;
use crate::model::SubmissionOutcome;
use crate::registry::{Registry, SourceResolver, Unresolved, compare_mounts, differences};
use crate::scheduler::{Brought, Duty, Hub, Scheduler, SchedulerOptions, Watch, Work};
use crate::session::Session;
use crate::views::{
    self, AgentRequestView, DisplayStatus, Explanation, Filter, MessageView, Page, RunEnd, RunView,
    SettingsHistory, SettingsView, Verdict,
};

/// How soon a wait looks at the store again, for what other processes do; each time twice as long, up to the longest.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(250);
/// What a look that was woken by a change counts against the limit.
const LOOK_COST: Duration = Duration::from_millis(1);

/// Why a wait looks at the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Time has passed.
    Again,
    /// This process told a change of the run.
    Changed,
    /// The limit is reached: what is found now is the answer.
    Last,
}

/// The workflows of one store: every verb of a program. Clones share it. The crate's own page shows its ordinary use.
#[derive(Clone)]
pub struct Workflows {
    db: Database,
    registry: Arc<Registry>,
    resolver: Arc<dyn SourceResolver>,
    hub: Arc<Hub>,
    agents: Option<Arc<dyn AgentExecutor>>,
    brought: Brought,
}

impl Workflows {
    /// The workflows of a store whose schema has [`DOMAIN`](crate::DOMAIN).
    pub fn new(db: Database) -> Self {
        let registry = Arc::new(Registry::default());
        let resolver: Arc<dyn SourceResolver> = Arc::clone(&registry) as Arc<dyn SourceResolver>;
        let hub = Arc::new(Hub::new(Arc::clone(db.clock())));
        Self {
            db,
            registry,
            resolver,
            hub,
            agents: None,
            brought: Brought::default(),
        }
    }

    /// The same with another way to find the code of runs.
    #[must_use]
    pub fn resolving_with(mut self, resolver: Arc<dyn SourceResolver>) -> Self {
        self.resolver = resolver;
        self
    }

    /// The same with an executor for the agents of headless runs. Without one, such runs are left to other programs.
    #[must_use]
    pub fn executing_agents_with(mut self, agents: Arc<dyn AgentExecutor>) -> Self {
        self.agents = Some(agents);
        self
    }

    /// The same with a say in which runs this process executes. The others stay for other processes.
    #[must_use]
    pub fn admitting(mut self, admits: impl Fn(&RunId) -> bool + Send + Sync + 'static) -> Self {
        self.brought.admission = Some(Arc::new(admits));
        self
    }

    /// The same with background work of another domain, which its scheduler does.
    #[must_use]
    pub fn with_duty(mut self, duty: Arc<dyn Duty>) -> Self {
        self.brought.duties.push(duty);
        self
    }

    /// The same with work of another domain, which its scheduler executes on the workers that it has for runs, in turn with them.
    #[must_use]
    pub fn with_work(mut self, work: Arc<dyn Work>) -> Self {
        self.brought.works.push(work);
        self
    }

    /// Tells the scheduler of this process that work of another domain may be due now, so that it need not be found first.
    pub fn wake_work(&self) {
        self.hub.wake_lines();
    }

    /// Tells the scheduler of this process that something happened which may concern a duty, so that it need not be found first.
    pub fn wake_duties(&self) {
        self.hub.bell().ring();
    }

    /// The store.
    pub fn database(&self) -> &Database {
        &self.db
    }

    /// The definitions that this program knows.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Makes a definition known, so that runs which were started from it in an earlier process can go on.
    pub fn register(&self, definition: &Definition) {
        self.registry.register(definition);
        self.hub.learned();
    }

    /// Executes runs in this process until the scheduler is stopped or dropped.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::Scheduler`] when one runs already or threads can't be started, [`WorkflowError::Input`] for options
    /// out of range.
    pub fn scheduler(&self, options: SchedulerOptions) -> Result<Scheduler, WorkflowError> {
        Scheduler::start(
            &self.db,
            Arc::clone(&self.resolver),
            self.agents.clone(),
            &self.hub,
            self.brought.clone(),
            options,
        )
    }

    /// Tells the scheduler of this process that a run may be due now, so that it need not be found first. Finding out whether it
    /// is due stays the scheduler's.
    pub fn offer(&self, run: &RunId) {
        self.hub.offer(run);
    }

    /// Starts a run of a definition: the short form of [`Workflows::start`].
    ///
    /// # Errors
    ///
    /// As [`Workflows::start`].
    pub fn run(
        &self,
        definition: &Definition,
        input: impl Into<Value>,
    ) -> Result<RunId, WorkflowError> {
        Ok(self.start(&Start::new(definition, input.into()))?.value)
    }

    /// Starts a run of a workflow file: the short form of [`Workflows::start`].
    ///
    /// # Errors
    ///
    /// As [`Workflows::start`].
    pub fn run_file(
        &self,
        file: &WorkflowFile,
        input: impl Into<Value>,
    ) -> Result<RunId, WorkflowError> {
        let start = Start::from_source(&file.definition, file.source.clone(), input.into());
        Ok(self.start(&start)?.value)
    }

    /// Starts a run. It is durable when this returns. A definition that the program brought is registered by it.
    ///
    /// # Errors
    ///
    /// Those of [`commands::start()`].
    pub fn start(&self, start: &Start) -> Result<Receipt<RunId>, WorkflowError> {
        if matches!(start.source(), SourceIdentity::Inline { .. }) {
            self.register(start.definition());
        }
        let start = start.prepare(&**self.db.clock())?;
        // Only what this program brought is the same at once as when it is found; and the others are asked whether they want it.
        let is_ours = matches!(start.source, SourceIdentity::Inline { .. })
            && std::ptr::addr_eq(Arc::as_ptr(&self.resolver), Arc::as_ptr(&self.registry))
            && self.brought.admission.is_none();
        if is_ours
            && let Some(place) = self.hub.reserve()
            && let Some(foreseen) = place.runner().foresee(&start)?
        {
            let (started, early) = place.runner().send(start, foreseen)?;
            place.begin(early);
            return started.wait();
        }
        let receipt = start.commit(&self.db)?;
        self.hub.offer(&receipt.value);
        Ok(receipt)
    }

    /// Answers what a run waits for.
    ///
    /// # Errors
    ///
    /// Those of [`commands::answer()`].
    pub fn answer(&self, answer: &Answer) -> Result<Receipt<Answered>, WorkflowError> {
        let receipt = commands::answer(&self.db, answer)?;
        self.hub.offer_first(answer.run());
        Ok(receipt)
    }

    /// Stores a candidate for the output of an agent; a runner looks at it.
    ///
    /// # Errors
    ///
    /// Those of [`commands::submit()`].
    pub fn submit(&self, submission: &Submission) -> Result<Receipt<Submitted>, WorkflowError> {
        let receipt = commands::submit(&self.db, submission)?;
        self.hub.offer_first(submission.run());
        Ok(receipt)
    }

    /// Accepts the visible text of a model as the output of its agent.
    ///
    /// # Errors
    ///
    /// Those of [`commands::assistant()`].
    pub fn assistant(&self, said: &AssistantText) -> Result<Receipt<Answered>, WorkflowError> {
        let receipt = commands::assistant(&self.db, said)?;
        self.hub.offer_first(said.run());
        Ok(receipt)
    }

    /// Waits until a candidate was looked at, or until the limit. Returns where it then stands.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRequest`] when the run has no such candidate, and those of the database.
    pub fn wait_for_verdict(
        &self,
        run: &RunId,
        submission: &str,
        limit: Duration,
    ) -> Result<Verdict, WorkflowError> {
        self.watch(
            run,
            limit,
            |_| false,
            |snapshot, look| {
                let verdict = views::verdict(snapshot, run, submission)?;
                let verdict = verdict.ok_or_else(|| WorkflowError::NoRequest {
                    run: run.to_string(),
                })?;
                let is_done = verdict.outcome != SubmissionOutcome::Validating;
                Ok(Some(verdict).filter(|_| look == Look::Last || is_done))
            },
        )
    }

    /// An origin session, from the side of whoever speaks for it.
    pub fn session(&self, session: impl Into<String>) -> Session {
        Session::new(self.clone(), session.into())
    }

    /// What models in sessions are asked now, oldest first: of one session, or all.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn agent_requests(
        &self,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AgentRequestView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        Ok(views::agent_requests(&snapshot, session, limit)?)
    }

    /// The messages of a run to its session, in their order.
    ///
    /// # Errors
    ///
    /// Those of the database. A run that does not exist has none.
    pub fn messages(&self, run: &RunId) -> Result<Vec<MessageView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        Ok(views::messages_of_run(&snapshot, run)?)
    }

    /// Closes the clocks of sessions that no process measures any more. For a program that knows that it alone has sessions, when it
    /// begins; attaching a session does it for that one.
    ///
    /// # Errors
    ///
    /// Those of the database.
    pub fn recover_clocks(&self) -> Result<(), WorkflowError> {
        commands::recover(&self.db, self.hub.sessions(), None)
    }

    /// Looks after sessions once: measures their clocks, and tells ends that were not told yet. The scheduler does it at each search; a
    /// program without one calls this about every two seconds.
    pub fn look_after_sessions(&self) {
        crate::session::look(&self.db, self.hub.sessions(), 0);
    }

    /// Lets the clock of a run's open turn run again, when its session is attached to this process.
    fn reopen_clock(&self, run: &RunId) -> Result<(), WorkflowError> {
        let session = views::session_of(&self.db.snapshot()?, run)?;
        let sessions = self.hub.sessions();
        match session.filter(|session| sessions.is_attached(session)) {
            Some(session) => commands::reopen(&self.db, sessions, &session),
            None => Ok(()),
        }
    }

    pub(crate) fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// Pauses a run; a runner in this process stops at once.
    ///
    /// # Errors
    ///
    /// Those of [`commands::pause()`].
    pub fn pause(&self, control: &Control) -> Result<Receipt<Paused>, WorkflowError> {
        let receipt = commands::pause(&self.db, &self.ours(control))?;
        self.hub.stop(control.run(), receipt.revision);
        Ok(receipt)
    }

    /// Resumes a run, after its source was compared with the one that it was started with.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::SourceChanged`] before any row is changed; otherwise those of [`commands::resume()`].
    pub fn resume(&self, control: &Control) -> Result<Receipt<()>, WorkflowError> {
        self.check_source(control.run())?;
        let receipt = commands::resume(&self.db, &self.ours(control))?;
        // A turn that goes on is measured again. Where its session is attached to another process, that one sees it at its next look.
        if let Err(error) = self.reopen_clock(control.run()) {
            tracing::warn!(run = %control.run(), error = %error, "the clock of a turn runs again from the next look on");
        }
        self.hub.offer(control.run());
        Ok(receipt)
    }

    /// Cancels a run; a runner in this process stops at once.
    ///
    /// # Errors
    ///
    /// Those of [`commands::cancel()`].
    pub fn cancel(&self, control: &Control) -> Result<Receipt<()>, WorkflowError> {
        let receipt = commands::cancel(&self.db, &self.ours(control))?;
        self.hub.stop(control.run(), receipt.revision);
        if let Err(error) = commands::tell_end(&self.db, control.run()) {
            tracing::warn!(run = %control.run(), error = %error, "the end of a run could not be told yet");
        }
        Ok(receipt)
    }

    /// Restarts a finished run as its one child.
    ///
    /// # Errors
    ///
    /// Those of [`commands::restart()`].
    pub fn restart(&self, restart: &Restart) -> Result<Receipt<RunId>, WorkflowError> {
        let receipt = commands::restart(&self.db, restart)?;
        self.hub.offer(&receipt.value);
        Ok(receipt)
    }

    /// Accepts the definition that a run's source gives now, because a person looked at the difference, and lets the run go on
    /// with it.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoWorkflow`] when the source gives no definition; otherwise those of
    /// [`commands::accept_definition()`].
    pub fn accept_definition(
        &self,
        run: &RunId,
        revision: u64,
        actor: Actor,
    ) -> Result<Receipt<()>, WorkflowError> {
        let loaded = self.loaded(run)?;
        let (definition, source) = self
            .resolver
            .present(&loaded.source)
            .map_err(|unresolved| WorkflowError::NoWorkflow {
                name: format!("{} ({unresolved})", loaded.workflow_ref),
            })?;
        let receipt =
            commands::accept_definition(&self.db, run, revision, &definition, &source, actor)?;
        self.hub.offer(run);
        Ok(receipt)
    }

    /// Changes the live settings of a run, by the rules of the definition that it is pinned to. A run that goes on is not woken: its
    /// next attempt begins with them.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoWorkflow`] when this program does not have the definition; otherwise those of
    /// [`commands::change_settings()`].
    pub fn change_settings(
        &self,
        change: &SettingsChange,
    ) -> Result<Receipt<SettingsChanged>, WorkflowError> {
        let definition = self.definition_of(change.run())?;
        commands::change_settings(&self.db, &definition, change)
    }

    /// The definition that a run is pinned to, as this program has it.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`]; [`WorkflowError::NoWorkflow`] when this program does not have the definition.
    pub fn definition_of(&self, run: &RunId) -> Result<Definition, WorkflowError> {
        let (source, digest) = {
            let snapshot = self.db.snapshot()?;
            views::pinned(&snapshot, run)?.ok_or_else(|| no_run(run))?
        };
        self.resolver
            .resolve(&source, digest)
            .map_err(|unresolved| WorkflowError::NoWorkflow {
                name: format!("{} ({unresolved})", source.reference()),
            })
    }

    /// The live settings of a run: one document for each workflow in it that has any.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn settings(&self, run: &RunId) -> Result<Vec<SettingsView>, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::pinned(&snapshot, run)?.ok_or_else(|| no_run(run))?;
        Ok(views::settings(&snapshot, run)?)
    }

    /// How the settings of a run became what they are: the changes after a number, at most `limit`.
    ///
    /// # Errors
    ///
    /// Those of [`views::settings_history`].
    pub fn settings_history(
        &self,
        run: &RunId,
        scope: Option<&str>,
        (after, limit): (u64, usize),
    ) -> Result<SettingsHistory, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::settings_history(&snapshot, run, scope, (after, limit))
    }

    /// A run as it is now.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn view(&self, run: &RunId) -> Result<RunView, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::run(&snapshot, run, self.db.clock().now())?.ok_or_else(|| no_run(run))
    }

    /// The options that a run was launched with.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn launch_options(&self, run: &RunId) -> Result<Value, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::launch_options(&snapshot, run)?.ok_or_else(|| no_run(run))
    }

    /// Runs, newest first.
    ///
    /// # Errors
    ///
    /// Those of [`views::list`].
    pub fn list(&self, filter: &Filter) -> Result<Page, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        Ok(views::list(&snapshot, filter, self.db.clock().now())?)
    }

    /// Why a run stands where it stands.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn explain(&self, run: &RunId) -> Result<Explanation, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::explain(&snapshot, run, self.db.clock().now())?.ok_or_else(|| no_run(run))
    }

    /// Waits until a run is over, asks something, is paused or parked, or until the limit. Returns it as it then is.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn wait(&self, run: &RunId, limit: Duration) -> Result<RunView, WorkflowError> {
        let stopped = |view: &RunView| match view.display_status {
            DisplayStatus::Queued => view.error_code.is_some(),
            DisplayStatus::Running => false,
            DisplayStatus::Waiting
            | DisplayStatus::Paused
            | DisplayStatus::Ambiguous
            | DisplayStatus::Completed
            | DisplayStatus::Failed
            | DisplayStatus::TimedOut
            | DisplayStatus::Cancelled => true,
        };
        // The whole history is read once the run may have stopped, not at each look.
        // A run that is executed here says when that ends.
        let is_known = |watch: &Watch<'_>| watch.is_known();
        self.look(run, limit, stopped, is_known, |snapshot| {
            views::may_have_stopped(snapshot, run)
        })
    }

    /// Waits until a run is over, or until the limit. Returns how it ended, without how it came to that, for which
    /// [`Workflows::wait`] reads the whole run; none when it is not over, also when it waits for somebody.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn wait_for_end(
        &self,
        run: &RunId,
        limit: Duration,
    ) -> Result<Option<RunEnd>, WorkflowError> {
        let is_known = |watch: &Watch<'_>| watch.is_known();
        self.watch(run, limit, is_known, |snapshot, look| {
            let end = views::end(snapshot, run)?;
            Ok(if end.is_some() || look == Look::Last {
                Some(end)
            } else {
                None
            })
        })
    }

    /// Waits until a run is as wanted, or until the limit. Returns it as it then is.
    ///
    /// # Errors
    ///
    /// [`WorkflowError::NoRun`], and those of the database.
    pub fn wait_for(
        &self,
        run: &RunId,
        limit: Duration,
        wanted: impl Fn(&RunView) -> bool,
    ) -> Result<RunView, WorkflowError> {
        self.look(run, limit, wanted, |_| false, |_| Ok(true))
    }

    /// Looks at a run whenever it may have changed, first with `is_near`, which costs little, and not before the first change when it
    /// `will_change`.
    fn look(
        &self,
        run: &RunId,
        limit: Duration,
        wanted: impl Fn(&RunView) -> bool,
        will_change: impl Fn(&Watch<'_>) -> bool,
        is_near: impl Fn(&Snapshot<'_>) -> Result<bool, WorkflowError>,
    ) -> Result<RunView, WorkflowError> {
        self.watch(run, limit, will_change, |snapshot, look| {
            // A change that was told is most often what is waited for.
            if look == Look::Again && !is_near(snapshot)? {
                return Ok(None);
            }
            let is_last = look == Look::Last;
            let view =
                views::run(snapshot, run, self.db.clock().now())?.ok_or_else(|| no_run(run))?;
            Ok(Some(view).filter(|view| is_last || wanted(view)))
        })
    }

    /// Reads whenever a run may have changed, until something is found. `read` is told why it is asked.
    fn watch<T>(
        &self,
        run: &RunId,
        limit: Duration,
        will_change: impl Fn(&Watch<'_>) -> bool,
        read: impl Fn(&Snapshot<'_>, Look) -> Result<Option<T>, WorkflowError>,
    ) -> Result<T, WorkflowError> {
        let mut watch = self.hub.watch(run);
        let (mut left, mut look) = (limit, LOOK);
        let mut changed = will_change(&watch) && watch.wait(look.min(left));
        if changed {
            left = left.saturating_sub(LOOK_COST);
        }
        loop {
            let why = match (left.is_zero(), changed) {
                (true, _) => Look::Last,
                (false, true) => Look::Changed,
                (false, false) => Look::Again,
            };
            let snapshot = self.db.snapshot()?;
            if let Some(found) = read(&snapshot, why)? {
                return Ok(found);
            }
            drop(snapshot);
            // Each look counts a little, so that a busy run can't keep a wait alive for ever.
            changed = watch.wait(look.min(left));
            left = left.saturating_sub(if changed { LOOK_COST } else { look });
            look = if changed {
                LOOK
            } else {
                LOOK_MAX.min(look * 2)
            };
        }
    }

    /// The same wish, with the scheduler of this process as the host that it comes from.
    fn ours(&self, control: &Control) -> Control {
        match self.hub.owner() {
            Some(owner) => control.clone().on_host(&owner),
            None => control.clone(),
        }
    }

    fn loaded(&self, run: &RunId) -> Result<views::LoadedRun, WorkflowError> {
        let snapshot = self.db.snapshot()?;
        views::load(&snapshot, run)?.ok_or_else(|| no_run(run))
    }

    fn check_source(&self, run: &RunId) -> Result<(), WorkflowError> {
        let loaded = self.loaded(run)?;
        if loaded.status.is_terminal() {
            return Ok(());
        }
        let resolved = self
            .resolver
            .resolve(&loaded.source, loaded.definition_digest);
        match compare_mounts(resolved, &loaded.mounted) {
            // Another process may know it, and whether it loads is found out when it is executed.
            Ok(_) | Err(Unresolved::Unknown { .. } | Unresolved::LoadFailed { .. }) => Ok(()),
            Err(Unresolved::Changed { detail, .. }) => {
                let snapshot = self.db.snapshot()?;
                let saved = views::definition_snapshot(&snapshot, loaded.definition_digest)?;
                let present = self.resolver.present(&loaded.source).ok();
                let mut found = match (saved, present) {
                    (Some(saved), Some((present, _))) => differences(&saved, present.snapshot()),
                    _ => Vec::new(),
                };
                if found.is_empty() {
                    found.push(detail);
                }
                Err(WorkflowError::SourceChanged {
                    run: run.to_string(),
                    differences: found,
                })
            }
        }
    }
}

impl std::fmt::Debug for Workflows {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Workflows")
            .field("db", &self.db)
            .finish_non_exhaustive()
    }
}

fn no_run(run: &RunId) -> WorkflowError {
    WorkflowError::NoRun {
        run: run.to_string(),
    }
}
