//! How what channels know of the decisions of a dead run is deleted, and what holds the run. The kernel runs these.
//!
//! Channels and their events stay: they belong to no run.

use holdpoint_state::schema::{Blocker, Deletion, Retention};

/// What this domain says of retention.
pub(crate) const RETENTION: Retention = Retention {
    related: &["SELECT d.run_key AS member, m.effect_key AS resource_key FROM channel_messages m
         JOIN human_decisions d ON d.decision_id = m.decision_id"],
    blockers: &[
        Blocker {
            name: "channelEffect",
            summary: "A delivery or settlement is in flight or ambiguous, or an open decision is still to be delivered.",
            rows: "SELECT d.run_key AS member, d.decision_id FROM channel_messages m
                 JOIN human_decisions d ON d.decision_id = m.decision_id JOIN effects e ON e.resource_key = m.effect_key
                 WHERE e.status = 'applying' OR e.status = 'ambiguous' OR ((e.status = 'pending' OR e.next_attempt_at IS NOT NULL)
                     AND NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key))",
        },
        Blocker {
            name: "channelShown",
            summary: "A decision is shown with its buttons, which are still to be taken off.",
            rows: "SELECT d.run_key AS member, d.decision_id FROM channel_shown s JOIN human_decisions d ON d.decision_id = s.decision_id",
        },
    ],
    deletions: &[
        Deletion {
            table: "channel_shown",
            sql: "DELETE FROM channel_shown WHERE decision_id IN (SELECT decision_id FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "channel_message_parts",
            sql: "DELETE FROM channel_message_parts WHERE decision_id IN (SELECT decision_id FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "channel_inbox",
            sql: "DELETE FROM channel_inbox WHERE decision_id IN (SELECT decision_id FROM human_decisions WHERE run_key = ?1)",
        },
        Deletion {
            table: "channel_messages",
            sql: "DELETE FROM channel_messages WHERE decision_id IN (SELECT decision_id FROM human_decisions WHERE run_key = ?1)",
        },
        // A channel is no member of anything: these two meet no row, and say so where the kernel asks.
        Deletion {
            table: "channel_cursors",
            sql: "DELETE FROM channel_cursors WHERE channel_key = ?1",
        },
        Deletion {
            table: "channels",
            sql: "DELETE FROM channels WHERE resource_key = ?1",
        },
    ],
    ..Retention::NOTHING
};
