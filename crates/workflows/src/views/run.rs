//! One run, whole, for people. The engine takes up what `load` gives.

use std::collections::BTreeMap;

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use serde::Serialize;
use serde_json::Value;

use super::display::{
    Activity, Control, DisplayFacts, DisplayStatus, activity, controls, display_status,
};
use super::load::open_attempt;
use super::messages::{TurnView, open_turn};
use super::settings::{SettingsView, settings};
use super::{json_column, text_column};
use crate::definition::SourceIdentity;
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId, ScopeId};
use crate::model::{
    AttemptStatus, ExecutionMode, QueueStatus, RequestKind, RequestStatus, RunStatus,
};
use crate::routing::{self, NodeOutcome, NodeResult};

/// Where a run's definition came from, as far as it is public.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceView {
    /// `file` or `builtin`.
    pub source_type: String,
    /// The path or the id.
    pub reference: String,
    /// The digest of the file, or the revision.
    pub revision: String,
}

/// Where an included workflow came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MountedSourceView {
    /// The path of its mount.
    pub mount_path: String,
    /// Its source.
    #[serde(flatten)]
    pub source: SourceView,
}

/// One accepted step.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StepView {
    /// Its place in the history, from 0.
    pub index: i64,
    /// How it ended.
    #[serde(flatten)]
    pub result: NodeResult,
    /// What a shell, a function or an effect left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Value>,
    /// The settings that it read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SettingsRead>,
}

/// Which settings an attempt read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SettingsRead {
    /// The scope.
    pub scope_id: ScopeId,
    /// The change number.
    pub change_number: u64,
}

/// What a run asks, or asked last.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestView {
    /// The request.
    pub request_id: String,
    /// Who must answer.
    pub kind: RequestKind,
    /// Where it stands.
    pub status: RequestStatus,
    /// Its revision, for an answer that must not meet a later state.
    pub revision: u64,
    /// The node that asks.
    pub node_id: NodeId,
    /// What is asked.
    pub contract: Value,
    /// When it was asked.
    pub created_at: UnixMillis,
    /// Why the latest candidate for it was refused, when nothing was accepted yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// An effect that nobody knows the outcome of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EffectToReview {
    /// Its id, by which it is resolved.
    pub effect_id: String,
    /// Its type.
    pub effect_type: String,
}

/// A run as readers see it (`pi-workflows.run-state.v1`), with its display status and controls.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// The name of its workflow.
    pub workflow_name: String,
    /// The reference by which it was started.
    pub workflow_ref: String,
    /// `sha256:` and the digest of its definition, when it includes others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition_digest: Option<String>,
    /// Its source; none for a definition that a program brought.
    pub source: Option<SourceView>,
    /// The sources of the workflows that it includes, sorted by mount path; without those that a program brought.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounted_sources: Vec<MountedSourceView>,
    /// Its title.
    pub run_title: Option<String>,
    /// Its status.
    pub status: RunStatus,
    /// The status word for people.
    pub display_status: DisplayStatus,
    /// Whether somebody paused it.
    pub paused: bool,
    /// What it is at.
    pub status_detail: Option<String>,
    /// What can be done with it now.
    pub controls: Vec<Control>,
    /// What goes on for it at this moment, whatever its status is.
    pub activity: Vec<Activity>,
    /// The model turn that goes on for it in its session.
    pub open_turn: Option<TurnView>,
    /// Who executes it.
    pub execution_mode: ExecutionMode,
    /// The state of its queue row.
    pub queue_status: QueueStatus,
    /// Why it is parked or failed, as a code.
    pub error_code: Option<String>,
    /// The resource's revision, which commands take.
    pub run_revision: u64,
    /// Its input.
    pub input: Value,
    /// The latest output of each node whose latest visit ended well.
    pub outputs: BTreeMap<NodeId, Value>,
    /// The latest result of each node.
    pub results: BTreeMap<NodeId, NodeResult>,
    /// Its history.
    pub steps: Vec<StepView>,
    /// The node that is executed now.
    pub current_node: Option<NodeId>,
    /// The attempt that goes on now.
    pub current_attempt_id: Option<AttemptId>,
    /// The node that it waits at.
    pub waiting_on: Option<NodeId>,
    /// What it asks.
    pub request: Option<RequestView>,
    /// Its live settings, by mount path and invocation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingsView>,
    /// Its output.
    pub final_output: Option<Value>,
    /// Its error.
    pub error: Option<String>,
    /// How many of its effects nobody knows the outcome of.
    pub ambiguous_effects: u64,
    /// Those effects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects_to_review: Vec<EffectToReview>,
    /// The run that it restarts.
    pub parent_run_id: Option<RunId>,
    /// The first run of its tree.
    pub root_run_id: RunId,
    /// How often the tree was restarted before it.
    pub restart_number: u64,
    /// When it was reserved.
    pub created_at: UnixMillis,
    /// When it was first executed.
    pub started_at: Option<UnixMillis>,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// When it ended.
    pub finished_at: Option<UnixMillis>,
}

