//! `runs`, `run_sources`, `run_bindings`, `workflow_definitions`.
#![expect(
    clippy::disallowed_methods,
    reason = "store room: may ask Change for SQL"
)]

use holdpoint_state::records::resources::expect_one;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Change, Content, Digest, ResourceKey, StateError};

use crate::error::WorkflowError;
use crate::id::RunId;
use crate::model::{ExecutionMode, ParkCode, QueueStatus, RunStatus, TerminalStatus};

/// A run as commands see it: the row, its binding and its queue row.
#[derive(Debug, Clone)]
pub(crate) struct RunRow {
    pub(crate) run_id: RunId,
    pub(crate) root_key: ResourceKey,
    pub(crate) restart_number: i64,
    pub(crate) parent_run_revision: Option<i64>,
    pub(crate) definition_digest: Digest,
    pub(crate) workflow_name: String,
    pub(crate) workflow_ref: String,
    pub(crate) launch_options: Digest,
    pub(crate) input: Digest,
    pub(crate) status: RunStatus,
    pub(crate) paused: bool,
    pub(crate) session: String,
    pub(crate) mode: ExecutionMode,
    pub(crate) queue: QueueStatus,
    pub(crate) error_code: Option<String>,
}

impl RunRow {
    /// The code that the run is parked with, if it is one of the closed set.
    pub(crate) fn park_code(&self) -> Option<ParkCode> {
        self.error_code.as_deref().and_then(ParkCode::from_text)
    }

    /// The command makes no sense in the run's present state.
    pub(crate) fn rejected(&self, problem: impl Into<String>) -> WorkflowError {
        WorkflowError::Rejected {
            run: self.run_id.to_string(),
            status: self.status,
            paused: self.paused,
            problem: problem.into(),
        }
    }

    /// A runner's proposal does not follow from what is committed.
    pub(crate) fn transition(&self, problem: impl Into<String>) -> WorkflowError {
        WorkflowError::Transition {
            run: self.run_id.to_string(),
            problem: problem.into(),
        }
    }
}

/// The run of this change.
pub(crate) fn run(change: &mut Change<'_>) -> Result<RunRow, WorkflowError> {
    let key = change.resource_key()?;
    run_at(change, key)?.ok_or_else(|| WorkflowError::NoRun {
        run: change.resource().key().to_owned(),
    })
}

/// Any run, by its id. Reading it gives no right to change it.
pub(crate) fn run_named(change: &mut Change<'_>, id: &str) -> Result<Option<RunRow>, StateError> {
    let key: Option<ResourceKey> = change
        .sql()
        .prepare_cached("SELECT resource_key FROM runs WHERE run_id = :run_id")?
        .query_row(named_params! { ":run_id": id }, |row| row.get(0))
        .optional()?;
    match key {
        Some(key) => run_at(change, key),
        None => Ok(None),
    }
}

fn run_at(change: &mut Change<'_>, key: ResourceKey) -> Result<Option<RunRow>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.run_id, r.root_key, r.restart_number, r.parent_run_revision, r.definition_digest, d.workflow_name,
                 r.workflow_ref, coalesce(r.launch_options_digest, r.launch_options_hash), coalesce(r.input_digest, r.input_hash),
                 r.status, r.paused, b.origin_session_id, b.execution_mode, q.status, q.error_code
             FROM runs r
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             JOIN run_bindings b ON b.run_key = r.resource_key
             JOIN run_queue q ON q.run_key = r.resource_key
             WHERE r.resource_key = :key",
        )?
        .query_row(named_params! { ":key": key }, from_row)
        .optional()?)
}

fn from_row(row: &Row<'_>) -> Result<RunRow, SqlError> {
    Ok(RunRow {
        run_id: row.get(0)?,
        root_key: row.get(1)?,
        restart_number: row.get(2)?,
        parent_run_revision: row.get(3)?,
        definition_digest: row.get(4)?,
        workflow_name: row.get(5)?,
        workflow_ref: row.get(6)?,
        launch_options: row.get(7)?,
        input: row.get(8)?,
        status: row.get(9)?,
        paused: row.get(10)?,
        session: row.get(11)?,
        mode: row.get(12)?,
        queue: row.get(13)?,
        error_code: row.get(14)?,
    })
}

/// The launch options and the input of any run.
pub(crate) fn contents(
    change: &mut Change<'_>,
    run: ResourceKey,
) -> Result<(Content, Content), StateError> {
    let (options, input) = change
        .sql()
        .prepare_cached(
            "SELECT launch_options_digest, launch_options, launch_options_hash, input_digest, input, input_hash
             FROM runs WHERE resource_key = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok((Content::from_row(row, 0)?, Content::from_row(row, 3)?))
        })?;
    options.zip(input).ok_or_else(|| StateError::Corrupt {
        what: format!("run {run:?}"),
        problem: "it has no input or no launch options".to_owned(),
    })
}

