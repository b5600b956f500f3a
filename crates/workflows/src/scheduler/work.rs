//! Work of other domains that shares the workers of a scheduler with runs, and takes turns with them.
//!
//! Each kind of work has one thread that searches for what is due, level-based as the sweep of runs; what it finds is executed by the
//! workers, one item at a time each. The store says what is due: a call too many changes nothing, and a lost wake-up postpones an item
//! and never loses it. Not here: whose turn it is and what was found (`hub`), what is due (the domain), what needs no worker (`duties`).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use holdpoint_state::clock::{MonotonicMillis, UnixMillis};
use holdpoint_state::{Claim, Database, Owner, StateError};

use super::Shared;
use super::hub::{Item, Left, Line, Searched, chance};
use crate::definition::CancellationSignal;
use crate::engine::{Signals, Stop, panic_text};

/// Work of a domain that needs a worker, as a run does: a kind of work, whose items are executed one by one.
///
/// A program adds it by [`Workflows::with_work`](crate::Workflows::with_work()). Its items and the runs share the
/// [`workers`](crate::SchedulerOptions::workers) of the scheduler; while several kinds wait for a worker, each is launched in its turn,
/// runs being one of them. Several processes may find and execute the same item at the same time, so that an execution begins with a
/// claim of its own.
///
/// ```
/// use std::sync::Mutex;
/// use std::time::Duration;
///
/// use holdpoint_state::Database;
/// use holdpoint_state::clock::UnixMillis;
/// use holdpoint_state::testing::TestStore;
/// use holdpoint_workflows::{DOMAIN, DueWork, SchedulerOptions, Work, WorkError, WorkTurn, Worked, Workflows};
///
/// /// Names that somebody has to greet; a domain has them in its tables.
/// struct Greetings(Mutex<Vec<String>>);
///
/// impl Work for Greetings {
///     fn name(&self) -> &str {
///         "greetings"
///     }
///
///     fn find(&self, _db: &Database, _now: UnixMillis, limit: usize) -> Result<DueWork, WorkError> {
///         let waiting = self.0.lock().map_err(|_| "poisoned")?;
///         Ok(DueWork { keys: waiting.iter().take(limit).cloned().collect(), next_due: None })
///     }
///
///     fn execute(&self, turn: &WorkTurn<'_>) -> Result<Worked, WorkError> {
///         // A domain claims the item here, and commits under its claim.
///         let mut waiting = self.0.lock().map_err(|_| "poisoned")?;
///         let before = waiting.len();
///         waiting.retain(|name| name != turn.key());
///         Ok(if waiting.len() < before { Worked::Done } else { Worked::Nothing })
///     }
/// }
///
/// let store = TestStore::new([DOMAIN])?;
/// let greetings = std::sync::Arc::new(Greetings(Mutex::new(vec!["Ada".to_owned(), "Grace".to_owned()])));
/// let workflows = Workflows::new(store.db().clone()).with_work(greetings.clone());
/// let scheduler = workflows.scheduler(SchedulerOptions::default())?;
/// assert!(scheduler.wait_until_idle(Duration::from_secs(30)));
/// assert!(greetings.0.lock().is_ok_and(|waiting| waiting.is_empty()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Work: Send + Sync + 'static {
    /// Its name, for the log.
    fn name(&self) -> &str;

    /// Reads what is due at `now`: at most `limit` items, in the order in which they should be executed.
    ///
    /// It is called when the scheduler starts, when the time comes that the last call named, after each item of this kind, after runs
    /// were executed here, when [`Workflows::wake_work`](crate::Workflows::wake_work()) says that something was made due, and at each
    /// poll interval, for what other processes did. It runs on a thread of its own and comes to an end by itself. What somebody holds a
    /// live lease of is not due.
    ///
    /// # Errors
    ///
    /// Anything. It is logged, and the search is made again after a back-off.
    fn find(&self, db: &Database, now: UnixMillis, limit: usize) -> Result<DueWork, WorkError>;

    /// Executes one item on a worker, beginning with its claim. It ends soon after its [cancellation](WorkTurn::cancellation()).
    ///
    /// # Errors
    ///
    /// Anything that the domain could not record itself. It is logged, and the item is left alone for a back-off, as after a panic.
    fn execute(&self, turn: &WorkTurn<'_>) -> Result<Worked, WorkError>;
}

/// Why work could not be found or executed.
pub type WorkError = Box<dyn std::error::Error + Send + Sync>;

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DueWork {
    /// The items that are due. A key is the domain's own name of an item, such as a resource's.
    pub keys: Vec<String>,
    /// When another item becomes due, as far as is known: a time, or the end of a lease.
    pub next_due: Option<UnixMillis>,
}

/// What the execution of an item came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worked {
    /// Something was committed; the item may be due again, and runs may be.
    Done,
    /// There was nothing to do: another process was faster, or the item is not due any more.
    Nothing,
}

/// One item while a worker executes it.
#[derive(Debug)]
pub struct WorkTurn<'a> {
    db: &'a Database,
    owner: &'a Owner,
    lease_ms: i64,
    item: &'a Item,
}

