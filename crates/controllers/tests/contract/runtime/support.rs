//! A store, a scheduler and a controller whose pass a test brings.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdpoint_controllers::model::{EffectRecord, EffectRequest, ManagedResource, Uid};
use holdpoint_controllers::views::QueueView;
use holdpoint_controllers::{
    Action, Controller, Controllers, DOMAIN, ExternalEffect, ManagedBy, Pass, PassError, views,
};
use holdpoint_state::clock::ManualClock;
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Database, Event};
use holdpoint_workflows::definition::CancellationSignal;
use holdpoint_workflows::{Scheduler, SchedulerOptions, WorkerLauncher, Workflows};
use serde_json::{Value, json};

/// Longer than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) type Seen<'a> = Pass<'a, Value, Value>;
type Body = dyn Fn(&mut Seen<'_>) -> Result<Action, PassError> + Send + Sync;

type Rebuild = dyn Fn(&EffectRequest) -> Option<Box<dyn ExternalEffect>> + Send + Sync;

/// A controller whose pass a test brings.
pub(crate) struct Scripted {
    effect: Option<Box<Rebuild>>,
    limit: Duration,
    body: Box<Body>,
    passes: Arc<AtomicU64>,
}

impl Scripted {
    pub(crate) fn new(
        body: impl Fn(&mut Seen<'_>) -> Result<Action, PassError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            effect: None,
            limit: Duration::from_mins(1),
            body: Box::new(body),
            passes: Arc::default(),
        }
    }

    /// With a way to make an effect of what was stored of it.
    pub(crate) fn rebuilding(
        mut self,
        effect: impl Fn(&EffectRequest) -> Option<Box<dyn ExternalEffect>> + Send + Sync + 'static,
    ) -> Self {
        self.effect = Some(Box::new(effect));
        self
    }

    pub(crate) fn limited(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

impl Controller for Scripted {
    type Spec = Value;
    type Status = Value;

    fn name(&self) -> &'static str {
        "scripted"
    }

    fn initial_status(&self, _spec: &Value) -> Value {
        json!({ "seen": 0 })
    }

    fn reconcile(&self, pass: &mut Seen<'_>) -> Result<Action, PassError> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        (self.body)(pass)
    }

    fn effect(&self, request: &EffectRequest) -> Option<Box<dyn ExternalEffect>> {
        self.effect.as_ref().and_then(|effect| effect(request))
    }

    fn time_limit(&self) -> Duration {
        self.limit
    }
}

/// One resource under the key `one`, and what executes its passes.
pub(crate) struct World {
    // Before the store, whose threads it uses.
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) controllers: Controllers,
    pub(crate) workflows: Workflows,
    pub(crate) store: TestStore,
    passes: Arc<AtomicU64>,
}

/// So slow a poll that nothing is found by it.
pub(crate) fn options(workers: usize) -> SchedulerOptions {
    SchedulerOptions {
        workers,
        poll_interval_ms: 3_600_000,
        ..SchedulerOptions::default()
    }
}

impl World {
    /// Everything but the scheduler.
    pub(crate) fn new(scripted: Scripted) -> Self {
        let store = TestStore::new([holdpoint_workflows::DOMAIN, DOMAIN]).unwrap();
        Self::on(store, scripted, None)
    }

    /// With passes in worker processes.
    pub(crate) fn isolated(scripted: Scripted, launcher: WorkerLauncher) -> Self {
        let store = TestStore::new([holdpoint_workflows::DOMAIN, DOMAIN]).unwrap();
        Self::on(store, scripted, Some(launcher))
    }

    fn on(store: TestStore, scripted: Scripted, launcher: Option<WorkerLauncher>) -> Self {
        let workflows = Workflows::new(store.db().clone());
        let passes = Arc::clone(&scripted.passes);
        let controllers = Controllers::new(&workflows, "/srv/app")
            .unwrap()
            .jittering_with(|| 0.5)
            .register(scripted)
            .unwrap();
        let controllers = match launcher {
            Some(launcher) => controllers.isolating(launcher),
            None => controllers,
        };
        let workflows = controllers.attach(workflows);
        Self {
            scheduler: None,
            controllers,
            workflows,
            store,
            passes,
        }
    }

    /// With the scheduler running.
    pub(crate) fn running(scripted: Scripted) -> Self {
        let mut world = Self::new(scripted);
        world.start(options(4));
        world
    }

    pub(crate) fn start(&mut self, options: SchedulerOptions) {
        self.scheduler = Some(self.workflows.scheduler(options).unwrap());
    }

    pub(crate) fn db(&self) -> &Database {
        self.store.db()
    }

    pub(crate) fn clock(&self) -> &ManualClock {
        self.store.clock()
    }

    /// Lets time pass, and the scheduler know.
    pub(crate) fn pass_time(&self, ms: u64) {
        self.clock().advance(ms);
        self.workflows.wake_work();
    }

    pub(crate) fn apply(&self, spec: &Value) -> Uid {
        self.controllers
            .apply::<Scripted>("one", spec)
            .unwrap()
            .value
            .uid
    }

    pub(crate) fn found(&self) -> Option<ManagedBy<Scripted>> {
        self.controllers.get::<Scripted>("one").unwrap()
    }

    pub(crate) fn resource(&self) -> ManagedResource {
        self.found().unwrap().resource
    }

    pub(crate) fn uid(&self) -> Uid {
        self.resource().metadata.uid
    }

    /// Waits until nothing is to do.
    pub(crate) fn settle(&self) {
        let scheduler = self.scheduler.as_ref().unwrap();
        assert!(scheduler.wait_until_idle(LONG), "it does not become idle");
    }

    pub(crate) fn passes(&self) -> u64 {
        self.passes.load(Ordering::SeqCst)
    }

    pub(crate) fn queue(&self) -> Option<QueueView> {
        views::queue(&self.db().snapshot().unwrap(), &self.uid()).unwrap()
    }

    pub(crate) fn last_error(&self) -> String {
        self.queue().unwrap().last_error.unwrap()
    }

    pub(crate) fn effects(&self) -> Vec<EffectRecord> {
        views::effects(&self.db().snapshot().unwrap(), &self.uid()).unwrap()
    }

    pub(crate) fn history(&self, uid: &Uid) -> Vec<Event> {
        let snapshot = self.db().snapshot().unwrap();
        snapshot.events_of(&uid.resource(), 0, 1_000).unwrap()
    }

    /// The events of the resource, in order, without those of leases.
    pub(crate) fn events(&self, uid: &Uid) -> Vec<String> {
        let history = self.history(uid).into_iter();
        let names = history.map(|event| event.event_type);
        names.filter(|name| name != "lease.claimed").collect()
    }

    pub(crate) fn verify(&self) {
        let report = self.db().verify().unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Waits for something that comes.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let never = CancellationSignal::never();
    for _ in 0..15_000 {
        if is_so() {
            return;
        }
        never.wait(Duration::from_millis(2));
    }
    panic!("{what} did not come");
}

/// A place where a pass waits until the test lets it go on.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<(u64, u64)>, std::sync::Condvar)>);

impl Gate {
    /// Waits here. It is counted.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.0 += 1;
        let place = state.0;
        changed.notify_all();
        drop(
            changed
                .wait_timeout_while(state, LONG, |state| state.1 < place)
                .unwrap(),
        );
    }

    /// Waits until so many came here, at any time.
    pub(crate) fn wait_for(&self, count: u64) {
        let (state, changed) = &*self.0;
        let waited =
            changed.wait_timeout_while(state.lock().unwrap(), LONG, |state| state.0 < count);
        assert!(!waited.unwrap().1.timed_out(), "nobody came to the gate");
    }

    /// Lets the first so many go on.
    pub(crate) fn open(&self, count: u64) {
        let (state, changed) = &*self.0;
        state.lock().unwrap().1 = count;
        changed.notify_all();
    }
}
