//! The promises of the domain, through its public surface. Tests named `decision_…` are the numbered edge cases of the reference.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod answers;
mod cases;
mod damage;
mod ends;
mod field;
mod files;
mod machine;
mod nodes;
mod pages;
mod plans;
mod said;
mod support;
mod waits;
