//! Passes on the scheduler: what a controller of a program meets, and what is written of it.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod children;
mod effects;
mod isolated;
mod passes;
mod races;
mod support;
