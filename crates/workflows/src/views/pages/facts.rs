//! What a run is at: one row, whatever the run has behind it.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, Reads, ResourceKey, StateError};

use super::{Stored, blob, inline_or_blob, position, unsigned};
use crate::definition::SourceIdentity;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{QueueStatus, RequestKind, RunStatus};
use crate::views::{
    Activity, Control, DisplayFacts, DisplayStatus, SourceView, activity, controls, display_status,
};

/// The attempt that goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenVisit {
    /// The attempt.
    pub attempt_id: AttemptId,
    /// Its node.
    pub node_id: NodeId,
    /// When it began.
    pub started_at: UnixMillis,
}

/// What a run is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFacts {
    /// The key of its rows.
    pub key: ResourceKey,
    /// The run.
    pub run_id: RunId,
    /// Its workflow.
    pub workflow_name: String,
    /// The digest of its definition.
    pub definition_digest: Digest,
    /// Its title.
    pub run_title: Option<String>,
    /// The run that it restarts.
    pub parent_run_id: Option<String>,
    /// The public source of its definition.
    pub source: Option<SourceView>,
    /// Its origin session.
    pub origin_session_id: String,
    /// Why its queue row is parked or failed, as a code.
    pub error_code: Option<String>,
    /// What it is at, in words.
    pub status_detail: Option<String>,
    /// Its revision.
    pub revision: u64,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// When it was reserved.
    pub created_at: UnixMillis,
    /// When it was first executed.
    pub started_at: Option<UnixMillis>,
    /// When it ended.
    pub finished_at: Option<UnixMillis>,
    /// What its display status is derived from. Whether it can be restarted is not asked here.
    pub display: DisplayFacts,
    /// The attempt that goes on.
    pub open: Option<OpenVisit>,
    /// How many steps it has.
    pub step_total: u64,
    /// The node of its last step.
    pub last_node: Option<NodeId>,
    /// The attempt that goes on, or else that of the last step.
    pub present_attempt: Option<i64>,
}

impl RunFacts {
    /// The status word for people.
    pub fn display_status(&self) -> DisplayStatus {
        display_status(&self.display)
    }

    /// What can be done with it now.
    pub fn controls(&self) -> Vec<Control> {
        controls(&self.display)
    }

    /// What goes on for it at this moment.
    pub fn activity(&self) -> Vec<Activity> {
        activity(&self.display)
    }

    /// The visit that is executed now.
    pub fn current(&self) -> Option<&OpenVisit> {
        self.open
            .as_ref()
            .filter(|_| self.display.status == RunStatus::Running)
    }

    /// The node that it waits at.
    pub fn waiting_on(&self) -> Option<&NodeId> {
        if self.display.status != RunStatus::Waiting {
            return None;
        }
        match &self.open {
            Some(open) => Some(&open.node_id),
            None => self.last_node.as_ref(),
        }
    }
}

/// The columns of [`from_row`], in order, with the rest of the statement. What is asked of other tables is found by an index that
/// holds what is open only: a run may have any number of finished turns and effects (`+` keeps SQLite from walking through those).
macro_rules! select_facts {
    ($rest:literal) => {
        concat!(
            "SELECT r.resource_key, r.run_id, d.workflow_name, r.definition_digest, r.title,
                 (SELECT p.run_id FROM runs p WHERE p.resource_key = r.parent_key),
                 w.source_type, w.source_ref, w.source_revision, b.origin_session_id, q.error_code, r.status_detail,
                 s.revision, s.updated_at, r.created_at, q.started_at, r.finished_at, r.status, r.paused, q.status, l.expires_at,
                 EXISTS (SELECT 1 FROM effects e WHERE +e.source_key = r.resource_key AND e.status = 'ambiguous'),
                 (SELECT i.kind FROM interactive_requests i WHERE i.run_key = r.resource_key AND i.status = 'pending'),
                 EXISTS (SELECT 1 FROM workflow_turns t WHERE t.target_session_id = b.origin_session_id AND t.state = 'started'
                     AND +t.run_key = r.resource_key),
                 a.attempt_id, a.node_id, a.started_at, t.step_index, n.node_id, coalesce(a.attempt_key, t.attempt_key)
             FROM runs r
             JOIN resources s ON s.resource_key = r.resource_key
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             JOIN run_bindings b ON b.run_key = r.resource_key
             JOIN run_queue q ON q.run_key = r.resource_key
             JOIN run_sources w ON w.run_key = r.resource_key AND w.mount_path = ''
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             LEFT JOIN node_attempts a ON a.attempt_key = (SELECT o.attempt_key FROM node_attempts o
                 WHERE o.run_key = r.resource_key AND (o.status = 'pending' OR o.status = 'running' OR o.status = 'waiting'))
             LEFT JOIN run_steps t ON t.run_key = r.resource_key
                 AND t.step_index = (SELECT max(m.step_index) FROM run_steps m WHERE m.run_key = r.resource_key)
             LEFT JOIN node_attempts n ON n.attempt_key = t.attempt_key ",
            $rest
        )
    };
}

