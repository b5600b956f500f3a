//! What origin sessions have to show, what runs ask, and which turns go on.
//!
//! A message is offered as long as nothing proves that it is shown: offering is a read, and sending has no state of its own.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{OptionalExtension as _, Row, SqlError, named_params};
use holdpoint_state::{Digest, Snapshot, StateError};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{json_column, text_column};
use crate::error::WorkflowError;
use crate::id::{AttemptId, NodeId, RunId};
use crate::model::{MessageKind, MessageStatus, RequestKind, RunStatus, SubmissionOutcome};

/// How long the end of a run is shown after its message was.
const TERMINAL_VIEW_MS: i64 = 60_000;
/// The most bytes of an output that a message about an end carries.
const TOLD_OUTPUT_MAX: usize = 256 * 1024;
/// The most messages or requests that one list gives.
const LIMIT_MAX: usize = 1_000;

/// A message to a session.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageView {
    /// The message.
    pub message_id: String,
    /// The run that it is of.
    pub run_id: RunId,
    /// The session that it is for.
    pub session_id: String,
    /// What it is about.
    pub kind: MessageKind,
    /// The request, notification, follow-up or end that it shows.
    pub source_id: String,
    /// Its place among the session's messages, which never changes.
    pub order_number: i64,
    /// Where it stands.
    pub status: MessageStatus,
    /// The session's entry that shows it.
    pub entry_id: Option<String>,
    /// What it says.
    pub content: Value,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it last changed.
    pub updated_at: UnixMillis,
}

fn message_row(row: &Row<'_>) -> Result<MessageView, SqlError> {
    Ok(MessageView {
        message_id: row.get(0)?,
        run_id: row.get(1)?,
        session_id: row.get(2)?,
        kind: row.get(3)?,
        source_id: row.get(4)?,
        order_number: row.get(5)?,
        status: row.get(6)?,
        entry_id: row.get(7)?,
        content: json_column(row, 8)?.unwrap_or(Value::Null),
        created_at: row.get(9)?,
        updated_at: row.get(10)?,
    })
}

/// The messages of a run, in the order of its session.
///
/// # Errors
///
/// Those of the database.
pub fn messages_of_run(
    snapshot: &Snapshot<'_>,
    run: &RunId,
) -> Result<Vec<MessageView>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT m.workflow_message_id, r.run_id, m.target_session_id, m.kind, m.source_id, m.order_number, m.status,
             m.pi_session_entry_id, b.content, m.created_at, m.updated_at
         FROM runs r
         JOIN workflow_messages m ON m.run_key = r.resource_key
         LEFT JOIN blobs b ON b.blob_hash = m.content_hash
         WHERE r.run_id = :run ORDER BY m.order_number",
    )?;
    let rows = statement.query_map(named_params! { ":run": run }, message_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The latest messages of a session, oldest of them first.
///
/// # Errors
///
/// Those of the database.
pub fn messages_of_session(
    snapshot: &Snapshot<'_>,
    session: &str,
    limit: usize,
) -> Result<Vec<MessageView>, StateError> {
    let limit = i64::try_from(limit.clamp(1, LIMIT_MAX)).unwrap_or(i64::MAX);
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT m.workflow_message_id, r.run_id, m.target_session_id, m.kind, m.source_id, m.order_number, m.status,
             m.pi_session_entry_id, b.content, m.created_at, m.updated_at
         FROM workflow_messages m
         JOIN runs r ON r.resource_key = m.run_key
         LEFT JOIN blobs b ON b.blob_hash = m.content_hash
         WHERE m.target_session_id = :session ORDER BY m.order_number DESC LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! { ":session": session, ":limit": limit },
        message_row,
    )?;
    let mut messages: Vec<MessageView> = rows.collect::<Result<_, _>>()?;
    messages.reverse();
    Ok(messages)
}

