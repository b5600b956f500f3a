//! Passes as work of the scheduler: found among what is due, executed under a claim, with a deadline.
//!
//! Each pass runs on a thread of its own (or in a worker process) while a worker of the scheduler waits for it. At the deadline the host
//! writes the failure and the lease is free; the thread is left behind, and whatever it still commits is refused, since its claim is
//! gone. Not here: what is due and what an end leads to (`views`, `commands`), what a pass may do (`pass`).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use holdpoint_state::Database;
use holdpoint_state::clock::{Clock, SystemClock, UnixMillis};
use holdpoint_workflows::definition::{CancellationSignal, CancellationSource, StopReason};
use holdpoint_workflows::{DueWork, Work, WorkError, WorkTurn, Worked, WorkerLauncher, Workflows};
use serde_json::Value;

use crate::commands::{self, Claiming, Finished, PassClaim, PassEnd};
use crate::controller::{AnyController, Proposal};
use crate::error::ControllerError;
use crate::host::ClaimHost;
use crate::isolated::{Isolated, in_process};
use crate::model::{ControllerName, ManagedResource, ProjectPath, Uid};
use crate::views::{self, DueQuery};

/// How often the clock of the store is looked at while a pass runs: a test turns it, and the machine may sleep.
const LOOK: Duration = Duration::from_millis(100);
/// How long a pass may go on that was told to stop because the process stops or the claim is lost.
const STOP_GRACE_MS: u64 = 2_000;

/// The controllers that a process has, by name.
#[derive(Default)]
pub(crate) struct Registered {
    by_name: RwLock<BTreeMap<ControllerName, Arc<dyn AnyController>>>,
}

impl Registered {
    /// Adds one; returns whether its name was free.
    pub(crate) fn add(&self, name: ControllerName, controller: Arc<dyn AnyController>) -> bool {
        let mut known = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        match known.entry(name) {
            std::collections::btree_map::Entry::Vacant(free) => {
                free.insert(controller);
                true
            }
            std::collections::btree_map::Entry::Occupied(_) => false,
        }
    }

    pub(crate) fn get(&self, name: &ControllerName) -> Option<Arc<dyn AnyController>> {
        let known = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        known.get(name).cloned()
    }

    pub(crate) fn names(&self) -> Vec<ControllerName> {
        let known = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        known.keys().cloned().collect()
    }
}

/// How a pass came to its end, from the side of whoever waits for it.
pub(crate) enum Ended {
    /// It proposes something.
    Proposed(Proposal),
    /// It failed, panicked or took too long.
    Failed(String),
    /// The process stops, or the claim is lost, and the pass did not come to a good end meanwhile.
    Stopped,
}

/// Executes the passes of one project for the controllers of this process.
pub(crate) struct Reconciler {
    pub(crate) project: ProjectPath,
    pub(crate) registered: Arc<Registered>,
    /// Where the runs of children are started, with the scheduler of this process.
    pub(crate) workflows: Workflows,
    /// How worker processes are launched, where passes run in processes of their own.
    pub(crate) launcher: Option<WorkerLauncher>,
    /// Gives a number in 0..1 for each failure.
    pub(crate) jitter: Arc<dyn Fn() -> f64 + Send + Sync>,
    /// What the runs of children are launched with.
    pub(crate) options: Value,
}

impl Work for Reconciler {
    fn name(&self) -> &'static str {
        "controllers"
    }

    fn find(&self, db: &Database, now: UnixMillis, limit: usize) -> Result<DueWork, WorkError> {
        let names = self.registered.names();
        let query = DueQuery {
            project: &self.project,
            controllers: &names,
            now,
            limit,
        };
        let due = views::due(&db.snapshot()?, &query)?;
        Ok(DueWork {
            keys: due.uids.into_iter().map(|uid| uid.to_string()).collect(),
            next_due: due.next_at,
        })
    }

    fn execute(&self, turn: &WorkTurn<'_>) -> Result<Worked, WorkError> {
        let db = turn.db();
        let claiming = Claiming {
            uid: Uid::new(turn.key())?,
            owner: turn.owner().clone(),
            lease_ms: turn.lease_ms(),
        };
        let Some(claim) = commands::claim(db, &claiming)? else {
            return Ok(Worked::Nothing);
        };
        let claim = Arc::new(claim);
        turn.keep(claim.lease());
        // Once: a later call gives another signal, and only the last one is raised.
        let stop = turn.cancellation();
        let begun = db.clock().monotonic();
        let ended = self.pass(db, &claim, &stop);
        let end = PassEnd {
            duration_ms: db.clock().monotonic().since(begun),
            jitter: (self.jitter)(),
        };
        match write(db, &claim, ended, end) {
            Ok(()) => Ok(Worked::Done),
            Err(error) if error.claim_lost().is_some() => {
                tracing::info!(
                    resource = turn.key(),
                    "the claim of a pass was lost; whoever has it now goes on"
                );
                Ok(Worked::Done)
            }
            Err(error) => Err(error.into()),
        }
    }
}

