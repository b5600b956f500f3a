//! The contract of the workflows crate, through its public surface: one module for each promise. Tests named `edge_…` and
//! `case_…` are the numbered edge cases of the workflows reference and the numbered cases from the field.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod scheduling;
mod support;