/// What a run is at; `now` decides whether its lease is live.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn facts(
    reads: &impl Reads,
    run: ResourceKey,
    now: UnixMillis,
) -> Result<Option<RunFacts>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(select_facts!("WHERE r.resource_key = :run"))?
        .query_row(named_params! { ":run": run }, |row| from_row(row, now))
        .optional()?)
}

/// Runs from the newest on, `skip` of them left out; all of them older than `before`, if there is one.
///
/// # Errors
///
/// Those of the database.
pub fn newest(
    reads: &impl Reads,
    before: Option<ResourceKey>,
    (skip, limit): (u64, u64),
    now: UnixMillis,
) -> Result<Vec<RunFacts>, StateError> {
    let sql = reads.reading();
    // The keys are found first: what is left out costs a step of an index each.
    let mut statement = sql.prepare_cached(select_facts!(
        "WHERE r.resource_key IN (SELECT k.resource_key FROM runs k WHERE k.resource_key < coalesce(:before, 9223372036854775807)
             ORDER BY k.resource_key DESC LIMIT :limit OFFSET :skip)
         ORDER BY r.resource_key DESC"
    ))?;
    let parameters = named_params! {
        ":before": before, ":skip": position(skip), ":limit": position(limit),
    };
    let rows = statement.query_map(parameters, |row| from_row(row, now))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How many runs there are.
///
/// # Errors
///
/// Those of the database.
pub fn total(reads: &impl Reads) -> Result<u64, StateError> {
    Ok(reads
        .reading()
        .prepare_cached("SELECT count(*) FROM runs")?
        .query_row([], |row| unsigned(row, 0))?)
}

/// The key of a run.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn key_of(reads: &impl Reads, run: &str) -> Result<Option<ResourceKey>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached("SELECT resource_key FROM runs WHERE run_id = :run")?
        .query_row(named_params! { ":run": run }, |row| row.get(0))
        .optional()?)
}

/// The run that a resource is part of: itself, or the run of an effect, a recording, a scope of settings or a follow-up. None for what
/// is part of no run.
///
/// # Errors
///
/// Those of the database.
pub fn run_behind(
    reads: &impl Reads,
    kind: &str,
    key: ResourceKey,
) -> Result<Option<ResourceKey>, StateError> {
    let sql = reads.reading();
    let mut statement = match kind {
        "run" => {
            sql.prepare_cached("SELECT resource_key FROM runs WHERE resource_key = :key")?
        }
        "effect" => sql.prepare_cached(
            "SELECT r.resource_key FROM effects e JOIN runs r ON r.resource_key = e.source_key WHERE e.resource_key = :key",
        )?,
        "session" => {
            sql.prepare_cached("SELECT run_key FROM session_segments WHERE resource_key = :key")?
        }
        "settings" => sql.prepare_cached(
            "SELECT active_run_key FROM workflow_settings WHERE resource_key = :key",
        )?,
        "follow_up" => {
            sql.prepare_cached("SELECT run_key FROM workflow_follow_ups WHERE resource_key = :key")?
        }
        _ => return Ok(None),
    };
    Ok(statement
        .query_row(named_params! { ":key": key }, |row| row.get(0))
        .optional()?)
}

