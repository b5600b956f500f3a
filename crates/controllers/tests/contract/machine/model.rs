//! The model: a few fields, and the rules written down a second time.

use holdpoint_controllers::commands;
use holdpoint_controllers::model::{ChildState, Next, back_off_ms};
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

/// How long a claim lasts.
const LEASE_MS: i64 = commands::LEASE_MS;
/// What is told of a resource that is not there.
pub(super) const NOBODY: &str = "not found";

#[derive(Debug, Clone)]
pub(super) enum Step {
    Apply(u8),
    /// A hint for so many milliseconds from now.
    Hint(i64),
    Delete,
    Add(u8),
    Remove(u8),
    ForceFinalizer(u8),
    ForceDeletion,
    Clock(u64),
    Claim(usize),
    Renew(usize),
    Finish {
        host: usize,
        status: Option<u8>,
        finalizers: Option<Vec<u8>>,
        next: Next,
    },
    Fail(usize),
    HandBack(usize),
    Reserve(usize),
    Tell(ChildState),
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    at: i64,
    version: u64,
    errors: u64,
}

/// A pass, as its host knows it.
#[derive(Debug, Clone, Copy)]
struct Pass {
    resource: u64,
    lease: u64,
    version: u64,
    generation: u64,
    deletion: Option<i64>,
    queue: u64,
}

#[derive(Debug, Clone)]
struct Resource {
    number: u64,
    revision: u64,
    generation: u64,
    spec: u8,
    observed: u64,
    status: Option<u8>,
    deletion: Option<i64>,
    finalizers: Vec<u8>,
    queue: Option<Queued>,
    lease: u64,
    /// Who has it, and until when.
    held: Option<(usize, i64)>,
    child: Option<(u64, ChildState)>,
}

#[derive(Debug, Clone)]
pub(super) struct Model {
    now: i64,
    made: u64,
    resource: Option<Resource>,
    passes: [Option<Pass>; 2],
    /// What the last step was told.
    pub(super) told: String,
}

impl Resource {
    fn enqueue(&mut self, at: i64) {
        let queue = self.queue.get_or_insert(Queued {
            at,
            version: 0,
            errors: 0,
        });
        queue.at = queue.at.min(at);
        queue.version += 1;
    }

    fn is_held(&self, now: i64) -> bool {
        self.held.is_some_and(|(_, until)| now < until)
    }

    fn release(&mut self) {
        self.held = None;
        self.revision += 1;
    }

    /// Ends a pass with another one; what came during the pass is not put off.
    fn again(&mut self, at: i64, came: bool, errors: u64) -> i64 {
        let queue = self.queue.as_mut().unwrap();
        queue.at = if came { at.min(queue.at) } else { at };
        queue.version += 1;
        queue.errors = errors;
        queue.at
    }

    fn fail(&mut self, now: i64, came: bool) -> i64 {
        let errors = self.queue.unwrap().errors;
        let at = now + i64::try_from(back_off_ms(errors, 0.5)).unwrap();
        let at = self.again(at, came, errors + 1);
        self.release();
        at
    }

    fn can_be_forced(&self, now: i64) -> bool {
        self.deletion.is_some() && !self.is_held(now) && self.finalizers.is_empty()
    }
}

impl Model {
    fn change(&mut self, change: impl FnOnce(&mut Resource, i64) -> String) -> String {
        match &mut self.resource {
            Some(resource) => change(resource, self.now),
            None => NOBODY.to_owned(),
        }
    }

