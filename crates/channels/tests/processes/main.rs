//! Several processes on one store: whoever answers where, one answer wins and everybody is told (decisions reference, section 9); and
//! whichever process is killed, wherever it stands, nothing is shown twice and no answer is lost (channels reference, section 10).
//!
//! The children are this test binary again: hosts that play their adapter line by line, and processes without a channel. What they do is
//! said over their standard input, and all of a race wait there for the word to go.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test fails by panicking, and its children speak"
)]

mod child;
mod crashes;
mod races;
#[expect(dead_code, reason = "most of it is for the contract")]
#[path = "../contract/support.rs"]
mod support;
mod world;