/// The first message that a session may show now. One that may not be shown yet holds back none behind it.
///
/// # Errors
///
/// Those of the database.
pub fn next_message(
    snapshot: &Snapshot<'_>,
    session: &str,
) -> Result<Option<MessageView>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT m.workflow_message_id, r.run_id, m.target_session_id, m.kind, m.source_id, m.order_number, m.status,
                 m.pi_session_entry_id, b.content, m.created_at, m.updated_at
             FROM workflow_messages m
             JOIN runs r ON r.resource_key = m.run_key
             LEFT JOIN blobs b ON b.blob_hash = m.content_hash
             WHERE m.target_session_id = :session AND m.status = 'pending' AND (
                 (m.kind = 'step' AND r.paused = 0 AND EXISTS (SELECT 1 FROM interactive_requests q
                     WHERE q.request_id = m.source_id AND q.status = 'pending'))
                 OR (m.kind = 'decision' AND EXISTS (SELECT 1 FROM interactive_requests q
                     WHERE q.request_id = m.source_id AND q.status = 'pending'))
                 OR m.kind = 'notification'
                 OR (m.kind = 'terminal' AND r.finished_at IS NOT NULL)
                 OR (m.kind = 'followUp' AND r.status = 'completed'
                     AND EXISTS (SELECT 1 FROM workflow_follow_ups f
                         WHERE f.follow_up_id = m.source_id AND f.status = 'queued')
                     AND EXISTS (SELECT 1 FROM workflow_messages e
                         WHERE e.run_key = m.run_key AND e.kind = 'terminal' AND e.status = 'sent')
                     AND NOT EXISTS (SELECT 1 FROM workflow_turns t
                         WHERE t.target_session_id = :session AND t.state = 'started')
                     AND NOT EXISTS (SELECT 1 FROM workflow_messages o
                         JOIN workflow_follow_ups f ON f.follow_up_id = o.source_id
                         WHERE o.run_key = m.run_key AND o.kind = 'followUp' AND o.order_number < m.order_number
                             AND f.status = 'queued'
                             AND NOT EXISTS (SELECT 1 FROM workflow_turns t
                                 WHERE t.run_key = m.run_key AND t.message_key = o.message_key AND t.state = 'ended'))
                     AND NOT EXISTS (SELECT 1 FROM run_queue k WHERE k.origin_session_id = :session
                         AND (k.status = 'queued' OR k.status = 'starting' OR k.status = 'running' OR k.status = 'parked'))))
             ORDER BY m.order_number LIMIT 1",
        )?
        .query_row(named_params! { ":session": session }, message_row)
        .optional()?)
}

/// A message as a branch report looks for it.
pub(crate) struct KnownMessage {
    pub(crate) run_id: RunId,
    pub(crate) session: String,
    pub(crate) entry: Option<String>,
}

pub(crate) fn message(
    snapshot: &Snapshot<'_>,
    id: &str,
) -> Result<Option<KnownMessage>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT r.run_id, m.target_session_id, m.pi_session_entry_id
             FROM workflow_messages m JOIN runs r ON r.resource_key = m.run_key WHERE m.workflow_message_id = :id",
        )?
        .query_row(named_params! { ":id": id }, |row| {
            Ok(KnownMessage {
                run_id: row.get(0)?,
                session: row.get(1)?,
                entry: row.get(2)?,
            })
        })
        .optional()?)
}

/// The runs that a session works for now: the one that reserves it, and the one whose turn goes on.
pub(crate) fn runs_of_session(
    snapshot: &Snapshot<'_>,
    session: &str,
) -> Result<Vec<RunId>, StateError> {
    let sql = snapshot.sql();
    let mut runs = Vec::new();
    for query in [
        "SELECT r.run_id FROM run_queue k JOIN runs r ON r.resource_key = k.run_key
         WHERE k.origin_session_id = :session
             AND (k.status = 'queued' OR k.status = 'starting' OR k.status = 'running' OR k.status = 'parked')",
        "SELECT r.run_id FROM workflow_turns t JOIN runs r ON r.resource_key = t.run_key
         WHERE t.target_session_id = :session AND t.state = 'started'",
    ] {
        let mut statement = sql.prepare_cached(query)?;
        let rows = statement.query_map(named_params! { ":session": session }, |row| row.get(0))?;
        for row in rows {
            runs.push(row?);
        }
    }
    Ok(runs)
}

/// The session that a run is bound to.
pub(crate) fn session_of(
    snapshot: &Snapshot<'_>,
    run: &RunId,
) -> Result<Option<String>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT b.origin_session_id FROM runs r JOIN run_bindings b ON b.run_key = r.resource_key WHERE r.run_id = :run",
        )?
        .query_row(named_params! { ":run": run }, |row| row.get(0))
        .optional()?)
}

/// A model turn that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TurnView {
    /// The session's id of it.
    pub turn_id: String,
    /// The session.
    pub session_id: String,
    /// The message that it answers.
    pub message_id: String,
    /// When it began.
    pub started_at: UnixMillis,
}

