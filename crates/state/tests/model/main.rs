//! The kernel against a model of a few fields: commands are transitions, the clock is turned by hand, and after each step outcome *and*
//! rows are compared.
//!
//! The model checks its own invariants first, so that a failure tells whether the model or the product is wrong. Seeds of failures that
//! were found lie in `proptest-regressions/` and run first.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod product;
mod reference;

use proptest::test_runner::{Config, FileFailurePersistence};
use proptest_state_machine::prop_state_machine;

use product::Kernel;

fn config() -> Config {
    let cases = std::env::var("HOLDPOINT_MODEL_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    Config {
        cases: cases.unwrap_or(48),
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/proptest-regressions/model.txt"
        )))),
        ..Config::default()
    }
}

prop_state_machine! {
    #![proptest_config(config())]

    #[test]
    fn the_kernel_does_what_the_model_says(sequential 1..60 => Kernel);
}
