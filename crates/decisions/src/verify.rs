//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it.

use holdpoint_state::schema::Invariant;

/// All invariants of the domain; its docs page names each.
pub(crate) const INVARIANTS: &[Invariant] = &[Invariant {
    name: "decisionNames",
    summary: "Each resource of the type decision has its row, with the same name, and each row its resource.",
    violations: "SELECT r.aggregate_key FROM resources r
         LEFT JOIN decisions w ON w.resource_key = r.resource_key
         WHERE (r.resource_type = 'decision') <> (w.resource_key IS NOT NULL)
             OR (w.name IS NOT NULL AND w.name <> r.aggregate_key)",
}];
