//! Rules.
pub(crate) const INVARIANTS: &[Invariant] = &[
    Invariant { name: "boatsFloat", violations: "SELECT 1" },
    // sample: invariant_that_the_page_does_not_name
    Invariant { name: "boatsCount", violations: "SELECT 1" },
    // sample: invariant_that_the_page_names_in_prose_only
    Invariant { name: "boatsNamedInProse", violations: "SELECT 1" },
];