    fn apply(&mut self, spec: u8) -> String {
        let now = self.now;
        let Some(resource) = &mut self.resource else {
            self.made += 1;
            self.resource = Some(Resource {
                number: self.made,
                revision: 1,
                generation: 1,
                spec,
                observed: 0,
                status: None,
                deletion: None,
                finalizers: Vec::new(),
                queue: Some(Queued {
                    at: now,
                    version: 1,
                    errors: 0,
                }),
                lease: 0,
                held: None,
                child: None,
            });
            return "created".to_owned();
        };
        if resource.spec == spec {
            return "unchanged".to_owned();
        }
        if resource.deletion.is_some() {
            return "deleting".to_owned();
        }
        resource.spec = spec;
        resource.generation += 1;
        resource.revision += 1;
        resource.enqueue(now);
        "updated".to_owned()
    }

    fn finalizers(&mut self, after: impl FnOnce(&Resource) -> Vec<u8>) -> String {
        self.change(|resource, now| {
            let after = after(resource);
            let is_new = after.iter().any(|name| !resource.finalizers.contains(name));
            if is_new && resource.deletion.is_some() {
                return "invalid".to_owned();
            }
            if after == resource.finalizers {
                return "adopted".to_owned();
            }
            resource.finalizers = after;
            resource.revision += 1;
            resource.enqueue(now);
            "changed".to_owned()
        })
    }

    fn force_finalizer(&mut self, name: u8) -> String {
        let now = self.now;
        let Some(resource) = &mut self.resource else {
            return NOBODY.to_owned();
        };
        if !resource.finalizers.contains(&name) {
            return "adopted".to_owned();
        }
        resource.finalizers.retain(|known| *known != name);
        resource.revision += 1;
        resource.enqueue(now);
        if resource.can_be_forced(now) {
            self.resource = None;
            return "forced, deleted".to_owned();
        }
        "forced".to_owned()
    }

    /// The resource of a pass, if the pass has it still.
    fn of_pass(&mut self, host: usize) -> Option<(&mut Resource, &mut Pass, i64)> {
        let pass = self.passes[host].as_mut()?;
        let resource = self.resource.as_mut()?;
        let owns = resource.number == pass.resource
            && resource.lease == pass.lease
            && resource
                .held
                .is_some_and(|(owner, until)| owner == host && self.now < until);
        owns.then_some((resource, pass, self.now))
    }

    fn pass(
        &mut self,
        host: usize,
        act: impl FnOnce(&mut Resource, &mut Pass, i64) -> String,
    ) -> String {
        if self.passes[host].is_none() {
            return "no pass".to_owned();
        }
        match self.of_pass(host) {
            Some((resource, pass, now)) => act(resource, pass, now),
            None => "lost".to_owned(),
        }
    }

    fn claim(&mut self, host: usize) -> String {
        let now = self.now;
        let Some(resource) = &mut self.resource else {
            return NOBODY.to_owned();
        };
        let Some(queue) = resource.queue.filter(|queue| queue.at <= now) else {
            return "not due".to_owned();
        };
        if resource.is_held(now) {
            return "not due".to_owned();
        }
        resource.lease += 1;
        resource.revision += 1;
        resource.held = Some((host, now + LEASE_MS));
        self.passes[host] = Some(Pass {
            resource: resource.number,
            lease: resource.lease,
            version: resource.revision,
            generation: resource.generation,
            deletion: resource.deletion,
            queue: queue.version,
        });
        format!("claimed {} errors {}", resource.lease, queue.errors)
    }

