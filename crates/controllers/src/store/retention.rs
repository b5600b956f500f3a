//! How the history of a deleted resource goes, and what holds the run of a child. The kernel runs these, for retention only.
//!
//! A resource is a member that ends when it is deleted: its events, its lease and its effects then go after the time that runs are kept.
//! The runs of its children are members of their own, which a resource holds while it exists and its request names them.

use holdpoint_state::schema::{Blocker, Deletion, Retention};

/// What this domain says of retention.
pub(crate) const RETENTION: Retention = Retention {
    // The last change of a deleted resource was its deletion.
    members: Some(
        "SELECT q.resource_key AS member, q.aggregate_key AS name,
             CASE WHEN c.resource_key IS NULL THEN q.updated_at END AS ended_at, 1 AS is_root
         FROM resources q LEFT JOIN controller_resources c ON c.resource_key = q.resource_key
         WHERE q.resource_type = 'controller'",
    ),
    blockers: &[Blocker {
        name: "childOfResource",
        summary: "It is the run of a child whose resource exists.",
        rows: "SELECT w.run_key AS member, w.request_id FROM controller_workflows w WHERE w.run_key IS NOT NULL",
    }],
    facts: &["SELECT w.run_key AS member, 'child ' || w.request_id || ' ' || w.attempt_count FROM controller_workflows w
         WHERE w.run_key IS NOT NULL"],
    deletions: &[
        // A run with such a row is held, and a deleted resource has none: these meet no row, and say so where the kernel asks.
        Deletion {
            table: "controller_workflows",
            sql: "DELETE FROM controller_workflows WHERE run_key = ?1",
        },
        Deletion {
            table: "controller_queue",
            sql: "DELETE FROM controller_queue WHERE resource_key = ?1",
        },
        Deletion {
            table: "controller_finalizers",
            sql: "DELETE FROM controller_finalizers WHERE resource_key = ?1",
        },
        Deletion {
            table: "controller_resources",
            sql: "DELETE FROM controller_resources WHERE resource_key = ?1",
        },
    ],
    ..Retention::NOTHING
};
