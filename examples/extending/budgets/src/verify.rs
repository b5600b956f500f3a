//! What must hold for the rows of this domain at every commit: each rule a SELECT of what breaks it.

use holdpoint_state::schema::Invariant;

/// All invariants of the domain; its docs page names each.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant {
        name: "budgetNames",
        summary: "Each resource of the type budget has its row, with the same name, and each row its resource.",
        violations: "SELECT r.aggregate_key FROM resources r
             LEFT JOIN budgets b ON b.resource_key = r.resource_key
             WHERE (r.resource_type = 'budget') <> (b.resource_key IS NOT NULL)
                 OR (b.name IS NOT NULL AND b.name <> r.aggregate_key)",
    },
    Invariant {
        name: "budgetSpent",
        summary: "What a budget has spent of its window is the sum of the calls that were granted in it.",
        violations: "SELECT b.name FROM budgets b
             WHERE b.spent_units <> (SELECT coalesce(sum(c.units), 0) FROM budget_calls c
                 WHERE c.budget_key = b.resource_key AND c.window_started_at = b.window_started_at AND c.granted = 1)",
    },
    Invariant {
        name: "budgetLine",
        summary: "Each attempt that was granted units has its call, and nobody in line has one.",
        violations: "SELECT w.request_id FROM budget_waits w LEFT JOIN budget_calls c ON c.call_id = w.request_id
             WHERE (w.state = 'granted') <> (c.call_id IS NOT NULL AND c.granted = 1)",
    },
];