    fn finish(
        &mut self,
        host: usize,
        status: Option<u8>,
        finalizers: Option<&Vec<u8>>,
        next: Next,
    ) -> String {
        let mut is_gone = false;
        let told = self.pass(host, |resource, pass, now| {
            let as_seen = resource.generation == pass.generation
                && resource.deletion == pass.deletion
                && resource.revision == pass.version;
            if !as_seen {
                resource.queue.as_mut().unwrap().at = now;
                resource.release();
                return "conflict".to_owned();
            }
            let came = resource.queue.unwrap().version != pass.queue;
            if let Some(wanted) = finalizers {
                let is_new = wanted
                    .iter()
                    .any(|name| !resource.finalizers.contains(name));
                if is_new && resource.deletion.is_some() {
                    return format!("failed until {}", resource.fail(now, came));
                }
                resource.finalizers.clone_from(wanted);
            }
            resource.observed = pass.generation;
            resource.status = status.or(resource.status);
            let told = match next {
                Next::Settled if resource.deletion.is_some() && resource.finalizers.is_empty() => {
                    is_gone = true;
                    "deleted".to_owned()
                }
                Next::Settled if came => {
                    let queue = resource.queue.as_mut().unwrap();
                    queue.errors = 0;
                    format!("again at {}", queue.at)
                }
                Next::Settled => {
                    resource.queue = None;
                    "settled".to_owned()
                }
                Next::Requeue { after_ms } => {
                    let at = now + i64::try_from(after_ms.unwrap_or(0)).unwrap();
                    format!("requeued at {}", resource.again(at, came, 0))
                }
            };
            resource.release();
            told
        });
        if is_gone {
            self.resource = None;
        }
        told
    }

    fn reserve(&mut self, host: usize) -> String {
        self.pass(host, |resource, pass, now| {
            let attempt = match resource.child {
                Some((attempt, ChildState::Interrupted)) => attempt + 1,
                None => 1,
                Some((attempt, state)) => return format!("child {state} {attempt}"),
            };
            if resource.deletion != pass.deletion {
                return "deleted meanwhile".to_owned();
            }
            resource.child = Some((attempt, ChildState::Pending));
            resource.revision += 1;
            pass.version += 1;
            resource.held = Some((host, now + LEASE_MS));
            format!("child {} {attempt}", ChildState::Pending)
        })
    }

    fn tell(&mut self, state: ChildState) -> String {
        self.change(|resource, now| {
            let Some((attempt, before)) = resource.child else {
                return "no child".to_owned();
            };
            if !state.is_settled() {
                return "refused".to_owned();
            }
            if state == before {
                return "adopted".to_owned();
            }
            if before.is_final() {
                return "refused".to_owned();
            }
            resource.child = Some((attempt, state));
            resource.revision += 1;
            resource.enqueue(now);
            "told".to_owned()
        })
    }

    fn step(&mut self, step: &Step) -> String {
        match step {
            Step::Apply(spec) => self.apply(*spec),
            Step::Hint(after) => self.change(|resource, now| {
                resource.enqueue(now + after);
                let queue = resource.queue.unwrap();
                format!("hinted {} {}", queue.at, queue.version)
            }),
            Step::Delete => self.change(|resource, now| {
                if let Some(at) = resource.deletion {
                    return format!("adopted {at}");
                }
                resource.deletion = Some(now);
                resource.revision += 1;
                resource.enqueue(now);
                format!("requested {now}")
            }),
            Step::Add(name) => self.finalizers(|resource| {
                let mut after = resource.finalizers.clone();
                if !after.contains(name) {
                    after.push(*name);
                }
                after
            }),
            Step::Remove(name) => self.finalizers(|resource| {
                resource
                    .finalizers
                    .iter()
                    .filter(|known| *known != name)
                    .copied()
                    .collect()
            }),
            Step::ForceFinalizer(name) => self.force_finalizer(*name),
            Step::ForceDeletion => {
                let now = self.now;
                match &self.resource {
                    None => NOBODY.to_owned(),
                    Some(resource) if resource.can_be_forced(now) => {
                        self.resource = None;
                        "forced".to_owned()
                    }
                    Some(_) => "not forced".to_owned(),
                }
            }
            Step::Clock(ms) => {
                self.now += i64::try_from(*ms).unwrap();
                String::new()
            }
            Step::Claim(host) => self.claim(*host),
            Step::Renew(host) => self.pass(*host, |resource, _, now| {
                resource.held = resource.held.map(|(owner, _)| (owner, now + LEASE_MS));
                "renewed".to_owned()
            }),
            Step::Finish {
                host,
                status,
                finalizers,
                next,
            } => self.finish(*host, *status, finalizers.as_ref(), *next),
            Step::Fail(host) => self.pass(*host, |resource, pass, now| {
                let came = resource.queue.unwrap().version != pass.queue;
                format!("failed until {}", resource.fail(now, came))
            }),
            Step::HandBack(host) => self.pass(*host, |resource, _, now| {
                resource.queue.as_mut().unwrap().at = now;
                resource.release();
                "handed back".to_owned()
            }),
            Step::Reserve(host) => self.reserve(*host),
            Step::Tell(state) => self.tell(*state),
        }
    }