impl Reconciler {
    /// Runs one pass and waits for it, at most until its time is over.
    fn pass(&self, db: &Database, claim: &Arc<PassClaim>, stop: &CancellationSignal) -> Ended {
        let resource = claim.resource().clone();
        let Some(controller) = self.registered.get(&resource.metadata.controller) else {
            return Ended::Failed(format!(
                "no controller {} is registered here any more",
                resource.metadata.controller
            ));
        };
        let host = ClaimHost::new(db, claim, &self.workflows, &self.options);
        let clock = &**db.clock();
        match &self.launcher {
            None => on_thread(clock, controller, resource, host, stop),
            Some(launcher) => {
                let isolated = Isolated {
                    launcher,
                    project: &self.project,
                    resource: &resource,
                    generation: claim.lease().generation(),
                    limit: controller.time_limit(),
                    host: &host,
                };
                in_process(&isolated, clock, stop)
            }
        }
    }
}

/// Writes how a pass ended.
fn write(
    db: &Database,
    claim: &PassClaim,
    ended: Ended,
    end: PassEnd,
) -> Result<(), ControllerError> {
    match ended {
        Ended::Proposed(proposal) => {
            let finished = commands::finish(db, claim, &proposal.patch, proposal.next, end)?;
            if let Finished::Failed { error, .. } = finished {
                tracing::warn!(resource = %claim.uid(), error, "the result of a pass can't be taken; the next one follows after a while");
            }
        }
        Ended::Failed(error) => {
            tracing::warn!(resource = %claim.uid(), error, "a pass failed; the next one follows after a while");
            commands::fail(db, claim, &error, end)?;
        }
        Ended::Stopped => {
            commands::hand_back(db, claim)?;
        }
    }
    Ok(())
}

/// What whoever waits for a pass is told.
enum Told {
    Ended(Result<Proposal, String>),
    Stop,
}

/// Runs a pass on a thread of its own.
fn on_thread(
    clock: &dyn Clock,
    controller: Arc<dyn AnyController>,
    resource: ManagedResource,
    host: ClaimHost,
    stop: &CancellationSignal,
) -> Ended {
    let limit = controller.time_limit();
    let source = CancellationSource::new();
    let signal = source.signal();
    let (sender, told) = channel();
    let stopping = sender.clone();
    let begun = clock.monotonic();
    let name = format!("holdpoint-pass-{}", resource.metadata.controller);
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        let pass = AssertUnwindSafe(|| controller.reconcile(&resource, &host, signal));
        let ended = match catch_unwind(pass) {
            Ok(Ok(proposal)) => Ok(proposal),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => Err(format!("the pass panicked: {}", panic_text(&*panic))),
        };
        // Nobody waits any more for a pass that took too long.
        drop(sender.send(Told::Ended(ended)));
    });
    if let Err(error) = spawned {
        return Ended::Failed(format!("no thread could be started for the pass: {error}"));
    }
    let _watch = stop.watch(move |_| drop(stopping.send(Told::Stop)));
    let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).max(1);
    loop {
        let left = limit_ms.saturating_sub(clock.monotonic().since(begun));
        if left == 0 {
            source.stop(StopReason::TimedOut);
            tracing::warn!(
                "a pass did not end in time; its thread is left behind, and what it writes from now on is refused"
            );
            return Ended::Failed(format!("the pass took longer than its {limit_ms} ms"));
        }
        match told.recv_timeout(LOOK.min(Duration::from_millis(left))) {
            Ok(Told::Ended(ended)) => return Ended::of(ended),
            Ok(Told::Stop) => {
                source.stop(StopReason::Cancelled);
                return last_words(&told);
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The thread is gone without a word, which it can't be.
            Err(RecvTimeoutError::Disconnected) => {
                return Ended::Failed("the pass ended without a result".to_owned());
            }
        }
    }
}

impl Ended {
    fn of(ended: Result<Proposal, String>) -> Self {
        match ended {
            Ok(proposal) => Self::Proposed(proposal),
            Err(problem) => Self::Failed(problem),
        }
    }
}

/// A pass that was told to stop may still end well. One that fails now fails since it was told to.
fn last_words(told: &Receiver<Told>) -> Ended {
    let begun = SystemClock.monotonic();
    loop {
        let left = STOP_GRACE_MS.saturating_sub(SystemClock.monotonic().since(begun));
        if left == 0 {
            return Ended::Stopped;
        }
        match told.recv_timeout(Duration::from_millis(left)) {
            Ok(Told::Ended(Ok(proposal))) => return Ended::Proposed(proposal),
            Ok(Told::Ended(Err(_))) | Err(RecvTimeoutError::Disconnected) => return Ended::Stopped,
            Ok(Told::Stop) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// What a panic said, as far as it said it in text.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is not text".to_owned())
}
