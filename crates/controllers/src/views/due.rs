//! What is due: an index range for each controller that a program knows, whatever else is due.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{ResourceKey, Snapshot};

use crate::error::ControllerError;
use crate::model::{ControllerName, ProjectPath, Uid};

/// What a host looks for.
#[derive(Debug, Clone, Copy)]
pub struct DueQuery<'a> {
    /// In this project.
    pub project: &'a ProjectPath,
    /// The controllers that it knows. What belongs to others is not looked at.
    pub controllers: &'a [ControllerName],
    /// What is due by then.
    pub now: UnixMillis,
    /// At most so many.
    pub limit: usize,
}

/// What a host finds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Due {
    /// What can be claimed: by the time at which it was due, then by controller.
    pub uids: Vec<Uid>,
    /// When something more may be, as far as is known: a pass that is due later, or the end of a claim.
    pub next_at: Option<UnixMillis>,
}

/// What is due and in nobody's hands. Finding it gives no right: [`claim`](crate::commands::claim()) looks again.
///
/// # Errors
///
/// Those of the database.
pub fn due(snapshot: &Snapshot<'_>, query: &DueQuery<'_>) -> Result<Due, ControllerError> {
    let sql = snapshot.sql();
    let project: Option<String> = sql
        .prepare_cached("SELECT project_id FROM projects WHERE canonical_path = :project")?
        .query_row(named_params! { ":project": query.project }, |row| {
            row.get(0)
        })
        .optional()?;
    let Some(project) = project else {
        return Ok(Due::default());
    };
    let mut found: Vec<(UnixMillis, &ControllerName, ResourceKey, Uid)> = Vec::new();
    let mut next_at: Option<UnixMillis> = None;
    let mut sooner = |at: UnixMillis| next_at = Some(next_at.map_or(at, |known| known.min(at)));
    for controller in query.controllers {
        let mut statement = sql.prepare_cached(
            "SELECT q.available_at, q.resource_key, r.aggregate_key, l.owner_id, l.expires_at
             FROM controller_queue q JOIN resources r ON r.resource_key = q.resource_key
             LEFT JOIN leases l ON l.resource_key = q.resource_key
             WHERE q.project_id = :project AND q.controller_name = :controller AND q.available_at <= :now
             ORDER BY q.available_at, q.resource_key",
        )?;
        let mut rows = statement.query(
            named_params! { ":project": project, ":controller": controller, ":now": query.now },
        )?;
        let mut taken = 0;
        while taken < query.limit {
            let Some(row) = rows.next()? else {
                break;
            };
            let expires_at: Option<UnixMillis> = row.get(4)?;
            if let (Some(owner), Some(expires_at)) = (row.get::<_, Option<String>>(3)?, expires_at)
                && query.now < expires_at
                && !snapshot.is_dead_owner(&owner)
            {
                sooner(expires_at);
                continue;
            }
            found.push((row.get(0)?, controller, row.get(1)?, row.get(2)?));
            taken += 1;
        }
        let later: Option<UnixMillis> = sql
            .prepare_cached(
                "SELECT min(available_at) FROM controller_queue
                 WHERE project_id = :project AND controller_name = :controller AND available_at > :now",
            )?
            .query_row(named_params! { ":project": project, ":controller": controller, ":now": query.now }, |row| row.get(0))?;
        if let Some(later) = later {
            sooner(later);
        }
    }
    // Ties between controllers go by name, those within one by age.
    found.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
    found.truncate(query.limit);
    Ok(Due {
        uids: found.into_iter().map(|(.., uid)| uid).collect(),
        next_at,
    })
}