/// The turn of a run that goes on.
pub(super) fn open_turn(snapshot: &Snapshot<'_>, run: i64) -> Result<Option<TurnView>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT t.workflow_turn_id, t.target_session_id, m.workflow_message_id, t.started_at
             FROM workflow_turns t JOIN workflow_messages m ON m.message_key = t.message_key
             WHERE t.run_key = :run AND t.state = 'started'",
        )?
        .query_row(named_params! { ":run": run }, |row| {
            Ok(TurnView {
                turn_id: row.get(0)?,
                session_id: row.get(1)?,
                message_id: row.get(2)?,
                started_at: row.get(3)?,
            })
        })
        .optional()?)
}

/// The run of a session whose clock should run and does not: its turn goes on, its request asks, it is not paused.
pub(crate) fn resting_clock(
    snapshot: &Snapshot<'_>,
    session: &str,
) -> Result<Option<RunId>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT r.run_id
             FROM workflow_turns t
             JOIN workflow_messages m ON m.message_key = t.message_key
             JOIN runs r ON r.resource_key = t.run_key
             JOIN interactive_requests q ON q.request_id = m.source_id
             JOIN node_attempts a ON a.attempt_key = q.attempt_key
             WHERE t.target_session_id = :session AND t.state = 'started' AND r.paused = 0 AND q.status = 'pending'
                 AND (q.kind = 'agent' OR q.kind = 'assistant') AND a.timeout_ms IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM attempt_active_intervals i
                     WHERE i.attempt_key = a.attempt_key AND i.ended_at IS NULL)",
        )?
        .query_row(named_params! { ":session": session }, |row| row.get(0))
        .optional()?)
}

/// The attempts whose clock is open, with their runs: of one session, or all.
pub(crate) fn open_clocks(
    snapshot: &Snapshot<'_>,
    session: Option<&str>,
) -> Result<Vec<(RunId, i64)>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT r.run_id, i.attempt_key
         FROM attempt_active_intervals i INDEXED BY attempt_active_intervals_one_open
         CROSS JOIN node_attempts a ON a.attempt_key = i.attempt_key
         JOIN runs r ON r.resource_key = a.run_key
         JOIN run_bindings b ON b.run_key = a.run_key
         WHERE i.ended_at IS NULL AND (:session IS NULL OR b.origin_session_id = :session)",
    )?;
    let rows = statement.query_map(named_params! { ":session": session }, |row| {
        Ok((row.get(0)?, row.get(1)?))
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Something that a model in a session is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentRequestView {
    /// The request.
    pub request_id: String,
    /// The run that asks.
    pub run_id: RunId,
    /// The name of its workflow.
    pub workflow_name: String,
    /// The session that is asked.
    pub session_id: String,
    /// Whether it is answered by submitting or by visible text.
    pub kind: RequestKind,
    /// Its revision.
    pub revision: u64,
    /// The node that asks.
    pub node_id: NodeId,
    /// The attempt that waits.
    pub attempt_id: AttemptId,
    /// Whether the run is paused.
    pub paused: bool,
    /// Whether a candidate is being looked at.
    pub validating: bool,
    /// How much model time it has, in milliseconds; none when it is unlimited.
    pub timeout_ms: Option<f64>,
    /// How much of it was measured as spent.
    pub spent_ms: f64,
    /// What is asked.
    pub contract: Value,
    /// When it was asked.
    pub created_at: UnixMillis,
}

/// What models in sessions are asked now, oldest first.
///
/// # Errors
///
/// Those of the database.
pub fn agent_requests(
    snapshot: &Snapshot<'_>,
    session: Option<&str>,
    limit: usize,
) -> Result<Vec<AgentRequestView>, StateError> {
    let limit = i64::try_from(limit.clamp(1, LIMIT_MAX)).unwrap_or(i64::MAX);
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT q.request_id, r.run_id, d.workflow_name, q.target_session_id, q.kind, q.revision, a.node_id, a.attempt_id,
             r.paused,
             EXISTS (SELECT 1 FROM interactive_submissions s WHERE s.request_key = q.request_key AND s.outcome = 'validating'),
             a.timeout_ms, (SELECT total(i.elapsed_ms) FROM attempt_active_intervals i WHERE i.attempt_key = a.attempt_key),
             b.content, q.created_at
         FROM interactive_requests q INDEXED BY interactive_requests_of_agents
         CROSS JOIN runs r ON r.resource_key = q.run_key
         JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
         JOIN node_attempts a ON a.attempt_key = q.attempt_key
         LEFT JOIN blobs b ON b.blob_hash = q.contract_hash
         WHERE q.status = 'pending' AND (q.kind = 'agent' OR q.kind = 'assistant')
             AND (:session IS NULL OR q.target_session_id = :session)
         ORDER BY q.request_key LIMIT :limit",
    )?;
    let rows = statement.query_map(
        named_params! { ":session": session, ":limit": limit },
        |row| {
            Ok(AgentRequestView {
                request_id: row.get(0)?,
                run_id: row.get(1)?,
                workflow_name: row.get(2)?,
                session_id: row.get(3)?,
                kind: row.get(4)?,
                revision: row.get::<_, i64>(5)?.unsigned_abs(),
                node_id: row.get(6)?,
                attempt_id: row.get(7)?,
                paused: row.get(8)?,
                validating: row.get(9)?,
                timeout_ms: row
                    .get::<_, Option<f64>>(10)?
                    .filter(|timeout| 0.0 < *timeout),
                spent_ms: row.get(11)?,
                contract: json_column(row, 12)?.unwrap_or(Value::Null),
                created_at: row.get(13)?,
            })
        },
    )?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The candidate.
    pub submission_id: String,
    /// The request that it is for.
    pub request_id: String,
    /// Where it stands.
    pub outcome: SubmissionOutcome,
    /// Why it was refused, when it was.
    pub message: Option<String>,
}

/// What became of a candidate of a run.
///
/// # Errors
///
/// Those of the database.
pub fn verdict(
    snapshot: &Snapshot<'_>,
    run: &RunId,
    submission: &str,
) -> Result<Option<Verdict>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT s.submission_id, q.request_id, s.outcome, b.content
             FROM interactive_submissions s
             JOIN interactive_requests q ON q.request_key = s.request_key
             JOIN runs r ON r.resource_key = q.run_key
             LEFT JOIN blobs b ON b.blob_hash = s.receipt_hash
             WHERE s.submission_id = :submission AND r.run_id = :run",
        )?
        .query_row(
            named_params! { ":submission": submission, ":run": run },
            |row| {
                let outcome = row.get(2)?;
                Ok(Verdict {
                    submission_id: row.get(0)?,
                    request_id: row.get(1)?,
                    outcome,
                    message: if outcome == SubmissionOutcome::Rejected {
                        text_column(row, 3)?
                    } else {
                        None
                    },
                })
            },
        )
        .optional()?)
}

