//! What happened to a resource.

use holdpoint_state::Snapshot;
use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use serde::Serialize;
use serde_json::Value;

use super::stored;
use crate::error::ControllerError;
use crate::model::Uid;

/// One event of a resource. Who acted is not shown, only what kind of actor it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// The resource version that it led to.
    pub resource_version: u64,
    /// What happened.
    pub event_type: String,
    /// What kind of actor did it.
    pub actor: String,
    /// When.
    pub at: UnixMillis,
    /// Its facts; null when it has none, or none that can be read.
    pub facts: Value,
}

/// The events of a resource, newest first; those of a deleted one too, while its history is kept.
///
/// # Errors
///
/// Those of the database.
pub fn events(
    snapshot: &Snapshot<'_>,
    uid: &Uid,
    limit: u32,
) -> Result<Vec<EventView>, ControllerError> {
    let sql = snapshot.sql();
    let Some(key) = stored::history_key(&sql, uid)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(
        "SELECT e.resource_revision, e.event_type, e.actor_type, e.recorded_at, coalesce(e.payload, b.content)
         FROM events e LEFT JOIN blobs b ON b.blob_hash = e.payload_blob
         WHERE e.resource_key = :key ORDER BY e.resource_revision DESC LIMIT :limit",
    )?;
    let rows = statement.query_map(named_params! { ":key": key, ":limit": limit }, |row| {
        let facts: Option<Vec<u8>> = row.get(4)?;
        Ok(EventView {
            resource_version: row.get::<_, i64>(0)?.unsigned_abs(),
            event_type: row.get(1)?,
            actor: row.get(2)?,
            at: row.get(3)?,
            facts: facts
                .and_then(|facts| serde_json::from_slice(&facts).ok())
                .unwrap_or(Value::Null),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
