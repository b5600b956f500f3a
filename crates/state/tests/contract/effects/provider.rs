//! A handler that a test writes as closures, and short ways to a worker with it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use holdpoint_state::effects::{
    ApplyOutcome, EffectCall, EffectHandler, EffectWorker, Jitter, Observation, WorkerOptions,
};
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Database, EffectId, EffectState, NewEffect};

use super::probe::{create, run, store, touch, view};

pub(crate) type OnApply = dyn Fn(&EffectCall) -> ApplyOutcome + Send + Sync;
pub(crate) type OnObserve = dyn Fn(&EffectCall) -> Observation + Send + Sync;

/// A handler that a test writes as closures, and what it was asked.
#[derive(Clone)]
pub(crate) struct Provider {
    pub(crate) effect_type: &'static str,
    pub(crate) calls: Arc<Mutex<Vec<(EffectId, u32)>>>,
    pub(crate) observed: Arc<AtomicUsize>,
    pub(crate) on_apply: Arc<OnApply>,
    pub(crate) on_observe: Arc<OnObserve>,
    pub(crate) takes_token: bool,
    pub(crate) claims_max: usize,
}

impl Provider {
    pub(crate) fn new(
        on_apply: impl Fn(&EffectCall) -> ApplyOutcome + Send + Sync + 'static,
    ) -> Self {
        Self {
            effect_type: "probe.send",
            calls: Arc::default(),
            observed: Arc::default(),
            on_apply: Arc::new(on_apply),
            on_observe: Arc::new(|_| Observation::Unsupported),
            takes_token: false,
            claims_max: usize::MAX,
        }
    }

    pub(crate) fn observing(
        mut self,
        on_observe: impl Fn(&EffectCall) -> Observation + Send + Sync + 'static,
    ) -> Self {
        self.on_observe = Arc::new(on_observe);
        self
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    pub(crate) fn observed(&self) -> usize {
        self.observed.load(Ordering::SeqCst)
    }
}

impl EffectHandler for Provider {
    fn effect_type(&self) -> &'static str {
        self.effect_type
    }

    fn apply(&self, call: &EffectCall) -> ApplyOutcome {
        self.calls
            .lock()
            .unwrap()
            .push((call.effect_id.clone(), call.attempt));
        (self.on_apply)(call)
    }

    fn observe(&self, call: &EffectCall) -> Observation {
        self.observed.fetch_add(1, Ordering::SeqCst);
        (self.on_observe)(call)
    }

    fn takes_token(&self) -> bool {
        self.takes_token
    }

    fn claims_max(&self) -> usize {
        self.claims_max
    }
}

pub(crate) fn done() -> ApplyOutcome {
    ApplyOutcome::Applied {
        result: None,
        external_ref: Some("ref-1".into()),
    }
}

pub(crate) fn lost_answer() -> ApplyOutcome {
    ApplyOutcome::Indeterminate {
        error: Some("the connection broke".into()),
    }
}

pub(crate) fn not_now() -> ApplyOutcome {
    ApplyOutcome::NotApplied {
        retry_after_ms: None,
    }
}

pub(crate) fn options() -> WorkerOptions {
    WorkerOptions {
        jitter: Jitter::none(),
        ..WorkerOptions::default()
    }
}

pub(crate) fn worker(db: &Database, handler: impl EffectHandler + 'static) -> EffectWorker {
    EffectWorker::new(db.clone(), options())
        .handler(handler)
        .unwrap()
}

/// A store with a run that has reserved one effect.
pub(crate) fn reserved(effect: &NewEffect) -> (TestStore, EffectId) {
    let store = store();
    create(store.db(), &run("run-1"));
    let id = reserve(store.db(), effect);
    (store, id)
}

pub(crate) fn reserve(db: &Database, effect: &NewEffect) -> EffectId {
    let effect = effect.clone();
    touch(db, &run("run-1"), move |change| {
        change.reserve_effect(&effect)
    })
    .unwrap()
    .effect_id
}

/// A worker that acts and dies before it can store the receipt: its answer is lost and the provider can't be asked.
pub(crate) fn crash_after_the_call(store: &TestStore, id: &EffectId) {
    let dying = Provider::new(|_| lost_answer()).observing(|_| Observation::Failed {
        error: "network".into(),
    });
    let pass = worker(store.db(), dying).run_due_once().unwrap();
    assert_eq!((pass.left, pass.applied), (1, 0));
    assert_eq!(view(store.db(), id).state, EffectState::Applying);
}