/// Runs whose session was not told yet how they ended.
pub(crate) fn owing(snapshot: &Snapshot<'_>, limit: i64) -> Result<Vec<RunId>, StateError> {
    let sql = snapshot.sql();
    let mut statement = sql.prepare_cached(
        "SELECT r.run_id FROM run_bindings b INDEXED BY run_bindings_owing
         CROSS JOIN runs r ON r.resource_key = b.run_key
         WHERE b.owes_terminal_message = 1 ORDER BY b.run_key LIMIT :limit",
    )?;
    let rows = statement.query_map(named_params! { ":limit": limit }, |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether the session of a run was not told yet how it ended.
pub(crate) fn owes_end(snapshot: &Snapshot<'_>, run: &RunId) -> Result<bool, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached(
            "SELECT 1 FROM runs r JOIN run_bindings b ON b.run_key = r.resource_key
             WHERE r.run_id = :run AND b.owes_terminal_message = 1",
        )?
        .exists(named_params! { ":run": run })?)
}

/// The parent's key, what is known without looking at contents, and output and error with whether the run has them.
type TerminalHead = (
    Option<i64>,
    Map<String, Value>,
    (Option<Vec<u8>>, bool),
    (Option<String>, bool),
);

fn terminal_head(row: &Row<'_>) -> Result<TerminalHead, SqlError> {
    let facts = [
        ("schema", json!("pi-workflows.terminal-result.v1")),
        ("runId", json!(row.get::<_, RunId>(1)?)),
        ("workflowName", json!(row.get::<_, String>(2)?)),
        ("title", json!(row.get::<_, Option<String>>(3)?)),
        ("status", json!(row.get::<_, RunStatus>(4)?)),
        ("restartNumber", json!(row.get::<_, i64>(5)?)),
        ("finishedAt", json!(row.get::<_, UnixMillis>(6)?)),
    ];
    let facts = facts.map(|(name, value)| (name.to_owned(), value));
    Ok((
        row.get(0)?,
        Map::from_iter(facts),
        (row.get(7)?, row.get(8)?),
        (text_column(row, 9)?, row.get(10)?),
    ))
}

