//! Why a resource is as it is, and what stands in its way.

use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use serde::Serialize;

use super::list::{QueueState, ReadyView, ready};
use super::{QueueView, children, effects, queue, resource};
use crate::error::ControllerError;
use crate::model::{
    ChildState, ControllerName, EffectKey, EffectOutcome, FinalizerName, ManagedResource,
    RequestKey, Target,
};

/// Something that a resource waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Blocker {
    /// No controller of this name is registered in this program: no pass will come from here.
    #[serde(rename_all = "camelCase")]
    NoController {
        /// The controller.
        controller: ControllerName,
    },
    /// It is being deleted, and this holds it.
    #[serde(rename_all = "camelCase")]
    Finalizer {
        /// The finalizer.
        finalizer: FinalizerName,
        /// Whether the controller that would remove it is registered here. Otherwise a person can force it.
        has_controller: bool,
    },
    /// An act of it may have happened, and nobody here can know: a person must say.
    #[serde(rename_all = "camelCase")]
    IndeterminateEffect {
        /// The act.
        key: EffectKey,
        /// What kind of act it is.
        effect_kind: String,
    },
    /// The run of a child waits for somebody.
    #[serde(rename_all = "camelCase")]
    WaitingChild {
        /// The child.
        request_key: RequestKey,
        /// Its run.
        run_id: Option<String>,
    },
    /// The last pass failed.
    #[serde(rename_all = "camelCase")]
    BackOff {
        /// When it is tried again.
        retry_at: UnixMillis,
        /// How many failed.
        consecutive_errors: u64,
        /// Why the last one did.
        last_error: Option<String>,
    },
    /// A pass has it. When its host is gone without a word, it is free at this time.
    #[serde(rename_all = "camelCase")]
    HeldLease {
        /// When the claim ends, unless it is renewed.
        expires_at: UnixMillis,
    },
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoController { controller } => {
                write!(formatter, "no controller {controller} is registered here")
            }
            Self::Finalizer {
                finalizer,
                has_controller: true,
            } => {
                write!(
                    formatter,
                    "finalizer {finalizer} holds its deletion until the controller removes it"
                )
            }
            Self::Finalizer {
                finalizer,
                has_controller: false,
            } => {
                write!(
                    formatter,
                    "finalizer {finalizer} holds its deletion, and no controller is registered here that removes it"
                )
            }
            Self::IndeterminateEffect { key, effect_kind } => {
                write!(
                    formatter,
                    "effect {key} ({effect_kind}) may have happened; a person must say whether it did"
                )
            }
            Self::WaitingChild {
                request_key,
                run_id,
            } => match run_id {
                Some(run) => write!(
                    formatter,
                    "child {request_key} waits for somebody in run {run}"
                ),
                None => write!(formatter, "child {request_key} waits for somebody"),
            },
            Self::BackOff {
                consecutive_errors,
                last_error,
                ..
            } => write!(
                formatter,
                "{consecutive_errors} failed in a row, the last pass with: {}",
                last_error.as_deref().unwrap_or("no error is stored")
            ),
            Self::HeldLease { .. } => write!(formatter, "a pass works on it"),
        }
    }
}

/// A resource with what it waits for.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The resource.
    pub resource: ManagedResource,
    /// Whether its controller has seen its present spec.
    pub is_observed: bool,
    /// What its controller says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyView>,
    /// Where it stands with its controller.
    pub queue_state: QueueState,
    /// What waits in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueView>,
    /// What it waits for.
    pub blockers: Vec<Blocker>,
}

/// Explains a resource to somebody whose program knows the controllers `known`. None when there is no such resource.
///
/// # Errors
///
/// As [`resource`].
pub fn explain(
    snapshot: &Snapshot<'_>,
    target: &Target,
    known: &[ControllerName],
    now: UnixMillis,
) -> Result<Option<Explanation>, ControllerError> {
    let Some(resource) = resource(snapshot, target)? else {
        return Ok(None);
    };
    let metadata = &resource.metadata;
    let queue = queue(snapshot, &metadata.uid)?;
    let lease = snapshot
        .resource(&metadata.uid.resource())?
        .filter(|view| {
            !view
                .lease
                .owner
                .as_ref()
                .is_some_and(|(_, owner)| snapshot.is_dead_owner(owner))
        })
        .and_then(|view| view.lease.expires_at);
    let has_controller = known.contains(&metadata.controller);
    let mut blockers = Vec::new();
    if !has_controller {
        blockers.push(Blocker::NoController {
            controller: metadata.controller.clone(),
        });
    }
    if metadata.deletion_timestamp.is_some() {
        let holds = |finalizer: &FinalizerName| Blocker::Finalizer {
            finalizer: finalizer.clone(),
            has_controller,
        };
        blockers.extend(metadata.finalizers.iter().map(holds));
    }
    for effect in effects(snapshot, &metadata.uid)? {
        if effect.state == EffectOutcome::Indeterminate {
            blockers.push(Blocker::IndeterminateEffect {
                key: effect.key,
                effect_kind: effect.kind,
            });
        }
    }
    for child in children(snapshot, &metadata.uid)? {
        if child.state == ChildState::Waiting {
            let run_id = child.run_id.as_ref().map(ToString::to_string);
            blockers.push(Blocker::WaitingChild {
                request_key: child.request_key,
                run_id,
            });
        }
    }
    if let Some(expires_at) = lease.filter(|at| now < *at) {
        blockers.push(Blocker::HeldLease { expires_at });
    } else if let Some(queue) = queue
        .as_ref()
        .filter(|queue| 0 < queue.consecutive_errors && now < queue.available_at)
    {
        blockers.push(Blocker::BackOff {
            retry_at: queue.available_at,
            consecutive_errors: queue.consecutive_errors,
            last_error: queue.last_error.clone(),
        });
    }
    let waiting = queue
        .as_ref()
        .map(|queue| (queue.available_at, queue.consecutive_errors));
    Ok(Some(Explanation {
        is_observed: resource.status.observed_generation == metadata.generation,
        ready: ready(&resource.status, metadata.generation),
        queue_state: QueueState::of(waiting, lease, now),
        queue,
        blockers,
        resource,
    }))
}