impl WorkTurn<'_> {
    /// The store.
    pub fn db(&self) -> &Database {
        self.db
    }

    /// Which item it is.
    pub fn key(&self) -> &str {
        &self.item.key
    }

    /// The owner that this scheduler announced. What is claimed under it may be taken by others as soon as this process is dead.
    pub fn owner(&self) -> &Owner {
        self.owner
    }

    /// How long a claim lasts that the scheduler renews, in milliseconds: see [`WorkTurn::keep`].
    pub fn lease_ms(&self) -> i64 {
        self.lease_ms
    }

    /// Lets the scheduler renew a claim until this turn ends, at a third of [`WorkTurn::lease_ms`]. When it is lost, the turn is
    /// cancelled. Releasing it is the domain's.
    pub fn keep(&self, claim: &Arc<Claim>) {
        self.item.holds.claims().push(Arc::clone(claim));
    }

    /// Says that the turn should end: its claim is lost, or the scheduler stops and its patience is over.
    pub fn cancellation(&self) -> CancellationSignal {
        self.item.holds.signals.begin_node().signal()
    }
}

/// What an item holds while it is executed.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    pub(crate) signals: Signals,
    claims: Mutex<Vec<Arc<Claim>>>,
}

impl Holds {
    fn claims(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Claim>>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the same is likely to succeed soon, as with a busy store.
fn is_passing(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<StateError>() {
            return error.is_retryable();
        }
        cause = error.source();
    }
    false
}

impl Shared {
    /// Executes one item.
    pub(super) fn work_on(&self, item: &Item) {
        let Some(work) = self.works.get(item.kind) else {
            return;
        };
        let turn = WorkTurn {
            db: &self.runner.db,
            owner: &self.runner.owner,
            lease_ms: self.options.lease_ms,
            item,
        };
        // The code is another domain's. When it panics the worker goes on, and the item is no longer executed.
        let left = match catch_unwind(AssertUnwindSafe(|| work.execute(&turn))) {
            Ok(Ok(Worked::Done)) => Left::Done,
            Ok(Ok(Worked::Nothing)) => Left::Nothing,
            Ok(Err(error)) => {
                tracing::warn!(work = work.name(), key = item.key, error = %error, "an item could not be executed; it is tried again later");
                if is_passing(&*error) {
                    Left::Interrupted
                } else {
                    Left::Failed
                }
            }
            Err(panic) => {
                let problem = panic_text(&*panic);
                tracing::error!(
                    work = work.name(),
                    key = item.key,
                    problem,
                    "the execution of an item panicked"
                );
                Left::Failed
            }
        };
        self.hub.give_back_item(item, left, self.options.back_off);
    }

    /// Searches for work of one kind until the scheduler stops.
    pub(super) fn search_for(&self, kind: usize) {
        let Some(work) = self.works.get(kind) else {
            return;
        };
        let poll = self.options.poll_interval_ms;
        let batch = Line::batch(self.options.workers);
        let clock = self.runner.db.clock();
        let (mut wait, mut errors) = (poll, 0_u32);
        // After an error: until when the domain is left alone, and whether that is waited for.
        let mut held: Option<(MonotonicMillis, bool)> = None;
        while let Some(known) = self.hub.wait_for_search(kind, wait) {
            if let Some((until, passes)) = held
                && clock.monotonic().0 < until.0
            {
                // Somebody wants to know, and the answer is that of the error.
                self.hub.searched(kind, Searched::Failed { passes });
                wait = until.0.saturating_sub(clock.monotonic().0).clamp(1, poll);
                continue;
            }
            let now = clock.now();
            let limit = batch.saturating_add(known);
            let found = catch_unwind(AssertUnwindSafe(|| work.find(&self.runner.db, now, limit)));
            let found = found.unwrap_or_else(|panic| {
                Err(format!("it panicked: {}", panic_text(&*panic)).into())
            });
            match found {
                Ok(DueWork { keys, next_due }) => {
                    (errors, held) = (0, None);
                    let found = Searched::Found { keys, limit, batch };
                    let retry = self.hub.searched(kind, found);
                    let until_due = next_due.map_or(u64::MAX, |at| {
                        // What is due and was not listed is no reason to turn on the spot.
                        if at <= now {
                            Line::PAUSE_MS
                        } else {
                            at.since(now).unsigned_abs()
                        }
                    });
                    wait = poll.min(until_due).min(retry.unwrap_or(u64::MAX)).max(1);
                }
                Err(error) => {
                    errors = errors.saturating_add(1);
                    let retry = self.options.back_off.jittered_ms(errors, chance());
                    let retry = retry.unsigned_abs();
                    tracing::warn!(work = work.name(), error = %error, retry_in_ms = retry, "work could not be searched for");
                    let passes = is_passing(&*error) && Line::is_patient(errors);
                    let until = MonotonicMillis(clock.monotonic().0.saturating_add(retry));
                    held = Some((until, passes));
                    self.hub.searched(kind, Searched::Failed { passes });
                    wait = retry.clamp(1, poll);
                }
            }
        }
    }

    /// Renews what the items hold that are executed.
    pub(super) fn renew_items(&self) {
        for holds in self.hub.held() {
            let claims = holds.claims().clone();
            for claim in claims {
                if self.is_lost(&claim) {
                    holds.signals.stop(Stop::Lost);
                }
            }
        }
    }
}
