//! Executes runs in this process: worker threads, one sweep that finds work, one thread that renews claims.
//!
//! Finding work is level-based: the sweep reads, again and again, which runs nobody owns and nothing holds back, so that an error
//! or a lost wake-up postpones a run and never loses it. What this process itself makes eligible is offered directly. Not here:
//! executing (`engine`), rows (`commands`, `views`).

mod duties;
mod hub;
mod work;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use holdpoint_state::effects::BackOff;
use holdpoint_state::{Claim, Database, Owner, OwnerKind, OwnerPresence};

use crate::agents::AgentExecutor;
use crate::engine::{ActiveRuns, Deadlines, Executed, Executor, Runner, Stop, panic_text};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::registry::SourceResolver;
use crate::views;
use crate::worker::Execution;

use duties::Duties;
pub use duties::{Duty, DutyError, DutyPass};
pub(crate) use hub::{Hub, Watch};
use hub::{Launch, Next, Taken};
pub use work::{DueWork, Work, WorkError, WorkTurn, Worked};

/// How long a scheduler that is dropped waits for nodes to come to an end.
const DROP_PATIENCE: Duration = Duration::from_secs(1);

/// The settings of a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// How many runs, and items of other [`Work`], are executed at once, counted together: the number of worker threads, each of which
    /// has at most one worker process.
    pub workers: usize,
    /// Where nodes are executed.
    pub execution: Execution,
    /// How long a claim lasts without a renewal, in milliseconds. It is renewed at a third of this.
    pub lease_ms: i64,
    /// How often the store is searched for work that other processes made, or that lost runners left, in milliseconds.
    pub poll_interval_ms: u64,
    /// How long a run that could not be taken up because of an error is left alone.
    pub back_off: BackOff,
}

/// Says of a run whether this process may execute it. After a no it is asked again only when the run is offered by a verb of this
/// program, or when a definition is registered.
pub type Admission = Arc<dyn Fn(&RunId) -> bool + Send + Sync>;

/// What a program brings to its scheduler, and that of the domains above this one.
#[derive(Clone, Default)]
pub(crate) struct Brought {
    /// Says which runs are for this process; all are when none.
    pub(crate) admission: Option<Admission>,
    pub(crate) duties: Vec<Arc<dyn Duty>>,
    pub(crate) works: Vec<Arc<dyn Work>>,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        Self {
            workers: 4,
            execution: Execution::Threads,
            lease_ms: 30_000,
            poll_interval_ms: 2_000,
            back_off: BackOff::default(),
        }
    }
}

/// Executes runs until it is stopped or dropped.
///
/// It takes what nobody owns: new runs, runs whose answer was accepted, and runs whose runner was lost, also in another process.
#[must_use = "the scheduler stops when it is dropped"]
pub struct Scheduler {
    shared: Arc<Shared>,
    /// By it other processes know that the owner lives.
    presence: Option<OwnerPresence>,
    /// Calls the duties of domains; none when there are none.
    duties: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
    /// Search for work of other kinds, one each.
    searches: Vec<JoinHandle<()>>,
}

struct Shared {
    runner: Arc<Runner>,
    hub: Arc<Hub>,
    options: SchedulerOptions,
    /// Work of other domains.
    works: Vec<Arc<dyn Work>>,
    /// Whether a run is for this process; all are when none.
    admission: Option<Admission>,
    /// Ends the renewals; they outlive the workers.
    closed: AtomicBool,
}

impl Scheduler {
    pub(crate) fn start(
        db: &Database,
        resolver: Arc<dyn SourceResolver>,
        agents: Option<Arc<dyn AgentExecutor>>,
        hub: &Arc<Hub>,
        brought: Brought,
        options: SchedulerOptions,
    ) -> Result<Self, WorkflowError> {
        check(&options)?;
        let Brought {
            admission,
            duties,
            works,
        } = brought;
        let owner = Owner::new(OwnerKind::Host, "host");
        // Before the files that say who is dead are cleaned up.
        crate::session::fail_dead_recordings(db);
        // Before the first claim. Without it the claims of this process end by their time only.
        let presence = db
            .announce_owner(&owner)
            .inspect_err(|error| {
                tracing::warn!(error = %error, "nobody can know when this scheduler dies; its leases end by their time");
            })
            .ok();
        let active = Arc::new(ActiveRuns::default());
        let deadlines = Deadlines::new(Arc::clone(db.clock()))?;
        hub.attach(&owner, &active)?;
        hub.open_lines(works.len());
        let workers = options.workers;
        let shared = Arc::new(Shared {
            runner: Arc::new(Runner {
                db: db.clone(),
                resolver,
                agents,
                owner,
                lease_ms: options.lease_ms,
                deadlines,
                active,
                launcher: match &options.execution {
                    Execution::Threads => None,
                    Execution::Processes(launcher) => Some(launcher.clone()),
                },
                draining: AtomicBool::new(false),
            }),
            hub: Arc::clone(hub),
            options,
            works,
            admission,
            closed: AtomicBool::new(false),
        });
        let mut scheduler = Self {
            shared,
            presence,
            duties: None,
            threads: Vec::new(),
            searches: Vec::new(),
        };
        scheduler.spawn("holdpoint-renewal".to_owned(), Shared::renew)?;
        scheduler.spawn("holdpoint-sweep".to_owned(), Shared::sweep)?;
        for index in 0..workers {
            scheduler.spawn(format!("holdpoint-worker-{index}"), Shared::work)?;
        }
        hub.open_places(&scheduler.shared.runner, workers);
        for kind in 0..scheduler.shared.works.len() {
            let shared = Arc::clone(&scheduler.shared);
            let search = named(format!("holdpoint-search-{kind}"), move || {
                shared.search_for(kind);
            })?;
            scheduler.searches.push(search);
        }
        scheduler.take_on(duties)?;
        Ok(scheduler)
    }

