//! Channels with real processes: the program as host and as adapter, and a server on this machine that plays the Bot API.
//!
//! The numbered tests are those cases of the channels reference, section 16, in which a process dies or is looked at.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod crashes;
mod deaths;
mod outside;
mod races;
mod round;
mod setup;
mod store;
mod support;
