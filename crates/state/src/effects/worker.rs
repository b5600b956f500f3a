//! The outbox worker: takes what is due, lets its handler act, settles, and takes over what a dead owner left open.
//!
//! After a crash between act and receipt it observes; if it can't know, the effect is ambiguous and waits for a person. It is never
//! repeated blindly. Not here: rows and transitions (`records::effects::outbox`).
//!
//! Order: for one ordering key there are never two effects in flight, and they are settled in the order of their creation, also over
//! retry, restart and take-over. A failing effect holds back only its own key. A rejected one lets the next go on once it has no
//! attempt left; an ambiguous one holds its key until a person resolves it. Without a key there is no order to rely on.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use super::handler::{ApplyOutcome, EffectHandler, LocalHandler};
use super::options::{Pass, Stop, WorkerOptions, lock};
use crate::clock::{MonotonicMillis, UnixMillis};
use crate::command::{Actor, ActorKind};
use crate::database::Database;
use crate::error::StateError;
use crate::records::effects::outbox::{self, Candidate, Held, Taken, Taker};
use crate::records::effects::{EffectState, Observation, Settlement};
use crate::records::leases::{Claim, OwnerKind};
use crate::records::resources::ResourceKey;
use crate::schema::Reach;

/// How many candidates one look at the outbox reads.
const PAGE: u32 = 64;
/// How long a settlement waits before it is sent again to a store that was busy, in milliseconds.
const SETTLE_AGAIN_MS: u64 = 50;

enum Handler {
    External(Arc<dyn EffectHandler>),
    Local(Arc<dyn LocalHandler>),
}

/// Applies due effects with registered handlers.
///
/// ```
/// use holdpoint_state::effects::{ApplyOutcome, EffectCall, EffectHandler, EffectWorker, WorkerOptions};
/// use holdpoint_state::testing::TestStore;
///
/// struct Announce;
/// impl EffectHandler for Announce {
///     fn effect_type(&self) -> &'static str {
///         "counter.announce"
///     }
///     fn apply(&self, call: &EffectCall) -> ApplyOutcome {
///         // Send `call.payload`, with `call.effect_id` as the idempotency token.
///         ApplyOutcome::Applied { result: None, external_ref: None }
///     }
/// }
///
/// let store = TestStore::counters()?;
/// let worker = EffectWorker::new(store.db().clone(), WorkerOptions::default()).handler(Announce)?;
/// assert_eq!(worker.run_due_once()?.applied, 0);
/// # Ok::<(), holdpoint_state::StateError>(())
/// ```
pub struct EffectWorker {
    db: Database,
    options: WorkerOptions,
    taker: Taker,
    handlers: BTreeMap<&'static str, Handler>,
    progress: Mutex<Progress>,
}

impl std::fmt::Debug for EffectWorker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("EffectWorker")
            .field("options", &self.options)
            .field("handlers", &self.handlers.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Progress {
    /// Effects that a thread of this worker is busy with.
    busy: BTreeSet<ResourceKey>,
    /// How many of each type.
    in_flight: BTreeMap<&'static str, usize>,
    /// Effects whose handler or store failed without a trace: how often, and until when this process leaves them alone.
    resting: HashMap<ResourceKey, (u32, MonotonicMillis)>,
    pass: Pass,
}

/// An effect's place among those in flight, given back on drop.
struct Slot<'a> {
    worker: &'a EffectWorker,
    key: ResourceKey,
    effect_type: &'static str,
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut progress = lock(&self.worker.progress);
        progress.busy.remove(&self.key);
        if let Some(number) = progress.in_flight.get_mut(self.effect_type) {
            *number = number.saturating_sub(1);
        }
    }
}

enum Step<'a> {
    /// Nothing is due that this worker could take.
    Idle,
    /// Something was settled at once.
    Settled,
    /// An attempt is in flight.
    Act(Slot<'a>, Arc<dyn EffectHandler>, Box<Held>, Act),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Act {
    Apply,
    Observe,
}

/// What to write after an act.
enum Verdict {
    Settle(Settlement, Option<u64>),
    /// Nothing is known: the claim runs out, which is the back-off.
    Leave,
}

impl EffectWorker {
    /// A worker without handlers.
    pub fn new(db: Database, options: WorkerOptions) -> Self {
        let kind = match options.owner.kind() {
            OwnerKind::Session => ActorKind::Session,
            OwnerKind::Host => ActorKind::Host,
            OwnerKind::Controller => ActorKind::Controller,
            OwnerKind::Channel => ActorKind::Channel,
            OwnerKind::System => ActorKind::System,
        };
        let taker = Taker {
            owner: options.owner.clone(),
            actor: Actor::new(kind, options.owner.id()),
            lease_ms: i64::from(options.lease_ms),
        };
        Self {
            db,
            options,
            taker,
            handlers: BTreeMap::new(),
            progress: Mutex::new(Progress::default()),
        }
    }

