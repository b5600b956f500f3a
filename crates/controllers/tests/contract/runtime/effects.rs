//! K10 from the side of a pass: one act, never twice unseen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdpoint_controllers::model::EffectOutcome;
use holdpoint_controllers::{
    Acted, Action, ControllerError, EffectCall, ExternalEffect, Observed, PassError, finalizer,
};
use holdpoint_state::effects::{Decision, Resolution};
use holdpoint_state::{Actor, effects};
use serde_json::{Value, json};

use super::support::{Gate, Scripted, World, options, wait_for};

/// A system on which effects are done, and what it was asked.
#[derive(Default)]
pub(crate) struct Provider {
    applied: AtomicU64,
    observed: AtomicU64,
    /// The ids of effects, as it was told them.
    tokens: Mutex<Vec<String>>,
}

impl Provider {
    fn calls(&self) -> (u64, u64) {
        (
            self.applied.load(Ordering::SeqCst),
            self.observed.load(Ordering::SeqCst),
        )
    }
}

type Apply = dyn Fn() -> Result<Acted, PassError>;
type Observe = dyn Fn() -> Result<Observed, PassError>;

/// An effect that answers as a test says.
pub(crate) struct Recorded {
    key: String,
    kind: &'static str,
    request: Value,
    provider: Arc<Provider>,
    apply: Box<Apply>,
    observe: Box<Observe>,
}

impl Recorded {
    pub(crate) fn new(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            kind: "test.act",
            request: json!({ "a": 1 }),
            provider: Arc::default(),
            apply: Box::new(|| Ok(Acted::applied_as("ref-1"))),
            observe: Box::new(|| Ok(Observed::NotApplied)),
        }
    }

    fn on(mut self, provider: &Arc<Provider>) -> Self {
        self.provider = Arc::clone(provider);
        self
    }

    pub(crate) fn applying(
        mut self,
        apply: impl Fn() -> Result<Acted, PassError> + 'static,
    ) -> Self {
        self.apply = Box::new(apply);
        self
    }

    fn observing(mut self, observe: impl Fn() -> Result<Observed, PassError> + 'static) -> Self {
        self.observe = Box::new(observe);
        self
    }
}

impl ExternalEffect for Recorded {
    fn kind(&self) -> &str {
        self.kind
    }

    fn key(&self) -> String {
        self.key.clone()
    }

    fn request(&self) -> Value {
        self.request.clone()
    }

    fn observe(&self, call: &EffectCall<'_>) -> Result<Observed, PassError> {
        self.provider.observed.fetch_add(1, Ordering::SeqCst);
        self.provider
            .tokens
            .lock()
            .unwrap()
            .push(call.effect_id.to_string());
        (self.observe)()
    }

    fn apply(&self, call: &EffectCall<'_>) -> Result<Acted, PassError> {
        self.provider.applied.fetch_add(1, Ordering::SeqCst);
        self.provider
            .tokens
            .lock()
            .unwrap()
            .push(call.effect_id.to_string());
        (self.apply)()
    }
}

fn error<T>(result: Result<T, PassError>) -> PassError {
    result.err().unwrap()
}

#[test]
fn an_effect_is_done_once_whatever_passes_come() {
    let provider = Arc::new(Provider::default());
    let acting = Arc::clone(&provider);
    let world = World::running(Scripted::new(move |pass| {
        let record = pass.ensure(&Recorded::new("one").on(&acting))?;
        assert_eq!(record.state, EffectOutcome::Applied);
        assert_eq!(record.external_ref.as_deref(), Some("ref-1"));
        Ok(Action::settled())
    }));
    let uid = world.apply(&json!(1));
    world.settle();
    world.controllers.hint::<Scripted>("one", None).unwrap();
    world.settle();
    assert_eq!((world.passes(), provider.calls()), (2, (1, 0)));
    let events = world.events(&uid);
    assert_eq!(
        events,
        [
            "resource.created",
            "effect_started",
            "effect_settled",
            "reconcile_finished",
            "reconcile_finished"
        ]
    );
    world.verify();
}

