//! The resources of a project.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use holdpoint_state::{ResourceKey, Snapshot};
use serde::Serialize;

use super::stored;
use crate::error::ControllerError;
use crate::model::{ConditionStatus, ControllerName, Key, ProjectPath, StatusView, Uid};

/// Which resources a list has.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Those of this project.
    pub project: ProjectPath,
    /// Only those of this controller.
    pub controller: Option<ControllerName>,
    /// Only those behind this one, in the order of the list: for the next page.
    pub after: Option<(ControllerName, Key)>,
    /// At most so many.
    pub limit: u32,
}

impl Filter {
    /// The first hundred resources of a project.
    pub fn of(project: &ProjectPath) -> Self {
        Self {
            project: project.clone(),
            controller: None,
            after: None,
            limit: 100,
        }
    }
}

/// Where a resource stands with its controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueState {
    /// Nothing is to do.
    Idle,
    /// A pass is due.
    Due,
    /// A pass is planned.
    Scheduled,
    /// The last pass failed, and the next one is not due yet.
    BackOff,
    /// A pass goes on.
    Reconciling,
}

impl QueueState {
    /// The words for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Due => "due",
            Self::Scheduled => "scheduled",
            Self::BackOff => "back-off",
            Self::Reconciling => "reconciling",
        }
    }

    /// From what is stored, at an instant. `held_until` is when the claim ends, if its owner lives as far as is known.
    pub(super) fn of(
        queue: Option<(UnixMillis, u64)>,
        held_until: Option<UnixMillis>,
        now: UnixMillis,
    ) -> Self {
        match queue {
            _ if held_until.is_some_and(|at| now < at) => Self::Reconciling,
            None => Self::Idle,
            Some((at, _)) if at <= now => Self::Due,
            Some((_, 0)) => Self::Scheduled,
            Some(_) => Self::BackOff,
        }
    }
}

/// The condition `Ready`, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadyView {
    /// The answer; unknown when it was found for an older generation, which says nothing of this one.
    pub status: ConditionStatus,
    /// Why.
    pub reason: String,
    /// The generation that it was found for.
    pub observed_generation: u64,
}

/// A resource in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// Its uid.
    pub uid: Uid,
    /// Its controller.
    #[serde(rename = "resourceManager")]
    pub controller: ControllerName,
    /// Its key.
    pub key: Key,
    /// How many changes it has seen.
    pub resource_version: u64,
    /// The generation of its spec.
    pub generation: u64,
    /// When its deletion was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<UnixMillis>,
    /// What its controller says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ReadyView>,
    /// Where it stands.
    pub queue: QueueState,
}

/// The resources of a project, by controller and key.
///
/// # Errors
///
/// Those of the database, and [`ControllerError::Corrupt`].
pub fn list(
    snapshot: &Snapshot<'_>,
    filter: &Filter,
    now: UnixMillis,
) -> Result<Vec<ResourceSummary>, ControllerError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT c.resource_key, l.expires_at, q.available_at, q.consecutive_errors, l.owner_id
         FROM projects p JOIN controller_resources c ON c.project_id = p.project_id
         LEFT JOIN leases l ON l.resource_key = c.resource_key LEFT JOIN controller_queue q ON q.resource_key = c.resource_key
         WHERE p.canonical_path = :project AND (:controller IS NULL OR c.controller_name = :controller)
             AND (:after_controller IS NULL OR (c.controller_name, c.resource_name) > (:after_controller, :after_name))
         ORDER BY c.controller_name, c.resource_name LIMIT :limit",
    )?;
    let after = filter.after.as_ref();
    let parameters = named_params! {
        ":project": filter.project, ":controller": filter.controller,
        ":after_controller": after.map(|(controller, _)| controller), ":after_name": after.map(|(_, key)| key),
        ":limit": filter.limit,
    };
    let rows = statement.query_map(parameters, |row| {
        let queue: Option<UnixMillis> = row.get(2)?;
        let errors: Option<i64> = row.get(3)?;
        let queue = queue.map(|at| (at, errors.unwrap_or(0).unsigned_abs()));
        let (held_until, owner): (Option<UnixMillis>, Option<String>) = (row.get(1)?, row.get(4)?);
        // What a dead host has left in its hands is taken at once.
        let held_until =
            held_until.filter(|_| owner.is_some_and(|owner| !snapshot.is_dead_owner(&owner)));
        Ok((
            row.get::<_, ResourceKey>(0)?,
            QueueState::of(queue, held_until, now),
        ))
    })?;
    let mut listed = Vec::new();
    for row in rows {
        let (key, queue) = row?;
        let Some(found) = stored::load(&sql, key)? else {
            continue;
        };
        let metadata = found.metadata;
        listed.push(ResourceSummary {
            ready: ready(&found.status, metadata.generation),
            uid: metadata.uid,
            controller: metadata.controller,
            key: metadata.key,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            deletion_timestamp: metadata.deletion_timestamp,
            queue,
        });
    }
    Ok(listed)
}

/// A resource is not ready by what an older generation found.
pub(super) fn ready(status: &StatusView, generation: u64) -> Option<ReadyView> {
    let condition = status.condition("Ready")?;
    let is_current = condition.observed_generation == generation;
    Some(ReadyView {
        status: if is_current {
            condition.status
        } else {
            ConditionStatus::Unknown
        },
        reason: condition.reason.clone(),
        observed_generation: condition.observed_generation,
    })
}
