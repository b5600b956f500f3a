//! The promises of the domain, through its public surface and without a process: a test plays the adapter, line by line.
//!
//! The numbered tests are the cases of the channels reference, section 16; docs/CHANNELS.md has the table.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod answers;
mod cases;
mod damage;
mod deliveries;
mod fencing;
mod hosting;
mod recovery;
mod settlements;
mod support;
mod upkeep;