    /// What must hold for the model itself, so that a failure tells model from product.
    fn check(&self) {
        let Some(resource) = &self.resource else {
            return;
        };
        assert!(resource.observed <= resource.generation);
        assert!(resource.held.is_none() || resource.queue.is_some());
        let waits = resource.deletion.is_some()
            && resource.held.is_none()
            && resource.finalizers.is_empty();
        assert!(!waits || resource.queue.is_some());
        assert!(resource.lease < resource.revision);
    }

    /// The rows, as [`Product::rows`] shows them.
    pub(super) fn rows(&self) -> String {
        let Some(resource) = &self.resource else {
            return NOBODY.to_owned();
        };
        let queue = resource
            .queue
            .map(|queue| (queue.at, queue.version, queue.errors));
        format!(
            "revision {} generation {} spec {} observed {} status {:?} deletion {:?} finalizers {:?} queue {queue:?} lease {} {:?} child {:?}",
            resource.revision,
            resource.generation,
            resource.spec,
            resource.observed,
            resource.status,
            resource.deletion,
            resource.finalizers,
            resource.lease,
            resource.held.map(|(_, until)| until),
            resource.child,
        )
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        Just(Self {
            now: 0,
            made: 0,
            resource: None,
            passes: [None, None],
            told: String::new(),
        })
        .boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let host = || 0..2_usize;
        let next = prop_oneof![
            5 => Just(Next::Settled),
            1 => Just(Next::Requeue { after_ms: None }),
            1 => Just(Next::Requeue { after_ms: Some(1) }),
            1 => Just(Next::Requeue { after_ms: Some(30_000) }),
        ];
        let finalizers = prop_oneof![
            3 => Just(None),
            2 => Just(Some(vec![])),
            1 => Just(Some(vec![0])),
            1 => Just(Some(vec![1, 0])),
        ];
        let finish = (host(), proptest::option::of(0..3_u8), finalizers, next).prop_map(
            |(host, status, finalizers, next)| Step::Finish {
                host,
                status,
                finalizers,
                next,
            },
        );
        let state = prop_oneof![
            2 => Just(ChildState::Succeeded), 1 => Just(ChildState::Failed), 2 => Just(ChildState::Interrupted),
            2 => Just(ChildState::Waiting), 1 => Just(ChildState::Running),
        ];
        prop_oneof![
            4 => (0..3_u8).prop_map(Step::Apply),
            2 => prop_oneof![Just(0), Just(1_000), Just(60_000)].prop_map(Step::Hint),
            1 => Just(Step::Delete),
            3 => (0..2_u8).prop_map(Step::Add),
            2 => (0..2_u8).prop_map(Step::Remove),
            1 => (0..2_u8).prop_map(Step::ForceFinalizer),
            1 => Just(Step::ForceDeletion),
            4 => prop_oneof![Just(1), Just(1_000), Just(60_000), Just(119_999), Just(120_000)].prop_map(Step::Clock),
            8 => host().prop_map(Step::Claim),
            1 => host().prop_map(Step::Renew),
            8 => finish,
            2 => host().prop_map(Step::Fail),
            1 => host().prop_map(Step::HandBack),
            3 => host().prop_map(Step::Reserve),
            3 => state.prop_map(Step::Tell),
        ]
        .boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.told = model.step(step);
        model.check();
        model
    }
}
