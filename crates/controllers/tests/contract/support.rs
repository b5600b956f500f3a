//! A store with resources in it, and the few steps that every test takes.

use holdpoint_controllers::commands::{self, Apply, Claiming, Finished, PassClaim, PassEnd};
use holdpoint_controllers::model::{FinalizerName, ManagedResource, Next, StatusPatch, Target};
use holdpoint_controllers::views::{self, QueueView};
use holdpoint_controllers::{DOMAIN, Uid};
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::testing::TestStore;
use holdpoint_state::{Actor, Database, Owner, OwnerKind};
use serde_json::Value;

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A store with the domain, and a host that takes resources.
pub(crate) struct World {
    pub(crate) store: TestStore,
    pub(crate) host: Owner,
}

/// The resource that most tests are about.
pub(crate) fn target() -> Target {
    named("one")
}

pub(crate) fn named(key: &str) -> Target {
    Target::parse("/srv/app", "tree", key).unwrap()
}

pub(crate) fn finalizer(name: &str) -> FinalizerName {
    FinalizerName::new(name).unwrap()
}

pub(crate) fn ann() -> Actor {
    Actor::human("ann")
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            store: TestStore::new([holdpoint_workflows::DOMAIN, DOMAIN])?,
            host: Owner::new(OwnerKind::Host, "host"),
        })
    }

    /// A store with the resource of [`target`].
    pub(crate) fn with(spec: Value) -> Result<Self> {
        let world = Self::new()?;
        world.apply(spec)?;
        Ok(world)
    }

    pub(crate) fn db(&self) -> &Database {
        self.store.db()
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.db().clock().now()
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.store.clock().advance(ms);
    }

    pub(crate) fn apply(&self, spec: Value) -> Result<commands::Applied> {
        Ok(commands::apply(self.db(), &Apply::new(&target(), spec).by(ann()))?.value)
    }

    pub(crate) fn uid(&self) -> Result<Uid> {
        Ok(views::uid(&self.db().snapshot()?, &target())?.ok_or("no such resource")?)
    }

    pub(crate) fn resource(&self) -> Result<ManagedResource> {
        Ok(views::resource(&self.db().snapshot()?, &target())?.ok_or("no such resource")?)
    }

    pub(crate) fn version(&self) -> Result<u64> {
        Ok(self.resource()?.metadata.resource_version)
    }

    pub(crate) fn queue(&self) -> Result<Option<QueueView>> {
        Ok(views::queue(&self.db().snapshot()?, &self.uid()?)?)
    }

    /// Takes the resource for a pass, if it is due.
    pub(crate) fn try_claim(&self) -> Result<Option<PassClaim>> {
        self.claim_for(&self.host)
    }

    pub(crate) fn claim_for(&self, host: &Owner) -> Result<Option<PassClaim>> {
        Ok(commands::claim(
            self.db(),
            &Claiming::new(&self.uid()?, host),
        )?)
    }

    pub(crate) fn claim(&self) -> Result<PassClaim> {
        Ok(self.try_claim()?.ok_or("it is not due")?)
    }

    pub(crate) fn finish(&self, claim: &PassClaim, next: Next) -> Result<Finished> {
        self.finish_with(claim, &StatusPatch::default(), next)
    }

    pub(crate) fn finish_with(
        &self,
        claim: &PassClaim,
        patch: &StatusPatch,
        next: Next,
    ) -> Result<Finished> {
        Ok(commands::finish(
            self.db(),
            claim,
            patch,
            next,
            PassEnd::default(),
        )?)
    }

    /// A pass that finds nothing to do.
    pub(crate) fn pass(&self) -> Result<Finished> {
        let claim = self.claim()?;
        self.finish(&claim, Next::Settled)
    }

    /// The events of a resource, oldest first.
    pub(crate) fn events(&self, uid: &Uid) -> Result<Vec<String>> {
        let mut events = views::events(&self.db().snapshot()?, uid, 1_000)?;
        events.reverse();
        Ok(events.into_iter().map(|event| event.event_type).collect())
    }

    /// Every invariant of every domain holds.
    pub(crate) fn check(&self) -> Result {
        let report = self.db().verify()?;
        if report.is_clean() {
            return Ok(());
        }
        Err(format!("{report:?}").into())
    }
}
