//! One run as the engine takes it up: everything that its next move depends on, at one revision. Not here: what people see (`run`).

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json_column;
use super::run::{mounted_sources, steps};
use crate::definition::SourceIdentity;
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{ExecutionMode, RunStatus};
use crate::routing::{self, NodeResult};

/// An attempt that is not over.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenAttempt {
    pub(crate) attempt_id: AttemptId,
    pub(crate) node_id: NodeId,
    pub(crate) node_type: String,
    pub(crate) started_at: UnixMillis,
    /// The settings that it began with.
    pub(crate) settings: Option<Digest>,
}

pub(super) fn open_attempt(
    snapshot: &Snapshot<'_>,
    run: i64,
) -> Result<Option<OpenAttempt>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT attempt_id, node_id, node_type, started_at, settings_hash FROM node_attempts
             WHERE run_key = :run AND (status = 'pending' OR status = 'running' OR status = 'waiting')",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok(OpenAttempt {
                attempt_id: row.get(0)?,
                node_id: row.get(1)?,
                node_type: row.get(2)?,
                started_at: row.get(3)?,
                settings: row.get(4)?,
            })
        })
        .optional()?)
}

/// A run as the engine takes it up: everything that its next move depends on, at one revision.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoadedRun {
    pub(crate) run_id: RunId,
    pub(crate) revision: u64,
    pub(crate) status: RunStatus,
    pub(crate) workflow_ref: String,
    pub(crate) source: SourceIdentity,
    /// The sources of what it includes, by mount path.
    pub(crate) mounted: Vec<(String, SourceIdentity)>,
    pub(crate) definition_digest: Digest,
    pub(crate) mode: ExecutionMode,
    pub(crate) title: Option<String>,
    pub(crate) input: Value,
    /// A worker process is told it step by step.
    #[serde(skip)]
    pub(crate) history: Vec<NodeResult>,
    pub(crate) attempt: Option<OpenAttempt>,
    /// The accepted answer that the open attempt has not used yet.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "routing::present"
    )]
    pub(crate) answer: Option<Value>,
    /// The receipt of that answer, when it is the visible text of a model or answers a decision: the step keeps it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "routing::present"
    )]
    pub(crate) answer_receipt: Option<Value>,
    /// What it waits for, while nobody gave it.
    pub(crate) asked: Option<Asked>,
}

/// A pending request, as the engine looks at it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Asked {
    /// The candidate that a runner has to look at, with its payload.
    pub(crate) candidate: Option<(String, Value)>,
    /// Whether a model spent the time of the request.
    pub(crate) is_expired: bool,
}

fn asked(snapshot: &Snapshot<'_>, run: i64) -> Result<Option<Asked>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT s.submission_id, b.content,
                 (q.kind = 'agent' OR q.kind = 'assistant') AND 0 < a.timeout_ms AND a.timeout_ms <=
                     (SELECT total(i.elapsed_ms) FROM attempt_active_intervals i WHERE i.attempt_key = a.attempt_key)
             FROM interactive_requests q
             JOIN node_attempts a ON a.attempt_key = q.attempt_key
             LEFT JOIN interactive_submissions s ON s.request_key = q.request_key AND s.outcome = 'validating'
             LEFT JOIN blobs b ON b.blob_hash = s.payload_hash
             WHERE q.run_key = :run AND q.status = 'pending'",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            let candidate: Option<String> = row.get(0)?;
            let payload = json_column(row, 1)?.unwrap_or(Value::Null);
            Ok(Asked {
                candidate: candidate.map(|candidate| (candidate, payload)),
                is_expired: row.get::<_, Option<bool>>(2)?.unwrap_or(false),
            })
        })
        .optional()?)
}