/// A run at the instant of the snapshot; `now` decides whether its lease is live.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn run(
    snapshot: &Snapshot<'_>,
    id: &RunId,
    now: UnixMillis,
) -> Result<Option<RunView>, WorkflowError> {
    let Some(Head {
        mut view,
        key,
        is_active: active,
        restarts,
        has,
    }) = head(snapshot, id, now)?
    else {
        return Ok(None);
    };
    if has.settings {
        view.settings = settings(snapshot, id)?;
    }
    for (result, receipt, settings) in steps(snapshot, key)? {
        let index = i64::try_from(view.steps.len()).unwrap_or(i64::MAX);
        view.steps.push(StepView {
            index,
            result: result.clone(),
            receipt,
            settings,
        });
        routing::apply(&mut view.outputs, &mut view.results, result);
    }
    let mounted = if has.mounts {
        mounted_sources(snapshot, key)?
    } else {
        Vec::new()
    };
    if mounted.is_empty() {
        view.definition_digest = None;
    }
    view.mounted_sources = mounted
        .into_iter()
        .filter(|(_, source)| source.is_public())
        .map(|(mount_path, source)| MountedSourceView {
            mount_path,
            source: SourceView {
                source_type: source.source_type().to_owned(),
                reference: source.reference(),
                revision: source.revision().to_owned(),
            },
        })
        .collect();
    if 0 < view.ambiguous_effects {
        view.effects_to_review = effects_to_review(snapshot, key)?;
    }
    if has.requests {
        view.request = request(snapshot, key)?;
        // Turns answer requests.
        view.open_turn = open_turn(snapshot, key)?;
    }
    let attempt = if view.status.is_terminal() {
        None
    } else {
        open_attempt(snapshot, key)?
    };
    if let Some(attempt) = attempt {
        if view.status == RunStatus::Running {
            view.current_node = Some(attempt.node_id.clone());
        }
        if view.status == RunStatus::Waiting {
            view.waiting_on = Some(attempt.node_id);
        }
        view.current_attempt_id = Some(attempt.attempt_id);
    } else if view.status == RunStatus::Waiting {
        view.waiting_on = view.steps.last().map(|step| step.result.node_id.clone());
    }
    let asks = view
        .request
        .as_ref()
        .filter(|request| request.status == RequestStatus::Pending)
        .map(|request| request.kind);
    let facts = DisplayFacts {
        status: view.status,
        paused: view.paused,
        ambiguous: 0 < view.ambiguous_effects,
        asks,
        active,
        turn: view.open_turn.is_some(),
        parked: view.queue_status == QueueStatus::Parked,
        restartable: view.status.is_terminal() && restarts && view.queue_status.is_settled(),
    };
    view.display_status = display_status(&facts);
    view.controls = controls(&facts);
    view.activity = activity(&facts);
    Ok(Some(view))
}

