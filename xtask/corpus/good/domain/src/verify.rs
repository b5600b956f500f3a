//! Rules.

// sample: invariants_in_a_macro
macro_rules! invariants {
    ($($name:literal, $summary:literal, $violations:literal;)*) => {
        pub(crate) const INVARIANTS: &[Invariant] = &[$(Invariant { name: $name, summary: $summary, violations: $violations }),*];
    };
}

invariants! {
    "shipsFloat", "A ship that is afloat has water.", "SELECT 1";
    "shipsPainted", "A painted ship has a colour.", "SELECT 1";
}