/// Loads a run for the engine.
pub(crate) fn load(
    snapshot: &Snapshot<'_>,
    id: &RunId,
) -> Result<Option<LoadedRun>, WorkflowError> {
    let sql = snapshot.sql();
    let head = sql
        .prepare_cached(
            "SELECT r.resource_key, s.revision, r.status, r.workflow_ref, w.source_type, w.source_ref, w.source_revision,
                 r.definition_digest, coalesce(r.input, input.content), b.execution_mode, r.title,
                 EXISTS (SELECT 1 FROM run_sources m WHERE m.run_key = r.resource_key AND m.mount_path <> '')
             FROM runs r
             JOIN resources s ON s.resource_key = r.resource_key
             JOIN run_bindings b ON b.run_key = r.resource_key
             JOIN run_sources w ON w.run_key = r.resource_key AND w.mount_path = ''
             LEFT JOIN blobs input ON input.blob_hash = r.input_hash
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?.unsigned_abs(),
                row.get::<_, RunStatus>(2)?,
                row.get::<_, String>(3)?,
                (row.get::<_, String>(4)?, row.get::<_, String>(5)?, row.get::<_, String>(6)?),
                row.get::<_, Digest>(7)?,
                row.get::<_, Vec<u8>>(8)?,
                (row.get::<_, ExecutionMode>(9)?, row.get::<_, Option<String>>(10)?, row.get::<_, bool>(11)?),
            ))
        })
        .optional()
        .map_err(StateError::from)?;
    let Some((
        key,
        revision,
        status,
        workflow_ref,
        source,
        definition_digest,
        input,
        (mode, title, is_composed),
    )) = head
    else {
        return Ok(None);
    };
    let input = serde_json::from_slice(&input).map_err(|error| StateError::Corrupt {
        what: format!("the input of run {id}"),
        problem: error.to_string(),
    })?;
    let answer = sql
        .prepare_cached(
            "SELECT payload.content, CASE WHEN q.kind = 'assistant' OR q.kind = 'decision' THEN receipt.content END
             FROM interactive_requests q
             JOIN interactive_submissions s ON s.submission_id = q.accepted_submission_id
             JOIN blobs payload ON payload.blob_hash = s.payload_hash
             LEFT JOIN blobs receipt ON receipt.blob_hash = s.receipt_hash
             WHERE q.run_key = :run AND q.status = 'settled' AND q.consumed_at IS NULL",
        )?
        .query_row(named_params! { ":run": key }, |row| {
            Ok((json_column(row, 0)?, json_column(row, 1)?))
        })
        .optional()
        .map_err(StateError::from)?;
    let (answer, answer_receipt) = answer.unwrap_or_default();
    // Only a run that waits can ask, and most that are loaded do not wait.
    let asked = if status == RunStatus::Waiting {
        asked(snapshot, key)?
    } else {
        None
    };
    Ok(Some(LoadedRun {
        run_id: id.clone(),
        revision,
        status,
        workflow_ref,
        source: SourceIdentity::from_parts(&source.0, &source.1, &source.2)?,
        mounted: if is_composed {
            mounted_sources(snapshot, key)?
        } else {
            Vec::new()
        },
        definition_digest,
        mode,
        title,
        input,
        history: steps(snapshot, key)?
            .into_iter()
            .map(|(result, receipt, _)| NodeResult {
                receipt: receipt.filter(|_| result.node_type == "checkpoint"),
                ..result
            })
            .collect(),
        attempt: open_attempt(snapshot, key)?,
        answer,
        answer_receipt,
        asked,
    }))
}

/// The source and the digest of the definition that a run is pinned to.
pub(crate) fn pinned(
    snapshot: &Snapshot<'_>,
    id: &RunId,
) -> Result<Option<(SourceIdentity, Digest)>, WorkflowError> {
    let found = snapshot
        .sql()
        .prepare_cached(
            "SELECT w.source_type, w.source_ref, w.source_revision, r.definition_digest
             FROM runs r JOIN run_sources w ON w.run_key = r.resource_key AND w.mount_path = ''
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, Digest>(3)?,
            ))
        })
        .optional()
        .map_err(StateError::from)?;
    let Some((kind, reference, revision, digest)) = found else {
        return Ok(None);
    };
    let source = SourceIdentity::from_parts(&kind, &reference, &revision)?;
    Ok(Some((source, digest)))
}

/// The stored snapshot of a definition.
pub(crate) fn definition_snapshot(
    snapshot: &Snapshot<'_>,
    digest: Digest,
) -> Result<Option<Value>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT b.content FROM workflow_definitions d JOIN blobs b ON b.blob_hash = d.definition_hash
             WHERE d.definition_digest = :digest",
        )?
        .query_row(named_params! { ":digest": digest }, |row| json_column(row, 0))
        .optional()?
        .flatten())
}