#[test]
fn controller_23_a_second_effect_fails_the_pass_and_the_first_receipt_stays() {
    let provider = Arc::new(Provider::default());
    let acting = Arc::clone(&provider);
    let world = World::running(Scripted::new(move |pass| {
        pass.ensure(&Recorded::new("one").on(&acting))?;
        // Who swallows the error fails all the same.
        let second = error(pass.ensure(&Recorded::new("two").on(&acting)));
        assert!(
            second.to_string().contains("a pass has one effect"),
            "{second}"
        );
        pass.set_status(json!("swallowed"));
        Ok(Action::settled())
    }));
    let uid = world.apply(&json!(1));
    world.settle();
    assert!(world.last_error().contains("a pass has one effect"));
    let effects = world.effects();
    assert_eq!(effects.len(), 1);
    assert_eq!(
        (effects[0].key.as_str(), effects[0].state),
        ("one", EffectOutcome::Applied)
    );
    assert_eq!(provider.calls(), (1, 0));
    assert_eq!(world.found().unwrap().status, json!({ "seen": 0 }));
    assert_eq!(world.events(&uid).last().unwrap(), "reconcile_failed");
    world.verify();
}

/// What differs from the wish that the key was used for before.
fn difference(refused: Option<PassError>) -> Option<&'static str> {
    match refused?.downcast_ref::<ControllerError>() {
        Some(ControllerError::RequestConflict { difference, .. }) => Some(*difference),
        _ => None,
    }
}

#[test]
fn controller_24_the_same_key_with_another_request_or_kind_is_a_conflict_and_no_call() {
    let provider = Arc::new(Provider::default());
    let acting = Arc::clone(&provider);
    let world = World::running(Scripted::new(move |pass| {
        let mut effect = Recorded::new("one").on(&acting);
        let next = match pass.status().as_str() {
            None => {
                pass.ensure(&effect)?;
                "request"
            }
            Some("request") => {
                effect.request = json!({ "a": 2 });
                assert_eq!(difference(pass.ensure(&effect).err()), Some("request"));
                "kind"
            }
            _ => {
                effect.kind = "test.other";
                assert_eq!(difference(pass.ensure(&effect).err()), Some("kind"));
                pass.set_status(json!("done"));
                return Ok(Action::settled());
            }
        };
        pass.set_status(json!(next));
        Ok(Action::requeue())
    }));
    world.apply(&json!(1));
    world.settle();
    assert_eq!(world.found().unwrap().status, json!("done"));
    assert_eq!(provider.calls(), (1, 0));
    world.verify();
}

#[test]
fn controller_25_the_same_key_in_another_generation_is_a_conflict_and_no_call() {
    let provider = Arc::new(Provider::default());
    let acting = Arc::clone(&provider);
    let world = World::running(Scripted::new(move |pass| {
        let ensured = pass.ensure(&Recorded::new("one").on(&acting));
        pass.set_status(json!(difference(ensured.err())));
        Ok(Action::settled())
    }));
    for (spec, differs) in [(1, json!(null)), (2, json!("generation"))] {
        world.apply(&json!(spec));
        world.settle();
        assert_eq!(world.found().unwrap().status, differs);
    }
    assert_eq!(provider.calls(), (1, 0));
    world.verify();
}

/// A pass that never comes back from its act, and the passes after it.
fn left_open(
    after: impl Fn(Recorded) -> Recorded + Send + Sync + 'static,
) -> (World, Arc<Provider>, Gate) {
    let provider = Arc::new(Provider::default());
    let (acting, gate) = (Arc::clone(&provider), Gate::default());
    let place = gate.clone();
    let is_first = AtomicBool::new(true);
    let mut world = World::new(
        Scripted::new(move |pass| {
            let effect = Recorded::new("one").on(&acting);
            let effect = if is_first.swap(false, Ordering::SeqCst) {
                let place = place.clone();
                effect.applying(move || {
                    place.pass();
                    Ok(Acted::applied_as("late"))
                })
            } else {
                after(effect)
            };
            let record = pass.ensure(&effect)?;
            pass.set_status(json!({ "state": record.state, "ref": record.external_ref }));
            Ok(Action::settled())
        })
        .limited(Duration::from_secs(5)),
    );
    world.start(options(2));
    let uid = world.apply(&json!(1));
    gate.wait_for(1);
    world.pass_time(5_000);
    wait_for("the failure", || {
        world.events(&uid).last().unwrap() == "reconcile_failed"
    });
    world.pass_time(1_000);
    world.settle();
    (world, provider, gate)
}