    /// Begins to call the duties of domains.
    fn take_on(&mut self, duties: Vec<Arc<dyn Duty>>) -> Result<(), WorkflowError> {
        let (hub, options) = (Arc::clone(&self.shared.hub), &self.shared.options);
        hub.bell().open(duties.len());
        if duties.is_empty() {
            return Ok(());
        }
        let duties = Duties {
            db: self.shared.runner.db.clone(),
            all: duties,
            bell: Arc::clone(hub.bell()),
            poll_interval_ms: options.poll_interval_ms,
            back_off: options.back_off,
            has_worked: Box::new(move || hub.search()),
        };
        self.duties = Some(named("holdpoint-duties".to_owned(), move || {
            duties.serve();
        })?);
        Ok(())
    }

    fn spawn(&mut self, name: String, body: fn(&Shared)) -> Result<(), WorkflowError> {
        let shared = Arc::clone(&self.shared);
        self.threads.push(named(name, move || body(&shared))?);
        Ok(())
    }

    /// The id under which this process records sessions ([`commands::bind_session`](crate::commands::bind_session())). When the
    /// scheduler stops or its process dies, whoever searches for work next fails the recordings of it that go on.
    pub fn recorder(&self) -> &str {
        self.shared.runner.owner.id()
    }

    /// Waits until nothing is executed and a fresh search finds no work, or until the limit. Returns whether it became idle.
    ///
    /// Runs that wait for an answer, that are parked, or whose workflow this program does not know, are no work. A run that is left
    /// alone for a while after the end of its worker process, or because the store was busy, is work for its first three back-offs
    /// ([`SchedulerOptions::back_off`]); after those, and after any other error, it is none. What a [`Duty`] has to do now is work; what it
    /// has to do later is none, nor is what it failed at and tries again later. Items of other [`Work`] count as runs do.
    pub fn wait_until_idle(&self, limit: Duration) -> bool {
        let mut left = limit;
        loop {
            let worked = self.shared.hub.bell().worked();
            let Some(now_left) = self.shared.hub.wait_until_idle(left) else {
                return false;
            };
            // After the runs, which may have given the duties something to do; and once more, when they did it.
            match self.shared.hub.bell().pass(now_left, worked) {
                Some((_, true)) => return true,
                Some((now_left, false)) => left = now_left,
                None => return false,
            }
        }
    }

    /// Stops: takes no new work, lets each node come to its end, and gives its run back. Nodes that are still going on after
    /// `patience` get their signal; what they did is then recovered by the rules for lost runners.
    pub fn stop(mut self, patience: Duration) {
        self.shut_down(patience);
    }

    fn shut_down(&mut self, patience: Duration) {
        if self.threads.is_empty() {
            // It was stopped already, or its first thread could not be started.
            self.shared.hub.detach();
            return;
        }
        self.shared.runner.draining.store(true, Ordering::SeqCst);
        self.shared.hub.bell().close();
        self.shared.hub.drain();
        if !self.shared.hub.wait_until_inactive(patience) {
            self.shared.runner.active.stop_all(Stop::Drain);
            self.shared.hub.stop_items();
        }
        // The workers end first: while one of them works, its claim must be renewed.
        for worker in self.threads.drain(2.min(self.threads.len())..) {
            join(worker);
        }
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.hub.close();
        for thread in self.threads.drain(..) {
            join(thread);
        }
        for thread in self.searches.drain(..).chain(self.duties.take()) {
            join(thread);
        }
        // Nothing works under its leases any more; those that are left may be taken.
        drop(self.presence.take());
        crate::session::fail_dead_recordings(&self.shared.runner.db);
        if let Err(error) = self.shared.runner.db.clean_owners() {
            tracing::debug!(error = %error, "the next scheduler cleans up");
        }
        self.shared.hub.detach();
    }
}

