//! What changed since a revision.

use holdpoint_state::sql::named_params;
use holdpoint_state::{Snapshot, StateError};
use holdpoint_workflows::views::pages;

use super::rows::{position, unsigned, viewer_run};
use crate::documents::{Delta, TargetType};
use crate::error::ViewerError;

/// What a follower of a run does next.
#[derive(Debug, Clone, PartialEq)]
pub enum Follow {
    /// Apply these, in order; none when there is nothing new. Each has the revision that it leads to.
    Patches(Vec<(u64, Vec<Delta>)>),
    /// The patches since its revision are not retained: it takes a fresh view.
    SnapshotRequired,
}

/// The patches of a run's view after a revision.
///
/// # Errors
///
/// [`ViewerError::NoRun`].
pub fn deltas(snapshot: &Snapshot<'_>, run: &str, since: u64) -> Result<Follow, ViewerError> {
    let no_run = || ViewerError::NoRun {
        run: run.to_owned(),
    };
    let key = pages::key_of(snapshot, run)?.ok_or_else(no_run)?;
    let kept = viewer_run(snapshot, key)?.ok_or_else(no_run)?;
    if since == 0 || kept.revision < since || since.saturating_add(1) < kept.retained_from {
        return Ok(Follow::SnapshotRequired);
    }
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT presentation_revision, target_type, target_key, patch FROM viewer_deltas
         WHERE run_key = :run AND :since < presentation_revision ORDER BY presentation_revision, delta_index",
    )?;
    let rows = statement
        .query_map(
            named_params! { ":run": key, ":since": position(since) },
            |row| {
                Ok((
                    unsigned(row, 0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, Vec<u8>>(3)?,
                ))
            },
        )
        .map_err(StateError::from)?;
    let mut patches: Vec<(u64, Vec<Delta>)> = Vec::new();
    for row in rows {
        let (revision, target, target_key, patch) = row.map_err(StateError::from)?;
        let corrupt = |problem: String| StateError::Corrupt {
            what: format!("patch {revision} of run {run}"),
            problem,
        };
        let delta = Delta {
            target_type: TargetType::from_text(&target)
                .ok_or_else(|| corrupt(format!("no target is called {target}")))?,
            target_key,
            patch: serde_json::from_slice(&patch).map_err(|error| corrupt(error.to_string()))?,
        };
        match patches.last_mut() {
            Some((last, deltas)) if *last == revision => deltas.push(delta),
            _ => patches.push((revision, vec![delta])),
        }
    }
    let mut expected = since;
    for (revision, _) in &patches {
        expected = expected.saturating_add(1);
        if *revision != expected {
            return Ok(Follow::SnapshotRequired);
        }
    }
    if expected != kept.revision {
        return Ok(Follow::SnapshotRequired);
    }
    Ok(Follow::Patches(patches))
}
