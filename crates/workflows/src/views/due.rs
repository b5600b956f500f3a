//! What a scheduler could take up now, in its order. Finding a run gives no right to it.

use holdpoint_state::clock::UnixMillis;
use holdpoint_state::sql::named_params;
use holdpoint_state::{Snapshot, StateError};

use crate::id::RunId;

/// Runs that nobody owns, or whose owner is dead, and nothing holds back: candidates first, which somebody waits for in a session,
/// and accepted answers, then requests whose model spent their time, then new and resumable work by its due time, then
/// parked runs whose runner was lost, and those that were parked before they began.
pub(crate) fn due(
    snapshot: &Snapshot<'_>,
    now: UnixMillis,
    limit: usize,
) -> Result<Vec<RunId>, StateError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    // A line for each: an owner's id has no line's end.
    let dead = format!("\n{}\n", snapshot.dead_owners(now)?.join("\n"));
    let queries = [
        "SELECT r.run_id
         FROM interactive_submissions s INDEXED BY interactive_submissions_validating
         CROSS JOIN interactive_requests q ON q.request_key = s.request_key
         JOIN runs r ON r.resource_key = q.run_key
         JOIN run_queue k ON k.run_key = q.run_key
         LEFT JOIN leases l ON l.resource_key = q.run_key
         WHERE s.outcome = 'validating' AND q.status = 'pending' AND r.paused = 0 AND k.error_code IS NULL
             AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
         ORDER BY s.submitted_at, s.request_key LIMIT :limit",
        "SELECT r.run_id
         FROM interactive_requests q
         JOIN runs r ON r.resource_key = q.run_key
         JOIN run_queue k ON k.run_key = q.run_key
         LEFT JOIN leases l ON l.resource_key = q.run_key
         WHERE q.status = 'settled' AND q.consumed_at IS NULL AND r.paused = 0 AND r.finished_at IS NULL
             AND k.error_code IS NULL AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
         ORDER BY q.settled_at, q.run_key LIMIT :limit",
        "SELECT r.run_id
         FROM interactive_requests q INDEXED BY interactive_requests_of_agents
         CROSS JOIN node_attempts a ON a.attempt_key = q.attempt_key
         JOIN runs r ON r.resource_key = q.run_key
         JOIN run_queue k ON k.run_key = q.run_key
         LEFT JOIN leases l ON l.resource_key = q.run_key
         WHERE q.status = 'pending' AND (q.kind = 'agent' OR q.kind = 'assistant') AND r.paused = 0 AND r.status = 'waiting'
             AND k.error_code IS NULL AND 0 < a.timeout_ms
             AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
             AND a.timeout_ms <= (SELECT total(i.elapsed_ms) FROM attempt_active_intervals i WHERE i.attempt_key = a.attempt_key)
         ORDER BY q.request_key LIMIT :limit",
        "SELECT r.run_id
         FROM run_queue k
         JOIN runs r ON r.resource_key = k.run_key
         LEFT JOIN leases l ON l.resource_key = k.run_key
         WHERE (k.status = 'queued' OR k.status = 'starting' OR k.status = 'running') AND k.available_at <= :now AND k.error_code IS NULL
             AND r.paused = 0 AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
             AND NOT EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run_key = k.run_key AND q.status = 'pending')
         ORDER BY k.available_at, k.run_key LIMIT :limit",
        "SELECT r.run_id
         FROM runs r INDEXED BY runs_going_on
         JOIN run_queue k ON k.run_key = r.resource_key
         LEFT JOIN leases l ON l.resource_key = r.resource_key
         WHERE r.status = 'running' AND r.paused = 0 AND k.status = 'parked' AND k.available_at <= :now
             AND k.error_code IS NULL AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
             AND NOT EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run_key = k.run_key AND q.status = 'pending')
         ORDER BY r.resource_key LIMIT :limit",
        "SELECT r.run_id
         FROM run_queue k INDEXED BY run_queue_not_begun
         CROSS JOIN runs r ON r.resource_key = k.run_key
         LEFT JOIN leases l ON l.resource_key = k.run_key
         WHERE k.status = 'parked' AND k.started_at IS NULL AND k.error_code IS NULL AND k.available_at <= :now
             AND r.status = 'queued' AND r.paused = 0 AND (l.expires_at IS NULL OR l.expires_at <= :now OR instr(:dead, char(10) || l.owner_id || char(10)) > 0)
             AND NOT EXISTS (SELECT 1 FROM interactive_requests q WHERE q.run_key = k.run_key AND q.status = 'pending')
         ORDER BY k.run_key LIMIT :limit",
    ];
    let mut runs: Vec<RunId> = Vec::new();
    let sql = snapshot.sql();
    for query in queries {
        let mut statement = sql.prepare_cached(query)?;
        let rows = statement.query_map(
            named_params! { ":now": now, ":limit": limit, ":dead": dead },
            |row| row.get::<_, RunId>(0),
        )?;
        for row in rows {
            // A row that this program can't read is nobody's work here; `list` shows it as such.
            if let Ok(run) = row
                && !runs.contains(&run)
            {
                runs.push(run);
            }
        }
    }
    Ok(runs)
}

/// When the next live lease ends, unless it is renewed: what a killed process held is due then. Leases of other domains count too,
/// since looking once too often costs little.
pub(crate) fn next_expiry(
    snapshot: &Snapshot<'_>,
    now: UnixMillis,
) -> Result<Option<UnixMillis>, StateError> {
    Ok(snapshot
        .sql()
        .prepare_cached("SELECT min(l.expires_at) FROM leases l WHERE l.expires_at > :now")?
        .query_row(named_params! { ":now": now }, |row| row.get(0))?)
}