/// How a run ended, for its session (`pi-workflows.terminal-result.v1`).
pub(crate) fn terminal_facts(
    snapshot: &Snapshot<'_>,
    run: &RunId,
) -> Result<Option<Value>, WorkflowError> {
    let head = snapshot
        .sql()
        .prepare_cached(
            "SELECT r.parent_key, r.run_id, d.workflow_name, r.title, r.status, r.restart_number, r.finished_at,
                 coalesce(r.final_output, output.content), r.final_output_hash IS NOT NULL, error.content, r.error_hash IS NOT NULL
             FROM runs r
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             LEFT JOIN blobs output ON output.blob_hash = r.final_output_hash
             LEFT JOIN blobs error ON error.blob_hash = r.error_hash
             WHERE r.run_id = :run AND r.finished_at IS NOT NULL",
        )?
        .query_row(named_params! { ":run": run }, terminal_head)
        .optional()
        .map_err(StateError::from)?;
    let Some((mut parent, mut facts, (output, has_output), (error, has_error))) = head else {
        return Ok(None);
    };
    let lost = |what: &str| StateError::Corrupt {
        what: format!("the {what} of run {run}"),
        problem: "the run refers to it and it is not there".to_owned(),
    };
    match output {
        Some(bytes) if bytes.len() <= TOLD_OUTPUT_MAX => {
            let output: Value =
                serde_json::from_slice(&bytes).map_err(|error| StateError::Corrupt {
                    what: format!("the output of run {run}"),
                    problem: error.to_string(),
                })?;
            facts.insert("output".to_owned(), output);
        }
        // Whoever wants all of it reads the run.
        Some(bytes) => {
            facts.insert("outputBytes".to_owned(), json!(bytes.len()));
        }
        None if has_output => return Err(lost("output").into()),
        None => {}
    }
    match error {
        Some(error) => {
            facts.insert("error".to_owned(), Value::String(error));
        }
        None if has_error => return Err(lost("error").into()),
        None => {}
    }
    let mut earlier = Vec::new();
    while let Some(key) = parent {
        let (above, outcome) = snapshot
            .sql()
            .prepare_cached("SELECT parent_key, run_id, status FROM runs WHERE resource_key = :key")?
            .query_row(named_params! { ":key": key }, |row| {
                let outcome = json!({ "runId": row.get::<_, RunId>(1)?, "status": row.get::<_, RunStatus>(2)? });
                Ok((row.get::<_, Option<i64>>(0)?, outcome))
            })
            .map_err(StateError::from)?;
        earlier.push(outcome);
        parent = above;
    }
    facts.insert("earlier".to_owned(), Value::Array(earlier));
    let fingerprint = Digest::of(json!(facts).to_string().as_bytes()).to_hex();
    facts.insert("fingerprint".to_owned(), Value::String(fingerprint));
    Ok(Some(Value::Object(facts)))
}

/// The end of a run that a session shows for a while.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalView {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: RunStatus,
    /// The message that tells it.
    pub message: MessageView,
    /// Until when it is shown; none as long as its message is not.
    pub until: Option<UnixMillis>,
}

/// The end that a session shows at an instant: until its message is shown and a minute longer, unless a person cleared it.
///
/// # Errors
///
/// Those of the database.
pub fn terminal_view(
    snapshot: &Snapshot<'_>,
    session: &str,
    now: UnixMillis,
) -> Result<Option<TerminalView>, StateError> {
    let latest = snapshot
        .sql()
        .prepare_cached(
            "SELECT m.workflow_message_id, r.run_id, m.target_session_id, m.kind, m.source_id, m.order_number, m.status,
                 m.pi_session_entry_id, b.content, m.created_at, m.updated_at, r.status,
                 EXISTS (SELECT 1 FROM session_terminal_views v
                     WHERE v.target_session_id = :session AND v.cleared_run_key = m.run_key)
             FROM workflow_messages m
             JOIN runs r ON r.resource_key = m.run_key
             LEFT JOIN blobs b ON b.blob_hash = m.content_hash
             WHERE m.target_session_id = :session AND m.kind = 'terminal'
             ORDER BY m.order_number DESC LIMIT 1",
        )?
        .query_row(named_params! { ":session": session }, |row| {
            Ok((
                message_row(row)?,
                row.get::<_, RunStatus>(11)?,
                row.get::<_, bool>(12)?,
            ))
        })
        .optional()?;
    let Some((message, status, false)) = latest else {
        return Ok(None);
    };
    let until = match message.status {
        MessageStatus::Pending => None,
        MessageStatus::Sent => Some(message.updated_at.plus(TERMINAL_VIEW_MS)),
        MessageStatus::Cancelled => return Ok(None),
    };
    if until.is_some_and(|until| until <= now) {
        return Ok(None);
    }
    Ok(Some(TerminalView {
        run_id: message.run_id.clone(),
        status,
        message,
        until,
    }))
}
