//! What holds for the shared records at every commit: each rule a `SELECT` of what breaks it, run by `verify` and by tests.
//!
//! The names X1 to X18 are those of the effects reference, section 13. X14, X16 and X17a read runs and belong to their domain. Not
//! here: hashes of content, which SQLite can't compute; `verify` does that in Rust.

use crate::schema::Invariant;

macro_rules! invariants {
    ($($name:literal, $summary:literal, $violations:literal;)*) => {
        pub(super) const INVARIANTS: &[Invariant] = &[$(Invariant {
            name: $name,
            summary: $summary,
            violations: $violations,
        }),*];
    };
}

invariants! {
    "eventsGapFree", "A resource of revision n has exactly the events 1 to n.",
    "SELECT r.resource_type || ' ' || r.aggregate_key FROM resources r
     LEFT JOIN (SELECT resource_key, count(*) AS count, max(resource_revision) AS newest
         FROM events GROUP BY resource_key) e ON e.resource_key = r.resource_key
     WHERE coalesce(e.count, 0) <> r.revision OR coalesce(e.newest, 0) <> r.revision";
    "eventSequence", "No event has a number that could be given again.",
    "SELECT e.event_seq FROM events e
     WHERE coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'), 0) < e.event_seq";
    "eventOrder", "The events of a resource were appended in the order of their revisions.",
    "SELECT a.event_seq FROM events a
     JOIN events b ON b.resource_key = a.resource_key AND b.resource_revision = a.resource_revision + 1
     WHERE b.event_seq <= a.event_seq";
    "leaseOwner", "A lease has all of its owner's fields or none, and an owner has claimed it at least once.",
    "SELECT resource_key FROM leases
     WHERE (owner_type IS NULL) <> (owner_id IS NULL) OR (owner_id IS NULL) <> (token_hash IS NULL)
        OR (owner_id IS NULL) <> (acquired_at IS NULL) OR (owner_id IS NULL) <> (heartbeat_at IS NULL)
        OR (owner_id IS NULL) <> (expires_at IS NULL) OR (owner_id IS NOT NULL AND generation < 1)";
    "leaseGeneration", "No event names a generation that its resource's lease has not reached. Effects may name their source's.",
    "SELECT v.event_seq FROM events v JOIN resources r ON r.resource_key = v.resource_key
     LEFT JOIN leases l ON l.resource_key = v.resource_key
     WHERE r.resource_type <> 'effect' AND coalesce(l.generation, 0) < v.lease_generation";
    "leaseTimes", "A lease ends after it was last renewed.",
    "SELECT r.resource_type || ' ' || r.aggregate_key FROM resources r
     JOIN leases l ON l.resource_key = r.resource_key
     WHERE l.expires_at <= l.heartbeat_at";
    "projectId", "A project's id is derived from a path, and so has its form.",
    "SELECT project_id FROM projects WHERE project_id NOT GLOB 'project-*' OR length(project_id) <> 48";
    "blobLength", "A blob is as long as it says.",
    "SELECT hex(blob_hash) FROM blobs WHERE byte_length <> length(content)";
    "effectRow", "A resource of the type effect has its row among the effects.",
    "SELECT r.resource_key FROM resources r LEFT JOIN effects e ON e.resource_key = r.resource_key
     WHERE r.resource_type = 'effect' AND e.resource_key IS NULL";
    "effectIdentity", "An effect id names one effect.",
    "SELECT hex(aggregate_key) FROM resources WHERE resource_type = 'effect' GROUP BY aggregate_key HAVING count(*) > 1";
    "effectLine", "Of one ordering key never two effects are in flight.",
    "SELECT ordering_key FROM effects WHERE status = 'applying' AND ordering_key IS NOT NULL
     GROUP BY ordering_key HAVING count(*) > 1";
    "X1", "An effect has a settlement time exactly when it is settled.",
    "SELECT resource_key FROM effects
     WHERE (status IN ('applied', 'rejected', 'ambiguous', 'cancelled')) <> (settled_at IS NOT NULL)";
    "X2", "The attempts of an effect are 1 to attempt_count without a gap.",
    "SELECT e.resource_key FROM effects e WHERE e.attempt_count <>
         (SELECT count(*) FROM effect_attempts a WHERE a.resource_key = e.resource_key)
      OR e.attempt_count <>
         (SELECT coalesce(max(attempt_number), 0) FROM effect_attempts a WHERE a.resource_key = e.resource_key)";
    "X3", "An effect has an open attempt exactly while it is applying, and it is the last.",
    "SELECT e.resource_key FROM effects e
     WHERE (SELECT count(*) FROM effect_attempts a WHERE a.resource_key = e.resource_key AND a.finished_at IS NULL)
           <> (e.status = 'applying')
        OR EXISTS (SELECT 1 FROM effect_attempts a WHERE a.resource_key = e.resource_key
             AND a.finished_at IS NULL AND a.attempt_number <> e.attempt_count)";
    "X4", "An attempt has an outcome exactly when it is finished, and does not end before it began.",
    "SELECT resource_key FROM effect_attempts
     WHERE (finished_at IS NULL) <> (outcome IS NULL) OR (finished_at IS NOT NULL AND finished_at < started_at)";
    "X5", "No attempt follows an applied one.",
    "SELECT a.resource_key FROM effect_attempts a
     JOIN effect_attempts b ON b.resource_key = a.resource_key AND b.attempt_number > a.attempt_number
     WHERE a.outcome = 'applied'";
    "X6", "The state agrees with the outcome of the last attempt.",
    "SELECT e.resource_key FROM effects e
     JOIN effect_attempts a ON a.resource_key = e.resource_key AND a.attempt_number = e.attempt_count
     WHERE (e.status = 'rejected' AND a.outcome NOT IN ('rejected', 'ambiguous', 'interrupted'))
        OR (e.status = 'ambiguous' AND a.outcome NOT IN ('ambiguous', 'interrupted'))
        OR (e.status = 'pending' AND a.outcome NOT IN ('interrupted', 'rejected', 'ambiguous'))
        OR (e.status = 'cancelled' AND a.outcome = 'applied')";
    "X7", "An applied effect has an attempt.",
    "SELECT resource_key FROM effects WHERE status = 'applied' AND attempt_count = 0";
    "X8", "The revision that reserved an effect existed.",
    "SELECT e.resource_key FROM effects e JOIN resources s ON s.resource_key = e.source_key
     WHERE e.source_revision < 1 OR e.source_revision > s.revision";
    "X9", "An effect is a resource of the type effect.",
    "SELECT e.resource_key FROM effects e LEFT JOIN resources r ON r.resource_key = e.resource_key
     WHERE r.resource_key IS NULL OR r.resource_type <> 'effect' OR r.revision < 1";
    "X10", "The last event about an effect agrees with its state.",
    "SELECT e.resource_key FROM effects e JOIN events v ON v.resource_key = e.resource_key
       AND v.resource_revision = (SELECT max(resource_revision) FROM events w
           WHERE w.resource_key = e.resource_key AND w.event_type LIKE 'effect.%')
     WHERE NOT ((e.status = 'pending' AND v.event_type IN ('effect.reserved', 'effect.retry_ready'))
        OR (e.status = 'applying' AND v.event_type IN ('effect.reserved', 'effect.applying', 'effect.retry_started'))
        OR (e.status = 'applied' AND v.event_type IN
            ('effect.applied', 'effect.recovered', 'effect.recovered_confirmed'))
        OR (e.status = 'rejected' AND v.event_type IN ('effect.rejected', 'effect.recovered_rejected'))
        OR (e.status = 'ambiguous' AND v.event_type = 'effect.ambiguous')
        OR (e.status = 'cancelled' AND v.event_type = 'effect.cancelled'))";
    "X11", "An effect's revision equals the number of its events.",
    "SELECT e.resource_key FROM effects e JOIN resources r ON r.resource_key = e.resource_key
     WHERE r.revision <> (SELECT count(*) FROM events v WHERE v.resource_key = e.resource_key)";
    "X12", "The scope of an effect agrees with the type of its source, where the reference knows that type.",
    "SELECT e.resource_key FROM effects e JOIN resources s ON s.resource_key = e.source_key
     WHERE s.resource_type IN ('run', 'decision', 'controller', 'channel') AND NOT (e.owner_scope = 'system'
        OR (e.owner_scope = 'run' AND s.resource_type IN ('run', 'decision'))
        OR (e.owner_scope = 'controller' AND s.resource_type = 'controller')
        OR (e.owner_scope = 'channel' AND s.resource_type = 'channel'))";
    "X13", "The generation of an attempt was really claimed, on the source or on the effect. A channel's is that of its host.",
    "SELECT a.resource_key FROM effect_attempts a JOIN effects e ON e.resource_key = a.resource_key
     LEFT JOIN leases s ON s.resource_key = e.source_key LEFT JOIN leases l ON l.resource_key = e.resource_key
     WHERE e.owner_scope <> 'channel'
       AND a.lease_generation > max(coalesce(s.generation, 0), coalesce(l.generation, 0))";
    "X15", "Only what is to do has a next attempt.",
    "SELECT resource_key FROM effects WHERE next_attempt_at IS NOT NULL AND status NOT IN ('pending', 'rejected')";
    "X17", "A controller's key stands for one intent.",
    "SELECT source_key, idempotency_key FROM effects WHERE owner_scope = 'controller'
     GROUP BY source_key, idempotency_key HAVING count(*) > 1";
    "X18", "Nobody holds the lease of a settled effect.",
    "SELECT e.resource_key FROM effects e JOIN leases l ON l.resource_key = e.resource_key
     WHERE l.owner_id IS NOT NULL AND e.status IN ('applied', 'rejected', 'ambiguous', 'cancelled')";
}