fn effects_to_review(snapshot: &Snapshot<'_>, run: i64) -> Result<Vec<EffectToReview>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT 'effect-' || lower(hex(s.aggregate_key)), e.effect_type FROM effects e JOIN resources s ON s.resource_key = e.resource_key
         WHERE e.source_key = :run AND e.status = 'ambiguous' ORDER BY e.resource_key",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, |row| {
        Ok(EffectToReview {
            effect_id: row.get(0)?,
            effect_type: row.get(1)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The rows that there is one of.
struct Head {
    view: RunView,
    key: i64,
    is_active: bool,
    restarts: bool,
    has: Has,
}

/// What else there is to read of a run. Most runs have nothing of it, and each question is a statement.
struct Has {
    settings: bool,
    mounts: bool,
    requests: bool,
}

fn head(
    snapshot: &Snapshot<'_>,
    id: &RunId,
    now: UnixMillis,
) -> Result<Option<Head>, WorkflowError> {
    let read = |row: &Row<'_>| -> Result<Head, SqlError> {
        let source_type: String = row.get(22)?;
        let reference: String = row.get(23)?;
        let revision: String = row.get(24)?;
        let public = SourceIdentity::from_parts(&source_type, &reference, &revision)
            .map_or(true, |source| source.is_public());
        let view = RunView {
            run_id: row.get(1)?,
            workflow_name: row.get(2)?,
            workflow_ref: row.get(3)?,
            definition_digest: Some(format!("sha256:{}", row.get::<_, Digest>(4)?)),
            mounted_sources: Vec::new(),
            source: public.then_some(SourceView {
                source_type,
                reference,
                revision,
            }),
            run_title: row.get(5)?,
            status: row.get(6)?,
            display_status: DisplayStatus::Queued,
            paused: row.get(7)?,
            status_detail: row.get(8)?,
            controls: Vec::new(),
            activity: Vec::new(),
            open_turn: None,
            execution_mode: row.get(9)?,
            queue_status: row.get(10)?,
            error_code: row.get(11)?,
            run_revision: row.get::<_, i64>(12)?.unsigned_abs(),
            input: json_column(row, 13)?.unwrap_or(Value::Null),
            outputs: BTreeMap::new(),
            results: BTreeMap::new(),
            steps: Vec::new(),
            current_node: None,
            current_attempt_id: None,
            waiting_on: None,
            request: None,
            settings: Vec::new(),
            final_output: json_column(row, 14)?,
            error: text_column(row, 15)?,
            ambiguous_effects: row.get::<_, i64>(16)?.unsigned_abs(),
            effects_to_review: Vec::new(),
            parent_run_id: row.get(17)?,
            root_run_id: row.get(18)?,
            restart_number: row.get::<_, i64>(19)?.unsigned_abs(),
            created_at: row.get(20)?,
            started_at: row.get(21)?,
            updated_at: row.get(25)?,
            finished_at: row.get(26)?,
        };
        let expires_at: Option<UnixMillis> = row.get(27)?;
        let open_effects: i64 = row.get(28)?;
        let restarted: bool = row.get(29)?;
        Ok(Head {
            view,
            key: row.get(0)?,
            is_active: expires_at.is_some_and(|at| now < at),
            restarts: open_effects == 0 && !restarted,
            has: Has {
                settings: row.get(30)?,
                mounts: row.get(31)?,
                requests: row.get(32)?,
            },
        })
    };
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT r.resource_key, r.run_id, d.workflow_name, r.workflow_ref, r.definition_digest, r.title, r.status, r.paused,
                 r.status_detail, b.execution_mode, q.status, q.error_code, s.revision, coalesce(r.input, input.content),
                 coalesce(r.final_output, output.content),
                 coalesce(error.content, queue_error.content),
                 (SELECT count(*) FROM effects e WHERE e.source_key = r.resource_key AND e.status = 'ambiguous'),
                 parent.run_id, root.run_id, r.restart_number, r.created_at, q.started_at,
                 w.source_type, w.source_ref, w.source_revision, s.updated_at, r.finished_at, l.expires_at,
                 (SELECT count(*) FROM effects e WHERE e.source_key = r.resource_key
                     AND (e.status = 'pending' OR e.status = 'applying' OR e.status = 'ambiguous')),
                 EXISTS (SELECT 1 FROM runs child WHERE child.parent_key = r.resource_key AND child.lineage_kind = 'restart'),
                 EXISTS (SELECT 1 FROM workflow_settings c WHERE c.active_run_key = r.resource_key),
                 EXISTS (SELECT 1 FROM run_sources m WHERE m.run_key = r.resource_key AND m.mount_path <> ''),
                 EXISTS (SELECT 1 FROM interactive_requests i WHERE i.run_key = r.resource_key)
             FROM runs r
             JOIN resources s ON s.resource_key = r.resource_key
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             JOIN run_bindings b ON b.run_key = r.resource_key
             JOIN run_queue q ON q.run_key = r.resource_key
             JOIN run_sources w ON w.run_key = r.resource_key AND w.mount_path = ''
             JOIN runs root ON root.resource_key = r.root_key
             LEFT JOIN runs parent ON parent.resource_key = r.parent_key
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             LEFT JOIN blobs input ON input.blob_hash = r.input_hash
             LEFT JOIN blobs output ON output.blob_hash = r.final_output_hash
             LEFT JOIN blobs error ON error.blob_hash = r.error_hash
             LEFT JOIN blobs queue_error ON queue_error.blob_hash = q.error_hash
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, read)
        .optional()
        .map_err(StateError::from)?)
}

/// Whether a run may be over, wait, be paused or be parked: false while it is queued or running and nothing holds it back. A missing
/// run may be anything.
pub(crate) fn may_have_stopped(snapshot: &Snapshot<'_>, id: &RunId) -> Result<bool, WorkflowError> {
    let goes_on: Option<bool> = snapshot
        .sql()
        .prepare_cached(
            "SELECT (r.status = 'queued' OR r.status = 'running') AND r.paused = 0 AND q.error_code IS NULL
                 AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.source_key = r.resource_key AND e.status = 'ambiguous')
             FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| row.get(0))
        .optional()
        .map_err(StateError::from)?;
    Ok(goes_on != Some(true))
}

