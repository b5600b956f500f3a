//! Random lives of a resource against a small model of them: callers, hints, finalizers, force, two hosts with passes that are late, a child,
//! and a clock that goes on. After each step what was told, every row and every invariant are compared.

mod model;
mod product;

use proptest::prelude::*;
use proptest_state_machine::prop_state_machine;

use self::product::Product;

/// How many lives a run of the test has; `PROPTEST_CASES` says otherwise.
const CASES: u32 = 128;

prop_state_machine! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_resource_does_what_its_model_does(sequential 1..40 => Product);
}
