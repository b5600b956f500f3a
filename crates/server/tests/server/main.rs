//! The live server: its life, its protocol, hostile peers, and the published client in a terminal.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod hostile;
mod life;
mod piw;
mod support;
mod views;
