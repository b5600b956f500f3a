//! Several processes on one store: every race of the reference has one winner and everybody is told which (section 9), and whoever is
//! killed, wherever it stands, loses nothing and repeats nothing (section 10).
//!
//! The children are this test binary again. What they do is said over their standard input, and all of a race wait there for the word to
//! go.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and its children speak"
)]

mod child;
mod crashes;
mod races;
#[path = "../contract/said.rs"]
mod said;
mod world;
