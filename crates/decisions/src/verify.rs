//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it. The names are those of the
//! reference; what SQL can't say (digests, shapes) is checked by every read (`views::stored`).

use holdpoint_state::schema::Invariant;

/// All invariants of the domain; its docs page names each.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "D1",
        summary: "An accepted resolution has an answer and no reason, a cancelled one a reason and no answer.",
        violations: "SELECT d.decision_id FROM human_decision_resolutions r JOIN human_decisions d ON d.resource_key = r.decision_key
             WHERE NOT ((r.outcome = 'accepted' AND r.provenance IN ('human', 'timeout_policy')
                     AND r.response_hash IS NOT NULL AND r.reason IS NULL)
                 OR (r.outcome = 'cancelled' AND r.provenance IN ('explicit_cancel', 'expired_no_default')
                     AND r.response_hash IS NULL AND r.reason IS NOT NULL))",
    },
    Invariant {
        name: "D2",
        summary: "The answer of a person has its channel, actor, event and key; no other resolution has a channel.",
        violations: "SELECT d.decision_id FROM human_decision_resolutions r JOIN human_decisions d ON d.resource_key = r.decision_key
             WHERE (r.provenance = 'human') <> (r.channel IS NOT NULL AND r.external_event_id IS NOT NULL
                     AND r.idempotency_key IS NOT NULL)
                 OR (r.provenance = 'human' AND r.actor_id IS NULL)
                 OR (r.provenance <> 'human' AND (r.channel IS NOT NULL OR r.external_event_id IS NOT NULL
                     OR r.idempotency_key IS NOT NULL))",
    },
    Invariant {
        name: "D3",
        summary: "An automatic answer has a deadline.",
        violations: "SELECT decision_id FROM human_decisions WHERE default_response_hash IS NOT NULL AND deadline_at IS NULL",
    },
    Invariant {
        name: "D4",
        summary: "A person wins before the deadline, a policy from it on, and each only where it may.",
        violations: "SELECT d.decision_id FROM human_decision_resolutions r JOIN human_decisions d ON d.resource_key = r.decision_key
             WHERE (r.provenance = 'human' AND d.deadline_at IS NOT NULL AND d.deadline_at <= r.resolved_at)
                 OR (r.provenance IN ('timeout_policy', 'expired_no_default')
                     AND (d.deadline_at IS NULL OR r.resolved_at < d.deadline_at))
                 OR (r.provenance = 'timeout_policy' AND d.default_response_hash IS NULL)
                 OR (r.provenance = 'expired_no_default' AND d.default_response_hash IS NOT NULL)",
    },
    Invariant {
        name: "D5",
        summary: "A resolution has exactly one candidate that won, and an open decision none.",
        violations: "SELECT d.decision_id FROM human_decisions d
             WHERE (SELECT count(*) FROM human_decision_submissions s WHERE s.decision_key = d.resource_key AND s.result = 'won')
                 <> (SELECT count(*) FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)",
    },
    Invariant {
        name: "D6",
        summary: "The candidate that won came the road that the resolution says, with the same channel and key.",
        violations: "SELECT s.submission_id FROM human_decision_submissions s
             JOIN human_decision_resolutions r ON r.decision_key = s.decision_key
             WHERE s.result = 'won' AND NOT (
                 (r.provenance = 'human' AND s.source IN ('human', 'channel') AND s.channel = r.channel
                     AND s.idempotency_key = r.idempotency_key)
                 OR (r.provenance IN ('timeout_policy', 'expired_no_default') AND s.source = 'policy')
                 OR (r.provenance = 'explicit_cancel' AND s.source = 'control'))",
    },
    Invariant {
        name: "D7",
        summary: "A candidate that lost names the real winner.",
        violations: "SELECT s.submission_id FROM human_decision_submissions s
             LEFT JOIN human_decision_resolutions r ON r.decision_key = s.decision_key
             WHERE s.result = 'already_resolved'
                 AND (r.resolution_digest IS NULL OR s.winner_digest IS NOT r.resolution_digest)",
    },
    Invariant {
        name: "D8",
        summary: "A decision belongs to an attempt of its own run, at a checkpoint.",
        violations: "SELECT d.decision_id FROM human_decisions d LEFT JOIN node_attempts a ON a.attempt_key = d.attempt_key
             WHERE a.attempt_key IS NULL OR a.run_key <> d.run_key OR a.node_type <> 'checkpoint'",
    },
    Invariant {
        name: "D9",
        summary: "An attempt asks for one decision at most.",
        violations: "SELECT min(decision_id) FROM human_decisions GROUP BY attempt_key HAVING 1 < count(*)",
    },
    Invariant {
        name: "D10",
        summary: "Each decision has the interactive request of its id, run and attempt.",
        violations: "SELECT d.decision_id FROM human_decisions d LEFT JOIN interactive_requests q ON q.request_id = d.decision_id
             WHERE q.request_key IS NULL OR q.kind <> 'decision' OR q.run_key <> d.run_key OR q.attempt_key <> d.attempt_key",
    },
    Invariant {
        name: "D11",
        summary: "The interactive request is pending, settled or cancelled as the resolution says.",
        violations: "SELECT d.decision_id FROM human_decisions d JOIN interactive_requests q ON q.request_id = d.decision_id
             LEFT JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
             WHERE (r.outcome = 'accepted' AND q.status = 'pending') OR (r.outcome = 'cancelled' AND q.status <> 'cancelled')
                 OR (r.outcome IS NULL AND q.status = 'settled')",
    },
    Invariant {
        name: "D12",
        summary: "No protected request is settled without an accepted resolution: that would be a forged answer.",
        violations: "SELECT q.request_id FROM interactive_requests q
             WHERE q.kind = 'decision' AND q.status = 'settled' AND NOT EXISTS (
                 SELECT 1 FROM human_decisions d JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
                 WHERE d.decision_id = q.request_id AND r.outcome = 'accepted')",
    },
    Invariant {
        name: "D13",
        summary: "A settled protected request has its accepted submission.",
        violations: "SELECT q.request_id FROM interactive_requests q
             LEFT JOIN interactive_submissions s ON s.submission_id = q.accepted_submission_id
             WHERE q.kind = 'decision' AND q.status = 'settled'
                 AND (s.submission_id IS NULL OR s.request_key <> q.request_key OR s.outcome <> 'accepted')",
    },
    Invariant {
        name: "D14",
        summary: "No decision is open under a run that is over.",
        violations: "SELECT d.decision_id FROM human_decisions d JOIN runs u ON u.resource_key = d.run_key
             WHERE u.finished_at IS NOT NULL
                 AND NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)",
    },
    Invariant {
        name: "D15",
        summary: "The attempt of an open decision waits.",
        violations: "SELECT d.decision_id FROM human_decisions d JOIN node_attempts a ON a.attempt_key = d.attempt_key
             WHERE a.status <> 'waiting'
                 AND NOT EXISTS (SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key)",
    },
    Invariant {
        name: "D16",
        summary: "An answer is used exactly when its attempt is completed.",
        violations: "SELECT q.request_id FROM interactive_requests q JOIN node_attempts a ON a.attempt_key = q.attempt_key
             WHERE q.kind = 'decision' AND (q.consumed_at IS NOT NULL) <> (a.status = 'completed')",
    },
    Invariant {
        name: "D17",
        summary: "Nothing is to be shown of a resolved decision.",
        violations: "SELECT m.workflow_message_id FROM workflow_messages m JOIN human_decisions d ON d.decision_id = m.source_id
             JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
             WHERE m.kind = 'decision' AND m.status = 'pending'",
    },
    Invariant {
        name: "D18",
        summary: "What follows from a resolution is reserved: presentations are settled, and the run that lost its answer is cancelled.",
        violations: "SELECT d.decision_id FROM human_decision_resolutions r JOIN human_decisions d ON d.resource_key = r.decision_key
             WHERE NOT EXISTS (SELECT 1 FROM effects e WHERE e.source_key = d.resource_key
                 AND e.effect_type = 'decision.settle_presentations')
             UNION ALL
             SELECT d.decision_id FROM human_decision_resolutions r JOIN human_decisions d ON d.resource_key = r.decision_key
             JOIN runs u ON u.resource_key = d.run_key
             WHERE r.outcome = 'cancelled' AND u.finished_at IS NULL
                 AND NOT EXISTS (SELECT 1 FROM effects e WHERE e.source_key = d.resource_key
                     AND e.effect_type = 'decision.cancel_parent')",
    },
    Invariant {
        name: "D19",
        summary: "A decision is requested at revision 1 and resolved at 2, each with its event, and nothing else happens to it.",
        violations: "SELECT d.decision_id FROM human_decisions d JOIN resources q ON q.resource_key = d.resource_key
             LEFT JOIN human_decision_resolutions r ON r.decision_key = d.resource_key
             WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.resource_key = d.resource_key
                     AND e.resource_revision = 1 AND e.event_type = 'decision.requested')
                 OR (r.decision_key IS NOT NULL AND NOT EXISTS (SELECT 1 FROM events e WHERE e.resource_key = d.resource_key
                     AND e.resource_revision = 2
                     AND e.event_type = CASE r.outcome WHEN 'accepted' THEN 'decision.accepted' ELSE 'decision.cancelled' END))
                 OR q.revision <> 1 + (r.decision_key IS NOT NULL)",
    },
    Invariant {
        name: "decisionRows",
        summary: "Each resource of the type decision has its row, with the same id.",
        violations: "SELECT q.aggregate_key FROM resources q LEFT JOIN human_decisions d ON d.resource_key = q.resource_key
             WHERE (q.resource_type = 'decision') <> (d.resource_key IS NOT NULL)
                 OR (d.decision_id IS NOT NULL AND d.decision_id <> q.aggregate_key)",
    },
    Invariant {
        name: "decisionDocuments",
        summary: "The request that is stored whole is the one of its row.",
        violations: "SELECT d.decision_id FROM human_decisions d JOIN runs u ON u.resource_key = d.run_key
             LEFT JOIN blobs b ON b.blob_hash = d.request_hash
             WHERE CASE WHEN b.blob_hash IS NULL OR NOT json_valid(CAST(b.content AS TEXT)) THEN 1
                 ELSE CAST(b.content AS TEXT) ->> '$.decisionId' IS NOT d.decision_id
                     OR CAST(b.content AS TEXT) ->> '$.requestDigest' IS NOT 'sha256:' || lower(hex(d.request_digest))
                     OR CAST(b.content AS TEXT) ->> '$.runId' IS NOT u.run_id
                     OR CAST(b.content AS TEXT) ->> '$.audience' IS NOT d.audience
                     OR CAST(b.content AS TEXT) ->> '$.title' IS NOT d.title
                     OR (CAST(b.content AS TEXT) ->> '$.expiresAt' IS NULL) <> (d.deadline_at IS NULL)
                     OR (CAST(b.content AS TEXT) ->> '$.defaultResponse' IS NULL) <> (d.default_response_hash IS NULL)
                 END",
    },
    Invariant {
        name: "decisionDeadlines",
        summary: "The deadlines that are swept are those of the open decisions.",
        violations: "SELECT d.decision_id FROM human_decisions d
             LEFT JOIN human_decision_deadlines t ON t.decision_key = d.resource_key
             WHERE (t.decision_key IS NOT NULL) <> (d.deadline_at IS NOT NULL AND NOT EXISTS (
                     SELECT 1 FROM human_decision_resolutions r WHERE r.decision_key = d.resource_key))
                 OR (t.decision_key IS NOT NULL AND (t.deadline_at <> d.deadline_at OR t.decision_id <> d.decision_id))",
    },
];
