//! How a run ended, without how it came to that. Not here: the run whole (`run`), and what its session is told (`messages`).

use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;
use serde_json::Value;

use super::{json_column, text_column};
use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::RunStatus;

/// How a run ended: the short answer, which costs a reader two tables however long the run's history is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEnd {
    /// Its terminal status.
    pub status: RunStatus,
    /// The output of a run that completed.
    pub output: Option<Value>,
    /// Why it did not complete.
    pub error: Option<String>,
}

/// How a run ended; none when it is not over.
pub(crate) fn end(snapshot: &Snapshot<'_>, id: &RunId) -> Result<Option<RunEnd>, WorkflowError> {
    snapshot
        .sql()
        .prepare_cached(
            "SELECT r.finished_at IS NOT NULL, r.status, coalesce(r.final_output, output.content), error.content
             FROM runs r
             LEFT JOIN blobs output ON output.blob_hash = r.final_output_hash
             LEFT JOIN blobs error ON error.blob_hash = r.error_hash
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| {
            if !row.get::<_, bool>(0)? {
                return Ok(None);
            }
            Ok(Some(RunEnd {
                status: row.get(1)?,
                output: json_column(row, 2)?,
                error: text_column(row, 3)?,
            }))
        })
        .optional()
        .map_err(StateError::from)?
        .ok_or_else(|| WorkflowError::NoRun {
            run: id.to_string(),
        })
}
