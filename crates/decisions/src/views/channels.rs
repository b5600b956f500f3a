//! What channels read: open decisions to be shown, and resolved ones whose controls are to be taken off.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Snapshot, StateError};

use super::stored;
use crate::error::DecisionError;
use crate::model::{Audience, ChannelRequest, DecisionId, Resolution};

/// Where a scan of open decisions goes on: after this one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenAfter {
    /// When the last one was made.
    pub created_at: UnixMillis,
    /// The last one.
    pub decision_id: DecisionId,
}

/// Some of the open decisions that a scan finds.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenPage {
    /// What can be shown.
    pub requests: Vec<ChannelRequest>,
    /// Where the scan goes on; none at its end.
    pub after: Option<OpenAfter>,
}

/// Of at most `limit` open decisions for any of these audiences that are not past their deadline, oldest first, after `after`, those that
/// can be read: one that is damaged or of another version is shown nowhere, and keeps no other from being shown.
///
/// # Errors
///
/// Those of the database.
pub fn open_for_channel(
    snapshot: &Snapshot<'_>,
    audiences: &[Audience],
    now: UnixMillis,
    after: Option<&OpenAfter>,
    limit: u32,
) -> Result<OpenPage, DecisionError> {
    let sql = snapshot.sql();
    let audiences = serde_json::to_string(audiences).unwrap_or_default();
    let read = || -> Result<Vec<OpenAfter>, StateError> {
        let mut statement = sql.prepare_cached(
            "SELECT d.created_at, d.decision_id FROM interactive_requests q JOIN human_decisions d ON d.decision_id = q.request_id
             WHERE q.status = 'pending' AND q.kind = 'decision'
                 AND (d.deadline_at IS NULL OR d.deadline_at > :now)
                 AND d.audience IN (SELECT value FROM json_each(:audiences))
                 AND (d.created_at, d.decision_id) > (:created_at, :after)
             ORDER BY d.created_at, d.decision_id LIMIT :limit",
        )?;
        let rows = statement.query_map(
            named_params! {
                ":now": now, ":audiences": audiences, ":limit": limit,
                ":created_at": after.map_or(UnixMillis(i64::MIN), |after| after.created_at),
                ":after": after.map_or("", |after| after.decision_id.as_str()),
            },
            |row| {
                Ok(OpenAfter {
                    created_at: row.get(0)?,
                    decision_id: row.get(1)?,
                })
            },
        )?;
        Ok(rows.collect::<Result<_, _>>()?)
    };
    let found = read()?;
    let mut requests = Vec::new();
    for one in &found {
        match stored::load(&sql, one.decision_id.as_str()) {
            Ok(stored) => requests.extend(stored.map(|stored| stored.request.for_channels())),
            Err(error) if error.is_of_one_decision() => {}
            Err(error) => return Err(error),
        }
    }
    let is_last = found.len() < limit as usize;
    Ok(OpenPage {
        requests,
        after: found.into_iter().next_back().filter(|_| !is_last),
    })
}

/// A resolved decision, as a channel settles it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedDecision {
    /// What was asked.
    pub request: ChannelRequest,
    /// How it ended.
    pub resolution: Resolution,
    /// When.
    pub resolved_at: UnixMillis,
}

/// How a decision ended; none while it is open or when there is no such decision.
///
/// # Errors
///
/// [`DecisionError::Corrupt`] and [`DecisionError::Incompatible`] for a decision that can't be used; those of the database.
pub fn resolved(
    snapshot: &Snapshot<'_>,
    decision: &DecisionId,
) -> Result<Option<ResolvedDecision>, DecisionError> {
    let stored = stored::load(&snapshot.sql(), decision.as_str())?;
    Ok(stored.and_then(|stored| {
        let request = stored.request.for_channels();
        stored.winner.map(|winner| ResolvedDecision {
            request,
            resolution: winner.resolution,
            resolved_at: winner.resolved_at,
        })
    }))
}
