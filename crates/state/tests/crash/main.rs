//! Crashes: a child works on a store and says after each commit what it was told; it is killed (SIGKILL) at some instant; then
//! everything that it said is in the store, and nothing is there by half.
//!
//! `HOLDPOINT_CRASH_ROUNDS` sets the number of random kills (300 unless set), `HOLDPOINT_CRASH_SEED` repeats a run: the seed is in every
//! message of a failure and is printed at the start. The delays are the same again; the instants are the machine's.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod audit;
mod child;
mod points;
mod random;
mod rounds;
