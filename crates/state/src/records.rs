//! The records that every domain shares: one room for each, and the only rooms that write their tables.
//!
//! Not here: who may change what (`command`), and when (`database::writer`).

pub mod blobs;
pub mod effects;
pub mod events;
pub mod leases;
pub(crate) mod projects;
pub mod resources;
pub(crate) mod schema_meta;

use crate::command::Operation;
use crate::schema::{Domain, Invariant};

pub(crate) const DOMAIN_NAME: &str = "state";

/// The shared records as a domain: every schema begins with it.
pub const DOMAIN: Domain = Domain {
    ddl: include_str!("schema/state.sql"),
    resource_types: &["effect"],
    operations: OPERATIONS,
    invariants: INVARIANTS,
    ..Domain::named(DOMAIN_NAME)
};

const OPERATIONS: &[&Operation] = &[
    &leases::CLAIM,
    &leases::RENEW,
    &leases::RELEASE,
    &effects::RESERVE,
    &effects::BEGIN,
    &effects::RETRY,
    &effects::APPLY,
    &effects::REJECT,
    &effects::GIVE_UP,
    &effects::DOUBT,
    &effects::RETURN,
    &effects::CANCEL,
    &effects::RECOVER,
    &effects::CONFIRM,
    &effects::RESOLVE_RETRY,
    &effects::RESOLVE_REJECT,
];

/// What holds for the shared records at every commit.
const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "eventsGapFree",
        summary: "A resource of revision n has exactly the events 1 to n.",
        violations: "SELECT r.resource_type || ' ' || r.aggregate_key FROM resources r
             LEFT JOIN (SELECT resource_key, count(*) AS count, max(resource_revision) AS newest
                 FROM events GROUP BY resource_key) e ON e.resource_key = r.resource_key
             WHERE coalesce(e.count, 0) <> r.revision OR coalesce(e.newest, 0) <> r.revision",
    },
    Invariant {
        name: "eventSequence",
        summary: "No event has a number that could be given again.",
        violations: "SELECT e.event_seq FROM events e
             WHERE coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'), 0) < e.event_seq",
    },
    Invariant {
        name: "leaseGeneration",
        summary: "An owner's lease was claimed, and no event used a generation that was never claimed.",
        violations: "SELECT r.resource_type || ' ' || r.aggregate_key FROM resources r
             JOIN leases l ON l.resource_key = r.resource_key
             WHERE (l.owner_id IS NOT NULL AND l.generation < 1)
                 OR l.generation < (SELECT max(lease_generation) FROM events e
                     WHERE e.resource_key = r.resource_key)",
    },
    Invariant {
        name: "leaseTimes",
        summary: "A lease ends after it was last renewed.",
        violations: "SELECT r.resource_type || ' ' || r.aggregate_key FROM resources r
             JOIN leases l ON l.resource_key = r.resource_key
             WHERE l.expires_at <= l.heartbeat_at",
    },
    Invariant {
        name: "projectId",
        summary: "A project's id is derived from a path, and so has its form.",
        violations: "SELECT project_id FROM projects WHERE project_id NOT GLOB 'project-*'
             OR length(project_id) <> 48",
    },
];
