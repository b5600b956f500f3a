//! How the decisions of a dead run are deleted, and what holds it. The kernel runs these, for retention only.

use holdpoint_state::schema::{Blocker, Deletion, Retention};

/// What this domain says of retention.
pub(crate) const RETENTION: Retention = Retention {
    related: &["SELECT run_key AS member, resource_key FROM human_decisions"],
    blockers: &[
        Blocker {
            name: "openDecision",
            summary: "A decision is open.",
            rows: "SELECT d.run_key AS member, d.decision_id FROM human_decisions d
                 WHERE NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)",
        },
        Blocker {
            name: "decisionEffect",
            summary: "What follows from a decision is not settled yet.",
            rows: "SELECT d.run_key AS member, d.decision_id FROM human_decisions d
                 JOIN effects e ON e.source_key = d.resource_key
                 WHERE e.status = 'pending' OR e.status = 'applying' OR e.status = 'ambiguous'",
        },
    ],
    deletions: &[
        Deletion {
            table: "human_decision_deadlines",
            sql: "DELETE FROM human_decision_deadlines WHERE decision_key IN
                 (SELECT resource_key FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "human_decision_submissions",
            sql: "DELETE FROM human_decision_submissions WHERE decision_key IN
                 (SELECT resource_key FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "human_decision_resolutions",
            sql: "DELETE FROM human_decision_resolutions WHERE decision_key IN
                 (SELECT resource_key FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "human_decisions",
            sql: "DELETE FROM human_decisions WHERE run_key = ?1",
        },
    ],
    ..Retention::NOTHING
};