#[test]
fn controller_26_what_was_seen_to_be_done_is_adopted_without_a_second_call() {
    let (world, provider, gate) =
        left_open(|effect| effect.observing(|| Ok(Observed::applied_as("seen"))));
    assert_eq!(provider.calls(), (1, 1));
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "applied", "ref": "seen" })
    );
    assert!(
        world
            .events(&world.uid())
            .contains(&"effect_recovered".to_owned())
    );
    // One effect has one token, also when it is asked about.
    let tokens = provider.tokens.lock().unwrap().clone();
    assert_eq!(tokens[0], tokens[1]);
    // The receipt of the late call changes nothing.
    gate.open(1);
    world.settle();
    assert_eq!(world.effects()[0].external_ref.as_deref(), Some("seen"));
    world.verify();
}

#[test]
fn what_was_seen_not_to_be_done_is_done_in_a_new_attempt() {
    let (world, provider, gate) = left_open(|effect| effect);
    assert_eq!(provider.calls(), (2, 1));
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "applied", "ref": "ref-1" })
    );
    gate.open(1);
    world.settle();
    assert_eq!(world.effects()[0].external_ref.as_deref(), Some("ref-1"));
    world.verify();
}

#[test]
fn controller_27_what_nobody_can_know_is_indeterminate_and_the_result_of_the_pass_counts() {
    let (world, provider, gate) =
        left_open(|effect| effect.observing(|| Ok(Observed::Indeterminate)));
    assert_eq!(provider.calls(), (1, 1));
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "indeterminate", "ref": null })
    );
    gate.open(1);
    // It is asked again by each pass that needs it, and never acted on.
    world.controllers.hint::<Scripted>("one", None).unwrap();
    world.settle();
    assert_eq!(provider.calls(), (1, 2));
    // A person's word wakes the resource, and is what the next pass finds.
    let effect = world.effects().remove(0);
    let view = effects::fetch(&world.db().snapshot().unwrap(), &effect.effect_id)
        .unwrap()
        .unwrap();
    let told = Resolution {
        effect_id: effect.effect_id,
        attempt_number: view.attempts,
        expected_revision: view.revision,
        idempotency_key: "word".to_owned(),
        actor: Actor::human("ada"),
        decision: Decision::Confirm {
            receipt: None,
            external_ref: Some("told".to_owned()),
        },
    };
    effects::resolve(world.db(), told).unwrap();
    world.workflows.wake_work();
    world.settle();
    assert_eq!(
        world.found().unwrap().status,
        json!({ "state": "applied", "ref": "told" })
    );
    assert_eq!(provider.calls(), (1, 2));
    world.verify();
}

#[test]
fn controller_28_an_observation_that_fails_fails_the_pass_and_changes_nothing() {
    let (world, provider, gate) =
        left_open(|effect| effect.observing(|| Err(PassError::new("the network is down"))));
    assert_eq!(provider.calls(), (1, 1));
    assert_eq!(
        world.last_error(),
        "what became of test.act could not be seen: the network is down"
    );
    assert_eq!(world.effects()[0].state, EffectOutcome::Pending);
    assert_eq!(world.found().unwrap().status, json!({ "seen": 0 }));
    gate.open(1);
    world.verify();
}

#[test]
fn an_act_that_fails_or_panics_may_have_happened() {
    let provider = Arc::new(Provider::default());
    let acting = Arc::clone(&provider);
    let world = World::running(Scripted::new(move |pass| {
        let spec = pass.spec().as_str().unwrap().to_owned();
        let effect = Recorded::new(&spec).on(&acting);
        let record = pass.ensure(&effect.applying(move || match spec.as_str() {
            "error" => Err(PassError::new("the answer was lost")),
            "panic" => panic!("a bug"),
            _ => Ok(Acted::rejected("it is forbidden")),
        }))?;
        pass.set_status(json!(record.state));
        Ok(Action::settled())
    }));
    world.apply(&json!("error"));
    world.settle();
    assert_eq!(world.found().unwrap().status, json!("indeterminate"));
    world.apply(&json!("rejected"));
    world.settle();
    assert_eq!(world.found().unwrap().status, json!("rejected"));
    world.apply(&json!("panic"));
    world.settle();
    assert_eq!(world.last_error(), "the pass panicked: a bug");
    let states: Vec<_> = world.effects().iter().map(|effect| effect.state).collect();
    let expected = [
        EffectOutcome::Indeterminate,
        EffectOutcome::Rejected,
        EffectOutcome::Indeterminate,
    ];
    assert_eq!(states, expected);
    assert_eq!(provider.calls(), (3, 0));
    world.verify();
}

