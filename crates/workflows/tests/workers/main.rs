//! Runs in worker processes: real children, real signals, real channels. What a child does wrong ends the child; afterwards every
//! invariant holds, and the run goes on by the rules for lost runners.

#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod candidates;
mod child;
mod honest;
mod kills;
mod lies;
mod raw;
mod speed;
mod stops;
mod support;