/// Where the execution of this change's run stands: the cheap read of every step.
pub(crate) fn status(change: &mut Change<'_>) -> Result<(RunStatus, Option<String>), StateError> {
    let key = change.resource_key()?;
    Ok(change
        .sql()
        .prepare_cached("SELECT status, status_detail FROM runs WHERE resource_key = :key")?
        .query_row(named_params! { ":key": key }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?)
}

/// The key and the resource revision of any run.
pub(crate) fn revision_of(
    change: &mut Change<'_>,
    id: &str,
) -> Result<Option<(ResourceKey, u64)>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT s.resource_key, s.revision FROM runs r JOIN resources s ON s.resource_key = r.resource_key
             WHERE r.run_id = :run_id",
        )?
        .query_row(named_params! { ":run_id": id }, |row| {
            Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs()))
        })
        .optional()?)
}

/// The id of the restart child of a run, if it has one.
pub(crate) fn restart_child(
    change: &mut Change<'_>,
    parent: ResourceKey,
) -> Result<Option<String>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT run_id FROM runs WHERE parent_key = :parent AND lineage_kind = 'restart'",
        )?
        .query_row(named_params! { ":parent": parent }, |row| row.get(0))
        .optional()?)
}

/// The run that reserves a session now.
pub(crate) fn reservation(
    change: &mut Change<'_>,
    session: &str,
) -> Result<Option<String>, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT r.run_id FROM run_queue q JOIN runs r ON r.resource_key = q.run_key
             WHERE q.origin_session_id = :session AND (q.status = 'queued' OR q.status = 'starting' OR q.status = 'running' OR q.status = 'parked')",
        )?
        .query_row(named_params! { ":session": session }, |row| row.get(0))
        .optional()?)
}

/// How many effects of this change's run are not settled, or settled without anybody knowing how.
pub(crate) fn open_effects(
    change: &mut Change<'_>,
    source: ResourceKey,
) -> Result<i64, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM effects WHERE source_key = :source AND (status = 'pending' OR status = 'applying' OR status = 'ambiguous')",
        )?
        .query_row(named_params! { ":source": source }, |row| row.get(0))?)
}

/// How many effects of this change's run wait for a person because nobody knows their outcome.
pub(crate) fn ambiguous_effects(
    change: &mut Change<'_>,
    source: ResourceKey,
) -> Result<i64, StateError> {
    Ok(change
        .sql()
        .prepare_cached(
            "SELECT count(*) FROM effects WHERE source_key = :source AND status = 'ambiguous'",
        )?
        .query_row(named_params! { ":source": source }, |row| row.get(0))?)
}

/// One source of a run: mount path, type, reference, revision.
pub(crate) type SourceRow = (String, String, String, String);

/// The sources of a run, by mount path.
pub(crate) fn sources(
    change: &mut Change<'_>,
    run: ResourceKey,
) -> Result<Vec<SourceRow>, StateError> {
    let sql = change.sql();
    let mut statement = sql.prepare_cached(
        "SELECT mount_path, source_type, source_ref, source_revision FROM run_sources
         WHERE run_key = :run ORDER BY mount_path",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Stores a definition, or meets the one with the same digest. The snapshot's blob must be there.
pub(crate) fn insert_definition(
    change: &mut Change<'_>,
    digest: Digest,
    name: &str,
    snapshot: Digest,
) -> Result<(), StateError> {
    let now = change.now();
    change
        .sql()
        .prepare_cached(
            "INSERT INTO workflow_definitions (definition_digest, workflow_name, definition_hash, created_at)
             VALUES (:digest, :name, :snapshot, :now)
             ON CONFLICT (definition_digest) DO NOTHING",
        )?
        .execute(named_params! { ":digest": digest, ":name": name, ":snapshot": snapshot, ":now": now })?;
    Ok(())
}

/// Whether a definition is stored.
pub(crate) fn has_definition(change: &mut Change<'_>, digest: Digest) -> Result<bool, StateError> {
    Ok(change
        .sql()
        .prepare_cached("SELECT 1 FROM workflow_definitions WHERE definition_digest = :digest")?
        .exists(named_params! { ":digest": digest })?)
}

/// What a new row of `runs` says.
pub(crate) struct NewRun<'a> {
    pub(crate) run_id: &'a RunId,
    pub(crate) parent: Option<(ResourceKey, u64, ResourceKey, i64)>,
    pub(crate) definition: Digest,
    pub(crate) workflow_ref: &'a str,
    pub(crate) launch_options: &'a Content,
    pub(crate) input: &'a Content,
}

/// Makes the run of this change, queued.
pub(crate) fn insert_run(change: &mut Change<'_>, run: &NewRun<'_>) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let (parent, revision, root, number) = match run.parent {
        Some((parent, revision, root, number)) => {
            (Some(parent), Some(integer(revision)), root, number)
        }
        None => (None, None, key, 0),
    };
    let (options, input) = (run.launch_options.columns(), run.input.columns());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO runs (resource_key, run_id, parent_key, root_key, lineage_kind, restart_number,
                 parent_run_revision, definition_digest, workflow_ref, launch_options_digest, launch_options, launch_options_hash,
                 status, input_digest, input, input_hash, created_at)
             VALUES (:key, :run_id, :parent, :root, iif(:parent IS NULL, NULL, 'restart'), :number,
                 :revision, :definition, :workflow_ref, :options_digest, :options, :options_blob,
                 'queued', :input_digest, :input, :input_blob, :now)",
        )?
        .execute(named_params! {
            ":key": key, ":run_id": run.run_id.as_str(), ":parent": parent, ":root": root, ":number": number,
            ":revision": revision, ":definition": run.definition, ":workflow_ref": run.workflow_ref,
            ":options_digest": options.0, ":options": options.1, ":options_blob": options.2,
            ":input_digest": input.0, ":input": input.1, ":input_blob": input.2, ":now": now,
        })?;
    expect_one(written, "runs", run.run_id)
}

