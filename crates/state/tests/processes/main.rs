//! Several processes on one store: no lost update, nobody starved, one winner, and bounded waits when one of them stands still.
//!
//! The children are this test binary again, each with one task. Who goes when is said over their standard input and output.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and its children speak"
)]

mod child;
mod claims;
mod owners;
mod still;
mod writers;
