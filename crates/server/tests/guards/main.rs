//! The guards around the store, over everything that the product composes: who may write which table, and that no read changes a byte.
//!
//! Both take what there is from the composed schema and the command line, so that a new table, domain or command is in the test on
//! the day it is made. Nothing here depends on the build: the same tests pass with `--release` (docs/DEVELOPMENT.md).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where its store is not what it says"
)]

mod graphs;
mod ownership;
mod reading;
mod rows;
