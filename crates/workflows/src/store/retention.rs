//! How the rows of a dead run are deleted. The kernel runs these, for retention only; see `crate::retention`.
//!
//! Foreign keys are off meanwhile, so that every row goes by its own statement here, those that refer before those that are referred
//! to. `Schema::compose` refuses a table of this domain that refers to one of these and is not among them.

use holdpoint_state::schema::{Deletion, Orphan};

const fn of(table: &'static str, sql: &'static str) -> Deletion {
    Deletion { table, sql }
}

/// The rows of one run, in order. `?1` is its key.
pub(crate) const DELETIONS: &[Deletion] = &[
    of(
        "worker_messages",
        "DELETE FROM worker_messages WHERE worker_key IN (SELECT worker_key FROM run_workers WHERE run_key = ?1)",
    ),
    of("run_workers", "DELETE FROM run_workers WHERE run_key = ?1"),
    of(
        "session_events",
        "DELETE FROM session_events WHERE run_key = ?1",
    ),
    of(
        "attempt_entries",
        "DELETE FROM attempt_entries WHERE attempt_key IN (SELECT attempt_key FROM node_attempts WHERE run_key = ?1)",
    ),
    of(
        "session_entries",
        "DELETE FROM session_entries WHERE run_key = ?1",
    ),
    of(
        "session_segments",
        "DELETE FROM session_segments WHERE run_key = ?1",
    ),
    of(
        "session_terminal_views",
        "UPDATE session_terminal_views SET cleared_run_key = NULL WHERE cleared_run_key = ?1",
    ),
    of(
        "workflow_turns",
        "DELETE FROM workflow_turns WHERE run_key = ?1",
    ),
    of(
        "workflow_messages",
        "DELETE FROM workflow_messages WHERE run_key = ?1",
    ),
    of(
        "workflow_follow_ups",
        "DELETE FROM workflow_follow_ups WHERE run_key = ?1",
    ),
    of(
        "interactive_submissions",
        "DELETE FROM interactive_submissions WHERE request_key IN
             (SELECT request_key FROM interactive_requests WHERE run_key = ?1)",
    ),
    of(
        "interactive_requests",
        "DELETE FROM interactive_requests WHERE run_key = ?1",
    ),
    of("run_steps", "DELETE FROM run_steps WHERE run_key = ?1"),
    of(
        "workflow_updates",
        "DELETE FROM workflow_updates WHERE attempt_key IN (SELECT attempt_key FROM node_attempts WHERE run_key = ?1)",
    ),
    of(
        "attempt_active_intervals",
        "DELETE FROM attempt_active_intervals WHERE attempt_key IN
             (SELECT attempt_key FROM node_attempts WHERE run_key = ?1)",
    ),
    of(
        "node_attempts",
        "DELETE FROM node_attempts WHERE run_key = ?1",
    ),
    of(
        "workflow_setting_changes",
        "DELETE FROM workflow_setting_changes WHERE scope_key IN
             (SELECT resource_key FROM workflow_settings WHERE active_run_key = ?1)",
    ),
    of(
        "workflow_settings",
        "DELETE FROM workflow_settings WHERE active_run_key = ?1",
    ),
    of("run_queue", "DELETE FROM run_queue WHERE run_key = ?1"),
    of(
        "run_bindings",
        "DELETE FROM run_bindings WHERE run_key = ?1",
    ),
    of("run_sources", "DELETE FROM run_sources WHERE run_key = ?1"),
    of("runs", "DELETE FROM runs WHERE resource_key = ?1"),
];

/// Definitions that no run uses any more.
pub(crate) const ORPHANS: &[Orphan] = &[Orphan {
    table: "workflow_definitions",
    key: "definition_digest",
    delete: "DELETE FROM workflow_definitions WHERE definition_digest = ?1",
}];
