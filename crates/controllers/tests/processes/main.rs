//! Hosts that are killed (controllers reference, section 9), and hosts that share a store: nothing is lost, nothing is done twice.
//!
//! The hosts are this test binary again. A killed one gets SIGKILL: no handler, no destructor.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod crashes;
mod host;
mod races;
mod soak;
