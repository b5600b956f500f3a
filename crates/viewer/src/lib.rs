//! Read models of runs: what people see of them, live and in replay.
//!
//! # Rooms
//!
//! - [`text`]: makes untrusted text safe to show; nothing else makes what a screen is given.
//! - [`documents`]: the wire documents of the published client, as types.
//!
//! Not here: changing anything about a run.

pub mod documents;
pub mod text;
