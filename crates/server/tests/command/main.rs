//! The `holdpoint` binary in temporary homes: what it prints, how it exits, and what it leaves behind when it is killed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skips"
)]

mod agents;
mod controllers;
mod crash;
mod decisions;
mod documents;
mod effects;
mod hostile;
mod interrupts;
mod isolate;
mod process;
mod prune;
mod records;
mod runs;
mod sessions;
mod settings;
mod shapes;
mod statuses;
mod store;
mod support;
mod terminal;