fn named(
    name: String,
    body: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, WorkflowError> {
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.map_err(|error| WorkflowError::Scheduler {
        problem: format!("could not start a thread: {error}"),
    })
}

fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or("worker").to_owned();
    if thread.join().is_err() {
        tracing::error!(thread = name, "BUG: a thread of the scheduler panicked");
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shut_down(DROP_PATIENCE);
    }
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Scheduler")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

fn check(options: &SchedulerOptions) -> Result<(), WorkflowError> {
    let problem = if options.workers == 0 {
        "workers must be at least 1"
    } else if options.lease_ms < 3 {
        "the lease must last at least 3 ms"
    } else if options.poll_interval_ms == 0 {
        "the poll interval must be at least 1 ms"
    } else {
        return Ok(());
    };
    Err(WorkflowError::Input {
        what: "scheduler options",
        problem: problem.to_owned(),
    })
}

impl Shared {
    /// A worker: run after run, and whatever other work has its turn.
    fn work(&self) {
        let name = std::thread::current().name().unwrap_or("worker").to_owned();
        let mut executor = Executor::new(format!("{name}-node"));
        while let Some(next) = self.hub.take() {
            let work = match next {
                Next::Run(work) => work,
                Next::Item(item) => {
                    self.work_on(&item);
                    self.hub.bell().ring();
                    continue;
                }
            };
            let run = work.run().clone();
            // What a program brings to find and admit runs is called on this thread. When it panics the worker goes on, and the
            // run is given back: it would otherwise count as executed, and be renewed, as long as the process lives.
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn(work, &mut executor)));
            let taken = turn.unwrap_or_else(|panic| {
                let problem = panic_text(&*panic);
                tracing::error!(run = %run, problem, "a run could not be executed: its resolver or admission panicked");
                self.runner.active.remove(&run);
                executor = Executor::new(format!("{name}-node"));
                Taken::Failed
            });
            self.hub.give_back(&run, taken, self.options.back_off);
            self.hub.bell().ring();
        }
    }

    /// One run, as far as it goes.
    fn turn(&self, work: Launch, executor: &mut Executor) -> Taken {
        let run = work.run().clone();
        let executed = match work {
            Launch::Found(run) => {
                if self.admission.as_ref().is_some_and(|admits| !admits(&run)) {
                    return Taken::Unknown;
                }
                self.runner.execute(&run, executor)
            }
            Launch::Early(early) => self.runner.execute_early(*early, executor),
        };
        match executed {
            Ok(Executed::Released | Executed::Raced) => Taken::Done,
            Ok(Executed::Lost) => {
                tracing::info!(run = %run, "the claim was lost; whoever has it now goes on");
                Taken::Done
            }
            Ok(Executed::Unknown) => Taken::Unknown,
            Ok(Executed::Crashed) => Taken::Interrupted,
            Err(error) => {
                tracing::warn!(run = %run, error = %error, "a run could not be executed; it is tried again later");
                if error.is_retryable() {
                    Taken::Interrupted
                } else {
                    Taken::Failed
                }
            }
        }
    }

    /// The sweep: reads what is due, when woken, at each interval, and when the next lease of a lost runner ends.
    fn sweep(&self) {
        let batch = self.options.workers.saturating_mul(4).max(16);
        let poll = self.options.poll_interval_ms;
        let mut wait = poll;
        while let Some(known) = self.hub.wait_for_sweep(wait) {
            // First, so that a request whose time is spent by now is found by this very search.
            crate::session::look(&self.runner.db, self.hub.sessions(), poll);
            let now = self.runner.db.clock().now();
            // Twice what is known: where many runs are left to other processes, a few searches pass them all.
            let limit = batch.saturating_add(known.saturating_mul(2));
            let found = self.runner.db.snapshot().and_then(|snapshot| {
                let runs = views::due(&snapshot, now, limit)?;
                Ok((runs, views::next_expiry(&snapshot, now)?))
            });
            wait = poll;
            match found {
                Ok((runs, next_expiry)) => {
                    if let Some(at) = next_expiry {
                        // At least a millisecond: a sweep that meets the very instant would otherwise turn on the spot.
                        wait = poll.min(at.since(now).max(1).unsigned_abs());
                    }
                    self.hub.found(runs, batch);
                }
                Err(error) => {
                    tracing::warn!(error = %error, "the store could not be searched for work; it is tried again");
                    self.hub.found_nothing_by_error();
                }
            }
        }
    }

    /// Renews the claims of all that is executed, each at a third of its lease.
    fn renew(&self) {
        let interval = Duration::from_millis(self.options.lease_ms.unsigned_abs() / 3);
        while !self.closed.load(Ordering::SeqCst) {
            if self.hub.pause_renewal(interval, &self.closed) {
                continue;
            }
            for active in self.runner.active.all() {
                if self.is_lost(&active.claim) {
                    active.stop(Stop::Lost);
                }
            }
            self.renew_items();
        }
    }

    /// Renews a claim; returns whether it is lost.
    fn is_lost(&self, claim: &Claim) -> bool {
        self.runner.db.renew(claim).is_err_and(|error| {
            WorkflowError::State(error).is_claim_lost()
                || claim.is_expired(&**self.runner.db.clock())
        })
    }
}
