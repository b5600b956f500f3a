//! The wait of somebody who wants to know how a decision ends. It has a limit of its own, which never ends the decision.

use std::time::Duration;

use holdpoint_state::{Database, StateError};

use crate::error::DecisionError;
use crate::model::DecisionId;
use crate::views::{self, DecisionView};

/// How long a wait for events lasts before the decision is looked at again all the same, in milliseconds.
const LOOK_MS: u64 = 500;

/// What a wait came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Waited {
    /// The decision is resolved: by an answer, by a cancellation or by its expiry.
    Resolved(Box<DecisionView>),
    /// The limit came first. The decision is still open, and whoever waits may wait again.
    Open(Box<DecisionView>),
}

impl Waited {
    /// The decision as it was when the wait ended.
    pub fn view(&self) -> &DecisionView {
        match self {
            Self::Resolved(view) | Self::Open(view) => view,
        }
    }
}

/// Waits until a decision is resolved, or until the limit, which is real time of this process. It only reads: neither its limit nor its end
/// does anything to the decision, and a deadline that comes meanwhile is applied by whoever works on the store.
///
/// # Errors
///
/// [`StateError::NotFound`] for a decision that does not exist, or that was pruned meanwhile; [`DecisionError::Corrupt`] and
/// [`DecisionError::Incompatible`] for one that can't be read.
pub fn wait(
    db: &Database,
    decision: &DecisionId,
    limit: Duration,
) -> Result<Waited, DecisionError> {
    // From before the first look, so that no resolution falls between look and wait.
    let mut follower = db.follow_events(db.snapshot()?.last_event_seq()?)?;
    let mut left_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    loop {
        let now = db.clock().now();
        let Some(view) = views::fetch(&db.snapshot()?, decision, now)? else {
            return Err(StateError::NotFound {
                resource: decision.resource(),
            }
            .into());
        };
        if view.resolution.is_some() {
            return Ok(Waited::Resolved(Box::new(view)));
        }
        if left_ms == 0 {
            return Ok(Waited::Open(Box::new(view)));
        }
        left_ms = until_it_moved(&mut follower, decision, left_ms)?;
    }
}

/// Lets events go by until one is about the decision, or for a while. Says how much is left of the limit.
#[expect(
    clippy::disallowed_methods,
    reason = "the limit of a wait is real time of this process, not stored time"
)]
fn until_it_moved(
    follower: &mut holdpoint_state::EventFollower,
    decision: &DecisionId,
    limit_ms: u64,
) -> Result<u64, StateError> {
    let resource = decision.resource();
    let began = std::time::Instant::now();
    let spent = || u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let until = limit_ms.min(LOOK_MS);
    loop {
        let left = until.saturating_sub(spent());
        let batch = follower.next_batch(left)?;
        let is_about_it = batch.iter().any(|event| {
            event.resource_type == crate::model::RESOURCE_TYPE
                && event.resource_key == resource.key()
        });
        if is_about_it || until <= spent() {
            return Ok(limit_ms.saturating_sub(spent()));
        }
    }
}
