//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it.

use holdpoint_state::schema::Invariant;

/// All invariants of the domain; `docs/VIEWER.md` names each.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "viewerRuns",
        summary: "Each run has its row in the read model, which has seen all its steps and events.",
        violations: "SELECT r.run_id FROM runs r JOIN resources s ON s.resource_key = r.resource_key
             LEFT JOIN viewer_runs v ON v.run_key = r.resource_key
             WHERE v.run_key IS NULL OR v.trace_total <> s.revision
                 OR v.step_total <> (SELECT count(*) FROM run_steps t WHERE t.run_key = r.resource_key)
                 OR v.event_total <> (SELECT count(*) FROM session_events e WHERE e.run_key = r.resource_key)
                 OR v.entry_total <> (SELECT count(*) FROM session_entries e WHERE e.run_key = r.resource_key)",
    },
    Invariant {
        name: "viewerVisits",
        summary: "Each step is the visit of its node that it is.",
        violations: "SELECT r.run_id FROM run_steps t JOIN node_attempts a ON a.attempt_key = t.attempt_key
             JOIN runs r ON r.resource_key = t.run_key
             WHERE NOT EXISTS (SELECT 1 FROM viewer_visits v WHERE v.run_key = t.run_key AND v.node_id = a.node_id
                 AND v.step_index = t.step_index)",
    },
    Invariant {
        name: "viewerDeltas",
        summary: "The last 256 revisions of a run have their patches, and no others have.",
        violations: "SELECT r.run_id FROM viewer_runs v JOIN runs r ON r.resource_key = v.run_key
             WHERE v.retained_from_revision <> max(1, v.presentation_revision - 255)
                 OR (SELECT count(DISTINCT d.presentation_revision) FROM viewer_deltas d WHERE d.run_key = v.run_key
                     AND d.presentation_revision BETWEEN v.retained_from_revision AND v.presentation_revision)
                 <> v.presentation_revision - v.retained_from_revision + 1
                 OR EXISTS (SELECT 1 FROM viewer_deltas d WHERE d.run_key = v.run_key
                     AND d.presentation_revision NOT BETWEEN v.retained_from_revision AND v.presentation_revision)",
    },
    Invariant {
        name: "viewerCheckpoints",
        summary: "The conversation of a run has a checkpoint at every 256th event.",
        violations: "SELECT r.run_id FROM viewer_runs v JOIN runs r ON r.resource_key = v.run_key
             WHERE v.event_total / 256 <> (SELECT count(*) FROM viewer_session_checkpoints c
                 WHERE c.run_key = v.run_key AND c.event_seq % 256 = 0)",
    },
    Invariant {
        name: "viewContent",
        summary: "What documents refer to is there: a whole blob has the digest by which it is asked for.",
        violations: "SELECT r.run_id FROM run_view_content c JOIN runs r ON r.resource_key = c.run_key
             LEFT JOIN blobs b ON b.blob_hash = c.source_hash
             WHERE b.blob_hash IS NULL OR (c.pointer IS NULL AND (c.content_hash <> c.source_hash OR c.byte_length <> b.byte_length))",
    },
];