/// Stores one source of the run of this change.
pub(crate) fn insert_source(
    change: &mut Change<'_>,
    (mount, kind, reference, revision): (&str, &str, &str, &str),
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO run_sources (run_key, mount_path, source_type, source_ref, source_revision)
             VALUES (:key, :mount, :kind, :reference, :revision)",
        )?
        .execute(named_params! {
            ":key": key, ":mount": mount, ":kind": kind, ":reference": reference, ":revision": revision,
        })?;
    expect_one(written, "run_sources", mount)
}

/// Binds the run of this change to a session.
pub(crate) fn insert_binding(
    change: &mut Change<'_>,
    session: &str,
    mode: ExecutionMode,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let written = change
        .sql()
        .prepare_cached(
            "INSERT INTO run_bindings (run_key, origin_session_id, execution_mode, created_at)
             VALUES (:key, :session, :mode, :now)",
        )?
        .execute(named_params! { ":key": key, ":session": session, ":mode": mode, ":now": now })?;
    expect_one(written, "run_bindings", session)
}

/// Leaves one state of the run for another.
pub(crate) fn set_status(
    change: &mut Change<'_>,
    from: RunStatus,
    to: RunStatus,
    detail: Option<&str>,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE runs SET status = :to, status_detail = :detail WHERE resource_key = :key AND status = :from",
        )?
        .execute(named_params! { ":key": key, ":from": from, ":to": to, ":detail": detail })?;
    expect_one(written, "runs", change.resource().key())
}

/// Changes what the run shows; its state stays.
pub(crate) fn set_detail(change: &mut Change<'_>, detail: Option<&str>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached("UPDATE runs SET status_detail = :detail WHERE resource_key = :key AND finished_at IS NULL")?
        .execute(named_params! { ":key": key, ":detail": detail })?;
    expect_one(written, "runs", change.resource().key())
}

/// Sets the title, once.
pub(crate) fn set_title(change: &mut Change<'_>, title: &str) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE runs SET title = :title WHERE resource_key = :key AND title IS NULL",
        )?
        .execute(named_params! { ":key": key, ":title": title })?;
    expect_one(written, "runs", change.resource().key())
}

/// Sets or clears the pause flag of a run that is not over.
pub(crate) fn set_paused(
    change: &mut Change<'_>,
    paused: bool,
    detail: Option<&str>,
) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE runs SET paused = :paused, status_detail = :detail
             WHERE resource_key = :key AND paused <> :paused AND finished_at IS NULL",
        )?
        .execute(named_params! { ":key": key, ":paused": paused, ":detail": detail })?;
    expect_one(written, "runs", change.resource().key())
}

/// Ends the run.
pub(crate) fn finish(
    change: &mut Change<'_>,
    status: TerminalStatus,
    output: Option<&Content>,
    error: Option<Digest>,
) -> Result<(), StateError> {
    let (key, now) = (change.resource_key()?, change.now());
    let output = output.map(Content::columns).unwrap_or_default();
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE runs SET status = :status, paused = 0, status_detail = NULL, final_output_digest = :output_digest,
                 final_output = :output, final_output_hash = :output_blob, error_hash = :error, finished_at = :now
             WHERE resource_key = :key AND finished_at IS NULL",
        )?
        .execute(named_params! {
            ":key": key, ":status": status.run(), ":output_digest": output.0, ":output": output.1,
            ":output_blob": output.2, ":error": error, ":now": now,
        })?;
    expect_one(written, "runs", change.resource().key())
}

/// Pins the run to another definition.
pub(crate) fn pin_definition(change: &mut Change<'_>, digest: Digest) -> Result<(), StateError> {
    let key = change.resource_key()?;
    let written = change
        .sql()
        .prepare_cached(
            "UPDATE runs SET definition_digest = :digest WHERE resource_key = :key AND finished_at IS NULL",
        )?
        .execute(named_params! { ":key": key, ":digest": digest })?;
    expect_one(written, "runs", change.resource().key())
}

/// Removes the sources of the run, for those of another definition.
pub(crate) fn remove_sources(change: &mut Change<'_>) -> Result<(), StateError> {
    let key = change.resource_key()?;
    change
        .sql()
        .prepare_cached("DELETE FROM run_sources WHERE run_key = :key")?
        .execute(named_params! { ":key": key })?;
    Ok(())
}

/// A counter as SQLite stores it.
pub(crate) fn integer(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}
