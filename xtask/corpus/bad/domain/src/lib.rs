//! A domain that lacks rooms: no schema, no views, no DOMAIN, no tests.
pub mod commands;
pub mod model;
pub mod operations;
mod store;
mod verify;
