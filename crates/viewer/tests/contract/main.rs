//! The promises of the read models, through the public surface and over real stores.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod costs;
mod decoder;
mod documents;
mod following;
mod support;
mod windows;