fn from_row(row: &Row<'_>, now: UnixMillis) -> Result<RunFacts, SqlError> {
    let (kind, reference, revision): (String, String, String) =
        (row.get(6)?, row.get(7)?, row.get(8)?);
    let is_public = SourceIdentity::from_parts(&kind, &reference, &revision)
        .map_or(true, |source| source.is_public());
    let status: RunStatus = row.get(17)?;
    let queue: QueueStatus = row.get(19)?;
    let expires_at: Option<UnixMillis> = row.get(20)?;
    let asks: Option<RequestKind> = row.get(22)?;
    let open = match row.get::<_, Option<AttemptId>>(24)? {
        Some(attempt_id) if !status.is_terminal() => Some(OpenVisit {
            attempt_id,
            node_id: row.get(25)?,
            started_at: row.get(26)?,
        }),
        _ => None,
    };
    let last_step: Option<i64> = row.get(27)?;
    Ok(RunFacts {
        key: row.get(0)?,
        run_id: row.get(1)?,
        workflow_name: row.get(2)?,
        definition_digest: row.get(3)?,
        run_title: row.get(4)?,
        parent_run_id: row.get(5)?,
        source: is_public.then_some(SourceView {
            source_type: kind,
            reference,
            revision,
        }),
        origin_session_id: row.get(9)?,
        error_code: row.get(10)?,
        status_detail: row.get(11)?,
        revision: unsigned(row, 12)?,
        updated_at: row.get(13)?,
        created_at: row.get(14)?,
        started_at: row.get(15)?,
        finished_at: row.get(16)?,
        display: DisplayFacts {
            status,
            paused: row.get(18)?,
            ambiguous: row.get(21)?,
            asks,
            active: expires_at.is_some_and(|at| now < at),
            turn: row.get(23)?,
            parked: queue == QueueStatus::Parked,
            restartable: false,
        },
        open,
        step_total: last_step.map_or(0, |index| index.unsigned_abs().saturating_add(1)),
        last_node: row.get(28)?,
        present_attempt: row.get(29)?,
    })
}

/// The values of a run that there is one of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunValues {
    /// Its input.
    pub input: Option<Stored>,
    /// Its output.
    pub final_output: Option<Stored>,
    /// Its error, or that of its queue row.
    pub error: Option<Stored>,
}

/// The values of a run, each with at most `most` bytes.
///
/// # Errors
///
/// Those of the database. A missing run is `None`.
pub fn values(
    reads: &impl Reads,
    run: ResourceKey,
    most: u64,
) -> Result<Option<RunValues>, StateError> {
    Ok(reads
        .reading()
        .prepare_cached(
            "SELECT r.input_digest, r.input, r.input_hash, i.byte_length, CASE WHEN i.byte_length <= :most THEN i.content END,
                 r.final_output_digest, r.final_output, r.final_output_hash, o.byte_length,
                 CASE WHEN o.byte_length <= :most THEN o.content END,
                 coalesce(r.error_hash, q.error_hash), e.byte_length, CASE WHEN e.byte_length <= :most THEN e.content END
             FROM runs r JOIN run_queue q ON q.run_key = r.resource_key
             LEFT JOIN blobs i ON i.blob_hash = r.input_hash
             LEFT JOIN blobs o ON o.blob_hash = r.final_output_hash
             LEFT JOIN blobs e ON e.blob_hash = coalesce(r.error_hash, q.error_hash)
             WHERE r.resource_key = :run",
        )?
        .query_row(named_params! { ":run": run, ":most": position(most) }, |row| {
            Ok(RunValues {
                input: inline_or_blob(row, 0)?,
                final_output: inline_or_blob(row, 5)?,
                error: blob(row, 10, false)?,
            })
        })
        .optional()?)
}
