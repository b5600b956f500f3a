//! Writes of the workflows domain: the only rooms with INSERT or UPDATE, on its own tables, and the reads that a command decides
//! on inside its transaction.
//!
//! Not here: whether a change is right (`commands`, `model`), reading for people (`views`), the clock, other I/O.

pub(crate) mod attempts;
pub(crate) mod capture;
pub(crate) mod follow_ups;
pub(crate) mod intervals;
pub(crate) mod messages;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod retention;
pub(crate) mod runs;
pub(crate) mod settings;
pub(crate) mod turns;
pub(crate) mod updates;
pub(crate) mod workers;
