//! The promises of the domain, through its public surface. Tests named `controller_…` are the numbered edge cases of the reference.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod applied;
mod children;
mod crowd;
mod damage;
mod deletion;
mod effects;
mod history;
mod machine;
mod pages;
mod passes;
mod plans;
mod queue;
mod reading;
mod runtime;
mod status;
mod superseded;
mod support;