    /// Adds the handler of an external effect type.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] unless a composed domain declares the type as external, or when it has a handler already.
    pub fn handler(self, handler: impl EffectHandler + 'static) -> Result<Self, StateError> {
        let effect_type = handler.effect_type();
        self.add(
            effect_type,
            Reach::External,
            Handler::External(Arc::new(handler)),
        )
    }

    /// Adds the handler of a local effect type.
    ///
    /// # Errors
    ///
    /// [`StateError::Input`] unless a composed domain declares the type as local, or when it has a handler already.
    pub fn local(self, handler: impl LocalHandler + 'static) -> Result<Self, StateError> {
        let effect_type = handler.effect_type();
        self.add(effect_type, Reach::Local, Handler::Local(Arc::new(handler)))
    }

    fn add(
        mut self,
        effect_type: &'static str,
        reach: Reach,
        handler: Handler,
    ) -> Result<Self, StateError> {
        let declared = self.db.schema().effect_type(effect_type);
        let problem = match declared {
            None => "no composed domain declares it",
            Some(kind) if kind.reach != reach => "it is declared with another reach",
            Some(_) if self.handlers.contains_key(effect_type) => "it has a handler already",
            Some(_) => {
                self.handlers.insert(effect_type, handler);
                return Ok(self);
            }
        };
        Err(StateError::Input {
            what: "effect type",
            problem: format!("{effect_type}: {problem}"),
        })
    }

