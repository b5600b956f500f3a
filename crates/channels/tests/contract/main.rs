//! The promises of the domain, through its public surface and without a process: a test plays the adapter, line by line.
//!
//! The numbered tests are the cases of the channels reference, section 16; docs/CHANNELS.md has the table.

mod answers;
mod deliveries;
mod fencing;
mod recovery;
mod settlements;
mod support;
mod upkeep;
