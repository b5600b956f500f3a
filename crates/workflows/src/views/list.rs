//! Many runs, page by page. A row that this program can't read is shown as such and never breaks the list.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::{Row, SqlError, named_params};
use holdpoint_state::{Snapshot, StateError};
use serde::Serialize;

use super::display::{DisplayFacts, DisplayStatus, display_status};
use crate::model::{RequestKind, RunStatus};

/// How many runs a page has at most.
const LIMIT_MAX: usize = 1_000;

/// Which runs are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Only runs with this status.
    pub status: Option<RunStatus>,
    /// How many at most, up to 1,000.
    pub limit: usize,
    /// The cursor of the page before.
    pub after: Option<String>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            status: None,
            limit: 50,
            after: None,
        }
    }
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The run's id.
    pub run_id: String,
    /// The name of its workflow.
    pub workflow_name: String,
    /// Its title.
    pub run_title: Option<String>,
    /// Its status, as stored.
    pub status: String,
    /// The status word for people; none when this program does not know the stored one.
    pub display_status: Option<DisplayStatus>,
    /// Whether somebody paused it.
    pub paused: bool,
    /// What it is at.
    pub status_detail: Option<String>,
    /// The resource's revision, which commands take.
    pub run_revision: u64,
    /// How many steps it made.
    pub step_count: u64,
    /// When it was reserved.
    pub created_at: UnixMillis,
    /// When it last changed.
    pub updated_at: UnixMillis,
    /// When it ended.
    pub finished_at: Option<UnixMillis>,
    /// What this program can't read of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The runs.
    pub runs: Vec<RunSummary>,
    /// The cursor of the next page; none when this is the last one.
    pub next: Option<String>,
}

/// Lists runs, newest first; `now` decides whether leases are live.
///
/// # Errors
///
/// [`StateError::Input`] for a cursor that this function did not give; those of the database.
pub fn list(snapshot: &Snapshot<'_>, filter: &Filter, now: UnixMillis) -> Result<Page, StateError> {
    let before = match &filter.after {
        None => i64::MAX,
        Some(cursor) => {
            cursor
                .parse()
                .map_err(|error: std::num::ParseIntError| StateError::Input {
                    what: "cursor",
                    problem: format!(
                        "{cursor:?} was not given by a list ({error}); begin without one"
                    ),
                })?
        }
    };
    let limit = filter.limit.clamp(1, LIMIT_MAX);
    let sql = snapshot.sql();
    // Two statements, so that each uses its index: a condition that may be absent would use none.
    let mut statement = sql.prepare_cached(match filter.status {
        None => {
            "SELECT r.resource_key, r.run_id, d.workflow_name, r.title, r.status, r.paused, r.status_detail, s.revision,
                 (SELECT count(*) FROM run_steps t WHERE t.run_key = r.resource_key), r.created_at, s.updated_at, r.finished_at,
                 l.expires_at,
                 (SELECT q.kind FROM interactive_requests q WHERE q.run_key = r.resource_key AND q.status = 'pending'),
                 EXISTS (SELECT 1 FROM effects e WHERE e.source_key = r.resource_key AND e.status = 'ambiguous'),
                 EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run_key = r.resource_key AND t.state = 'started')
             FROM runs r
             JOIN resources s ON s.resource_key = r.resource_key
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             WHERE r.resource_key < :before AND :status IS NULL
             ORDER BY r.resource_key DESC LIMIT :limit"
        }
        Some(_) => {
            "SELECT r.resource_key, r.run_id, d.workflow_name, r.title, r.status, r.paused, r.status_detail, s.revision,
                 (SELECT count(*) FROM run_steps t WHERE t.run_key = r.resource_key), r.created_at, s.updated_at, r.finished_at,
                 l.expires_at,
                 (SELECT q.kind FROM interactive_requests q WHERE q.run_key = r.resource_key AND q.status = 'pending'),
                 EXISTS (SELECT 1 FROM effects e WHERE e.source_key = r.resource_key AND e.status = 'ambiguous'),
                 EXISTS (SELECT 1 FROM workflow_turns t WHERE t.run_key = r.resource_key AND t.state = 'started')
             FROM runs r
             JOIN resources s ON s.resource_key = r.resource_key
             JOIN workflow_definitions d ON d.definition_digest = r.definition_digest
             LEFT JOIN leases l ON l.resource_key = r.resource_key
             WHERE r.status = :status AND r.resource_key < :before
             ORDER BY r.resource_key DESC LIMIT :limit"
        }
    })?;
    let wanted = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    let rows = statement.query_map(
        named_params! { ":before": before, ":status": filter.status, ":limit": wanted },
        |row| Ok((row.get::<_, i64>(0)?, summary(row, now)?)),
    )?;
    let mut rows: Vec<(i64, RunSummary)> = rows.collect::<Result<_, _>>()?;
    let more = limit < rows.len();
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|(key, _)| key.to_string());
    Ok(Page {
        runs: rows.into_iter().map(|(_, run)| run).collect(),
        next,
    })
}

fn summary(row: &Row<'_>, now: UnixMillis) -> Result<RunSummary, SqlError> {
    let status: String = row.get(4)?;
    let paused: bool = row.get(5)?;
    let expires_at: Option<UnixMillis> = row.get(12)?;
    let kind: Option<String> = row.get(13)?;
    let known = RunStatus::from_text(&status);
    let asks = kind.as_deref().map(RequestKind::from_text);
    let problem = match (known, asks) {
        (None, _) => Some(format!(
            "its status {status:?} is not known to this program"
        )),
        (Some(_), Some(None)) => {
            Some("it asks something that this program does not know".to_owned())
        }
        (Some(_), _) => None,
    };
    let ambiguous = row.get(14)?;
    let turn = row.get(15)?;
    let display_status = known.map(|status| {
        display_status(&DisplayFacts {
            status,
            paused,
            ambiguous,
            asks: asks.flatten(),
            active: expires_at.is_some_and(|at| now < at),
            turn,
            parked: false,
            restartable: false,
        })
    });
    Ok(RunSummary {
        run_id: row.get(1)?,
        workflow_name: row.get(2)?,
        run_title: row.get(3)?,
        display_status,
        status,
        paused,
        status_detail: row.get(6)?,
        run_revision: row.get::<_, i64>(7)?.unsigned_abs(),
        step_count: row.get::<_, i64>(8)?.unsigned_abs(),
        created_at: row.get(9)?,
        updated_at: row.get(10)?,
        finished_at: row.get(11)?,
        problem,
    })
}