    /// Applies everything that is due now, and returns when nothing of it is left.
    ///
    /// # Errors
    ///
    /// When the outbox can't be read. Failures of single effects are counted in the [`Pass`] and drop nothing.
    pub fn run_due_once(&self) -> Result<Pass, StateError> {
        lock(&self.progress).pass = Pass::default();
        let cutoff = self.db.clock().now();
        let results: Vec<_> = std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..self.options.concurrency.max(1))
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            match self.step(cutoff)? {
                                Step::Idle => return Ok::<_, StateError>(()),
                                Step::Settled => {}
                                Step::Act(slot, handler, held, act) => {
                                    self.perform(slot, &handler, &held, act);
                                }
                            }
                        }
                    })
                })
                .collect();
            lanes
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect()
        });
        for result in results {
            match result {
                Ok(done) => done?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(self.pass())
    }

    /// Applies what becomes due, until the signal. An error postpones; it never drops an effect and never ends the worker.
    pub fn run_until(&self, stop: &Stop) {
        std::thread::scope(|scope| {
            for _ in 0..self.options.concurrency.max(1) {
                scope.spawn(|| {
                    while !stop.is_stopped() {
                        match self.step(self.db.clock().now()) {
                            Ok(Step::Settled) => {}
                            Ok(Step::Act(slot, handler, held, act)) => {
                                self.perform(slot, &handler, &held, act);
                            }
                            Ok(Step::Idle) => stop.wait(u64::from(self.options.poll_ms)),
                            Err(error) => {
                                tracing::warn!(%error, "the outbox can't be read");
                                lock(&self.progress).pass.errors += 1;
                                stop.wait(u64::from(self.options.poll_ms));
                            }
                        }
                    }
                });
            }
        });
    }

    /// What this worker did since [`EffectWorker::run_due_once`] last began, or since it was made.
    pub fn pass(&self) -> Pass {
        lock(&self.progress).pass.clone()
    }

    /// Takes the first effect in the order of creation that was due at `cutoff` and that this worker may take.
    fn step(&self, cutoff: UnixMillis) -> Result<Step<'_>, StateError> {
        let mut after = outbox::FIRST;
        loop {
            let page = outbox::due(&self.db.snapshot()?.sql(), cutoff, after, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(Step::Idle);
            };
            after = last.key;
            for candidate in &page {
                let Some((slot, handler)) = self.slot(candidate) else {
                    continue;
                };
                match self.take(candidate, handler) {
                    Ok(Taken::Gone) => {}
                    Ok(Taken::Moot) => {
                        lock(&self.progress).pass.cancelled += 1;
                        return Ok(Step::Settled);
                    }
                    Ok(Taken::Done) => {
                        lock(&self.progress).pass.applied += 1;
                        return Ok(Step::Settled);
                    }
                    Ok(Taken::Begun(held)) => return Ok(act(slot, handler, held, Act::Apply)),
                    Ok(Taken::Orphan(held)) => return Ok(act(slot, handler, held, Act::Observe)),
                    Err(error) => self.rest(candidate, &error),
                }
            }
        }
    }

    fn slot(&self, candidate: &Candidate) -> Option<(Slot<'_>, &Handler)> {
        let mut progress = lock(&self.progress);
        let Some((effect_type, handler)) =
            self.handlers.get_key_value(candidate.effect_type.as_str())
        else {
            // Types that no domain declares are applied by the owner of their source.
            if self
                .db
                .schema()
                .effect_type(&candidate.effect_type)
                .is_some()
            {
                progress.pass.unknown.insert(candidate.effect_type.clone());
            }
            return None;
        };
        let claims_max = match handler {
            Handler::External(handler) => handler.claims_max(),
            Handler::Local(_) => usize::MAX,
        };
        let now = self.db.clock().monotonic();
        let rests = progress
            .resting
            .get(&candidate.key)
            .is_some_and(|(_, until)| now < *until);
        let in_flight = progress.in_flight.get(effect_type).copied().unwrap_or(0);
        if rests || claims_max <= in_flight || !progress.busy.insert(candidate.key) {
            return None;
        }
        progress.in_flight.insert(effect_type, in_flight + 1);
        let slot = Slot {
            worker: self,
            key: candidate.key,
            effect_type,
        };
        Some((slot, handler))
    }

    fn take(&self, candidate: &Candidate, handler: &Handler) -> Result<Taken, StateError> {
        let mut taker = self.taker.clone();
        let receipt = match handler {
            Handler::Local(handler) => {
                let command = outbox::apply_local_command(candidate, &taker);
                let handler = Arc::clone(handler);
                self.db.commit(command, move |change| {
                    outbox::apply_local(change, &taker, handler.as_ref())
                })
            }
            Handler::External(_) if candidate.state == EffectState::Applying => {
                // A provider that can't be asked leaves the claim to run out. It is asked less and less often.
                let claims = u32::try_from(candidate.generation).unwrap_or(u32::MAX);
                let wait_ms = self.options.back_off.raw_ms(claims);
                taker.lease_ms = taker.lease_ms.max(i64::from(wait_ms));
                let command = outbox::take_over_command(candidate, &taker);
                self.db
                    .commit(command, move |change| outbox::take_over(change, &taker))
            }
            Handler::External(handler) => {
                let command = outbox::begin_command(candidate, &taker);
                let handler = Arc::clone(handler);
                self.db.commit(command, move |change| {
                    outbox::begin(change, &taker, handler.as_ref())
                })
            }
        };
        lock(&self.progress)
            .resting
            .retain(|key, _| *key != candidate.key || receipt.is_err());
        Ok(receipt?.value)
    }

    /// Leaves an effect alone for a while, in this process only: its rows are as they were.
    fn rest(&self, candidate: &Candidate, error: &StateError) {
        tracing::warn!(effect = %candidate.effect_id, effect_type = candidate.effect_type, %error, "an effect could not be taken");
        let now = self.db.clock().monotonic();
        let unit = (self.options.jitter.0)();
        let mut progress = lock(&self.progress);
        progress.pass.errors += 1;
        let failures = progress
            .resting
            .get(&candidate.key)
            .map_or(0, |(failures, _)| *failures)
            + 1;
        let wait_ms = self
            .options
            .back_off
            .jittered_ms(failures, unit)
            .unsigned_abs();
        let until = MonotonicMillis(now.0.saturating_add(wait_ms));
        progress.resting.insert(candidate.key, (failures, until));
    }

    /// E4 to E6.
    fn perform(&self, slot: Slot<'_>, handler: &Arc<dyn EffectHandler>, held: &Held, act: Act) {
        let verdict = match act {
            Act::Observe => self.observe(handler.as_ref(), held, None),
            Act::Apply => match self.holding(&held.claim, || handler.apply(&held.call)) {
                Some(ApplyOutcome::Applied {
                    result,
                    external_ref,
                }) => Verdict::Settle(
                    Settlement::Applied {
                        result,
                        external_ref,
                    },
                    None,
                ),
                Some(ApplyOutcome::Rejected {
                    error,
                    retry_after_ms,
                }) => Verdict::Settle(Settlement::Rejected { error }, retry_after_ms),
                Some(ApplyOutcome::NotApplied { retry_after_ms }) => {
                    Verdict::Settle(Settlement::Interrupted, retry_after_ms)
                }
                Some(ApplyOutcome::Indeterminate { error }) => {
                    self.observe(handler.as_ref(), held, error)
                }
                None => self.observe(handler.as_ref(), held, Some("the handler panicked".into())),
            },
        };
        match verdict {
            Verdict::Leave => lock(&self.progress).pass.left += 1,
            Verdict::Settle(settlement, retry_after_ms) => {
                self.settle(handler, held, settlement, retry_after_ms);
            }
        }
        drop(slot);
    }

    /// Asks the provider about an attempt whose receipt is lost (effects reference, section 10).
    fn observe(&self, handler: &dyn EffectHandler, held: &Held, error: Option<String>) -> Verdict {
        let seen = self.holding(&held.claim, || handler.observe(&held.call));
        let settlement = match seen {
            Some(Observation::Applied {
                result,
                external_ref,
            }) => Settlement::Applied {
                result,
                external_ref,
            },
            Some(Observation::NotApplied) => Settlement::Interrupted,
            Some(Observation::Indeterminate | Observation::Unsupported) => {
                if handler.takes_token() || held.is_idempotent {
                    Settlement::Interrupted
                } else {
                    Settlement::Ambiguous { error }
                }
            }
            Some(Observation::Failed { .. }) | None => return Verdict::Leave,
        };
        Verdict::Settle(settlement, None)
    }

    /// Runs a handler on a thread of its own and renews the claim meanwhile. None when it panicked.
    fn holding<T: Send>(&self, claim: &Claim, work: impl FnOnce() -> T + Send) -> Option<T> {
        let third = Duration::from_millis(u64::from(self.options.lease_ms / 3).max(1));
        std::thread::scope(|scope| {
            let (ends, ended) = mpsc::channel::<()>();
            let thread = scope.spawn(move || {
                let _ends = ends;
                work()
            });
            // The sender is dropped when the handler returns or panics; nothing is ever sent.
            while ended.recv_timeout(third) == Err(mpsc::RecvTimeoutError::Timeout) {
                if matches!(self.db.renew(claim), Err(StateError::ClaimLost { .. })) {
                    break;
                }
            }
            thread.join().ok()
        })
    }

    fn settle(
        &self,
        handler: &Arc<dyn EffectHandler>,
        held: &Held,
        settlement: Settlement,
        retry_after_ms: Option<u64>,
    ) {
        let unit = (self.options.jitter.0)();
        let wait_ms = self.options.back_off.jittered_ms(held.attempt.number, unit);
        let wait_ms =
            wait_ms.max(retry_after_ms.map_or(0, |bound| i64::try_from(bound).unwrap_or(i64::MAX)));
        let call = Arc::new(held.call.clone());
        let settlement = Arc::new(settlement);
        loop {
            let command = outbox::settle_command(held, &settlement, &self.taker);
            let (attempt, settlement) = (held.attempt.clone(), Arc::clone(&settlement));
            let (handler, call) = (Arc::clone(handler), Arc::clone(&call));
            let settled = self.db.commit(command, move |change| {
                outbox::settle(
                    change,
                    &attempt,
                    &settlement,
                    wait_ms,
                    handler.as_ref(),
                    &call,
                )
            });
            let mut progress = lock(&self.progress);
            match settled {
                Ok(receipt) => {
                    let pass = &mut progress.pass;
                    match receipt.value {
                        EffectState::Applied => pass.applied += 1,
                        EffectState::Rejected => pass.rejected += 1,
                        EffectState::Ambiguous => pass.ambiguous += 1,
                        EffectState::Pending | EffectState::Applying | EffectState::Cancelled => {
                            pass.returned += 1;
                        }
                    }
                    return;
                }
                // Somebody else owns the effect, or a cancellation settled it. The act is for them to find.
                Err(
                    StateError::ClaimLost { .. }
                    | StateError::Conflict { .. }
                    | StateError::InvalidTransition { .. },
                ) => {
                    progress.pass.lost += 1;
                    return;
                }
                Err(error) => {
                    progress.pass.errors += 1;
                    drop(progress);
                    tracing::warn!(effect = %held.attempt.effect_id, %error, "a receipt could not be stored");
                    // The act may be done and its receipt is only here: it is worth waiting for, as long as the claim lives.
                    if matches!(error, StateError::Closed)
                        || held.claim.is_expired(self.db.clock().as_ref())
                    {
                        return;
                    }
                    Stop::new().wait(SETTLE_AGAIN_MS);
                }
            }
        }
    }
}

fn act<'a>(slot: Slot<'a>, handler: &Handler, held: Held, act: Act) -> Step<'a> {
    match handler {
        Handler::External(handler) => Step::Act(slot, Arc::clone(handler), Box::new(held), act),
        Handler::Local(_) => Step::Settled,
    }
}
