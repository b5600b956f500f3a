//! K5 and K6: a host takes a resource for one pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdpoint_state::clock::{Clock, UnixMillis};
use holdpoint_state::id::random_id;
use holdpoint_state::{
    Actor, ActorKind, Claim, Command, Database, Disposition, Operation, Outcome, Owner, Receipt,
    StateError,
};
use serde_json::json;

use super::facts;
use crate::error::ControllerError;
use crate::model::{ManagedResource, Uid};
use crate::{operations, store};

/// How long the claim of a pass lasts, in milliseconds, where nobody says otherwise.
pub const LEASE_MS: i64 = 120_000;
/// How often a host renews the claim of a pass, in milliseconds, where nobody says otherwise.
pub const RENEW_MS: i64 = 30_000;

/// A wish to take a due resource for one pass.
#[derive(Debug, Clone)]
pub struct Claiming {
    /// The resource.
    pub uid: Uid,
    /// For whom. The claims of an owner that said that it lives end with it.
    pub owner: Owner,
    /// How long the claim lasts, unless it is renewed.
    pub lease_ms: i64,
}

impl Claiming {
    /// A claim of the usual length.
    pub fn new(uid: &Uid, owner: &Owner) -> Self {
        Self {
            uid: uid.clone(),
            owner: owner.clone(),
            lease_ms: LEASE_MS,
        }
    }
}

/// One resource, taken for one pass, with what the pass may see of it. It is neither the right to write nor a lock: each write compares it
/// with the rows, and when it is lost nothing is written.
///
/// All verbs of a pass take it by reference, so that a host can end a pass whose code still runs. After the end it gives no right.
#[derive(Debug)]
pub struct PassClaim {
    lease: Arc<Claim>,
    resource: ManagedResource,
    seen: Seen,
    /// The revision that the resource has if nobody but this pass changed it. It is counted here and never read again: reading it would hide
    /// the changes of others.
    version: AtomicU64,
}

/// What a pass has seen and its end is judged by.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) reconcile_id: String,
    pub(super) queue_version: u64,
    pub(super) consecutive_errors: u64,
    pub(super) generation: u64,
    pub(super) deletion_requested_at: Option<UnixMillis>,
}

impl PassClaim {
    /// The resource as it was when it was claimed.
    pub fn resource(&self) -> &ManagedResource {
        &self.resource
    }

    /// The resource's uid.
    pub fn uid(&self) -> &Uid {
        &self.resource.metadata.uid
    }

    /// The pass's id, which is in its events.
    pub fn reconcile_id(&self) -> &str {
        &self.seen.reconcile_id
    }

    /// The generation of the spec that the pass sees.
    pub fn generation(&self) -> u64 {
        self.seen.generation
    }

    /// Whether the pass sees that the deletion was asked for.
    pub fn is_deleting(&self) -> bool {
        self.seen.deletion_requested_at.is_some()
    }

    /// How many passes before this one failed, since the last that did not.
    pub fn consecutive_errors(&self) -> u64 {
        self.seen.consecutive_errors
    }

    /// The kernel's claim: its owner, its generation, and when its time is up.
    pub fn lease(&self) -> &Arc<Claim> {
        &self.lease
    }

    /// Whether the time of the claim is up on this process's own clocks.
    pub fn is_expired(&self, clock: &dyn Clock) -> bool {
        self.lease.is_expired(clock)
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The revision at which nobody else changed the resource.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A command of the owner of this claim.
    pub(super) fn command(&self, operation: &'static Operation) -> Command {
        Command::new(operation, self.uid().resource())
            .by(Actor::new(ActorKind::Controller, self.lease.owner().id()))
            .holding(&self.lease)
    }

    /// Counts what this claim itself wrote.
    pub(super) fn wrote<T>(&self, receipt: Receipt<T>) -> T {
        if receipt.disposition == Disposition::Accepted {
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        receipt.value
    }
}

/// Takes a due resource for one pass. None: it is not due any more, somebody has it, or it is gone.
///
/// # Errors
///
/// Those of the database, and of a damaged resource.
pub fn claim(db: &Database, claiming: &Claiming) -> Result<Option<PassClaim>, ControllerError> {
    let command = Command::new(&operations::CLAIM, claiming.uid.resource())
        .by(Actor::host(claiming.owner.id()));
    let (owner, lease_ms) = (claiming.owner.clone(), claiming.lease_ms);
    let claimed = db.commit::<_, ControllerError>(command, move |change| {
        let now = change.now();
        let Some(waiting) = store::queue::waiting(change)?.filter(|waiting| waiting.available_at <= now) else {
            return Ok(Outcome::Refused(None));
        };
        let lease = match change.claim(&owner, lease_ms) {
            Err(StateError::LeaseHeld { .. }) => return Ok(Outcome::Refused(None)),
            other => other?,
        };
        let mut resource = store::resources::load(change)?.ok_or_else(|| ControllerError::Corrupt {
            what: format!("resource {}", change.resource().key()),
            problem: "it is queued and does not exist".to_owned(),
        })?;
        resource.metadata.resource_version = change.next_revision();
        let seen = Seen {
            reconcile_id: random_id("reconcile"),
            queue_version: waiting.queue_version,
            consecutive_errors: waiting.consecutive_errors,
            generation: resource.metadata.generation,
            deletion_requested_at: resource.metadata.deletion_timestamp,
        };
        change.record(facts(&json!({
            "reconcileId": seen.reconcile_id, "generation": seen.generation, "expiresAt": lease.expires_at(),
        }))?);
        Ok(Outcome::Accepted(Some((lease, resource, seen))))
    });
    let claimed = match claimed {
        Err(ControllerError::State(StateError::NotFound { .. })) => return Ok(None),
        other => other?,
    };
    let version = AtomicU64::new(claimed.revision);
    Ok(claimed.value.map(|(lease, resource, seen)| PassClaim {
        lease: Arc::new(lease),
        resource,
        seen,
        version,
    }))
}

/// Moves the expiry of a claim to its whole length from now. It writes no event.
///
/// # Errors
///
/// [`StateError::ClaimLost`]; a claim whose time is up can't renew itself.
pub fn renew(db: &Database, claim: &PassClaim) -> Result<(), ControllerError> {
    Ok(db.renew(&claim.lease)?)
}