/// The options that a run was launched with: what the program that started it has to say to the one that executes it.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn launch_options(snapshot: &Snapshot<'_>, id: &RunId) -> Result<Option<Value>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT coalesce(r.launch_options, b.content) FROM runs r LEFT JOIN blobs b ON b.blob_hash = r.launch_options_hash
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| json_column(row, 0))
        .optional()?
        .flatten())
}

/// A step: its result, its receipt, and the settings that it read.
pub(super) type Step = (NodeResult, Option<Value>, Option<SettingsRead>);

/// The history of a run: results and receipts in order.
pub(super) fn steps(snapshot: &Snapshot<'_>, run: i64) -> Result<Vec<Step>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT a.attempt_id, a.node_id, a.node_type, a.status, a.started_at, a.finished_at,
             coalesce(a.output, output.content), error.content,
             receipt.content, c.scope_id, a.settings_change_number
         FROM run_steps s
         JOIN node_attempts a ON a.attempt_key = s.attempt_key
         LEFT JOIN blobs output ON output.blob_hash = a.output_hash
         LEFT JOIN blobs error ON error.blob_hash = a.error_hash
         LEFT JOIN blobs receipt ON receipt.blob_hash = a.receipt_hash
         LEFT JOIN workflow_settings c ON c.resource_key = a.settings_scope_key
         WHERE s.run_key = :run ORDER BY s.step_index",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, |row| {
        let started_at: UnixMillis = row.get(4)?;
        let finished_at: UnixMillis = row.get::<_, Option<_>>(5)?.unwrap_or(started_at);
        let status: AttemptStatus = row.get(3)?;
        let result = NodeResult {
            attempt_id: row.get(0)?,
            node_id: row.get(1)?,
            node_type: row.get(2)?,
            outcome: status.outcome().unwrap_or(NodeOutcome::Cancelled),
            started_at: started_at.0,
            finished_at: finished_at.0,
            duration_ms: finished_at.since(started_at),
            output: json_column(row, 6)?,
            error: text_column(row, 7)?,
            receipt: None,
        };
        let settings = row
            .get::<_, Option<ScopeId>>(9)?
            .zip(row.get::<_, Option<i64>>(10)?)
            .map(|(scope_id, number)| SettingsRead {
                scope_id,
                change_number: number.unsigned_abs(),
            });
        Ok((result, json_column(row, 8)?, settings))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The pending request of a run, or its latest one.
fn request(snapshot: &Snapshot<'_>, run: i64) -> Result<Option<RequestView>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT q.request_id, q.kind, q.status, q.revision, a.node_id, contract.content, q.created_at,
                 (SELECT refused.content FROM interactive_submissions s JOIN blobs refused ON refused.blob_hash = s.receipt_hash
                  WHERE s.request_key = q.request_key AND s.outcome = 'rejected' AND q.status = 'pending'
                  ORDER BY s.submitted_at DESC, s.submission_id DESC LIMIT 1)
             FROM interactive_requests q
             JOIN node_attempts a ON a.attempt_key = q.attempt_key
             LEFT JOIN blobs contract ON contract.blob_hash = q.contract_hash
             WHERE q.run_key = :run ORDER BY q.status = 'pending' DESC, q.request_key DESC LIMIT 1",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok(RequestView {
                request_id: row.get(0)?,
                kind: row.get(1)?,
                status: row.get(2)?,
                revision: row.get::<_, i64>(3)?.unsigned_abs(),
                node_id: row.get(4)?,
                contract: json_column(row, 5)?.unwrap_or(Value::Null),
                created_at: row.get(6)?,
                refused: text_column(row, 7)?,
            })
        })
        .optional()?)
}

/// The sources of the workflows that a run includes, by mount path.
pub(super) fn mounted_sources(
    snapshot: &Snapshot<'_>,
    run: i64,
) -> Result<Vec<(String, SourceIdentity)>, WorkflowError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT mount_path, source_type, source_ref, source_revision FROM run_sources
             WHERE run_key = :run AND mount_path <> '' ORDER BY mount_path",
    )?;
    let rows = statement
        .query_map(named_params! { ":run": run }, |row| {
            Ok((
                row.get::<_, String>(0)?,
                (
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(3)?,
                ),
            ))
        })
        .map_err(StateError::from)?;
    let mut mounted = Vec::new();
    for row in rows {
        let (path, (kind, reference, revision)) = row.map_err(StateError::from)?;
        mounted.push((
            path,
            SourceIdentity::from_parts(&kind, &reference, &revision)?,
        ));
    }
    Ok(mounted)
}