/// A pass never comes back from its act; then the spec is changed, so that no pass names that act again.
#[test]
fn what_an_older_generation_left_open_is_looked_at_and_stands_against_nothing() {
    for (is_done, then) in [
        (true, EffectOutcome::Applied),
        (false, EffectOutcome::Rejected),
    ] {
        let provider = Arc::new(Provider::default());
        let (acting, looking) = (Arc::clone(&provider), Arc::clone(&provider));
        let gate = Gate::default();
        let place = gate.clone();
        let scripted = Scripted::new(move |pass| {
            let place = place.clone();
            let is_first = pass.generation() == 1;
            let effect = Recorded::new(&format!("write-{}", pass.generation())).on(&acting);
            let record = pass.ensure(&effect.applying(move || {
                if is_first {
                    place.pass();
                }
                Ok(Acted::applied())
            }))?;
            pass.set_status(json!(record.key));
            Ok(Action::settled())
        });
        let scripted = scripted.rebuilding(move |request| {
            assert_eq!(request.request, json!({ "a": 1 }));
            let effect = Recorded::new(request.key.as_str()).on(&looking);
            Some(Box::new(effect.observing(move || {
                Ok(if is_done {
                    Observed::applied()
                } else {
                    Observed::NotApplied
                })
            })))
        });
        let mut world = World::new(scripted.limited(Duration::from_secs(5)));
        world.start(options(2));
        let uid = world.apply(&json!(1));
        gate.wait_for(1);
        world.pass_time(5_000);
        wait_for("the failure", || {
            world.events(&uid).last().unwrap() == "reconcile_failed"
        });
        world.apply(&json!(2));
        world.settle();
        // It was looked at and not done again, and the pass had its own act beside.
        assert_eq!(provider.calls(), (2, 1));
        assert_eq!(world.found().unwrap().status, json!("write-2"));
        let states: Vec<_> = world.effects().iter().map(|effect| effect.state).collect();
        assert_eq!(states, [then, EffectOutcome::Applied]);
        gate.open(1);
        world.controllers.delete::<Scripted>("one").unwrap();
        assert!(
            world
                .controllers
                .wait_until_gone::<Scripted>("one", super::support::LONG)
                .unwrap()
        );
        world.verify();
    }
}

/// Removes a file; one that is gone is removed.
struct Remove(std::path::PathBuf);

impl ExternalEffect for Remove {
    fn kind(&self) -> &'static str {
        "file.remove"
    }

    fn key(&self) -> String {
        "remove".to_owned()
    }

    fn request(&self) -> Value {
        json!({ "path": self.0 })
    }

    fn observe(&self, _: &EffectCall<'_>) -> Result<Observed, PassError> {
        Ok(if self.0.try_exists()? {
            Observed::NotApplied
        } else {
            Observed::applied()
        })
    }

    fn apply(&self, _: &EffectCall<'_>) -> Result<Acted, PassError> {
        match std::fs::remove_file(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(Acted::applied()),
        }
    }
}

#[test]
fn case_081_cleaning_up_what_is_gone_already_is_done() {
    for is_there in [true, false] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("thing");
        std::fs::write(&path, "x").unwrap();
        let thing = path.clone();
        let world = World::running(Scripted::new(move |pass| {
            finalizer::with(pass, "example.com/thing", |pass, event| {
                if event == finalizer::Event::Cleanup {
                    let record = pass.ensure(&Remove(thing.clone()))?;
                    assert_eq!(record.state, EffectOutcome::Applied);
                }
                Ok(Action::settled())
            })
        }));
        world.apply(&json!(1));
        world.settle();
        if !is_there {
            std::fs::remove_file(&path).unwrap();
        }
        world.controllers.delete::<Scripted>("one").unwrap();
        world.settle();
        assert!(world.found().is_none());
        assert!(!path.exists());
        world.verify();
    }
}
