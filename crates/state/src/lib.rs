//! Durable state in one SQLite file: blobs, resources, leases, events, effects and the command kernel.

pub mod json;
