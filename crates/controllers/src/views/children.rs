//! The runs that resources asked for.

use holdpoint_state::command::Sql;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{ResourceKey, Snapshot};
use holdpoint_workflows::RunId;

use super::stored;
use crate::error::ControllerError;
use crate::model::{ChildRecord, ChildState, RequestKey, Uid};

macro_rules! select_children {
    ($rest:literal) => {
        concat!(
            "SELECT w.request_id, r.aggregate_key, w.request_key, w.workflow_name, w.input_fingerprint, w.status, w.attempt_count,
                 w.reserved_run_id, u.run_id, coalesce(w.error, b.content)
             FROM controller_workflows w JOIN resources r ON r.resource_key = w.resource_key
             LEFT JOIN runs u ON u.resource_key = w.run_key LEFT JOIN blobs b ON b.blob_hash = w.error_hash ",
            $rest
        )
    };
}

fn child(row: &Row<'_>) -> Result<ChildRecord, SqlError> {
    let state: ChildState = row.get(5)?;
    Ok(ChildRecord {
        request_id: row.get(0)?,
        resource_uid: row.get(1)?,
        request_key: row.get(2)?,
        workflow: row.get(3)?,
        input_fingerprint: row.get(4)?,
        state,
        attempt: row.get::<_, i64>(6)?.unsigned_abs(),
        reserved_run_id: row.get(7)?,
        run_id: row.get(8)?,
        error: stored::error_text(row.get(9)?),
    })
}

pub(crate) fn by_key(
    sql: &Sql<'_>,
    key: ResourceKey,
    request: &RequestKey,
) -> Result<Option<ChildRecord>, ControllerError> {
    Ok(sql
        .prepare_cached(select_children!(
            "WHERE w.resource_key = :key AND w.request_key = :request"
        ))?
        .query_row(named_params! { ":key": key, ":request": request }, child)
        .optional()?)
}

pub(crate) fn by_request(
    sql: &Sql<'_>,
    request: &str,
) -> Result<Option<ChildRecord>, ControllerError> {
    Ok(sql
        .prepare_cached(select_children!("WHERE w.request_id = :request"))?
        .query_row(named_params! { ":request": request }, child)
        .optional()?)
}

/// The children of a resource, in the order in which they were asked for. A resource that does not exist has none.
///
/// # Errors
///
/// Those of the database.
pub fn children(snapshot: &Snapshot<'_>, uid: &Uid) -> Result<Vec<ChildRecord>, ControllerError> {
    let sql = snapshot.sql();
    let Some(key) = stored::key_of(&sql, uid)? else {
        return Ok(Vec::new());
    };
    let mut statement = sql.prepare_cached(select_children!(
        "WHERE w.resource_key = :key ORDER BY w.child_key"
    ))?;
    let rows = statement.query_map(named_params! { ":key": key }, child)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Requests whose run is over though they were not told: recovery work for the duty.
pub(crate) fn untold(
    snapshot: &Snapshot<'_>,
    limit: u32,
) -> Result<Vec<(String, RunId, String)>, ControllerError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT w.request_id, w.reserved_run_id, r.status FROM controller_workflows w JOIN runs r ON r.run_id = w.reserved_run_id
         WHERE w.reserved_run_id IS NOT NULL AND (w.status = 'pending' OR w.status = 'running' OR w.status = 'waiting')
             AND (r.status = 'completed' OR r.status = 'failed' OR r.status = 'timed_out' OR r.status = 'cancelled')
         LIMIT :limit",
    )?;
    let rows = statement.query_map(named_params! { ":limit": limit }, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
