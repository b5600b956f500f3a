//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it. The names are those of the reference,
//! with `controllerStatus`, `controllerSizes` and `controllerQueue` for what it asks for in words.

use holdpoint_state::schema::Invariant;

/// All invariants of the domain; its docs page names each.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "P1",
        summary: "A managed resource has its row in resources, of its type, at a revision.",
        violations: "SELECT c.resource_name FROM controller_resources c LEFT JOIN resources r ON r.resource_key = c.resource_key
             WHERE r.resource_key IS NULL OR r.resource_type <> 'controller' OR r.revision < 1",
    },
    Invariant {
        name: "P2",
        summary: "The lease of a managed resource is whole, and its owner is a host or a controller.",
        violations: "SELECT c.resource_name FROM controller_resources c JOIN leases l ON l.resource_key = c.resource_key
             WHERE (l.owner_id IS NULL) <> (l.token_hash IS NULL) OR (l.owner_id IS NULL) <> (l.expires_at IS NULL)
                 OR (l.owner_id IS NOT NULL AND ((l.owner_type <> 'controller' AND l.owner_type <> 'host') OR l.generation < 1))",
    },
    Invariant {
        name: "P3",
        summary: "The revision of a managed resource is the number of its events, without a gap.",
        violations: "SELECT c.resource_name FROM controller_resources c JOIN resources r ON r.resource_key = c.resource_key
             WHERE r.revision <> (SELECT count(*) FROM events e WHERE e.resource_key = c.resource_key)
                 OR r.revision <> (SELECT coalesce(max(e.resource_revision), 0) FROM events e WHERE e.resource_key = c.resource_key)",
    },
    Invariant {
        name: "P4",
        summary: "The generation of a spec is one more than the number of its accepted changes.",
        violations: "SELECT c.resource_name FROM controller_resources c
             WHERE c.spec_generation <> 1 + (SELECT count(*) FROM events e
                 WHERE e.resource_key = c.resource_key AND e.event_type = 'resource.spec_updated')",
    },
    Invariant {
        name: "P5",
        summary: "The generation of a lease is the number of its claims.",
        violations: "SELECT c.resource_name FROM controller_resources c LEFT JOIN leases l ON l.resource_key = c.resource_key
             WHERE coalesce(l.generation, 0) <> (SELECT count(*) FROM events e
                 WHERE e.resource_key = c.resource_key AND e.event_type = 'lease.claimed')",
    },
    Invariant {
        name: "P6",
        summary: "A resource that a pass has is in the queue: the pass has something to settle.",
        violations: "SELECT c.resource_name FROM controller_resources c JOIN leases l ON l.resource_key = c.resource_key
             LEFT JOIN controller_queue q ON q.resource_key = c.resource_key
             WHERE l.owner_id IS NOT NULL AND q.resource_key IS NULL",
    },
    Invariant {
        name: "P7",
        summary: "A resource that is being deleted and that nothing holds is looked at again.",
        violations: "SELECT c.resource_name FROM controller_resources c LEFT JOIN leases l ON l.resource_key = c.resource_key
             WHERE c.deletion_requested_at IS NOT NULL AND l.owner_id IS NULL
                 AND NOT EXISTS (SELECT 1 FROM controller_queue q WHERE q.resource_key = c.resource_key)
                 AND NOT EXISTS (SELECT 1 FROM controller_finalizers f WHERE f.resource_key = c.resource_key)",
    },
    Invariant {
        name: "P8",
        summary: "A child that was given a run has its id, and its run is that one.",
        violations: "SELECT w.request_id FROM controller_workflows w LEFT JOIN runs r ON r.resource_key = w.run_key
             WHERE (w.attempt_count > 0 AND w.reserved_run_id IS NULL) OR (w.attempt_count = 0 AND w.status <> 'pending')
                 OR (w.run_key IS NOT NULL AND r.run_id IS NOT w.reserved_run_id) OR length(w.input_fingerprint) <> 32
                 OR ((w.status = 'running' OR w.status = 'waiting' OR w.status = 'succeeded') AND w.reserved_run_id IS NULL)",
    },
    Invariant {
        name: "P9",
        summary: "A child whose run is over was told. A row here is work for the duty, which finds it.",
        violations: "SELECT w.request_id FROM controller_workflows w JOIN runs r ON r.run_id = w.reserved_run_id
             WHERE (r.status = 'completed' OR r.status = 'failed' OR r.status = 'timed_out' OR r.status = 'cancelled')
                 AND (w.status = 'pending' OR w.status = 'running' OR w.status = 'waiting')",
    },
    Invariant {
        name: "P10",
        summary: "What a settled child says of its run is so.",
        violations: "SELECT w.request_id FROM controller_workflows w JOIN runs r ON r.resource_key = w.run_key
             WHERE (w.status = 'succeeded' AND r.status <> 'completed')
                 OR (w.status = 'failed' AND (r.status = 'completed' OR r.status = 'running' OR r.status = 'waiting'
                     OR r.status = 'queued'))",
    },
    Invariant {
        name: "P11",
        summary: "One run is reserved by one request.",
        violations: "SELECT reserved_run_id FROM controller_workflows WHERE reserved_run_id IS NOT NULL
             GROUP BY reserved_run_id HAVING count(*) > 1",
    },
    Invariant {
        name: "P12",
        summary: "The counters of the queue are in range, and a failure has its error.",
        violations: "SELECT c.resource_name FROM controller_queue q LEFT JOIN controller_resources c ON c.resource_key = q.resource_key
             WHERE q.queue_version < 1 OR q.consecutive_errors < 0
                 OR (q.consecutive_errors > 0) <> (q.last_error IS NOT NULL OR q.last_error_hash IS NOT NULL)",
    },
    Invariant {
        name: "P13",
        summary: "The effects of managed resources, and only those, have the scope of a controller.",
        violations: "SELECT e.idempotency_key FROM effects e JOIN resources r ON r.resource_key = e.source_key
             WHERE (r.resource_type = 'controller') <> (e.owner_scope = 'controller')",
    },
    Invariant {
        name: "P14",
        summary: "An act that may be going on was begun under a claim that there was.",
        violations: "SELECT e.idempotency_key FROM effects e
             JOIN effect_attempts a ON a.resource_key = e.resource_key AND a.attempt_number = e.attempt_count
             JOIN leases l ON l.resource_key = e.source_key
             WHERE e.owner_scope = 'controller' AND e.status = 'applying' AND a.lease_generation > l.generation",
    },
    Invariant {
        name: "P15",
        summary: "The finalizers of a resource are numbered from 0, without a gap.",
        violations: "SELECT c.resource_name FROM controller_finalizers f LEFT JOIN controller_resources c ON c.resource_key = f.resource_key
             GROUP BY f.resource_key HAVING max(f.position) <> count(*) - 1 OR min(f.position) <> 0 OR c.resource_key IS NULL",
    },
    Invariant {
        name: "P16",
        summary: "Nobody has a resource that was deleted.",
        violations: "SELECT r.aggregate_key FROM resources r JOIN leases l ON l.resource_key = r.resource_key
             LEFT JOIN controller_resources c ON c.resource_key = r.resource_key
             WHERE r.resource_type = 'controller' AND c.resource_key IS NULL AND l.owner_id IS NOT NULL",
    },
    Invariant {
        name: "controllerStatus",
        summary: "A status is JSON, was found for no generation to come, and has one condition of each type.",
        violations: "SELECT d.resource_name FROM (
                 SELECT c.resource_name, c.spec_generation, CAST(coalesce(c.status, b.content) AS TEXT) AS document
                 FROM controller_resources c LEFT JOIN blobs b ON b.blob_hash = c.status_hash) d
             WHERE CASE WHEN d.document IS NULL OR NOT json_valid(d.document) THEN 1 ELSE
                 coalesce(json_type(d.document, '$.observedGeneration'), '') <> 'integer'
                 OR json_extract(d.document, '$.observedGeneration') > d.spec_generation
                 OR coalesce(json_type(d.document, '$.conditions'), '') <> 'array'
                 OR EXISTS (SELECT 1 FROM json_each(d.document, '$.conditions') n
                     WHERE json_extract(n.value, '$.observedGeneration') > json_extract(d.document, '$.observedGeneration'))
                 OR (SELECT count(*) <> count(DISTINCT json_extract(n.value, '$.type')) FROM json_each(d.document, '$.conditions') n)
                 END",
    },
    Invariant {
        name: "controllerSizes",
        summary: "Spec and status have 1 MiB at most.",
        violations: "SELECT c.resource_name FROM controller_resources c
             LEFT JOIN blobs s ON s.blob_hash = c.spec_hash LEFT JOIN blobs t ON t.blob_hash = c.status_hash
             WHERE coalesce(length(c.spec), s.byte_length) > 1048576 OR coalesce(length(c.status), t.byte_length) > 1048576",
    },
    Invariant {
        name: "controllerQueue",
        summary: "A queue row says the same project and controller as its resource.",
        violations: "SELECT q.controller_name FROM controller_queue q LEFT JOIN controller_resources c ON c.resource_key = q.resource_key
             WHERE c.resource_key IS NULL OR q.project_id <> c.project_id OR q.controller_name <> c.controller_name",
    },
];
