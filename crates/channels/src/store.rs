//! Writes of the channels domain: the only rooms with INSERT, UPDATE or DELETE, on its own tables; and what commands read.
//!
//! Not here: whether a change is right (`commands`), reading for people (`views`), the clock, other I/O.

pub(crate) mod channels;
pub(crate) mod inbox;
pub(crate) mod messages;
pub(crate) mod parts;
pub(crate) mod read;
pub(crate) mod retention;
